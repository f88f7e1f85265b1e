"""What an epoch by hand is asked: a model, an optimizer and a loss that remember what was done with them."""

from __future__ import annotations

import weakref

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course_utils.exercises.facts import Said

_ORDER, _MODES = "what happened, in order", "the mode of the model, at each forward"
_GRADIENTS, _WEIGHT = "the gradient that each update was made from", "the weight at the end"
_MEAN, _GRAPHS = "the mean loss", "graphs of earlier batches, when a loss is computed"
_WITH_GRAPH = Said("with its graph", "a tensor with its graph (.item() takes the number)")
_LR, _MODE = 0.125, {True: "training", False: "evaluation"}


class _Weight(nn.Module):
    """One weight, 1 at the beginning; remembers the modes at each forward. `happened` is the diary of all parts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.modes, self.happened = nn.Parameter(torch.ones(())), [], []
        self.dropout = nn.Dropout(0.0)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        own, inner = (_MODE[module.training] for module in (self, self.dropout))
        self.modes.append(own if own == inner else f"{own}, its Dropout in {inner}")
        self.happened.append("forward")
        return self.weight * inputs


class _RecordingSGD(torch.optim.SGD):
    """Plain SGD that remembers the gradient of each update; also of one that a closure computes."""

    def __init__(self, model: _Weight) -> None:
        super().__init__(model.parameters(), lr=_LR)
        self.gradients: list[float | None] = []
        self.happened = model.happened

    def step(self, closure=None):
        loss = super().step(closure)
        self.happened.append("step")
        (parameter,) = self.param_groups[0]["params"]
        self.gradients.append(None if parameter.grad is None else parameter.grad.item())
        return loss


class _Mark:
    """Lives as long as the graph that it was put into."""


class _Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, marks, happened):
        ctx.mark, ctx.happened = _Mark(), happened
        marks.append(weakref.ref(ctx.mark))
        return loss.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.happened.append("backward")
        return grad, None, None


class _MeanSquare:
    """The mean square error of a batch; knows how many graphs of earlier losses are still there."""

    def __init__(self, happened: list[str]) -> None:
        self.marks, self.happened, self.most_alive = [], happened, 0

    def __call__(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.most_alive = max(self.most_alive, sum(mark() is not None for mark in self.marks))
        return _Marked.apply((outputs - targets).square().mean(), self.marks, self.happened)


def prepared_epoch(
    num_examples: int, batch_size: int, drop_last: bool, training: bool, left_over: float | None
) -> tuple:
    """Inputs 1, 1, 2, 1, 1, 2 ..., targets 3, 2, 2, 3, 2, 2, ...; all results are exact."""
    model, places = _Weight().train(training), torch.arange(num_examples) % 3
    if left_over is not None:
        model.weight.grad = torch.tensor(left_over)
    dataset = TensorDataset(torch.tensor([1.0, 1.0, 2.0])[places], torch.tensor([3.0, 2.0, 2.0])[places])
    batches = DataLoader(dataset, batch_size=batch_size, drop_last=drop_last)
    return model, _RecordingSGD(model), _MeanSquare(model.happened), batches


def epoch_facts(result, model, optimizer, loss_fn, batches) -> dict:
    """What happened in the epoch, what came of it, and what was kept."""
    many = loss_fn.most_alive > 2  # the loop's own variables hold one or two until they are bound again
    alive = Said("more with every batch", f"{loss_fn.most_alive} of {len(loss_fn.marks)}")
    return {
        _ORDER: model.happened,
        _MODES: model.modes,
        _GRADIENTS: optimizer.gradients,
        _WEIGHT: model.weight.item(),
        _MEAN: _WITH_GRAPH if _has_graph(result) else result,
        _GRAPHS: alive if many else "one at most",
    }


def _has_graph(result) -> bool:
    return isinstance(result, torch.Tensor) and result.requires_grad


def epoch_by_hand(gradients: list[float], weight: float, mean: float) -> dict:
    """The facts of a sound epoch with these gradients, one a batch."""
    num = len(gradients)
    facts = {_ORDER: ["forward", "backward", "step"] * num, _MODES: ["training"] * num, _GRADIENTS: gradients}
    return facts | {_WEIGHT: weight, _MEAN: mean, _GRAPHS: "one at most"}
