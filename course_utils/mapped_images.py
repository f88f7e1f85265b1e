"""Decoded images of one size in a file that is mapped into memory: pages are read when they are looked at.

It knows the file, no dataset and no key: `datasets.MappedImages` is the dataset. Any program can read the images:
`np.load(path, mmap_mode="r")`, uint8 (N, C, H, W).

What it saves is decoding and resizing, for every epoch but the first. It stops being worth it where each image is drawn
from its whole size anew (a random crop of the photo), where the decoded images do not fit on the disk (N * C * H * W
bytes, many times the JPEGs'), and where they lie on a network disk, since each image looked at is read as it is. Where
they fit into memory a plain `ArrayDataset` is simpler.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import IO, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.images import resize
from course_utils.photo_file import whole_or_nothing

_TAIL = b"mapped images 1\n"  # the last bytes: what precedes them was written whole


def write_images(dataset: Dataset, path: str | os.PathLike, *, size: int | tuple[int, int]) -> None:
    """Resize each image and write it, one after the other, into a `.npy` file with targets and classes behind.

    dataset : map-style, with `targets` and `classes`; an example begins with an image uint8 (C, H, W)
    raises  : ValueError without images; naming the index of an image of another kind, or with another C than the first
    """
    if not len(dataset):
        raise ValueError("there is nothing to map: need at least one image")
    targets = torch.as_tensor(dataset.targets)
    with whole_or_nothing(path) as file:
        for index in range(len(dataset)):
            image = resized(dataset[index][0], size, index)
            if index == 0:
                shape = (len(dataset), *image.shape)
                np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            elif image.shape != shape[1:]:
                raise ValueError(f"image {index} has {len(image)} channels, image 0 has {shape[1]}: need the same")
            file.write(image.contiguous().numpy().data)
        words = json.dumps({"targets": targets.tolist(), "classes": list(dataset.classes)}).encode("ascii")
        file.write(words + b"%16d %10d " % (len(words), zlib.crc32(words)) + _TAIL)


def check_made_of(dataset: Dataset, found: Dataset, path: str | os.PathLike, *, size: int | tuple[int, int]) -> None:
    """ValueError where `found` was made of another dataset, or of another size.

    found : the dataset of the file, with `images`, `targets` and `classes`; three images are made anew and compared
    """
    same = torch.equal(found.targets, torch.as_tensor(dataset.targets)) and found.classes == tuple(dataset.classes)
    some = sorted({0, len(dataset) // 2, len(dataset) - 1}) if same else []
    if not same or not all(torch.equal(resized(dataset[i][0], size, i), found.images[i]) for i in some):
        raise ValueError(f"{path} holds the images of another dataset or size: remove it, or give another path")


def resized(image: Any, size: Any, index: int) -> torch.Tensor:
    """uint8 (C, height, width) of an image; ValueError naming the index where it is no uint8 (C, H, W)."""
    if not isinstance(image, torch.Tensor) or image.dtype != torch.uint8 or image.dim() != 3:
        got = f"{image.dtype} {tuple(image.shape)}" if isinstance(image, torch.Tensor) else type(image).__name__
        raise ValueError(f"image {index}: need uint8 (C, H, W) to keep, got {got}: leave out the dataset's transform")
    return resize(image, size)


def open_images(path: str | os.PathLike) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...]]:
    """The images uint8 (N, C, H, W), mapped and not read; targets int64 (N,); classes.

    raises : ValueError where the file is not whole or none of these; FileNotFoundError

    Who writes into the images changes the process's own pages, never the file.
    """
    path = os.fspath(path)
    with open(path, "rb") as file:
        shape, begin = _read_header(file, path)
        about, end = _read_about(file, path)
    count = int(np.prod(shape))
    if begin + count != end or len(about["targets"]) != shape[0]:
        raise ValueError(f"{path} holds {end - begin} bytes of images, its header {shape} needs {count}: make it anew")
    mapped = torch.from_file(path, shared=False, size=begin + count, dtype=torch.uint8)
    return mapped[begin:].view(shape), torch.tensor(about["targets"], dtype=torch.int64), tuple(about["classes"])


def _read_header(file: IO[bytes], path: str) -> tuple[tuple[int, ...], int]:
    """Shape, and where the pixels begin."""
    try:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except ValueError as error:
        raise ValueError(f"{path} is no file of mapped images: {error}") from error
    if dtype != np.uint8 or len(shape) != 4:
        raise ValueError(f"{path} is no file of mapped images: it holds {dtype} {shape}, needed uint8 (N, C, H, W)")
    return shape, file.tell()


def _read_about(file: IO[bytes], path: str) -> tuple[dict, int]:
    """Targets and classes, and where the pixels end."""
    tail = 28 + len(_TAIL)
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - tail))
    last = file.read()
    if not last.endswith(_TAIL) or len(last) < tail:
        raise ValueError(f"{path} is not whole, or none that `map_images` wrote: remove it and make it anew")
    length, crc = int(last[:16]), int(last[17:27])
    file.seek(max(0, size - tail - length))
    words = file.read(length)
    if zlib.crc32(words) != crc:
        raise ValueError(f"the targets of {path} are damaged: remove it and make it anew")
    return json.loads(words), size - tail - length
