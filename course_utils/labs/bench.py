"""An experiment that answers at once: a knob is turned, a result is computed, its picture is drawn.

No thread and no run: `LiveRun` is for what takes longer than half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from course_utils.labs.knobs import align, widgets
from course_utils.labs.panel import FRAME, Goal, Panel, Still, error_html, make_button, status_html
from course_utils.randomness import isolated_rng

Button = tuple[str, str, str, Callable[[], None]]  # words, icon, tooltip, what it does


class Bench(Panel):
    """A live experiment without a run; as the last expression of a cell it is shown.

    name    : whose it is; another of this name (the cell is run again) removes the one before
    compute : no arguments; reads the knobs, returns the result. The global generators are put back after it
    say     : result -> its numbers in one line of plain text
    draw    : result -> the picture, as HTML whose texts are escaped
    still   : shown below the controls, and alone where ipywidgets is absent
    knobs   : in rows of two, their labels of one width
    rows    : further rows of knobs, each as wide as it likes
    answers : buttons in a row of their own above the others: words, icon, tooltip and what each does
    buttons : likewise; after each press the result is computed again
    goal    : judged at every result; once reached it stays reached until Reset
    forget  : called by Reset, after which the knobs are as they were at first
    height  : of the picture, in pixels at least: nothing below it moves while it changes

    `.result` is the last one, None before the first; `.error` what the last computation raised, shown in the panel.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[[], Any],
        *,
        say: Callable[[Any], str],
        draw: Callable[[Any], str],
        still: Still,
        knobs: Sequence = (),
        rows: Sequence[Sequence] = (),
        answers: Sequence[Button] = (),
        buttons: Sequence[Button] = (),
        goal: Goal | None = None,
        forget: Callable[[], None] = lambda: None,
        height: int = 0,
    ) -> None:
        super().__init__(name, still=still, goal=goal, knobs=[*knobs, *(knob for row in rows for knob in row)])
        self._compute, self._say, self._paint, self._forget = compute, say, draw, forget
        self._at_first = [knob.value for knob in self.knobs]
        self._busy, self.result, self.error = False, None, None
        self._take_the_place()
        if widgets is not None:
            self._make_widgets(list(knobs), rows, (answers, buttons), height)
            self.refresh()

    def _make_widgets(self, knobs: list, rows: Sequence[Sequence], acts: Sequence[Sequence[Button]], height: int):
        pressed = [[self._button(*one) for one in group] for group in acts]
        pressed[-1].append(make_button("Reset", "refresh", "Every knob as it was at first", self.reset))
        self.buttons = [button for group in pressed for button in group]
        for button in self.buttons:
            button.layout.width = "auto"  # no word is cut
        self.status, self.figure, self.note = widgets.HTML(), widgets.HTML(), widgets.HTML()
        if height:
            self.figure.layout.min_height = f"{height}px"
        align(knobs)
        lines = [row for row in (knobs, *rows, *pressed) if row]
        boxes = [widgets.HBox(list(row), layout={"flex_flow": "row wrap"}) for row in lines]  # else words are cut
        parts = [*boxes, self.status, self.figure, self.note]
        self.box = widgets.VBox(parts, layout=FRAME)
        self.box.add_class("live-lab")
        self._own = [*parts, *self.buttons, self.box]
        for knob in self.knobs:
            knob.observe(self._on_knob, "value")

    def _button(self, words: str, icon: str, tooltip: str, act: Callable[[], None]):
        return make_button(words, icon, tooltip, lambda: self._press(act))

    def _on_knob(self, _change) -> None:
        if not self._busy:
            self.refresh()

    def _press(self, act: Callable[[], None]) -> None:
        self._try(act)
        if self.error is None:
            self.refresh()
        else:
            self._show()

    def reset(self) -> None:
        """Every knob as it was at first, the goal not reached."""
        self._try(self._put_back)
        self.reached, self.result = False, None
        self.refresh()

    def _put_back(self) -> None:
        self._forget()
        for knob, value in zip(self.knobs, self._at_first, strict=True):
            knob.value = value

    def refresh(self) -> None:
        """Compute with the knobs as they are, judge, and draw; an error is kept and shown, the last picture stays."""
        self._try(self._renew)
        self._show()

    def _renew(self) -> None:
        self.result = self._compute()
        if self.goal is not None:
            self.reached = bool(self.reached or self.goal.reached(self.result))
        if self.box is not None:
            self.status.value, self.figure.value = status_html(self._say(self.result)), self._paint(self.result)

    def _try(self, act: Callable[[], None]) -> None:
        """Call `act`: the generators are put back, no knob that it moves computes again, an error is kept."""
        self._busy, self.error = True, None
        try:
            with isolated_rng():
                act()
        except Exception as error:
            self.error = error
        finally:
            self._busy = False

    def _show(self) -> None:
        if self.box is not None:
            self.note.value = self._goal_html() + error_html(self.error, "That did not work.")


def picture(content: bytes, alt: str, *, width: int, style: str = "") -> str:
    """An `<img>` that carries its JPEG or PNG file; `alt` is its words, escaped here."""
    import base64

    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    data = base64.b64encode(content).decode()
    return f'<img src="data:image/{kind};base64,{data}" alt="{escape(alt)}" width="{width}" style="{style}">'
