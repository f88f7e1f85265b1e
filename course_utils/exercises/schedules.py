"""Exercises of chapter 07 that need no optimizer; those that act on one come in by import.

Order of the numbers: the factor, the count of steps, the groups, the loop, then what goes wrong around them.
"""

from __future__ import annotations

import math

from course_utils.exercises.declare import exercise, value_exercise
from course_utils.exercises.schedules_groups import apply_factor, decay_groups, uncovered_parameters
from course_utils.exercises.schedules_loop import lr_preview, plateau_cuts, train_epoch

__all__ = ["apply_factor", "decay_groups", "lr_preview", "plateau_cuts", "train_epoch", "uncovered_parameters"]


@exercise(
    "schedules-1",
    title="The factor of a warm-up",
    difficulty="easy",
    minutes=5,
    cases=[(0, 4), (1, 4), (3, 4), (4, 4), (9, 4), (0, 1)],
    expected=[0.25, 0.5, 1.0, 1.0, 1.0, 1.0],
    hints=[
        "`step` counts the updates already made, so the first update asks for step 0. Which factor should it get?",
        "With 4 warm-up steps the updates 0, 1, 2, 3 use 1/4, 2/4, 3/4, 4/4. Write that as a function of step.",
        "From then on the factor stays at 1: `min(1.0, ...)`.",
    ],
    lesson="The first update moves the weights, and update number warmup_steps - 1 is the first with the full lr.",
)
def warmup_factor(step: int, warmup_steps: int) -> float:
    """Multiplier of the base lr: rises linearly to 1 in `warmup_steps` updates, then stays 1.

    step         : optimizer updates already made (0-based)
    warmup_steps : updates spent rising, at least 1; the last of them has the factor 1
    """
    return min(1.0, (step + 1) / warmup_steps)


@warmup_factor.wrong
def starts_at_zero(step, warmup_steps):
    """The first update gets the factor 0: it costs a forward and a backward pass and leaves the weights as they are.
    The full lr comes one update late."""
    return min(1.0, step / warmup_steps)


@warmup_factor.wrong
def rises_forever(step, warmup_steps):
    """Nothing holds the factor at 1: it goes on rising after the warm-up, and a run of 100 warm-ups' length ends with
    100 times the base lr."""
    return (step + 1) / warmup_steps


@warmup_factor.wrong
def arrives_one_step_late(step, warmup_steps):
    """Divided by warmup_steps + 1, the factor is below 1 for warmup_steps updates and reaches 1 one update late. Update
    0 counts as the first step of the warm-up."""
    return min(1.0, (step + 1) / (warmup_steps + 1))


@warmup_factor.wrong
def divides_as_integers(step, warmup_steps):
    """`//` rounds down: the factor is 0 until the last update of the warm-up and then jumps to 1, so there is no
    warm-up and nothing is learned before it."""
    return min(1, (step + 1) // warmup_steps)


def _cosine_cases() -> list[tuple]:
    return (
        [(s, 4, 12, 0.0) for s in (0, 3, 4, 6, 8, 12, 15)]
        + [(s, 4, 12, 0.1) for s in (8, 11, 12, 40)]
        + [(0, 0, 8, 0.0)]
    )


_RISE, _HALF = [0.25, 1.0, 1.0, (1 + math.sqrt(0.5)) / 2], [0.5, 0.0, 0.0]


@exercise(
    "schedules-2",
    title="Warm-up, then a cosine that stays down",
    difficulty="medium",
    minutes=12,
    cases=_cosine_cases,
    expected=[*_RISE, *_HALF, 0.55, 0.1 + 0.9 * (1 - math.cos(math.pi / 8)) / 2, 0.1, 0.1, 1.0],
    imports="import math",
    hints=[
        "Two parts: for step < warmup_steps the warm-up of schedules-1; after it a cosine over the steps "
        "that are left.",
        "progress = (step - warmup_steps) / (total_steps - warmup_steps) runs from 0 to 1. Past the end it "
        "would go on, and "
        "the cosine would rise again: hold it at 1.",
        "Half a cosine from 1 to 0 is (1 + math.cos(math.pi * progress)) / 2; stretch it so that it ends at "
        "min_factor.",
    ],
    lesson="The lowest factor is reached at step == total_steps and kept; an extra epoch does not heat the run "
    "up again.",
)
def warmup_cosine(step: int, *, warmup_steps: int, total_steps: int, min_factor: float = 0.0) -> float:
    """Rise linearly to 1 (see schedules-1), then follow half a cosine down to `min_factor`, and stay there.

    step         : optimizer updates already made (0-based)
    warmup_steps : updates spent rising, 0 for none; the cosine starts with factor 1 at step == warmup_steps
    total_steps  : updates in the run; `min_factor` is reached at step == total_steps and kept after it
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
    return min_factor + (1 - min_factor) * (1 + math.cos(math.pi * progress)) / 2


def _cosine(progress: float, min_factor: float) -> float:
    return min_factor + (1 - min_factor) * (1 + math.cos(math.pi * progress)) / 2


@warmup_cosine.wrong
def rises_after_the_end(step, *, warmup_steps, total_steps, min_factor=0.0):
    """A cosine is periodic: past total_steps the lr rises again, and a run that is prolonged by some epochs is heated
    up and loses what the low lr had settled. The built-in CosineAnnealingLR does the same."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return _cosine((step - warmup_steps) / (total_steps - warmup_steps), min_factor)


@warmup_cosine.wrong
def ignores_the_warmup_in_the_cosine(step, *, warmup_steps, total_steps, min_factor=0.0):
    """The cosine counts from step 0 and not from the end of the warm-up: at step == warmup_steps the factor drops from
    1 at once, to 0.75 in the example of 4 and 12 steps."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return _cosine(min(1.0, step / total_steps), min_factor)


@warmup_cosine.wrong
def is_cut_off_at_the_minimum(step, *, warmup_steps, total_steps, min_factor=0.0):
    """The cosine goes to 0 and is cut off at min_factor: the last part of the run has a flat lr, and the factors
    before it are too low. Let the cosine itself end at min_factor."""
    return max(min_factor, warmup_cosine.answer(step, warmup_steps=warmup_steps, total_steps=total_steps))


@warmup_cosine.wrong
def ends_one_step_early(step, *, warmup_steps, total_steps, min_factor=0.0):
    """The minimum comes at step total_steps - 1, which is the last update of the run: with min_factor 0 that update
    changes nothing."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return _cosine(min(1.0, (step - warmup_steps) / (total_steps - 1 - warmup_steps)), min_factor)


@warmup_cosine.wrong
def warms_up_from_zero(step, *, warmup_steps, total_steps, min_factor=0.0):
    """The first update gets the factor 0 and changes nothing: step counts the updates already made, so the warm-up
    needs step + 1."""
    if step < warmup_steps:
        return step / warmup_steps
    return warmup_cosine.answer(step, warmup_steps=warmup_steps, total_steps=total_steps, min_factor=min_factor)


@exercise(
    "schedules-3",
    title="How long the schedule must be",
    difficulty="easy",
    minutes=6,
    cases=[(8, 4, 1, 1), (10, 4, 1, 1), (16, 4, 2, 1), (20, 4, 2, 1), (20, 4, 2, 3), (10_000, 64, 4, 5)],
    expected=[2, 3, 2, 3, 9, 200],
    imports="import math",
    hints=[
        "One micro-batch is one forward and backward pass; one step is one optimizer update, made of several "
        "micro-batches.",
        "Micro-batches of an epoch: divide and round up. Steps of an epoch: divide those by `accumulate` and round up.",
        "10,000 examples at 64 are 157 micro-batches; with accumulate=4 that is 40 steps an epoch; multiply "
        "by the epochs.",
    ],
    lesson="A schedule counts optimizer updates: neither micro-batches nor epochs.",
)
def count_steps(num_examples: int, batch_size: int, accumulate: int, num_epochs: int) -> int:
    """Number of optimizer updates in a run: the `total_steps` of its schedule.

    batch_size : examples in a micro-batch; the last one of an epoch may be smaller and is used
    accumulate : micro-batches whose gradients make one update; what is left at the end of an epoch makes one as well
    """
    micro_batches = math.ceil(num_examples / batch_size)
    return num_epochs * math.ceil(micro_batches / accumulate)


@count_steps.wrong
def counts_micro_batches(num_examples, batch_size, accumulate, num_epochs):
    """This counts micro-batches. A schedule of that length, stepped once an update, has come only 1/accumulate of its
    way when the run ends: the lr never gets low."""
    return num_epochs * math.ceil(num_examples / batch_size)


@count_steps.wrong
def drops_what_is_left(num_examples, batch_size, accumulate, num_epochs):
    """`//` drops the smaller last batch and the last incomplete window of each epoch, but both are used: the run makes
    more updates than the schedule knows of, and spends the last ones beyond its end."""
    return num_epochs * (num_examples // batch_size // accumulate)


@count_steps.wrong
def lets_windows_cross_epochs(num_examples, batch_size, accumulate, num_epochs):
    """The micro-batches of all epochs are divided together, as if an incomplete window went on into the next epoch. It
    ends with its epoch, so the run makes more updates than this."""
    return math.ceil(num_epochs * math.ceil(num_examples / batch_size) / accumulate)


@count_steps.wrong
def counts_one_epoch(num_examples, batch_size, accumulate, num_epochs):
    """This is the length of one epoch: the schedule is at its end after the first epoch, and the rest of the run trains
    with the lowest lr (or, with a plain cosine, rises again)."""
    return math.ceil(math.ceil(num_examples / batch_size) / accumulate)


@value_exercise(
    "schedules-10",
    title="Predict: CosineAnnealingLR past its end",
    difficulty="easy",
    minutes=4,
    hints=[
        "Without a clamp the factor is (1 + cos(pi * t / T_max)) / 2, where t counts the calls of scheduler.step().",
        "The first update is made before any call of scheduler.step(): the seventh is made after six. Put t "
        "= 6 into it.",
    ],
    lesson="At t = 6 the cosine has risen again to 0.5: T_max must be the number of updates in the whole run.",
)
def seventh_lr() -> float:
    """An optimizer has lr 1.0, its scheduler is CosineAnnealingLR(optimizer, T_max=4) and eta_min is 0.

    scheduler.step() is called after each optimizer.step(). Which lr does the seventh update use? Set the number.
    """
    return 0.5


@seventh_lr.wrong
def stays_at_the_minimum() -> float:
    """That would be so if the schedule were clamped at its end. This one is a bare cosine: after T_max it rises
    again."""
    return 0.0


@seventh_lr.wrong
def starts_anew() -> float:
    """That would be a restart at the full lr, as CosineAnnealingWarmRestarts makes it; there, update 5 would be back
    at 1. A bare cosine rises the way it fell."""
    return 1.0


@seventh_lr.wrong
def is_one_step_behind() -> float:
    """That is the lr of the sixth update, after five calls of scheduler.step(). The first update uses t = 0, so update
    number n uses t = n - 1."""
    return (1 + math.cos(math.pi * 5 / 4)) / 2


@seventh_lr.wrong
def is_one_step_ahead() -> float:
    """That is the lr of the eighth update, after seven calls of scheduler.step(). The first update is made before any
    call, so the seventh uses t = 6."""
    return (1 + math.cos(math.pi * 7 / 4)) / 2
