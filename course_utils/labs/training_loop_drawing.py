"""An order of actions as a trace, line by line, and its losses beside the right order's: HTML and SVG.

Pure functions from a view to text; no widget is known here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

import torch

from course_utils.figures import REFERENCE, RIGHT, WRONG
from course_utils.labs.curves import curve_svg
from course_utils.labs.training_loop_orders import BEYOND, NUM_UPDATES, Row, View, num_rows, rows_of, run_of, verdict
from course_utils.update_order import ACTIONS, LINES, OrderRun, State

HEIGHT = 15 * 20 + 36 + 24 + 58 + 220  # two updates of seven actions
_HEAD = ("update", "line", "loss", "graphs of outputs / loss", "gradients", "weights")
_CELL = "padding:0 8px 0 0;height:20px;text-align:left;white-space:nowrap"
_HEADING = "padding:0 8px 2px 0;text-align:left;vertical-align:bottom;max-width:95px"


def picture_of(view: View) -> str:
    """The trace as far as it was stepped through, the prediction, then the verdict and the losses; HTML."""
    return trace_html(view) + _said(view) + _judged(view) + losses_svg(view)


def trace_html(view: View) -> str:
    """A line for each action of two updates; what an action changed is bold."""
    shown = view.shown.get(view.key, 0)
    head = "".join(f"<th style='{_HEADING}'>{escape(name)}</th>" for name in _HEAD)
    body = "".join(_line(view.run, row, place, shown) for place, row in enumerate(rows_of(view.run)))
    style = "border-collapse:collapse;font-size:12px;line-height:1.2;font-variant-numeric:tabular-nums"
    first = ("", "start", *_values(view.run.states[0]))
    start = f"<tr class='trace-start'>{_cells(first, [False] * len(first))}</tr>"
    done = f"{min(shown, num_rows(view.run))} actions made" + (", to the end" if view.finished else "")
    return f"<table class='update-trace' aria-label='{done}' style='{style}'><tr>{head}</tr>{start}{body}</table>"


def _line(run: OrderRun, row: Row, place: int, shown: int) -> str:
    code = LINES[row.action].replace("model.parameters()", "\u2026")  # as it runs, but for that
    code = f"<code style='font-size:11px'>{escape(code)}</code>"
    line = f"<td style='{_CELL}'>{row.update}</td><td style='{_CELL}'>{code}</td>"
    if place >= shown:
        return f"<tr style='color:{REFERENCE}'>{line}{'<td></td>' * 4}</tr>"
    look = "background:#e8f1f8" if place == min(shown, num_rows(run)) - 1 else ""
    if row.state is None:
        told = f"{run.error.kind}: {run.error.message}".split(". ")[0]
        told = told if len(told) < 90 else f"{told[:87]}..."
        return (
            f"<tr class='trace-raised' style='{look}'>{line}"
            f"<td colspan='4' style='color:{WRONG};white-space:normal'>\u2717 {escape(told)}</td></tr>"
        )
    before, now = run.states[row.state - 1], run.states[row.state]
    changed = [was != is_ for was, is_ in zip(_values(before), _values(now), strict=True)]
    return f"<tr class='trace-made' style='{look}'>{line}{_cells(_values(now), changed)}</tr>"


def _cells(values: Iterable[str], changed: Iterable[bool]) -> str:
    look = {True: f"font-weight:bold;color:{RIGHT}", False: ""}
    pairs = zip(values, changed, strict=True)
    return "".join(f"<td style='{_CELL};{look[flag]}'>{escape(value)}</td>" for value, flag in pairs)


def _values(state: State) -> tuple[str, str, str, str]:
    """Loss, graphs, gradients and weights as the table shows them."""
    graphs = " / ".join(state.graphs[name] or "\u2013" for name in ("outputs", "loss"))
    loss = "\u2013" if state.loss is None else f"{state.loss:.3f}"
    return loss, graphs, _numbers(state.gradients), _numbers(state.weights)


def _numbers(row: torch.Tensor | None) -> str:
    return "none" if row is None else "  ".join(f"{value:.3f}" for value in row.tolist())


def _said(view: View) -> str:
    """The prediction, and what the last button could not do; a line that is always there, so nothing moves."""
    told = f"You predict: <b>{escape(view.prediction)}</b>. " if view.prediction else ""
    return f"<div class='update-said' style='min-height:1.5em'>{told}{escape(view.notice)}</div>"


def _judged(view: View) -> str:
    told = verdict(view)
    color = WRONG if told.startswith("\u2717") else RIGHT
    return f"<div class='update-verdict' style='color:{color};min-height:4.2em;line-height:1.4'>{escape(told)}</div>"


def losses_svg(view: View) -> str:
    """The right order's losses; beside them this order's, once it was run to the end."""
    series = {"the right order": _points(run_of(ACTIONS, view.left_over))}
    if view.finished:
        same = _points(view.run) == series["the right order"]
        series = {"both orders": _points(view.run)} if same else series | {"this order": _points(view.run)}
    return curve_svg(
        series,
        title=f"Loss after each of {NUM_UPDATES} updates",
        xlabel="updates made",
        ylabel="log10 of the loss",
        x_max=NUM_UPDATES,
        y_range=(-3, 2),
        words=_losses_in_words(view),
        width=640,
        height=220,
    )


def _points(run: OrderRun) -> list[tuple[int, float]]:
    return [(made, math.log10(loss)) for made, loss in enumerate(run.losses) if 0 < loss < math.inf]


def _losses_in_words(view: View) -> str:
    if not view.finished:
        return "The right order alone: this one was not run to the end."
    made, last = len(view.run.losses) - 1, view.run.losses[-1]
    return f"This order made {made} updates; its last loss is {f'{last:.3g}' if last < BEYOND else 'beyond any bound'}."
