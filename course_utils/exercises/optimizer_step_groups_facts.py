"""What freezing and param groups are asked: a small model for each case, and the facts that are gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.exercises.facts import Said
from course_utils.exercises.optimizer_step_facts import up_to_the_first_fault
from course_utils.exercises.wording import kind

_RETURNED, _TENSORS = "what is returned", "the model's tensors"
_ALIVE, _DEAD = "parameters to be frozen that require gradients", "parameters to be trained that do not"
_LEFT, _FROZEN, _TWICE = "trainable parameters in no group", "frozen parameters in a group", "parameters in two groups"
_GROUPS, _LRS = "the groups", "the groups' lrs"
_AWAKE, _ASLEEP = "frozen parts in training mode", "other parts in evaluation mode"
_MOVED = "frozen parts whose running statistics move in a forward pass"


def _block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))


class Named(nn.Sequential):
    """Children with names, from the input to the output; `sound` are the facts that are due."""

    sound: dict
    start: dict[str, torch.Tensor]


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
    model.start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return model, num_frozen, lr, factor


def sound_groups(groups: list[list[str]], lrs: list[float]) -> dict:
    """The facts of a sound answer, by hand."""
    facts = {_RETURNED: "a list of groups", _TENSORS: "as they were"}
    facts |= dict.fromkeys((_ALIVE, _DEAD, _LEFT, _FROZEN, _TWICE), [])
    return facts | {_GROUPS: [sorted(group) for group in groups], _LRS: lrs, _AWAKE: [], _ASLEEP: [], _MOVED: []}


def gather(fn: Callable, result: Any, model: Named, num_frozen: int, lr: float, factor: float) -> dict:
    sound = model.sound
    if fault := _is_no_list(result):
        return {_RETURNED: fault}
    names = {id(param): name for name, param in model.named_parameters()}
    groups = [[names.get(id(param), kind(param)) for param in group["params"]] for group in result]
    trainable = {name for group in sound[_GROUPS] for name in group}
    facts = {_RETURNED: "a list of groups", _TENSORS: _tensors(model), **_membership(model, groups, trainable)}
    facts |= {_GROUPS: [sorted(group) for group in groups], _LRS: [group.get("lr", "none") for group in result]}
    return up_to_the_first_fault({**facts, **_modes(model, num_frozen)}, sound)


def _is_no_list(result: Any) -> Said | None:
    if not isinstance(result, (list, tuple)):
        return Said(kind(result), f"{kind(result)}, not a list of groups")
    odd = next((group for group in result if not isinstance(group, dict) or "params" not in group), None)
    return None if odd is None else Said(kind(odd), f'a list with {kind(odd)}, not dicts with "params"')


def _tensors(model: Named) -> str:
    now = model.state_dict()
    off = [name for name, tensor in model.start.items() if name not in now or not torch.equal(now[name], tensor)]
    return Said("changed", f"changed: {off[0]}") if off else "as they were"


def _membership(model: Named, groups: list[list[str]], trainable: set[str]) -> dict:
    requires = {name: param.requires_grad for name, param in model.named_parameters()}
    placed = Counter(name for group in groups for name in group)
    return {
        _ALIVE: [name for name, required in requires.items() if required and name not in trainable],
        _DEAD: [name for name, required in requires.items() if not required and name in trainable],
        _LEFT: [name for name in requires if name in trainable and name not in placed],
        _FROZEN: [name for name in placed if name in requires and name not in trainable],
        _TWICE: [name for name, number in placed.items() if number > 1],
    }


def _modes(model: Named, num_frozen: int) -> dict:
    """BatchNorm and Dropout in the wrong mode, and the frozen ones that a forward pass moves."""
    parts = [
        (f"{name}.{inner}".rstrip("."), module, place < num_frozen)
        for place, (name, child) in enumerate(model.named_children())
        for inner, module in child.named_modules()
        if isinstance(module, (nn.BatchNorm1d, nn.Dropout))
    ]
    facts = {_AWAKE: [name for name, module, frozen in parts if frozen and module.training]}
    facts[_ASLEEP] = [name for name, module, frozen in parts if not frozen and not module.training]
    before = [_statistics(module) for _, module, _ in parts]
    model(torch.tensor([[1.0, -2.0], [3.0, 5.0], [-4.0, 0.5]]))
    moved = [
        name for (name, module, frozen), old in zip(parts, before, strict=True) if frozen and _statistics(module) != old
    ]
    return facts | {_MOVED: moved}


def _statistics(module: nn.Module) -> list:
    return [buffer.tolist() for buffer in module.buffers()]
