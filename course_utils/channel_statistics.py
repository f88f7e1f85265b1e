"""Mean and standard deviation of each channel of a dataset, in one pass. Re-exported by `transforms`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset

from course_utils.datasets import ArrayDataset
from course_utils.images import check_unit_range
from course_utils.randomness import isolated_rng

_VALUES_AT_ONCE = 2**18  # 2 MiB of float64: twice as fast as 16 MiB; and 512 photos of 224 pixels would be 600


class ChannelStats(NamedTuple):
    """mean, std : float64 (C,), in [0, 1] units; std over all pixels, divided by their number."""

    mean: torch.Tensor
    std: torch.Tensor


def channel_stats(dataset: Dataset) -> ChannelStats:
    """Mean and standard deviation of each channel over all pixels of all images; one pass, constant memory.

    dataset : of (image, target), image uint8 (C, H, W), or float in [0, 1]; of any sizes. Give the training split
              without augmentation; a batch_transform is not applied
    returns : `ChannelStats`, for `ToFloat(*stats)` or `v2.Normalize`
    raises  : ValueError for an empty dataset, another image (with its index), or a constant channel: its std is 0

    Source: Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
    """
    count, mean, squares, low, high = 0, 0.0, 0.0, None, None
    for pixels in _pixels(dataset):
        added = pixels.shape[1]
        own_mean = pixels.mean(1)
        gap = own_mean - mean
        squares = squares + (pixels - own_mean[:, None]).square().sum(1) + gap**2 * (count * added / (count + added))
        mean, count = mean + gap * (added / (count + added)), count + added
        low = pixels.amin(1) if low is None else torch.minimum(low, pixels.amin(1))
        high = pixels.amax(1) if high is None else torch.maximum(high, pixels.amax(1))
    if count == 0:
        raise ValueError("channel_stats needs at least one image, got an empty dataset")
    constant = torch.nonzero(low == high).flatten().tolist()
    if constant:
        raise ValueError(
            f"channels {constant} are constant ({[low[c].item() for c in constant]}), so their std is 0 and "
            "normalising would divide by 0: drop these channels, or give them std 1 by hand"
        )
    return ChannelStats(mean, (squares / count).sqrt())


def _pixels(dataset: Dataset) -> Iterator[torch.Tensor]:
    """float64 (C, pixels) in [0, 1], of one image or, from memory, of many small ones at once."""
    if isinstance(dataset, ArrayDataset) and dataset.transform is None and dataset.images.dim() == 4:
        chunk = max(1, _VALUES_AT_ONCE // max(1, dataset.images.shape[1:].numel()))
        for start in range(0, len(dataset), chunk):
            images = dataset.images[start : start + chunk]
            yield _checked_pixels(images, f"images {start} to {start + len(images) - 1}").transpose(0, 1).flatten(1)
        return
    channels = None
    with isolated_rng():
        for index in range(len(dataset)):
            pixels = _checked_pixels(dataset[index][0], f"image {index}").flatten(1)
            channels = channels or len(pixels)
            if len(pixels) != channels:
                raise ValueError(f"image {index}: need {channels} channels as before, got {len(pixels)}")
            yield pixels


def _checked_pixels(images: Any, name: str) -> torch.Tensor:
    if not isinstance(images, torch.Tensor) or images.dim() < 3 or images.numel() == 0:
        got = tuple(images.shape) if isinstance(images, torch.Tensor) else type(images).__name__
        raise ValueError(f"{name}: need a tensor (C, H, W), got {got}")
    check_unit_range(images, name=name)
    return images.double() / 255 if images.dtype == torch.uint8 else images.double()
