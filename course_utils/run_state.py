"""What a run's state holds, and what a saved run must agree on before it is loaded.

It knows state dicts, and a run as an object with `model`, `optimizer`, `scheduler`, `scaler`, `ema`, `seed`, `step`,
`mean` and `best` (a `Trainer`); it opens no file. The place in the data is the trainer's own.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from typing import Any

import torch
from torch import nn

from course_utils.evaluation import unwrap
from course_utils.machine import environment


def collect(run: Any) -> dict[str, Any]:
    """The states of the run's parts (None for one it lacks), and the descriptions that `check` compares. No copies."""
    model = unwrap(run.model)
    return {
        "model": model.state_dict(),
        "parameters": parameter_table(model),
        "optimizer": run.optimizer.state_dict(),
        "optimizer_order": describe_optimizer(run.optimizer, model),
        "scheduler": run.scheduler.state_dict() if run.scheduler is not None else None,
        "plan": describe_scheduler(run.scheduler),
        "scaler": run.scaler.state_dict() if run.scaler is not None else None,
        "ema": run.ema.state_dict() if run.ema is not None else None,
        "seed": run.seed,
        "step": run.step,
        "mean": run.mean.state_dict(),
        "best": run.best.state_dict(),
        "environment": environment(),
    }


def check(state: dict[str, Any], run: Any) -> None:
    """raises : ValueError for a state of another run, naming what differs; nothing has been loaded then"""
    model = unwrap(run.model)
    check_parameters(state["parameters"], model)
    check_tensors(state["model"], model)
    check_optimizer(state["optimizer_order"], run.optimizer, model)
    check_scheduler(state["plan"], run.scheduler)
    if state["seed"] != run.seed:
        raise ValueError(f"cannot resume: seed was {state['seed']} when saved and is {run.seed} now")
    for name in ("scaler", "ema"):
        if (state[name] is None) != (getattr(run, name) is None):
            was, now = ("without", "with") if state[name] is None else ("with", "without")
            raise ValueError(f"cannot resume: the run was saved {was} {name} and is {now} one now")


def restore(state: dict[str, Any], run: Any) -> None:
    """Load a checked state into the run's parts. The optimizer goes on training inside the tensors of `state`."""
    unwrap(run.model).load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    for name in ("scheduler", "scaler", "ema", "mean", "best"):
        if state[name] is not None:
            getattr(run, name).load_state_dict(state[name])
    run.step = state["step"]


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


def check_tensors(saved: dict[str, Any], model: nn.Module) -> None:
    """raises : ValueError that names what only one side has, or has in another shape: buffers too"""
    now = model.state_dict()
    if alone := sorted(saved.keys() ^ now.keys()):
        side = "state" if alone[0] in saved else "model"
        raise ValueError(f"cannot resume: only the {side} has {alone[0]}")
    for name, tensor in now.items():
        was, is_now = (getattr(value, "shape", None) for value in (saved[name], tensor))
        if was != is_now:
            raise ValueError(f"cannot resume: {name} was {tuple(was)} when saved and is {tuple(is_now)} now")


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


def describe_scheduler(scheduler: Any) -> dict[str, Any] | None:
    """Class, and for a `LambdaLR` the plan of each param group; None without a scheduler."""
    if scheduler is None:
        return None
    factors = [describe_factor(fn) for fn in getattr(scheduler, "lr_lambdas", [])]
    return {"class": type(scheduler).__name__, "factors": factors}


def describe_factor(factor_fn: Any) -> dict[str, Any]:
    """Name and bound arguments of a factor function: `LambdaLR` stores neither, so another plan would load silently.

    What a function closes over is bound too.
    """
    if isinstance(factor_fn, functools.partial):
        bound = {name: _plain(value) for name, value in factor_fn.keywords.items()}
        name = describe_factor(factor_fn.func)["name"]  # partials of partials are one partial
        return {"name": name, "args": [_plain(a) for a in factor_fn.args], "kwargs": bound}
    closed = inspect.getclosurevars(factor_fn).nonlocals if inspect.isfunction(factor_fn) else {}
    bound = {name: _plain(value) for name, value in closed.items() if value is not factor_fn}
    return {"name": getattr(factor_fn, "__name__", type(factor_fn).__name__), "args": [], "kwargs": bound}


def _plain(value: Any) -> Any:
    """As it can be stored and compared in another process: an address in memory differs there."""
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if callable(value):
        return describe_factor(value)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


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
