"""A loop of known costs, timed here, a slice at a time: for a thread beside a reader's cells.

Such a thread may touch no generator and no warning filter, so its workers are started before, by the caller.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from course_utils.loaders import ResumableLoader
from course_utils.synthetic_pipeline import Costs, SyntheticBatches
from course_utils.worker_pool import WorkerPool, _end_workers, _next_item, no_advice

SLICE_S = 0.4  # between two reports of a measurement


class StartedBatches:
    """A loader's batches without end. Its workers are started now; only the first `next` waits for them."""

    def __init__(self, loader: ResumableLoader, num_workers: int) -> None:
        with no_advice():
            pool = WorkerPool(loader.source.endless_feed, num_workers, loader.worker_options)
            self._iterator = pool._begin(0, 0)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return _next_item(self._iterator)[1]

    def close(self) -> None:
        """End the workers."""
        iterator, self._iterator = self._iterator, iter(())
        _end_workers(iterator)


class Measured(NamedTuple):
    """A loop as it was timed; means over `num_turns` turns of its steady state, whole rounds of workers.

    turn_ms, wait_ms : as in `Timeline`
    first_ms         : until the first batch was there, workers' start included
    waits, steps     : of each turn, ms
    """

    turn_ms: float
    wait_ms: float
    first_ms: float
    waits: tuple[float, ...]
    steps: tuple[float, ...]

    @property
    def num_turns(self) -> int:
        return len(self.waits)

    @property
    def wait_share(self) -> float:
        """The part of a turn that is waiting, 0 to 1."""
        return self.wait_ms / self.turn_ms


class MeasuredLoop:
    """Times the loop of `costs` for about `seconds`: an iterator of `Measured`, each with all turns until then.

    Made in the calling thread, which starts the workers; each `next` may be called in another. `close` ends the
    workers; so do the end and an error.
    raises : ValueError for seconds not above 0; what a worker raises
    """

    def __init__(self, costs: Costs, *, seconds: float = 2.0, clock: Callable[[], float] = time.perf_counter) -> None:
        if not seconds > 0:
            raise ValueError(f"MeasuredLoop needs seconds > 0, got {seconds}")
        self.costs, self.seconds, self._clock = costs, seconds, clock
        self._dataset, self._began = SyntheticBatches(costs), clock()
        self._batches = StartedBatches(self._dataset.loader(), costs.num_workers)
        self._waits, self._steps, self._first_ms, self._over = [], [], 0.0, False

    def __iter__(self) -> MeasuredLoop:
        return self

    def __next__(self) -> Measured:
        if self._over:
            raise StopIteration
        try:
            if not self._waits:
                self._reach_the_steady_state()
            self._time_a_slice()
        except BaseException:
            self.close()
            raise
        if sum(self._waits) + sum(self._steps) >= self.seconds * 1e3:
            self.close()
        turns = len(self._waits)
        wait_ms, step_ms = sum(self._waits) / turns, sum(self._steps) / turns
        return Measured(wait_ms + step_ms, wait_ms, self._first_ms, tuple(self._waits), tuple(self._steps))

    def close(self) -> None:
        """End the workers; the next `next` is the end."""
        self._over = True
        self._batches.close()

    def _reach_the_steady_state(self) -> None:
        """The first batch, and those made ahead meanwhile: they would seem to cost nothing."""
        ahead = self.costs.num_workers * self.costs.prefetch_factor
        next(self._batches)
        self._first_ms = (self._clock() - self._began) * 1e3
        deadline = self._clock() + self.seconds
        for _ in range(ahead):
            if self._clock() < deadline:
                self._dataset.step(next(self._batches))

    def _time_a_slice(self) -> None:
        """Whole rounds of workers and of slow batches, for a slice at least; a part of one that takes long."""
        length, lasts = math.lcm(max(1, self.costs.num_workers), self.costs.slow_every), min(SLICE_S, self.seconds)
        began, turns = self._clock(), 0
        while turns == 0 or turns % length or self._clock() - began < lasts:
            if turns and self._clock() - began > lasts + self.seconds:
                break
            asked = self._clock()
            batch = next(self._batches)
            there = self._clock()
            self._dataset.step(batch)
            self._waits.append((there - asked) * 1e3)
            self._steps.append((self._clock() - there) * 1e3)
            turns += 1
