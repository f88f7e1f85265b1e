"""Exercises of chapter 07 about param groups: which parameters an optimizer holds, with which decay and which lr."""

from __future__ import annotations

import torch
from torch import nn

from course_utils.exercises.compare import difference
from course_utils.exercises.declare import exercise


def _conv_net() -> nn.Module:
    """Weights, biases and the scale and shift of a norm layer."""
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))


def _token_net() -> nn.Module:
    """An embedding has no bias, a linear layer may have none, and a LayerNorm is no BatchNorm."""
    return nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 3, bias=False))


_MODELS = {"nn.Linear": lambda: nn.Linear(3, 2), "conv net with BatchNorm": _conv_net, "token net": _token_net}


def _decay_by_name(groups, model: nn.Module, weight_decay: float) -> dict[str, float | str]:
    """What AdamW, whose own default is 0.01, would do to each parameter; in words where it is not held once."""
    held = [held for group in groups for held in torch.optim.AdamW([group], lr=1e-3).param_groups]
    decays = [(p, group["weight_decay"]) for group in held for p in group["params"]]
    return {name: _decay_of([d for p, d in decays if p is q]) for name, q in model.named_parameters()}


def _decay_difference(expected: dict, got: dict) -> str | None:
    """A parameter that is not held once is told first, by name: "0.weight is in no group"."""
    lost = (f"{name} is {place}" for name, place in got.items() if isinstance(place, str) and expected[name] != place)
    return next(lost, None) or difference(expected, got)


def _decay_of(found: list[float]) -> float | str:
    return found[0] if len(found) == 1 else f"listed {len(found)} times" if found else "in no group"


@exercise(
    "schedules-4",
    title="No weight decay on norms and biases",
    difficulty="medium",
    minutes=10,
    cases=[("nn.Linear", 0.1), ("conv net with BatchNorm", 0.1), ("token net", 0.05)],
    expected=[
        {"weight": 0.1, "bias": 0.0},
        {"0.weight": 0.1, "0.bias": 0.0, "1.weight": 0.0, "1.bias": 0.0, "3.weight": 0.1, "3.bias": 0.0},
        {"0.weight": 0.05, "1.weight": 0.0, "1.bias": 0.0, "2.weight": 0.05},
    ],
    arrange=lambda model, weight_decay: (_MODELS[model](), weight_decay),
    observe=_decay_by_name,
    difference=_decay_difference,
    describe=lambda model, weight_decay: f"decay_groups({model}, weight_decay={weight_decay}), weight decay by name",
    hints=[
        "A group is a dict: {'params': [...], 'weight_decay': ...}. A key that is missing is filled in by "
        "the optimizer.",
        "Biases and the scale and shift of a norm are vectors; weights of linear layers, convolutions and "
        "embeddings are not.",
        "Split model.parameters() by parameter.ndim >= 2, and give the second group 'weight_decay': 0.0.",
    ],
    lesson="The rule by ndim needs no list of layer types; check_optimizer_covers tells whether a parameter was "
    "forgotten.",
)
def decay_groups(model, *, weight_decay: float) -> list[dict]:
    """Two param groups for an optimizer: vectors do not decay, all other parameters do.

    Vectors are biases and the scale and shift of a norm layer. Weights of linear layers,
    convolution kernels (4 dimensions) and embeddings are none.

    model   : an nn.Module
    returns : two dicts with 'params' and 'weight_decay'; each parameter of the model is in one of
              them, once
    """
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def _two_groups(model, weight_decay: float, decays) -> list[dict]:
    named = list(model.named_parameters())
    with_decay, without = [p for n, p in named if decays(n, p)], [p for n, p in named if not decays(n, p)]
    return [{"params": with_decay, "weight_decay": weight_decay}, {"params": without, "weight_decay": 0.0}]


@decay_groups.wrong
def decays_the_norms(model, weight_decay):
    """Only the biases are kept from decay; the scale of a norm layer is called "weight" too, and is pulled towards 0,
    which shrinks what the layer lets through."""
    return _two_groups(model, weight_decay, lambda name, _: not name.endswith("bias"))


@decay_groups.wrong
def decays_the_biases(model, weight_decay):
    """Only the norm layers are kept from decay; the biases of linear layers and convolutions are pulled towards 0 as
    well."""
    norms = {p for m in model.modules() if isinstance(m, (nn.BatchNorm2d, nn.LayerNorm)) for p in m.parameters()}
    return _two_groups(model, weight_decay, lambda _, p: p not in norms)


@decay_groups.wrong
def leaves_the_default(model, weight_decay):
    """The second group says nothing about weight decay, so the optimizer fills in its own default: 0.01 for AdamW. Say
    'weight_decay': 0.0."""
    groups = decay_groups.answer(model, weight_decay=weight_decay)
    del groups[1]["weight_decay"]
    return groups


@decay_groups.wrong
def exchanges_the_groups(model, weight_decay):
    """The two groups are exchanged: the vectors decay, and the matrices, for which decay is meant, do not."""
    return _two_groups(model, weight_decay, lambda _, p: p.ndim < 2)


@decay_groups.wrong
def loses_the_norms(model, weight_decay):
    """The scale and shift of the norm layers are in neither group: the optimizer never touches them, and no error says
    so. Without decay means in the second group, not in none."""
    norms = {p for m in model.modules() if isinstance(m, (nn.BatchNorm2d, nn.LayerNorm)) for p in m.parameters()}
    groups = decay_groups.answer(model, weight_decay=weight_decay)
    groups[1]["params"] = [p for p in groups[1]["params"] if p not in norms]
    return groups


@decay_groups.wrong
def loses_the_convolutions(model, weight_decay):
    """Only parameters with exactly 2 dimensions decay, and only vectors do not: a convolution kernel has 4, so it is in
    no group and never trained. Ask for ndim >= 2."""
    groups = decay_groups.answer(model, weight_decay=weight_decay)
    groups[0]["params"] = [p for p in groups[0]["params"] if p.ndim == 2]
    return groups


@decay_groups.wrong
def spares_the_convolutions(model, weight_decay):
    """Only parameters with exactly 2 dimensions decay: a convolution kernel has 4 and is put with the vectors. Ask for
    ndim >= 2."""
    return _two_groups(model, weight_decay, lambda _, p: p.ndim == 2)


@decay_groups.wrong
def lists_parameters_twice(model, weight_decay):
    """Parameters are listed more than once: model.modules() holds the model itself as well, and each parameters() goes
    down to all layers below. The optimizer would update them twice a step. model.parameters() alone gives each once."""
    parameters = [p for module in model.modules() for p in module.parameters()]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def _in_mid_run(base_lrs: list[float], factor: float) -> tuple:
    """An optimizer whose lrs an earlier step has already set to a quarter of their base."""
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr / 4} for lr in base_lrs]
    return torch.optim.SGD(groups), base_lrs, factor


@exercise(
    "schedules-5",
    title="One factor, several base lrs",
    difficulty="easy",
    minutes=6,
    cases=[([0.1], 0.5), ([0.1], 1.0), ([0.1, 0.001], 0.5), ([0.1, 0.001, 0.02], 0.0)],
    expected=[[0.05], [0.1], [0.05, 0.0005], [0.0, 0.0, 0.0]],
    arrange=_in_mid_run,
    observe=lambda result, optimizer, base_lrs, factor: [group["lr"] for group in optimizer.param_groups],
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
    """The groups' lrs are as before; only group["lr"] = ... changes them. A local name, a returned list, base_lrs or
    optimizer.lr is nothing that step() reads."""
    for group, base_lr in zip(optimizer.param_groups, base_lrs, strict=True):
        lr = group["lr"]
        lr = base_lr * factor  # noqa: F841 - that is the mistake


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
    ],
    expected=[[], [], ["2.bias", "2.weight"], ["2.bias", "2.weight"], ["1.bias", "1.weight"]],
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
