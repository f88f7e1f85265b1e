"""What the checks before a training are asked: a model with one thing or another done to it, and what is left of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from course_utils.exercises.facts import Said
from course_utils.exercises.training_loop_layers import linear
from course_utils.exercises.wording import kind

FOUND = ("no_gradient", "not_in_optimizer", "bad_targets")
_LEFT = ("the weights of the model after it", "the buffers after it", "the modes after it")
_GRADIENTS = "gradients of the check"
_RESULT, _A_DICT = "what is returned", "a dict"
_AS_BEFORE, _NONE = "as before", "none left behind"
NUM_CLASSES = 3


class _Net(nn.Module):
    """A body and a head; `fault` is "cut" (the head gets a detached tensor) or "dead" (no unit is ever active)."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.body, self.norm = linear(2, 3, bias=False), nn.BatchNorm1d(3)
        self.head, self.fault = linear(3, NUM_CLASSES), fault
        with torch.no_grad():
            self.norm.bias[2] = -1000  # one unit of a sound model may well be inactive: its entries alone are 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.body(inputs))
        if self.fault == "cut":
            hidden = hidden.detach()
        return self.head(torch.relu(hidden - 1000 * (self.fault == "dead")))


def faulty_run(faults: str, targets: list[int]) -> tuple:
    """A model, its optimizer of two groups, a loss function, a batch; `faults` names what was done, "" for nothing."""
    model = _Net("cut" if "cut" in faults else "dead" if "dead" in faults else "")
    body = [*model.body.parameters(), *model.norm.parameters()]
    if "frozen" in faults:
        model.body.requires_grad_(False)
        model.norm.requires_grad_(False).eval()
    head = list(model.head.parameters())
    groups = [{"params": head}] if "frozen" in faults else [{"params": body}, {"params": head}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    if "replaced" in faults:
        model.head = linear(3, NUM_CLASSES)
    if "old" in faults:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
    model.came_in = _state(model)
    inputs = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.0, 1.5], [0.25, 2.0]])
    loss_fn = _tiny if "tiny" in faults else cross_entropy
    return model, optimizer, loss_fn, inputs, torch.tensor(targets), NUM_CLASSES


def _tiny(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """All gradients are about 1e-10; with targets of the last class, those of norm.bias are below 0 or 0."""
    return 1e-10 * cross_entropy(logits, targets)


def _state(model: nn.Module) -> dict:
    """All that a check could disturb, copied."""
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    modes = {name: torch.tensor(module.training) for name, module in model.named_modules()}
    gradients = {name: copy.deepcopy(parameter.grad) for name, parameter in model.named_parameters()}
    return {"found": (weights, buffers, modes), "gradients": gradients}


def found_faults(result, model: nn.Module, *_) -> dict:
    """What was found, and whether the model is as it came."""
    before, now = model.came_in, _state(model)
    if not isinstance(result, Mapping):
        return {_RESULT: kind(result)}
    facts = {_RESULT: _A_DICT} | {name: result.get(name, Said("no entry", "no entry of this name")) for name in FOUND}
    for name, old, new in zip(_LEFT, before["found"], now["found"], strict=True):
        changed = [key or "the model itself" for key in old if not torch.equal(old[key], new[key])]
        facts[name] = Said("others", f"other ones: {', '.join(changed)}") if changed else _AS_BEFORE
    left = [name for name, new in now["gradients"].items() if _is_new(before["gradients"][name], new)]
    return facts | {_GRADIENTS: Said("left behind", f"left behind in {', '.join(left)}") if left else _NONE}


def _is_new(old: torch.Tensor | None, new: torch.Tensor | None) -> bool:
    """Neither gone, nor zero, nor as it came."""
    return new is not None and bool(new.any()) and (old is None or not torch.equal(old, new))


def sound_faults(no_gradient: list | None, not_in_optimizer: list, bad_targets: list) -> dict:
    """The facts of a sound check that finds these."""
    facts = {_RESULT: _A_DICT} | dict(zip(FOUND, (no_gradient, not_in_optimizer, bad_targets), strict=True))
    return facts | dict.fromkeys(_LEFT, _AS_BEFORE) | {_GRADIENTS: _NONE}
