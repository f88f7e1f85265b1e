"""From dataset and order to batches: a loader whose position is one pair of integers.

It knows datasets, streams and keys; it knows no model. Batches are made in the calling process or in workers, with the
same bits: `batches` makes them, `worker_pool` runs the workers, `sources` joins dataset and order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

from course_utils.batches import KeyedBatches, cut_to_zero, unwrap_subsets
from course_utils.collate import Padded, collate_boxes, pad_sequences
from course_utils.loader_memory import loader_memory_mib
from course_utils.pipeline_model import fewest_workers, simulate_pipeline, steady_turn_ms
from course_utils.pipeline_timeline import Interval, Timeline
from course_utils.randomness import BatchKey
from course_utils.sampling import EpochBatches
from course_utils.sources import MapSource, StreamSource
from course_utils.streams import ShardedRecords
from course_utils.tuning import tune_workers
from course_utils.worker_choice import Tuning, WorkerChoice, WorkerTimes, choose_workers
from course_utils.worker_pool import WORKER_OPTIONS, WorkerPool, can_pin

__all__ = [
    "Interval", "Padded", "ResumableLoader", "Timeline", "Tuning", "WorkerChoice", "WorkerTimes", "choose_workers",
    "collate_boxes", "cut_to_zero", "fewest_workers", "loader_memory_mib", "pad_sequences", "simulate_pipeline",
    "steady_turn_ms", "tune_workers",
]  # fmt: skip

_NOT_OURS = {
    "sampler": "the order is a function of (seed, epoch): give batches=EpochBatches(..., weights=..., indices=...)",
    "batch_sampler": "give batches=EpochBatches(...)",
    "in_order": "batches out of order could not be resumed; leave it out",
    "worker_method": "worker threads would share the global generators and race for them; leave it out",
    "generator": "the order comes from seed; leave it out",
}


class ResumableLoader:
    """Batches from a dataset, with a position that can be saved, moved and loaded.

    dataset    : map-style; `take(key)` is used where it is there; `Subset`s are unwrapped, keys hold base indices.
                 Or a `ShardedRecords`, which says all but `num_workers` and the workers' options itself
    batch_size : examples per rank; with `seed` (0), `shuffle` (True), `drop_last` (False), `rank` (0),
                 `world_size` (1); in brackets what they are when left out
    batches    : an `EpochBatches` instead of all of these
    collate_fn : makes a batch of a list of examples; switches `take` off
    num_workers : processes that make batches ahead; with `persistent_workers`, `prefetch_factor`, `pin_memory`,
                 `multiprocessing_context`, `timeout`, `worker_init_fn` as `DataLoader` has them. In `worker_init_fn`,
                 the dataset is `get_worker_info().dataset.maker.dataset` (`.records` of a stream)
    raises     : ValueError for arguments that contradict each other

    One iteration is the rest of the present epoch. The position counts a batch when it is handed over; after an
    epoch's last batch it is the next epoch's start. A new iteration ends the one before, and its workers. `key` names
    the batch last handed over. Batches are the same, to the bit, for any number of workers.
    `source` is what it reads, without a position; `worker_options` are those of its workers.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int | None = None,
        seed: int | None = None,
        shuffle: bool | None = None,
        batches: EpochBatches | None = None,
        collate_fn: Callable[[list], Any] | None = None,
        drop_last: bool | None = None,
        num_workers: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ) -> None:
        _refuse(dataset, num_workers, options)
        order = {"seed": seed, "shuffle": shuffle, "drop_last": drop_last, "rank": rank, "world_size": world_size}
        order = {name: value for name, value in order.items() if value is not None}
        if isinstance(dataset, ShardedRecords):
            _check_stream(order | {"batch_size": batch_size, "batches": batches, "collate_fn": collate_fn})
            self.dataset, self.source = dataset, StreamSource(dataset)
        else:
            self.dataset, self.source = _map_source(dataset, batches, batch_size, order, collate_fn)
        self.batches, self.key = self.source.batches, None
        self._pools, self.worker_options = _pools(self.source.feed, num_workers, options), options
        self._iteration, self._reading = 0, None

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return len(self.batches)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self.batches.epoch

    def make(self, key: BatchKey) -> Any:
        """The batch that `key` names, alone; moves nothing and leaves the generators as they were."""
        return self.source.make(key)

    def __iter__(self) -> Iterator[Any]:
        self._end_iteration()
        self._reading = self._read(self.batches.epoch, self.batches.offset)
        return self._iterate(self._iteration, self._reading)

    def _iterate(self, iteration: int, reading: Iterator[tuple[BatchKey, Any, bool]]) -> Iterator[Any]:
        with closing(reading):  # also where the caller breaks off: workers end here
            while True:
                if iteration != self._iteration:
                    raise RuntimeError(
                        "this iteration has ended: the loader was iterated again, or its position was set, since it "
                        "began"
                    )
                made = next(reading, None)
                if made is None:
                    return
                key, batch, ended = made
                self.batches.set_position(*self.source.after(key, ended))
                self.key = key
                yield batch

    def _read(self, epoch: int, offset: int, pool: int = 0) -> Iterator[tuple[BatchKey, Any, bool]]:
        source = self._pools[pool] if self._pools else self.source
        return source.read(epoch, offset)

    def _end_iteration(self) -> None:
        self._iteration += 1
        if self._pools and self._reading is not None:
            self._reading.close()

    def peek(self) -> Any:
        """The batch that comes next; moves nothing. StopIteration where an epoch has no batch at all."""
        _, batch, _ = next(self.source.read(self.batches.epoch, self.batches.offset))
        return batch

    def whole_epoch(self) -> Iterator[Any]:
        """All batches of the present epoch from its start; moves nothing and ends no iteration.

        With workers it has its own; one whole epoch at a time where they are persistent.
        """
        with closing(self._read(self.batches.epoch, 0, pool=1)) as reading:
            for _, batch, _ in reading:
                yield batch

    def set_position(self, epoch: int, offset: int = 0) -> None:
        """Go to `offset` global examples into `epoch`; ends a running iteration."""
        self._end_iteration()
        self.batches.set_position(epoch, offset)

    def state_dict(self) -> dict[str, Any]:
        """Position, and what it depends on; valid at step boundaries. Plain values only."""
        own = self.batches
        sizes = {"batch_size": own.batch_size, "world_size": own.world_size}
        return {"epoch": own.epoch, "offset": own.offset, **sizes, **own.identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position.

        raises : ValueError that names both sides where seed, data, weights, indices or order differ
        warns  : where batch size or world size differ: allowed, but batches are cut differently from here on
        """
        if "offset" not in state:
            raise ValueError(f"cannot resume: the state has no place inside an epoch ({state}), this loader needs one")
        for name, now in self.batches.identity().items():
            if state.get(name) != now:  # None: the state is another kind of loader's
                raise ValueError(f"cannot resume: {name} was {state.get(name)!r} when saved and is {now!r} now")
        for name in ("batch_size", "world_size"):
            now = getattr(self.batches, name)
            if state[name] != now:
                warnings.warn(f"{name} was {state[name]} when saved and is {now} now", stacklevel=2)
        self.set_position(state["epoch"], state["offset"])


def _refuse(dataset: Dataset, num_workers: int, options: dict[str, Any]) -> None:
    if isinstance(dataset, IterableDataset) and not isinstance(dataset, ShardedRecords):
        raise ValueError("an iterable dataset has no indices to key; ShardedRecords (chapter 01) can be resumed")
    for name, value in options.items():
        if name in _NOT_OURS:
            raise ValueError(f"ResumableLoader refuses {name}: {_NOT_OURS[name]}")
        if name not in WORKER_OPTIONS:
            raise TypeError(f"ResumableLoader got an unexpected keyword argument {name!r}")
        if num_workers == 0 and value and name != "pin_memory":
            raise ValueError(f"{name} is for workers: give num_workers=1 or more, got 0")


def _pools(make_feed: Callable[[], Any], num_workers: int, options: dict[str, Any]) -> list[WorkerPool]:
    """One for iterating and one for whole epochs, so that neither ends the other; none where nothing needs them."""
    pin_memory = bool(options.get("pin_memory")) and can_pin()  # else DataLoader warns, in vain
    if num_workers == 0 and not pin_memory:
        return []
    return [WorkerPool(make_feed, num_workers, options | {"pin_memory": pin_memory}) for _ in range(2)]


def _check_stream(given: dict[str, Any]) -> None:
    also = sorted(name for name, value in given.items() if value is not None)
    if also:
        raise ValueError(f"ShardedRecords already says what {', '.join(also)} would say: give it there")


def _map_source(
    dataset: Dataset,
    batches: EpochBatches | None,
    batch_size: int | None,
    order: dict[str, Any],
    collate_fn: Callable[[list], Any] | None,
) -> tuple[Dataset, MapSource]:
    """The base dataset, and its batches in the order asked for."""
    base, indices = unwrap_subsets(dataset)
    if batches is not None:
        _check_batches(batches, base, indices, batch_size, order)
    elif batch_size is None:
        raise ValueError("ResumableLoader needs batch_size=..., or batches=EpochBatches(...)")
    else:
        batches = EpochBatches(len(base), batch_size=batch_size, indices=indices, **({"seed": 0} | order))
    probe = 0 if batches.indices is None or not len(batches.indices) else int(batches.indices[0])
    return base, MapSource(KeyedBatches(base, collate_fn, probe), batches)


def _check_batches(
    batches: EpochBatches, base: Dataset, indices: torch.Tensor | None, batch_size: int | None, order: dict[str, Any]
) -> None:
    also = sorted(order) + (["batch_size"] if batch_size is not None else [])
    if also:
        raise ValueError(f"batches already says what {', '.join(also)} would say: give one or the other")
    if indices is not None:
        raise ValueError("with batches, give the base dataset, and EpochBatches(len(base), indices=subset.indices)")
    if batches.num_examples != len(base):
        raise ValueError(f"batches is for {batches.num_examples} examples, the dataset has {len(base)}")
