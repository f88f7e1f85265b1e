"""Loops whose every batch costs a known time, timed in the steady state: what `timeline` and `prefetch` share."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks import synthetic_loaders
from course_utils.loaders import ResumableLoader
from course_utils.worker_pool import endless_batches

PAUSED = 3  # hand-overs timed after each loop


@dataclass(frozen=True)
class Costs(synthetic_loaders.Costs):
    """Each `slow_every`-th batch takes `slow_factor` loads."""

    slow_every: int = 1
    slow_factor: float = 1.0

    def load_of(self, batch: int) -> float:
        """What making this batch takes, in ms: batches k-1, 2k-1, ... are the slow ones."""
        slow = self.slow_every > 1 and batch % self.slow_every == self.slow_every - 1
        return self.load_ms * (self.slow_factor if slow else 1)


class Batches(Dataset):
    """One example is one batch, and costs what `costs` says; read in order, over and over."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs

    def __len__(self) -> int:
        return 40 * self.costs.slow_every

    def __getitem__(self, index: int) -> torch.Tensor:
        synthetic_loaders.spend(self.costs.load_of(index) / 1e3, self.costs.load_computes)
        return torch.ones(1)


def first(examples: list[Any]) -> Any:
    """The collate function where one example is one batch."""
    return examples[0]


def feed_of(costs: Costs) -> Callable[[], Any]:
    """What makes the batches of a synthetic loop."""
    return ResumableLoader(Batches(costs), batch_size=1, shuffle=False, collate_fn=first).source.endless_feed


def run_loop(
    make_feed: Callable[[], Any],
    step: Callable[[Any], Any],
    num_workers: int,
    prefetch: int,
    *,
    seconds: float,
    period: int = 1,
    turns: int = 1,
) -> dict[str, float]:
    """A loop in its steady state: start-up and what was made meanwhile are left out.

    seconds : at least so long, and at least `turns`, in whole rounds of workers and of `period` batches
    returns : means `turn_ms`, `wait_ms`; `longest_wait_ms`; `handover_ms`, the median time to get a batch that is
              there, 0.0 without workers; `num_turns`
    """
    options = {"prefetch_factor": prefetch} if num_workers else {}
    ahead, length = num_workers * prefetch, math.lcm(max(1, num_workers), period)
    waits: list[float] = []
    with closing(endless_batches(make_feed, num_workers, options)) as batches:
        for _ in range(-(-(ahead + 1) // length) * length):  # the first of a round is the first that is timed
            step(next(batches))
        began = time.perf_counter()
        while len(waits) % length or len(waits) < turns or time.perf_counter() - began < seconds:
            asked = time.perf_counter()
            batch = next(batches)
            waits.append((time.perf_counter() - asked) * 1e3)
            step(batch)
        turn_ms = (time.perf_counter() - began) * 1e3 / len(waits)
        found = {"turn_ms": turn_ms, "wait_ms": statistics.fmean(waits), "longest_wait_ms": max(waits)}
        found["handover_ms"] = _handover_ms(batches, ahead, max(turn_ms, max(waits))) if num_workers else 0.0
    return {name: round(value, 3) for name, value in found.items()} | {"num_turns": len(waits)}


def _handover_ms(batches: Any, ahead: int, slowest_ms: float) -> float:
    """Median time for a batch that is ready, since workers had the time to make all they may make ahead."""
    time.sleep(min(1.0, (ahead + 1) * slowest_ms / 1e3))
    found = []
    for _ in range(min(ahead, PAUSED)):
        asked = time.perf_counter()
        next(batches)
        found.append((time.perf_counter() - asked) * 1e3)
    return statistics.median(found)
