"""Datasets that are wrong, slow or talkative on purpose: chapter 04 runs them with workers, which import them by name.

What is right is `course_utils.loaders`.
"""

from __future__ import annotations

import os
import random
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate, get_worker_info

from course_utils.randomness import BatchKey, derive_seed, isolated_rng, seed_generators


def worker_id() -> int:
    """The number of the worker that asks, 0, 1, ...; -1 in the main process."""
    info = get_worker_info()
    return info.id if info else -1


def said(call: Callable[[], Any]) -> str:
    """What a call gives, or its error, as text."""
    try:
        return str(call())
    except Exception as error:
        traceback.clear_frames(
            error.__traceback__
        )  # a plain loader's error and its frames keep each other and the loader
        return f"{type(error).__name__}: {error}"


# --- what is random in an example ---


class OwnGenerator(Dataset):
    """Pictures in a random light, drawn from a generator of the dataset's own.

    images  : float (N, ...)
    targets : int64 (N,)
    """

    def __init__(self, images: torch.Tensor, targets: torch.Tensor) -> None:
        self.images, self.targets = images, targets
        self.generator = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[index] * self.light(), self.targets[index]

    def light(self) -> float:
        return self.generator.uniform(0.5, 1.5)


class GlobalGenerator(OwnGenerator):
    """The same, drawn from torch's global generator, which `DataLoader` seeds in each worker."""

    def light(self) -> float:
        return 0.5 + torch.rand((), dtype=torch.float64).item()


class Draws(Dataset):
    """Example i is what its worker draws: (the worker's number, from torch, `random`, NumPy, an own RandomState)."""

    def __init__(self, num_examples: int) -> None:
        self.num_examples, self.own = num_examples, np.random.RandomState(0)

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, index: int) -> tuple[int, ...]:
        high = 1_000_000
        drawn = torch.randint(high, ()).item(), random.randrange(high), int(np.random.randint(high))
        return (worker_id(), *drawn, int(self.own.randint(high)))


class MadeByKey(Dataset):
    """Whole batches, each made from its `BatchKey` alone: the class that chapter 04 builds in a cell."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def __getitems__(self, key: BatchKey) -> Any:
        examples = []
        for index, repeat in key.examples():
            seed_generators(derive_seed(key.seed, "example", key.epoch, index, repeat))
            examples.append(self.dataset[index])
        return default_collate(examples)


class MadeIsolated(MadeByKey):
    """The same, and the global generators are put back: a loop that makes its own batches draws on undisturbed."""

    def __getitems__(self, key: BatchKey) -> Any:
        with isolated_rng():
            return super().__getitems__(key)


class EpochAttribute(Dataset):
    """Example i is the epoch that the worker knows: `dataset.epoch = 1` in the main process reaches a new copy only."""

    epoch = 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return self.epoch


def seed_with_id(number: int) -> None:
    """A `worker_init_fn` from the web: `initial_seed()` has the worker's number already, and NumPy takes 32 bits."""
    np.random.seed(torch.initial_seed() + number)


def seed_own_state(number: int) -> None:
    """The remedy for a generator object: give the copy in each worker a stream of its own."""
    info = get_worker_info()
    info.dataset.own = np.random.RandomState(info.seed % 2**32)


# --- what a batch costs ---


class Slow(Dataset):
    """Example i is (i, the worker's number), after so many milliseconds.

    ms         : an example; slept, as if a disk or a network were waited for
    slow_every : one example in so many takes their share too, and the others nothing: the same mean
    """

    def __init__(self, num_examples: int, ms: float, *, slow_every: int = 1) -> None:
        self.num_examples, self.ms, self.slow_every = num_examples, ms, slow_every

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, index: int) -> tuple[int, int]:
        if self.ms and index % self.slow_every == 0:
            time.sleep(self.ms * self.slow_every / 1e3)
        return index, worker_id()


class Pieces(Dataset):
    """Example i is a list of `num_tensors` tensors, always `num_floats` numbers together: the price of handing over."""

    def __init__(self, num_examples: int, num_tensors: int, num_floats: int = 2**14) -> None:
        self.num_examples = num_examples
        self.sizes = [num_floats // num_tensors] * num_tensors

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.full((size,), float(index)) for size in self.sizes]


class NumThreads(Dataset):
    """Example i is the number of threads that torch computes with where the example is made."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return torch.get_num_threads()


def four_threads(number: int) -> None:
    """A `worker_init_fn` that asks for more cores than there may be."""
    torch.set_num_threads(4)


def private_mib() -> float:
    """MiB that belong to this process alone, not shared with the one it was forked from."""
    import psutil

    return psutil.Process().memory_full_info().uss / 2**20


class Names(Dataset):
    """Example i reads name i and says how much memory the process that reads has to itself (MiB)."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitems__(self, indices: list[int]) -> list[float]:
        total = sum(len(self.names[index]) for index in indices)
        return [private_mib()] if total else []


# --- what goes wrong in a worker ---


class Misbehaving(Dataset):
    """Example i is i; at one index it does something else.

    at  : the index
    how : "raises"; "hangs" (for 3 seconds: nobody who ends it need wait long); "dies" (as if the system had killed
          it); "prints"; "stops" (at a breakpoint)
    """

    def __init__(self, num_examples: int, at: int, how: str) -> None:
        self.samples = [(f"photos/{index:03}.jpg", 0) for index in range(num_examples)]
        self.at, self.how = at, how

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> int:
        if index == self.at:
            getattr(self, f"_{self.how}")()
        return index

    def _raises(self) -> None:
        raise OSError("image file is truncated")

    def _hangs(self) -> None:
        time.sleep(3)

    def _dies(self) -> None:
        os._exit(9)

    def _prints(self) -> None:
        print("printed in", "the main process" if worker_id() < 0 else f"worker {worker_id()}", flush=True)

    def _stops(self) -> None:
        breakpoint()
