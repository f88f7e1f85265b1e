"""What a moving average is asked: a run of a script, stopped and resumed, beside another run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.exercises.facts import Said
from course_utils.exercises.optimizer_step_facts import is_at_fault, up_to_the_first_fault
from course_utils.exercises.wording import words_of_error

_NAMES = ("weight", "running_mean", "num_batches", "mean_of_all", "num_examples")
_RESUMED = "the same after a stop: `ema` saved, and loaded beside another run"
_SAME = "the same averages"

_MISSING = Said("missing", "missing (was `ema` itself filled, or a new dict of the same name?)")

Row = tuple[float, float, int, bool]  # of each step: weight, running mean, number of batches, skipped


class Model(nn.Module):
    """A weight of two numbers, a running mean and a count, as BatchNorm has them, and a script for them.

    mean_of_all, num_examples : the same numbers once more, in float64 and under another name
    """

    def __init__(self, run: list[Row]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("running_mean", torch.zeros(1))
        self.register_buffer("num_batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean_of_all", torch.zeros(1, dtype=torch.float64))
        self.register_buffer("num_examples", torch.zeros((), dtype=torch.int64))
        self.run = run
        self.goes_to(0)

    @torch.no_grad()
    def goes_to(self, step: int) -> bool:
        """In place, as an optimizer changes weights; True for a step that was skipped."""
        weight, mean, number, skipped = self.run[step]
        self.weight.fill_(weight)
        self.running_mean.fill_(mean)
        self.num_batches.fill_(number)
        self.mean_of_all.fill_(mean)
        self.num_examples.fill_(number)
        return skipped


def arranged(run: list[Row], decay: float) -> tuple:
    return {}, Model(run), decay, False


def sound_run(states: list[tuple[int, float, float, int]]) -> dict:
    """The facts of a sound answer from (num_updates, weight, mean, count) after each call."""
    facts: dict = {}
    for call, (number, weight, mean, count) in enumerate(states):
        facts |= _state(call, number, dict(zip(_NAMES, ([weight] * 2, [mean], count, [mean], count), strict=True)))
    return facts | {_RESUMED: _SAME}


def _when(call: int) -> str:
    return f"after step {call}" if call else "before training"


def _state(call: int, number: Any, averages: dict) -> dict:
    values = {f"{_when(call)}, the average of {name}": averages.get(name, _MISSING) for name in _NAMES}
    return {**values, f"{_when(call)}, num_updates": number, **_quiet(call)}


def _quiet(call: int, memory: str = "their own", model: str = "as it was", graph: str = "none") -> dict:
    facts = {"the memory of the averages": memory, "the model": model, "the graph of the averages": graph}
    return {f"{_when(call)}, {name}": value for name, value in facts.items()}


def by_hand(run: list[Row], decay: float) -> dict:
    """The facts in plain numbers."""
    weight, mean, count, _ = run[0]
    states, updates = [(0, weight, mean, count)], 0
    for now_weight, now_mean, now_count, skipped in run[1:]:
        if not skipped:
            share = min(decay, (1 + updates) / (10 + updates))
            weight, mean = share * weight + (1 - share) * now_weight, share * mean + (1 - share) * now_mean
            count, updates = now_count, updates + 1
        states.append((updates, weight, mean, count))
    return sound_run(states)


def gather(fn: Callable, result: Any, ema: dict, model: Model, decay: float, skipped: bool) -> dict:
    """The state after each call, as far as all is well; then the same run with a stop in it."""
    sound, facts = by_hand(model.run, decay), {}
    for call in range(len(model.run)):
        if call:
            fn(ema, model, decay, model.goes_to(call))
        facts |= _seen(call, ema, model)
        if is_at_fault(facts, sound):
            return up_to_the_first_fault(facts, sound)
    try:
        return facts | {_RESUMED: _with_a_stop(fn, model.run, decay, ema)}
    except Exception as error:
        return facts | {_RESUMED: Said("an error", f"an error, {words_of_error(error)}")}


def _seen(call: int, ema: dict, model: Model) -> dict:
    average = ema.get("average", {})
    values = {name: value.detach().tolist() for name, value in average.items()}
    floats = [n for n, v in average.items() if n in ("num_batches", "num_examples") and v.is_floating_point()]
    values |= {name: Said("a float", f"{values[name]}, a tensor of floats, of whole numbers before") for name in floats}
    weight, mean, number, _ = model.run[call]
    kept = (model.weight.tolist(), model.running_mean.item(), model.num_batches.item()) == ([weight] * 2, mean, number)
    kept &= (model.mean_of_all.item(), model.num_examples.item()) == (mean, number)
    own = {value.data_ptr() for value in model.state_dict().values()}
    shared = [name for name, value in average.items() if value.data_ptr() in own]
    memory = Said("shared", f"{shared[0]} is the model's own tensor") if shared else "their own"
    graph = "none" if not any(v.requires_grad for v in average.values()) else "is kept"
    words = "as it was" if kept else Said("changed", f"changed: its weight is {model.weight.tolist()}")
    words = words if model.training else Said("evaluates", "in evaluation mode, and was in training mode")
    return {**_state(call, ema.get("num_updates", _MISSING), values), **_quiet(call, memory, words, graph)}


def _with_a_stop(fn: Callable, run: list[Row], decay: float, whole: dict) -> str:
    """The run with a copy of `ema` and a new model before each call, and another model's run in between."""
    ema, other, others = {}, {}, Model([(5.0, 5.0, 5, False)])
    for call in range(len(run)):
        fn(other, others, decay, False)
        ema, model = copy.deepcopy(ema), Model(run)
        fn(ema, model, decay, model.goes_to(call))
    same = all(torch.allclose(ema["average"][name], value) for name, value in whole["average"].items())
    return _SAME if same else Said("others", f"others, weight {ema['average']['weight'].tolist()}")
