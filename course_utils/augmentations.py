"""Augmentation of whole batches: keyed crop and flip, and torchvision's v2 transforms as batch transforms.

A batch transform takes (images, targets, key). Nothing here knows a dataset. Re-exported by `transforms`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import pad

from course_utils.randomness import BatchKey, keyed_uniform

Batch = tuple[torch.Tensor, torch.Tensor]


def crop_flip(images: torch.Tensor, targets: torch.Tensor, key: BatchKey, *, padding: int = 4) -> Batch:
    """Pad with zeros, crop back to the old size at a random place, mirror every second image; a whole batch at once.

    images  : uint8 or float (B, C, H, W), in the order of `key`
    padding : pixels added on each side; the crop moves by -padding .. padding in both directions
    returns : images of the same shape and dtype, new memory; `targets` as they came
    raises  : ValueError for another shape, a key of another length, a negative padding

    A function of (seed, epoch, index, repeat): the same pixels for any batch size, rank or worker. Crop and flip have
    streams of their own. Zero is black for images in [0, 1]: crop before you normalise.

    Source: the augmentation of He et al. (arXiv:1512.03385), section 4.2.
    """
    if images.dim() != 4 or len(images) != len(key) or padding < 0:
        raise ValueError(
            "crop_flip needs images (B, C, H, W), a key of B examples and padding >= 0; "
            f"got {tuple(images.shape)}, {len(key)} examples, padding={padding}"
        )
    batch, channels, height, width = images.shape
    shift = (keyed_uniform(key, 2, stream="crop") * (2 * padding + 1)).long()
    mirror = keyed_uniform(key, 1, stream="flip") < 0.5
    rows, columns = shift[:, :1] + torch.arange(height), torch.arange(width)
    columns = shift[:, 1:] + torch.where(mirror, columns.flip(0), columns)
    places = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]  # in a padded plane, laid out flat
    places = places.reshape(batch, 1, height * width).expand(-1, channels, -1)
    planes = pad(images, (padding,) * 4).flatten(2)  # one gather from these: five times as fast as indexing four axes
    return planes.gather(2, places.to(images.device)).reshape(images.shape), targets


crop_flip.keyed = True


class V2Batch:
    """Batch transform that calls a torchvision v2 transform on (images, targets): `V2Batch(v2.MixUp(num_classes=10))`.

    transform : of (images, targets); picklable where it is. MixUp and CutMix give float targets (B, classes)
    raises    : ValueError, when called, where v2 refuses the batch: with v2's reason, and what came

    v2 draws from torch's global generator, and has no key. So it is not `keyed`: the generators are seeded from
    (seed, epoch, start) before it, and what it draws changes with the batch size and the rank's part of the batch.
    MixUp needs float images: put `ToFloat()` before it.

    Source: Zhang et al., mixup (arXiv:1710.09412); Yun et al., CutMix (arXiv:1905.04899).
    """

    def __init__(self, transform: Callable) -> None:
        self.transform = transform

    def __call__(self, images: torch.Tensor, targets: torch.Tensor, key: BatchKey | None = None) -> Batch:
        try:
            images, targets = self.transform(images, targets)
        except Exception as error:
            raise ValueError(
                f"{type(self.transform).__name__} refused images {_words(images)} and targets {_words(targets)}: "
                f"{error}. MixUp needs float images (ToFloat() before it); MixUp and CutMix need num_classes, or "
                "float targets (B, classes)"
            ) from error
        return images, targets


def _words(value: torch.Tensor) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
