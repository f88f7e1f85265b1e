"""What clipping by hand is asked: parameters that can be gone through once, and the facts that are gathered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from course_utils.exercises.facts import Said
from course_utils.exercises.optimizer_step_facts import up_to_the_first_fault

_READ, _WEIGHTS = "the parameters are gone through", "the weights afterwards"
_NORM, _GRADIENTS = "the norm that is returned", "the gradients afterwards"
_NAN, _INF = "where one gradient is NaN", "where one gradient is inf"
_RAISES = "FloatingPointError, and the gradients are as they were"

Gradients = list  # for each parameter its numbers, or None where no backward pass reached it


class Parameters:
    """Parameters of ones with these gradients; like model.parameters() they can be gone through once."""

    def __init__(self, gradients: Gradients) -> None:
        self.given = gradients
        self.held = [nn.Parameter(torch.ones(len(gradient or [0.0]))) for gradient in gradients]
        for param, gradient in zip(self.held, gradients, strict=True):
            param.grad = None if gradient is None else torch.tensor(gradient)
        self.left, self.times_read = iter(self.held), 0

    def __iter__(self) -> Iterator[nn.Parameter]:
        self.times_read += 1
        return self.left

    def __next__(self) -> nn.Parameter:
        return next(self.left)

    def gradients(self) -> Gradients:
        return [None if param.grad is None else param.grad.tolist() for param in self.held]


def by_hand(gradients: Gradients, max_norm: float) -> tuple[float, Gradients]:
    """The norm and the clipped gradients, in plain numbers."""
    norm = math.hypot(*(value for gradient in gradients for value in gradient or []))
    factor = max_norm / norm if norm > max_norm else 1.0
    return norm, [None if gradient is None else [value * factor for value in gradient] for gradient in gradients]


def sound_clipping(norm: float, gradients: Gradients) -> dict:
    ones = [[1.0] * len(gradient or [0.0]) for gradient in gradients]
    return {_READ: "once", _WEIGHTS: ones, _NORM: norm, _GRADIENTS: gradients, _NAN: _RAISES, _INF: _RAISES}


def gather(fn: Callable, result: Any, parameters: Parameters, max_norm: float) -> dict:
    read = (
        Said("again", "twice, and the second time nothing comes: make a list") if parameters.times_read > 1 else "once"
    )
    facts = {_READ: read, _WEIGHTS: [param.tolist() for param in parameters.held], _NORM: result}
    facts[_GRADIENTS] = parameters.gradients()
    facts |= {_NAN: _with(math.nan, fn, max_norm), _INF: _with(math.inf, fn, max_norm)}
    return up_to_the_first_fault(facts, sound_clipping(*by_hand(parameters.given, max_norm)))


def _with(bad: float, fn: Callable, max_norm: float) -> str:
    """What the function does where the second of three gradients holds a number that is not finite."""
    given = [[3.0], [4.0, bad], [12.0]]
    parameters = Parameters(given)
    try:
        returned = fn(parameters, max_norm)
    except FloatingPointError as error:
        kept = str(parameters.gradients()) == str(given)
        changed = f"{type(error).__name__}, when the gradients are {parameters.gradients()} already"
        return _RAISES if kept else Said("raised too late", changed)
    except Exception as error:
        return Said(type(error).__name__, f"{type(error).__name__} is raised ({error})")
    after = parameters.gradients()
    return Said(f"nothing is raised, {after}", f"nothing is raised: {returned} is returned, the gradients are {after}")
