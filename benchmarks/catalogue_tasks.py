"""Two tasks on the photo catalogue, split by product: the class of a photo, and the next character of a caption.

It knows data and networks; it trains nothing.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from course_utils.catalogue import make_catalogue, read_index
from course_utils.randomness import BatchKey

NUM_PRODUCTS, SIDE, WINDOW = 2500, 32, 32  # products; pixels a side; characters a window of text
PARTS = {"train": (2, 3, 4), "val": (0,), "test": (1,)}  # product number modulo 5: no product is in two parts


class Examples:
    """Inputs and targets of any shape, in memory; a loader takes its batches by key."""

    def __init__(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, key: BatchKey) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch that `key` names."""
        places = torch.tensor(list(key))
        return self.inputs[places], self.targets[places]


class Task(NamedTuple):
    """A network (`build`, drawn weights) and the examples of a part: "train", "val" or "test"."""

    build: Callable[[], nn.Module]
    data: Callable[[str], Examples]


@functools.cache
def rows_of(part: str) -> list[dict[str, Any]]:
    """The rows of the catalogue's index whose products belong to a part."""
    return [row for row in read_index(_catalogue()) if row["product"] % 5 in PARTS[part]]


def _catalogue() -> Path:
    """Made once, in the temporary folder; found there afterwards."""
    root = Path(tempfile.gettempdir()) / f"course-benchmarks-catalogue-{NUM_PRODUCTS}"
    return make_catalogue(root, num_products=NUM_PRODUCTS, seed=0)


@functools.cache
def photos(part: str) -> Examples:
    """Photos float32 (N, 3, 32, 32), scaled by mean and deviation of the training photos; targets 0 .. 9."""
    own, scale = pixels(part), pixels("train")
    inputs = (own - scale.mean((0, 2, 3), keepdim=True)) / scale.std((0, 2, 3), keepdim=True)
    return Examples(inputs, torch.tensor([row["target"] for row in rows_of(part)]))


@functools.cache
def pixels(part: str) -> torch.Tensor:
    """All photos of a part, read once: float32 (N, 3, 32, 32) in 0 .. 255."""
    from PIL import Image

    root, how = _catalogue(), ((SIDE, SIDE), Image.Resampling.BILINEAR)
    images = [Image.open(root / row["path"]).convert("RGB").resize(*how) for row in rows_of(part)]
    return torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2).float().contiguous()


@functools.cache
def captions(part: str) -> Examples:
    """Captions, one a line, cut into windows: int64 (N, 32) characters, and as targets the one after each."""
    text = torch.tensor([alphabet().index(letter) for letter in _text(part)])
    length = (len(text) - 1) // WINDOW * WINDOW
    return Examples(text[:length].view(-1, WINDOW), text[1 : length + 1].view(-1, WINDOW))


def _text(part: str) -> str:
    return "".join(row["caption"] + "\n" for row in rows_of(part))


@functools.cache
def alphabet() -> list[str]:
    """The characters of all captions, and the line end."""
    return sorted({letter for part in PARTS for letter in _text(part)})


def photo_cnn(side: int = SIDE) -> nn.Sequential:
    """Three strided convolutions and a linear layer, float (B, 3, side, side) -> logits (B, 10); `side` of 8, 16, ...

    33,834 parameters at 32 pixels.
    """
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise((3, 16, 32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * (side // 8) ** 2, 10))


class CaptionGRU(nn.Module):
    """Next character: embedding 16, GRU 64, linear; int64 (B, T) -> logits (B, characters, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(alphabet()), 16)
        self.gru = nn.GRU(16, 64, batch_first=True)
        self.head = nn.Linear(64, len(alphabet()))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.embed(letters))[0]).transpose(1, 2)


TASKS = {"photos": Task(photo_cnn, photos), "captions": Task(CaptionGRU, captions)}
