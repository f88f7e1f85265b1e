"""The exercise of chapter 05 about stopping early, as a function of the losses alone."""

from __future__ import annotations

import math
from collections.abc import Callable

from course_utils.exercises.declare import exercise

_CASES = [
    ([0.75, 0.5, 0.25], 2, 0.0),
    ([0.5, 0.75, 0.75], 2, 0.0),
    ([0.5, 0.75, 0.625, 0.25], 1, 0.0),
    ([0.5, 0.75, 0.25, 0.375, 0.5, 0.125], 2, 0.0),
    ([0.75, 0.875, 0.5, 0.625, 0.25, 0.375, 0.125], 2, 0.0),
    ([0.5, 0.875, 0.75, 0.625, 0.5625], 3, 0.0),
    ([0.5, 0.25, 0.25, 0.25, 0.25], 2, 0.0),
    ([0.75, 0.625, 0.5, 0.375, 0.25, 0.125], 2, 0.1875),
    ([0.5, 0.375, 0.3125, 0.28125], 2, 0.25),
    ([1.0, 0.75, 0.5, 0.375, 0.25], 3, 0.25),
    ([0.5, 0.5625, 0.625, 0.6875], 2, 0.125),
    ([0.5, math.nan, 0.375, 0.75, math.nan], 2, 0.0),
    ([math.nan, 0.5, 0.625, 0.375], 2, 0.0),
    ([0.5, 0.375, 0.75], 1, 0.125),
    ([4.0, 3.5, 3.0], 2, 0.25),
    ([0.5, math.nan, 0.75, 0.875], 2, 0.0),
    ([math.nan, 0.5], 1, 0.0),
]


@exercise(
    "training_loop-6",
    title="When to stop, and which epoch to keep",
    difficulty="medium",
    minutes=12,
    cases=_CASES,
    expected=[
        (None, 2), (2, 0), (1, 0), (4, 2), (None, 6), (3, 0), (3, 1),
        (None, 5), (2, 2), (None, 4), (2, 0), (4, 2), (None, 3), (1, 1), (None, 2), (2, 0),
        (0, None),
    ],
    keep_arguments=True,
    parts=("the epoch of the stop", "the epoch to keep"),
    describe=lambda losses, patience, min_delta: (
        f"stop_early({losses}, patience={patience}, min_delta={min_delta})"
    ),
    hints=[
        "Two questions with two memories: which loss is the lowest so far, and which loss was the last *progress*? "
        "With a min_delta above 0 they are not the same.",
        "Count the epochs without progress in a row: 0 after a progress, one more otherwise. The run ends after the "
        "epoch in which this count reaches patience, and no later loss may be looked at.",
        "progress: loss < reference - min_delta, with reference = math.inf at first; only a progress moves the "
        "reference. NaN is not less than anything: `<` is false for it on either side.",
    ],
    lesson="Trainer(patience=..., min_delta=...) decides like this, by the accuracy where there is one (higher is "
    "better) and by the loss where there is none; the weights come from trainer.best.model.",
    imports="import math",
)  # fmt: skip
def stop_early(losses: list[float], patience: int, min_delta: float) -> tuple:
    """When a run ends that watches its validation loss, and which epoch's weights to keep.

    losses    : the validation loss of each epoch, 0, 1, ..., as if the run went on; lower is better
    patience  : the run ends after an epoch if it and the epochs before it are `patience` epochs
                without progress in a row; 1 or more
    min_delta : progress is a loss that is lower, by more than this, than the loss of the last
                progress; 0 or more. The first loss that is a number is progress. An equal loss is
                not, and NaN never is
    returns   : (stop, best): the epoch after which the run ends, or None where it goes on to the
                end of the list; and the epoch of the lowest loss among those that were run,
                whether it was progress or not. Of equal ones the first; None if all were NaN

    stop_early([0.5, 0.75, 0.25, 0.375, 0.5, 0.125], patience=2, min_delta=0): epochs 3 and 4 are
    two in a row without progress, so the result is (4, 2). Epoch 5 is never run.
    """
    lowest, reference, best, waited = math.inf, math.inf, None, 0
    for epoch, loss in enumerate(losses):
        if loss < lowest:
            lowest, best = loss, epoch
        if loss < reference - min_delta:
            reference, waited = loss, 0
        else:
            waited += 1
        if waited == patience:
            return epoch, best
    return None, best


_Better = Callable[[float, float, float], bool]


def _progress(loss: float, reference: float, min_delta: float) -> bool:
    return loss < reference - min_delta


def _lower(loss: float, lowest: float) -> bool:
    return loss < lowest


def _stopped(
    losses, patience, min_delta, *, progress: _Better = _progress, lower=_lower, over=None, moves="progress",
    resets=True, start=math.inf, whole=False,
):  # fmt: skip
    """The answer with its decisions as arguments. `moves` says what moves the reference: "progress", "lower" (each
    lower loss) or "always"; `whole`: the best is looked for in the whole list."""
    over = over or (lambda waited: waited >= patience)
    lowest, reference, best, waited, stop = start, start, None, 0, None
    for epoch, loss in enumerate(losses):
        if (stop is None or whole) and lower(loss, lowest):
            lowest, best = loss, epoch
        made = progress(loss, reference, min_delta)
        reference = loss if made or moves == "always" or (moves == "lower" and loss < reference) else reference
        waited = (0 if resets else waited) if made else waited + 1
        stop = epoch if stop is None and over(waited) else stop
    return stop, best


def _lowest(run: list[float]) -> int | None:
    return min((epoch for epoch, loss in enumerate(run) if loss == loss), key=lambda epoch: run[epoch], default=None)


def _form(mistake: str, **how) -> None:
    stop_early.form_of(mistake)(lambda losses, patience, min_delta: _stopped(losses, patience, min_delta, **how))


def _told(mistake: str, told: Callable[[list, int, int | None, int | None], tuple]) -> None:
    """A form made of the right (stop, best) of these losses, with this patience."""
    stop_early.form_of(mistake)(
        lambda losses, patience, min_delta: told(losses, patience, *stop_early.answer(losses, patience, min_delta))
    )


def _run(losses: list[float], stop: int | None) -> list[float]:
    return losses[: None if stop is None else stop + 1]


@stop_early.wrong
def waits_one_epoch_longer(losses, patience, min_delta):
    """The run ends one epoch too late: with `waited > patience`, patience=2 waits for three epochs. (That is how
    ReduceLROnPlateau counts; here patience is the number of epochs without progress that end the run.)"""
    return _stopped(losses, patience, min_delta, over=lambda waited: waited > patience)


@stop_early.wrong
def stops_one_epoch_early(losses, patience, min_delta):
    """The run ends one epoch too early: with patience=1 it ends after the first epoch, whatever that shows, or the
    epoch of the last progress is counted as one of those that wait."""
    return _stopped(losses, patience, min_delta, over=lambda waited: waited >= patience - 1)


@stop_early.form_of("stops_one_epoch_early")
def stops_one_epoch_early_but_waits_for_one(losses, patience, min_delta):
    return _stopped(losses, patience, min_delta, over=lambda waited: waited >= max(1, patience - 1))


_told("stops_one_epoch_early", lambda losses, patience, stop, best: (None if stop is None else stop - 1, best))
_told("waits_one_epoch_longer", lambda losses, patience, stop, best: (None if stop is None else stop + 1, best))


@stop_early.wrong
def turns_min_delta_round(losses, patience, min_delta):
    """min_delta has the wrong sign: a loss that is *worse* by less than min_delta counts as progress. A run that slowly
    overfits, each epoch a little worse than the one before, never stops. Progress is loss < reference - min_delta."""
    return _stopped(losses, patience, min_delta, progress=lambda loss, reference, delta: loss < reference + delta)


@stop_early.wrong
def lets_exactly_min_delta_count(losses, patience, min_delta):
    """A loss that is lower by exactly min_delta counts as progress, with `<=` or `>=` in the comparison; with
    min_delta=0 that may be an equal loss, and a run whose loss stands still never ends. Lower by more than min_delta
    is asked for."""
    return _stopped(losses, patience, min_delta, progress=lambda loss, reference, delta: loss <= reference - delta)


_form("lets_exactly_min_delta_count", progress=lambda loss, ref, delta: loss < ref and loss <= ref - delta)


@stop_early.wrong
def does_not_take_min_delta_off_the_reference(losses, patience, min_delta):
    """min_delta is not used, or not as a difference. Left out, a loss that falls in its fifth decimal place keeps the
    run going for as long as it likes. As a share, loss < reference * (1 - min_delta), it asks a loss of 4 for twice as
    much as one of 2. It has the unit of the loss: reference - min_delta."""
    return _stopped(losses, patience, 0.0)


_form("does_not_take_min_delta_off_the_reference", progress=lambda loss, ref, delta: loss < ref * (1 - delta))
_form("does_not_take_min_delta_off_the_reference", progress=lambda loss, ref, delta: (ref - loss) / ref > delta)


@stop_early.wrong
def counts_all_bad_epochs(losses, patience, min_delta):
    """The count is never set back: bad epochs add up over the run, and one that still makes progress is ended because
    it was noisy. Patience counts epochs in a row: a progress sets the count to 0."""
    return _stopped(losses, patience, min_delta, resets=False)


@stop_early.wrong
def moves_the_reference_without_a_progress(losses, patience, min_delta):
    """The reference moves with a loss that is no progress. If it is the loss of the epoch before, one that jumps up and
    down makes "progress" every second epoch, far above its best. If it is the lowest, a loss that falls steadily by a
    little less than min_delta never makes any, however far it has come. Only a progress moves it."""
    return _stopped(losses, patience, min_delta, moves="always")


_form("moves_the_reference_without_a_progress", moves="lower")


@stop_early.form_of("moves_the_reference_without_a_progress")
def compares_with_the_epoch_before_from_the_second_on(losses, patience, min_delta):
    waited, run = 0, []
    for epoch, loss in enumerate(losses):
        waited = 0 if epoch == 0 or loss < losses[epoch - 1] - min_delta else waited + 1
        run.append(loss)
        if waited == patience:
            return epoch, _lowest(run)
    return None, _lowest(run)


@stop_early.wrong
def keeps_the_last_progress(losses, patience, min_delta):
    """The epoch to keep is that of the last progress: a lower loss after it, by less than min_delta, was run and paid
    for, and its weights are thrown away. min_delta decides how long to wait; the best is the lowest."""
    stop, _ = stop_early.answer(losses, patience, min_delta)
    kept, reference = None, math.inf
    for epoch, loss in enumerate(_run(losses, stop)):
        if loss < reference - min_delta:
            kept, reference = epoch, loss
    return stop, kept


_told("keeps_the_last_progress", lambda losses, patience, stop, best: (stop, best if stop is None else stop - patience))


@stop_early.wrong
def looks_past_the_stop(losses, patience, min_delta):
    """The epoch to keep is looked for in the whole list, behind the stop too: those epochs were never run. A patience
    that is judged like this looks as if it cost nothing."""
    return _stopped(losses, patience, min_delta, whole=True)


_told("looks_past_the_stop", lambda losses, patience, stop, best: (stop, losses.index(min(losses))))
_told("looks_past_the_stop", lambda losses, patience, stop, best: (stop, None if best is None else _lowest(losses)))


@stop_early.wrong
def keeps_the_later_of_equal_losses(losses, patience, min_delta):
    """Of equal losses the later one is kept. It was trained longer for the same figure; the first is asked for, as the
    weights of an epoch that nothing has bettered since."""
    return _stopped(losses, patience, min_delta, lower=lambda loss, lowest: loss <= lowest)


@stop_early.wrong
def keeps_the_last_epoch(losses, patience, min_delta):
    """The epoch to keep is the last one that was run: after a stop by patience that is the end of a row of epochs that
    were all worse. Stopping early without going back to the best keeps the overfitted weights."""
    stop, _ = stop_early.answer(losses, patience, min_delta)
    return stop, len(losses) - 1 if stop is None else stop


@stop_early.wrong
def lets_nan_count_as_progress(losses, patience, min_delta):
    """`not loss >= ...` is true for NaN, so that a validation that failed counts as progress, and after it everything
    is compared with NaN. Written with `<`, a NaN is no progress."""
    return _stopped(losses, patience, min_delta, progress=lambda loss, reference, delta: not loss >= reference - delta)


_form(
    "lets_nan_count_as_progress",
    progress=lambda loss, reference, delta: not loss >= reference - delta,
    lower=lambda loss, lowest: not loss >= lowest,
)


@stop_early.wrong
def passes_over_nan(losses, patience, min_delta):
    """An epoch with NaN is passed over: it is not counted. A run that gives nothing but NaN is never ended, though no
    later epoch of it will be better. It is an epoch without progress, as any other that is not lower."""
    numbers = [epoch for epoch, loss in enumerate(losses) if not math.isnan(loss)]
    stop, best = stop_early.answer([losses[epoch] for epoch in numbers], patience, min_delta)
    return tuple(None if place is None else numbers[place] for place in (stop, best))


@stop_early.wrong
def takes_a_nan_for_the_lowest(losses, patience, min_delta):
    """A NaN is taken for the lowest loss or the reference: the first one without a look (losses[0], best = 0, `best
    is None`, min(), which keeps a NaN that comes first), or any (np.argmin). No later loss is ever less than NaN, and
    the weights to keep are those of an epoch that was never measured. Begin with math.inf, and compare with `<`."""
    lowest, reference, best, waited = losses[0], losses[0], 0, 0
    for epoch, loss in enumerate(losses[1:], start=1):
        lowest, best = (loss, epoch) if loss < lowest else (lowest, best)
        reference, waited = (loss, 0) if loss < reference - min_delta else (reference, waited + 1)
        if waited == patience:
            return epoch, best
    return None, best


@stop_early.form_of("takes_a_nan_for_the_lowest")
def takes_the_first_loss_for_the_reference_only(losses, patience, min_delta):
    stop, _ = takes_a_nan_for_the_lowest(losses, patience, min_delta)
    return stop, _lowest(_run(losses, stop))


def _argmin(run: list[float]) -> int | None:
    """As np.argmin: the place of the first NaN, if there is one."""
    return next((epoch for epoch, loss in enumerate(run) if math.isnan(loss)), _lowest(run))


_told("takes_a_nan_for_the_lowest", lambda losses, patience, stop, best: (stop, best or 0))
_told("takes_a_nan_for_the_lowest", lambda losses, patience, stop, best: (stop, _argmin(_run(losses, stop))))
_told(
    "takes_a_nan_for_the_lowest",
    lambda losses, patience, stop, best: (stop, losses.index(min(_run(losses, stop)))),
)


@stop_early.wrong
def takes_the_higher_for_better(losses, patience, min_delta):
    """Higher counts as better, as for an accuracy. These are losses: the run ends while it learns, and keeps its worst
    epoch."""
    return _stopped(
        losses,
        patience,
        min_delta,
        progress=lambda loss, reference, delta: loss > reference + delta,
        lower=lambda loss, highest: loss > highest,
        start=-math.inf,
    )


@stop_early.wrong
def mixes_up_no_stop_and_an_epoch(losses, patience, min_delta):
    """None says that nothing was stopped, and a number is an epoch, 0 too. With the last epoch, the number of epochs or
    -1 in place of None, a run that was cut off by its plan looks like one that was ended by patience; with `stop or
    None` one that was ended after epoch 0 looks like one that went on."""
    stop, best = stop_early.answer(losses, patience, min_delta)
    return len(losses) - 1 if stop is None else stop, best


_told("mixes_up_no_stop_and_an_epoch", lambda losses, patience, stop, best: (stop or None, best))
_told("mixes_up_no_stop_and_an_epoch", lambda losses, patience, stop, best: (-1 if stop is None else stop, best))
_told(
    "mixes_up_no_stop_and_an_epoch",
    lambda losses, patience, stop, best: (len(_run(losses, stop)) - (stop is not None), best),
)
