"""What a saved run must agree on before it is loaded: parameters, plan of the lr, environment.

It knows state dicts; it opens no file. `training_loop` uses it.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import nn


def parameter_table(model: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes in order: momentum is matched to parameters by position, so the order matters."""
    return [(name, tuple(param.shape)) for name, param in model.named_parameters()]


def check_parameters(saved: list, model: nn.Module) -> None:
    """raises : ValueError that names the first parameter that differs in name, order or shape"""
    saved, now = [(name, tuple(shape)) for name, shape in saved], parameter_table(model)
    for place, (was, is_now) in enumerate(zip(saved, now, strict=False)):
        if was != is_now:
            raise ValueError(f"cannot resume: parameter {place} was {was[0]} {was[1]}, is {is_now[0]} {is_now[1]}")
    if len(saved) != len(now):
        raise ValueError(f"cannot resume: the state has {len(saved)} parameters, the model has {len(now)}")


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def describe_factor(factor_fn: Any) -> dict[str, Any]:
    """Name and bound arguments of a factor function: `LambdaLR` stores neither, so another plan would load silently."""
    if isinstance(factor_fn, functools.partial):
        bound = {name: _plain(value) for name, value in factor_fn.keywords.items()}
        name = describe_factor(factor_fn.func)["name"]  # partials of partials are one partial
        return {"name": name, "args": [_plain(a) for a in factor_fn.args], "kwargs": bound}
    return {"name": getattr(factor_fn, "__name__", type(factor_fn).__name__), "args": [], "kwargs": {}}


def describe_scheduler(scheduler: Any) -> dict[str, Any] | None:
    """Class, and for a `LambdaLR` the plan of each param group; None without a scheduler."""
    if scheduler is None:
        return None
    factors = [describe_factor(fn) for fn in getattr(scheduler, "lr_lambdas", [])]
    return {"class": type(scheduler).__name__, "factors": factors}


def check_scheduler(saved: dict[str, Any] | None, scheduler: Any) -> None:
    """raises : ValueError that shows both plans where they differ"""
    now = describe_scheduler(scheduler)
    if saved != now:
        raise ValueError(f"cannot resume: the plan of the lr was {saved} when saved and is {now} now")


def warn_environment(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """One warning that lists what differs, old -> new: bits may differ from here on."""
    changed = [f"{name}: {saved.get(name)} -> {now.get(name)}" for name in now if saved.get(name) != now.get(name)]
    if changed:
        warnings.warn("the environment differs from the saved run's: " + "; ".join(changed), stacklevel=3)


def describe_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Any]:
    """Class, and the parameters' names in the optimizer's own order, group by group."""
    names = {id(param): name for name, param in model.named_parameters()}
    groups = [[names.get(id(param), "?") for param in group["params"]] for group in optimizer.param_groups]
    return {"class": type(optimizer).__name__, "groups": groups}


def check_optimizer(saved: dict[str, Any], optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    """raises : ValueError where class or order differ: the moments would load all the same, into other parameters"""
    now = describe_optimizer(optimizer, model)
    for name in now:
        if (was := saved[name]) != now[name]:
            raise ValueError(f"cannot resume: the optimizer's {name} was {was} when saved and is {now[name]} now")
