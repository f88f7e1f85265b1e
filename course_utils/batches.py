"""From a key to the batch it names: the same bits in any process, at any time.

It knows datasets and keys; it knows no order, no worker and no position. `loaders` and `streams` are built on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils.data import Dataset, Subset, default_collate

from course_utils.randomness import BatchKey, derive_seed, isolated_rng, seed_generators


def unwrap_subsets(dataset: Dataset) -> tuple[Dataset, torch.Tensor | None]:
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


def draws_nothing(maker: Any) -> bool:
    """Whether a transform or dataset says, with `keyed = True`, that it draws from a key it is given, or not at all.

    maker : the transform, also inside a `functools.partial`; or the dataset, of a class that has `keyed`; None draws
            nothing
    """
    while isinstance(maker, partial):
        maker = maker.func
    if isinstance(maker, Dataset) and not hasattr(type(maker), "keyed"):
        return False  # one that wraps another and passes its attributes on may draw itself
    return maker is None or bool(getattr(maker, "keyed", False))


@contextmanager
def naming(words: Callable[[], str]) -> Iterator[None]:
    """An exception from the block gets `words()` as a note: it stands in the traceback, from a worker too."""
    try:
        yield
    except Exception as error:
        error.add_note(words())
        raise


def _name_of(dataset: Dataset, index: int) -> str:
    """The example's index, and its path where the dataset has `samples` [(path, ...), ...], as image folders do."""
    samples = getattr(dataset, "samples", None)
    entry = samples[index] if isinstance(samples, (list, tuple)) and index < len(samples) else None
    path = entry[0] if isinstance(entry, (list, tuple)) and entry else entry
    return f"while making example {index}" + (f": {os.fspath(path)}" if isinstance(path, (str, os.PathLike)) else "")


class KeyedBatches:
    """Makes the batch that a key names: the same bits in any process, at any time.

    Each example gets the three global generators (torch, `random`, NumPy) seeded from its key, unless the dataset
    `draws_nothing`; then the batch as a whole does, for what `collate_fn` draws. A dataset with `take(key)` makes the
    whole batch itself, and what it draws is its own business: for it no generator is touched here, so a live run may
    read it in a thread.
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
            with naming(lambda: f"while making the batch of examples {list(key.indices)}"):
                return self.dataset.take(key)
        draws = not draws_nothing(self.dataset)
        examples = [self._example(key, index, repeat, draws) for index, repeat in key.examples()]
        seed_generators(derive_seed(key.seed, "batch", key.epoch, key.start))
        return self.collate_fn(examples)

    def make_isolated(self, key: BatchKey) -> Any:
        """The batch of `key`, with the generators left as they were."""
        with nullcontext() if self.uses_take else isolated_rng():
            return self.make(key)

    def _example(self, key: BatchKey, index: int, repeat: int, draws: bool) -> Any:
        if draws:
            seed_generators(derive_seed(key.seed, "example", key.epoch, index, repeat))
        with naming(lambda: _name_of(self.dataset, index)):
            return self.dataset[index]
