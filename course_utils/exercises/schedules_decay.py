"""The exercise of chapter 07 about param groups that decay and others that do not."""

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
    return {name: _decay_of(q, decays) for name, q in model.named_parameters()}


def _decay_difference(expected: dict, got: dict) -> str | None:
    """A parameter that is not held once is told first, by name: "0.weight is in no group"."""
    lost = (f"{name} is {place}" for name, place in got.items() if isinstance(place, str) and expected[name] != place)
    return next(lost, None) or difference(expected, got)


def _decay_of(parameter: nn.Parameter, decays: list[tuple[torch.Tensor, float]]) -> float | str:
    found = [decay for p, decay in decays if p is parameter]
    if not found and any(p.data_ptr() == parameter.data_ptr() for p, _ in decays):
        return "in no group, only a detached tensor with its values"
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
    convolution kernels (4 dimensions) and embeddings are not vectors.

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


@decay_groups.wrong
def takes_detached_tensors(model, weight_decay):
    """The groups hold detached tensors, as state_dict().values() and parameter.data give them. They share the values
    but no backward() gives them a gradient, so step() skips them. Take model.parameters()."""
    values = [value for value in model.state_dict().values() if value.is_floating_point()]
    return [
        {"params": [v for v in values if v.ndim >= 2], "weight_decay": weight_decay},
        {"params": [v for v in values if v.ndim < 2], "weight_decay": 0.0},
    ]
