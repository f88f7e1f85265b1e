"""Batches made by worker processes: torch's `DataLoader`, started where asked and ended for certain.

It knows no dataset and no position. A *feed* says what workers make: a torch dataset, perhaps with a batch sampler,
that goes to a place with `begin(epoch, offset)` and yields (key, batch, whether the epoch ends with it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

WORKER_OPTIONS = (
    "persistent_workers", "prefetch_factor", "multiprocessing_context", "pin_memory", "timeout", "worker_init_fn",
)  # fmt: skip


def as_it_is(batch: Any) -> Any:
    """The collate function of a loader whose dataset makes whole batches."""
    return batch


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
        self._kept: tuple[Any, DataLoader] | None = None
        self._iterator: Any = None  # of the kept workers
        self._new_loader(make_feed())  # options that do not fit are noticed now

    def read(self, epoch: int, offset: int) -> Iterator[tuple[Any, Any, bool]]:
        """(key, batch, ended) from a place on. Closing this generator, or an error, ends its workers.

        Persistent workers outlive a reading that was left early, not one that failed: they may be dead or hung.
        """
        iterator, healthy = self._begin(epoch, offset), False
        try:
            for item in iterator:
                healthy = True
                yield item
                healthy = False
            healthy = True
        finally:
            if not (healthy and self._persistent):
                self._end(iterator)

    def _begin(self, epoch: int, offset: int) -> Any:
        if not self._persistent:
            feed = self._make_feed()
            feed.begin(epoch, offset)
            return iter(self._new_loader(feed))
        if self._iterator is not None and not all(worker.is_alive() for worker in self._iterator._workers):
            self._end(self._iterator)  # Ctrl-C reached them too
        if self._kept is None:
            feed = self._make_feed()
            self._kept = feed, self._new_loader(feed)
        feed, loader = self._kept
        feed.begin(epoch, offset)
        try:
            self._iterator = iter(loader)
        except BaseException:
            self._end(self._iterator)
            raise
        return self._iterator

    def _end(self, iterator: Any) -> None:
        if iterator is self._iterator:
            self._kept = self._iterator = None
        if hasattr(iterator, "_shutdown_workers"):  # private: else they would live as long as a traceback names them
            iterator._shutdown_workers()

    def _new_loader(self, feed: Any) -> DataLoader:
        return DataLoader(
            feed.dataset,
            collate_fn=as_it_is,
            num_workers=self._num_workers,
            generator=torch.Generator(),  # else each iteration would draw from the global one
            **feed.sampling,
            **self._options,
        )
