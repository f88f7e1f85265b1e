"""A window of captions, cut and added up: its gradient beside the whole batch's, and the bytes that it keeps.

Every gradient and every byte is one of `course_utils.ragged`; no widget and no situation is known here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from course_utils.ragged import activation_bytes, window_gradient
from course_utils.randomness import isolated_rng

CLOSE, FITS, MOST_PARTS, MOST_EXAMPLES, TOKENS, CLASSES, IGNORED = 1e-6, 8, 6, 32, 8, 5, -100
ALL, ALIKE, VARYING, WHOLE = "none", "the same in each", "captions vary in length", "whole captions, the last"
PLAIN, BATCH, FROZEN, GROUP = "no normalisation", "BatchNorm", "BatchNorm, frozen", "GroupNorm"
WHERE, NORMS = (ALL, ALIKE, VARYING, WHOLE), (PLAIN, BATCH, FROZEN, GROUP)


@dataclass(frozen=True)
class Setting:
    """A window of captions, how it is cut, and the rule that adds the micro-batches up.

    examples : captions in the window, each of `TOKENS` targets
    ignored  : share of the targets that are ignored, 0 to 0.9
    where    : which: one of `WHERE`
    norm     : of the network: one of `NORMS`
    planned  : micro-batches in a full window
    lengths  : examples in each micro-batch, 0 for an empty one
    rule     : one of `RULES`
    """

    examples: int
    ignored: float = 0.0
    where: str = ALL
    norm: str = PLAIN
    planned: int = 4
    lengths: tuple[int, ...] = ()
    rule: str = "divided by accumulate"

    @property
    def situation(self) -> Setting:
        """The same, without the reader's answer."""
        return replace(self, lengths=(), rule="divided by accumulate")


@lru_cache(maxsize=8)
def network(norm: str) -> nn.Module:
    """6 features -> 5 classes for each token; the same weights at every call, and no generator moves."""
    layers = {BATCH: nn.BatchNorm1d, FROZEN: nn.BatchNorm1d, GROUP: lambda width: nn.GroupNorm(4, width)}
    with isolated_rng():
        torch.manual_seed(0)
        norms = [layers[norm](32)] if norm in layers else []
        model = nn.Sequential(nn.Conv1d(6, 32, 1), *norms, nn.ReLU(), nn.Conv1d(32, CLASSES, 1))
    return model.eval() if norm == FROZEN else model.train()


def kept_targets(setting: Setting) -> list[int]:
    """How many of its `TOKENS` targets count in each caption; one at least in the window.

    >>> kept_targets(Setting(4, 0.5, WHOLE)), kept_targets(Setting(4, 0.5, ALIKE))
    ([8, 8, 0, 0], [4, 4, 4, 4])
    """
    number, share = setting.examples, setting.ignored
    kept = TOKENS - round(share * TOKENS)
    if setting.where == ALIKE:
        return [max(1, kept)] * number
    if setting.where == WHOLE:
        full = max(1, number - round(share * number))
        return [TOKENS] * full + [0] * (number - full)
    if setting.where == VARYING:
        room = min(kept, TOKENS - kept)  # as many above the mean as below it
        return [max(1, kept - room + round(2 * room * (3 * place % 11) / 10)) for place in range(number)]
    return [TOKENS] * number


@lru_cache(maxsize=64)
def window_of(setting: Setting) -> tuple[torch.Tensor, torch.Tensor]:
    """inputs float32 (N, 6, T), targets int64 (N, T) with -100 where ignored; a function of the situation."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(setting.examples, 6, TOKENS, generator=generator)
    targets = torch.randint(CLASSES, (setting.examples, TOKENS), generator=generator)
    kept = torch.tensor(kept_targets(setting))
    return inputs, torch.where(torch.arange(TOKENS) < kept[:, None], targets, IGNORED)


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
    how = {"loss_fn": F.cross_entropy, "batch": window_of(setting.situation)}
    model = network(setting.norm)
    whole = window_gradient(model, lengths=[setting.examples], **how)
    found = window_gradient(model, lengths=setting.lengths, rule=setting.rule, accumulate=setting.planned, **how)
    cosine = float(F.cosine_similarity(found, whole, dim=0))
    return Found(float((found - whole).norm() / whole.norm()), float(found.norm() / whole.norm()), cosine)


@lru_cache(maxsize=2000)
def kept_bytes(situation: Setting, lengths: tuple[int, ...]) -> int:
    """The most bytes kept for backward at once."""
    return activation_bytes(network(situation.norm), F.cross_entropy, window_of(situation), lengths)


def limit_bytes(norm: str) -> int:
    """The memory there is: what 8 captions take."""
    return kept_bytes(Setting(FITS, norm=norm), (FITS,))
