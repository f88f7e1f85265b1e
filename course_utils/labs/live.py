"""A live run on the page: knobs, Train / Stop / From the start, progress, a curve, a goal, a still twin below.

The numbers come from the run's iterator; this module shows them. Without ipywidgets the still twin stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from course_utils.labs.background import BackgroundRun, Point
from course_utils.labs.curves import curve_svg
from course_utils.labs.knobs import align, widgets
from course_utils.labs.panel import (
    FRAME,
    Goal,
    Panel,
    Still,
    error_html,
    make_button,
    status_html,
)


class LiveRun(Panel):
    """A live experiment; as the last expression of a cell it is shown.

    name    : whose it is; another of this name (the cell is run again) stops and removes the one before
    factory : no arguments; reads the knobs, builds, returns an iterator of `Point` (see `BackgroundRun`)
    title, xlabel, ylabel, y_range : of the curve (see `curve_svg`)
    still   : shown below the controls, and alone where ipywidgets is absent
    knobs   : widgets whose values the factory reads at the start of a run
    goal    : what to reach; judged at every point, and kept until the run begins again

    `.run` is the `BackgroundRun`; `.box` the widget, None without ipywidgets.
    """

    def __init__(
        self,
        name: str,
        factory: Callable[[], Iterator[Point]],
        *,
        title: str,
        ylabel: str,
        still: Still,
        xlabel: str = "step",
        y_range: tuple[float, float] | None = None,
        knobs: Sequence = (),
        goal: Goal | None = None,
    ) -> None:
        super().__init__(name, still=still, knobs=knobs, goal=goal)
        self._labels = {"title": title, "xlabel": xlabel, "ylabel": ylabel, "y_range": y_range}
        self.run = BackgroundRun(factory, on_change=self._draw)
        self._begin()
        self._take_the_place()
        if widgets is not None:
            self._make_widgets()
            self._draw()

    def _begin(self) -> None:
        self._judged, self.reached, self._knobs_moved = 0, False, False

    def _make_widgets(self) -> None:
        self.train = make_button("Train", "play", "Train, or go on where it stopped", self._on_train)
        self.halt = make_button("Stop", "stop", "Stop after the step in hand", lambda: self.run.stop(wait=False))
        self.again = make_button("From the start", "refresh", "Forget this run, train from step 0", self._on_again)
        self.status, self.figure, self.note = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.figure.layout.min_height = "304px"  # nothing below moves while the first curve is on its way
        align(self.knobs)
        knobs = widgets.HBox(self.knobs, layout={"flex_flow": "row wrap"})
        buttons = widgets.HBox([self.train, self.halt, self.again])
        rows = [knobs] * bool(self.knobs) + [buttons, self.status, self.figure, self.note]
        self.box = widgets.VBox(rows, layout=FRAME)
        self.box.add_class("live-lab")
        self._own = [knobs, buttons, *buttons.children, *rows[-3:], self.box]
        for knob in self.knobs:
            knob.observe(self._on_knob, "value")

    def _on_train(self) -> None:
        self.run.start()

    def _on_again(self) -> None:
        self.run.reset()
        self.run.start()

    def _on_knob(self, _change) -> None:
        self._knobs_moved = bool(self.run.points)
        self._draw()

    def series(self) -> dict[str, list[tuple[float, float]]]:
        """The lines so far: name -> [(step, value)]."""
        lines: dict[str, list[tuple[float, float]]] = {}
        for point in tuple(self.run.points):
            for name, value in point.values.items():
                lines.setdefault(name, []).append((point.step, value))
        return lines

    def _judge(self) -> None:
        points = tuple(self.run.points)
        if self.goal is not None:
            self.reached = self.reached or any(self.goal.reached(point) for point in points[self._judged :])
        self._judged = len(points)

    def _draw(self) -> None:
        """Set the widgets' values from the run's state: all that the run's thread ever touches."""
        if self.run.state == "ready":
            self._begin()
        self._judge()
        if self.box is None:
            return
        state, last = self.run.state, self.run.points[-1] if self.run.points else None
        words = progress_words(state, last)
        brief = words if last is None or len(last.values) == 1 else progress_words(state, last._replace(values={}))
        self.status.value = status_html(brief)
        x_max = last.total if last else 1
        self.figure.value = curve_svg(self.series(), x_max=x_max, words=words, **self._labels)
        self.note.value = self._goal_html() + self._hint_html() + error_html(self.run.error)
        self.train.disabled = state in ("running", "finished", "failed")
        self.train.description = "Go on" if state == "stopped" else "Train"
        self.halt.disabled = state != "running"
        self.again.disabled = state == "ready"

    def _hint_html(self) -> str:
        return "<div>A setting has changed: <i>From the start</i> uses it.</div>" if self._knobs_moved else ""

    def close(self, *, keep: Sequence = ()) -> None:
        """Stop the run and remove its widgets, knobs included but for those in `keep`."""
        self.run.stop()
        super().close(keep=keep)


_STATES = {"running": "training", "stopped": "stopped", "finished": "finished", "failed": "ended by an error"}


def progress_words(state: str, last: Point | None) -> str:
    """How far the run is, in one line: "training: step 320 of 628 · loss 0.410 · lr 0.00012"."""
    if last is None:
        return _STATES.get(state, "ready: press Train")
    numbers = [f"{name} {_number(value)}" for name, value in (*last.values.items(), *last.notes.items())]
    return " \u00b7 ".join([f"{_STATES[state]}: step {last.step} of {last.total}", *numbers])


def _number(value: float) -> str:
    return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:.3f}"  # an lr of 1e-4 is not 0.000
