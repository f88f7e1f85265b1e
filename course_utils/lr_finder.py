"""The lr range test: raise the lr step by step and watch the loss, then put everything back.

It knows a model, an optimizer and batches. `schedules` re-exports its names.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from course_utils.optimizer_step import NonFiniteError, update
from course_utils.randomness import generators_put_back


class LRRange(NamedTuple):
    """Result of `find_lr`.

    lrs        : of the first param group, one an update
    losses     : of the batch, before its update
    smoothed   : the same, as an average that forgets, corrected for its start
    suggestion : lr at the lowest smoothed loss, divided by 10; None where the loss never fell, or was still falling
                 at the last lr: the range then ends before the lowest loss, and a tenth of its end says nothing
    diverged   : whether it ended early: the loss had grown past `diverge` times its lowest value, or was not finite
    advice     : one sentence: where the suggestion comes from, or why there is none and what to change
    """

    lrs: list[float]
    losses: list[float]
    smoothed: list[float]
    suggestion: float | None
    diverged: bool
    advice: str


@contextmanager
def no_trace(model: nn.Module, optimizer: Optimizer) -> Iterator[None]:
    """Train inside the block as you like: weights, buffers, gradients, modes, optimizer and generators are put back.

    Also on an exception. Works in place: whoever holds a tensor of the model or optimizer holds the old values again.
    """
    held = [param for group in optimizer.param_groups for param in group["params"]]
    tensors = list({id(t): t for t in [*model.parameters(), *model.buffers(), *held]}.values())
    values, grads = [t.detach().clone() for t in tensors], [t.grad for t in tensors]
    modules = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    attributes, groups = dict(vars(optimizer)), [dict(group) for group in optimizer.param_groups]
    # training gets copies of what the optimizer holds; the originals come back
    optimizer.state = defaultdict(dict, {param: copy.deepcopy(entries) for param, entries in optimizer.state.items()})
    for group in optimizer.param_groups:
        group.update(copy.deepcopy({name: value for name, value in group.items() if name != "params"}))
    try:
        with generators_put_back():
            for tensor in tensors:
                tensor.grad = None
            yield
    finally:
        with torch.no_grad():
            for tensor, value, grad in zip(tensors, values, grads, strict=True):
                tensor.copy_(value)
                tensor.grad = grad
        for module, mode, buffers in modules:
            module.training = mode
            module._buffers.update(buffers)  # a buffer may have been replaced, not changed
        vars(optimizer).clear()
        vars(optimizer).update(attributes)  # the state, and a scheduler's note that a step was made: ours do not count
        for group, saved in zip(optimizer.param_groups, groups, strict=True):
            group.clear()
            group.update(saved)


@contextmanager
def _endless(loader: Iterable) -> Iterator[Iterator[Any]]:
    """Batches without end, epoch after epoch; the loader's position is put back."""
    if not hasattr(loader, "state_dict") and not isinstance(loader, (list, tuple)):
        raise ValueError(
            f"find_lr needs a loader that has state_dict (ResumableLoader) or a list of batches, got "
            f"{type(loader).__name__}: its position could not be put back; list(itertools.islice(loader, 100)) will do"
        )

    def batches() -> Iterator[Any]:
        while True:
            given = 0
            for batch in loader.whole_epoch() if hasattr(loader, "whole_epoch") else loader:
                given += 1
                yield batch
            if not given:
                raise ValueError("find_lr: the loader gives no batch")

    state = copy.deepcopy(loader.state_dict()) if hasattr(loader, "state_dict") else None
    try:
        yield batches()
    finally:
        if state is not None and not hasattr(loader, "whole_epoch"):
            loader.load_state_dict(state)


def find_lr(
    model: nn.Module,
    optimizer: Optimizer,
    loss_fn: Callable,
    loader: Iterable,
    *,
    min_lr: float = 1e-5,
    max_lr: float = 1.0,
    num_steps: int = 100,
    smoothing: float = 0.9,
    diverge: float = 4.0,
    max_norm: float | None = None,
) -> LRRange:
    """Train `num_steps` updates while the lr grows geometrically from `min_lr` to `max_lr`; leave no trace.

    loader    : has `state_dict` (its position is put back), or is a list of batches; (inputs, targets) each
    min_lr, max_lr : of the first param group; the others keep their ratio to it
    smoothing : share of the old value in the running average of the loss, in [0, 1)
    diverge   : stop when the smoothed loss is above this many times its lowest value (below 0: that far above it)
    raises    : ValueError for a range that is no range, or a loader it could not put back

    Weights, buffers, gradients, optimizer state, lrs, modes, generators and data position are equal to the bit
    afterwards. Source: Smith, Cyclical learning rates (arXiv:1506.01186).
    """
    if not (0 < min_lr < max_lr and num_steps >= 2 and 0 <= smoothing < 1 and diverge > 1):
        raise ValueError(
            "find_lr needs 0 < min_lr < max_lr, num_steps >= 2, 0 <= smoothing < 1 and diverge > 1, got "
            f"min_lr={min_lr}, max_lr={max_lr}, num_steps={num_steps}, smoothing={smoothing}, diverge={diverge}"
        )
    lrs = [min_lr * (max_lr / min_lr) ** (i / (num_steps - 1)) for i in range(num_steps)]
    used, losses, smoothed, average, diverged = [], [], [], 0.0, False
    whole = nn.ModuleList(part for part in (model, loss_fn) if isinstance(part, nn.Module))
    with no_trace(whole, optimizer), _endless(loader) as batches:
        for lr, loss in _ramp(model, optimizer, loss_fn, batches, lrs, max_norm):
            if not math.isfinite(loss):
                diverged = True
                break
            average = smoothing * average + (1 - smoothing) * loss
            used.append(lr)
            losses.append(loss)
            smoothed.append(average / (1 - smoothing ** len(losses)))
            lowest = min(smoothed)
            if smoothed[-1] - lowest > (diverge - 1) * abs(lowest):
                diverged = True
                break
    suggestion, advice = _suggest(used, smoothed, diverged)
    return LRRange(used, losses, smoothed, suggestion, diverged, advice)


def _ramp(model, optimizer, loss_fn, batches, lrs, max_norm) -> Iterator[tuple[float, float]]:
    """One update at each lr; yields (lr, loss before it), inf where loss or gradient was not finite."""
    if not model.training:
        model.train()  # as the Trainer does; otherwise layers that were frozen on purpose stay so
    ratios = _ratios(optimizer)
    for lr, batch in zip(lrs, batches, strict=False):
        for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
            group["lr"] = lr * ratio
        try:
            report = update(model, optimizer, loss_fn, [batch], max_norm=max_norm)
        except NonFiniteError:
            yield lr, math.inf
            return
        if not report.skipped:  # a batch without a target to count says nothing
            yield lr, report.loss


def _ratios(optimizer: Optimizer) -> list[float]:
    """Each group's lr as a multiple of the first group's."""
    first = float(optimizer.param_groups[0]["lr"])
    if first <= 0:
        raise ValueError(f"the first param group's lr must be above 0 to keep the groups' ratios, got {first}")
    return [float(group["lr"]) / first for group in optimizer.param_groups]


def _suggest(lrs: list[float], smoothed: list[float], diverged: bool) -> tuple[float | None, str]:
    """A tenth of the lr at the lowest smoothed loss, and a sentence about it; None where that point says nothing."""
    if not smoothed:
        if diverged:
            return None, "The first loss or gradient was not finite: mend the model or its inputs first."
        return None, "No batch had a target that counts: look at the targets."
    lowest = smoothed.index(min(smoothed))
    if lowest == 0:
        return None, f"The loss never fell below its first value: lower min_lr ({lrs[0]:.2g}), or smooth more."
    if lowest == len(smoothed) - 1 and not diverged:
        return None, f"The loss was still falling at the last lr ({lrs[-1]:.2g}): raise max_lr."
    return lrs[lowest] / 10, f"A tenth of {lrs[lowest]:.2g}, the lr at the lowest smoothed loss."
