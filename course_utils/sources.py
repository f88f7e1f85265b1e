"""What a loader reads: a dataset in the order of `EpochBatches`, or a stream; here, or in workers.

A source yields (key, batch, whether the epoch ends with it) from a place on. It knows no current position.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from course_utils.batches import KeyedBatches
from course_utils.randomness import BatchKey
from course_utils.sampling import EpochBatches
from course_utils.streams import ShardedRecords, SharedPosition

Keyed = tuple[BatchKey, Any, bool]


@contextmanager
def sendable_errors() -> Iterator[None]:
    """An exception that cannot be pickled becomes a RuntimeError: torch would lose it, and the loop would wait."""
    try:
        yield
    except Exception as error:
        try:
            pickle.dumps(type(error))
        except Exception:
            raise RuntimeError(f"{type(error).__qualname__}, of a class that cannot be pickled: {error}") from error
        raise


class _Items(Dataset):
    """What map-style workers are sent: a key comes in the place of a list of indices."""

    def __init__(self, maker: KeyedBatches) -> None:
        self.maker = maker

    def __getitems__(self, key: BatchKey) -> Keyed:
        if get_worker_info() is None:
            return key, self.maker.make_isolated(key), False
        with sendable_errors():
            return key, self.maker.make(key), False


class KeyFeed:
    """A batch sampler whose place is set before an iteration starts; the keys travel to the workers."""

    def __init__(self, maker: KeyedBatches, batches: EpochBatches) -> None:
        self.dataset, self.batches, self.sampling = _Items(maker), batches, {"batch_sampler": self}
        self._place = 0, 0

    def begin(self, epoch: int, offset: int) -> None:
        self._place = epoch, offset

    def __iter__(self) -> Iterator[BatchKey]:
        return self.batches.keys(*self._place)  # torch calls this twice when workers start


class EndlessKeyFeed(KeyFeed):
    """Whole epochs one after another, without end, and full batches only where there is one: for measuring."""

    def __init__(self, maker: KeyedBatches, batches: EpochBatches) -> None:
        super().__init__(maker, batches)
        first = min(batches.global_batch, batches.pool_size)
        self._full = len(range(batches.rank, first, batches.world_size))
        if self._full == 0 or len(batches) == 0:
            raise ValueError("there is no batch to measure: the data, or this rank's part of it, is empty")

    def __iter__(self) -> Iterator[BatchKey]:
        epochs = (self.batches.keys(epoch) for epoch in count(self._place[0]))
        return (key for keys in epochs for key in keys if len(key) == self._full)


class StreamFeed(IterableDataset):
    """What stream workers are sent: each yields its share from the shared place on."""

    sampling = {"batch_size": None}

    def __init__(self, records: ShardedRecords) -> None:
        self.records, self._position = records, SharedPosition()  # its own: two loaders may read one stream

    @property
    def dataset(self) -> StreamFeed:
        return self

    def begin(self, epoch: int, offset: int) -> None:
        self._position.set(epoch, offset)

    def __iter__(self) -> Iterator[Keyed]:
        return self._share(*self._position.get())  # read now, not at the first batch

    def _share(self, epoch: int, offset: int) -> Iterator[Keyed]:
        with sendable_errors():
            yield from self.records.keyed_batches(epoch, offset)


class EndlessStreamFeed(StreamFeed):
    """The stream again and again, without end: for measuring. A worker that has no batch in it ends."""

    def _share(self, epoch: int, offset: int) -> Iterator[Keyed]:
        ahead = True
        while ahead:
            ahead = False
            for key, batch, _ in super()._share(epoch, 0):
                ahead = ahead or len(key) > 0
                if len(key):
                    yield key, batch, False
            epoch += 1


class MapSource:
    """Batches of a map-style dataset; the position is the `EpochBatches` itself."""

    def __init__(self, maker: KeyedBatches, batches: EpochBatches) -> None:
        self.maker, self.batches = maker, batches
        self.make = maker.make_isolated

    def read(self, epoch: int, offset: int) -> Iterator[Keyed]:
        for key in self.batches.keys(epoch, offset):
            yield key, self.make(key), False

    def feed(self) -> KeyFeed:
        return KeyFeed(self.maker, self.batches)

    def endless_feed(self) -> KeyFeed:
        return EndlessKeyFeed(self.maker, self.batches)

    def after(self, key: BatchKey, ended: bool) -> tuple[int, int]:
        """The place after the batch of `key`."""
        return key.epoch, min(key.start + self.batches.global_batch, self.batches.pool_size)


class StreamPosition:
    """A place in a stream: epoch, and records of all ranks since its start."""

    def __init__(self, records: ShardedRecords) -> None:
        self.batch_size, self.world_size, self.identity = records.batch_size, records.world_size, records.identity
        self.epoch = self.offset = 0

    def set_position(self, epoch: int, offset: int = 0) -> None:
        if epoch < 0 or offset < 0:
            raise ValueError(f"need epoch >= 0 and offset >= 0, got epoch={epoch}, offset={offset}")
        self.epoch, self.offset = epoch, offset

    def __len__(self) -> int:
        raise TypeError("a stream has no length: its records are not counted before they are read")


class StreamSource:
    """Batches of a stream; where its epoch ends, the stream says with the last batch."""

    def __init__(self, records: ShardedRecords) -> None:
        self.records, self.batches = records, StreamPosition(records)
        self.make, self.read = records.make, records.keyed_batches

    def feed(self) -> StreamFeed:
        return StreamFeed(self.records)

    def endless_feed(self) -> StreamFeed:
        return EndlessStreamFeed(self.records)

    def after(self, key: BatchKey, ended: bool) -> tuple[int, int]:
        """The place after the batch of `key`."""
        return (key.epoch + 1, 0) if ended else (key.epoch, key.start + self.records.global_batch)
