"""Choosing the number of workers by measuring the real loop, load and step together, within a budget of seconds.

The loader alone would mislead: on few cores its workers take the step's time. Re-exported by `loaders`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.machine import usable_cpus
from course_utils.randomness import generators_put_back
from course_utils.tuning_looks import measure_all
from course_utils.worker_choice import Tuning, WorkerTimes, choose_workers
from course_utils.worker_pool import WORKER_OPTIONS, can_pin, endless_batches

Step = Callable[[Any], Any]

MAX_SLICE_S, MIN_TURNS = 0.5, 3
_NONE = object()
MAX_PAUSE_S = 0.5  # for workers to fill the queue, so that hand-over alone is timed


def tune_workers(
    dataset: Dataset,
    step: Step,
    *,
    batch_size: int | None = None,
    seconds: float = 20.0,
    max_workers: int | None = None,
    collate_fn: Callable[[list], Any] | None = None,
    **options: Any,
) -> Tuning:
    """Measure 0, 1, 2, ... workers and say how many to use, and why.

    dataset     : map-style with `batch_size` (and `collate_fn`); or a `ShardedRecords`; or a `ResumableLoader`, whose
                  data, order and workers' options are used and whose position and running iteration stay as they are
    step        : batch -> anything: what the training loop does with a batch. It really runs, some hundred times, so
                  what it changes is changed: hand in one that trains a copy of the model, `copy.deepcopy(model)`
    seconds     : the budget, seldom used up; a number of workers is begun only while there is time for it
    max_workers : the largest number to try; twice the usable cores by default
    options     : of the workers, as `ResumableLoader` takes them: `prefetch_factor`, `multiprocessing_context`, ...
    returns     : a `Tuning`: `.num_workers`, `.choice` with its reason, a table when printed
    raises      : ValueError for arguments that do not fit, or data without a batch; what dataset or step raise

    The floor is the median step on one batch that is there already. Then the loop itself is timed for each number:
    after the start-up, after the batches that were made meanwhile, and in whole rounds of workers, since these
    deliver in bursts. It ends at a turn within 5 % of the floor, after two numbers that win at most 5 %, or with the
    time. While there is time, numbers that may be chosen are measured again and the lesser time counts, since a busy
    moment only adds (`tuning_looks` says which). `choose_workers` decides. Only full batches are used, epoch after
    epoch. The generators are put back and every worker is ended, also on an exception or Ctrl-C.
    """
    make_feed, options = _what_to_measure(dataset, batch_size, collate_fn, options)
    max_workers = 2 * usable_cpus() if max_workers is None else max_workers
    if not seconds > 0 or max_workers < 0:
        raise ValueError(f"need seconds > 0 and max_workers >= 0, got seconds={seconds}, max_workers={max_workers}")
    began = time.perf_counter()
    with generators_put_back():
        floor_ms = 1e3 * _floor_seconds(make_feed, step, min(MAX_SLICE_S, seconds / 10))
        slice_s, deadline = min(MAX_SLICE_S, seconds / 16), began + seconds
        measure = partial(_measure, make_feed, step, options=options, slice_s=slice_s, deadline=deadline)
        time_for = partial(_time_for, options=options, slice_s=slice_s, deadline=deadline)
        times, stopped = measure_all(measure, time_for, floor_ms, max_workers, seconds)
    choice = choose_workers(times, floor_ms)
    return Tuning(choice, tuple(times), floor_ms, stopped, time.perf_counter() - began)


def _what_to_measure(
    dataset: Any, batch_size: int | None, collate_fn: Callable | None, options: dict[str, Any]
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """() -> an endless feed, and the workers' options."""
    from course_utils.loaders import ResumableLoader  # it re-exports this module

    unknown = sorted({*options} - {*WORKER_OPTIONS} | {*options} & {"persistent_workers"})
    if unknown:
        raise TypeError(f"tune_workers takes options of workers, persistent_workers not among them, got {unknown}")
    if isinstance(dataset, DataLoader):
        raise TypeError(
            "tune_workers needs a dataset with batch_size=..., or a ResumableLoader, got a DataLoader: give its "
            "dataset, batch_size and collate_fn"
        )
    if isinstance(dataset, ResumableLoader):
        if batch_size is not None or collate_fn is not None:
            raise ValueError("the loader already says what batch_size and collate_fn would say: leave them out")
        loader, options = dataset, dataset.worker_options | options
    else:
        loader = ResumableLoader(dataset, batch_size=batch_size, collate_fn=collate_fn)
    options = {name: value for name, value in options.items() if name != "persistent_workers"}
    options["pin_memory"] = bool(options.get("pin_memory")) and can_pin()
    return loader.source.endless_feed, options


def _time_for(num_workers: int, like: WorkerTimes, options: dict[str, Any], slice_s: float, deadline: float) -> bool:
    """Whether a number can be measured before the deadline, if it is like another one."""
    drained = num_workers * _prefetch(options) * like.turn_ms / 1e3
    return time.perf_counter() + like.startup_s + drained + slice_s <= deadline


def _prefetch(options: dict[str, Any]) -> int:
    return options.get("prefetch_factor") or 2  # torch's default


def _measure(
    make_feed: Callable[[], Any],
    step: Step,
    num_workers: int,
    options: dict,
    slice_s: float,
    deadline: float,
    with_handover: bool = True,
) -> WorkerTimes | None:
    """The loop with `num_workers`; None where the time was over first. Without workers there is always a figure."""
    own = options if num_workers else {"pin_memory": options["pin_memory"]}
    began = time.perf_counter()
    with closing(endless_batches(make_feed, num_workers, own)) as batches:
        step(next(batches))
        startup_s = time.perf_counter() - began if num_workers else 0.0
        for _ in range(num_workers * _prefetch(options)):  # made before we looked: they would seem to cost nothing
            if time.perf_counter() > deadline:
                return None
            step(next(batches))
        row = _timed(batches, step, num_workers, startup_s, slice_s, deadline)
        return replace(row, handover_ms=_handover_ms(batches, row, _prefetch(options))) if with_handover else row


def _handover_ms(batches: Iterator[Any], row: WorkerTimes, prefetch: int) -> float:
    """What it takes to get a batch that is ready; 0.0 without workers, or where making batches ahead takes too long."""
    num_ahead = row.num_workers * prefetch
    pause_s = num_ahead * row.turn_ms / 1e3  # a worker's batch takes at most num_workers turns, else turns were longer
    if not 0 < pause_s <= MAX_PAUSE_S:
        return 0.0
    time.sleep(pause_s)
    found = []
    for _ in range(min(num_ahead, 3)):
        began = time.perf_counter()
        next(batches)
        found.append(time.perf_counter() - began)
    return statistics.median(found) * 1e3


def _timed(
    batches: Iterator[Any], step: Step, num_workers: int, startup_s: float, slice_s: float, deadline: float
) -> WorkerTimes:
    """Whole rounds of workers, for `slice_s` seconds and a few turns at least, while there is time."""
    _wait_for_device()
    began, waited, turns, round_length = time.perf_counter(), 0.0, 0, max(1, num_workers)
    enough, over = max(MIN_TURNS, 2 * num_workers), False
    while not over:
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        step(batch)
        turns, now = turns + 1, time.perf_counter()
        over = turns % round_length == 0 and (now >= deadline or (turns >= enough and now - began >= slice_s))
    _wait_for_device()
    turn_ms = (time.perf_counter() - began) / turns * 1e3
    return WorkerTimes(num_workers, turn_ms, waited / turns * 1e3, startup_s, turns)


def _floor_seconds(make_feed: Callable[[], Any], step: Step, seconds: float) -> float:
    """Median of the step alone, on one batch; the first steps, which prepare things, are not counted."""
    with closing(endless_batches(make_feed, 0, {"pin_memory": False})) as batches:
        batch = next(batches, _NONE)
    if batch is _NONE:
        raise ValueError("there is no batch to measure: the data is empty")
    step(batch)
    found, end = [], time.perf_counter() + seconds
    while len(found) < MIN_TURNS or time.perf_counter() < end:
        _wait_for_device()
        began = time.perf_counter()
        step(batch)
        _wait_for_device()
        found.append(time.perf_counter() - began)
    return max(statistics.median(found), 1e-7)  # a clock that ticks more rarely would say 0


def _wait_for_device() -> None:
    """A GPU works behind the program's back: what was asked of it is awaited, so that its time is counted."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
