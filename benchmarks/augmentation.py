"""What augmentation does to a photo classifier, MixUp and CutMix among it (chapter 02, claim C75), and to dark photos.

    python -m benchmarks.augmentation

writes `benchmarks/records/augmentation.json`; `--quick` makes a few updates with two seeds, and stores nothing. Within
a seed all trainings start from the same weights, see the same examples in the same batches and make the same number of
updates; they differ in the batch transform alone. There are few photos, so that the network overfits without.

    results[name][updates] : spreads over seeds, name one of `setup.transforms`
        test_accuracy   : on the test photos as they are
        dark_accuracy   : {factor: on the test photos with all pixels multiplied by the factor}
        train_accuracy  : on the training photos as they are
    minus_none[name][updates] : spread of test_accuracy minus that of "none", seed by seed
    better_than_none[name][updates] : seeds in which it is above
    setup : transforms in words, what was trained, seeds

`minus_none` is told from 0 where its mean is more than 4.3 (three seeds) times stdev / sqrt(3) away.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from benchmarks.catalogue_tasks import NUM_PRODUCTS, SIDE, Examples, photos, pixels
from benchmarks.photo_training import BATCH_SIZE, accuracy, at_steps, batches_of, make_trainer
from benchmarks.pieces import program
from benchmarks.trainings import Cache, spread
from course_utils.augmentations import Batch, V2Batch, crop_flip
from course_utils.datasets import ArrayDataset
from course_utils.randomness import BatchKey, keyed_uniform
from course_utils.transforms import ComposeBatch, ToFloat

NUM_TRAIN, LR, UPDATES, SEEDS = 1000, 1e-3, (200, 800), (0, 1, 2)
DARK, JITTER = (0.5, 0.25), (0.2, 1.4)
TRANSFORMS = {
    "none": "the photos as they are",
    "flip": "every second photo mirrored, left and right",
    "crop_flip": "crop_flip(padding=4): moved by up to 4 of 32 pixels, every second one mirrored",
    "crop_flip, brightness": f"the same, and each photo times a number from {JITTER[0]} to {JITTER[1]}, clipped",
    "mixup": "v2.MixUp(num_classes=10), alpha 1: two photos blended, and their labels",
    "cutmix": "v2.CutMix(num_classes=10), alpha 1: a rectangle from another photo, and a share of its label",
    "upside_down": "every second photo upside down, every second one turned by 90 degrees",
}


def brightness(images: torch.Tensor, targets: torch.Tensor, key: BatchKey) -> Batch:
    """uint8 (B, C, H, W), each image times a number drawn from JITTER by its key."""
    low, high = JITTER
    factors = low + (high - low) * keyed_uniform(key, 1, stream="brightness")
    return darken(images, factors[:, :, None, None]), targets


def darken(images: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
    """uint8 images times a factor, rounded, clipped at 255."""
    return (images * factor).round().clamp(0, 255).to(torch.uint8)


def upside_down(images: torch.Tensor, targets: torch.Tensor, key: BatchKey) -> Batch:
    """Every second image upside down, every second one turned by 90 degrees, by its key."""
    draws = keyed_uniform(key, 2, stream="upside_down")[:, :, None, None, None] < 0.5
    images = torch.where(draws[:, 0], images.flip(2), images)
    return torch.where(draws[:, 1], images.transpose(2, 3), images), targets


brightness.keyed = upside_down.keyed = True


def batch_transform(name: str) -> ComposeBatch:
    """Augmentation on uint8, then floats scaled by the training photos' statistics, then MixUp or CutMix."""
    from torchvision.transforms import v2

    before = {
        "flip": [partial(crop_flip, padding=0)],
        "crop_flip": [crop_flip],
        "crop_flip, brightness": [crop_flip, brightness],
        "upside_down": [upside_down],
    }
    after = {"mixup": v2.MixUp(num_classes=10), "cutmix": v2.CutMix(num_classes=10)}
    return ComposeBatch(*before.get(name, []), to_float(), *([V2Batch(after[name])] if name in after else []))


@cache
def to_float() -> ToFloat:
    """With mean and deviation of the training photos, by channel."""
    unit = images_of("train") / 255
    return ToFloat(unit.mean((0, 2, 3)), unit.std((0, 2, 3)))


def images_of(part: str) -> torch.Tensor:
    """uint8 (N, 3, 32, 32): the first NUM_TRAIN photos to train, or all to test."""
    return pixels(part)[: NUM_TRAIN if part == "train" else None].to(torch.uint8)


def targets_of(part: str) -> torch.Tensor:
    """The class of each of `images_of`."""
    return photos(part).targets[: NUM_TRAIN if part == "train" else None]


def seen_as(part: str, factor: float = 1.0) -> Examples:
    """A part for evaluation, darkened."""
    return Examples(to_float()(darken(images_of(part), factor), None)[0], targets_of(part))


def run(name: str, seed: int, updates: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """One training: its figures after each number of updates."""
    train = ArrayDataset(
        images_of("train"), targets_of("train"), classes=range(10), batch_transform=batch_transform(name)
    )
    trainer, found = make_trainer(LR, seed), {}
    for step in at_steps(trainer, batches_of(train, seed), updates):
        found[str(step)] = {
            "test_accuracy": accuracy(trainer.model, seen_as("test")),
            "dark_accuracy": {str(factor): accuracy(trainer.model, seen_as("test", factor)) for factor in DARK},
            "train_accuracy": accuracy(trainer.model, seen_as("train")),
        }
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over seeds, for one transform and one number of updates."""
    found = {name: spread([row[name] for row in runs]) for name in ("test_accuracy", "train_accuracy")}
    dark = {factor: spread([row["dark_accuracy"][factor] for row in runs]) for factor in runs[0]["dark_accuracy"]}
    return found | {"dark_accuracy": dark}


def report(cache: Cache, *, updates: tuple[int, ...] = UPDATES, seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """Every transform, and how it differs from none seed by seed."""
    results = {}
    for name in TRANSFORMS:
        runs = [cache.get(run, name, seed, updates) for seed in seeds]
        results[name] = {str(step): summary([row[str(step)] for row in runs]) for step in updates}
    steps, names = [str(step) for step in updates], list(TRANSFORMS)[1:]
    gains = {name: {step: gain(results[name][step], results["none"][step]) for step in steps} for name in names}
    return {
        "results": results,
        "minus_none": {name: {step: spread(each) for step, each in of.items()} for name, of in gains.items()},
        "better_than_none": {
            name: {step: sum(value > 0 for value in each) for step, each in of.items()} for name, of in gains.items()
        },
    }


def gain(mine: dict[str, Any], none: dict[str, Any]) -> list[float]:
    """Test accuracy minus that without augmentation, seed by seed."""
    pairs = zip(mine["test_accuracy"]["each"], none["test_accuracy"]["each"], strict=True)
    return [a - b for a, b in pairs]


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "data": f"make_catalogue(num_products={NUM_PRODUCTS}, seed=0), {SIDE} x {SIDE} pixels, split by product; "
        f"{NUM_TRAIN} photos to train",
        "model": "photo_cnn: three convolutions and a linear layer, 33,834 parameters",
        "optimizer": f"AdamW, lr {LR}, constant, batch size {BATCH_SIZE}",
        "transforms": TRANSFORMS,
        "dark": DARK,
        "updates": UPDATES,
        "seeds": SEEDS,
    }


def main(arguments: list[str] | None = None) -> None:
    program(
        "augmentation",
        arguments,
        whole=lambda cache: {"setup": setup()} | report(cache),
        quick=lambda cache: report(cache, updates=(2, 4), seeds=SEEDS[:2]),
    )


if __name__ == "__main__":
    main()
