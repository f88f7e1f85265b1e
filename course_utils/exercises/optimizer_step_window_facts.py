"""What one update from a window is asked: a model and an optimizer that take notes, and the facts that are gathered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.exercises.facts import Said
from course_utils.exercises.optimizer_step_facts import close_facts_differ, times, up_to_the_first_fault

IGNORED = -100
_BEFORE = "the weights before"
_STEPS, _WEIGHTS, _LOSS = "optimizer.step() is called", "the weights afterwards", "the loss that is returned"
_HOLDS, _EXAMPLES = "the loss that is returned keeps alive", "a forward pass gets"
_GRAPHS = "micro-batches whose graph waits for its backward pass"
_GRADIENT, _MODE = "the gradient at the step", "the mode of the model afterwards"

Window = list[tuple[list[float], list[int]]]  # micro-batches, each with its inputs and its targets


class Watched(nn.Module):
    """Logits weight * input, without bias; it notes how many examples come at once, and how many graphs wait."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.linear = nn.Linear(1, len(weights), bias=False)
        self.linear.weight.data = torch.tensor(weights)[:, None]
        self.linear.weight.grad = torch.full((len(weights), 1), 7.0)  # of work that is over
        self.largest, self.most_waiting, self.waiting = 0, 0, []
        self.sound: dict = {}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logits = self.linear(inputs)
        self.largest = max(self.largest, len(inputs))
        if logits.requires_grad:
            logits.register_hook(_Graph(self.waiting).leave)
            self.most_waiting = max(self.most_waiting, len(self.waiting))
        return logits


class _Graph:
    """Waits from the forward pass to the backward pass, or until nobody holds it any more."""

    def __init__(self, waiting: list) -> None:
        self.waiting, self.left = waiting, False
        waiting.append(None)

    def leave(self, *_: Any) -> None:
        if not self.left:
            self.left = True
            self.waiting.pop()

    __del__ = leave


class CountingSGD(torch.optim.SGD):
    """SGD that counts its steps, and notes the gradient that it steps with."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, lr=lr)
        self.num_steps, self.gradient = 0, []

    def step(self, closure=None):
        self.num_steps += 1
        self.gradient = [
            p.grad.flatten().tolist() for g in self.param_groups for p in g["params"] if p.grad is not None
        ]
        return super().step(closure)


def arranged(weights: list[float], window: Window) -> tuple:
    model = Watched(weights)
    model.sound = sound_update(weights, *whole_batch(weights, window))
    tensors = [(torch.tensor(xs).reshape(-1, 1), torch.tensor(ts, dtype=torch.int64)) for xs, ts in window]
    return model, CountingSGD(model.parameters(), lr=1.0), tensors


def whole_batch(weights: list[float], window: Window) -> tuple[list[float], float]:
    """Weights after one step with lr 1 from the mean over all targets that count, and that mean; in plain numbers."""
    pairs = [(x, t) for xs, ts in window for x, t in zip(xs, ts, strict=True) if t != IGNORED]
    gradient, loss = [0.0 for _ in weights], 0.0
    for x, target in pairs:
        powers = [math.exp(weight * x) for weight in weights]
        shares = [power / sum(powers) for power in powers]
        loss -= math.log(shares[target]) / len(pairs)
        gradient = [
            g + (s - (c == target)) * x / len(pairs) for c, (g, s) in enumerate(zip(gradient, shares, strict=True))
        ]
    return [weight - g for weight, g in zip(weights, gradient, strict=True)], loss


def sound_update(before: list[float], weights: list[float], loss: float) -> dict:
    facts = {_BEFORE: before, _STEPS: "once", _WEIGHTS: weights, _LOSS: loss}
    gradient = [before - after for before, after in zip(before, weights, strict=True)]  # at the lr 1
    facts |= {_EXAMPLES: "one micro-batch at most", _GRAPHS: "one", _HOLDS: "nothing"}
    return facts | {_GRADIENT: [gradient], _MODE: "training"}


def gather(fn: Callable, result: Any, model: Watched, optimizer: CountingSGD, micro_batches: list) -> dict:
    largest = max(len(inputs) for inputs, _ in micro_batches)
    several = Said("several", f"{model.largest} examples at once; the largest micro-batch has {largest}")
    graph = Said("its graph", "its graph, and with it all activations: use loss.item()")
    facts = {_BEFORE: model.sound[_BEFORE], _STEPS: times(optimizer.num_steps)}
    facts |= {_WEIGHTS: model.linear.weight.flatten().tolist(), _LOSS: result}
    facts[_EXAMPLES] = "one micro-batch at most" if model.largest <= largest else several
    # a loss that is passed over lives until the next one has its name: 2 are no fault
    facts[_GRAPHS] = "one" if model.most_waiting <= 2 else Said("many", f"{model.most_waiting} at once")
    facts[_HOLDS] = graph if getattr(result, "requires_grad", False) else "nothing"
    facts |= {_GRADIENT: optimizer.gradient, _MODE: "training" if model.training else "evaluation"}
    return up_to_the_first_fault(facts, model.sound)


def update_differs(expected: Any, got: Any) -> str | None:
    """The first fact that is not as it should be; of weights also how the step lies beside the right one."""
    words = close_facts_differ(expected, got)
    if not words or not words.startswith(_WEIGHTS):
        return words
    before, right, other = expected[_BEFORE], expected[_WEIGHTS], got[_WEIGHTS]
    if len(right) != len(other):
        return words
    return f"{words}; {_beside(*([b - a for a, b in zip(before, now, strict=True)] for now in (right, other)))}"


def _beside(right: list[float], other: list[float]) -> str:
    """How a step lies beside the right one."""
    if not all(map(math.isfinite, other)) or not any(right):  # what is expected may be another mistake's
        return "the step is not finite"
    if not any(other):
        return "the weights did not move"
    share = sum(a * b for a, b in zip(right, other, strict=True)) / sum(a * a for a in right)
    if not all(math.isclose(share * a, b, rel_tol=1e-3, abs_tol=1e-5) for a, b in zip(right, other, strict=True)):
        return "the step points elsewhere"
    return f"the step is {abs(share):.3g} times as long as it should be" + " and points the other way" * (share < 0)
