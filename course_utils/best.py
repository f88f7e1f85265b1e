"""The best validation of a run: its metric, its step, its weights; and when waiting for a better one is over.

It knows evaluations and a model's state dict; it validates nothing and opens no file.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from course_utils.evaluation import Evaluation, unwrap


class Best:
    """Sees every validation; keeps the best one and counts those without progress.

    keep_model : keep a copy of the weights, on the CPU: a validation takes far longer than the copy, and the device's
                 memory is dear
    patience   : validations without progress in a row after which `stalled` is true; None for never
    min_delta  : progress is a score more than this above the score of the last progress

    The score is the accuracy, or -loss where there is none; of equal ones the first is the best.
    `metric` is {"accuracy", "loss", "step"} of the best validation and `model` its weights; None before the first.
    """

    def __init__(self, *, keep_model: bool = True, patience: int | None = None, min_delta: float = 0.0) -> None:
        if patience is not None and patience < 1:
            raise ValueError(f"patience needs 1 or more validations, or None for no early stop; got {patience}")
        if not 0 <= min_delta < math.inf:
            raise ValueError(f"min_delta needs a number >= 0, got {min_delta}")
        self.keep_model, self.patience, self.min_delta = keep_model, patience, min_delta
        self.metric: dict[str, Any] | None = None
        self.model: dict[str, Any] | None = None
        self._progress, self.waited = -math.inf, 0

    @property
    def stalled(self) -> bool:
        """Were the last `patience` validations all without progress?"""
        return self.patience is not None and self.waited >= self.patience

    def see(self, found: Evaluation, step: int, model: nn.Module) -> bool:
        """Count one validation; returns whether it is the best so far."""
        score = _score(found.accuracy, found.loss)
        progress = score > self._progress + self.min_delta
        self._progress, self.waited = (score, 0) if progress else (self._progress, self.waited + 1)
        if self.metric is not None and score <= _score(self.metric["accuracy"], self.metric["loss"]):
            return False
        self.metric = {"accuracy": found.accuracy, "loss": found.loss, "step": step}
        if self.keep_model:
            self.model = copied(unwrap(model).state_dict())
        return True

    def state_dict(self) -> dict[str, Any]:
        """Metric, weights and what the patience counts; without the weights a resumed run could end with worse ones."""
        return {"metric": self.metric, "model": self.model, "progress": self._progress, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.metric, self.model = state["metric"], state["model"]
        self._progress, self.waited = state["progress"], state["waited"]


def _score(accuracy: float | None, loss: float) -> float:
    return -loss if accuracy is None else accuracy


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """A state dict, its tensors copied to the CPU; `state_dict()` itself is a view, which training goes on changing."""
    return {
        name: value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value
        for name, value in state.items()
    }
