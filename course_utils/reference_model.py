"""The reference model: a small network that was trained on catalogue photos, and photos that it has never seen.

It answers one question: what does a transform leave of an image? It knows no loader. Re-exported by `transforms`.
`data/make_reference_model.py` trained it, and its recipe stands in `data/reference_model.json`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from course_utils.data import REFERENCE_MODEL
from course_utils.datasets import ArrayDataset, group_split
from course_utils.images import check_unit_range
from course_utils.randomness import BatchKey, derive_seed, isolated_rng

SIZE = 64  # height and width that the model takes


class ReferenceCNN(nn.Module):
    """30,346 parameters: images uint8, or float in [0, 1], (B, 3, 64, 64) -> logits (B, 10). It normalises itself."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.AvgPool2d(2)]  # an item is 28 pixels of Fashion-MNIST, enlarged: half the size loses little
        for inputs, outputs in ((3, 16), (16, 32), (32, 56)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
            layers += [nn.ReLU(), nn.MaxPool2d(2)]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(56 * 4 * 4, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.dim() != 4 or images.shape[1:] != (3, SIZE, SIZE):
            raise ValueError(f"the reference model needs images (B, 3, {SIZE}, {SIZE}), got {tuple(images.shape)}")
        scaled = (_unit_range(images) - 0.5) / 0.25
        return self.layers(scaled.contiguous(memory_format=torch.channels_last))  # twice as fast on a CPU


def _unit_range(images: torch.Tensor) -> torch.Tensor:
    if images.dtype == torch.uint8:
        return images.float() / 255
    check_unit_range(images, name="the reference model, before Normalize", slack=0.01)
    return images.float()


def load_reference_model() -> ReferenceCNN:
    """The trained model in eval mode, on the CPU; its weights take no gradient. No generator is touched."""
    with isolated_rng():
        model = ReferenceCNN()
    with np.load(REFERENCE_MODEL, allow_pickle=False) as arrays:
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays})
    return model.eval().requires_grad_(False)


def reference_recipe() -> dict[str, Any]:
    """How the weights were made: arguments, versions, number of photos, accuracy on the held-out ones."""
    return json.loads(REFERENCE_MODEL.with_suffix(".json").read_text(encoding="utf-8"))


@cache
def split_items() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions in `load_fashion("train")`: the items whose photos the model was trained on, and those held out.

    A tenth of each class is held out. A photo of a catalogue may show an item of either part.
    """
    from course_utils.catalogue_plan import catalogue_items

    labels = catalogue_items()[1]
    train, held_out = group_split(range(len(labels)), fractions=(0.9, 0.1), seed=0, targets=labels)
    return tuple(train), tuple(held_out)


def draw_photos(items: Sequence[int], *, seed: int, photos_per_item: int = 1) -> ArrayDataset:
    """Catalogue photos of these items, as `eval_transform(64)` cuts them; in memory, in the order of `items`.

    items   : positions in `load_fashion("train")`
    seed    : decides tint, ground, place, light; a photo is a function of (seed, item, which of its photos)
    returns : images uint8 (N, 3, 64, 64), targets as in a catalogue: classes in alphabetical order
    """
    from torchvision.transforms import v2

    from course_utils.catalogue_photos import draw_photo
    from course_utils.catalogue_plan import CLASSES, catalogue_items, plan_product

    pixels, labels = catalogue_items()
    names, classes = list(CLASSES), sorted(CLASSES)
    cut = v2.Compose([v2.ToImage(), v2.Resize(SIZE), v2.CenterCrop(SIZE), v2.ToPureTensor()])
    images = torch.empty(len(items) * photos_per_item, 3, SIZE, SIZE, dtype=torch.uint8)
    for position, (item, photo) in enumerate((item, photo) for item in items for photo in range(photos_per_item)):
        rng = random.Random(derive_seed("reference photo", seed, item, photo))
        _, drawing = next(plan_product(0, names[labels[item]], item, rng))
        images[position] = cut(draw_photo(pixels[item], **drawing))
    targets = [classes.index(names[labels[item]]) for item in items for _ in range(photos_per_item)]
    return ArrayDataset(images, targets, classes=classes)


def reference_photos(num_photos: int = 200, *, seed: int = 0) -> ArrayDataset:
    """Photos of items that the reference model was not trained on; every class as often as any other, to one photo.

    num_photos : 1 .. 1000
    returns    : images uint8 (N, 3, 64, 64), targets 0 .. 9, classes by name; the first k are those of a smaller set.
                 Drawn in memory, about 2 ms a photo
    raises     : ValueError for another num_photos
    """
    from course_utils.catalogue_plan import catalogue_items

    held_out, labels = split_items()[1], catalogue_items()[1]
    if not 1 <= num_photos <= len(held_out):
        raise ValueError(f"num_photos must be 1 to {len(held_out)}, the items held out; got {num_photos}")
    by_class = [[item for item in held_out if labels[item] == label] for label in range(10)]
    turns = [item for turn in zip(*by_class, strict=True) for item in turn]
    return draw_photos(turns[:num_photos], seed=seed)


@dataclass(frozen=True, eq=False)
class Recognition:
    """What the reference model says to photos after a transform; made by `still_recognised`.

    share      : of the photos whose class the model names, over all repeats
    baseline   : the same share of the photos as they are
    per_class  : the share of each class that has photos, by name
    recognised : bool (repeats, N), which
    predicted  : int64 (repeats, N), the class that the model names
    """

    share: float
    baseline: float
    per_class: dict[str, float]
    recognised: torch.Tensor
    predicted: torch.Tensor


def still_recognised(
    transform: Callable | None,
    photos: ArrayDataset,
    *,
    batch_transform: Callable | None = None,
    seed: int = 0,
    repeats: int = 1,
) -> Recognition:
    """Ask the reference model for the class of every photo after `transform`.

    transform       : image uint8 (3, 64, 64) -> image of that size, uint8 or float in [0, 1]; None for none. Each
                      photo has generators of its own, so a result is a function of (transform, photos, seed, repeats)
    photos          : of `reference_photos`
    batch_transform : (images, targets, key) -> (images, targets), after it: `crop_flip`
    repeats         : how often each photo is transformed, each time with other draws
    raises          : ValueError for repeats below 1, and where the model does not take what the transform gives

    The model was trained without augmentation, but for shifts of 4 pixels. It may fail where a person would not: a low
    share says that such photos are not in the data (mirrored boots), or that the label is lost: look which. A high
    share says that the label can still be seen. The global generators are left as they were.
    """
    if repeats < 1 or not len(photos):
        raise ValueError(f"need at least one photo and one repeat, got {len(photos)} photos, repeats={repeats}")
    model = load_reference_model()
    view = photos.replace_transforms(transform, batch_transform)
    indices = list(range(len(photos)))
    keys = [BatchKey(seed, 0, 0, indices, [repeat] * len(indices)) for repeat in range(repeats)]
    predicted = torch.stack([_predict(model, view.take(key)[0]) for key in keys])
    recognised = predicted == photos.targets
    per_class = {
        name: recognised[:, photos.targets == target].double().mean().item()
        for target, name in enumerate(photos.classes)
        if (photos.targets == target).any()
    }
    baseline = (_predict(model, photos.images) == photos.targets).double().mean().item()
    return Recognition(recognised.double().mean().item(), baseline, per_class, recognised, predicted)


@torch.inference_mode()
def _predict(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    return torch.cat([model(part).argmax(1) for part in images.split(200)]).clone()


def recognition_table(transforms: Iterable[tuple[str, Callable | None]], photos: ArrayDataset, **how: Any) -> list:
    """Rows (name, share) of `still_recognised`, one for each (name, transform), in their order."""
    return [(name, still_recognised(transform, photos, **how).share) for name, transform in transforms]
