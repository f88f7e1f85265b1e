"""Which numbers of workers are measured, and how often: the order of the looks, and when there are enough.

It measures nothing itself and knows no loader: `tuning` hands in what does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from course_utils.worker_choice import MAX_VAIN, NEAR_FLOOR, WorkerTimes, choose_workers, why_stop

Measure = Callable[..., WorkerTimes | None]
TimeFor = Callable[[int, WorkerTimes], bool]

AGAIN = 0.25  # a turn this close to the least is measured again: it may be the choice, and a busy moment only adds time
CLEAR, MAX_MORE = 0.025, 3  # a choice this close to the least is not looked at more often; else so many times


def measure_all(
    measure: Measure,
    time_for: TimeFor,
    floor_ms: float,
    max_workers: int,
    seconds: float,
) -> tuple[list[WorkerTimes], str]:
    """Times of 0, 1, 2, ... workers, and why no more.

    measure  : a number -> its times; None where the time was over first; with_handover=False leaves the hand-over out
    time_for : whether a number can still be measured, if it is like another one
    """
    times: dict[int, WorkerTimes] = {}
    twice: set[int] = set()
    stopped = f"{max_workers} was the largest number to try (max_workers)"
    for num_workers in range(max_workers + 1):
        if times and not time_for(num_workers, times[num_workers - 1]):
            stopped = f"the {seconds:g} seconds would not have lasted for {num_workers}"
            break
        found = measure(num_workers)
        if found is None:
            stopped = f"the {seconds:g} seconds were over before {num_workers} had been measured"
            break
        times[num_workers] = found
        if why_stop([*times.values()], floor_ms):
            _look_again(times, twice, measure, time_for, floor_ms)
            if why := why_stop([*times.values()], floor_ms):  # it may have been a busy moment
                stopped = why
                break
    _look_again(times, twice, measure, time_for, floor_ms)
    _settle(times, measure, time_for, floor_ms)
    return [*times.values()], stopped


def _look_again(
    times: dict[int, WorkerTimes],
    twice: set[int],
    measure: Measure,
    time_for: TimeFor,
    floor_ms: float,
) -> None:
    """Measure a second time what may be chosen, and the last numbers, which seemed vain."""
    best = min(row.turn_ms for row in times.values())
    last = [*times][-MAX_VAIN:] if best > floor_ms * (1 + NEAR_FLOOR) else []
    again = [row for row in times.values() if row.turn_ms <= best * (1 + AGAIN) or row.num_workers in last]
    for row in again if len(again) > 1 else ():
        if row.num_workers not in twice and time_for(row.num_workers, row):
            twice.add(row.num_workers)
            _keep_the_lesser(times, row.num_workers, measure)


def _settle(
    times: dict[int, WorkerTimes],
    measure: Measure,
    time_for: TimeFor,
    floor_ms: float,
) -> None:
    """Where the choice hangs on the last of its 5 %: measure the shortest turn and the chosen one again, in turns."""
    for _ in range(MAX_MORE):
        shortest = min(times.values(), key=lambda row: row.turn_ms)
        chosen = times[choose_workers([*times.values()], floor_ms).num_workers]
        if chosen.turn_ms <= shortest.turn_ms * (1 + CLEAR):
            return
        for row in (shortest, chosen):
            if time_for(row.num_workers, row):
                _keep_the_lesser(times, row.num_workers, measure)


def _keep_the_lesser(times: dict[int, WorkerTimes], num_workers: int, measure: Measure) -> None:
    """Measure a number once more; the lesser turn stays, with the hand-over of the first look."""
    row, again = times[num_workers], measure(num_workers, with_handover=False)
    if again is not None and again.turn_ms < row.turn_ms:
        times[num_workers] = replace(again, handover_ms=row.handover_ms)
