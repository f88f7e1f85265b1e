"""What freezing and param groups are asked: a small model for each case, and the facts that are gathered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.exercises.optimizer_step_facts import up_to_the_first_fault

_MOVED = "in a training step, running statistics that move"
_TRAINABLE, _GROUPS, _LRS = "parameters that require gradients", "the parameters of the groups", "the groups' lrs"
_MODES = "BatchNorm and Dropout in training mode"


_WITH_MODES = (nn.BatchNorm1d, nn.Dropout)


def _block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))


class Named(nn.Sequential):
    """Children with names, from the input to the output; `sound` are the facts that are due."""

    sound: dict


def _model(kind: str) -> Named:
    names = ("stem", "body", "head")
    parts = [_block(), _block(), nn.Linear(2, 2)]
    if kind == "with children without parameters":
        names, parts = ("stem", "act", "body", "pool", "head"), [parts[0], nn.ReLU(), parts[1], nn.Dropout(), parts[2]]
    model = Named()
    for name, part in zip(names, parts, strict=True):
        model.add_module(name, part)
    if kind == "with a weight that two children share":
        model.head.weight = model.body[0].weight
    if kind == "with a bias that was frozen before":
        model.body[0].bias.requires_grad_(False)
    return model.train()


def arranged(kind: str, num_frozen: int, lr: float, factor: float, sound: dict) -> tuple:
    model = _model(kind)
    model.sound = sound
    return model, num_frozen, lr, factor


def sound_groups(groups: list[list[str]], lrs: list[float], *, training: list[str], moved: list[str]) -> dict:
    """training : names of BatchNorm and Dropout in training mode; moved : of children whose statistics move."""
    trainable = sorted({name for group in groups for name in group})
    facts = {_TRAINABLE: trainable, _GROUPS: [sorted(group) for group in groups], _LRS: lrs}
    return facts | {_MODES: training, _MOVED: moved}


def gather(fn: Callable, result: Any, model: Named, num_frozen: int, lr: float, factor: float) -> dict:
    names = {id(param): name for name, param in model.named_parameters()}
    groups = [[names.get(id(param), "a tensor of no part of it") for param in group["params"]] for group in result]
    facts = {_TRAINABLE: sorted(name for name, param in model.named_parameters() if param.requires_grad)}
    facts |= {_GROUPS: [sorted(group) for group in groups], _LRS: [group.get("lr", "none") for group in result]}
    facts[_MODES] = [
        name for name, module in model.named_modules() if isinstance(module, _WITH_MODES) and module.training
    ]
    facts[_MOVED] = _moved(model)
    return up_to_the_first_fault(facts, model.sound)


def _moved(model: Named) -> list[str]:
    """The children whose running statistics a forward pass changes."""
    before = {name: _statistics(child) for name, child in model.named_children()}
    model(torch.tensor([[1.0, -2.0], [3.0, 5.0], [-4.0, 0.5]]))
    return [name for name, child in model.named_children() if _statistics(child) != before[name]]


def _statistics(child: nn.Module) -> list:
    return [buffer.tolist() for buffer in child.buffers()]
