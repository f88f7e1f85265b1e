"""Pipelines whose costs are known, to be really run: loading, hand-over and step take what they are told.

`pipeline_model` says what such a loop takes, `measured_loop` measures what it takes here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils.data import Dataset

from course_utils.loaders import ResumableLoader
from course_utils.pipeline_model import simulate_pipeline
from course_utils.pipeline_timeline import Timeline
from course_utils.randomness import BatchKey
from course_utils.worker_pool import no_advice

BATCH_SIZE, NUM_BATCHES = 4, 10_000  # more batches than anybody measures: the epoch never ends


@dataclass(frozen=True)
class Costs:
    """What a loop is made of; milliseconds, and the workers that load. Names as in `simulate_pipeline`.

    load_computes, step_computes : computing takes a core; else it waits, for a disk, a network or a GPU
    handover_computes            : as a real one does, and the model's; without it other work does not disturb it
    slow_every, slow_factor      : the k-th, 2k-th, ... batch takes so many times `load_ms`; 1 makes all alike
    startup_ms                   : what each worker does once, before its first batch
    """

    load_ms: float
    step_ms: float
    num_workers: int = 0
    prefetch_factor: int = 2
    handover_ms: float = 0.0
    load_computes: bool = False
    step_computes: bool = False
    handover_computes: bool = True
    slow_every: int = 1
    slow_factor: float = 10.0
    startup_ms: float = 0.0

    def predicted(self, cores: int, *, num_batches: int = 40) -> Timeline:
        """What the model says of it, on so many cores."""
        told = ("load_ms", "step_ms", "handover_computes")
        costs = {name: value for name, value in vars(self).items() if name not in told}
        return simulate_pipeline(self.load_ms, self.step_ms, cores=cores, num_batches=num_batches, **costs)


@cache
def loops_per_ms() -> float:
    """Turns of an empty loop in a millisecond of one core: the best of some tries, for the others were disturbed."""
    return max(1_000 / (_seconds(1_000) * 1e3) for _ in range(30))


def _seconds(loops: int) -> float:
    began = time.perf_counter()
    for _ in range(loops):
        pass
    return max(time.perf_counter() - began, 1e-7)


def spend(ms: float, *, computes: bool, per_ms: float) -> None:
    """Take so long: compute what a free core does in that time, or sleep. `per_ms` is of `loops_per_ms`."""
    if computes:
        _seconds(round(ms * per_ms))
    elif ms > 0:
        time.sleep(ms / 1e3)


class Priced:
    """Part of a batch whose hand-over costs: to unpickle it takes `ms` of the receiving process. A copy is free.

    per_ms : of `loops_per_ms`; None makes it wait instead of computing
    """

    def __init__(self, ms: float, per_ms: float | None) -> None:
        self.ms, self.per_ms = ms, per_ms

    def __reduce__(self) -> tuple:
        return _receive, (self.ms, self.per_ms)

    def __deepcopy__(self, memo: dict) -> Priced:
        return Priced(self.ms, self.per_ms)


def _receive(ms: float, per_ms: float | None) -> Priced:
    spend(ms, computes=per_ms is not None, per_ms=per_ms or 0.0)
    return Priced(ms, per_ms)


class SyntheticBatches(Dataset):
    """A batch is (its indices, a `Priced`), after the time that `costs` says. It draws nothing.

    costs   : of which loading, hand-over and start-up count here
    per_ms  : of `loops_per_ms`, measured by who starts the workers
    """

    keyed = True

    def __init__(self, costs: Costs, *, per_ms: float | None = None) -> None:
        self.costs, self.per_ms = costs, loops_per_ms() if per_ms is None else per_ms
        self._ready = False

    def __len__(self) -> int:
        return BATCH_SIZE * NUM_BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)

    def take(self, key: BatchKey) -> tuple[list[int], Priced]:
        costs, place = self.costs, key.start // BATCH_SIZE + 1
        if not self._ready:
            spend(costs.startup_ms, computes=False, per_ms=self.per_ms)
            self._ready = True
        slow = costs.slow_every > 1 and place % costs.slow_every == 0
        ms = costs.load_ms * (costs.slow_factor if slow else 1.0)
        spend(ms, computes=costs.load_computes, per_ms=self.per_ms)
        return list(key.indices), Priced(costs.handover_ms, self.per_ms if costs.handover_computes else None)

    def loader(self) -> ResumableLoader:
        """Its batches in order, with the workers of `costs`."""
        options = {"prefetch_factor": self.costs.prefetch_factor} if self.costs.num_workers else {}
        with no_advice():
            how = {"num_workers": self.costs.num_workers, **options}
            return ResumableLoader(self, batch_size=BATCH_SIZE, shuffle=False, **how)

    def step(self, batch: Any) -> None:
        """What the loop does with a batch."""
        spend(self.costs.step_ms, computes=self.costs.step_computes, per_ms=self.per_ms)
