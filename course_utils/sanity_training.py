"""What logits, first loss, gradients, optimizer and a few updates on one batch must look like before a training.

It knows a `Case` of `sanity_rules`, and trains copies of its model. `sanity_checks` runs these rules last.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_utils.evaluation import to_device, unwrap
from course_utils.randomness import generators_put_back
from course_utils.sanity_rules import Case, Fault, NotMeant

GOAL = 0.3  # of the first loss: a softmax before cross entropy ends above 0.45, label smoothing of 0.1 below 0.25


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def logits(case: Case) -> str:
    """The loss gets what it wants: logits, or log-probabilities."""
    if case.classes is None:
        raise NotMeant("the targets are no class numbers")
    loss, shifted = (float(case.loss_fn(values, case.targets)) for values in (case.outputs, case.outputs + 1))
    sums, of_exp = case.outputs.float().sum(1), case.outputs.float().exp().sum(1)
    if abs(shifted - loss) < 1e-3 * (1 + abs(loss)):  # a softmax inside the loss: a constant more changes nothing
        if case.outputs.min() >= 0 and _all_one(sums):
            floor = math.log(math.e + case.classes - 1) - 1  # 1 for the right class and 0 for the others, as logits
            raise Fault(
                "the outputs are probabilities, and this loss wants logits: a softmax before cross entropy, which has "
                f"its own. Its loss cannot fall below {floor:.2f}; leave the softmax out"
            )
        return "logits, as the loss wants them"
    if abs(loss - shifted - 1) < 1e-3 and not _all_one(of_exp):
        raise Fault("this loss wants log-probabilities, and the outputs are none: log_softmax, or cross entropy")
    return "as the loss wants them"


def _all_one(sums: torch.Tensor) -> bool:
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def first_loss(case: Case) -> str:
    """Near ln C, the loss of a guess that knows nothing; or near that of the class prior."""
    loss = float(case.loss(copy.deepcopy(case.model)).detach())
    if not math.isfinite(loss):
        raise Fault(f"the loss is {loss} before any update: look at the loss's own logs, roots and divisions")
    if case.classes is None:
        return f"{loss:.3g}, finite; there are no classes to expect a value from"
    blind = math.log(case.classes)
    least = blind if case.class_prior is None else _entropy(case.class_prior, case.classes)
    words = f"{loss:.2f}, and a guess that knows nothing has ln {case.classes} = {blind:.2f}"
    words += "" if case.class_prior is None else f", one that knows the class prior {least:.2f}"
    if loss > blind + max(1.0, 0.3 * blind):
        raise Fault(f"{words}: the model is sure of wrong answers; inputs not scaled, or a last layer too large?")
    if loss < least - max(0.5, 0.2 * blind):
        raise Fault(f"{words}: trained before, labels among the inputs, or a bias at the class prior (class_prior)?")
    return words


def _entropy(prior: Any, num_classes: int) -> float:
    prior = torch.as_tensor(prior, dtype=torch.float64).flatten()
    if len(prior) != num_classes or prior.min() < 0 or not prior.sum() > 0:
        raise ValueError(f"class_prior needs {num_classes} shares or counts >= 0, got {prior.tolist()}")
    return float(torch.special.entr(prior / prior.sum()).sum())


def gradients(case: Case) -> str:
    """A gradient that is finite and not all 0 for each trainable parameter."""
    model = copy.deepcopy(case.model)
    if not any(param.requires_grad for param in model.parameters()):
        raise Fault("no parameter is trainable: requires_grad is False for all of them")
    loss = case.loss(model)
    if not loss.requires_grad:
        raise Fault("the loss has no graph: forward is under no_grad, or goes through detach, item or argmax")
    loss.backward()
    watched = {name: p.grad for name, p in model.named_parameters() if p.requires_grad and not case.is_meant(name)}
    if missing := [name for name, gradient in watched.items() if gradient is None]:
        raise Fault(f"none for {_listed(missing)}: forward does not use it, or detach, .data or no_grad cuts the graph")
    if wild := [name for name, gradient in watched.items() if not torch.isfinite(gradient).all()]:
        raise Fault(f"not finite for {_listed(wild)}, under a loss of {loss.item():.3g}: a root, log or norm at 0?")
    if still := [name for name, gradient in watched.items() if not gradient.any()]:
        raise Fault(f"0 for {_listed(still)}{_why_zero(case, model, still)}")
    return f"reach all {len(watched)} parameters that they should"


def _why_zero(case: Case, model: nn.Module, still: list[str]) -> str:
    """Looks again after one update."""
    torch.optim.SGD([param for param in model.parameters() if param.grad is not None], lr=0.01).step()
    model.zero_grad()
    case.loss(model).backward()
    if all(param.grad.any() for name, param in model.named_parameters() if name in still):
        return ", and no longer after one update: a layer behind starts at 0; if it is meant to, pass meant=(...)"
    return ", also after an update: a ReLU that is never active (dead), a saturated layer, or a factor of 0"


def frozen(case: Case) -> str:
    """No parameter is frozen but those that are meant."""
    still = [name for name, param in case.model.named_parameters() if not param.requires_grad]
    if by_accident := [name for name in still if not case.is_meant(name)]:
        raise Fault(f"{_listed(by_accident)}: no update changes what is frozen; if it is meant to be, pass meant=(...)")
    return f"{len(still)} of {len(case.own)} parameters, as meant" if still else f"none of {len(case.own)} parameters"


def optimizer(case: Case) -> str:
    """The optimizer holds every trainable parameter, nothing else, and moves it."""
    if case.optimizer is None:
        raise NotMeant("pass optimizer=... to have it looked at")
    held = {id(param) for group in case.optimizer.param_groups for param in group["params"]}
    trainable = {name for name, param in case.model.named_parameters() if param.requires_grad}
    if missing := [name for place, name in case.own.items() if name in trainable and place not in held]:
        raise Fault(f"it does not hold {_listed(missing)}: build it after the model's last change")
    if strangers := held - case.own.keys():
        raise Fault(f"it holds {len(strangers)} tensors that are not the model's: of a layer that was replaced since?")
    for number, group in enumerate(case.optimizer.param_groups):
        if not 0 < float(group["lr"]) < math.inf:
            count = len(group["params"])
            raise Fault(f"param group {number} has lr {float(group['lr']):g}: its {count} parameters cannot learn")
    return f"holds all {len(trainable)} trainable parameters, each with an lr above 0"


def one_batch(case: Case) -> str:
    """A copy learns this batch by heart, at one of three rates."""
    runs = []
    for lr in (case.lr, 10 * case.lr, case.lr / 10):
        losses = _overfitted(case, lr, GOAL)
        words = f"the loss went from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses) - 1} updates, lr {lr:g}"
        if losses[-1] <= GOAL * losses[0]:
            return words
        runs.append((losses[-1] if math.isfinite(losses[-1]) else math.inf, words))
    raise Fault(
        f"{min(runs)[1]}, the best of {len(runs)} rates: what cannot learn one batch by heart cannot learn more; "
        "outputs that the loss does not want, a cut graph, frozen layers, or targets of other examples?"
    )


def overfit_one_batch(
    model: nn.Module, loss_fn: Callable, batch: tuple[Any, Any], *, num_steps: int = 100, lr: float = 3e-3
) -> list[float]:
    """The first test of any run: can a copy of the model learn one batch by heart?

    num_steps : updates by Adam with `lr`, without dropout; the model itself and the generators stay as they are
    returns   : num_steps + 1 losses, before the first update and after each; where one is not finite it is the last
    raises    : ValueError for fewer than 1 update
    """
    if num_steps < 1:
        raise ValueError(f"num_steps needs 1 or more, got {num_steps}")
    with generators_put_back(), torch.enable_grad():
        return _overfitted(case_of(model, loss_fn, batch, num_steps=num_steps), lr, -math.inf)


def _overfitted(case: Case, lr: float, goal: float) -> list[float]:
    """Losses until one is at most `goal` of the first, is not finite, or the updates are made."""
    model, losses = copy.deepcopy(case.model), []
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
    adam = torch.optim.Adam([param for param in model.parameters() if param.requires_grad], lr=lr)
    while True:
        loss = case.loss(model)
        losses.append(float(loss.detach()))
        if len(losses) > case.num_steps or losses[-1] <= goal * losses[0] or not math.isfinite(losses[-1]):
            return losses
        adam.zero_grad()
        loss.backward()
        adam.step()


def case_of(model: nn.Module, loss_fn: Callable, batch: tuple[Any, Any], **how: Any) -> Case:
    """A copy of the model in training mode, as `Trainer.fit` would put it, and the batch on its device."""
    model = unwrap(model)
    device = next((param.device for param in model.parameters()), None)
    inputs, targets = to_device(batch, device)
    own = {id(param): name for name, param in model.named_parameters()}
    model = copy.deepcopy(model)
    return Case(model if model.training else model.train(), loss_fn, inputs, targets, own=own, **how)
