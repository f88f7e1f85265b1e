"""What batches made ahead hold in memory, and whether shared memory has room for them.

Arithmetic on one batch: it starts no worker. Re-exported by `loaders`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.batches import KeyedBatches, unwrap_subsets
from course_utils.randomness import BatchKey
from course_utils.streams import ShardedRecords

MIB = 2**20
SHARED_MEMORY = Path("/dev/shm")


def loader_memory_mib(
    dataset_or_batch: Any,
    *,
    num_workers: int,
    batch_size: int | None = None,
    prefetch_factor: int = 2,
    pin_memory: bool = False,
    collate_fn: Callable[[list], Any] | None = None,
) -> float:
    """MiB of the batches that workers make ahead, beside the one in the loop's hands.

    dataset_or_batch : a dataset, of which one batch of `batch_size` is made, with its first examples (a
                       `ShardedRecords` says its batch size itself); or a batch, counted as it is
    num_workers      : each holds `prefetch_factor` whole *batches*, not examples; 0 makes nothing ahead
    pin_memory       : with workers, counts one batch more: the one being copied. A batch that is pinned has left shared
                       memory, so both kinds together hold `num_workers * prefetch_factor`; pinned blocks may be rounded
                       up, to a power of two bytes
    returns          : num_workers * prefetch_factor * (bytes of a batch) / 2**20; one batch more with `pin_memory`
    raises           : ValueError for a number below 0, or a batch size that is missing or has no use
    warns            : where they will not fit into /dev/shm, with what would

    Bytes are those of tensors and arrays, exactly. A tensor counts with the whole memory that it is a view of: that
    is what a worker hands over.
    """
    if num_workers < 0 or prefetch_factor < 1:
        raise ValueError(
            f"need num_workers >= 0 and prefetch_factor >= 1, got num_workers={num_workers}, "
            f"prefetch_factor={prefetch_factor}"
        )
    batch = _one_batch(dataset_or_batch, batch_size, collate_fn)
    num_ahead, each = num_workers * prefetch_factor, batch_bytes(batch)
    problem = shared_memory_problem(num_ahead, batch_bytes(batch, shared_only=True), shared_memory_free())
    if problem:
        warnings.warn(problem, stacklevel=2)
    return (num_ahead + (pin_memory and num_ahead > 0)) * each / MIB


def _one_batch(given: Any, batch_size: int | None, collate_fn: Callable[[list], Any] | None) -> Any:
    if isinstance(given, ShardedRecords):
        if batch_size is not None or collate_fn is not None:
            raise ValueError("ShardedRecords already says what batch_size and collate_fn would say: leave them out")
        return next((batch for _, batch, _ in given.keyed_batches(0)), [])
    if not _is_dataset(given):
        if batch_size is not None or collate_fn is not None:
            raise ValueError(f"a batch ({type(given).__name__}) has its size: leave batch_size and collate_fn out")
        return given
    if batch_size is None or batch_size < 1:
        raise ValueError(f"a dataset needs batch_size=..., 1 or more, got {batch_size!r}")
    base, pool = unwrap_subsets(given)
    indices = list(islice(range(len(base)) if pool is None else pool.tolist(), batch_size))
    return KeyedBatches(base, collate_fn, 0).make_isolated(BatchKey(0, 0, 0, indices)) if indices else []


def _is_dataset(given: Any) -> bool:
    """What has examples and is none of the containers that a batch may be."""
    batches = (torch.Tensor, np.ndarray, dict, list, tuple, str, bytes)
    return isinstance(given, Dataset) or (hasattr(given, "__getitem__") and not isinstance(given, batches))


def batch_bytes(batch: Any, *, shared_only: bool = False) -> int:
    """Bytes of the tensors and arrays in a batch, memory that several of them view counted once.

    shared_only : tensors alone: a worker hands them over in shared memory, and everything else through a pipe
    """
    sizes = {}
    for leaf in _leaves(batch):
        if isinstance(leaf, torch.Tensor):
            storage = leaf.untyped_storage()
            sizes["tensor", storage.data_ptr()] = storage.nbytes()
        elif isinstance(leaf, np.ndarray) and not shared_only:
            sizes["array", id(leaf)] = leaf.nbytes
    return sum(sizes.values())


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        for part in batch:
            yield from _leaves(part)
    else:
        yield batch


def shared_memory_free(folder: Path = SHARED_MEMORY) -> int | None:
    """Free bytes for tensors that workers hand over; None where there is no such folder, and no such limit."""
    if not hasattr(os, "statvfs") or not folder.is_dir():
        return None
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def shared_memory_problem(num_batches: int, bytes_each: int, free: int | None) -> str | None:
    """A sentence where that many batches do not fit into `free` bytes of shared memory; None where they do.

    A worker that finds no room is killed by the system, with a "bus error": containers often have 64 MiB.
    """
    needed = num_batches * bytes_each
    if free is None or needed <= free:
        return None
    return (
        f"{num_batches} batches made ahead, {bytes_each / MIB:.1f} MiB each, need {needed / MIB:.1f} MiB of shared "
        f"memory, and /dev/shm has {free / MIB:.1f} MiB free, room for {free // bytes_each}: take fewer workers, a "
        "smaller prefetch_factor or batch_size, or start the container with a larger one (docker run --shm-size=1g)"
    )
