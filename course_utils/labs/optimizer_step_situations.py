"""What chapter 06's experiment asks: seven situations, and whether a cut and a rule solve them.

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
    EACH,
    FROZEN,
    MOST_PARTS,
    SORTED,
    SUM,
    VARYING,
    WHOLE,
    Found,
    Setting,
    compare,
    counted,
    limit_bytes,
    part_bytes,
    window_of,
)
from course_utils.ragged import RULES, Window, cut

TRIED_FIRST = 3  # rules, before "no rule does it" is judged
RULE_WORDS = {  # what people write first; a micro-batch's loss is multiplied by this before backward
    "divided by accumulate": "1 / the planned number of micro-batches",
    "mean of means": "1 / the number of micro-batches that came",
    "by examples": "its captions / all captions",
    "by targets": "its words that count / all that count",
    "divided twice": "its words that count / all that count / the number of micro-batches",
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
        "In four equal micro-batches in which every word counts four rules agree (try them): a test with equal parts "
        "finds no mistake.",
    ),
    "the last window of an epoch": Situation(
        Setting(19),
        "Four micro-batches of 8 were planned, and 19 captions are left. Divided by the planned number the step is too "
        "short; a mean of means gives the short micro-batch as much say as a full one.",
    ),
    "short captions first": Situation(
        Setting(31, 0.5, SORTED, planned=6, room=4),
        "A micro-batch is as long as its longest caption, so many short ones fit where few long ones do. The parts are "
        "unequal, and the words that count are their weights: the loss is a mean over words.",
    ),
    "a sum over words": Situation(
        Setting(31, 0.5, VARYING, loss=SUM),
        "A sum has been divided by nothing: the gradients of the parts add up as they are, and each weight makes the "
        "step shorter. That is why `update` refuses a loss with reduction='sum'.",
    ),
    "a mean over captions": Situation(
        Setting(31, 0.5, VARYING, loss=EACH),
        "This loss gives each caption the same say, long or short: what it is a mean over are captions, so captions "
        "are the weights, and words that count are wrong here. `update` is told so by `count_fn`.",
    ),
    "BatchNorm": Situation(
        Setting(32, norm=BATCH),
        "BatchNorm takes mean and variance of the micro-batch in hand, so every cut is another function of the "
        "captions, and no weighing of gradients mends that. Freeze it or take GroupNorm.",
    ),
    "BatchNorm, frozen": Situation(
        Setting(32, 0.25, WHOLE, norm=FROZEN),
        "In evaluation mode BatchNorm uses its running statistics, the same in every micro-batch: the weights may "
        "accumulate again. A micro-batch in which no word counts has a mean of 0 / 0 and is passed over; a rule that "
        "counts it makes the step too short.",
    ),
}


class View(NamedTuple):
    """A setting, and what came of it.

    counts, weights : of each micro-batch: words that count, and what the rule multiplies its loss by
    found   : beside the whole batch
    each    : bytes of activations that each micro-batch keeps; `limit` is what there is
    name    : of the situation; None for one of the reader's
    solved  : names of the situations solved until now, in order
    denied  : whether the reader said that no rule does it
    tried   : rule -> error, of this situation cut like this
    """

    setting: Setting
    counts: tuple[int, ...]
    weights: tuple[float, ...]
    found: Found
    each: tuple[int, ...]
    limit: int
    name: str | None
    solved: tuple[str, ...] = ()
    denied: bool = False
    tried: Mapping[str, float] = MappingProxyType({})

    @property
    def kept(self) -> int:
        """Bytes of the largest micro-batch: the others are gone by then, or not there yet."""
        return max(self.each)

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
    counts = tuple(counted(targets) for _, targets in parts)
    weights = RULES[setting.rule](Window(list(counts), list(setting.lengths), setting.planned))
    found, each = compare(setting), part_bytes(setting.situation, setting.lengths)
    tried = {**tried, setting.rule: found.error}
    view = View(
        setting, counts, tuple(weights), found, each, limit_bytes(setting), name_of(setting), solved, denied, tried
    )
    if view.name is None or view.name in solved or not is_solved(view):
        return view
    return view._replace(solved=(*solved, view.name))


def is_solved(view: View) -> bool:
    """It fits, and the gradient is right, or the reader says rightly, and not at once, that no rule makes it so."""
    if not view.denied or view.close:
        return view.fits and view.close
    return view.fits and len(view.tried) >= TRIED_FIRST and no_rule_does_it(view.setting)


def words(view: View) -> str:
    """The numbers of a setting in one line."""
    lengths = view.setting.lengths
    cut_words = " + ".join(map(str, lengths)) if len(lengths) > 1 else "not cut"
    return (
        f"gradient error {view.found.error:.1e} \u00b7 activations kept {kib(view.kept)} of {kib(view.limit)} KiB "
        f"\u00b7 captions: {cut_words}"
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
        return "\u2713 The rule in view does it: the whole batch's gradient, and it fits."
    known = view.name in view.solved
    if known and not no_rule_does_it(view.setting):
        return "\u25cb Some rule does it, you found it before; the one in view does not."
    if len(view.tried) < TRIED_FIRST and not known:
        return f"\u25cb Try {TRIED_FIRST} rules on this cut first, then say so."
    if no_rule_does_it(view.setting):
        return "\u2713 Right: with this cut no rule gives the whole batch's gradient."
    return "\u25cb Some rule does it here."


def _judged(view: View) -> str:
    if not view.fits:
        times = view.kept / view.limit
        right = "The gradient is right, but i" if view.close else "I"
        return f"\u25cb {right}t keeps {times:.1f} times the memory limit: {_smaller(view)}."
    if not view.close:
        return f"\u25cb The gradient is off by {view.found.error:.1%}: {_how(view.found)}."
    return "\u2713 The whole batch's gradient, and it fits."


def _smaller(view: View) -> str:
    """What to do about a micro-batch that does not fit."""
    if len(view.setting.lengths) == 1:
        return "raise Micro-batches until each part fits"
    more = "raise Micro-batches further, or " if len(view.setting.lengths) < MOST_PARTS else ""
    padded = " (its captions times the words of its longest one)" if view.setting.where == SORTED else ""
    return f"{more}move the cuts: only the largest part counts{padded}"


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
