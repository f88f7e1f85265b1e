"""Exercises of chapter 07 about a schedule's length: how many updates a run makes, and what comes after the end."""

from __future__ import annotations

import math

from course_utils.exercises.declare import exercise, value_exercise


@exercise(
    "schedules-3",
    title="How long the schedule must be",
    difficulty="easy",
    minutes=6,
    cases=[
        (8, 4, 1, 1),
        (10, 4, 1, 1),
        (11, 4, 1, 1),
        (16, 4, 2, 1),
        (20, 4, 2, 1),
        (28, 4, 4, 1),
        (20, 4, 2, 3),
        (10_000, 64, 4, 5),
    ],
    expected=[2, 3, 3, 2, 3, 2, 9, 200],
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
    accumulate : micro-batches whose gradients make one update; what is left at the end of an
                 epoch makes one as well
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
def drops_the_incomplete_window(num_examples, batch_size, accumulate, num_epochs):
    """The micro-batches are counted well, but `//` drops the incomplete window at the end of each epoch. What is left
    makes an update as well: round up twice."""
    return num_epochs * (math.ceil(num_examples / batch_size) // accumulate)


@count_steps.wrong
def drops_the_smaller_batch(num_examples, batch_size, accumulate, num_epochs):
    """`//` drops the smaller last micro-batch of each epoch, which is used: where it begins a window of its own, the
    run makes one update more than this."""
    return num_epochs * math.ceil(num_examples // batch_size / accumulate)


@count_steps.wrong
def makes_parts_of_an_update(num_examples, batch_size, accumulate, num_epochs):
    """`/` alone gives parts of an update. A count is whole, and what is left at the end of an epoch makes an update
    like any other: round up, once for the micro-batches and once for the windows."""
    return num_epochs * num_examples / batch_size / accumulate


@count_steps.form_of("makes_parts_of_an_update")
def rounds_only_the_micro_batches(num_examples, batch_size, accumulate, num_epochs):
    return num_epochs * math.ceil(num_examples / batch_size) / accumulate


@count_steps.wrong
def rounds_to_the_nearest(num_examples, batch_size, accumulate, num_epochs):
    """`round` goes to the nearest whole number, and from a half to the even one: what is left at the end of an epoch is
    dropped wherever it is half or less, though it is used. math.ceil always rounds up."""
    return num_epochs * round(num_examples / batch_size / accumulate)


@count_steps.form_of("rounds_to_the_nearest")
def rounds_the_windows_to_the_nearest(num_examples, batch_size, accumulate, num_epochs):
    return num_epochs * round(math.ceil(num_examples / batch_size) / accumulate)


@count_steps.form_of("rounds_to_the_nearest")
def rounds_the_micro_batches_to_the_nearest(num_examples, batch_size, accumulate, num_epochs):
    return num_epochs * math.ceil(round(num_examples / batch_size) / accumulate)


@count_steps.form_of("rounds_to_the_nearest")
def rounds_the_run_to_the_nearest(num_examples, batch_size, accumulate, num_epochs):
    return round(num_epochs * num_examples / batch_size / accumulate)


@count_steps.wrong
def adds_one_to_every_epoch(num_examples, batch_size, accumulate, num_epochs):
    """`// ... + 1` counts one too many whenever it divides without rest: 8 examples in micro-batches of 4 are 2, not 3.
    math.ceil adds one only where something is left."""
    return num_epochs * ((num_examples // batch_size + 1) // accumulate + 1)


@count_steps.form_of("adds_one_to_every_epoch")
def adds_one_to_the_windows(num_examples, batch_size, accumulate, num_epochs):
    return num_epochs * (math.ceil(num_examples / batch_size) // accumulate + 1)


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
        "The first update is made before any call of scheduler.step(), the ninth after eight. Put t = 8 into it.",
    ],
    abs_=0.0101,
    lesson="At t = 8 the cosine has risen again to 0.25: T_max must be the number of updates in the whole run.",
)
def ninth_lr() -> float:
    """An optimizer has lr 1.0, its scheduler is CosineAnnealingLR(optimizer, T_max=6), eta_min is 0.

    scheduler.step() is called after each optimizer.step(). Which lr does the ninth update use?
    Set the number; 0.01 more or less is accepted.
    """
    return 0.25


@ninth_lr.wrong
def stays_at_the_minimum() -> float:
    """That would be so if the schedule were clamped at its end. This one is a bare cosine: after T_max it rises
    again."""
    return 0.0


@ninth_lr.wrong
def starts_anew() -> float:
    """That would be a restart at the full lr after T_max, as CosineAnnealingWarmRestarts makes it. A bare cosine does
    not jump: it rises the way it fell."""
    return 0.75


@ninth_lr.wrong
def is_one_step_behind() -> float:
    """That is the lr of the eighth update, after seven calls of scheduler.step(). The first update uses t = 0, so
    update number n uses t = n - 1."""
    return (1 + math.cos(math.pi * 7 / 6)) / 2


@ninth_lr.wrong
def is_one_step_ahead() -> float:
    """That is the lr of the tenth update, after nine calls of scheduler.step(). The first update is made before any
    call, so the ninth uses t = 8."""
    return 0.5
