"""What a step under float16 is asked: two weights, a script of gradients, a real scaler; and the facts of each step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.exercises.optimizer_step_facts import is_at_fault, up_to_the_first_fault

_WEIGHTS, _SKIPPED = "the weights", "what is returned"
_SCALE, _LR = "the scale", "the number of the scheduler's steps"

Gradients = list[list[float]]  # of each step in turn, as the loss has them


class Scaled(nn.Module):
    """Two weights, at 0; the loss of a step has the gradient that is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.script: Gradients = []
        self.how: tuple = ()

    def loss(self, gradient: list[float]) -> torch.Tensor:
        return self.first.sum() * gradient[0] + self.second.sum() * gradient[1]

    def weights(self) -> list[float]:
        return [self.first.item(), self.second.item()]


def arranged(script: Gradients, max_norm: float, scale: float, growth_interval: int) -> tuple:
    """A run in which the scaler was used before, and a scaled gradient that is left of an earlier step."""
    model = Scaled()
    model.script, model.how = script, (max_norm, scale, growth_interval)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=growth_interval)
    scaler.scale(torch.zeros(()))
    model.first.grad = torch.tensor([3.0 * scale])
    return model.loss(script[0]), model, optimizer, scaler, scheduler, max_norm


def by_hand(script: Gradients, max_norm: float, scale: float, growth_interval: int) -> list[dict]:
    """The state after each step, in plain numbers."""
    weights, made, since, states = [0.0, 0.0], 0, 0, []
    for gradient in script:
        skipped = not all(abs(value) * scale < 3.4e38 for value in gradient)  # float32 ends there; NaN compares False
        if skipped:
            scale, since = scale / 2, 0
        else:
            factor = min(1.0, max_norm / (math.hypot(*gradient) + 1e-6))
            weights = [w - 0.5**made * factor * g for w, g in zip(weights, gradient, strict=True)]
            made, since = made + 1, since + 1
            if since == growth_interval:
                scale, since = scale * 2, 0
        states.append(state_after(weights, scale, skipped, made))
    return states


def state_after(weights: list[float], scale: float, skipped: Any, made: int) -> dict:
    return {_WEIGHTS: weights, _SCALE: scale, _SKIPPED: skipped, _LR: made}


def run_facts(states: list[dict]) -> dict:
    return {f"after step {n}, {name}": value for n, state in enumerate(states, 1) for name, value in state.items()}


def gather(fn: Callable, result: Any, loss, model: Scaled, optimizer, scaler, scheduler, max_norm: float) -> dict:
    """The state after the first step, then after the others of the script, as far as all is well."""
    sound, states = run_facts(by_hand(model.script, *model.how)), []
    for number, gradient in enumerate(model.script):
        if number:
            result = fn(model.loss(gradient), model, optimizer, scaler, scheduler, max_norm)
        states.append(state_after(model.weights(), scaler.get_scale(), result, scheduler.last_epoch))
        facts = up_to_the_first_fault(run_facts(states), sound)
        if is_at_fault(facts, sound):
            break
    return facts
