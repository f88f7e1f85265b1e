"""Batches made by worker processes: torch's `DataLoader`, started where asked and ended for certain.

It knows no dataset and no position. A *feed* says what workers make: a torch dataset, perhaps with a batch sampler,
that goes to a place with `begin(epoch, offset)` and yields (key, batch, whether the epoch ends with it).
"""

from __future__ import annotations

import functools
import signal
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

WORKER_OPTIONS = (
    "persistent_workers", "prefetch_factor", "multiprocessing_context", "pin_memory", "timeout", "worker_init_fn",
)  # fmt: skip


def as_it_is(batch: Any) -> Any:
    """The collate function of a loader whose dataset makes whole batches."""
    return batch


def can_pin() -> bool:
    """Whether torch pins memory here: with an accelerator, but not for Apple's; elsewhere its loader only warns."""
    return torch.accelerator.is_available() and torch.accelerator.current_accelerator().type != "mps"


def _begin_worker(worker_init_fn: Callable[[int], Any] | None, worker_id: int) -> None:
    """In a new worker. Ctrl-C reaches every process of a terminal or a notebook; the main one says what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)


class _Kept:
    """Persistent workers: their feed, loader and torch iterator, until they end."""

    def __init__(self) -> None:
        self.feed = self.loader = self.iterator = None

    def begin(self, epoch: int, offset: int) -> Any:
        if self.iterator is not None and not all(worker.is_alive() for worker in self.iterator._workers):
            raise RuntimeError("a worker has ended")  # torch would find out after 5 seconds
        self.feed.begin(epoch, offset)
        self.iterator = iter(self.loader)
        return self.iterator

    def end(self) -> None:
        iterator, self.iterator = self.iterator, None
        _end_workers(iterator)


def _end_workers(iterator: Any) -> None:
    if hasattr(iterator, "_shutdown_workers"):  # private: else they would live as long as a traceback names them
        iterator._shutdown_workers()


class WorkerPool:
    """Starts workers for one reading after another; persistent ones stay for the next.

    make_feed   : () -> feed; a feed has `dataset`, `sampling` (keyword arguments for `DataLoader`) and `begin`
    num_workers : processes; 0 only makes sense with `pin_memory`
    options     : of `WORKER_OPTIONS`, as `DataLoader` takes them
    raises      : what `DataLoader` raises for options that do not fit
    """

    def __init__(self, make_feed: Callable[[], Any], num_workers: int, options: dict[str, Any]) -> None:
        self._make_feed, self._num_workers, self._options = make_feed, num_workers, options
        self._persistent = bool(options.get("persistent_workers"))
        self._kept, self._turn = _Kept(), 0
        weakref.finalize(self, self._kept.end)  # in order; collected as part of a cycle, each would be waited for 5 s
        self._new_loader(make_feed())  # options that do not fit are noticed now

    def read(self, epoch: int, offset: int) -> Iterator[tuple[Any, Any, bool]]:
        """(key, batch, ended) from a place on. Closing this generator, or an error, ends its workers.

        Persistent workers outlive a reading that was left early, not one that failed: they may be dead or hung.
        """
        iterator, healthy = self._begin(epoch, offset), False
        self._turn = turn = self._turn + 1
        try:
            while True:
                if self._persistent and turn != self._turn:
                    healthy = True  # they work for another reading
                    raise RuntimeError("these workers have begun another reading: one at a time, or not persistent")
                healthy = False
                item = _next_item(iterator)
                healthy = True
                if item is None:
                    return
                yield item
        finally:
            if not (healthy and self._persistent):
                self._end(iterator)

    def _begin(self, epoch: int, offset: int) -> Any:
        """The torch iterator that hands batches over; of the kept workers where they are still in order."""
        if not self._persistent:
            feed = self._make_feed()
            feed.begin(epoch, offset)
            return iter(self._new_loader(feed))
        if self._kept.iterator is not None:
            try:
                return self._kept.begin(epoch, offset)
            except RuntimeError:  # they died
                self._kept.end()
        self._kept.feed = self._make_feed()
        self._kept.loader = self._new_loader(self._kept.feed)
        return self._kept.begin(epoch, offset)

    def _end(self, iterator: Any) -> None:
        if self._persistent:
            self._kept.end()
        _end_workers(iterator)

    def _new_loader(self, feed: Any) -> DataLoader:
        begin_worker = functools.partial(_begin_worker, self._options.get("worker_init_fn"))
        return DataLoader(
            feed.dataset,
            collate_fn=as_it_is,
            num_workers=self._num_workers,
            generator=torch.Generator(),  # else each iteration would draw from the global one
            **feed.sampling,
            **self._options | {"worker_init_fn": begin_worker},
        )


@contextmanager
def no_advice() -> Iterator[None]:
    """Without torch's advice about the number of workers: for measuring, more than cores are started on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield


def endless_batches(make_feed: Callable[[], Any], num_workers: int, options: dict[str, Any]) -> Iterator[Any]:
    """The batches of an endless feed, for measuring; none where there is no data. Closing it ends the workers."""
    with no_advice():
        reading = WorkerPool(make_feed, num_workers, options).read(0, 0)
        first = next(reading, None)
    with closing(reading):
        if first is not None:
            yield first[1]
        for _, batch, _ in reading:
            yield batch


def _next_or_none(iterator: Any) -> Any:
    try:
        return next(iterator, None)
    except Exception as error:
        if hasattr(
            iterator, "_workers"
        ):  # a worker's error: torch's frames name it, a cycle that would keep the loader
            traceback.clear_frames(error.__traceback__)
        raise


def _next_item(iterator: Any) -> Any:
    """The next item, None at the end. A batch lost because its worker died is told as torch tells a death."""
    try:
        return _next_or_none(iterator)
    except (OSError, EOFError) as error:
        if str(error).startswith("Caught "):  # raised by the dataset, in a worker
            raise
        for worker in getattr(iterator, "_workers", ()):
            worker.join(0.5)
            if worker.exitcode:
                told = f"DataLoader worker (pid {worker.pid}) exited unexpectedly with code {worker.exitcode}"
                raise RuntimeError(told) from error
        raise
