"""From dataset and order to batches: a loader whose position is one pair of integers.

It knows datasets and keys; it knows no model. This version makes its batches in the calling process; workers come with
chapter 04.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Subset, default_collate

from course_utils.randomness import BatchKey, derive_seed, isolated_rng, seed_generators
from course_utils.sampling import EpochBatches

_NOT_OURS = {
    "sampler": "the order is a function of (seed, epoch): give batches=EpochBatches(..., weights=..., indices=...)",
    "batch_sampler": "give batches=EpochBatches(...)",
    "in_order": "batches out of order could not be resumed; leave it out",
    "worker_method": "worker threads would share the global generators and race for them; leave it out",
    "generator": "the order comes from seed; leave it out",
}


def _unwrap_subsets(dataset: Dataset) -> tuple[Dataset, torch.Tensor | None]:
    """The base dataset under `Subset`s, and the base indices that they leave (None for all)."""
    indices = None
    while type(dataset) is Subset:  # a class derived from it may do more than choose
        own = torch.as_tensor(list(dataset.indices), dtype=torch.int64)
        indices = own if indices is None else own[indices]
        dataset = dataset.dataset
    return dataset, indices


def cut_to_zero(once: Any, twice: Any) -> Any:
    """A batch without examples, from one example collated alone (`once`) and twice (`twice`).

    What grows with the batch is cut to length 0, at any depth of dicts, tuples and lists; the rest stays.
    """
    if isinstance(once, torch.Tensor):
        for dim, (one, two) in enumerate(zip(once.shape, twice.shape, strict=True)):
            if one != two:
                return once.narrow(dim, 0, 0)
        return once
    if isinstance(once, dict):
        return {name: cut_to_zero(value, twice[name]) for name, value in once.items()}
    if isinstance(once, (list, tuple)) and len(once) == len(twice):
        parts = [cut_to_zero(one, two) for one, two in zip(once, twice, strict=True)]
        return type(once)(*parts) if hasattr(once, "_fields") else type(once)(parts)
    return once[:0] if hasattr(once, "__len__") and len(once) != len(twice) else once


class KeyedBatches:
    """Makes the batch that a key names: the same bits in any process, at any time.

    Each example gets the three global generators (torch, `random`, NumPy) seeded from its key, then the batch as a
    whole does, for what `collate_fn` draws. A dataset with `take(key)` makes the whole batch itself, and what it draws
    is its own business: for it no generator is touched here, so a live run may read it in a thread.
    """

    def __init__(self, dataset: Dataset, collate_fn: Callable[[list], Any] | None, probe: int) -> None:
        if collate_fn is not None and getattr(dataset, "batch_transform", None) is not None:
            raise ValueError("collate_fn replaces take(): the dataset's batch_transform would be lost; give one")
        self.dataset, self.probe = dataset, probe
        self.uses_take = collate_fn is None and hasattr(dataset, "take")
        self.collate_fn = collate_fn or default_collate

    def make(self, key: BatchKey) -> Any:
        """The batch of `key`; without `take` it sets the global generators, as a worker may."""
        if len(key) == 0:  # cut from the pool's first example, taken once and twice
            once, twice = (replace(key, indices=[self.probe] * times, repeats=None) for times in (1, 2))
            return cut_to_zero(self.make(once), self.make(twice))
        if self.uses_take:
            return self.dataset.take(key)
        examples = [self._example(key, index, repeat) for index, repeat in key.examples()]
        seed_generators(derive_seed(key.seed, "batch", key.epoch, key.start))
        return self.collate_fn(examples)

    def _example(self, key: BatchKey, index: int, repeat: int) -> Any:
        seed_generators(derive_seed(key.seed, "example", key.epoch, index, repeat))
        return self.dataset[index]


class ResumableLoader:
    """Batches from a dataset, with a position that can be saved, moved and loaded.

    dataset    : map-style; `take(key)` is used where it is there; `Subset`s are unwrapped, keys hold base indices
    batch_size : examples per rank; with `seed` (0), `shuffle` (True), `drop_last` (False), `rank` (0),
                 `world_size` (1); in brackets what they are when left out
    batches    : an `EpochBatches` instead of all of these
    collate_fn : makes a batch of a list of examples; switches `take` off
    raises     : ValueError for arguments that contradict each other, NotImplementedError for num_workers > 0

    One iteration is the rest of the present epoch. The position counts a batch when it is handed over; after an
    epoch's last batch it is the next epoch's start. A new iteration ends the one before. `key` names the batch last
    handed over.
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
        **not_ours: Any,
    ) -> None:
        _refuse(dataset, num_workers, not_ours)
        order = {"seed": seed, "shuffle": shuffle, "drop_last": drop_last, "rank": rank, "world_size": world_size}
        order = {name: value for name, value in order.items() if value is not None}
        base, indices = _unwrap_subsets(dataset)
        if batches is None:
            if batch_size is None:
                raise ValueError("ResumableLoader needs batch_size=..., or batches=EpochBatches(...)")
            batches = EpochBatches(len(base), batch_size=batch_size, indices=indices, **({"seed": 0} | order))
        else:
            _check_batches(batches, base, indices, batch_size, order)
        self.dataset, self.batches, self.key = base, batches, None
        probe = 0 if batches.indices is None or not len(batches.indices) else int(batches.indices[0])
        self._maker = KeyedBatches(base, collate_fn, probe)
        self._iteration = 0

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return len(self.batches)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to."""
        return self.batches.epoch

    def make(self, key: BatchKey) -> Any:
        """The batch that `key` names, alone; moves nothing and leaves the generators as they were."""
        with nullcontext() if self._maker.uses_take else isolated_rng():
            return self._maker.make(key)

    def __iter__(self) -> Iterator[Any]:
        self._iteration += 1
        return self._iterate(self._iteration, self.batches.keys(self.batches.epoch, self.batches.offset))

    def _iterate(self, iteration: int, keys: Iterator[BatchKey]) -> Iterator[Any]:
        while True:
            if iteration != self._iteration:
                raise RuntimeError(
                    "this iteration has ended: the loader was iterated again, or its position was set, since it began"
                )
            key = next(keys, None)
            if key is None:
                return
            batch = self.make(key)
            self.batches.set_position(key.epoch, min(key.start + self.batches.global_batch, self.batches.pool_size))
            self.key = key
            yield batch

    def peek(self) -> Any:
        """The batch that comes next; moves nothing. StopIteration where an epoch has no batch at all."""
        return self.make(next(iter(self.batches)))

    def whole_epoch(self) -> Iterator[Any]:
        """All batches of the present epoch from its start; moves nothing and ends no iteration."""
        for key in self.batches.keys(self.batches.epoch):
            yield self.make(key)

    def set_position(self, epoch: int, offset: int = 0) -> None:
        """Go to `offset` global examples into `epoch`; ends a running iteration."""
        self._iteration += 1
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
            if state[name] != now:
                raise ValueError(f"cannot resume: {name} was {state[name]!r} when saved and is {now!r} now")
        for name in ("batch_size", "world_size"):
            now = getattr(self.batches, name)
            if state[name] != now:
                warnings.warn(f"{name} was {state[name]} when saved and is {now} now", stacklevel=2)
        self.set_position(state["epoch"], state["offset"])


def _refuse(dataset: Dataset, num_workers: int, not_ours: dict[str, Any]) -> None:
    if isinstance(dataset, IterableDataset):
        raise ValueError("an iterable dataset has no indices to key; ShardedRecords (chapter 01) can be resumed")
    for name in not_ours:
        if name not in _NOT_OURS:
            raise TypeError(f"ResumableLoader got an unexpected keyword argument {name!r}")
        raise ValueError(f"ResumableLoader refuses {name}: {_NOT_OURS[name]}")
    if num_workers != 0:
        raise NotImplementedError(f"this version makes batches in this process: num_workers=0; got {num_workers}")


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
