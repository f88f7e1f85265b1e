"""Chapter 06's experiment: cut a window until it fits, and add its pieces up to the gradient of the whole.

It only wires: `labs.optimizer_step_windows` computes, `labs.optimizer_step_situations` judges,
`labs.optimizer_step_drawing` draws.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from course_utils import figures
from course_utils.labs.bench import Bench
from course_utils.labs.knobs import choice, number
from course_utils.labs.optimizer_step_drawing import HEIGHT, window_svg
from course_utils.labs.optimizer_step_situations import RULE_WORDS, SITUATIONS, View, look, verdict, words
from course_utils.labs.optimizer_step_windows import (
    CLOSE,
    LOSSES,
    MOST_EXAMPLES,
    MOST_PARTS,
    NORMS,
    VARYING,
    WHERE,
    Setting,
    between,
    compare,
    even,
)
from course_utils.labs.panel import Goal, Still

OWN, WITHIN = "your own window", "1e-6"
STILL = Setting(31, 0.5, VARYING, lengths=(12, 0, 8, 11))


def picture_of(view: View) -> str:
    """The verdict, the window, and which situations are solved; HTML."""
    told = verdict(view)
    color = figures.RIGHT if told.startswith("\u2713") else figures.WRONG
    head = f'<div class="window-verdict" style="color:{color};min-height:4.2em;line-height:1.4">{escape(told)}</div>'
    signs = {True: "\u2713", False: "\u25cb"}
    each = " \u00b7 ".join(f"{signs[name in view.solved]} {name}" for name in SITUATIONS)
    score = f"<div class='window-score'>Solved {len(view.solved)} of {len(SITUATIONS)}: {escape(each)}</div>"
    return head + window_svg(view) + score


def still_window() -> Still:
    """Every rule on one ragged window: which of them are the whole batch."""
    errors = {rule: compare(replace(STILL, rule=rule)).error for rule in RULE_WORDS}
    close = [rule for rule, error in errors.items() if error < CLOSE]
    title = f"{len(close)} rule of {len(errors)} gives the gradient of the whole batch"
    fig, ax = figures.axes(title=title, xlabel="gradient error", ylabel="rule", height=2.8)
    for place, (rule, error) in enumerate(errors.items()):
        color, marker = (figures.RIGHT, "o") if rule in close else (figures.WRONG, "s")
        ax.plot([max(error, 1e-9)], [place], color=color, marker=marker, linestyle="")
    ax.axvline(CLOSE, color=figures.REFERENCE)
    ax.set_xscale("log")
    ax.set_xlim(1e-9, 10)
    ax.set_yticks(range(len(errors)), list(errors))
    ax.invert_yaxis()
    sizes = ", ".join(map(str, STILL.lengths))
    alt = (
        f"A window of {STILL.examples} captions of varying length in micro-batches of {sizes}: within {WITHIN} of the "
        f"whole batch's gradient is {' and '.join(close)} alone; the {len(errors) - len(close)} other rules are off by "
        f"more than 1 %: {min(error for error in errors.values() if error >= CLOSE) > 0.01}."
    )
    return Still(fig, alt)


class MicroBatchLab(Bench):
    """The window on the page; made by `micro_batch_lab`."""

    def __init__(self) -> None:
        first = next(iter(SITUATIONS))
        self.situation = choice("Situation", [*SITUATIONS, OWN], first)
        self.rule = choice("Rule", list(RULE_WORDS), "divided by accumulate")
        self.parts = number("Micro-batches", 1, low=1, high=MOST_PARTS, step=1)
        self.cuts = _cut_knobs()
        self.fixed = _situation_knobs(SITUATIONS[first].setting)
        self._forget()
        goal = (
            f"in {len(SITUATIONS)} of {len(SITUATIONS)} situations the gradient error is below {WITHIN} and the "
            "activations fit in the memory limit, or you say rightly that no rule makes it so"
        )
        super().__init__(
            "optimizer_step",
            self._look,
            say=words,
            draw=picture_of,
            still=still_window(),
            knobs=[self.situation, *self.fixed.values(), self.rule, self.parts],
            rows=[self.cuts],
            buttons=[("No rule does it", "ban", "In this situation, with any cut that fits", self.deny)],
            goal=Goal(goal, lambda view: len(view.solved) == len(SITUATIONS)),
            forget=self._forget,
            height=HEIGHT + 90,
        )

    def setting(self) -> Setting:
        """The window, its cut and its rule, as the knobs are."""
        values = {name: knob.value for name, knob in self.fixed.items()}
        values["ignored"] = round(values["ignored"], 2)  # a browser's slider says 0.30000000000000004
        points = [knob.value for knob in self.cuts[: self.parts.value - 1]]
        return Setting(**values, lengths=between(points, values["examples"]), rule=self.rule.value)

    def _look(self) -> View:
        if self.situation.value != self._shown and self.situation.value in SITUATIONS:
            self._begin(self.situation.value)
        if (self.parts.value, self.fixed["examples"].value) != self._cut_for:
            self._cut_evenly()
        setting = self.setting()
        window = setting.situation, setting.lengths
        tried = self._tried.get(window, {})
        view = look(setting, solved=self._solved, denied=self._denied == setting, tried=tried)
        self._shown = self.situation.value = view.name or OWN
        self._solved, self._tried[window] = view.solved, view.tried
        return view

    def _begin(self, name: str) -> None:
        """Turn every knob to a situation as it begins: not cut, with the rule that most people write."""
        for part, knob in self.fixed.items():
            knob.value = getattr(SITUATIONS[name].setting, part)
        self.parts.value, self.rule.value = 1, "divided by accumulate"
        self._shown, self._cut_for = name, None

    def _cut_evenly(self) -> None:
        """As a loader cuts; the knobs of cut points that there are not are not seen."""
        self._cut_for = self.parts.value, self.fixed["examples"].value
        place, lengths = 0, even(self._cut_for[1], self._cut_for[0])
        for knob, length in zip(self.cuts, [*lengths[:-1], *[0] * MOST_PARTS], strict=False):
            place += length
            knob.value = place
        for number_, knob in enumerate(self.cuts, start=1):
            if hasattr(knob, "layout"):
                knob.layout.display = "" if number_ < self.parts.value else "none"

    def deny(self) -> None:
        """Say of the situation in view that no rule does it."""
        self._denied = self.setting()

    def _forget(self) -> None:
        self._solved, self._denied, self._tried = (), None, {}
        self._shown, self._cut_for = next(iter(SITUATIONS)), None


def _situation_knobs(first: Setting) -> dict[str, Any]:
    """A knob for each part of a situation, all as in the first."""
    return {
        "examples": number("Captions", first.examples, low=4, high=MOST_EXAMPLES, step=1),
        "ignored": number("Ignored share", first.ignored, low=0.0, high=0.9, step=0.05),
        "where": choice("Ignored are", WHERE, first.where),
        "norm": choice("Network", NORMS, first.norm),
        "planned": number("Planned parts", first.planned, low=1, high=MOST_PARTS, step=1),
        "loss": choice("Loss", LOSSES, first.loss),
        "room": number("Memory, captions", first.room, low=2, high=16, step=1),
    }


def _cut_knobs() -> list[Any]:
    """A knob for each cut point."""
    knobs = [number(f"Cut {place}", 0, low=0, high=MOST_EXAMPLES, step=1) for place in range(1, MOST_PARTS)]
    for knob in knobs:
        if hasattr(knob, "layout"):
            knob.layout.width = "215px"
    return knobs


def micro_batch_lab() -> MicroBatchLab:
    """Seven windows of captions: cut each until it fits, and find the rule that adds the pieces up to the whole."""
    return MicroBatchLab()
