"""What giving each example its own generators costs, in microseconds an example."""

from __future__ import annotations

import torch

from benchmarks.timing import Row, extra, interleaved
from course_utils.randomness import BatchKey, derive_seed, isolated_rng, keyed_uniform, seed_generators

NUM_EXAMPLES = 1024
BARS_US = {"torch": 6.0, "torch, random, NumPy": 20.0}


def _nothing() -> None:
    for index in range(NUM_EXAMPLES):
        _ = index


def _torch_alone() -> None:
    for index in range(NUM_EXAMPLES):
        torch.default_generator.manual_seed(derive_seed(0, "example", 0, index, 0))


def _all_three() -> None:
    for index in range(NUM_EXAMPLES):
        seed_generators(derive_seed(0, "example", 0, index, 0))


def measure(*, quick: bool = False) -> list[Row]:
    key = BatchKey(0, 0, 0, range(NUM_EXAMPLES))
    candidates = {
        "torch": _torch_alone,
        "torch, random, NumPy": _all_three,
        "keyed_uniform": lambda: keyed_uniform(key, 4),
        "bare loop": _nothing,
    }
    with isolated_rng():
        times = interleaved(candidates, rounds=2 if quick else 25)
    rows = [("keyed seeding of an example: torch", "torch"), ("keyed seeding: all three", "torch, random, NumPy")]
    rows += [("four keyed draws an example, batched", "keyed_uniform")]
    return [extra("seeding", name, times, of, "bare loop", per=NUM_EXAMPLES, bar=BARS_US.get(of)) for name, of in rows]
