"""What chapter 11's experiment knows: five pipelines, how each is measured, and what the tool says of the times.

No widget is known here. Every verdict is `course_utils.bottleneck.decide` on a table of times, stored or measured.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from course_utils.bottleneck import Diagnosis, LoopTimes, decide
from course_utils.measured_loop import Measured, MeasuredLoop
from course_utils.synthetic_pipeline import Costs, SyntheticBatches

DATA, HANDOVER, STARTUP, COMPUTE = VERDICTS = "data-bound", "hand-over-bound", "start-up-bound", "compute-bound"
LETTERS = "ABCDE"
LONG = 20_000  # batches of an epoch whose start does not count
NAIVE_BATCHES = 20
LOOP_S, ALONE_S, HANDOVER_S, STEP_S = 1.2, 0.6, 0.6, 0.3


class Case(NamedTuple):
    """One of the five: its costs (everything waits, so that it is alike on every machine), and what holds it up.

    num_batches : of an epoch
    lesson      : how the loop itself told it
    """

    costs: Costs
    num_batches: int
    verdict: str
    lesson: str


CASES = {
    "slow loading": Case(
        Costs(40, 10, num_workers=2),
        LONG,
        DATA,
        "A turn is as long as the loader alone needs for a batch, once it runs: the step waits for it, and both "
        "workers are busy all the time. Where they deliver together, the wait is long in every second turn.",
    ),
    "dear hand-over": Case(
        Costs(6, 10, num_workers=2, handover_ms=8, handover_computes=False),
        LONG,
        HANDOVER,
        "There are workers, and yet a turn is the sum of loader and step: the wait is the same in every turn. What the "
        "trainer pays itself to take a batch over, no worker hides. Loader and step each alone looked fast.",
    ),
    "a slow step": Case(
        Costs(44, 25, num_workers=2),
        LONG,
        COMPUTE,
        "A turn is as long as the step alone: the loading is hidden behind it. The loader alone looked slower because "
        "its first batch, with the start of the workers, was counted.",
    ),
    "short epochs": Case(
        Costs(6, 15, num_workers=2, startup_ms=400),
        10,
        STARTUP,
        "Between the first batches of the epochs the loop hardly waits. Each epoch starts its workers anew, and it is "
        "over after 10 batches.",
    ),
    "no workers": Case(
        Costs(9, 12),
        LONG,
        DATA,
        "Alone, the step takes longer than the loader, and yet it is loading that could be won: without workers a turn "
        "is the sum of both. Which of two numbers is larger says nothing while they do not overlap.",
    ),
}


@dataclass(frozen=True)
class Log:
    """A pipeline as its own loop shows it, and its parts, each timed apart.

    waits, steps : ms of each turn, from an epoch's first batch on
    naive_ms     : the loader alone, mean of its first batches, the start counted; what many time
    """

    times: LoopTimes
    waits: tuple[float, ...]
    steps: tuple[float, ...]

    @property
    def naive_ms(self) -> float:
        count = min(NAIVE_BATCHES, self.times.num_batches)
        return (self.times.startup_ms + (count - 1) * self.times.load_ms) / count

    @property
    def diagnosis(self) -> Diagnosis:
        return decide(self.times)


def order(seed: int) -> dict[str, str]:
    """Letter -> the name of its pipeline."""
    names = list(CASES)
    random.Random(seed).shuffle(names)  # a generator of its own
    return dict(zip(LETTERS, names, strict=True))


class Progress(NamedTuple):
    """How far a measurement is: words for the reader; `log` at the end."""

    words: str
    log: Log | None = None


class MeasuredParts:
    """Measures a pipeline and its parts here, about 3 s: an iterator of `Progress`, the last with the `Log`.

    Made in the calling thread, which starts all workers; each `next` may be called in another. `close` ends them.
    """

    def __init__(self, case: Case, *, speed: float = 1.0) -> None:
        costs, seconds = case.costs, [part / speed for part in (LOOP_S, ALONE_S, HANDOVER_S, STEP_S)]
        self._case, self._loops = case, []
        idle = replace(costs, load_ms=0.0, startup_ms=0.0, num_workers=min(2, costs.num_workers))
        wanted = [(costs, seconds[0]), (replace(costs, step_ms=0.0), seconds[1]), (idle, seconds[2])]
        try:
            for each, lasts in wanted if costs.num_workers else wanted[:2]:
                self._loops.append(MeasuredLoop(each, seconds=lasts))
        except BaseException:
            self.close()
            raise
        self._parts = self._all(seconds[3])

    def __iter__(self) -> MeasuredParts:
        return self

    def __next__(self) -> Progress:
        try:
            return next(self._parts)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all workers."""
        for loop in self._loops:
            loop.close()

    def _all(self, step_seconds: float) -> Iterator[Progress]:
        found: list[Measured] = []
        for loop, words in zip(
            self._loops, ("the loop", "the loader alone", "an idle worker's hand-over"), strict=False
        ):
            for now in loop:
                yield Progress(f"{words}: {now.num_turns} batches, {now.turn_ms:.1f} ms each")
            found.append(now)
        step_ms = _step_ms(self._case.costs, step_seconds)
        yield Progress(f"the step alone: {step_ms:.1f} ms", log_from(self._case, found, step_ms))


def _step_ms(costs: Costs, seconds: float) -> float:
    dataset, found, end = SyntheticBatches(costs), [], time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        dataset.step(None)
        found.append((time.perf_counter() - began) * 1e3)
    return statistics.median(found)


def log_from(case: Case, found: list[Measured], step_ms: float) -> Log:
    """The table of times from the loop, the loader alone and, with workers, idle workers. A pure function."""
    loop, alone, *idle = found
    handover_ms = statistics.median(idle[0].waits) if idle else 0.0
    parts = (step_ms, loop.turn_ms, loop.wait_ms, alone.turn_ms, loop.first_ms, handover_ms)
    times = LoopTimes(*parts, case.costs.num_workers, case.num_batches)
    return Log(times, (loop.first_ms, *loop.waits), (step_ms, *loop.steps))


class StoredParts:
    """The same from the stored times: one `Progress`, at once."""

    def __init__(self, log: Log) -> None:
        self._left = [Progress("the stored times", log)]

    def __iter__(self) -> StoredParts:
        return self

    def __next__(self) -> Progress:
        if not self._left:
            raise StopIteration
        return self._left.pop()

    def close(self) -> None:
        """Nothing was started."""
