"""A moving average with its decisions as arguments: most wrong answers of its exercise are forms of it."""

from __future__ import annotations

from typing import Any

import torch


def warm(decay: float, n: int) -> float:
    return min(decay, (1 + n) / (10 + n))


def averaged(
    ema,
    model,
    decay,
    skipped,
    *,
    start=torch.clone,
    tensors="all",
    decay_of=warm,
    swaps=False,
    begins=0,
    adds=1,
    ints="copied",
    buffers="averaged",
    heeds_skips=True,
    fills_only=True,
    is_float=lambda name, tensor: tensor.is_floating_point(),
) -> None:
    """The answer with its decisions as arguments.

    start    : what the first average is made of a present value
    tensors  : "all" or "parameters"
    decay_of : (decay, updates before) -> decay
    ints     : "copied", "shared", "kept" or "averaged"; buffers : "averaged", "copied" or "kept"
    fills_only : the call before training does nothing else
    is_float : (name, tensor) -> whether it is averaged, where the rest is said to be of whole numbers
    """
    parameters = {name for name, _ in model.named_parameters()}
    now = {name: t for name, t in model.state_dict().items() if tensors == "all" or name in parameters}
    if not ema:
        ema.update(num_updates=begins, average={name: start(tensor) for name, tensor in now.items()})
        if fills_only:
            return
    if skipped and heeds_skips:
        return
    share = decay_of(decay, ema["num_updates"])
    share = 1 - share if swaps else share
    for name, average in ema["average"].items():
        how = ints if not is_float(name, now[name]) else "averaged" if name in parameters else buffers
        if how in ("copied", "shared"):
            ema["average"][name] = now[name].clone() if how == "copied" else now[name]
        elif how == "averaged":
            ema["average"][name] = share * average + (1 - share) * now[name]
    ema["num_updates"] += adds


class WithGraph:
    """A model whose state holds the parameters themselves."""

    def __init__(self, model) -> None:
        self.named_parameters = model.named_parameters
        self.state = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def state_dict(self) -> dict[str, Any]:
        return self.state
