"""Windows of micro-batches, one for each update, from any loader.

It knows batches, keys and epochs; it makes no update. A place inside an epoch is `ResumableLoader`'s business.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch

from course_utils.evaluation import to_device

_END = object()


def windows(
    loader: Any, accumulate: int, *, device: torch.device | str | None = None
) -> Iterator[tuple[list[Any], list[Any], float]]:
    """Up to `accumulate` micro-batches at a time, to the end of the loader's epoch; the last window holds what is left.

    loader  : has a `key` that names the batch it handed over last, as a `ResumableLoader` and a `PlainLoader` have
    yields  : micro-batches (moved to `device`), their keys, and the milliseconds spent waiting for them
    """
    batches = iter(loader)
    while True:
        began, window, keys = time.perf_counter(), [], []
        for batch in islice(batches, accumulate):
            window.append(to_device(batch, device))
            keys.append(loader.key)
        if not window:
            return
        yield window, keys, (time.perf_counter() - began) * 1e3


def with_position(loader: Iterable, before: Any) -> Any:
    """`loader` itself where it keeps a position; else in a `PlainLoader`, which goes on at the epoch of `before`.

    before : the loader that the run read so far, or None; it is returned where it lends `loader` a position already
    """
    if isinstance(before, PlainLoader) and before.loader is loader:
        return before
    if hasattr(loader, "load_state_dict"):
        return loader
    return PlainLoader(loader, epoch=before.epoch if before is not None else 0)


class PlainLoader:
    """Lends a loader without a position (a `DataLoader`, a list of batches) an epoch counter: it looks a batch ahead.

    Its place inside an epoch is not saved: going on starts the epoch again.
    """

    key = None

    def __init__(self, loader: Iterable, epoch: int = 0) -> None:
        self.loader, self.epoch = loader, epoch

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        batch = next(batches, _END)
        while batch is not _END:
            coming = next(batches, _END)
            if coming is _END:
                self.epoch += 1  # counted at hand-over, as ResumableLoader does
            yield batch
            batch = coming

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """raises : ValueError for a place inside an epoch, which this loader could not find again"""
        if state.get("offset"):
            raise ValueError(
                f"cannot resume: the state is {state['offset']} examples into epoch {state['epoch']}, and a loader "
                "without state_dict can only start an epoch: give a ResumableLoader"
            )
        self.epoch = state["epoch"]
