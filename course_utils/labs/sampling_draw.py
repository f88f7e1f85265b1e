"""Epochs of any sampler, and which classes came: every order is one of `course_utils.sampling.EpochBatches`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from course_utils.sampling import EpochBatches, class_balanced_weights, undersample

WORLD_SIZE = 4
SAMPLERS = ("sequential", "shuffle", "with replacement", "weighted", "undersampling", f"rank 0 of {WORLD_SIZE}")


class Draw(NamedTuple):
    """What a sampler handed out over some epochs.

    targets  : the class of each example
    classes  : names by number
    epochs   : for each epoch its batches, each the indices of its examples
    expected : draws of each class, on average over all seeds
    """

    targets: list[int]
    classes: tuple[str, ...]
    epochs: list[list[list[int]]]
    expected: list[float]

    @property
    def drawn(self) -> list[int]:
        """Every index drawn, in order."""
        return [index for batches in self.epochs for batch in batches for index in batch]

    @property
    def counts(self) -> list[int]:
        """Draws of each class."""
        return self.count(self.drawn)

    def count(self, indices: Sequence[int]) -> list[int]:
        """Of `indices`, how many are of each class."""
        places = torch.tensor([self.targets[index] for index in indices], dtype=torch.int64)
        return torch.bincount(places, minlength=len(self.classes)).tolist()

    @property
    def ratio(self) -> float:
        """Draws of the most drawn class over those of the least; inf where a class was not drawn."""
        return max(self.counts) / min(self.counts) if min(self.counts) else math.inf

    @property
    def unseen(self) -> int:
        """Examples that no epoch drew."""
        return len(self.targets) - len(set(self.drawn))

    @property
    def repeats(self) -> int:
        """Draws of an example that had come before in the same epoch."""
        sizes = [[index for batch in batches for index in batch] for batches in self.epochs]
        return sum(len(indices) - len(set(indices)) for indices in sizes)


def draw(
    targets: Sequence[int],
    classes: Sequence[str],
    *,
    sampler: str,
    alpha: float = 1.0,
    batch_size: int = 32,
    num_epochs: int = 1,
    seed: int = 0,
) -> Draw:
    """`num_epochs` epochs of one sampler; a function of its arguments.

    targets  : int (N,), 0 .. len(classes) - 1
    sampler  : one of `SAMPLERS`
    alpha    : of "weighted": an example's weight is (examples of its class) ** -alpha; 0 draws as the data are
    raises   : ValueError for another sampler, or a class without examples

    "undersampling" takes of every class as many examples as the rarest has, others in each epoch.
    """
    targets = [int(target) for target in targets]
    sizes = torch.bincount(torch.tensor(targets), minlength=len(classes))
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {', '.join(SAMPLERS)}, got {sampler!r}")
    if len(sizes) != len(classes) or int(sizes.min()) == 0:
        raise ValueError(f"every class needs an example; examples of {', '.join(classes)}: {sizes.tolist()}")
    epochs = []
    for epoch in range(num_epochs):
        how = _how(sampler, targets, alpha=alpha, seed=seed, epoch=epoch)
        batches = EpochBatches(len(targets), batch_size=batch_size, seed=seed, **how)
        epochs.append([list(key.indices) for key in batches.keys(epoch)])
    return Draw(targets, tuple(classes), epochs, _expected(sampler, sizes.double(), alpha, num_epochs))


def _how(sampler: str, targets: list[int], *, alpha: float, seed: int, epoch: int) -> dict:
    """The arguments that make `EpochBatches` this sampler."""
    if sampler == "with replacement":
        return {"weights": torch.ones(len(targets))}
    if sampler == "weighted":
        return {"weights": class_balanced_weights(targets) ** alpha}
    if sampler == "undersampling":
        return {"indices": undersample(targets, seed=seed, epoch=epoch)}
    if sampler.startswith("rank"):
        return {"rank": 0, "world_size": WORLD_SIZE}
    return {"shuffle": sampler == "shuffle"}


def _expected(sampler: str, sizes: torch.Tensor, alpha: float, num_epochs: int) -> list[float]:
    shares = sizes
    if sampler == "weighted":
        shares = sizes ** (1 - alpha) / (sizes ** (1 - alpha)).sum() * sizes.sum()
    if sampler == "undersampling":
        shares = torch.full_like(sizes, sizes.min())
    if sampler.startswith("rank"):
        shares = sizes / WORLD_SIZE
    return (shares * num_epochs).tolist()
