"""The exercise of chapter 07 about a scheduler that is driven by a metric."""

from __future__ import annotations

import math

from course_utils.exercises.declare import exercise


@exercise(
    "schedules-7",
    title="What patience counts, and a metric that is NaN",
    difficulty="hard",
    minutes=15,
    cases=[
        ([0.9, 0.8, 0.7], 1),
        ([0.5, 0.6, 0.7], 1),
        ([0.5] * 7, 5),
        ([0.5, 0.6, 0.4, 0.45, 0.42], 1),
        ([0.5] * 8, 1),
        ([0.5, 0.9, 0.6, 0.7], 1),
        ([0.5, 0.6, 0.6, 0.55, 0.58], 1),
        ([0.5, 0.6, 0.4, 0.45, 0.3, 0.35], 1),
        ([0.6, 0.5, 0.5, 0.4, 0.4], 1),
        ([0.5, 0.4999995, 0.499999, 0.4999985], 1),
        ([0.5, math.nan, math.nan, 0.4], 1),
    ],
    expected=[[], [2], [6], [4], [2, 4, 6], [2], [2, 4], [], [], [], ValueError],
    keep_arguments=True,
    describe=lambda metrics, patience: f"plateau_cuts({metrics}, patience={patience})",
    hints=[
        "Keep the best metric so far and the number of epochs since. Only a strictly lower metric is better.",
        "`patience` epochs without improvement are tolerated: the cut comes when there is one more, `num_bad "
        "> patience`.",
        "After a cut the count starts at 0 again, the best stays. math.isnan(metric): raise ValueError.",
    ],
    lesson="A NaN compares as no improvement: without the check a broken validation would cut the lr silently.",
)
def plateau_cuts(metrics: list[float], patience: int) -> list[int]:
    """Epochs (0-based) after which ReduceLROnPlateau would cut the lr; the metric should fall.

    metrics  : one validation loss an epoch; better is lower than the best of all epochs so far.
               Any decrease counts, however small (threshold=0); an equal value does not
    patience : epochs without improvement that are tolerated, at least 1; one more cuts the lr,
               and the count starts anew
    raises   : ValueError if a metric is NaN
    """
    best, num_bad, cuts = float("inf"), 0, []
    for epoch, metric in enumerate(metrics):
        if metric != metric:  # only NaN differs from itself
            raise ValueError(f"the metric of epoch {epoch} is NaN: look for its cause first")
        best, num_bad = (metric, 0) if metric < best else (best, num_bad + 1)
        if num_bad > patience:
            cuts.append(epoch)
            num_bad = 0
    return cuts


def _cuts(metrics, *, better=lambda m, best, before: m < best, due, **changed) -> list[int]:
    """The answer with its decisions as arguments; `changed` names what is done otherwise."""
    best, num_bad, cuts, before = math.inf, 0, [], math.inf
    for epoch, metric in enumerate(metrics):
        if "nan" not in changed and math.isnan(metric):
            raise ValueError("NaN")
        improved = better(metric, best, before)
        kept = num_bad if "keeps_count" in changed else 0
        best, num_bad, before = (metric, kept, metric) if improved else (best, num_bad + 1, metric)
        if due(num_bad):
            cuts.append(epoch)
            num_bad = num_bad if "no_reset" in changed else 0
            best = metric if "new_best" in changed else best
    return cuts


@plateau_cuts.wrong
def cuts_one_epoch_early(metrics, patience):
    """The lr is cut as soon as `patience` epochs did not improve. Patience is what is tolerated: with patience 5 the
    sixth such epoch cuts, which is the seventh equal value."""
    return _cuts(metrics, due=lambda num_bad: num_bad >= patience)


@plateau_cuts.form_of("cuts_one_epoch_early")
def cuts_one_epoch_early_and_on(metrics, patience):
    return _cuts(metrics, due=lambda num_bad: num_bad >= patience, no_reset=True)


@plateau_cuts.wrong
def never_counts_anew(metrics, patience):
    """The count is not set back after a cut: from the first cut on, every epoch without improvement cuts again, and
    the lr is gone after a few of them."""
    return _cuts(metrics, due=lambda num_bad: num_bad > patience, no_reset=True)


@plateau_cuts.form_of("never_counts_anew")
def cuts_once(metrics, patience):
    return _cuts(metrics, due=lambda num_bad: num_bad == patience + 1, no_reset=True)


@plateau_cuts.wrong
def counts_on_after_an_improvement(metrics, patience):
    """The count is not set back by an improvement: bad epochs add up over the whole run, and the lr is cut although
    the loss falls again and again. Patience counts bad epochs in a row."""
    return _cuts(metrics, due=lambda num_bad: num_bad > patience, keeps_count=True)


@plateau_cuts.wrong
def compares_with_the_epoch_before(metrics, patience):
    """Each metric is compared with the one before it, not with the best: a loss that jumps up and down counts as
    improving for ever."""
    return _cuts(metrics, better=lambda m, _, before: m < before, due=lambda num_bad: num_bad > patience)


@plateau_cuts.wrong
def takes_equal_for_better(metrics, patience):
    """An equal metric counts as an improvement: on a flat plateau, the very thing to be noticed, the lr is never
    cut."""
    return _cuts(metrics, better=lambda m, best, _: m <= best, due=lambda num_bad: num_bad > patience)


@plateau_cuts.wrong
def needs_a_clear_improvement(metrics, patience):
    """A small decrease does not count: that is ReduceLROnPlateau's own default, threshold=1e-4, by which the best must
    be beaten by 0.01 %. Here any decrease counts (threshold=0), so `metric < best` decides."""
    return _cuts(metrics, better=lambda m, best, _: m < best * (1 - 1e-4), due=lambda num_bad: num_bad > patience)


@plateau_cuts.wrong
def forgets_the_best_at_a_cut(metrics, patience):
    """At a cut the present metric is taken for the new best, though it is worse: after it, a loss that only returns
    towards the old best counts as improving. The best stays; only the count starts anew."""
    return _cuts(metrics, due=lambda num_bad: num_bad > patience, new_best=True)


@plateau_cuts.wrong
def counts_epochs_from_one(metrics, patience):
    """The cuts are right, their numbers are one too large: epochs are counted from 0, as enumerate(metrics) does."""
    return [epoch + 1 for epoch in plateau_cuts.answer(metrics, patience)]


@plateau_cuts.wrong
def lets_nan_cut_the_lr(metrics, patience):
    """A NaN is not lower than the best, so it counts as an epoch without improvement, and the lr is cut though nothing
    was measured. The cause of the NaN stays hidden."""
    return _cuts(metrics, due=lambda num_bad: num_bad > patience, nan=True)
