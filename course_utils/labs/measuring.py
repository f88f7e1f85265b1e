"""A bench with one more button: it measures in the background what the picture only says, and can be stopped.

What it starts is an iterator with `close()`: made in the caller's thread, advanced in another, closed wherever the run
ends, stops or fails, so that no worker outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from course_utils.labs.background import BackgroundRun
from course_utils.labs.bench import Bench
from course_utils.labs.knobs import widgets
from course_utils.labs.panel import error_html, make_button


class MeasuringBench(Bench):
    """A `Bench` that also measures here.

    measure : no arguments; reads the knobs, starts what is needed, returns an iterator of results with `close()`
    tell    : results so far and the run's state -> HTML below the picture; called in the run's thread too
    words, tooltip : of its button
    others  : as `Bench` takes them

    `.run` is the `BackgroundRun`, `.measurement` what `measure` returned last.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[[], Any],
        *,
        measure: Callable[[], Iterator],
        tell: Callable[[list, str], str],
        words: str = "Measure here",
        tooltip: str = "Run it really, in the background; other cells can run meanwhile",
        **bench: Any,
    ) -> None:
        self._measure, self._tell, self._words, self._tip = measure, tell, words, tooltip
        self.measurement = None
        self.run = BackgroundRun(self._begin, on_change=self._on_change)
        super().__init__(name, compute, **bench)

    def _begin(self) -> Iterator:
        self.measurement = self._measure()
        return self.measurement

    def _make_widgets(self, *parts: Any) -> None:
        super()._make_widgets(*parts)
        self.go = make_button(self._words, "clock-o", self._tip, self.measure)
        self.halt = make_button("Stop", "stop", "Stop after the turn in hand", lambda: self.run.stop(wait=False))
        for button in (self.go, self.halt):
            button.layout.width = "auto"
        self.told = widgets.HTML()
        row = widgets.HBox([self.go, self.halt])
        *above, note = self.box.children
        self.box.children = [*above, row, self.told, note]
        self._own += [row, self.go, self.halt, self.told]
        self._on_change()

    def measure(self) -> None:
        """Measure with the knobs as they are; the run that is alive in this kernel is stopped first."""
        self.run.reset()
        self.run.start()

    def _on_change(self) -> None:
        """A result came, or the run changed its state: all that its thread ever touches of the page."""
        state = self.run.state
        if state in ("finished", "stopped", "failed") and self.measurement is not None:
            self.measurement.close()
        if self.box is not None:
            self.told.value = self._tell(list(self.run.points), state) + error_html(self.run.error)
            self.go.disabled, self.halt.disabled = state == "running", state != "running"

    def _put_back(self) -> None:
        self.run.reset()
        super()._put_back()

    def close(self, *, keep: tuple = ()) -> None:
        """Stop the run, end its workers, remove the widgets."""
        self.run.stop()
        super().close(keep=keep)
