"""Photos from a folder to a batch: the package's path against the plain pipeline; labels without decoding.

Both make float32 (64, 3, 64, 64), normalised, moved by up to 4 pixels and mirrored at random, from JPEGs of about 100
pixels a side; an epoch of all photos is timed, each decoded anew. Plain: `PIL.Image.open`, torchvision's v1 transforms
photo by photo, `DataLoader` without workers. Before the draws the pixels are the same within 1 of
255: two decoders, and two roundings of one bilinear, antialiased resize. The draws differ: the package's are keyed.

With workers the row needs as many free cores; see `load_average` in the record.
"""

from __future__ import annotations

import tempfile
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.timing import Row, interleaved, ratio
from course_utils.catalogue import make_catalogue, read_index
from course_utils.image_folder import ImageFolderDataset
from course_utils.loaders import ResumableLoader
from course_utils.machine import usable_cpus
from course_utils.transforms import ComposeBatch, ToFloat, crop_flip, resize, with_transform

BAR, LABELS_BAR = 1 / 3, 1 / 1000
BATCH_SIZE, SIDE, MEAN, STD = 64, 64, (0.59, 0.56, 0.51), (0.19, 0.17, 0.19)


class PlainPhotos(Dataset):
    """As tutorials write it: a list of paths, Pillow, a v1 transform."""

    def __init__(self, root: Path) -> None:
        from torchvision import transforms as v1

        self.samples = [(str(root / row["path"]), row["target"]) for row in read_index(root)]
        steps = [v1.Resize((SIDE, SIDE)), v1.RandomCrop(SIDE, padding=4), v1.RandomHorizontalFlip()]
        self.transform = v1.Compose([*steps, v1.ToTensor(), v1.Normalize(MEAN, STD)])

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        path, target = self.samples[index]
        return self.transform(Image.open(path).convert("RGB")), target


def course_photos(root: Path) -> Dataset:
    """`ImageFolderDataset`, resized photo by photo, the rest batch by batch."""
    photos = ImageFolderDataset(root, transform=partial(resize, size=SIDE), decode=False)
    return with_transform(photos, batch_transform=ComposeBatch(crop_flip, ToFloat(MEAN, STD)))


def _epoch(loader: Any) -> Any:
    return lambda: deque(loader, maxlen=0)


def _epochs(root: Path, rounds: int) -> list[Row]:
    """Files to batches, without workers and with one for each core."""
    photos, workers = course_photos(root), {"num_workers": max(2, usable_cpus()), "persistent_workers": True}
    candidates = {
        "plain": _epoch(DataLoader(PlainPhotos(root), batch_size=BATCH_SIZE, shuffle=True)),
        "no workers": _epoch(ResumableLoader(photos, batch_size=BATCH_SIZE)),
        "workers": _epoch(ResumableLoader(photos, batch_size=BATCH_SIZE, **workers)),
    }
    times = interleaved(candidates, rounds=rounds)
    names = {"workers": f"{workers['num_workers']} workers", "no workers": "no workers"}
    return [
        ratio("photos", f"photos from files, {names[of]}, over the plain pipeline", times, of, "plain", bar=bar)
        for of, bar in (("workers", BAR), ("no workers", None))
    ]


def _labels(root: Path, rounds: int) -> Row:
    """Every label from `targets`, against taking each example for it."""
    photos = ImageFolderDataset(root, decode=False)
    candidates = {
        "targets": photos.targets.tolist,
        "examples": lambda: [photos[index][1] for index in range(len(photos))],
    }
    times = interleaved(candidates, rounds=rounds)
    return ratio(
        "photos", "labels from targets over labels from examples", times, "targets", "examples", bar=LABELS_BAR
    )


def measure(*, quick: bool = False) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = make_catalogue(Path(folder) / "photos", num_products=20 if quick else 500, seed=0)
        return [*_epochs(root, 2 if quick else 7), _labels(root, 2 if quick else 5)]
