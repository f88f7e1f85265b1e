"""`ResumableLoader` against a plain `DataLoader` on the same data, without workers and with two.

With `take`: both make batches of 64 from images in memory, the `ResumableLoader` a whole batch at once. Photo by photo:
both run the same dataset, which decodes a JPEG and transforms it, so that what is left is what the loader adds: a key
for each example, from which three generators are seeded. With workers whole epochs are timed, workers kept.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

from benchmarks.timing import Row, interleaved, ratio
from course_utils.datasets import load_fashion
from course_utils.loaders import ResumableLoader

BAR, PHOTOS_BAR, BATCH_SIZE, NUM_WORKERS = 1.0, 1.1, 64, 2


def _forever(loader: Iterable) -> Iterator[Any]:
    for _ in itertools.count():
        yield from loader


def _next_of(loader: Iterable) -> Callable[[], Any]:
    batches = _forever(loader)
    return lambda: next(batches)


def _epoch(loader: Iterable) -> None:
    deque(loader, maxlen=0)


def pair(dataset: Dataset, num_workers: int) -> dict[str, Iterable]:
    """The two loaders, with the same settings."""
    workers = {"num_workers": num_workers, "persistent_workers": True} if num_workers else {}
    return {
        "ResumableLoader": ResumableLoader(dataset, batch_size=BATCH_SIZE, **workers),
        "DataLoader": DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, **workers),
    }


def _compare(name: str, dataset: Dataset, num_workers: int, rounds: int, *, calls: int = 1, bar: float | None = None):
    whole = num_workers > 0 or calls == 1
    candidates = {
        who: partial(_epoch, loader) if whole else _next_of(loader)
        for who, loader in pair(dataset, num_workers).items()
    }
    times = interleaved(candidates, rounds=rounds, calls=1 if whole else calls)
    return ratio("loader", name, times, "ResumableLoader", "DataLoader", bar=bar)


def measure(*, quick: bool = False) -> list[Row]:
    from benchmarks.rows.photos import PlainPhotos  # it imports this package's other rows' tools
    from course_utils.catalogue import make_catalogue

    images, name = load_fashion("train"), f"batch of {BATCH_SIZE} by ResumableLoader with take over DataLoader"
    rows = [
        # an epoch is 157 batches
        _compare(name, images, 0, 2 if quick else 25, calls=2 if quick else 157, bar=BAR),
        _compare(f"{name}, {NUM_WORKERS} workers", images, NUM_WORKERS, 2 if quick else 7),
    ]
    with tempfile.TemporaryDirectory() as folder:
        root = make_catalogue(Path(folder) / "photos", num_products=10 if quick else 150, seed=0)
        for workers, told, bar in ((0, "no workers", PHOTOS_BAR), (NUM_WORKERS, f"{NUM_WORKERS} workers", None)):
            name = f"photos one by one by ResumableLoader over DataLoader, {told}"
            rows.append(_compare(name, PlainPhotos(root), workers, 2 if quick else 7, bar=bar))
    return rows
