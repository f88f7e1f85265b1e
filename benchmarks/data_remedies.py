"""The data side of the record `remedies`: what an example costs, each way beside the plain one.

Tables: what it costs to read and decode a photo (uint8 batches), small and large ones; what the random transforms add
(uint8 to float32); both together; and the undecoded bytes alone, with and without the system's copies in memory.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks import photo_stores as stores
from benchmarks.costs import compared, digits, milliseconds
from benchmarks.timing import interleaved
from course_utils.datasets import ImageFolderDataset, map_images
from course_utils.loaders import ResumableLoader
from course_utils.randomness import BatchKey
from course_utils.transforms import ComposeBatch, ToFloat, V2Batch, crop_flip, resize, with_transform

BATCH_SIZE, SIDE, NUM_LARGE, FACTOR = 64, 64, 64, 10
MEAN, STD, PADDING = (0.59, 0.56, 0.51), (0.19, 0.17, 0.19), 4

Row = dict[str, Any]


class Store:
    """What a way reads from, and what it took to make: seconds once, bytes on disk, bytes in this process."""

    def __init__(self, words: str, make: Callable[[], Any], *files: Path, in_ram: bool = False) -> None:
        began = time.perf_counter()
        self.words, self.made = words, make()
        self.seconds, self.disk = time.perf_counter() - began, stores.disk_bytes(*files)
        self.ram = self.made.images.nbytes if in_ram else 0

    @property
    def is_tars(self) -> bool:
        return isinstance(self.made, list)

    def epoch(self) -> Callable[[], Any]:
        """A call that makes all batches of an epoch, in another order each time; no workers."""
        if self.is_tars:  # the order of the archives alone is drawn
            draw, paths = random.Random(0), self.made
            return lambda: deque(stores.tar_batches(draw.sample(paths, len(paths)), SIDE, BATCH_SIZE), maxlen=0)
        return epoch_of(self.made)

    def row(self, plain: torch.Tensor) -> Row:
        """Without times; the difference from the plain way's pixels is a mean, of 255."""
        pixels = None if self.is_tars else stores.decoded(self.made)[0].float()  # archives come in another order
        difference = None if pixels is None else digits(float((pixels - plain.float()).abs().mean()))
        found = {"words": self.words, "prepare_s": digits(self.seconds), "disk_bytes": self.disk, "ram_bytes": self.ram}
        return found | {"mean_difference": difference}


def epoch_of(dataset: Dataset) -> Callable[[], Any]:
    loader = ResumableLoader(dataset, batch_size=BATCH_SIZE)
    return lambda: deque(loader, maxlen=0)


def measured(found: dict[str, Store], plain: torch.Tensor, rounds: int) -> dict[str, Row]:
    times = interleaved({name: store.epoch() for name, store in found.items()}, rounds=rounds)
    return compared(
        {name: store.row(plain) | milliseconds(times[name], per=len(plain)) for name, store in found.items()}
    )


def from_files(root: Path, work: Path) -> dict[str, Store]:
    """The ways that decode each photo whenever it is asked for, from files of its own."""
    samples, copies = stores.samples_of(root), work / "copies"
    files = [path for path, _ in samples]
    return {
        "files": Store("each file decoded whole by load_rgb, then resized", lambda: stores.folder(root, SIDE), *files),
        "files, Pillow": Store("the same by Pillow", lambda: stores.PillowPhotos(samples, SIDE, draft=False), *files),
        "files, Pillow draft": Store(
            "by Pillow at the smallest of 1/1, 1/2, 1/4, 1/8 that is not below the size asked for, then resized",
            lambda: stores.PillowPhotos(samples, SIDE, draft=True),
            *files,
        ),
        "small copies": Store(
            "saved again once at 64 x 64, quality 90; the copies are decoded each time",
            lambda: stores.folder(stores.small_copies(samples, copies, SIDE), SIDE),
            copies,
        ),
    }


def from_one_place(root: Path, work: Path) -> dict[str, Store]:
    """The ways that read from few files, or from none."""
    samples, array, archives, record = (
        stores.samples_of(root),
        work / "photos.mapped",
        work / "tars",
        work / "photos.packed",
    )

    def cached() -> Dataset:
        return stores.in_memory(*stores.decoded(stores.folder(root, SIDE)))

    return {
        "tar archives": Store(
            "the files in four archives, read from first byte to last; only the order of the archives is drawn",
            lambda: stores.tars(samples, archives),
            archives,
        ),
        "record file": Store(
            "pack_photos: the encoded photos in one file with an index, decoded each time",
            lambda: stores.packed(samples, record, SIDE),
            record,
        ),
        "mapped array": Store(
            "map_images: decoded once to uint8 64 x 64, in one file whose pages are read when they are looked at",
            lambda: map_images(ImageFolderDataset(root, decode=False), array, size=SIDE),
            array,
        ),
        "in memory": Store("decoded once to uint8 64 x 64, kept in this process", cached, in_ram=True),
    }


def reading(root: Path, work: Path, *, rounds: int) -> dict[str, Row]:
    """The catalogue's photos, 88 to 112 pixels a side, as uint8 batches of 64 x 64."""
    plain, _ = stores.decoded(stores.folder(root, SIDE))
    return measured(from_files(root, work) | from_one_place(root, work), plain, rounds)


def large_photos(root: Path, work: Path, *, rounds: int, number: int = NUM_LARGE) -> dict[str, Row]:
    """Photos ten times as wide and high, as uint8 batches of 64 x 64."""
    large = stores.enlarged(stores.samples_of(root)[::7][:number], work / "large", factor=FACTOR)
    plain, _ = stores.decoded(stores.folder(large, SIDE))
    found = from_files(large, work / "of-large")
    cached = Store(
        "decoded once to uint8 64 x 64, kept in this process",
        lambda: stores.in_memory(*stores.decoded(stores.folder(large, SIDE))),
        in_ram=True,
    )
    return measured(found | {"in memory": cached}, plain, rounds)


def v2_transform() -> Callable:
    """Crop, flip and scale of one image or of a batch, by torchvision."""
    from torchvision.transforms import v2

    steps = [v2.RandomCrop(SIDE, padding=PADDING), v2.RandomHorizontalFlip()]
    return v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


def transforms(*, rounds: int) -> dict[str, Row]:
    """Uint8 batches of 64 photos of 64 x 64 in memory to float32, moved, mirrored and normalised; ms an example."""
    images = torch.randint(0, 256, (BATCH_SIZE, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(0)).byte()
    targets, key, each = torch.zeros(BATCH_SIZE), BatchKey(0, 0, 0, range(BATCH_SIZE)), v2_transform()
    batched, whole = V2Batch(v2_transform()), ComposeBatch(crop_flip, ToFloat(MEAN, STD))
    ways = {
        "v2, example by example": lambda: torch.stack([each(image) for image in images]),
        "V2Batch": lambda: batched(images, targets, key),
        "crop_flip and ToFloat": lambda: whole(images, targets, key),
    }
    words = ("each photo its own draw", "the same draw for all photos of a batch", "each photo its own draw, keyed")
    times = interleaved(ways, rounds=rounds, calls=3)
    rows = zip(ways, words, strict=True)
    return compared({name: {"words": said} | milliseconds(times[name], per=BATCH_SIZE) for name, said in rows})


def together(root: Path, *, rounds: int) -> dict[str, Row]:
    """From a photo to its place in a float32 batch: two ways to read it with two ways to transform it."""
    files, each, batched = stores.folder(root, SIDE), v2_transform(), ComposeBatch(crop_flip, ToFloat(MEAN, STD))
    cached = stores.in_memory(*stores.decoded(files))
    one_by_one = ImageFolderDataset(root, decode=False, transform=lambda image: each(resize(image, SIDE)))
    ways = {
        "files, example by example": (one_by_one, "load_rgb, resize and v2 for each photo"),
        "files, batched": (with_transform(files, batch_transform=batched), "then crop_flip and ToFloat for the batch"),
        "in memory, example by example": (with_transform(cached, each), "decoded once; v2 for each photo"),
        "in memory, batched": (with_transform(cached, batch_transform=batched), "decoded once; crop_flip and ToFloat"),
    }
    times = interleaved({name: epoch_of(dataset) for name, (dataset, _) in ways.items()}, rounds=rounds)
    rows = {name: {"words": words} | milliseconds(times[name], per=len(files)) for name, (_, words) in ways.items()}
    return compared(rows)


def undecoded(root: Path, work: Path, *, rounds: int) -> dict[str, Row]:
    """The encoded photos' bytes alone: `ms` and `median_ms` warm; `cold_ms` after the system was asked to forget."""
    ways, number = stores.byte_readers(root, work), len(stores.samples_of(root))
    times = interleaved({name: read for name, (read, *_) in ways.items()}, rounds=rounds)
    rows = {name: {"words": words} | milliseconds(times[name], per=number) for name, (_, words, _) in ways.items()}
    cold: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (read, _, files) in ways.items():
            if stores.forget(files):
                began = time.perf_counter()
                read()
                cold[name].append(time.perf_counter() - began)
    for name, seconds in cold.items():
        rows[name]["cold_ms"] = digits(statistics.median(seconds) * 1e3 / number) if seconds else None
    return compared(rows)
