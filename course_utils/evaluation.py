"""Honest measuring: means weighted by what they count, evaluation without side effects.

It knows a model, a loader and a loss; it trains nothing. `training_loop` re-exports its names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn

from course_utils.counting import default_count, ignored_target
from course_utils.randomness import isolated_rng


class Mean:
    """A mean weighted by counts: of batch losses, weigh each by its examples and the ragged last batch counts right."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0.0

    def update(self, value: float | torch.Tensor, count: float) -> None:
        """Add `count` things whose mean is `value`. Detaches, adds in float64.

        raises : ValueError for a value or a count that is not finite, or a count below 0; nothing is added then. With a
                 count of 0 any value will do: the mean of nothing is NaN
        """
        value, count = (
            float(number.detach() if isinstance(number, torch.Tensor) else number) for number in (value, count)
        )
        if not 0 <= count < math.inf or (count and not math.isfinite(value)):
            raise ValueError(
                f"Mean.update needs a finite value and a finite count >= 0, got value={value}, count={count}"
            )
        if count:
            self.total, self.count = self.total + value * count, self.count + count

    @property
    def value(self) -> float:
        """The mean so far; NaN before anything was counted."""
        return self.total / self.count if self.count else math.nan

    def state_dict(self) -> dict[str, float]:
        return {"total": self.total, "count": self.count}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.total, self.count = state["total"], state["count"]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode inside the block; afterwards every module has its own mode again, also on an exception.

    `model.train()` afterwards would not do: it wakes up layers that were frozen on purpose.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, mode in modes:
            module.training = mode


def unwrap(model: nn.Module) -> nn.Module:
    """The model under DistributedDataParallel (`module.`) and torch.compile (`_orig_mod.`), so names stay the same."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            inner = model.module
        if inner is None:
            return model
        model = inner


class Evaluation(NamedTuple):
    """Result of `evaluate`.

    loss      : mean over everything counted
    accuracy  : share of counted targets whose largest logit is right; None for targets that are no classes
    confusion : int64 (C, C), row = target, column = prediction; None likewise
    count     : what the loss is a mean over
    """

    loss: float
    accuracy: float | None
    confusion: torch.Tensor | None
    count: float

    def per_class(self, classes: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """One row a class: class (its name, or its number), count, predicted, right, recall, precision.

        count and predicted : targets, and predictions, that are this class; right: both
        recall, precision   : right / count, right / predicted; None where that is 0 / 0
        raises              : ValueError for an evaluation without classes, or names that are not one a class
        """
        if self.confusion is None:
            raise ValueError("this evaluation has no classes: its targets are no integers, or its outputs no logits")
        names = range(len(self.confusion)) if classes is None else classes
        columns = (self.confusion.sum(1), self.confusion.sum(0), self.confusion.diagonal())
        table = torch.stack(columns, 1).tolist()
        if len(names) != len(table):
            raise ValueError(f"need a name for each of {len(table)} classes, got {len(names)}")
        return [_class_row(name, *numbers) for name, numbers in zip(names, table, strict=True)]


def _class_row(name: Any, count: int, predicted: int, right: int) -> dict[str, Any]:
    shares = {"recall": right / count if count else None, "precision": right / predicted if predicted else None}
    return {"class": name, "count": count, "predicted": predicted, "right": right, **shares}


def _batches_of(loader: Iterable) -> Iterable:
    """A whole epoch, wherever the loader stands, without moving it."""
    return loader.whole_epoch() if hasattr(loader, "whole_epoch") else loader


@contextmanager
def _own_generators_put_back(loader: Any) -> Iterator[None]:
    """A `DataLoader` may draw its order from a generator of its own; training goes on with what that draws next."""
    holders = (loader, getattr(loader, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    states = [(one, one.get_state()) for one in found if isinstance(one, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def _is_classification(outputs: Any, targets: Any) -> bool:
    """Logits (B, C, ...) and integer targets (B, ...)?"""
    if not isinstance(outputs, torch.Tensor) or not isinstance(targets, torch.Tensor) or targets.is_floating_point():
        return False
    return outputs.dim() > 1 and outputs.shape[:1] + outputs.shape[2:] == targets.shape


def _confusion(logits: torch.Tensor, targets: torch.Tensor, ignored: int | None) -> torch.Tensor:
    """Counts int64 (C, C) for logits (B, C, ...) and class targets (B, ...), without those that the loss ignores."""
    num_classes = logits.size(1)
    predicted = logits.argmax(1)
    kept = (targets >= 0) & (targets < num_classes)
    if ignored is not None:
        kept &= targets != ignored  # padding is often class 0
    pairs = targets[kept] * num_classes + predicted[kept]
    return torch.bincount(pairs.cpu(), minlength=num_classes**2).view(num_classes, num_classes)


def evaluate(
    model: nn.Module, loader: Iterable, loss_fn: Callable, *, count_fn=None, device=None, isolate: bool = True
) -> Evaluation:
    """Loss and accuracy over a whole epoch of `loader`, exact for a ragged last batch, without side effects.

    loader  : batches (inputs, targets); a `ResumableLoader` is read from its epoch's start and not moved
    isolate : put the global generators back afterwards; False in a background thread, where putting them back would
              undo what a cell drew meanwhile (then model and loader must draw nothing)
    raises  : ValueError where nothing was counted

    Modes, generators and the loader's position are as before: training goes on as without the evaluation, to the bit.
    """
    count_fn = count_fn or default_count(loss_fn)
    ignored, mean, confusion = ignored_target(loss_fn), Mean(), None
    drawing = isolated_rng() if isolate else nullcontext()
    with eval_mode(model), torch.no_grad(), drawing, _own_generators_put_back(loader):
        for batch in _batches_of(loader):
            inputs, targets = to_device(batch, device)
            count = float(count_fn(targets))
            if count == 0:
                continue
            outputs = model(inputs)
            mean.update(loss_fn(outputs, targets), count)
            if _is_classification(outputs, targets):
                counted = _confusion(outputs, targets, ignored)
                confusion = counted if confusion is None else confusion + counted
    if not mean.count:
        raise ValueError("evaluate counted no target: the loader gave no batch, or only empty or ignored ones")
    judged = 0 if confusion is None else int(confusion.sum())
    accuracy = int(confusion.diagonal().sum()) / judged if judged else None
    return Evaluation(mean.value, accuracy, confusion, mean.count)


def to_device(value: Any, device: torch.device | str | None) -> Any:
    """`value` with the tensors in it moved, at any depth of dicts, tuples and lists; as it is for `device` None."""
    return value if device is None else map_tensors(value, lambda tensor: tensor.to(device, non_blocking=True))


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with `change` made to each tensor in it, at any depth of dicts, tuples and lists; all else as it is."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: map_tensors(item, change) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [map_tensors(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
