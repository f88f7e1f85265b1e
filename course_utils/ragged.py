"""Windows cut into ragged micro-batches: how far each way of adding them up is from the whole batch, and what it keeps.

It knows a model, a loss and one batch; it makes no step. `optimizer_step` re-exports its names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from course_utils.counting import CountFn, default_count


class Window(NamedTuple):
    """What a rule may look at: targets that count and examples of each micro-batch, and the planned number of them."""

    counts: list[float]
    sizes: list[int]
    accumulate: int


RULES: dict[str, Callable[[Window], list[float]]] = {  # what the mean gradient of each micro-batch is multiplied by
    "by targets": lambda w: [count / sum(w.counts) for count in w.counts],  # right, and what `update` does
    "by examples": lambda w: [size / sum(w.sizes) for size in w.sizes],
    "mean of means": lambda w: [1 / len(w.sizes)] * len(w.sizes),
    "divided by accumulate": lambda w: [1 / w.accumulate] * len(w.sizes),
    "divided twice": lambda w: [count / sum(w.counts) / len(w.counts) for count in w.counts],
    "added up": lambda w: [1.0] * len(w.sizes),
    "first alone": lambda w: [1.0] + [0.0] * (len(w.sizes) - 1),  # a step on the first micro-batch
    "last alone": lambda w: [0.0] * (len(w.sizes) - 1) + [1.0],  # zero_grad before each micro-batch
}


def cut(batch: tuple[torch.Tensor, torch.Tensor], lengths: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A batch (inputs, targets) in micro-batches of these lengths.

    raises : ValueError for lengths that do not add up to the batch
    """
    if sum(lengths) != len(batch[0]) or min(lengths, default=0) < 0:
        raise ValueError(f"lengths must add up to the batch's {len(batch[0])} examples, got {list(lengths)}")
    return list(zip(*(part.split(list(lengths)) for part in batch), strict=True))


def window_gradient(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    batch: tuple[torch.Tensor, torch.Tensor],
    lengths: Sequence[int],
    rule: str = "by targets",
    *,
    accumulate: int | None = None,
    count_fn: CountFn | None = None,
) -> torch.Tensor:
    """The gradient of a window, float64 (P,), all trainable parameters in one row; the model is not changed.

    lengths    : of the micro-batches the batch is cut into
    rule       : one of `RULES`
    accumulate : the planned number of micro-batches, which an epoch's last window does not reach; len(lengths) when
                 left out
    raises     : ValueError for a rule that is not known, or lengths that do not fit

    A micro-batch that the rule gives 0 is passed over. One without a target that counts has a loss of 0 / 0; the
    gradient of that is 0 with PyTorch's losses, so rules that count the micro-batch come out too short.
    """
    if rule not in RULES:
        raise ValueError(f"no rule {rule!r}: there are {list(RULES)}")
    count_fn, parts = count_fn or default_count(loss_fn), cut(batch, lengths)
    counts, sizes = [float(count_fn(targets)) for _, targets in parts], [len(inputs) for inputs, _ in parts]
    model = copy.deepcopy(model)  # BatchNorm's statistics move in a forward pass
    params = [param for param in model.parameters() if param.requires_grad]
    total = torch.zeros(sum(param.numel() for param in params), dtype=torch.float64)
    weights = RULES[rule](Window(counts, sizes, accumulate or len(parts)))
    for (inputs, targets), weight in zip(parts, weights, strict=True):
        if weight:
            found = torch.autograd.grad(loss_fn(model(inputs), targets), params, materialize_grads=True)
            total += weight * torch.cat([gradient.flatten() for gradient in found]).double()
    return total


def gradient_error(model, loss_fn, batch, lengths, rule: str = "by targets", **how: Any) -> float:
    """|gradient of the window - gradient of the whole batch| / |gradient of the whole batch|, as `window_gradient`.

    About 1e-7 in float32 where the rule is right, whatever the cut; not so with BatchNorm in training mode or dropout,
    which see other batches.
    """
    whole = window_gradient(model, loss_fn, batch, [len(batch[0])], count_fn=how.get("count_fn"))
    return float((window_gradient(model, loss_fn, batch, lengths, rule, **how) - whole).norm() / whole.norm())


def activation_bytes(model: nn.Module, loss_fn, batch, lengths: Sequence[int]) -> int:
    """The most bytes that autograd keeps at once for backward, when each micro-batch's backward follows its forward.

    Parameters and buffers are not counted: they are there anyway. Tensors that share memory count once.
    """
    model = copy.deepcopy(model)
    there = {_memory(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return max(_kept(model, loss_fn, part, there) for part in cut(batch, lengths))


def _kept(model, loss_fn, part, there: set[int]) -> int:
    inputs, targets = (tensor.clone() for tensor in part)  # as a loader makes it: a view keeps the whole batch
    held: list[torch.Tensor] = []  # memory that is given back and used again would count as one

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor.detach())
        return held[-1]

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_fn(model(inputs), targets)
    kept = {_memory(tensor): tensor.untyped_storage().nbytes() for tensor in held}
    return sum(size for memory, size in kept.items() if memory not in there)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
