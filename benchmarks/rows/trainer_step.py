"""The Trainer's time for one update, against loops written by hand, at a step of about 2 ms (small CNN, batch 64)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import nn

from benchmarks.timing import Row, interleaved, ratio
from course_utils.datasets import load_fashion
from course_utils.models import MEAN, STD, small_cnn
from course_utils.randomness import isolated_rng, seed_generators
from course_utils.training_loop import Trainer

BAR = 1.03
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def make_batches(count: int) -> Batches:
    found = load_fashion("train")
    images = (found.images[: 64 * count].float() / 255 - MEAN) / STD
    return list(zip(images.split(64), found.targets[: 64 * count].split(64), strict=True))


def make_network() -> tuple[nn.Module, torch.optim.Optimizer]:
    with isolated_rng():
        seed_generators(0)
        model = small_cnn()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def _barest(batches: Batches) -> Callable[[], None]:
    """The four lines, and nothing read."""
    (model, optimizer), rest, loss_fn = make_network(), itertools.cycle(batches), nn.CrossEntropyLoss()

    def step() -> None:
        inputs, targets = next(rest)
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()

    return step


def _same_work(batches: Batches) -> Callable[[], None]:
    """The Trainer's work written inline: read the loss, take the norm, check both, clip, write a history row."""
    (model, optimizer), rest, loss_fn = make_network(), itertools.cycle(batches), nn.CrossEntropyLoss()
    history: list[dict] = []

    def step() -> None:
        inputs, targets = next(rest)
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        grad_norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        value = loss.item()
        if not (math.isfinite(value) and math.isfinite(grad_norm)):
            raise FloatingPointError(f"loss {value}, gradient norm {grad_norm}")
        optimizer.step()
        history.append({"step": len(history), "loss": value, "lr": optimizer.param_groups[0]["lr"], "norm": grad_norm})

    return step


def _trainer(batches: Batches) -> Callable[[], dict]:
    model, optimizer = make_network()
    trainer = Trainer(model, optimizer, nn.CrossEntropyLoss(), max_norm=1.0)
    steps: Iterator[dict] = trainer.steps(batches, num_steps=10**9)
    return lambda: next(steps)


def measure(*, quick: bool = False) -> list[Row]:
    batches = make_batches(4 if quick else 100)
    makers = {"Trainer": _trainer, "inlined loop, same work": _same_work, "barest loop": _barest}
    candidates = {name: make(batches) for name, make in makers.items()}
    times = interleaved(candidates, rounds=2 if quick else 400, calls=2 if quick else 5)
    return [
        ratio("trainer_step", f"update by Trainer over {other}", times, "Trainer", other, bar=bar)
        for other, bar in (("inlined loop, same work", BAR), ("barest loop", None))
    ]
