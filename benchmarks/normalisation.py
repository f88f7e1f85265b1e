"""How the scale of the input changes the start of a training (chapter 02, claim C06).

    python -m benchmarks.normalisation

writes `benchmarks/records/normalisation.json`; `--quick` makes a few updates with two seeds, and stores nothing. The
same photos come in four scales; each is trained at two or three lrs, with AdamW with and without BatchNorm, and with
SGD. Within a model and seed all trainings start from the same weights and see the same batches.

    models[model][scale][lr] : model "AdamW", "AdamW, BatchNorm" or "SGD"
        steps_to_target : "each", the update from which the loss (mean of the last 20 updates) first is at or below the
                          target, null where it never was; "reached", in how many seeds; "median" of those that reached
                          it, null where fewer than all did
        final_loss      : spread of the training loss, mean of the last 50 updates
        test_accuracy   : spread
    best_lr[model][scale]   : the lr with the lowest mean final loss
    inputs[scale]           : mean and std of each channel of the training photos as the network gets them
    setup                   : target, scales in words, what was trained, seeds

A training whose loss became inf or NaN counts as guessing: final loss ln 10, accuracy 0.1, target not reached.
"""

from __future__ import annotations

import math
import statistics
from functools import cache, partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from benchmarks.catalogue_tasks import NUM_PRODUCTS, SIDE, Examples, photos, pixels
from benchmarks.photo_training import BATCH_SIZE, accuracy, at_steps, batches_of, make_trainer
from benchmarks.pieces import program
from benchmarks.trainings import Cache, spread
from course_utils.optimizer_step import NonFiniteError

NUM_STEPS, WINDOW, TARGET, SEEDS = 300, 20, 1.6, (0, 1, 2, 3, 4)
LRS = {"AdamW": (1e-3, 3e-3, 1e-2), "AdamW, BatchNorm": (1e-3, 3e-3), "SGD": (0.01, 0.03)}
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SCALES = {
    "own": "(x / 255 - mean) / std, by channel, of the training photos",
    "imagenet": f"(x / 255 - mean) / std with ImageNet's mean {IMAGENET_MEAN} and std {IMAGENET_STD}",
    "unit": "x / 255: 0 to 1",
    "raw": "x: floats from 0 to 255",
}
MODELS = {
    "AdamW": "convolutions of 8, 16, 32 channels, stride 2, ReLU; a linear layer; AdamW, other arguments as they come",
    "AdamW, BatchNorm": "the same with BatchNorm after each convolution",
    "SGD": "the first network, with SGD and momentum 0.9",
}


def build(model: str) -> nn.Sequential:
    """float (B, 3, 32, 32) -> logits (B, 10)."""
    layers: list[nn.Module] = []
    for before, after in pairwise((3, 8, 16, 32)):
        norm = [nn.BatchNorm2d(after)] if model.endswith("BatchNorm") else []
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), *norm, nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


@cache
def data(scale: str, part: str) -> Examples:
    """The photos of a part in one of the scales; all statistics are the training part's."""
    targets, unit = photos(part).targets, pixels(part) / 255
    if scale in ("unit", "raw"):
        return Examples(unit if scale == "unit" else pixels(part), targets)
    if scale == "own":
        train = pixels("train") / 255
        mean, std = train.mean((0, 2, 3)), train.std((0, 2, 3))
    else:
        mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    return Examples((unit - mean[:, None, None]) / std[:, None, None], targets)


def steps_to(losses: list[float], target: float, window: int) -> int | None:
    """The first update, counted from 1, at which the mean of the last `window` losses is at or below the target."""
    for step in range(window, len(losses) + 1):
        if statistics.fmean(losses[step - window : step]) <= target:
            return step
    return None


def run(model: str, scale: str, lr: float, seed: int, num_steps: int) -> dict[str, Any]:
    """One training."""
    trainer, train = make_trainer(lr, seed, partial(build, model)), data(scale, "train")
    if model == "SGD":
        trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=lr, momentum=0.9)
    try:
        list(at_steps(trainer, batches_of(train, seed), [num_steps]))
    except NonFiniteError:
        return {"steps_to_target": None, "final_loss": math.log(10), "test_accuracy": 0.1}
    losses = [row["loss"] for row in trainer.history]
    return {
        "steps_to_target": steps_to(losses, TARGET, WINDOW),
        "final_loss": statistics.fmean(losses[-50:]),
        "test_accuracy": accuracy(trainer.model, data(scale, "test")),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over seeds; of the steps a median, because some have none."""
    steps = [row["steps_to_target"] for row in runs]
    reached = [step for step in steps if step is not None]
    median = statistics.median(reached) if len(reached) == len(steps) else None
    found = {"steps_to_target": {"each": steps, "reached": len(reached), "median": median}}
    return found | {name: spread([row[name] for row in runs]) for name in ("final_loss", "test_accuracy")}


def report(
    cache: Cache, *, num_steps: int = NUM_STEPS, num_lrs: int | None = None, seeds: tuple[int, ...] = SEEDS
) -> dict[str, Any]:
    """All models, scales and lrs (the first `num_lrs`), and the best lr of each."""
    models = {
        model: {
            scale: {
                str(lr): summary([cache.get(run, model, scale, lr, seed, num_steps) for seed in seeds])
                for lr in LRS[model][:num_lrs]
            }
            for scale in SCALES
        }
        for model in MODELS
    }
    best = {
        model: {scale: min(rows, key=lambda lr: rows[lr]["final_loss"]["mean"]) for scale, rows in scales.items()}
        for model, scales in models.items()
    }
    return {"models": models, "best_lr": best, "inputs": {scale: moments(scale) for scale in SCALES}}


def moments(scale: str) -> dict[str, list[float]]:
    """Mean and std of each channel, to three digits."""
    inputs = data(scale, "train").inputs
    return {
        name: [float(f"{value:.3g}") for value in of((0, 2, 3)).tolist()]
        for name, of in (("mean", inputs.mean), ("std", inputs.std))
    }


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "data": f"make_catalogue(num_products={NUM_PRODUCTS}, seed=0), {SIDE} x {SIDE} pixels, split by product",
        "models": MODELS,
        "scales": SCALES,
        "training": f"constant lr, batch size {BATCH_SIZE}",
        "num_steps": NUM_STEPS,
        "target": TARGET,
        "window": WINDOW,
        "lrs": LRS,
        "seeds": SEEDS,
    }


def main(arguments: list[str] | None = None) -> None:
    program(
        "normalisation",
        arguments,
        whole=lambda cache: {"setup": setup()} | report(cache),
        quick=lambda cache: report(cache, num_steps=3, num_lrs=1, seeds=SEEDS[:2]),
    )


if __name__ == "__main__":
    main()
