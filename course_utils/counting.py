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

    raises : ValueError for a loss whose reduction is not "mean", or a module that holds a loss with settings of its
             own; the returned function raises it for targets that are not one tensor, or are integers below 0 while
             the loss does not say what it ignores

    What a function does inside its body cannot be read: pass a `count_fn`, and see with `cut_gap` that it fits.
    """
    _refuse_hidden(loss_fn)
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
        if not isinstance(weight, torch.Tensor):
            return int(torch.count_nonzero(targets != ignored))
        kept = targets[targets != ignored].cpu()
        return float(weight.detach().to("cpu", torch.float64)[kept].sum())  # some devices have no float64

    return count


def cut_gap(
    loss_fn: Callable, outputs: torch.Tensor, targets: torch.Tensor, *, count_fn: CountFn | None = None
) -> float:
    """How far a loss is from a mean over what is counted: 0, to rounding, where it may be accumulated.

    outputs, targets : (B, ...), cut into single examples; the whole batch must have something to count
    count_fn         : what counts; read from the loss when left out
    returns          : |count-weighted mean over the examples - loss of the whole| / |loss of the whole|

    A loss that compares examples with each other (contrastive, Dice over the batch) has a gap with any `count_fn`.
    """
    count_fn, outputs = count_fn or default_count(loss_fn), outputs.detach()
    whole, total, counted = float(loss_fn(outputs, targets)), 0.0, 0.0
    for output, target in zip(outputs.split(1), targets.split(1), strict=True):
        count = float(count_fn(target))
        if count:
            total, counted = total + count * float(loss_fn(output, target)), counted + count
    return abs(total / counted - whole) / abs(whole)


def _refuse_hidden(loss_fn: Callable) -> None:
    if not isinstance(loss_fn, nn.Module) or hasattr(loss_fn, "ignore_index"):
        return
    for name, inner in loss_fn.named_modules():
        said = {"reduction": getattr(inner, "reduction", "mean"), "ignore_index": getattr(inner, "ignore_index", -100)}
        weight = getattr(inner, "weight", None) if hasattr(inner, "ignore_index") else None
        if name and (said != {"reduction": "mean", "ignore_index": -100} or weight is not None):
            raise ValueError(
                f"the loss holds {name}, a {type(inner).__name__} with {said} and "
                f"{'no ' if weight is None else ''}class weights, and may use it in any way: pass count_fn"
            )


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
