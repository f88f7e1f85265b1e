"""AdamW's three forms for a model of many small tensors: fused and foreach against the for-loop, and the default."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.timing import Row, interleaved, ratio

NUM_TENSORS, SIDE = 200, 32
FORMS: dict[str, dict[str, Any]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "for-loop": {"foreach": False, "fused": False},
    "default": {},
}


def _optimizer(how: dict[str, Any]) -> torch.optim.Optimizer:
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(SIDE, SIDE, generator=generator)) for _ in range(NUM_TENSORS)]
    for param in params:
        param.grad = torch.randn(SIDE, SIDE, generator=generator)
    return torch.optim.AdamW(params, lr=1e-4, **how)


def measure(*, quick: bool = False) -> list[Row]:
    candidates = {name: _optimizer(how).step for name, how in FORMS.items()}
    times = interleaved(candidates, rounds=2 if quick else 30, calls=1 if quick else 5)
    name = f"AdamW step, {NUM_TENSORS} tensors of {SIDE} x {SIDE}: "
    pairs = [("fused", "for-loop"), ("foreach", "for-loop"), ("fused", "default")]
    return [ratio("optimizers", f"{name}{of} over {over}", times, of, over) for of, over in pairs]
