"""Transforms: of one image, of a whole batch, and two views of one dataset.

A batch transform takes (images, targets, key) and draws from the key alone. Nothing here knows a loader or a model.
torchvision takes seconds to import, so only the functions that need it do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import Dataset, Subset, default_collate

from course_utils.augmentations import V2Batch, crop_flip
from course_utils.batches import draws_nothing
from course_utils.boxes import BoxedPhotos, mosaic, with_boxes
from course_utils.channel_statistics import ChannelStats, channel_stats
from course_utils.datasets import keyed_examples, run_batch_transform
from course_utils.images import check_unit_range, resize
from course_utils.randomness import BatchKey
from course_utils.reference_model import (
    Recognition,
    load_reference_model,
    recognition_table,
    reference_photos,
    still_recognised,
)

__all__ = [
    "BoxedPhotos", "ChannelStats", "ComposeBatch", "Recognition", "ToFloat", "V2Batch", "channel_stats",
    "crop_flip", "eval_transform", "load_reference_model", "mosaic", "recognition_table",
    "reference_photos", "resize", "still_recognised", "train_transform", "with_boxes", "with_transform",
]  # fmt: skip

Batch = tuple[torch.Tensor, torch.Tensor]
Statistic = float | Sequence[float] | torch.Tensor


class ToFloat:
    """Batch transform: images to float32 in [0, 1], then (x - mean) / std. Draws nothing; picklable.

    mean, std : in [0, 1] units, one number or one a channel, as `channel_stats` gives them; both or neither
    raises    : ValueError for only one of them, a std of 0; when called, for images that are neither uint8 nor
                float in [0, 1] (0 .. 255 as floats, normalised before), or have another number of channels
    """

    keyed = True

    def __init__(self, mean: Statistic | None = None, std: Statistic | None = None) -> None:
        _check_statistics(mean, std)
        self.mean, self.std = (None, None) if mean is None else (_per_channel(mean), _per_channel(std))

    def __call__(self, images: torch.Tensor, targets: torch.Tensor, key: BatchKey | None = None) -> Batch:
        scaled = _unit_range(images)
        if self.mean is not None:
            _check_channels(scaled, max(len(self.mean), len(self.std)))
            mean, std = self.mean.to(scaled.device), self.std.to(scaled.device)
            own = images.dtype != torch.float32 and scaled.dim() > 2  # a copy made here: in place is 4 x as fast
            scaled = (scaled.sub_(mean) if own else scaled - mean).div_(std)
        return scaled, targets


def _check_statistics(mean: Statistic | None, std: Statistic | None) -> None:
    if (mean is None) != (std is None):
        raise ValueError(f"need mean and std, or neither; got mean={mean}, std={std}")
    if std is not None and not (torch.as_tensor(std) > 0).all():
        raise ValueError(f"std must be above 0 in every channel, got {_as_list(std)}")


def _check_channels(images: torch.Tensor, needed: int) -> None:
    """One grey channel would be normalised with three statistics, and come out as three, without a word."""
    if needed > 1 and images.shape[-3] != needed:
        raise ValueError(
            f"the statistics are of {needed} channels, the images {tuple(images.shape)} have {images.shape[-3]}: "
            "decode with load_rgb, or take the statistics of these images"
        )


def _per_channel(values: Statistic) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)


def _unit_range(images: torch.Tensor) -> torch.Tensor:
    """float32: uint8 divided by 255, floats in [0, 1] as they are; new memory unless they are float32 already."""
    if images.dtype == torch.uint8:
        return images.float().div_(255)
    check_unit_range(images)
    return images.float()


class ComposeBatch:
    """Batch transforms one after the other, as `v2.Compose` does for images; picklable where they are."""

    def __init__(self, *batch_transforms: Callable) -> None:
        self.batch_transforms = batch_transforms

    def __call__(self, images: torch.Tensor, targets: torch.Tensor, key: BatchKey) -> Batch:
        for batch_transform in self.batch_transforms:
            images, targets = batch_transform(images, targets, key)
        return images, targets

    @property
    def keyed(self) -> bool:
        """Whether all of them draw from the key alone; see `datasets.run_batch_transform`."""
        return all(map(draws_nothing, self.batch_transforms))


class TransformedDataset(Dataset):
    """A dataset of (image, target) with a transform after what it does itself. Made by `with_transform`."""

    def __init__(self, dataset: Dataset, transform: Callable | None) -> None:
        self.dataset, self.transform = dataset, transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image, target = self.dataset[index]
        return (image if self.transform is None else self.transform(image)), target

    def replace_transforms(self, transform: Callable | None, batch_transform: Callable | None) -> Dataset:
        """A view of the same dataset with these transforms instead."""
        return with_transform(self.dataset, transform, batch_transform=batch_transform)


class BatchTransformedDataset(TransformedDataset):
    """The same with a batch transform: it makes whole batches from keys, so that the loader keeps the transform."""

    def __init__(self, dataset: Dataset, transform: Callable | None, batch_transform: Callable) -> None:
        super().__init__(dataset, transform)
        self.batch_transform = batch_transform

    def take(self, key: BatchKey) -> Batch:
        """The batch that `key` names, as `ArrayDataset.take` makes it."""
        if len(key) == 0:
            images, targets = self.take(replace(key, indices=[0], repeats=None))
            return images[:0], targets[:0]
        draws = not (draws_nothing(self.dataset) and draws_nothing(self.transform))
        examples = keyed_examples(key, self.__getitem__, draws=draws)
        return run_batch_transform(self.batch_transform, *default_collate(examples), key)


def with_transform(
    dataset: Dataset, transform: Callable | None = None, *, batch_transform: Callable | None = None
) -> Dataset:
    """Another view of a dataset: the same examples, with these transforms. The dataset itself is not changed.

    dataset : of (image, target). A `Subset` gives a `Subset` of the view. `ArrayDataset` and a view (whatever has
              `replace_transforms`) get these instead of their own; any other keeps its own, and these come after
    returns : a dataset with the same indices; it has `take` where the dataset has it or a batch_transform is given
    raises  : ValueError for a dataset with `take` and without `replace_transforms`: the view would lose its batches

    So one split has two views: `with_transform(train_part, augment)` and `with_transform(val_part, plain)`. Setting
    `subset.transform` does nothing, and `subset.dataset.transform` changes both parts.
    """
    if type(dataset) is Subset:  # a class derived from it may do more than choose
        return Subset(with_transform(dataset.dataset, transform, batch_transform=batch_transform), dataset.indices)
    if hasattr(dataset, "replace_transforms"):
        return dataset.replace_transforms(transform, batch_transform)
    if hasattr(dataset, "take"):
        raise ValueError(
            f"{type(dataset).__name__} makes its own batches (take), and a view would lose what it does there: give it "
            "replace_transforms(transform, batch_transform) -> dataset"
        )
    if batch_transform is not None:
        return BatchTransformedDataset(dataset, transform, batch_transform)
    return TransformedDataset(dataset, transform)


def train_transform(size: int, *, mean: Statistic | None = None, std: Statistic | None = None) -> Callable:
    """A torchvision v2 pipeline for training: a random part of the image at `size` x `size`, mirrored at random.

    size      : height and width of the result, in pixels, 1 or more
    mean, std : normalise with these where given
    returns   : image (uint8 (C, H, W), float in [0, 1], or a PIL image, grey or RGB) -> float32 (C, size, size) in
                [0, 1], or normalised
    raises    : ValueError for mean without std, a std of 0; when called, for an image whose range is not known, or that
                has not the statistics' channels

    The part covers 60 to 100 % of the area: the default, from 8 %, often shows no item at all.
    """
    from torchvision.transforms import v2

    return _pipeline([v2.RandomResizedCrop(size, scale=(0.6, 1.0)), v2.RandomHorizontalFlip()], mean, std)


def eval_transform(size: int, *, mean: Statistic | None = None, std: Statistic | None = None) -> Callable:
    """The pipeline for evaluation, without chance: shorter side to `size`, then the central square.

    Of an image twice as wide as high it cuts off a quarter on each side. Arguments and result as in `train_transform`.
    """
    from torchvision.transforms import v2

    return _pipeline([v2.Resize(size), v2.CenterCrop(size)], mean, std)


def _pipeline(steps: list[Callable], mean: Statistic | None, std: Statistic | None) -> Callable:
    from torchvision.transforms import v2

    _check_statistics(mean, std)
    normalize = [] if mean is None else [_Normalize(_as_list(mean), _as_list(std))]
    return v2.Compose([_decoded, *steps, v2.ToDtype(torch.float32, scale=True), *normalize, v2.ToPureTensor()])


def _decoded(image: Any) -> torch.Tensor:
    """The image as a `tv_tensors.Image`; ValueError for one whose range is not known, as 16 bits or a palette."""
    from torchvision.transforms.v2 import functional

    mode = getattr(image, "mode", None)  # a PIL image's
    if isinstance(mode, str) and mode not in ("L", "RGB"):
        raise ValueError(f"need a PIL image of mode L or RGB, got {mode}: decode with load_rgb")
    pixels = functional.to_image(image)
    check_unit_range(pixels, name="the image")
    return pixels


class _Normalize:
    """v2.Normalize, for images that have the statistics' channels."""

    def __init__(self, mean: list[float], std: list[float]) -> None:
        self.mean, self.std = mean, std

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        from torchvision.transforms.v2 import functional

        _check_channels(image, max(len(self.mean), len(self.std)))
        return functional.normalize(image, self.mean, self.std)


def _as_list(values: Statistic) -> list[float]:
    return torch.as_tensor(values, dtype=torch.float64).reshape(-1).tolist()
