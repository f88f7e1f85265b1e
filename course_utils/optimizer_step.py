"""One optimizer update, done right: accumulation, norm, clipping, mixed precision, ranks.

It knows a model, an optimizer and one window of micro-batches; it knows no epoch, no schedule and no data loader.
What a loss is a mean over is read in `counting`; `default_count` is re-exported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm

from course_utils.counting import CountFn, default_count

__all__ = ["NonFiniteError", "StepReport", "default_count", "update"]


class NonFiniteError(FloatingPointError):
    """A loss or gradient is inf or NaN; the weights have not been touched."""


class StepReport(NamedTuple):
    """What one update did.

    loss      : mean over everything counted in the window (on all ranks, with `sync`)
    grad_norm : 2-norm over the optimizer's parameters, before clipping
    count     : what the loss is a mean over: targets that are not ignored, or the sum of their class weights
    skipped   : "" for a step made, "no targets" or "overflow" for one that was not
    """

    loss: float
    grad_norm: float
    count: float
    skipped: str = ""


def update(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    micro_batches: Iterable[tuple[Any, Any]],
    *,
    count_fn: CountFn | None = None,
    max_norm: float | None = None,
    max_value: float | None = None,
    scaler: torch.amp.GradScaler | None = None,
    autocast_dtype: torch.dtype | None = None,
    sync: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None,
    before_step: Callable[[StepReport], None] | None = None,
) -> StepReport:
    """Make one optimizer step from a window of micro-batches: equal to the whole batch, however it is cut.

    loss_fn        : a mean over what `count_fn(targets)` counts (read from the loss when left out)
    micro_batches  : pairs (inputs, targets); empty ones and ones with only ignored targets are passed over
    max_norm, max_value : clip the gradient's norm, then each of its values; None leaves them
    scaler, autocast_dtype : float16 needs both; bfloat16 needs only the second
    sync           : sync(model, totals) -> totals: sums gradients and totals (float64: loss * count, count) over ranks
    before_step    : called with the report after clipping, before the weights change
    raises         : NonFiniteError for a loss or gradient that is not finite, before the weights are touched (with a
                     scaler the step is skipped instead); ValueError for a DDP wrapper or targets it cannot count

    The equality holds to rounding, for models without BatchNorm in train mode and without dropout. One micro-batch
    without a scaler gives the same bits as the plain loop.
    """
    _refuse_ddp(model)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    device = params[0].device.type
    model.zero_grad()
    optimizer.zero_grad()
    if scaler is not None:
        scaler.scale(torch.zeros((), device=device))  # a rank without examples must have its scale too
    totals, unit = _backward_all(model, loss_fn, micro_batches, count_fn, scaler, _autocast(device, autocast_dtype))
    if sync is not None:
        _scale_gradients(params, unit)  # ranks have other units: back to plain sums before they are added
        totals, unit = sync(model, totals), 1.0
    loss_sum, count = totals.tolist()
    if count == 0:
        return StepReport(float("nan"), 0.0, 0.0, "no targets")
    if scaler is not None:
        scaler.unscale_(optimizer)
    _scale_gradients(params, unit / count)
    norm = get_total_norm(_gradients(params))
    report = _report(loss_sum / count, norm, count, scaler)
    if not report.skipped:
        _clip(params, norm, max_norm, max_value)
        if before_step is not None:
            before_step(report)
        scaler.step(optimizer) if scaler is not None else optimizer.step()
    if scaler is not None:
        scaler.update()
    return report


def _refuse_ddp(model: nn.Module) -> None:
    if isinstance(getattr(model, "_orig_mod", model), nn.parallel.DistributedDataParallel):  # also under torch.compile
        raise ValueError(
            "update adds up the ranks once, through sync; DDP would average each backward, and a rank without examples "
            "would hang the others: pass the model itself, not its DDP wrapper"
        )


def _autocast(device: str, dtype: torch.dtype | None) -> AbstractContextManager:
    return torch.autocast(device, dtype=dtype or torch.bfloat16, enabled=dtype is not None)


def _backward_all(model, loss_fn, micro_batches, count_fn, scaler, autocast) -> tuple[torch.Tensor, float]:
    """Add up gradients of loss * count / unit; returns totals (loss * count, count) and the unit, the first count.

    Plain loss * count would overflow float16 sooner, and cost skipped steps.
    """
    count_fn = count_fn or default_count(loss_fn)
    losses, counts, unit = [], [], None
    for inputs, targets in micro_batches:
        count = float(count_fn(targets))
        if count == 0:
            continue  # empty or all ignored: its mean would be 0 / 0
        unit = unit or count
        with autocast:
            loss = loss_fn(model(inputs), targets)
        weighted = loss * (count / unit)
        (scaler.scale(weighted) if scaler is not None else weighted).backward()
        losses.append(loss.detach())  # read together below: one wait for the device, not one a micro-batch
        counts.append(count)
    loss_sum = sum(a * b for a, b in zip(torch.stack(losses).tolist() if losses else [], counts, strict=True))
    return torch.tensor([loss_sum, sum(counts)], dtype=torch.float64), unit or 1.0


def _gradients(params: list[nn.Parameter]) -> list[torch.Tensor]:
    return [param.grad for param in params if param.grad is not None]


def _scale_gradients(params: list[nn.Parameter], factor: float) -> None:
    gradients = _gradients(params)
    if factor != 1.0 and gradients:
        torch._foreach_mul_(gradients, factor)


def _report(loss: float, norm: torch.Tensor, count: float, scaler) -> StepReport:
    """The report, with the norm taken before clipping: clipping first would turn an overflow into zeros and hide it."""
    grad_norm = float(norm)
    if math.isfinite(loss) and math.isfinite(grad_norm):
        return StepReport(loss, grad_norm, count)
    if scaler is not None:
        return StepReport(loss, grad_norm, count, "overflow")
    raise NonFiniteError(
        f"loss {loss}, gradient norm {grad_norm}: the step was not made and the weights are as they were; "
        "chapter 10 finds the operation"
    )


def _clip(params: list[nn.Parameter], norm: torch.Tensor, max_norm: float | None, max_value: float | None) -> None:
    if max_norm is not None:
        clip_grads_with_norm_(params, max_norm, norm)
    if max_value is not None:
        clip_grad_value_(params, max_value)
