"""What a loss is a mean over: how many targets count, read from the loss itself.

It knows a loss and targets; it computes no loss. `optimizer_step` weighs micro-batches with it, `evaluation` batches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

CountFn = Callable[[torch.Tensor], float]
_MISSING = object()


def default_count(loss_fn: Callable) -> CountFn:
    """How many targets `loss_fn`, a mean, is a mean over: a function targets -> count, read from the loss itself.

    With `ignore_index` and integer targets: those that differ from it (with `weight`: the sum of their weights). With
    `ignore_index` and probabilities (B, C, ...): numel / C. Otherwise every element counts.

    raises : ValueError for a loss whose reduction is not "mean"; the returned function raises it for targets that are
             not one tensor, or are integers below 0 while the loss does not say what it ignores
    """
    reduction, ignored, weight = _setting(loss_fn, "reduction"), ignored_target(loss_fn), _setting(loss_fn, "weight")
    if reduction not in ("mean", _MISSING):
        raise ValueError(f"update needs a loss with reduction='mean', got {reduction!r}; or pass count_fn")

    def count(targets: torch.Tensor) -> float:
        if not isinstance(targets, torch.Tensor):
            raise ValueError(f"targets are a {type(targets).__name__}, not one tensor: pass count_fn to count them")
        if targets.is_floating_point():
            classes = 1 if ignored is None else targets.size(1 if targets.dim() > 1 else 0)
            return targets.numel() // max(classes, 1)
        if ignored is None:
            return _count_all(targets)
        kept = targets[targets != ignored]
        return kept.numel() if not isinstance(weight, torch.Tensor) else float(weight.double()[kept].sum())

    return count


def _count_all(targets: torch.Tensor) -> int:
    if targets.numel() and int(targets.min()) < 0:
        raise ValueError(
            f"targets go down to {int(targets.min())}, and the loss does not say whether it ignores them: pass count_fn"
        )
    return targets.numel()


def ignored_target(loss_fn: Callable) -> int | None:
    """The target that `loss_fn` passes over (its `ignore_index`); None where it does not say."""
    ignored = _setting(loss_fn, "ignore_index")
    return None if ignored is _MISSING else ignored


def _setting(loss_fn: Callable, name: str) -> Any:
    """A loss's own setting: a module's attribute, or the keyword default of a function or `functools.partial`."""
    if isinstance(loss_fn, nn.Module):
        return getattr(loss_fn, name, _MISSING)
    try:
        parameter = inspect.signature(loss_fn).parameters.get(name)
    except (TypeError, ValueError):  # a builtin without a signature says nothing
        return _MISSING
    if parameter is None or parameter.default is inspect.Parameter.empty:
        return _MISSING
    return parameter.default
