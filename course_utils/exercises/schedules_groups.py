"""Exercises of chapter 07 about param groups: which parameters an optimizer holds, and with which lr."""

from __future__ import annotations

import copy

import torch
from torch import nn

from course_utils.exercises.compare import difference
from course_utils.exercises.declare import exercise


def _in_mid_run(base_lrs: list[float], factor: float) -> tuple:
    """An optimizer whose lrs an earlier step has set to a quarter of their base; initial_lr is a scheduler's note."""
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr / 4, "initial_lr": lr} for lr in base_lrs]
    return torch.optim.SGD(groups), base_lrs, factor


def _lrs(result, optimizer, base_lrs: list[float], factor: float) -> dict:
    """Both lrs of each group, and whether another optimizer was returned though the given one has not the right lrs."""
    lrs, initial_lrs = ([group[name] for group in optimizer.param_groups] for name in ("lr", "initial_lr"))
    other = isinstance(result, torch.optim.Optimizer) and result is not optimizer
    return _found(lrs, initial_lrs, other and difference([lr * factor for lr in base_lrs], lrs) is not None)


def _found(lrs: list[float], initial_lrs: list[float], other: bool = False) -> dict:
    return {"lr": lrs, "initial_lr": initial_lrs, "another optimizer instead": other}


@exercise(
    "schedules-5",
    title="One factor, several base lrs",
    difficulty="easy",
    minutes=6,
    cases=[([0.1], 0.5), ([0.1], 1.0), ([0.1, 0.001], 0.5), ([0.1, 0.001, 0.02], 0.0)],
    expected=[
        _found([0.05], [0.1]),
        _found([0.1], [0.1]),
        _found([0.05, 0.0005], [0.1, 0.001]),
        _found([0.0, 0.0, 0.0], [0.1, 0.001, 0.02]),
    ],
    arrange=_in_mid_run,
    observe=_lrs,
    describe=lambda base_lrs, factor: (
        f"apply_factor(optimizer, base_lrs={base_lrs}, factor={factor}), lrs {[lr / 4 for lr in base_lrs]} before, then"
    ),
    hints=[
        "An lr lives in the group: group['lr'] for group in optimizer.param_groups. Nothing needs to be returned.",
        "Walk over groups and base lrs together: zip(optimizer.param_groups, base_lrs, strict=True).",
        "The new lr is base lr times factor, whatever lr the group has now.",
    ],
    abs_=1e-12,
    lesson="Because the base lr is kept apart, the lr depends on the step alone, not on how often the function "
    "was called.",
)
def apply_factor(optimizer, base_lrs: list[float], factor: float) -> None:
    """Set each param group's lr to its own base lr times `factor`.

    optimizer : a torch.optim.Optimizer in the middle of a run; its groups hold the lrs of an
                earlier step
    base_lrs  : one base lr for each group, in the order of optimizer.param_groups
    """
    for group, base_lr in zip(optimizer.param_groups, base_lrs, strict=True):
        group["lr"] = base_lr * factor


@apply_factor.wrong
def gives_all_groups_one_lr(optimizer, base_lrs, factor):
    """All groups get the lr of the first: pretrained layers that were to move 100 times slower than a new head now
    move as fast as it does."""
    for group in optimizer.param_groups:
        group["lr"] = base_lrs[0] * factor


@apply_factor.wrong
def compounds(optimizer, base_lrs, factor):
    """The factor is applied to the present lr, which already holds the factors of earlier steps: they multiply, and
    the lr falls far faster than the schedule says."""
    for group in optimizer.param_groups:
        group["lr"] *= factor


@apply_factor.wrong
def changes_nothing(optimizer, base_lrs, factor):
    """The groups' lrs are as before; only group["lr"] = ... changes them. A local name, a returned list, base_lrs,
    optimizer.lr or another optimizer is nothing that this optimizer's step() reads."""
    for group, base_lr in zip(optimizer.param_groups, base_lrs, strict=True):
        lr = group["lr"]
        lr = base_lr * factor  # noqa: F841 - that is the mistake


@apply_factor.wrong
def sets_the_initial_lr(optimizer, base_lrs, factor):
    """group["initial_lr"] is a note that a scheduler made of the base lr, and step() does not read it: the lr is as
    before, and the note is now wrong. Set group["lr"]."""
    for group, base_lr in zip(optimizer.param_groups, base_lrs, strict=True):
        group["initial_lr"] = base_lr * factor


@apply_factor.wrong
def returns_another_optimizer(optimizer, base_lrs, factor):
    """Another optimizer is made and returned; the given one, with which the caller goes on, has its lrs as before. A
    new one would also lack the momentum gathered so far. Set group["lr"] in the groups that are there."""
    groups = zip(optimizer.param_groups, base_lrs, strict=True)
    return torch.optim.SGD([{"params": group["params"], "lr": base_lr * factor} for group, base_lr in groups])


@apply_factor.wrong
def gives_all_groups_the_last_lr(optimizer, base_lrs, factor):
    """All groups end with the lr of the last: one loop inside the other writes every base lr into every group, and the
    last one stays. Walk over both together, with zip."""
    for group in optimizer.param_groups:
        for base_lr in base_lrs:
            group["lr"] = base_lr * factor


@apply_factor.wrong
def sets_the_factor_itself(optimizer, base_lrs, factor):
    """The factor is set as the lr: a schedule's factor of 1 becomes an lr of 1, in every group. The lr is the group's
    base lr times the factor."""
    for group in optimizer.param_groups:
        group["lr"] = factor


@apply_factor.wrong
def lifts_small_lrs_to_a_minimum(optimizer, base_lrs, factor):
    """An absolute lower bound (here 1e-3) is a floor under every group: it *raises* the lr of a group whose base lr is
    small. A minimum belongs into the factor, where it scales with each group."""
    for group, base_lr in zip(optimizer.param_groups, base_lrs, strict=True):
        group["lr"] = max(base_lr * factor, 1e-3)


def _with_new_head(kind: str) -> tuple:
    """A model of two layers and an optimizer, with one thing done to them."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    if kind == "backbone frozen":
        model[0].requires_grad_(False)
    held = [{"params": list(model[0].parameters())}, {"params": list(model[1].parameters())}]
    optimizer = torch.optim.SGD(held[1:] if kind == "backbone frozen" else held, lr=0.1)
    if kind == "head replaced after the optimizer was made":
        model[1] = nn.Linear(2, 2)
    if kind == "head copied after the optimizer was made":
        model[1] = copy.deepcopy(model[1])
    if kind.endswith("added"):
        model.append(nn.Linear(2, 3 if kind.startswith("larger") else 2))
    return model, optimizer


@exercise(
    "schedules-8",
    title="Parameters that no optimizer holds",
    difficulty="medium",
    minutes=8,
    cases=[
        ("as it should be",),
        ("backbone frozen",),
        ("larger layer added",),
        ("equal layer added",),
        ("head replaced after the optimizer was made",),
        ("head copied after the optimizer was made",),
    ],
    expected=[[], [], *[["2.bias", "2.weight"]] * 2, *[["1.bias", "1.weight"]] * 2],
    arrange=_with_new_head,
    describe=lambda kind: f"uncovered_parameters(model, optimizer), {kind}",
    hints=[
        "Go through optimizer.param_groups, all of them, and collect what they hold; then through "
        "model.named_parameters().",
        "Two parameters are the same only if they are the same object: compare id(parameter), not shapes and "
        "not values.",
        "Frozen parameters (requires_grad False) need no optimizer.",
    ],
    lesson="A head that was exchanged after the optimizer was made keeps its first weights for ever, without an error.",
)
def uncovered_parameters(model, optimizer) -> list[str]:
    """Names of the trainable parameters of `model` that `optimizer` does not hold, sorted.

    model     : an nn.Module
    optimizer : a torch.optim.Optimizer with any number of param groups
    """
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return sorted(name for name, p in trainable if id(p) not in held)


def _missing(model, held, same) -> list[str]:
    return sorted(n for n, p in model.named_parameters() if p.requires_grad and not any(same(p, q) for q in held))


def _held(optimizer) -> list:
    return [p for group in optimizer.param_groups for p in group["params"]]


@uncovered_parameters.wrong
def compares_shapes(model, optimizer):
    """Parameters are taken for the same if their shapes agree. A new head has the shape of the old one, so the one
    fault that is looked for is not seen."""
    return _missing(model, _held(optimizer), lambda p, q: p.shape == q.shape)


@uncovered_parameters.wrong
def compares_values(model, optimizer):
    """Parameters are taken for the same if their values agree. A copy of a layer (copy.deepcopy, an exchanged head with
    loaded weights) has equal values now, and the optimizer does not hold it: no update will ever reach it."""
    return _missing(model, _held(optimizer), torch.equal)


@uncovered_parameters.form_of("compares_values")
def compares_values_number_by_number(model, optimizer):
    return _missing(model, _held(optimizer), lambda p, q: bool((p == q).all()))


@uncovered_parameters.form_of("compares_values")
def compares_values_the_other_way_round(model, optimizer):
    return _missing(model, _held(optimizer), lambda p, q: bool((q == p).all()))


@uncovered_parameters.wrong
def counts_only(model, optimizer):
    """The numbers of parameters are compared, not the parameters: after a head was exchanged both counts are still
    equal, though the optimizer holds the old one."""
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    return sorted(names[len(_held(optimizer)) :])


@uncovered_parameters.wrong
def looks_at_the_first_group(model, optimizer):
    """Only the first param group is read: whatever is in the other groups is reported as missing, though it is
    trained."""
    return _missing(model, optimizer.param_groups[0]["params"], lambda p, q: p is q)


@uncovered_parameters.wrong
def reports_frozen_parameters(model, optimizer):
    """Frozen parameters are reported as well: they are not to be trained, and a warning that is wrong in ordinary
    fine-tuning is soon ignored."""
    held = {id(p) for p in _held(optimizer)}
    return sorted(name for name, p in model.named_parameters() if id(p) not in held)


@uncovered_parameters.wrong
def compares_with_in(model, optimizer):
    """`in` compares a parameter with each in the list by `==`, which for tensors is done number by number and gives no
    single True or False. Whether it is the same object is told by `is`, or by id(parameter)."""
    held = _held(optimizer)
    return sorted(n for n, p in model.named_parameters() if p.requires_grad and p not in held)
