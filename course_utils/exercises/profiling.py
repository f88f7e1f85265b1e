"""Exercises of chapter 11: here the steady time of a step; the others come in by import.

Order of the numbers: the steady step, the share of waiting, the verdict, the operations, the device, the memory.
"""

from __future__ import annotations

import statistics

from course_utils.exercises.declare import exercise
from course_utils.exercises.profiling_device import mean_step_ms
from course_utils.exercises.profiling_memory import kept_bytes
from course_utils.exercises.profiling_operations import share_of_peak
from course_utils.exercises.profiling_verdict import bottleneck
from course_utils.exercises.profiling_waiting import wait_share

__all__ = ["bottleneck", "kept_bytes", "mean_step_ms", "share_of_peak", "steady_step_ms", "wait_share"]

_RUN = [880.0, 62.0, 41.0, 23.0, 27.0, 450.0, 36.0, 34.0, 25.0, 480.0, 90.0, 29.0]


@exercise(
    "profiling-1",
    title="The steady time of a step",
    difficulty="easy",
    minutes=7,
    cases=[
        ([900.0, 50.0, 20.0, 21.0, 22.0], [0], 2),
        ([500.0, 24.0, 20.0, 22.0], [0], 0),
        ([800.0, 20.0, 95.0, 22.0, 26.0], [0], 1),
        (_RUN, [0, 5, 9], 3),
        ([880.0, 60.0, 400.0, 40.0, 410.0, 30.0, 420.0, 20.0], [0, 2, 4, 6], 3),
        ([850.0, 31.0, 27.0, 35.0, 60.0, 20.0, 21.0, 22.0, 160.0, 90.0, 500.0, 40.0, 45.0, 50.0], [0, 10], 2),
        ([900.0, 24.0, 30.0, 22.0, 24.0, 26.0], [0, 4], 0),
        ([900.0, 22.25, 30.0, 20.0, 22.0], [0], 0),
        ([900.0, 50.0], [0], 2),
        ([900.0], [0], 0),
        ([850.0, 60.0, 40.0, 400.0], [0, 3], 5),
    ],
    expected=[21.0, 22.0, 24.0, 29.0, 30.0, 40.0, 25.0, 22.125, ValueError, ValueError, ValueError],
    keep_arguments=True,
    imports="import statistics",
    hints=[
        "Which steps are like those of the hours to come? Three kinds are not: the warm-up, the first step of each "
        "epoch, and the few that something else slowed down. Positions tell you the first two kinds; nothing tells you "
        "the third.",
        "Leave out by position first: enumerate(times_ms) gives each time with its position in the run. A list that "
        "was cut has other positions.",
        "A position stays if it is `warmup` or more and not in epoch_starts. statistics.median of these times is not "
        "moved by a few slow ones. Where no time is left, raise ValueError before.",
    ],
    lesson="StepTimer does the same: start-ups and warm-up are kept apart, and of the other steps it shows the median.",
)
def steady_step_ms(times_ms: list[float], epoch_starts: list[int], warmup: int) -> float:
    """The time of a step once all is running, in milliseconds.

    times_ms     : the time of each step of a run, in order, with the wait for its batch
    epoch_starts : positions in `times_ms` of the steps that began an epoch, 0 among them: they
                   waited for workers to start, and do not count
    warmup       : so many steps at the beginning of the run do not count either
    returns      : the median of the steps that count; of an even number of them the mean of the
                   two in the middle. A few of them were slow by chance
    raises       : ValueError where no step counts

    A step that is excluded twice is excluded once: in times [900, 50, 20, 21, 22] with
    epoch_starts=[0] and warmup=2 the steps 20, 21, 22 count, and the result is 21.
    """
    steady = []
    for position, time in enumerate(times_ms):
        if position >= warmup and position not in epoch_starts:
            steady.append(time)
    if not steady:
        raise ValueError(f"none of {len(times_ms)} steps counts")
    return statistics.median(steady)


def _all(times, starts, warmup) -> list:
    return list(times)


def _without_starts(times, starts, warmup) -> list:
    return [time for position, time in enumerate(times) if position not in starts]


def _without_warmup(times, starts, warmup) -> list:
    return list(times[warmup:])


def _right(times, starts, warmup) -> list:
    return [time for position, time in enumerate(times) if position >= warmup and position not in starts]


def _warmup_after_starts(times, starts, warmup) -> list:
    return _without_starts(times, starts, warmup)[warmup:]


def _with_the_positions_of_the_rest(times, starts, warmup) -> list:
    return [time for position, time in enumerate(times[warmup:]) if position not in starts]


def _epochs(times, starts) -> list[list]:
    return [list(times[begin:end]) for begin, end in zip(starts, [*starts[1:], len(times)], strict=True)]


def _warmup_in_every_epoch(times, starts, warmup) -> list:
    return [time for epoch in _epochs(times, starts) for time in epoch[max(1, warmup) :]]


def _warmup_in_every_epoch_after_its_start(times, starts, warmup) -> list:
    return [time for epoch in _epochs(times, starts) for time in epoch[1 + warmup :]]


_CHOICES = (_right, _without_starts, _without_warmup, _warmup_after_starts, _with_the_positions_of_the_rest)


def _mean(times: list) -> float:
    return sum(times) / len(times)


def _of(reduce, choose):
    return lambda times_ms, epoch_starts, warmup: reduce(choose(times_ms, epoch_starts, warmup))


@steady_step_ms.wrong
def averages_all_steps(times_ms, epoch_starts, warmup):
    """All steps count: the start of the workers and the warm-up are shared out among the others. With fewer steps this
    figure grows, though no step became slower, so two runs of different lengths cannot be compared."""
    return _mean(times_ms)


@steady_step_ms.form_of("averages_all_steps")
def takes_the_median_of_all_steps(times_ms, epoch_starts, warmup):
    return statistics.median(times_ms)


@steady_step_ms.wrong
def lets_a_slow_step_count_in_full(times_ms, epoch_starts, warmup):
    """The mean: one step that the operating system held up for a second moves it by as much as a second divided by the
    number of steps, and each run has others. The median does not move. A mean is right for a total, not for a step."""
    return _mean(_right(times_ms, epoch_starts, warmup))


for _choose in _CHOICES[1:]:
    steady_step_ms.form_of("lets_a_slow_step_count_in_full")(_of(_mean, _choose))


@steady_step_ms.wrong
def takes_the_fastest(times_ms, epoch_starts, warmup):
    """The fastest step: it is the most repeatable figure where the same code runs again and again, but it is the step
    that waited for nothing, and an epoch takes longer than so many of them. Here the usual step is asked for."""
    return min(_right(times_ms, epoch_starts, warmup))


for _choose in (_all, *_CHOICES[1:]):
    steady_step_ms.form_of("takes_the_fastest")(_of(min, _choose))


@steady_step_ms.wrong
def keeps_the_warm_up(times_ms, epoch_starts, warmup):
    """Only the start of each epoch is left out. The first steps of the run allocate memory and choose algorithms: a
    short run is then slower by its warm-up alone."""
    return statistics.median(_without_starts(times_ms, epoch_starts, warmup))


@steady_step_ms.wrong
def keeps_the_start_ups(times_ms, epoch_starts, warmup):
    """Only the warm-up is left out. Every epoch starts workers again, and the first step of each is still among the
    others, unless the warm-up happens to cover it. Leave out what stands in epoch_starts."""
    return statistics.median(_without_warmup(times_ms, epoch_starts, warmup))


@steady_step_ms.wrong
def cuts_the_warm_up_one_step_off(times_ms, epoch_starts, warmup):
    """One step too many is left out, or one too few: with warmup=2 the steps at positions 0 and 1 do not count, and the
    one at position 2 does. Positions begin with 0, so `position >= warmup` is the question."""
    return statistics.median(_right(times_ms, epoch_starts, warmup + 1))


@steady_step_ms.form_of("cuts_the_warm_up_one_step_off")
def cuts_one_step_too_few(times_ms, epoch_starts, warmup):
    return statistics.median(_right(times_ms, epoch_starts, warmup - 1))


@steady_step_ms.wrong
def drops_the_warm_up_a_second_time(times_ms, epoch_starts, warmup):
    """The start-ups are taken out first, then `warmup` of the *remaining* steps: the first step of the run is a warm-up
    step already, so that one good step more is lost for each start-up in it. Decide by the position in the run."""
    return statistics.median(_warmup_after_starts(times_ms, epoch_starts, warmup))


@steady_step_ms.wrong
def looks_for_the_starts_in_the_shortened_list(times_ms, epoch_starts, warmup):
    """The warm-up is cut off first, and epoch_starts is then applied to what is left, where every step stands `warmup`
    places earlier: good steps are dropped and the start-ups stay. Decide by the position in the run."""
    return statistics.median(_with_the_positions_of_the_rest(times_ms, epoch_starts, warmup))


@steady_step_ms.wrong
def warms_up_in_every_epoch(times_ms, epoch_starts, warmup):
    """`warmup` steps are dropped in each epoch. Memory and algorithms stay warm: only the run's first steps are slow
    for that reason. With short epochs hardly a step is left to look at."""
    return statistics.median(_warmup_in_every_epoch(times_ms, epoch_starts, warmup))


def _median_or_error(times: list) -> float:
    if not times:
        raise ValueError("no step counts")
    return statistics.median(times)


for _choose in (_warmup_in_every_epoch, _warmup_in_every_epoch_after_its_start):
    for _reduce in (_median_or_error, statistics.median, lambda times: statistics.median(times or [0.0])):
        steady_step_ms.form_of("warms_up_in_every_epoch")(_of(_reduce, _choose))


@steady_step_ms.wrong
def leaves_out_equal_times_as_well(times_ms, epoch_starts, warmup):
    """The start-ups are left out by their value: every step that took just as long is lost with them, 24 ms at position
    1 as well as 24 ms at position 4. Times repeat; positions do not. Leave out by position."""
    starts = [times_ms[position] for position in epoch_starts]
    return _median_or_error([time for time in times_ms[warmup:] if time not in starts])


@steady_step_ms.wrong
def rounds_the_median(times_ms, epoch_starts, warmup):
    """The result is rounded. Steps are compared by a few percent, and of a step of 2 ms whole milliseconds leave
    little. Round where it is printed."""
    return round(_median_or_error(_right(times_ms, epoch_starts, warmup)))


for _digits in (1, 2):
    steady_step_ms.form_of("rounds_the_median")(
        lambda times_ms, epoch_starts, warmup, digits=_digits: round(
            _median_or_error(_right(times_ms, epoch_starts, warmup)), digits
        )
    )
steady_step_ms.form_of("rounds_the_median")(_of(lambda times: int(_median_or_error(times)), _right))


@steady_step_ms.wrong
def looks_at_the_last_steps_only(times_ms, epoch_starts, warmup):
    """Only a few steps at the end count. A median of three is moved by two slow steps, and the end of a run is a place
    like any other. Use all steps that are not excluded."""
    return statistics.median(times_ms[-3:])


for _number in (2, 4, 5, 10):
    steady_step_ms.form_of("looks_at_the_last_steps_only")(
        lambda times_ms, epoch_starts, warmup, number=_number: statistics.median(times_ms[-number:])
    )


@steady_step_ms.form_of("looks_at_the_last_steps_only")
def looks_at_the_last_step(times_ms, epoch_starts, warmup):
    return times_ms[-1]


@steady_step_ms.form_of("looks_at_the_last_steps_only")
def looks_at_the_last_epoch(times_ms, epoch_starts, warmup):
    return statistics.median(times_ms[epoch_starts[-1] + 1 :])


@steady_step_ms.wrong
def takes_the_middle_without_sorting(times_ms, epoch_starts, warmup):
    """This takes the step in the middle of the run, whatever its time is: a median is the middle of the *sorted*
    times. Any single step may be one of the slow ones."""
    steady = _right(times_ms, epoch_starts, warmup)
    return steady[len(steady) // 2]


@steady_step_ms.form_of("takes_the_middle_without_sorting")
def takes_the_middle_two_without_sorting(times_ms, epoch_starts, warmup):
    steady = _right(times_ms, epoch_starts, warmup)
    half = len(steady) // 2
    return steady[half] if len(steady) % 2 else (steady[half - 1] + steady[half]) / 2


@steady_step_ms.wrong
def takes_one_of_the_middle_two(times_ms, epoch_starts, warmup):
    """Of an even number of steps this takes one of the two in the middle, the slower or the faster one; torch.median
    takes the faster. The task asks for their mean, as statistics.median and numpy.median give it."""
    steady = sorted(_right(times_ms, epoch_starts, warmup))
    return steady[len(steady) // 2]


@steady_step_ms.form_of("takes_one_of_the_middle_two")
def takes_the_lower_one(times_ms, epoch_starts, warmup):
    return statistics.median_low(_right(times_ms, epoch_starts, warmup))


@steady_step_ms.wrong
def gives_a_number_where_no_step_counts(times_ms, epoch_starts, warmup):
    """Where no step counts this gives something all the same: 0 looks like a step that takes no time, and NaN like a
    number until it is compared. Nothing was measured: raise ValueError."""
    steady = _right(times_ms, epoch_starts, warmup)
    return statistics.median(steady) if steady else 0.0


for _nothing in (float("nan"), None):
    steady_step_ms.form_of("gives_a_number_where_no_step_counts")(
        lambda times_ms, epoch_starts, warmup, nothing=_nothing: statistics.median(
            _right(times_ms, epoch_starts, warmup) or [nothing]
        )
    )


@steady_step_ms.wrong
def gives_seconds(times_ms, epoch_starts, warmup):
    """These are seconds. The name says milliseconds, as the times that came in: whoever compares the two finds the
    loop a thousand times too fast."""
    return statistics.median(_right(times_ms, epoch_starts, warmup)) / 1000
