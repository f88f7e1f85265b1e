"""Crop and flip of a whole batch by key, against torchvision's v2 image by image."""

from __future__ import annotations

import torch

from benchmarks.timing import Row, interleaved, ratio
from course_utils.randomness import BatchKey
from course_utils.transforms import crop_flip

BAR, BATCH_SIZE, PADDING = 1 / 3, 64, 4
SHAPES = ((1, 28, 28), (3, 32, 32), (3, 64, 64))


def _row(shape: tuple[int, int, int], rounds: int, calls: int) -> Row:
    from torchvision.transforms import v2

    images = torch.randint(0, 256, (BATCH_SIZE, *shape), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    targets, key = torch.zeros(BATCH_SIZE), BatchKey(0, 0, 0, range(BATCH_SIZE))
    each = v2.Compose([v2.RandomCrop(shape[1:], padding=PADDING), v2.RandomHorizontalFlip()])
    candidates = {
        "crop_flip": lambda: crop_flip(images, targets, key, padding=PADDING),
        "v2": lambda: torch.stack([each(image) for image in images]),
    }
    times = interleaved(candidates, rounds=rounds, calls=calls)
    name = f"crop_flip of {BATCH_SIZE} images of {' x '.join(map(str, shape))} over v2 image by image"
    return ratio("augment", name, times, "crop_flip", "v2", bar=BAR)


def measure(*, quick: bool = False) -> list[Row]:
    return [_row(shape, *((2, 1) if quick else (15, 5))) for shape in SHAPES]
