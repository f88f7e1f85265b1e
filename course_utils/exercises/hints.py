"""Hints one at a time, then the answer: buttons in JupyterLab, `<details>` where no widget runs, one line as text."""

from __future__ import annotations

import html
from dataclasses import dataclass

from course_utils.exercises.report import card


@dataclass(frozen=True, repr=False)
class Hints:
    """What `hint` hands back; `texts` are the hints, mildest first, and `source` is the answer's code."""

    id: str
    texts: tuple[str, ...]
    source: str

    def __repr__(self) -> str:
        return f"{len(self.texts)} hints and the answer to {self.id}"

    def _repr_html_(self) -> str:
        hints = [_details(f"Hint {i} of {len(self.texts)}", html.escape(t)) for i, t in enumerate(self.texts, start=1)]
        return card("".join([*hints, _details("Answer", _code(self.source))]))

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return {**_widget_view(self), "text/html": self._repr_html_(), "text/plain": repr(self)}


def _details(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>{inside}</details>"


def _code(source: str) -> str:
    return f'<pre style="margin:.4em 0;background:transparent">{html.escape(source)}</pre>'


def _widget_view(hints: Hints) -> dict:
    """The mime entry of the buttons; nothing without ipywidgets."""
    try:
        import ipywidgets
    except ImportError:
        return {}
    view = _buttons(hints, ipywidgets)._repr_mimebundle_() or {}
    return {mime: data for mime, data in view.items() if "widget-view" in mime}


def _buttons(hints: Hints, widgets):
    """A box with "Hint" and "Answer"; each press of "Hint" opens one more."""
    more = widgets.Button(description="Hint", tooltip="Show the next hint")
    answer = widgets.Button(description="Answer", tooltip="Show a worked answer")
    shown = widgets.HTML()
    state = {"hints": 0, "answer": False}

    def press(button) -> None:
        state["answer"] |= button is answer
        state["hints"] += button is more
        more.disabled, answer.disabled = state["hints"] == len(hints.texts), state["answer"]
        shown.value = _shown(hints, **{"num_hints": state["hints"], "with_answer": state["answer"]})

    more.on_click(press)
    answer.on_click(press)
    return widgets.VBox([widgets.HBox([more, answer]), shown])


def _shown(hints: Hints, *, num_hints: int, with_answer: bool) -> str:
    items = "".join(f"<li>{html.escape(text)}</li>" for text in hints.texts[:num_hints])
    return f'<div role="status"><ol>{items}</ol>{_code(hints.source) if with_answer else ""}</div>'
