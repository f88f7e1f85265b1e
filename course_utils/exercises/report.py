"""What `check` hands back: a card in JupyterLab, plain text in terminals and under nbval."""

from __future__ import annotations

import html
from dataclasses import dataclass

ICONS = {"right": "✔", "wrong": "✘", "raised": "!", "not attempted": "○"}
_EDGES = {"right": "#0072B2", "wrong": "#D55E00", "raised": "#D55E00", "not attempted": "#888888"}


@dataclass(frozen=True)
class Report:
    """The result of one check.

    status  : "not attempted", "right", "wrong" or "raised"
    mistake : the name of the wrong answer that this is (a key of `wrong_answers(id)`), or None
    lines   : what there is to say, one sentence or result a line
    """

    id: str
    title: str
    status: str
    lines: tuple[str, ...] = ()
    mistake: str | None = None

    @property
    def _heading(self) -> str:
        return f"{self.id}: {self.title}" if self.title else self.id

    def __repr__(self) -> str:
        head = f"{ICONS[self.status]} {self.status} | {self._heading}"
        return "\n".join([head, *(f"  {line}" for line in self.lines)])

    def _repr_html_(self) -> str:
        """Text in the theme's own colour, so it reads on light and dark; the status is a word and a sign, then a
        colour."""
        icon = f'<span style="color:{_EDGES[self.status]}" aria-hidden="true">{ICONS[self.status]}</span>'
        lines = "".join(f'<div style="margin-top:.3em">{html.escape(line)}</div>' for line in self.lines)
        return card(
            f"{icon} <b>{self.status}</b> &nbsp;{html.escape(self._heading)}{lines}",
            _EDGES[self.status],
            'role="status"',
        )


def card(inside: str, edge: str = "#888888", attributes: str = "") -> str:
    """A framed block whose text and ground follow the theme."""
    style = (
        f"border-left:4px solid {edge};background:rgba(128,128,128,.1);padding:.5em 1em;max-width:60em;overflow-x:auto"
    )
    return f'<div {attributes} style="{style}">{inside}</div>'
