"""Freezing parts of a model, and a smaller lr for its early layers: what fine-tuning needs.

It knows a model's modules and parameters by name; it knows no optimizer. `optimizer_step` re-exports its names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import nn


def freeze(model: nn.Module, *names: str) -> list[str]:
    """Keep parts of the model as they are: no gradients, no BatchNorm statistics moved, no dropout.

    names   : of modules or parameters, as `named_modules` and `named_parameters` say them ("0", "encoder.layer.3")
    returns : the names of the parameters that are frozen now by this call
    raises  : ValueError for a name that the model does not have, or without a name; nothing is frozen then

    A frozen module is in evaluation mode, and goes back to it before each of its forward passes: `model.train()` wakes
    it up for no more than a moment. Build the optimizer afterwards, or its moments and decay cover what is frozen too.
    """
    frozen = _find(model, names)
    for part in frozen:
        for module in part.modules() if isinstance(part, nn.Module) else ():
            if not _hooks_of(module):
                module.register_forward_pre_hook(_stay_in_evaluation)
            module.training = False
    return _set_trainable(model, frozen, False)


def unfreeze(model: nn.Module, *names: str) -> list[str]:
    """Undo `freeze` for these parts: gradients again, and the model's own mode.

    returns : the names of the parameters that are trainable now by this call
    raises  : as `freeze`
    """
    parts = _find(model, names)
    for part in parts:
        for module in part.modules() if isinstance(part, nn.Module) else ():
            for key in _hooks_of(module):
                del module._forward_pre_hooks[key]
            module.training = model.training
    return _set_trainable(model, parts, True)


def depth_groups(
    model: nn.Module, *, lr: float, factor: float, parts: Sequence[str | Iterable[str]] | None = None
) -> list[dict]:
    """Param groups with an lr that falls towards the input: the last part has `lr`, each one before `factor` of it.

    parts   : from input to output, names or several names of modules or parameters that share a depth; the model's
              children that hold trainable parameters when left out
    returns : [{"params", "lr", "name"}, ...] from input to output; trainable parameters only, each once, and a part
              without any has no group but keeps its place in the count
    raises  : ValueError for an lr or factor that is not above 0, a name that the model does not have, trainable
              parameters that no part holds, or that two parts name
    """
    if not (0 < lr < math.inf and 0 < factor < math.inf):
        raise ValueError(f"lr and factor must be finite and above 0, got lr={lr}, factor={factor}")
    if parts is None:
        parts = [name for name, _ in (*model.named_parameters(recurse=False), *model.named_children())]
        parts = [name for name in parts if _trainable(model, (name,))]
    depths = [(part,) if isinstance(part, str) else tuple(part) for part in parts]
    groups, taken, placed = [], {}, set()
    for depth, names in enumerate(depths):
        _find(model, names)
        params = []
        for name, param in _trainable(model, names).items():
            if taken.setdefault(name, depth) != depth:
                raise ValueError(f"{name} is held by {depths[taken[name]]} and by {names}: one part only")
            if id(param) not in placed:  # tied weights go with the part nearest to the input
                placed.add(id(param))
                params.append(param)
        if params:
            groups.append({"params": params, "lr": lr * factor ** (len(depths) - 1 - depth), "name": ", ".join(names)})
    left = [name for name, param in model.named_parameters() if param.requires_grad and id(param) not in placed]
    if left:
        raise ValueError(f"no part holds {left}: they would not train; name them, or freeze them")
    return groups


def _trainable(model: nn.Module, names: Iterable[str]) -> dict[str, nn.Parameter]:
    """Trainable parameters with one of these names, or inside a module with one; tied ones under each of theirs."""
    params = model.named_parameters(remove_duplicate=False)
    inside = tuple(f"{name}." for name in names)
    return {name: p for name, p in params if p.requires_grad and (name in names or f"{name}.".startswith(inside))}


def _find(model: nn.Module, names: Iterable[str]) -> list[nn.Module | nn.Parameter]:
    known = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_modules(remove_duplicate=False))
    missing = [name for name in names if name not in known]
    if missing or not names:
        children = [name for name, _ in model.named_children()]
        raise ValueError(f"the model has no {missing or 'parts without a name'}: its children are {children}")
    return [known[name] for name in names]


def _parameters(part: nn.Module | nn.Parameter) -> list[nn.Parameter]:
    return [part] if isinstance(part, nn.Parameter) else list(part.parameters())


def _set_trainable(model: nn.Module, parts: list[nn.Module | nn.Parameter], trainable: bool) -> list[str]:
    """Sets `requires_grad`; returns the names of the parameters for which that was a change."""
    changed = {id(param) for part in parts for param in _parameters(part) if param.requires_grad is not trainable}
    named = {name: param for name, param in model.named_parameters() if id(param) in changed}
    for param in named.values():
        param.requires_grad_(trainable)
        if not trainable:
            param.grad = None  # a gradient left there would still be applied
    return list(named)


def _stay_in_evaluation(module: nn.Module, inputs: tuple) -> None:
    module.training = False


def _hooks_of(module: nn.Module) -> list[int]:
    return [key for key, hook in module._forward_pre_hooks.items() if hook is _stay_in_evaluation]
