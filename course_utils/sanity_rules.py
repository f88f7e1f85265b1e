"""What inputs, outputs and labels must look like before a training: a rule returns what it saw, or raises a `Fault`.

It knows a model, a loss and one batch, as a `Case`; it trains nothing. `sanity_checks` runs these rules first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from course_utils.counting import ignored_target
from course_utils.evaluation import eval_mode, map_tensors

_SPOILS = "one update with it makes weights NaN; mend or drop the example"


class Fault(Exception):
    """What is wrong, what it does, and what helps."""


class NotMeant(Exception):
    """Why a rule does not apply here."""


@dataclass
class Case:
    """A copy of a model, a loss and a batch; `outputs` are those in evaluation mode, once there are any.

    own     : names of the parameters of the model itself, by their ids
    meant   : names of parameters or modules that are frozen, or start without a gradient, on purpose
    """

    model: nn.Module
    loss_fn: Callable[[Any, Any], torch.Tensor]
    inputs: Any
    targets: Any
    own: dict[int, str] = field(default_factory=dict)
    optimizer: torch.optim.Optimizer | None = None
    num_classes: int | None = None
    class_prior: Sequence[float] | None = None
    meant: Sequence[str] = ()
    num_steps: int = 100
    lr: float = 3e-3
    outputs: Any = None

    def forward(self, inputs: Any) -> Any:
        """Outputs in evaluation mode; the model gets a copy of the inputs, which it may change."""
        with eval_mode(self.model), torch.no_grad():
            return self.model(copy.deepcopy(inputs))

    def loss(self, model: nn.Module) -> torch.Tensor:
        return self.loss_fn(model(copy.deepcopy(self.inputs)), self.targets)

    @property
    def classes(self) -> int | None:
        """How many classes the outputs tell apart; None where the targets are no class numbers."""
        outputs, targets = self.outputs, self.targets
        if not all(isinstance(side, torch.Tensor) for side in (outputs, targets)) or targets.is_floating_point():
            return None
        fits = outputs.dim() > 1 and outputs.shape[:1] + outputs.shape[2:] == targets.shape
        return outputs.size(1) if fits else None

    def is_meant(self, name: str) -> bool:
        return any(name == known or name.startswith(f"{known}.") for known in self.meant)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in dicts, tuples and lists, at any depth."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]


def _first(tensor: torch.Tensor, bad: torch.Tensor, name: str) -> str:
    """`targets[4] is 10`: the first place of `bad`."""
    place = bad.nonzero()[0].tolist()
    return f"{name}{place} is {tensor[tuple(place)].item():g}"


def _refuse_not_finite(tensor: torch.Tensor, name: str, so: str) -> None:
    bad = ~torch.isfinite(tensor)
    if bad.any():
        raise Fault(f"{_first(tensor, bad, name)}: {so}")


def inputs(case: Case) -> str:
    """Finite, and scaled: not 0 to 255, not divided twice, not all equal."""
    for tensor in tensors_of(case.inputs):
        if tensor.dtype is torch.uint8:
            raise Fault("inputs are uint8, raw pixels from 0 to 255: make them float and scale them with mean and std")
        if tensor.is_floating_point():  # whole numbers stand for something, they are no amounts
            _refuse_not_finite(tensor, "inputs", _SPOILS)
            _refuse_bad_scale(tensor.float())
    return "finite, and scaled plausibly"


def _refuse_bad_scale(tensor: torch.Tensor) -> None:
    rms, largest = float(tensor.square().mean().sqrt()), float(tensor.abs().max())
    if rms > 10:
        raise Fault(
            f"inputs reach {largest:.3g}, root mean square {rms:.3g}: outputs and gradients of the first layer are as "
            "many times too large; scale to 0..1, or with the data's mean and std"
        )
    if tensor.numel() > 1 and tensor.min() == tensor.max():
        raise Fault(f"all inputs are {float(tensor.max()):g}: nothing tells examples apart; look at the transforms")
    if largest < 0.02:
        raise Fault(f"no input is above {largest:.2g}: divided by 255 twice? The first layer hardly sees them")


def outputs(case: Case) -> str:
    """One row an example, finite, and the same again in evaluation mode."""
    case.outputs, again = case.forward(case.inputs), case.forward(case.inputs)
    num_examples = tensors_of(case.inputs)[0].size(0)
    if not isinstance(case.outputs, torch.Tensor):
        raise NotMeant(f"the model gives a {type(case.outputs).__name__}; only a tensor is looked at")
    shape = tuple(case.outputs.shape)
    if shape[:1] != (num_examples,):
        raise Fault(
            f"{num_examples} examples give outputs {shape}: a view or reshape takes the batch apart; keep its first "
            "dimension, as flatten(1) does"
        )
    _refuse_not_finite(case.outputs, "outputs", "before any update; look at the first weights, at logs and roots")
    if _differ(case.outputs, again):
        raise Fault(
            "two forward passes in evaluation mode differ: something draws in spite of eval(), such as F.dropout "
            "without training=self.training"
        )
    return f"{shape} for {num_examples} examples, finite, and the same again"


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    return float((one - other).abs().max()) > 1e-4 * (1 + float(one.abs().max()))


def apart(case: Case) -> str:
    """The outputs of an example depend on its own inputs alone, in evaluation mode."""
    if not isinstance(case.outputs, torch.Tensor) or len(case.outputs) < 2:
        raise NotMeant("needs the outputs of two examples or more")
    for kept in (0, 1):
        index = torch.arange(len(case.outputs))
        index[1 - kept :: 2] = kept  # every second row is replaced by one that stays
        doubled = map_tensors(case.inputs, lambda tensor, index=index: tensor[index.to(tensor.device)])
        if _differ(case.outputs[kept::2], case.forward(doubled)[kept::2]):
            raise Fault(
                "the outputs of one example change with the inputs of others, so none is judged alone: a view, reshape "
                "or transpose mixes the batch with features, a layer lacks batch_first=True, or something is "
                "normalised over dimension 0"
            )
    norms = [module for module in case.model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    note = f"; in training mode {len(norms)} BatchNorm layers mix the batch, as they are meant to" if norms else ""
    return f"each example's outputs are its own{note}"


def labels(case: Case) -> str:
    """Targets as the loss wants them: int64 in 0 .. C - 1, or of the outputs' shape; one an example."""
    targets, found = case.targets, case.outputs
    if not isinstance(targets, torch.Tensor) or not isinstance(found, torch.Tensor):
        raise NotMeant("only targets and outputs that are one tensor each are looked at")
    if targets.shape[:1] != found.shape[:1]:
        raise Fault(_with_shapes(case, "each example needs a target of its own"))
    if targets.is_floating_point():
        return _amounts(case)
    num_classes = case.classes
    if num_classes is None and targets.shape == found.shape:
        return "whole numbers, of the outputs' shape"
    if num_classes is None:
        raise Fault(_with_shapes(case, "class numbers need outputs (B, C, ...) and targets (B, ...)"))
    if num_classes == 1:
        raise Fault(
            _with_shapes(case, "one output cannot tell classes apart: two or more, or float targets of its shape")
        )
    if case.num_classes not in (None, num_classes):
        raise Fault(f"the outputs are for {num_classes} classes, the data has {case.num_classes}: mend the last layer")
    if targets.dtype is not torch.int64:
        raise Fault(f"class numbers must be int64, got {str(targets.dtype).removeprefix('torch.')}: targets.long()")
    return _in_range(targets, num_classes, ignored_target(case.loss_fn))


def _in_range(targets: torch.Tensor, num_classes: int, ignored: int | None) -> str:
    counted = torch.ones_like(targets, dtype=torch.bool) if ignored is None else targets != ignored
    kept, bad = targets[counted], counted & ((targets < 0) | (targets >= num_classes))
    if bad.any():
        from_1 = ": labels that begin at 1? subtract 1" if kept.min() > 0 and kept.max() == num_classes else ""
        raise Fault(
            f"{_first(targets, bad, 'targets')}, and {num_classes} classes are 0 to {num_classes - 1}{from_1}; on a "
            "GPU this ends as a device-side assert"
        )
    if not len(kept):
        raise Fault(f"every target is {ignored}, which the loss ignores: its mean is 0 / 0")
    return f"int64, {len(kept.unique())} of {num_classes} classes in this batch"


def _with_shapes(case: Case, what: str) -> str:
    return f"{what}; got outputs {tuple(case.outputs.shape)}, targets {tuple(case.targets.shape)}"


def _amounts(case: Case) -> str:
    """Floating-point targets: amounts, or probabilities of classes."""
    _refuse_not_finite(case.targets, "targets", _SPOILS)
    of_classes = ignored_target(case.loss_fn) is not None
    if case.targets.shape != case.outputs.shape:
        cure = "reshape one as the other, else the loss compares each output with every target"
        raise Fault(_with_shapes(case, "class numbers must be int64: targets.long()" if of_classes else cure))
    if of_classes and float((case.targets.sum(1) - 1).abs().max()) > 1e-3:
        raise Fault("targets are floats for a loss of classes, and no probabilities: a row does not add up to 1")
    return "finite, of the outputs' shape"
