"""One `scheduler.step()`: the course's factor function in a `LambdaLR`, against what torch has."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from benchmarks.timing import Row, interleaved, ratio
from course_utils.schedules import make_scheduler, warmup_cosine

BAR = 1.5
TOTAL_STEPS = 1_000_000  # none of the candidates reaches its end


def _stepper(make: Callable[[torch.optim.Optimizer], LRScheduler]) -> Callable[[], None]:
    """`step` of a scheduler whose optimizer has made its first update (torch warns otherwise)."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scheduler = make(optimizer)
    optimizer.step()
    return scheduler.step


def measure(*, quick: bool = False) -> list[Row]:
    plan = functools.partial(warmup_cosine, warmup_steps=100, total_steps=TOTAL_STEPS)
    candidates = {
        "warmup_cosine": _stepper(lambda optimizer: make_scheduler(optimizer, plan)),
        "LambdaLR, constant lambda": _stepper(lambda optimizer: LambdaLR(optimizer, lambda step: 1.0)),
        "CosineAnnealingLR": _stepper(lambda optimizer: CosineAnnealingLR(optimizer, TOTAL_STEPS)),
    }
    times = interleaved(candidates, rounds=2 if quick else 200, calls=10 if quick else 500)
    name = "scheduler step, warmup_cosine over "
    return [
        ratio("scheduler_step", name + other, times, "warmup_cosine", other, bar=bar)
        for other, bar in (("LambdaLR, constant lambda", BAR), ("CosineAnnealingLR", None))
    ]
