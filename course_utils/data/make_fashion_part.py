"""Remake `fashion_part.npz` from the four files of Fashion-MNIST.

    python -m course_utils.data.make_fashion_part FOLDER [OUTPUT]

FOLDER holds `train-images-idx3-ubyte.gz`, `train-labels-idx1-ubyte.gz`, `t10k-images-idx3-ubyte.gz` and
`t10k-labels-idx1-ubyte.gz`: with Debian's package `dataset-fashion-mnist`, /usr/share/datasets/fashion-mnist. The part
is the first 1,000 (test: 200) items of each class, in the order of the file, so two people who run this get the same
arrays.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np

from course_utils.data import FASHION_PART

_SPLITS = {"train": ("train", 1000), "test": ("t10k", 200)}  # our name: (name in the files, items per class)


def read_idx(path: Path) -> np.ndarray:
    """The array in one .gz file of the IDX format: two zero bytes, dtype, ndim, sizes (big-endian), data.

    returns : uint8, in the shape that the file states
    raises  : ValueError where the file is not IDX of unsigned bytes, or is cut short

    Source: LeCun, "The MNIST database", file formats; Fashion-MNIST uses the same.
    """
    raw = gzip.decompress(Path(path).read_bytes())
    if raw[:3] != b"\x00\x00\x08":
        raise ValueError(
            f"{path}: an IDX file of unsigned bytes starts with 00 00 08, this one with {raw[:3].hex(' ')}"
        )
    shape = tuple(np.frombuffer(raw, ">u4", count=raw[3], offset=4).tolist())
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if values.size != np.prod(shape):
        raise ValueError(f"{path}: the header promises {shape}, the file holds {values.size} bytes: fetch it again")
    return values.reshape(shape)


def first_of_each_class(labels: np.ndarray, per_class: int) -> np.ndarray:
    """Positions, in file order, of the first `per_class` items of each of the 10 classes."""
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:per_class] for c in range(10)]))


def fashion_part(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of the part, by their names in the file."""
    arrays = {}
    for split, (stem, per_class) in _SPLITS.items():
        images = read_idx(Path(folder) / f"{stem}-images-idx3-ubyte.gz")
        labels = read_idx(Path(folder) / f"{stem}-labels-idx1-ubyte.gz")
        keep = first_of_each_class(labels, per_class)
        arrays[f"{split}_images"], arrays[f"{split}_labels"] = images[keep], labels[keep]
    return arrays


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    np.savez_compressed(sys.argv[2] if len(sys.argv) == 3 else FASHION_PART, **fashion_part(Path(sys.argv[1])))
