"""What every live experiment is on its page: one panel of a name, a goal, a still twin below, errors shown in it.

It knows no run and no chapter. Without ipywidgets the still twin stands alone.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from course_utils import figures
from course_utils.labs.knobs import widgets

_VIEW = "application/vnd.jupyter.widget-view+json"
FRAME = {
    "border": "1px solid #cccccc",
    "padding": "10px 14px",
    "margin": "0 0 12px 0",
    "width": "690px",
    "max_width": "100%",
}
NUMBERS = "font-variant-numeric:tabular-nums"  # digits of equal width: nothing moves while they count


class Goal(NamedTuple):
    """What the reader tries to reach: a sentence with a number in it, and what decides, given a point or a result."""

    text: str
    reached: Callable[[Any], bool]


class Still(NamedTuple):
    """The twin that stays: a figure of the same experiment made in the cell, and its words."""

    fig: object
    alt: str

    def show(self) -> None:
        figures.show(self.fig, self.alt)


_on_page: dict[str, Panel] = {}  # by name: the panel that its cell showed last


class Panel:
    """A live experiment; as the last expression of a cell it is shown.

    name  : whose it is; another of this name (the cell is run again) removes the one before
    still : shown below the controls, and alone where ipywidgets is absent
    knobs : widgets that the reader turns
    goal  : what to reach; `reached` stays until the experiment begins again

    `.box` is the widget, None without ipywidgets.
    """

    def __init__(self, name: str, *, still: Still, knobs: Sequence = (), goal: Goal | None = None) -> None:
        self.name, self.still, self.goal, self.knobs = name, still, goal, list(knobs)
        self.box, self._own, self.reached = None, [], False

    def _take_the_place(self) -> None:
        """Remove the panel of this name that was there, but for knobs that this one uses too."""
        former = _on_page.get(self.name)
        if former is not None:
            former.close(keep=self.knobs)
        _on_page[self.name] = self

    def _on_knob(self, _change) -> None:
        """A knob was turned."""

    def _goal_html(self) -> str:
        if self.goal is None:
            return ""
        icon, verdict = ("\u2713", "reached") if self.reached else ("\u25cb", "not reached yet")
        return f"<div class='live-goal'><b>Goal:</b> {escape(self.goal.text)} &nbsp;<b>{icon} {verdict}</b></div>"

    def __repr__(self) -> str:
        return f"[live experiment {self.name}: controls in JupyterLab with ipywidgets; a still picture follows]"

    def _ipython_display_(self) -> None:
        """The controls, then the still twin, as outputs of their own: a saved notebook keeps the picture."""
        data: dict = {"text/plain": repr(self)}
        if self.box is not None:
            data[_VIEW] = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        figures.publish(data)
        self.still.show()

    def close(self, *, keep: Sequence = ()) -> None:
        """Remove the widgets, knobs included but for those in `keep`."""
        if self.box is None:
            return
        for knob in self.knobs:
            knob.unobserve(self._on_knob, "value")
        keep_ids = {id(knob) for knob in keep}
        for part in [*self._own, *(knob for knob in self.knobs if id(knob) not in keep_ids)]:
            for trait in ("layout", "style"):
                if getattr(part, trait, None) is not None:
                    getattr(part, trait).close()
            part.close()
        self.box = None


def make_button(words: str, icon: str, tooltip: str, act: Callable[[], None]):
    """A button that calls `act()`."""
    button = widgets.Button(description=words, icon=icon, tooltip=tooltip)
    button.on_click(lambda _button: act())
    return button


def status_html(words: str) -> str:
    """The line of numbers below the controls."""
    return f'<span class="live-status" style="{NUMBERS}">{escape(words)}</span>'


def error_html(error: BaseException | None, what: str = "The run ended with an error.") -> str:
    """An error as the reader sees it: type and message, and on demand where it came from."""
    if error is None:
        return ""
    brief = escape("".join(traceback.format_exception_only(error)).strip())
    whole = escape("".join(traceback.format_exception(error)))
    style = f"border-left:4px solid {figures.WRONG};padding-left:8px"
    return (
        f'<div role="alert" class="live-error" style="{style}">'
        f'<b>\u2717 {escape(what)}</b><pre style="white-space:pre-wrap">{brief}</pre>'
        f"<details><summary>Where</summary><pre>{whole}</pre></details></div>"
    )
