"""The first batch after a resume deep in an epoch, and an example of a loader without `take` beside `DataLoader`.

Resume: 2,000,000 examples, 90 % of the epoch done, until the first batch is there; workers are started anew. An
example: both read the same dataset one by one, so what the loader adds is its keys, three generators seeded for each.
"""

from __future__ import annotations

import time
from contextlib import closing

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.rows.loader import _next_of
from benchmarks.timing import Row, duration, extra, interleaved
from course_utils.loaders import ResumableLoader

BAR_MS, BATCH_SIZE, NUM_EXAMPLES, DONE = 200.0, 64, 2_000_000, 0.9


class Numbers(Dataset):
    """Example i is i."""

    def __init__(self, num_examples: int) -> None:
        self.numbers = torch.arange(num_examples)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.numbers[index]


def first_batch_ms(dataset: Dataset, num_workers: int) -> float:
    """From a saved position to the first batch, in a loader that is made anew."""
    saved = ResumableLoader(dataset, batch_size=BATCH_SIZE)
    saved.set_position(0, int(len(dataset) * DONE) // BATCH_SIZE * BATCH_SIZE)
    began = time.perf_counter()
    loader = ResumableLoader(dataset, batch_size=BATCH_SIZE, num_workers=num_workers)
    loader.load_state_dict(saved.state_dict())
    with closing(iter(loader)) as iteration:
        next(iteration)
        return (time.perf_counter() - began) * 1e3


def measure(*, quick: bool = False) -> list[Row]:
    dataset, rounds = Numbers(20_000 if quick else NUM_EXAMPLES), 2 if quick else 7
    name = f"first batch after a resume at 90 % of {len(dataset):,} examples, "
    rows = [
        duration("resume", name + told, [first_batch_ms(dataset, number) for _ in range(rounds)], bar=bar)
        for number, told, bar in ((0, "no workers", BAR_MS), (2, "2 workers, their start included", None))
    ]
    dataset = Numbers(10_000)
    candidates = {
        "ResumableLoader": _next_of(ResumableLoader(dataset, batch_size=BATCH_SIZE)),
        "DataLoader": _next_of(DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)),
    }
    times = interleaved(candidates, rounds=2 if quick else 15, calls=2 if quick else 157)
    name = "an example of a ResumableLoader without take over a plain DataLoader's"
    return [*rows, extra("resume", name, times, "ResumableLoader", "DataLoader", per=BATCH_SIZE)]
