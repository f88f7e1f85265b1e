"""What the photo records share: all photos as one table, one training on some of them, shares of right answers.

It knows the photo task of `catalogue_tasks`; each record chooses its own parts, orders and transforms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from benchmarks.catalogue_tasks import PARTS, Examples, photo_cnn, photos, rows_of
from benchmarks.trainings import fit_whole, initial
from course_utils.loaders import ResumableLoader
from course_utils.sampling import EpochBatches
from course_utils.training_loop import Trainer

LOSS_FN, BATCH_SIZE = nn.functional.cross_entropy, 32


@functools.cache
def all_photos() -> tuple[Examples, list[dict[str, Any]]]:
    """Every photo, scaled, and its row of the index, in the same order."""
    parts = [photos(part) for part in PARTS]
    inputs, targets = (torch.cat([getattr(part, name) for part in parts]) for name in ("inputs", "targets"))
    return Examples(inputs, targets), [row for part in PARTS for row in rows_of(part)]


def make_trainer(
    lr: float, seed: int, build: Callable[[], nn.Module] = photo_cnn, loss_fn: Callable = LOSS_FN
) -> Trainer:
    """AdamW with a constant lr; the initial weights are a function of `seed`."""
    model = initial(build, seed)
    return Trainer(model, torch.optim.AdamW(model.parameters(), lr=lr), loss_fn)


def batches_of(data: Examples, seed: int, **how: Any) -> ResumableLoader:
    """Batches of 32 in an order that is a function of `seed`; `indices` and `weights` as `EpochBatches` takes them."""
    return ResumableLoader(data, batches=EpochBatches(len(data), batch_size=BATCH_SIZE, seed=seed, **how))


def at_steps(trainer: Trainer, loader: Any, steps: Sequence[int]) -> Iterator[int]:
    """Train to the largest of `steps` (ascending), stopping at each of them for a look; raises as `fit_whole` does."""
    for step in steps:
        fit_whole(trainer, loader, step)
        yield step


@torch.no_grad()
def predictions(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """The class of the largest logit, int64 (N,), in evaluation mode."""
    model.eval()
    found = torch.cat([model(chunk).argmax(1) for chunk in inputs.split(500)])
    model.train()
    return found


def accuracy(model: nn.Module, data: Examples) -> float:
    """Share of right answers, to four digits."""
    return round((predictions(model, data.inputs) == data.targets).double().mean().item(), 4)
