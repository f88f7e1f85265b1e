"""A window of captions, cut and added up: its gradient beside the whole batch's, and the bytes that it keeps.

Every gradient and every byte is one of `course_utils.ragged`; no widget and no situation is known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from course_utils.ragged import activation_bytes, cut, window_gradient
from course_utils.randomness import isolated_rng

CLOSE, MOST_PARTS, MOST_EXAMPLES, WORDS, CLASSES, IGNORED = 1e-6, 6, 32, 8, 5, -100
ALL, ALIKE, VARYING, WHOLE = "none", "the same in each", "captions vary in length", "whole captions, the last"
SORTED = "short captions first"  # and only here each micro-batch is padded to its own longest caption
PLAIN, BATCH, FROZEN, GROUP = "no normalisation", "BatchNorm", "BatchNorm, frozen", "GroupNorm"
MEAN, SUM, EACH = "mean over words", "sum over words", "mean over captions"
WHERE, NORMS, LOSSES = (ALL, ALIKE, VARYING, WHOLE, SORTED), (PLAIN, BATCH, FROZEN, GROUP), (MEAN, SUM, EACH)


@dataclass(frozen=True)
class Setting:
    """A window of captions, how it is cut, and the rule that adds the micro-batches up.

    examples : captions in the window, each of `WORDS` targets
    ignored  : share of the targets that are ignored, 0 to 0.9
    where    : which: one of `WHERE`
    norm     : of the network: one of `NORMS`
    planned  : micro-batches in a full window
    loss     : what it is a mean or a sum over: one of `LOSSES`
    room     : the memory limit, in full captions
    lengths  : examples in each micro-batch, 0 for an empty one
    rule     : one of `RULES`
    """

    examples: int
    ignored: float = 0.0
    where: str = ALL
    norm: str = PLAIN
    planned: int = 4
    loss: str = MEAN
    room: int = 8
    lengths: tuple[int, ...] = ()
    rule: str = "divided by accumulate"

    @property
    def situation(self) -> Setting:
        """The same, without the reader's answer."""
        return replace(self, lengths=(), rule="divided by accumulate")


@lru_cache(maxsize=8)
def network(norm: str) -> nn.Module:
    """6 features -> 5 classes for each word; the same weights at every call, and no generator moves."""
    layers = {BATCH: nn.BatchNorm1d, FROZEN: nn.BatchNorm1d, GROUP: lambda width: nn.GroupNorm(4, width)}
    with isolated_rng():
        torch.manual_seed(0)
        norms = [layers[norm](32)] if norm in layers else []
        model = nn.Sequential(nn.Conv1d(6, 32, 1), *norms, nn.ReLU(), nn.Conv1d(32, CLASSES, 1))
    return model.eval() if norm == FROZEN else model.train()


def kept_targets(setting: Setting) -> list[int]:
    """How many of its `WORDS` targets count in each caption; one at least in the window.

    >>> kept_targets(Setting(4, 0.5, WHOLE)), kept_targets(Setting(4, 0.5, ALIKE))
    ([8, 8, 0, 0], [4, 4, 4, 4])
    """
    number, share = setting.examples, setting.ignored
    kept = WORDS - round(share * WORDS)
    if setting.where == ALIKE:
        return [max(1, kept)] * number
    if setting.where == WHOLE:
        full = max(1, number - round(share * number))
        return [WORDS] * full + [0] * (number - full)
    if setting.where in (VARYING, SORTED):
        room = min(kept, WORDS - kept)  # as many above the mean as below it
        vary = [max(1, kept - room + round(2 * room * (3 * place % 11) / 10)) for place in range(number)]
        return sorted(vary) if setting.where == SORTED else vary
    return [WORDS] * number


@lru_cache(maxsize=64)
def window_of(setting: Setting) -> tuple[torch.Tensor, torch.Tensor]:
    """inputs float32 (N, 6, T), targets int64 (N, T) with -100 where ignored; a function of the situation.

    Sorted captions are padded, with 0: what is ignored is not there at all.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(setting.examples, 6, WORDS, generator=generator)
    targets = torch.randint(CLASSES, (setting.examples, WORDS), generator=generator)
    counts = torch.arange(WORDS) < torch.tensor(kept_targets(setting))[:, None]
    there = counts[:, None] if setting.where == SORTED else torch.tensor(True)
    return torch.where(there, inputs, 0.0), torch.where(counts, targets, IGNORED)


class Unpadded(nn.Module):
    """A model that gets a micro-batch as a loader pads it: to its longest caption, not to the window's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, C, T) -> (B, classes, longest): what stands past the last column that is not 0 is not computed.

        Two columns at least: BatchNorm needs two values.
        """
        there = (inputs != 0).any(1).any(0).nonzero()
        longest = max(2, int(there[-1]) + 1 if len(there) else 0)
        return self.model(inputs[..., :longest].clone())  # a view would keep the whole


def loss_of(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """One of `LOSSES`, as a function of outputs (B, classes, T) and targets (B, at least T)."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        targets = targets[:, : outputs.size(-1)].clone()
        if name != EACH:
            return F.cross_entropy(outputs, targets, reduction="sum" if name == SUM else "mean")
        each = F.cross_entropy(outputs, targets, reduction="none").sum(1) / (targets != IGNORED).sum(1).clamp(min=1)
        return each.sum() / max(1, len(each))

    return loss


def counted(targets: torch.Tensor) -> int:
    """How many words count."""
    return int((targets != IGNORED).sum())


def even(examples: int, parts: int) -> tuple[int, ...]:
    """As a loader cuts: micro-batches of equal size, the last ones with what is left.

    >>> even(19, 3), even(32, 5), even(2, 3)
    ((7, 7, 5), (7, 7, 7, 7, 4), (1, 1, 0))
    """
    size = math.ceil(examples / parts)
    return between([size * place for place in range(1, parts)], examples)


def between(points: Sequence[int], examples: int) -> tuple[int, ...]:
    """The lengths between cut points, whatever their order; points past the end stand at the end."""
    ends = sorted(min(point, examples) for point in points)
    return tuple(after - before for before, after in pairwise([0, *ends, examples]))


class Found(NamedTuple):
    """A window's gradient beside the whole batch's.

    error  : |difference| / |whole|
    length : of the window's, as a share of the whole's
    cosine : of the angle between them; 0 where the window's is 0
    """

    error: float
    length: float
    cosine: float


@lru_cache(maxsize=2000)
def compare(setting: Setting) -> Found:
    """The gradient of the window as it is cut and added up, beside the whole batch's."""
    how = {"loss_fn": loss_of(setting.loss), "batch": window_of(setting.situation), "count_fn": counted}
    model = _model(setting)
    whole = window_gradient(model, lengths=[setting.examples], **how)
    found = window_gradient(model, lengths=setting.lengths, rule=setting.rule, accumulate=setting.planned, **how)
    cosine = float(F.cosine_similarity(found, whole, dim=0))
    return Found(float((found - whole).norm() / whole.norm()), float(found.norm() / whole.norm()), cosine)


def _model(setting: Setting) -> nn.Module:
    model = network(setting.norm)
    return Unpadded(model) if setting.where == SORTED else model


@lru_cache(maxsize=2000)
def part_bytes(situation: Setting, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The bytes that each micro-batch keeps for backward; the largest must fit."""
    model, loss, parts = _model(situation), loss_of(situation.loss), cut(window_of(situation), lengths)
    return tuple(activation_bytes(model, loss, part, [length]) for part, length in zip(parts, lengths, strict=True))


def kept_bytes(situation: Setting, lengths: tuple[int, ...]) -> int:
    """The most bytes kept for backward at once."""
    return max(part_bytes(situation, lengths))


@lru_cache(maxsize=100)
def limit_bytes(setting: Setting) -> int:
    """The memory limit: what `room` full captions take in this network."""
    return kept_bytes(Setting(setting.room, norm=setting.norm, loss=setting.loss), (setting.room,))
