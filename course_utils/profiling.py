"""Where a training step's time and memory go, and what to change.

`diagnose` measures here; it decides in `bottleneck`. It knows a loader and a step, no model. The other tools live in
modules by subject and are re-exported: `step_timer`, `speed_limit`, `backward_memory`, `live_bytes`, `step_profile`,
`snapshot`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from course_utils.backward_memory import (
    MemoryRow,
    MemoryTable,
    SavedTensor,
    bytes_for_backward,
    checkpointed,
    compare_memory,
    tensors_for_backward,
)
from course_utils.bottleneck import Diagnosis, LoopTimes, decide
from course_utils.endless_batches import EndlessBatches, endless, idle_worker
from course_utils.live_bytes import live_bytes, peak_bytes
from course_utils.randomness import generators_put_back
from course_utils.snapshot import Snapshot, first_epoch_snapshot
from course_utils.speed_limit import SpeedLimit, flops_of, matmul_peak_gflops, speed_limit, times_of
from course_utils.step_clock import wait_for_device
from course_utils.step_profile import OperationRow, StepProfile, profile_step
from course_utils.step_timer import StepTimer, WatchedLoader
from course_utils.timer_summary import SectionTimes, TimerSummary

__all__ = [
    "Diagnosis", "LoopTimes", "MemoryRow", "MemoryTable", "OperationRow", "SavedTensor", "SectionTimes", "Snapshot",
    "SpeedLimit", "StepProfile", "StepTimer", "TimerSummary", "WatchedLoader", "bytes_for_backward", "checkpointed",
    "compare_memory", "decide", "diagnose", "first_epoch_snapshot", "flops_of", "live_bytes", "matmul_peak_gflops",
    "peak_bytes", "profile_step", "speed_limit", "tensors_for_backward",
]  # fmt: skip

Step = Callable[[Any], Any]

MIN_TURNS = 3
LOOP, ALONE, STEP, HANDOVER, LIMIT = 0.4, 0.2, 0.15, 0.15, 0.1  # shares of the seconds


def diagnose(loader: Iterable, step: Step, *, seconds: float = 10.0) -> Diagnosis:
    """Time a loop and its parts, and say what holds it up, by how much, and what to try.

    loader  : a `ResumableLoader`, a `DataLoader`, or anything that can be iterated again, such as a list of batches
    step    : batch -> anything: what the loop does with a batch. It really runs, some hundred times, so what it changes
              is changed: hand in one that trains a copy of the model, `copy.deepcopy(model)`
    seconds : for the measuring, beside the start of workers, which happens twice; slow batches take longer
    returns : a `Diagnosis`: `.verdict`, `.share`, `.ms`, `.advice`, a table when printed
    raises  : ValueError for seconds not above 0, for an iterator, for a loader without a batch; what those two raise

    Measured in turn: the first batch, the loop in its steady state, the loader alone, the step alone on a batch that is
    there, the same batch handed over by a worker that does nothing, and the step against matrix products. Batches are
    read from an epoch's start, epoch after epoch. The loader's position and running iteration stay, the generators are
    put back and every worker is ended, also on an exception or Ctrl-C. Only a dataset that counts its own reads in
    this process, or a sampler with a state of its own, moves on.
    """
    if not seconds > 0:
        raise ValueError(f"diagnose needs seconds > 0, got {seconds}")
    source = endless(loader)
    with generators_put_back(source.generators):
        times, batch, caveat = _measure(source, step, seconds)
        limit = _limit(lambda: step(batch), times.step_ms, LIMIT * seconds)
    return replace(decide(times), limit=limit, caveat=caveat)


def _measure(source: EndlessBatches, step: Step, seconds: float) -> tuple[LoopTimes, Any, str]:
    """The times, the batch that the step was timed on, and what was not possible."""
    ahead = source.num_workers * source.prefetch
    began = time.perf_counter()
    with closing(source.open()) as batches:
        batch = _first(batches)
        startup_ms = (time.perf_counter() - began) * 1e3
        step(batch)
        deadline = time.perf_counter() + LOOP * seconds
        drained = _drain(batches, step, ahead, deadline)
        turn_ms, wait_ms = _turns(batches, step, source.num_workers, LOOP * seconds)
        drained &= _drain(batches, _nothing, ahead, time.perf_counter() + ALONE * seconds)
        load_ms, _ = _turns(batches, _nothing, source.num_workers, ALONE * seconds)
        num_batches = source.num_batches or getattr(batches, "length", None)
    step_ms = 1e3 * statistics.median(times_of(lambda: step(batch), STEP * seconds))
    handover_ms = _handover_ms(source, step, batch, HANDOVER * seconds)
    too_few = f"{seconds:g} seconds were too few to use up what was made ahead: the loop seems faster than it is"
    times = (max(step_ms, 1e-4), max(turn_ms, 1e-4), wait_ms, load_ms, startup_ms, handover_ms)
    return LoopTimes(*times, source.num_workers, num_batches), batch, "" if drained else too_few


def _nothing(batch: Any) -> None:
    """The step of a loader alone."""


def _first(batches: Iterator[Any]) -> Any:
    for batch in batches:
        return batch
    raise ValueError("there is no batch to measure: the loader is empty")


def _drain(batches: Iterator[Any], step: Step, num_ahead: int, deadline: float) -> bool:
    """Use up what was made before we looked: it would seem to cost nothing. False where the time was over first."""
    for _ in range(num_ahead):
        if time.perf_counter() > deadline:
            return False
        step(next(batches))
    return True


def _turns(batches: Iterator[Any], step: Step, num_workers: int, seconds: float) -> tuple[float, float]:
    """Mean milliseconds of a turn, and of its wait, over whole rounds of workers: they deliver in bursts.

    The first turn of an iteration is left out, unless every turn is one.
    """
    wait_for_device()
    began, round_length, rows = time.perf_counter(), max(1, num_workers), []
    while len(rows) < MIN_TURNS or len(rows) % round_length or time.perf_counter() - began < seconds:
        begun, asked = _begun(batches), time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - asked
        step(batch)
        rows.append((time.perf_counter() - asked, waited, _begun(batches) > begun))
    wait_for_device()
    took, kept = time.perf_counter() - began, [row for row in rows if not row[2]] or rows
    left_out = sum(row[0] for row in rows if row[2]) if len(kept) < len(rows) else 0.0
    return (took - left_out) / len(kept) * 1e3, statistics.fmean(row[1] for row in kept) * 1e3


def _begun(batches: Iterator[Any]) -> int:
    """Iterations of the loader so far, where it says so: the first turn of each is start-up, no steady state."""
    return getattr(batches, "begun", 0)


def _handover_ms(source: EndlessBatches, step: Step, batch: Any, seconds: float) -> float:
    """Median wait for a batch of the same form from workers that have nothing else to do; 0.0 without workers."""
    if source.num_workers == 0:
        return 0.0
    idle, found = idle_worker(batch, min(2, source.num_workers), source.context), []
    with closing(idle.open()) as batches:
        for _ in range(idle.num_workers * idle.prefetch):
            step(next(batches))
        end = time.perf_counter() + seconds
        while len(found) < MIN_TURNS or time.perf_counter() < end:
            asked = time.perf_counter()
            handed = next(batches)
            found.append(time.perf_counter() - asked)
            step(handed)
    return 1e3 * statistics.median(found)


def _limit(fn: Callable[[], Any], step_ms: float, seconds: float) -> SpeedLimit | None:
    """The step against the peak; None for a step without an operation that is counted."""
    flops = flops_of(fn)
    return SpeedLimit(flops, step_ms, matmul_peak_gflops(seconds)) if flops else None
