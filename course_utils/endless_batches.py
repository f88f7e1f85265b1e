"""Any loader's batches without end, for measuring: the loader itself, its position and its workers are not touched.

It times nothing. Used by `profiling`.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from course_utils.loaders import ResumableLoader
from course_utils.worker_pool import as_it_is, can_pin, endless_batches, no_advice


@dataclass(frozen=True)
class EndlessBatches:
    """Batches for measuring.

    open        : () -> an iterator of batches with `close`, which ends its workers; `Again` where a new iteration of
                  the loader begins now and then, whose first batch pays for the start
    num_workers : that make them
    num_batches : of one iteration of the loader; None where it does not say
    prefetch    : batches that each worker makes ahead
    context     : how workers are started; None for the default
    generators  : of the loader's own, beside the global ones
    """

    open: Callable[[], Iterator[Any]]
    num_workers: int = 0
    num_batches: int | None = None
    prefetch: int = 2
    context: Any = None
    generators: tuple[torch.Generator, ...] = field(default=(), repr=False)


def endless(loader: Iterable) -> EndlessBatches:
    """What to measure of a loader.

    loader : a `ResumableLoader`, whose position, key and running iteration stay; a `DataLoader`, of which a copy is
             read, so that a running iteration and persistent workers stay; or anything that can be iterated again and
             again, such as a list of batches
    raises : ValueError for an iterator, which could be read once only
    """
    loader = getattr(loader, "watched", loader)  # a StepTimer would time the measuring
    if isinstance(loader, ResumableLoader):
        return _of_resumable(loader)
    if isinstance(loader, DataLoader):
        return _of_dataloader(loader)
    if iter(loader) is loader:
        raise ValueError(
            f"a {type(loader).__name__} can be read once only, and measuring would use it up: give the loader itself"
        )
    return EndlessBatches(lambda: Again(loader), num_batches=_length(loader))


def idle_worker(batch: Any, num_workers: int, context: Any) -> EndlessBatches:
    """The same batch again and again from workers that only copy it: what is left is the hand-over."""

    def start() -> Iterator[Any]:
        ready, each = _Ready(copy.deepcopy(batch)), itertools.repeat(0)
        how = {"num_workers": num_workers, "multiprocessing_context": context, "collate_fn": as_it_is}
        with no_advice():
            loader = DataLoader(ready, batch_size=None, sampler=each, generator=torch.Generator(), **how)
        return _ended_for_certain(loader)

    return EndlessBatches(start, num_workers)


class _Ready(Dataset):
    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __getitem__(self, index: int) -> Any:
        return copy.deepcopy(self.batch)  # new memory: what a worker made is handed over once


def _of_resumable(loader: ResumableLoader) -> EndlessBatches:
    num_workers = loader._pools[0]._num_workers if loader._pools else 0
    own = {name: value for name, value in loader.worker_options.items() if name != "persistent_workers"}
    own["pin_memory"] = bool(own.get("pin_memory")) and can_pin()

    def start() -> Iterator[Any]:
        return endless_batches(loader.source.endless_feed, num_workers, own)

    how = own.get("prefetch_factor") or 2, own.get("multiprocessing_context")
    return EndlessBatches(start, num_workers, _length(loader), *how)


def _of_dataloader(loader: DataLoader) -> EndlessBatches:
    own = copy.copy(loader)
    own.__dict__["persistent_workers"] = False  # past DataLoader's guard; kept workers stay the loader's
    streams = isinstance(loader.dataset, IterableDataset)
    if not streams:
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        own.__dict__[name] = _Endless(getattr(loader, name))
    make = (lambda: Again(own)) if streams else (lambda: _ended_for_certain(own))
    how = loader.prefetch_factor or 2, loader.multiprocessing_context, _generators_of(loader)
    return EndlessBatches(make, loader.num_workers, _length(loader), *how)


class _Endless:
    """A sampler's indices, epoch after epoch; an empty one ends."""

    def __init__(self, sampler: Iterable) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        return Again(self.sampler)


class Again(Iterator):
    """All of `items`, over and over; ends where there are none.

    begun  : iterations of which a batch was handed over
    length : batches of a whole iteration; None before one has ended
    """

    def __init__(self, items: Iterable) -> None:
        self.begun, self.length, self._batches = 0, None, self._read(items)

    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """End the workers, if there are any."""
        self._batches.close()

    def _read(self, items: Iterable) -> Iterator[Any]:
        while self.length != 0:
            handed = 0
            with closing(_ended_for_certain(items)) as once:
                for item in once:
                    self.begun += not handed
                    handed += 1
                    yield item
            self.length = handed


def _ended_for_certain(loader: Iterable) -> Iterator[Any]:
    """What the loader gives, and its workers ended with it: a traceback would keep them alive."""
    with no_advice():
        iterator = iter(loader)
    try:
        yield from iterator
    finally:
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


def _generators_of(loader: DataLoader) -> tuple[torch.Generator, ...]:
    samplers = [loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)]
    found = [getattr(owner, "generator", None) for owner in (loader, *samplers)]
    return tuple({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


def _length(loader: Any) -> int | None:
    try:
        return len(loader) or None
    except TypeError:  # a stream
        return None
