"""One batch from a `ResumableLoader` whose dataset has `take`, against a plain `DataLoader`; no workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.timing import Row, interleaved, ratio
from course_utils.datasets import load_fashion
from course_utils.loaders import ResumableLoader

BAR, BATCH_SIZE = 1.0, 64


def _forever(loader: Iterable) -> Iterator[Any]:
    for _ in itertools.count():
        yield from loader


def _next_of(loader: Iterable) -> Callable[[], Any]:
    batches = _forever(loader)
    return lambda: next(batches)


def measure(*, quick: bool = False) -> list[Row]:
    dataset = load_fashion("train")
    loaders = {
        "ResumableLoader": ResumableLoader(dataset, batch_size=BATCH_SIZE),
        "DataLoader": DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True),
    }
    candidates = {name: _next_of(loader) for name, loader in loaders.items()}
    times = interleaved(candidates, rounds=2 if quick else 25, calls=2 if quick else 157)  # an epoch is 157 batches
    name = f"batch of {BATCH_SIZE} by ResumableLoader with take over DataLoader"
    return [ratio("loader", name, times, "ResumableLoader", "DataLoader", bar=BAR)]
