"""Datasets: from a position to an example, and from a key to a batch.

A dataset knows no order and no loader. What is random in an example comes from its key, so that the same example can be
made again, alone. The photo catalogue is drawn in `course_utils.catalogue`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.batches import draws_nothing, naming
from course_utils.catalogue import make_catalogue
from course_utils.data import FASHION_PART
from course_utils.image_folder import FolderScan, ImageFolderDataset, scan_image_folder
from course_utils.images import load_rgb
from course_utils.key_ranges import KeyRangeRecords
from course_utils.mapped_images import check_made_of, open_images, write_images
from course_utils.photo_file import PackedPhotos, pack_photos
from course_utils.randomness import BatchKey, derive_seed, isolated_rng, seed_generators
from course_utils.splits import assert_disjoint, exact_duplicates, group_split, hashed_part, merge_groups
from course_utils.streams import ShardedRecords

__all__ = [
    "ArrayDataset", "FASHION_CLASSES", "FolderScan", "ImageFolderDataset", "KeyRangeRecords", "MappedImages",
    "PackedPhotos", "ShardedRecords", "assert_disjoint", "exact_duplicates", "group_split", "hashed_part",
    "keyed_examples", "load_fashion", "load_rgb", "make_catalogue", "map_images", "merge_groups", "pack_photos",
    "run_batch_transform", "scan_image_folder",
]  # fmt: skip

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def keyed_examples(key: BatchKey, make_example: Callable[[int], Any], *, draws: bool = True) -> list:
    """`make_example(index)` for each example of `key`, each with generators of its own.

    torch's CPU generator, `random` and NumPy's are seeded from (seed, epoch, index, repeat) before each call and put
    back at the end, so an example comes out the same in any batch. draws=False says that `make_example` draws nothing:
    then no generator is touched, which is a tenth of the time for small photos.
    """
    examples, index = [], None
    with isolated_rng() if draws else nullcontext(), naming(lambda: f"while making example {index}"):
        for index, repeat in key.examples():
            if draws:
                seed_generators(derive_seed(key.seed, "example", key.epoch, index, repeat))
            examples.append(make_example(index))
    return examples


def run_batch_transform(batch_transform: Callable, images: torch.Tensor, targets: torch.Tensor, key: BatchKey) -> Any:
    """`batch_transform(images, targets, key)`; the three generators are seeded from (seed, epoch, start), and put back.

    A batch transform with the attribute `keyed = True` draws from its key alone, or not at all: for it no generator is
    touched, so that it can run in a thread beside other code and change no bit of that.
    """
    if draws_nothing(batch_transform):
        return batch_transform(images, targets, key)
    with isolated_rng():
        seed_generators(derive_seed(key.seed, "batch", key.epoch, key.start))
        return batch_transform(images, targets, key)


class ArrayDataset(Dataset):
    """Images and targets that lie in memory.

    images          : (N, C, H, W), a tensor or array; not copied
    targets         : integers (N,), 0 .. len(classes) - 1; kept as int64
    classes         : the name of each class
    transform       : image -> image, for one example; what it draws from torch, `random` or NumPy is keyed in `take`
    batch_transform : (images, targets, key) -> (images, targets), for a whole batch; `take` alone applies it
    raises          : ValueError where lengths, dtype or range do not fit, with both sides
    """

    def __init__(
        self,
        images: torch.Tensor | np.ndarray,
        targets: torch.Tensor | np.ndarray | Sequence[int],
        *,
        classes: Sequence[str],
        transform: Callable | None = None,
        batch_transform: Callable | None = None,
    ) -> None:
        self.images, self.classes = torch.as_tensor(images), tuple(classes)
        self.targets = _checked_targets(targets, len(self.images), len(self.classes))
        self.transform, self.batch_transform = transform, batch_transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The image after `transform`, and its class; IndexError unless 0 <= index < N."""
        index = self._checked(index)
        image = self.images[index]
        return (image if self.transform is None else self.transform(image)), int(self.targets[index])

    def __getitems__(self, indices: Iterable[int]) -> list[tuple[Any, int]]:
        """The examples at `indices`, in that order; PyTorch's fetcher calls this where it is there."""
        return [self[index] for index in indices]

    def take(self, key: BatchKey) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch that `key` names: images (B, ...), targets (B, ...). A function of the key.

        `transform` makes example by example, each with its own keyed generators; then `batch_transform` the batch. An
        empty key gives tensors of length 0 with the dtype and shape of any other batch. `transform` must return tensors
        of one shape. The global generators are left as they were.
        """
        if len(key) == 0 and len(self) > 0:
            images, targets = self.take(replace(key, indices=[0], repeats=None))
            return images[:0], targets[:0]
        places = torch.tensor([self._checked(index) for index in key], dtype=torch.int64)
        images, targets = self.images[places], self.targets[places]
        if self.transform is not None and len(key):
            images = torch.stack(keyed_examples(key, lambda index: self.transform(self.images[index])))
        if self.batch_transform is None:
            return images, targets
        return run_batch_transform(self.batch_transform, images, targets, key)

    def replace_transforms(self, transform: Callable | None, batch_transform: Callable | None) -> ArrayDataset:
        """The same images and targets, shared, with other transforms; `transforms.with_transform` calls it."""
        return ArrayDataset(
            self.images, self.targets, classes=self.classes, transform=transform, batch_transform=batch_transform
        )

    def _checked(self, index: int) -> int:
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"index must lie in 0 .. {len(self) - 1} ({len(self)} examples), got {index}")
        return index


class MappedImages(ArrayDataset):
    """Decoded images in a file that `map_images` wrote, read when looked at; pickled, it is the path alone."""

    def __init__(self, path: str | os.PathLike, **transforms: Callable | None) -> None:
        self.path = os.path.abspath(path)
        images, targets, classes = open_images(self.path)
        super().__init__(images, targets, classes=classes, **transforms)

    def replace_transforms(self, transform: Callable | None, batch_transform: Callable | None) -> MappedImages:
        """The same file with other transforms."""
        return MappedImages(self.path, transform=transform, batch_transform=batch_transform)

    def __reduce__(self) -> tuple:
        return partial(MappedImages, self.path, transform=self.transform, batch_transform=self.batch_transform), ()


def map_images(dataset: Dataset, path: str | os.PathLike, *, size: int | tuple[int, int]) -> MappedImages:
    """Every image of `dataset` at one size in the file `path`: made where it is not there, else opened and compared.

    dataset : map-style, with `targets` and `classes`; its examples begin with an image uint8 (C, H, W)
    size    : (height, width), or one number for both; see `images.resize`
    raises  : ValueError naming the index of an image of another kind; where the file is not whole, or another dataset's
              (number, targets, classes, and the first, middle and last image are compared)
    """
    if not os.path.exists(path):
        write_images(dataset, path, size=size)
    found = MappedImages(path)
    check_made_of(dataset, found, path, size=size)
    return found


def _checked_targets(
    targets: torch.Tensor | np.ndarray | Sequence[int], num_images: int, num_classes: int
) -> torch.Tensor:
    given = torch.as_tensor(targets)
    if given.shape != (num_images,):
        raise ValueError(f"need one target an image, shape ({num_images},); got {tuple(given.shape)}")
    if num_images and (given.is_floating_point() or given.dtype == torch.bool):
        raise ValueError(f"targets must be integers, the class of each image; got {given.dtype}: convert them first")
    given = given.long()
    wrong = torch.nonzero((given < 0) | (given >= num_classes)).flatten()
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"targets must lie in 0 .. {num_classes - 1} ({num_classes} classes), got {int(given[at])} at {at}"
        )
    return given


def load_fashion(
    split: str,
    *,
    full: bool = False,
    transform: Callable | None = None,
    batch_transform: Callable | None = None,
    root: str | os.PathLike | None = None,
) -> ArrayDataset:
    """Fashion-MNIST: the embedded part, or the full set.

    split     : "train" (10,000 images; full: 60,000) or "test" (2,000; 10,000)
    full      : the whole set from `root`, downloaded where it is not there yet (30 MB)
    transform, batch_transform : as in `ArrayDataset`
    root      : folder that holds, or gets, `FashionMNIST/raw`; default $COURSE_DATA, else ~/.cache/course_utils
    returns   : images uint8 (1, 28, 28) in 0 .. 255, targets 0 .. 9; scaling is a transform's work
    raises    : ValueError for another split; ConnectionError where the full set is neither there nor to be had

    Source: Xiao, Rasul, Vollgraf, Fashion-MNIST (arXiv:1708.07747); `course_utils/data/NOTICE`.
    """
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test", got {split!r}; cut a validation set out of "train"')
    images, targets = _read_full(split, _data_folder(root)) if full else _read_part(split)
    return ArrayDataset(images, targets, classes=FASHION_CLASSES, transform=transform, batch_transform=batch_transform)


def _data_folder(root: str | os.PathLike | None) -> Path:
    default = Path.home() / ".cache" / "course_utils"
    return Path(root or os.environ.get("COURSE_DATA") or default).expanduser()


def _read_part(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(FASHION_PART, allow_pickle=False) as part:  # unpacks only the two arrays asked for; CRC checked
        images, labels = part[f"{split}_images"], part[f"{split}_labels"]
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).long()


def _read_full(split: str, root: Path) -> tuple[torch.Tensor, torch.Tensor]:
    from torchvision.datasets import FashionMNIST  # here, because torchvision takes seconds to import

    try:
        data = FashionMNIST(root, train=split == "train", download=True)  # downloads nothing that is there
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())  # torchvision's has line breaks
        raise ConnectionError(
            f"the full Fashion-MNIST is not in {root / 'FashionMNIST' / 'raw'} and could not be downloaded ({reason}). "
            "Connect once; or put its four .gz files there (Debian: package dataset-fashion-mnist); or use the "
            "embedded part, full=False."
        ) from error
    return data.data.unsqueeze(1), data.targets
