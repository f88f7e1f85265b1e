"""One optimizer update, done right: accumulation, norm, clipping, mixed precision, ranks.

It knows a model, an optimizer and one window of micro-batches; it knows no epoch, no schedule and no data loader.
What a loss is a mean over is read in `counting`. The moving average of weights, freezing, and the functions that look
at clipping, precision and ragged windows have modules of their own; all are re-exported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm

from course_utils.clipping import ClipEffect, clip_effect
from course_utils.counting import CountFn, cut_gap, default_count
from course_utils.ema import EMA
from course_utils.freezing import depth_groups, freeze, unfreeze
from course_utils.precision import Float32Island, autocast_policy, calls_of, scale_history, share_lost
from course_utils.ragged import RULES, activation_bytes, cut, gradient_error, window_gradient

__all__ = [
    "EMA", "RULES", "ClipEffect", "Float32Island", "NonFiniteError", "StepReport", "activation_bytes",
    "autocast_policy", "calls_of", "clip_effect", "cut", "cut_gap", "default_count", "depth_groups", "freeze",
    "gradient_error", "scale_history", "share_lost", "unfreeze", "update", "window_gradient",
]  # fmt: skip


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
                     scaler the step is skipped instead); ValueError for a DDP wrapper, targets it cannot count, a bound
                     that is not above 0, or float16 without a scaler

    A scaler that is disabled counts as none.

    The equality holds to rounding, for models without BatchNorm in train mode and without dropout. One micro-batch
    without a scaler gives the same bits as the plain loop.
    """
    scaler = scaler if scaler is not None and scaler.is_enabled() else None
    _check(model, scaler, autocast_dtype, max_norm=max_norm, max_value=max_value)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    device = params[0].device.type
    for param in (*model.parameters(), *params):
        param.grad = None  # the model's and the optimizer's zero_grad(), without what these cost beside it
    if scaler is not None:
        scaler.scale(torch.zeros((), device=device))  # a rank without examples must have its scale too
    autocast = nullcontext() if autocast_dtype is None else torch.autocast(device, dtype=autocast_dtype)
    losses, unit = _backward_all(model, params, loss_fn, micro_batches, count_fn, scaler, autocast)
    loss_sum, count = 0.0, sum(counted for _, counted in losses)
    if sync is not None:
        _scale_gradients(params, unit)  # ranks have other units: back to plain sums before they are added
        totals = sync(model, torch.tensor([_read(losses)[0], count], dtype=torch.float64))
        (loss_sum, count), losses, unit = totals.tolist(), [], 1.0
    if count == 0:
        return StepReport(float("nan"), 0.0, 0.0, "no targets")
    try:
        return _step(params, optimizer, losses, loss_sum, count, unit, scaler, max_norm, max_value, before_step)
    except BaseException:
        if scaler is not None:
            scaler.update(scaler.get_scale())  # same scale, window forgotten: else the next unscale_ raises
        raise


def _step(params, optimizer, losses, loss_sum, count, unit, scaler, max_norm, max_value, before_step) -> StepReport:
    """From added-up gradients in `unit` to the weights: unscale, divide, norm, finite?, clip, step, scale."""
    if scaler is not None:
        scaler.unscale_(optimizer)
    _scale_gradients(params, unit / count)
    norm = get_total_norm(_gradients(params))
    own_sum, grad_norm = _read(losses, norm)
    report = _report((loss_sum + own_sum) / count, grad_norm, count, scaler)
    if not report.skipped:
        _clip(params, norm, report.grad_norm, max_norm, max_value)
        if before_step is not None:
            before_step(report)
        scaler.step(optimizer) if scaler is not None else optimizer.step()
    if scaler is not None:
        scaler.update()
    return report


def _check(model: nn.Module, scaler, autocast_dtype: torch.dtype | None, **bounds: float | None) -> None:
    _refuse_ddp(model)
    if autocast_dtype is torch.float16 and scaler is None:
        raise ValueError(
            "autocast_dtype=torch.float16 needs a scaler that is enabled, got none: small gradients would become 0; "
            "pass scaler=torch.amp.GradScaler(device), or use torch.bfloat16"
        )
    for name, bound in bounds.items():
        if bound is not None and not bound > 0:
            raise ValueError(
                f"{name} must be above 0, got {bound}: 0 stops training; None leaves gradients as they are"
            )


def _refuse_ddp(model: nn.Module) -> None:
    if isinstance(getattr(model, "_orig_mod", model), nn.parallel.DistributedDataParallel):  # also under torch.compile
        raise ValueError(
            "update adds up the ranks once, through sync; DDP would average each backward, and a rank without examples "
            "would hang the others: pass the model itself, not its DDP wrapper"
        )


def _backward_all(model, params, loss_fn, micro_batches, count_fn, scaler, autocast) -> tuple[list[tuple], float]:
    """Add up gradients of loss * count / unit; returns pairs (loss on its device, count), and the unit.

    The unit is the first count: plain loss * count would overflow float16 sooner, and cost skipped steps. For the same
    reason it grows with a scaler, in powers of two, which change no bit, where a larger count follows.
    """
    count_fn = count_fn or default_count(loss_fn)
    losses, unit = [], None
    for inputs, targets in micro_batches:
        count = float(count_fn(targets))
        if count == 0:
            continue  # empty or all ignored: its mean would be 0 / 0
        unit = unit or count
        while scaler is not None and count > unit:
            unit *= 2
            _scale_gradients(params, 0.5)
        with autocast:
            loss = loss_fn(model(inputs), targets)
        weighted = loss if count == unit else loss * (count / unit)
        (scaler.scale(weighted) if scaler is not None else weighted).backward()
        losses.append((loss.detach(), count))  # read later: one wait for the device, not one a micro-batch
    return losses, unit or 1.0


def _read(losses: list[tuple[torch.Tensor, float]], norm: torch.Tensor | None = None) -> tuple[float, float]:
    """The sum of loss * count, and the norm: one wait for the device."""
    norm = torch.zeros(()) if norm is None else norm
    tensors = [loss for loss, _ in losses]
    *values, grad_norm = torch.stack([*tensors, norm.to(tensors[0].device) if tensors else norm]).tolist()
    return sum(value * count for value, (_, count) in zip(values, losses, strict=True)), grad_norm


def _gradients(params: list[nn.Parameter]) -> list[torch.Tensor]:
    return [param.grad for param in params if param.grad is not None]


def _scale_gradients(params: list[nn.Parameter], factor: float) -> None:
    gradients = _gradients(params)
    if factor != 1.0 and gradients:
        torch._foreach_mul_(gradients, factor)


def _report(loss: float, grad_norm: float, count: float, scaler) -> StepReport:
    """The report, with the norm taken before clipping: clipping first would turn an overflow into zeros and hide it."""
    if math.isfinite(loss) and math.isfinite(grad_norm):
        return StepReport(loss, grad_norm, count)
    if scaler is not None:
        return StepReport(loss, grad_norm, count, "overflow")
    raise NonFiniteError(
        f"loss {loss}, gradient norm {grad_norm}: the step was not made and the weights are as they were; "
        "chapter 10 finds the operation"
    )


def _clip(params, norm: torch.Tensor, grad_norm: float, max_norm: float | None, max_value: float | None) -> None:
    if max_norm is not None and grad_norm + 1e-6 > 0.999 * max_norm:  # well below, it would multiply by 1.0
        clip_grads_with_norm_(params, max_norm, norm)
    if max_value is not None:
        clip_grad_value_(params, max_value)
