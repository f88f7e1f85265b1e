"""What an optimizer holds: param groups without decay on norms and biases, and a check that nothing was left out.

It knows a model's parameters and an optimizer's groups; it knows no lr. `schedules` re-exports its names.
"""

from __future__ import annotations

import math
from collections import Counter

from torch import nn
from torch.optim import Optimizer


def decay_groups(model: nn.Module, *, weight_decay: float) -> list[dict]:
    """Two param groups: what has two or more dimensions decays, except in LayerNorm and RMSNorm.

    Only the number of dimensions counts, not the role: weights of linear and convolution layers, embeddings and a
    positional embedding (T, C) decay, and so would a bias kept as (1, 8). Biases (8,), the weights of norms and single
    numbers do not.

    weight_decay : of the first group, 0 or more
    returns      : [{"params", "weight_decay": weight_decay}, {"params", "weight_decay": 0.0}], trainable parameters
                   only, each once; a group without parameters is left out
    raises       : ValueError for a weight_decay that is below 0 or not finite
    """
    if not (weight_decay >= 0 and math.isfinite(weight_decay)):
        raise ValueError(f"weight_decay must be a finite number, 0 or more, got {weight_decay}: below 0 weights grow")
    norms = [module for module in model.modules() if isinstance(module, (nn.LayerNorm, nn.RMSNorm))]
    of_norms = {id(param) for norm in norms for param in norm.parameters()}  # those may have more dimensions
    decayed = {"params": [], "weight_decay": weight_decay}
    kept = {"params": [], "weight_decay": 0.0}
    for param in model.parameters():
        if param.requires_grad:
            group = kept if param.dim() < 2 or id(param) in of_norms else decayed
            group["params"].append(param)
    return [group for group in (decayed, kept) if group["params"]]


def check_optimizer_covers(model: nn.Module, optimizer: Optimizer) -> None:
    """See that every trainable parameter of `model` is in `optimizer`, exactly once, and nothing else is.

    Replace a layer after the optimizer was made, and the new one never trains, without an error.

    raises : ValueError that names the missing, the repeated, and counts the foreign ones
    """
    held = Counter(id(param) for group in optimizer.param_groups for param in group["params"])
    names = {id(param): name for name, param in model.named_parameters()}
    missing = [name for name, param in model.named_parameters() if param.requires_grad and id(param) not in held]
    repeated = [names[key] for key, times in held.items() if key in names and times > 1]
    foreign = sum(times for key, times in held.items() if key not in names)
    if missing or repeated or foreign:
        raise ValueError(
            f"the optimizer does not hold the model's parameters: missing {missing}, repeated {repeated}, and "
            f"{foreign} that belong to no module of it; build the optimizer after the last change of the model"
        )
