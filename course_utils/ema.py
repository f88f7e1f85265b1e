"""A moving average of a model's weights: often better at evaluation than the weights it averages.

It knows a model's tensors by name; it holds no model, and knows no loop. `optimizer_step` re-exports `EMA`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from course_utils.evaluation import unwrap


class EMA:
    """Exponential moving average of a model's weights: average = decay * average + (1 - decay) * weights.

    model  : the average starts as a copy of its weights; it is not kept (under DDP or torch.compile it is unwrapped)
    decay  : in [0, 1): the average looks back over about 1 / (1 - decay) updates
    warmup : begin with a smaller decay, (1 + n) / (10 + n) after n updates, until that passes `decay`. Without it the
             untrained start keeps a share of decay ** n: after 1,000 updates with 0.999 still 37 %; with it, after 10
             updates, 1e-5.
    raises : ValueError for a decay outside [0, 1)

    Averaged are parameters (frozen and tied ones too) and the floating-point buffers that a state dict holds, such as
    BatchNorm's running statistics: those of the present weights would not fit averaged ones. Whole numbers and buffers
    that are not finite at the start (a mask of -inf) are copied. Averages of float16 and bfloat16 tensors are kept in
    float32, where a step of 1 - decay is not rounded away.
    """

    def __init__(self, model: nn.Module, *, decay: float = 0.999, warmup: bool = True) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"decay must be at least 0 and below 1, got {decay}: 1 would never leave the start")
        self.decay, self.warmup, self.num_updates = decay, warmup, 0
        saved = unwrap(model).state_dict().keys()
        self.average = {name: _wide(tensor) for name, tensor in _tensors(model).items() if name in saved}
        self.copied = {name for name, tensor in self.average.items() if not _is_averaged(tensor)}
        self._applied = False

    @property
    def next_decay(self) -> float:
        """The decay that the next update uses."""
        return min(self.decay, (1 + self.num_updates) / (10 + self.num_updates)) if self.warmup else self.decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take the present weights into the average: once after each step that was made, not for a skipped one.

        raises : ValueError for a model with other tensors; RuntimeError inside `applied`, where the weights are the
                 average itself
        """
        if self._applied:
            raise RuntimeError("EMA.update inside `applied`: the weights are the average there; leave the block first")
        now = self._matching(_tensors(model))
        pairs = [(self.average[name], now[name].to(self.average[name])) for name in now if name not in self.copied]
        averages, weights = [list(side) for side in zip(*pairs, strict=True)] if pairs else ([], [])
        if averages:
            torch._foreach_lerp_(averages, weights, 1 - self.next_decay)
        for name in self.copied:
            self.average[name].copy_(now[name])
        self.num_updates += 1

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[nn.Module]:
        """The average in the model's own tensors inside the block; its weights are put back, also on an exception.

        What is changed in the model inside the block (a training step, BatchNorm's statistics) is lost.
        """
        now = self._matching(_tensors(model))
        kept = {name: tensor.clone() for name, tensor in now.items()}
        before, self._applied = self._applied, True
        try:
            _copy(self.average, now)
            yield model
        finally:
            _copy(kept, now)
            self._applied = before

    def state_dict(self) -> dict[str, Any]:
        """The averages, copied, the counter and the settings."""
        average = {name: tensor.clone() for name, tensor in self.average.items()}
        return {"num_updates": self.num_updates, "decay": self.decay, "warmup": self.warmup, "average": average}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy a saved state in; it is not shared afterwards.

        raises : ValueError for other settings, or tensors of other names or shapes; RuntimeError inside `applied`,
                 where the model holds the average that would be replaced; nothing is loaded then
        """
        if self._applied:
            raise RuntimeError(
                "EMA.load_state_dict inside `applied`: the model holds the average of before; leave the block first"
            )
        for name in ("decay", "warmup"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"cannot load: the EMA's {name} was {state[name]} when saved and is {getattr(self, name)} now"
                )
        _copy(self._matching(state["average"]), self.average)
        self.num_updates = state["num_updates"]

    def _matching(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Those of `tensors` that are averaged here."""
        found = {name: tensors[name] for name in self.average if name in tensors}
        wrong = [name for name in self.average if name not in found or found[name].shape != self.average[name].shape]
        if wrong:
            mine, theirs = (_shapes(of, wrong) for of in (self.average, found))
            raise ValueError(f"the EMA was made of another model: it holds {mine}, and got {theirs}")
        return found


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name, each once."""
    model = unwrap(model)
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def _shapes(tensors: dict[str, torch.Tensor], names: list[str]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensors[name].shape) for name in names if name in tensors}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.clone()


def _is_averaged(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and bool(torch.isfinite(tensor).all())


@torch.no_grad()
def _copy(values: dict[str, torch.Tensor], into: dict[str, torch.Tensor]) -> None:
    for name, tensor in into.items():
        tensor.copy_(values[name])
