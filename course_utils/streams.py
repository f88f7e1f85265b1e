"""Records from JSON-lines files too many to index: read in one pass, batched, the same for any number of workers.

It knows files and keys; it knows no loader. `ResumableLoader(ShardedRecords(...))` adds workers and a position.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from course_utils.batches import cut_to_zero, naming
from course_utils.randomness import BatchKey, derive_seed, isolated_rng, seed_generators

_LINES_A_SHARD = 2**40  # a record's index is shard * this + line


class SharedPosition:
    """(epoch, offset) in memory that the main process and its workers share, however they were started.

    Write it only before an iteration starts: a worker that is slow to start reads it late.
    """

    def __init__(self) -> None:
        self._values = torch.zeros(2, dtype=torch.int64).share_memory_()

    def set(self, epoch: int, offset: int) -> None:
        self._values.copy_(torch.tensor([epoch, offset]))

    def get(self) -> tuple[int, int]:
        return tuple(self._values.tolist())


class ShardedRecords(IterableDataset):
    """Batches of records from JSON-lines files (shards), in an order that is a function of (seed, epoch).

    paths          : the shards, in an order that stays; one JSON value a line, blank lines are passed over
    batch_size     : records per rank and batch
    seed           : of the order of the shards, of the shuffle buffer, and of what `transform` draws
    shuffle_buffer : records held back to draw from; 0 leaves the lines of a shard in their order
    rank, world_size : this rank gets `[rank::world_size]` of each global batch of batch_size * world_size records
    transform      : record -> example; what it draws from torch, `random` or NumPy is keyed by the record's place
    collate_fn     : list of examples -> batch; by default PyTorch's
    raises         : ValueError for arguments that do not fit, FileNotFoundError for a missing shard; while reading, a
                     ValueError that names file and line of what is not JSON

    Every worker reads every line and parses only its own batches (w, w + W, ...), so the batches are the same for any
    number of workers and the last partial one is delivered. A length is not promised: nobody has counted the lines.
    Alone: `DataLoader(records, batch_size=None, num_workers=...)`, with `set_position` before each epoch.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike],
        *,
        batch_size: int,
        seed: int,
        shuffle_buffer: int = 0,
        rank: int = 0,
        world_size: int = 1,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list], Any] | None = None,
    ) -> None:
        self.paths = _checked_paths(paths)
        if batch_size < 1 or shuffle_buffer < 0:
            raise ValueError(f"need batch_size >= 1 and shuffle_buffer >= 0, got {batch_size} and {shuffle_buffer}")
        if not 0 <= rank < world_size:
            raise ValueError(f"need 0 <= rank < world_size, got rank={rank}, world_size={world_size}")
        self.batch_size, self.seed, self.shuffle_buffer = batch_size, seed, shuffle_buffer
        self.rank, self.world_size = rank, world_size
        self.transform, self.collate_fn = transform, collate_fn or default_collate
        self._position = SharedPosition()

    @property
    def global_batch(self) -> int:
        """Records in a batch of all ranks together."""
        return self.batch_size * self.world_size

    def set_position(self, epoch: int, offset: int = 0) -> None:
        """Where the next iteration begins, in every worker: `offset` records of all ranks into `epoch`."""
        self._position.set(epoch, offset)

    def __iter__(self) -> Iterator[Any]:
        epoch, offset = self._position.get()  # now, not at the first batch
        return (batch for _, batch, _ in self.keyed_batches(epoch, offset))

    def keyed_batches(self, epoch: int, offset: int = 0) -> Iterator[tuple[BatchKey, Any, bool]]:
        """(key, batch, whether the epoch ends with it) from `offset` on: all of them, or a worker's share.

        `key.indices` are places in the source: `place(index)` names file and line.
        """
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info else (0, 1)
        lines = islice(self._lines(epoch), offset, None)
        ahead = next(lines, None)
        for number in count():
            if ahead is None:
                return
            group = [ahead, *islice(lines, self.global_batch - 1)]
            ahead = next(lines, None)
            if number % num_workers == worker:
                mine = group[self.rank :: self.world_size]
                start = offset + number * self.global_batch
                key = BatchKey(self.seed, epoch, start, [index for index, _ in mine])
                yield key, self._batch(key, mine, group[0]), ahead is None

    def make(self, key: BatchKey) -> Any:
        """The batch that `key` names, alone: the shards that it names are read again."""
        wanted, found = set(key.indices), {}
        for shard in sorted({index // _LINES_A_SHARD for index in wanted}):
            found |= {index: line for index, line in self._shard(shard) if index in wanted}
        first = next(item for shard in range(len(self.paths)) for item in self._shard(shard))
        return self._batch(key, [(index, found[index]) for index in key.indices], first)

    def place(self, index: int) -> tuple[Path, int]:
        """The file of a record and its line, counted from 1."""
        shard, line = divmod(index, _LINES_A_SHARD)
        return self.paths[shard], line + 1

    def identity(self) -> dict[str, int | str]:
        """What must be equal for a saved position to mean the same order; folders may move, files may not change."""
        sizes = [(path.name, path.stat().st_size) for path in self.paths]
        digest = hashlib.sha256(repr(sizes).encode()).hexdigest()[:16]
        shards = f"{len(sizes)} files, {sum(size for _, size in sizes)} bytes, {digest}"
        return {"seed": self.seed, "shuffle_buffer": self.shuffle_buffer, "shards": shards}

    def _lines(self, epoch: int) -> Iterator[tuple[int, bytes]]:
        """(index, line) of a whole epoch, in order."""
        draw = random.Random(derive_seed(self.seed, "stream", epoch)).random  # the method that Python promises to keep
        shards = sorted(range(len(self.paths)), key=lambda _: draw())
        return _shuffled((item for shard in shards for item in self._shard(shard)), self.shuffle_buffer, draw)

    def _shard(self, shard: int) -> Iterator[tuple[int, bytes]]:
        with open(self.paths[shard], "rb") as lines:
            for number, line in enumerate(lines):
                if not line.isspace():
                    yield shard * _LINES_A_SHARD + number, line

    def _batch(self, key: BatchKey, mine: list[tuple[int, bytes]], probe: tuple[int, bytes]) -> Any:
        """An empty batch of a rank is cut from `probe`. In the main process the generators are put back."""
        with isolated_rng() if get_worker_info() is None else nullcontext():
            if mine:
                return self._collated(key, mine)
            return cut_to_zero(self._collated(key, [probe]), self._collated(key, [probe, probe]))

    def _collated(self, key: BatchKey, lines: list[tuple[int, bytes]]) -> Any:
        examples = [self._example(key, index, line) for index, line in lines]
        seed_generators(derive_seed(key.seed, "batch", key.epoch, key.start))
        return self.collate_fn(examples)

    def _example(self, key: BatchKey, index: int, line: bytes) -> Any:
        record = self._parsed(index, line)
        if self.transform is None:
            return record
        seed_generators(derive_seed(key.seed, "example", key.epoch, index, 0))
        with naming(lambda: "while transforming the record of {}, line {}".format(*self.place(index))):
            return self.transform(record)

    def _parsed(self, index: int, line: bytes) -> Any:
        try:
            return json.loads(line)
        except ValueError as error:
            path, number = self.place(index)
            raise ValueError(f"{path}, line {number} is not JSON ({error}): {line[:60]!r}") from None


def _shuffled(items: Iterable, size: int, draw: Callable[[], float]) -> Iterator:
    """The items through a buffer of `size`: each one that comes takes the place of one drawn from it."""
    items = iter(items)
    buffer = list(islice(items, size))
    for item in items:
        if buffer:
            place = int(draw() * len(buffer))
            item, buffer[place] = buffer[place], item
        yield item
    yield from sorted(buffer, key=lambda _: draw())


def _checked_paths(paths: Sequence[str | os.PathLike]) -> tuple[Path, ...]:
    if isinstance(paths, (str, os.PathLike)):
        raise ValueError(f"paths must be a list of files, got {os.fspath(paths)!r}: put it into a list")
    paths = tuple(Path(path) for path in paths)
    if not paths:
        raise ValueError("paths must name at least one file, got none")
    if len(set(paths)) < len(paths):
        raise ValueError("paths names a file twice: its records would come twice an epoch")
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        raise FileNotFoundError(f"{len(missing)} of {len(paths)} shards are not there, first {missing[0]}")
    return paths
