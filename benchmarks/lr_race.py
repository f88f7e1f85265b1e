"""The long lr race: six schedules, each with its own best lr, over several budgets and seeds.

    python -m benchmarks.lr_race

writes `benchmarks/records/lr_race.json`. The lr of each schedule is chosen by the final training loss on seeds that are
not reported; the test images choose nothing.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.trainings import Cache, begin, data, in_order, spread
from course_utils.models import small_cnn
from course_utils.schedules import Entry, Race, constant, exponential, race, step_decay, warm_restarts, warmup_cosine

BUDGETS: dict[int, tuple[float, ...]] = {  # updates: lrs that each schedule tries; at most a factor 2 near the best
    40: (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04),
    150: (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04),
    600: (0.0003, 0.001, 0.003, 0.005, 0.01, 0.02, 0.03),
    2400: (0.001, 0.003, 0.005, 0.01, 0.02),
}
CONSTANT_LRS = {2400: (0.001, 0.002, 0.003, 0.005, 0.01)}  # the best constant lr of a long run is lower
LARGEST_LR = 0.16  # where the largest lr tried is the best, twice as much is tried too, up to this
CHOOSING = {40: range(100, 105), 150: range(100, 105), 600: range(100, 103), 2400: range(100, 103)}  # seeds
REPORTED = {40: range(10), 150: range(10), 600: range(5), 2400: range(5)}  # seeds
BATCH_SIZE, FIXED_LR = 64, 3e-4
NUM_POINTS = 30  # of a stored curve
SCHEDULES = {
    "constant": "factor 1",
    "exponential": "falls to 1 % of the lr over the run",
    "exponential_mild": "falls to 10 % of the lr over the run",
    "step_decay": "a tenth after each third of the run",
    "warmup_cosine": "5 % warm-up, then half a cosine to 0",
    "warm_restarts": "three cosine cycles, each twice as long as the last, the third ending with the run",
}


def factor_fn(schedule: str, num_steps: int) -> Callable[[int], float]:
    """The schedule fitted to a run of `num_steps` updates."""
    return {
        "constant": constant,
        "exponential": functools.partial(exponential, gamma=0.01, decay_steps=num_steps),
        "exponential_mild": functools.partial(exponential, gamma=0.1, decay_steps=num_steps),
        "step_decay": functools.partial(step_decay, step_size=math.ceil(num_steps / 3)),
        "warmup_cosine": functools.partial(
            warmup_cosine, warmup_steps=max(1, round(0.05 * num_steps)), total_steps=num_steps
        ),
        "warm_restarts": functools.partial(warm_restarts, cycle_steps=math.ceil(num_steps / 7), cycle_mult=2),
    }[schedule]


def run_seed(num_steps: int, lrs: list[tuple[str, str, float]], seed: int, with_accuracy: bool) -> dict[str, Any]:
    """One seed of a race between (name, schedule, lr); its losses and, if asked for, accuracies."""
    entries = {name: Entry(factor_fn(schedule, num_steps), lr) for name, schedule, lr in lrs}
    test = in_order("test") if with_accuracy else None
    how = {"build": small_cnn, "dataset": data("all"), "num_steps": num_steps, "batch_size": BATCH_SIZE}
    found = race(entries, seeds=[seed], val_loader=test, **how)
    losses = {name: [round(loss, 4) for loss in runs[seed]] for name, runs in found.losses.items()}
    return {"losses": losses, "accuracy": {name: values[0] for name, values in found.accuracy.items() if values}}


def joined(cache: Cache, num_steps: int, lrs: list[tuple[str, str, float]]) -> Race:
    """The race over the reported seeds, put together from pieces of one run each."""
    result, seeds = Race(num_steps), REPORTED[num_steps]
    for entry in lrs:
        name, pieces = entry[0], [cache.get(run_seed, num_steps, [entry], seed, True) for seed in seeds]
        result.losses[name] = {seed: piece["losses"][name] for seed, piece in zip(seeds, pieces, strict=True)}
        result.accuracy[name] = [piece["accuracy"][name] for piece in pieces]
    return result


def grid_loss(num_steps: int, schedule: str, lr: float, seeds: tuple[int, ...]) -> float:
    """Final loss of one schedule with one lr, mean over seeds; inf where a run diverged."""
    result = Race(num_steps, {"": {}})
    for seed in seeds:
        result.losses[""][seed] = run_seed(num_steps, [("", schedule, lr)], seed, False)["losses"][""]
    return round(statistics.fmean(result.final_loss("")), 4)


def try_lrs(cache: Cache, num_steps: int, schedule: str) -> dict[float, float]:
    """{lr: final loss, mean over the choosing seeds}. The grid grows upwards while its largest lr is its best."""
    seeds = tuple(CHOOSING[num_steps])

    def loss(lr: float) -> float:
        return cache.get(grid_loss, num_steps, schedule, lr, seeds, runs=len(seeds))

    grid = CONSTANT_LRS.get(num_steps) if schedule == "constant" else None
    found = {lr: loss(lr) for lr in grid or BUDGETS[num_steps]}
    while (best := best_lr(found)) == max(found) and 2 * best <= LARGEST_LR:
        found[2 * best] = loss(2 * best)
    return found


def best_lr(found: dict[float, float]) -> float:
    """The lr with the lowest loss."""
    return min(found, key=found.__getitem__)


def _finite(loss: float) -> float | None:
    """None for the loss of a diverged run: JSON has no infinity."""
    return loss if math.isfinite(loss) else None


def curve(race_found: Race, name: str) -> dict[str, list[float]]:
    """Loss as means over stretches of equal length: mean over seeds, and the lowest and highest seed."""
    ends = [round(i * race_found.num_steps / NUM_POINTS) for i in range(NUM_POINTS + 1)]
    each = [
        [statistics.fmean(losses[a:b]) for losses in race_found.losses[name].values()]
        for a, b in itertools.pairwise(ends)
    ]
    found = {"step": ends[1:], "mean": map(statistics.fmean, each), "low": map(min, each), "high": map(max, each)}
    return {key: [round(value, 4) for value in values] for key, values in found.items()}


def report(cache: Cache, num_steps: int) -> dict[str, Any]:
    """One budget: the grid, the best lrs, and the race of the best with the reported seeds."""
    grids = {schedule: try_lrs(cache, num_steps, schedule) for schedule in SCHEDULES}
    lrs = [("constant 3e-4", "constant", FIXED_LR)] + [(name, name, best_lr(row)) for name, row in grids.items()]
    found = joined(cache, num_steps, lrs)
    results = {
        name: {
            "lr": lr,
            "final_loss": spread(found.final_loss(name)),
            "minus_constant": spread(differences(found, name, "constant")),
            "accuracy": spread(found.accuracy[name]),
            "late_swing": spread(found.late_swing(name)),
            "crosses_constant": None if schedule == "constant" else found.crossing(name, "constant"),
            "curve": curve(found, name),
        }
        for name, schedule, lr in lrs
    }
    final_rank = sorted(results, key=lambda name: results[name]["final_loss"]["mean"])
    accuracy_rank = sorted(results, key=lambda name: -results[name]["accuracy"]["mean"])
    wins = {name: {other: found.wins(name, other) for other in results if other != name} for name in results}
    ranks = {"early_rank": found.early_rank(), "final_rank": final_rank, "accuracy_rank": accuracy_rank}
    grid = {schedule: {str(lr): _finite(loss) for lr, loss in row.items()} for schedule, row in grids.items()}
    inside = {schedule: min(row) < best_lr(row) < max(row) for schedule, row in grids.items()}
    chosen = {"seeds": len(REPORTED[num_steps]), "grid": grid, "best_inside_grid": inside}
    return chosen | {"results": results, **ranks, "wins": wins}


def differences(found: Race, name: str, other: str) -> list[float]:
    """For each seed, the final loss of `name` minus that of `other`."""
    return [mine - theirs for mine, theirs in zip(found.final_loss(name), found.final_loss(other), strict=True)]


def flips(budgets: dict[str, Any], rank: str) -> list[dict[str, Any]]:
    """Pairs of schedules whose order by `rank` is not the same in all budgets: who is ahead in which."""
    found = []
    for a, b in itertools.combinations(SCHEDULES, 2):
        ahead = {num_steps: a if row[rank].index(a) < row[rank].index(b) else b for num_steps, row in budgets.items()}
        if len(set(ahead.values())) == 2:
            found.append({"pair": [a, b], "ahead": ahead})
    return found


def main() -> None:
    cache = begin("lr_race")
    budgets = {str(num_steps): report(cache, num_steps) for num_steps in BUDGETS}
    setup = {
        "model": "course_utils.models.small_cnn, 9,226 parameters",
        "data": "embedded Fashion-MNIST part: 10,000 training images, accuracy on the 2,000 test images",
        "optimizer": "AdamW, defaults but for the lr",
        "batch_size": BATCH_SIZE,
        "schedules": SCHEDULES,
        "lr_chosen_by": "lowest mean final loss over the choosing seeds; neighbours near the best at most a factor 2 "
        "apart; where the largest lr tried was the best, twice as much was tried too",
        "choosing_seeds": {str(num_steps): list(seeds) for num_steps, seeds in CHOOSING.items()},
        "seeds": {str(num_steps): list(seeds) for num_steps, seeds in REPORTED.items()},
        "final_loss": "mean training loss of the last tenth of updates",
        "minus_constant": "final loss minus that of the constant lr at its best, seed by seed",
        "best_inside_grid": "the chosen lr is neither the lowest nor the highest tried",
        "late_swing": "standard deviation of the loss over the last tenth of updates",
        "early_rank": "by the mean loss of the updates between 10 and 20 % of the run",
    }
    flipped = {"final_loss": flips(budgets, "final_rank"), "accuracy": flips(budgets, "accuracy_rank")}
    print(cache.store({"setup": setup, "budgets": budgets, "flips": flipped}).name)


if __name__ == "__main__":
    main()
