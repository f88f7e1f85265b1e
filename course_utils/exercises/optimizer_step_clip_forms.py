"""Clipping to a norm with its decisions as arguments: most wrong answers of its exercise are forms of it."""

from __future__ import annotations

import functools
import math

import torch


def clip(parameters, max_norm, *, norm_of=None, factor=None, checks="first", reads_twice=False, given="norm") -> float:
    """The answer with its decisions as arguments.

    norm_of : gradients -> norm; factor : (norm, max_norm) -> what all are multiplied by
    checks  : for a norm that is not finite, "first", "late" (behind the clipping) or "never"
    given   : what is returned, "norm" or "after"
    """
    if reads_twice:
        gradients = [p.grad for p in parameters if p.grad is not None]
        later = [p.grad for p in parameters if p.grad is not None]
    else:
        later = gradients = [p.grad for p in parameters if p.grad is not None]
    norm = (norm_of or root_of_squares)(gradients)
    if checks == "first" and not math.isfinite(norm):
        raise FloatingPointError(f"the norm is {norm}")
    share = functools.partial(factor or at_most_one, norm, max_norm)
    for gradient in later:
        gradient.mul_(share())
    if checks == "late" and not math.isfinite(norm):
        raise FloatingPointError(f"the norm is {norm}")
    return norm if given == "norm" else root_of_squares(gradients)


def root_of_squares(gradients: list[torch.Tensor]) -> float:
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))


def at_most_one(norm: float, max_norm: float) -> float:
    return max_norm / norm if norm > max_norm else 1.0


def norms_of(gradients: list[torch.Tensor]) -> list[float]:
    return [float(gradient.norm()) for gradient in gradients] or [0.0]


def clip_in_one_loop(parameters, max_norm, checks: bool) -> float:
    squares = 0.0
    for param in parameters:
        if param.grad is not None:
            norm = root_of_squares([param.grad])
            if checks and not math.isfinite(norm):
                raise FloatingPointError
            squares += norm**2
            param.grad.mul_(at_most_one(norm, max_norm))
    return math.sqrt(squares)
