"""AdamW's forms: fused and foreach against the for-loop and the default, alone and in whole updates (chapter 06).

Alone it is measured on many small tensors, where the Python between two operations counts most. A whole update of such
a network, and of the course's small one, tells what is left of that in a loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.rows.trainer_step import make_batches
from benchmarks.timing import Row, interleaved, ratio
from course_utils.models import small_cnn
from course_utils.randomness import isolated_rng, seed_generators

NUM_TENSORS, SIDE, DEPTH = 200, 32, 40
FORMS: dict[str, dict[str, Any]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False, "fused": False},
    "default": {},
}


def deep_net() -> nn.Sequential:
    """40 hidden layers of 32 in 84 tensors, float (B, 1, 28, 28) -> logits (B, 10)."""
    hidden = [layer for _ in range(DEPTH) for layer in (nn.Linear(SIDE, SIDE), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, SIDE), nn.ReLU(), *hidden, nn.Linear(SIDE, 10))


NETS: dict[str, Callable[[], nn.Module]] = {"small CNN, 6 tensors": small_cnn, "40 layers of 32, 84 tensors": deep_net}


def _optimizer(how: dict[str, Any]) -> torch.optim.Optimizer:
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(SIDE, SIDE, generator=generator)) for _ in range(NUM_TENSORS)]
    for param in params:
        param.grad = torch.randn(SIDE, SIDE, generator=generator)
    return torch.optim.AdamW(params, lr=1e-4, **how)


def _update(build: Callable[[], nn.Module], how: dict[str, Any], batches: list) -> Callable[[], None]:
    with isolated_rng():
        seed_generators(0)
        model = build()
    optimizer, rest = torch.optim.AdamW(model.parameters(), lr=1e-4, **how), itertools.cycle(batches)

    def step() -> None:
        inputs, targets = next(rest)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def measure(*, quick: bool = False) -> list[Row]:
    candidates = {name: _optimizer(how).step for name, how in FORMS.items()}
    times = interleaved(candidates, rounds=2 if quick else 30, calls=1 if quick else 5)
    name = f"AdamW step, {NUM_TENSORS} tensors of {SIDE} x {SIDE}: "
    pairs = [("fused", "for-loop"), ("foreach", "for-loop"), ("fused", "default")]
    rows = [ratio("optimizers", f"{name}{of} over {over}", times, of, over) for of, over in pairs]
    batches = make_batches(4 if quick else 50)
    for words, build in NETS.items():
        updates = {name: _update(build, FORMS[name], batches) for name in ("fused", "default")}
        times = interleaved(updates, rounds=2 if quick else 100, calls=1 if quick else 3)
        rows.append(ratio("optimizers", f"whole update, {words}: AdamW fused over default", times, "fused", "default"))
    return rows
