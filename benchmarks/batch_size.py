"""Batch size: equal epochs against equal updates (claim C79), and how far the lr may grow with the batch.

    python -m benchmarks.batch_size

writes `benchmarks/records/batch_size.json`. An lr is chosen by the loss on 1,000 validation images, on seeds that are
not reported.
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import Any

import torch

from benchmarks.trainings import NUM_TRAIN, Cache, begin, collect, figures, largest_curvature, plan_of, train
from course_utils.models import small_cnn

BATCH_SIZES, LRS = (16, 64, 256, 1024), (1e-3, 3e-3, 1e-2, 3e-2)
NUM_EPOCHS, NUM_STEPS = 4, 300
CHOOSING, REPORTED = (100, 101), (0, 1, 2)  # seeds
SCALED_SIZES, BASE_LRS = (32, 128, 512, 2048), (0.003, 0.01, 0.03, 0.1)
FACTORS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)  # of the base lr


def steps_of(budget: str, batch_size: int) -> int:
    """Updates in a run: of `NUM_EPOCHS` epochs, or `NUM_STEPS`."""
    return NUM_EPOCHS * math.ceil(NUM_TRAIN / batch_size) if budget == "equal epochs" else NUM_STEPS


def adamw_run(budget: str, batch_size: int, lr: float, seed: int, with_curvature: bool) -> dict[str, float]:
    """AdamW, 5 % warm-up and cosine."""
    num_steps = steps_of(budget, batch_size)
    how = {"num_steps": num_steps, "batch_size": batch_size, "seed": seed}
    trainer = train(
        small_cnn, functools.partial(torch.optim.AdamW, lr=lr), plan_of(num_steps, warmup_share=0.05), **how
    )
    found = figures(trainer)
    if with_curvature:
        found["curvature"] = 0.0 if trainer is None else largest_curvature(trainer.model)
    return found


def sgd_run(batch_size: int, lr: float, warmup_share: float, seed: int) -> dict[str, float]:
    """SGD with momentum 0.9 and a flat lr after the warm-up, `NUM_EPOCHS` epochs: the setting of the scaling rule."""
    num_steps = steps_of("equal epochs", batch_size)
    plan = plan_of(num_steps, warmup_share=warmup_share, cosine=False)
    how = {"num_steps": num_steps, "batch_size": batch_size, "seed": seed}
    return figures(train(small_cnn, functools.partial(torch.optim.SGD, lr=lr, momentum=0.9), plan, **how))


def compare(cache: Cache, budget: str) -> dict[str, Any]:
    """Each batch size with its own best lr under one budget."""
    found = {}
    for batch_size in BATCH_SIZES:
        grid = {
            str(lr): statistics.fmean(
                cache.get(adamw_run, budget, batch_size, lr, seed, False)["val_loss"] for seed in CHOOSING
            )
            for lr in LRS
        }
        lr = float(min(grid, key=grid.__getitem__))
        rows = [cache.get(adamw_run, budget, batch_size, lr, seed, True) for seed in REPORTED]
        chosen = {"lr": lr, "num_steps": steps_of(budget, batch_size)}
        found[str(batch_size)] = chosen | {"grid": {k: round(v, 4) for k, v in grid.items()}, "results": collect(rows)}
    return found


def scaling(cache: Cache) -> dict[str, Any]:
    """Every batch size with the base lr times every factor: does batch size x k want lr x k?

    The base lr is the best of a coarse grid; whether it is the best of its own factors too, the base batch size shows.
    """
    base = SCALED_SIZES[0]
    grid = {
        lr: statistics.fmean(cache.get(sgd_run, base, lr, 0.1, seed)["val_loss"] for seed in CHOOSING)
        for lr in BASE_LRS
    }
    base_lr = min(grid, key=grid.__getitem__)
    rows = {}
    for batch_size in SCALED_SIZES:
        results = {
            str(factor): collect([cache.get(sgd_run, batch_size, base_lr * factor, 0.1, seed) for seed in REPORTED])
            for factor in FACTORS
        }
        linear = batch_size // base
        cold = collect([cache.get(sgd_run, batch_size, base_lr * linear, 0.0, seed) for seed in REPORTED])
        rows[str(batch_size)] = {
            "num_steps": steps_of("equal epochs", batch_size),
            "linear_factor": linear,
            "best_factor": best_factor([found["val_loss"]["mean"] for found in results.values()]),
            "best_factor_each": [
                best_factor([found["val_loss"]["each"][i] for found in results.values()]) for i in range(len(REPORTED))
            ],
            "by_factor": results,
            "linear_without_warmup": cold,
        }
    base_grid = {str(lr): round(loss, 4) for lr, loss in grid.items()}
    return {"base_batch_size": base, "base_lr": base_lr, "base_grid": base_grid, "batch_sizes": rows}


def best_factor(losses: list[float]) -> float:
    """The factor with the lowest of `losses`, one for each of `FACTORS`."""
    return FACTORS[losses.index(min(losses))]


def main() -> None:
    cache = begin("batch_size")
    budgets = {budget: compare(cache, budget) for budget in ("equal epochs", "equal steps")}
    setup = {
        "model": "course_utils.models.small_cnn, 9,226 parameters",
        "data": "embedded Fashion-MNIST part: 9,000 images to train, 1,000 to choose the lr, 2,000 to test",
        "budgets": {"equal epochs": f"{NUM_EPOCHS} epochs", "equal steps": f"{NUM_STEPS} updates"},
        "optimizer": "AdamW, 5 % warm-up and cosine; in `scaling` SGD, momentum 0.9, 10 % warm-up, then flat",
        "seeds": REPORTED,
        "choosing_seeds": CHOOSING,
        "curvature": "largest eigenvalue of the Hessian of the training loss on 1,000 images, 15 power iterations",
        "diverged": "a run that became inf or NaN counts as guessing: loss ln 10, accuracy 0.1",
    }
    print(cache.store({"setup": setup, "budgets": budgets, "scaling": scaling(cache)}).name)


if __name__ == "__main__":
    main()
