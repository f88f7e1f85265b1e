"""What chapter 06's experiment asks: six situations, and whether a cut and a rule solve them.

`labs.optimizer_step_windows` computes; no widget is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from course_utils.labs.optimizer_step_windows import (
    BATCH,
    CLOSE,
    FROZEN,
    IGNORED,
    VARYING,
    WHOLE,
    Found,
    Setting,
    compare,
    kept_bytes,
    limit_bytes,
    window_of,
)
from course_utils.ragged import RULES, Window, cut

TRIED_FIRST = 3  # rules, before "no rule does it" is judged
RULE_WORDS = {  # what people write first; a micro-batch's mean loss is multiplied by this before backward
    "divided by accumulate": "1 / the planned number of micro-batches",
    "mean of means": "1 / the number of micro-batches that came",
    "by examples": "its examples / all examples",
    "by targets": "its targets that count / all that count",
    "divided twice": "its targets that count / all that count / the number of micro-batches",
    "added up": "1: nothing is divided",
    "first alone": "1 for the first, 0 for the others: a step after the first micro-batch",
    "last alone": "0, and 1 for the last: zero_grad before each micro-batch",
}


class Situation(NamedTuple):
    """A window to be cut and added up, and what is to be learned once it is."""

    setting: Setting
    lesson: str


SITUATIONS = {
    "equal parts": Situation(
        Setting(32),
        "In four equal micro-batches in which every target counts four rules agree (try them): a test with equal parts "
        "finds no mistake.",
    ),
    "the last window of an epoch": Situation(
        Setting(19),
        "Four micro-batches of 8 were planned, and 19 examples are left. Divided by the planned number the step is too "
        "short; a mean of means gives the short micro-batch as much say as a full one.",
    ),
    "captions": Situation(
        Setting(31, 0.5, VARYING),
        "The loss is a mean over the tokens that count, not over examples: only they may be the weights.",
    ),
    "captions without any target": Situation(
        Setting(32, 0.25, WHOLE),
        "A micro-batch in which nothing counts has a mean of 0 / 0 and nothing to say: it is passed over. Rules that "
        "count it make the step too short.",
    ),
    "BatchNorm": Situation(
        Setting(32, norm=BATCH),
        "BatchNorm takes mean and variance of the micro-batch in hand, so every cut is another function of the "
        "examples, and no weighing of gradients mends that. Freeze it or take GroupNorm.",
    ),
    "BatchNorm, frozen": Situation(
        Setting(29, 0.5, VARYING, norm=FROZEN),
        "In evaluation mode BatchNorm uses its running statistics, the same in every micro-batch: the weights may "
        "accumulate again.",
    ),
}


class View(NamedTuple):
    """A setting, and what came of it.

    counts, weights : of each micro-batch: targets that count, and what the rule multiplies its mean loss by
    found   : beside the whole batch
    kept    : bytes of activations; `limit` is what there is
    name    : of the situation; None for one of the reader's
    solved  : names of the situations solved until now, in order
    denied  : whether the reader said that no rule does it
    tried   : rule -> error, of this situation cut like this
    """

    setting: Setting
    counts: tuple[int, ...]
    weights: tuple[float, ...]
    found: Found
    kept: int
    limit: int
    name: str | None
    solved: tuple[str, ...] = ()
    denied: bool = False
    tried: Mapping[str, float] = MappingProxyType({})

    @property
    def fits(self) -> bool:
        return self.kept <= self.limit

    @property
    def close(self) -> bool:
        """Whether the gradient is the whole batch's to 1e-6."""
        return self.found.error < CLOSE


def name_of(setting: Setting) -> str | None:
    """The situation that a setting is in, whatever its cut and rule."""
    return next((name for name, one in SITUATIONS.items() if one.setting == setting.situation), None)


def no_rule_does_it(setting: Setting) -> bool:
    """Whether with this cut every rule is off."""
    return all(compare(replace(setting, rule=rule)).error >= CLOSE for rule in RULES)


def look(
    setting: Setting,
    *,
    solved: tuple[str, ...] = (),
    denied: bool = False,
    tried: Mapping[str, float] = MappingProxyType({}),
) -> View:
    """A setting computed; where it solves its situation, that one is added to `solved`."""
    parts = cut(window_of(setting.situation), setting.lengths)
    counts = tuple(int((targets != IGNORED).sum()) for _, targets in parts)
    weights = RULES[setting.rule](Window(list(counts), list(setting.lengths), setting.planned))
    found, kept = compare(setting), kept_bytes(setting.situation, setting.lengths)
    tried = {**tried, setting.rule: found.error}
    view = View(
        setting, counts, tuple(weights), found, kept, limit_bytes(setting.norm), name_of(setting), solved, denied, tried
    )
    if view.name is None or view.name in solved or not is_solved(view):
        return view
    return view._replace(solved=(*solved, view.name))


def is_solved(view: View) -> bool:
    """It fits, and the gradient is right, or the reader says rightly, and not at once, that no rule makes it so."""
    if not view.denied:
        return view.fits and view.close
    return view.fits and len(view.tried) >= TRIED_FIRST and no_rule_does_it(view.setting)


def words(view: View) -> str:
    """The numbers of a setting in one line."""
    lengths = view.setting.lengths
    cut_words = " + ".join(map(str, lengths)) if len(lengths) > 1 else "not cut"
    return (
        f"gradient error {view.found.error:.1e} \u00b7 activations kept {kib(view.kept)} of {kib(view.limit)} KiB "
        f"\u00b7 examples: {cut_words}"
    )


def kib(number: int) -> str:
    return f"{number / 1024:.1f}"


def verdict(view: View) -> str:
    """The setting judged, in a sentence; then what is to be learned, where its situation is solved."""
    told = _denied(view) if view.denied else _judged(view)
    lesson = f" {SITUATIONS[view.name].lesson}" if view.name in view.solved and told.startswith("\u2713") else ""
    return told + lesson


def _denied(view: View) -> str:
    if not view.fits:
        return "\u25cb Cut the window until it fits in the memory first, then say so."
    if view.close:
        return "\u25cb The rule in view does it."
    if len(view.tried) < TRIED_FIRST:
        return f"\u25cb Try {TRIED_FIRST} rules on this cut first, then say so."
    if no_rule_does_it(view.setting):
        return "\u2713 Right: with this cut no rule gives the whole batch's gradient."
    return "\u25cb Some rule does it here."


def _judged(view: View) -> str:
    if not view.fits:
        times = view.kept / view.limit
        right = "The gradient is right, but i" if view.close else "I"
        return f"\u25cb {right}t keeps {times:.1f} times the memory there is: cut the window smaller."
    if not view.close:
        return f"\u25cb The gradient is off by {view.found.error:.1%}: {_how(view.found)}."
    return "\u2713 The whole batch's gradient, and it fits."


def _how(found: Found) -> str:
    """Whether it is the length, the direction, or both that are off."""
    if found.length == 0:
        return "it is 0, nothing is learned from this window"
    if 1 - found.cosine < CLOSE:
        return (
            f"the direction is right, and it is {found.length:.3g} times as long (SGD makes such a step; Adam hides a "
            "factor that stays)"
        )
    return f"another direction (cosine {found.cosine:.3f}), {found.length:.3g} times as long"
