"""Where the photos of a data set can lie, for the record `remedies`: made once from a folder, then read in batches.

It knows folders and files; it times nothing but what each store takes to make.
"""

from __future__ import annotations

import os
import random
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

from course_utils.datasets import ArrayDataset, ImageFolderDataset, PackedPhotos, load_rgb, pack_photos
from course_utils.transforms import resize

NUM_TARS = 4


class PillowPhotos(Dataset):
    """Photos by Pillow, which can decode a JPEG at a half, a quarter or an eighth of its size.

    draft : take the smallest of these sizes that is not below `side`; else the whole photo is decoded
    """

    keyed = True  # it draws nothing

    def __init__(self, samples: list[tuple[Path, int]], side: int, *, draft: bool) -> None:
        self.samples, self.side, self.draft = samples, side, draft

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        path, target = self.samples[index]
        with Image.open(path) as image:
            if self.draft:
                image.draft("RGB", (self.side, self.side))
            pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
        return resize(pixels, self.side), target


def samples_of(root: Path) -> list[tuple[Path, int]]:
    """The photos of a folder and their classes, in the order of `ImageFolderDataset`."""
    found = ImageFolderDataset(root, decode=False)
    return [(found.path(index), target) for index, target in enumerate(found.targets.tolist())]


def folder(root: Path, side: int) -> ImageFolderDataset:
    """Each photo decoded whole when it is asked for, then resized."""
    return ImageFolderDataset(root, transform=partial(resize, size=side), decode=False)


def small_copies(samples: list[tuple[Path, int]], root: Path, side: int) -> Path:
    """The same folders with each photo saved again at `side` x `side`, quality 90."""
    for path, _ in samples:
        small = resize(load_rgb(path), side).permute(1, 2, 0).contiguous().numpy()
        _save(small, root / path.parent.name / path.name)
    return root


def decoded(dataset: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """Every photo, uint8 (N, 3, side, side), and its class; decoded once."""
    examples = [dataset[index] for index in range(len(dataset))]
    return torch.stack([image for image, _ in examples]), torch.tensor([target for _, target in examples])


def in_memory(images: torch.Tensor | np.ndarray, targets: torch.Tensor) -> ArrayDataset:
    return ArrayDataset(images, targets, classes=[str(number) for number in range(10)])


def tars(samples: list[tuple[Path, int]], root: Path, *, seed: int = 0) -> list[Path]:
    """The files as they are in four tar archives, dealt out at random: an order that is read in sequence is no draw."""
    shuffled = random.Random(seed).sample(samples, len(samples))
    root.mkdir(parents=True, exist_ok=True)
    paths = [root / f"photos-{number}-of-{NUM_TARS}.tar" for number in range(NUM_TARS)]
    for number, path in enumerate(paths):
        with tarfile.open(path, "w") as archive:
            for photo, target in shuffled[number::NUM_TARS]:
                archive.add(photo, arcname=f"{target}/{photo.name}")
    return paths


def read_tars(paths: list[Path]) -> Iterator[tuple[bytes, int]]:
    """(content, class) from the first byte of each archive to its last."""
    for path in paths:
        with tarfile.open(path, "r|") as archive:
            for member in archive:
                yield archive.extractfile(member).read(), int(member.name.split("/")[0])


def tar_batches(paths: list[Path], side: int, batch_size: int) -> Iterator[list[torch.Tensor]]:
    """Batches in the order of the archives; the archives are drawn anew by who calls it."""
    held = []
    for content, target in read_tars(paths):
        held.append((resize(load_rgb(content), side), target))
        if len(held) == batch_size:
            yield default_collate(held)
            held = []
    if held:
        yield default_collate(held)


def packed(samples: list[tuple[Path, int]], path: Path, side: int) -> PackedPhotos:
    pack_photos(samples, path)
    return PackedPhotos(path, transform=partial(resize, size=side))


def enlarged(samples: list[tuple[Path, int]], root: Path, *, factor: int) -> Path:
    """The same photos `factor` times as wide and high, with the fine grain that a camera's have, quality 90.

    Without the grain they would be smooth, with fewer bytes, and faster to decode than photos of that size are.
    """
    from PIL import Image

    noise = np.random.default_rng(0)
    for path, _ in samples:
        with Image.open(path) as image:
            large = image.resize((image.width * factor, image.height * factor), Image.Resampling.BICUBIC)
        grain = noise.normal(0, 5, (large.height, large.width, 1))
        _save((np.asarray(large) + grain).clip(0, 255).astype(np.uint8), root / path.parent.name / path.name)
    return root


def _save(pixels: np.ndarray, path: Path) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=90)


def disk_bytes(*paths: Path) -> int:
    """Of files, and of all files in folders."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def forget(paths: list[Path]) -> bool:
    """Ask the system to drop its copies of these files from memory; False where it cannot be asked.

    What lies below the system, as the memory of a disk or of a virtual machine's host, may still hold them.
    """
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return True


def byte_readers(root: Path, work: Path) -> dict[str, tuple[Callable[[], int], str, list[Path]]]:
    """Name: (a call that reads every photo's bytes and adds up how many, words, the files it reads)."""
    samples, record = samples_of(root), work / "bytes.packed"
    files, archives = [path for path, _ in samples], tars(samples, work / "byte-tars")
    photos = packed(samples, record, 8)
    order = random.Random(1).sample(range(len(samples)), len(samples))
    os.sync() if hasattr(os, "sync") else None  # what is not written yet cannot be forgotten
    return {
        "files": (lambda: sum(len(files[at].read_bytes()) for at in order), "in an order drawn once", files),
        "tar archives": (lambda: sum(len(content) for content, _ in read_tars(archives)), "in sequence", archives),
        "record file": (lambda: sum(len(photos.encoded(at)) for at in order), "in the order of files", [record]),
    }
