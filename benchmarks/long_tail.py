"""What to do about a long tail of classes: order of the examples and weights, judged by recall and by accuracy (03).

    python -m benchmarks.long_tail

writes `benchmarks/records/long_tail.json`; `--quick` makes a few updates with two seeds, and stores nothing. The
classes have 1, 1/2, 1/3 ... 1/10 as many examples as the largest. Within a task and seed all trainings start from the
same weights and make the same number of updates.

    tasks[task] : "photos" (the catalogue, class of a photo) or "fashion" (the embedded part, cut to a long tail)
        class_counts : {class: training examples}, largest first
        results[order][updates] : spreads over seeds
            recall[class]    : share of the test examples of that class that are found
            mean_recall      : mean over the ten classes: the accuracy on a test set with equally many of each
            accuracy         : recalls weighed by the classes' shares in training: the accuracy on a test set of the
                               training set's own distribution
            rarest_three     : mean recall of the three classes with the fewest training examples
            distinct         : different training examples that were seen
        wins[figure][updates][a][b] : seeds in which order a has more than order b; a tie is no win
    setup : orders and figures in words, what was trained, seeds

The order of two rows may be another one by `mean_recall` than by `accuracy`: `flips`, a list of {"task", "updates",
"pair", "ahead"} holds the pairs whose order of means differs between the two figures.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.catalogue_tasks import NUM_PRODUCTS, SIDE, Examples, photo_cnn, photos
from benchmarks.photo_training import BATCH_SIZE, LOSS_FN, at_steps, batches_of, make_trainer, predictions
from benchmarks.pieces import program
from benchmarks.plateau import wins
from benchmarks.trainings import Cache, data, spread
from course_utils.catalogue_plan import CLASSES, LONG_TAIL
from course_utils.models import small_cnn
from course_utils.randomness import derive_seed
from course_utils.sampling import class_balanced_weights

LARGEST, LR = 900, 1e-3  # training examples of the largest class of "fashion"; of AdamW
UPDATES, SEEDS = (150, 600), (0, 1, 2, 3, 4)
ORDERS = {
    "shuffle": "each example once an epoch",
    "sqrt weights": "drawn with replacement, weights 1 / sqrt(examples of the class)",
    "balanced weights": "drawn with replacement by class_balanced_weights: all classes equally often",
    "one undersample": "as many examples of each class as the smallest has, chosen once; each once an epoch",
    "loss weights": "each example once an epoch; the loss weighs a class by 1 / its examples (mean weight 1)",
}
FIGURES = ("mean_recall", "accuracy", "rarest_three")


class Task(NamedTuple):
    """Network, training and test examples, names of the classes by number."""

    build: Callable[[], nn.Module]
    train: Examples
    test: Examples
    classes: tuple[str, ...]


@cache
def task_of(name: str) -> Task:
    """The two tasks; the catalogue's long tail comes with it."""
    if name == "fashion":
        train, test = ((part.images, part.targets) for part in (data("all"), data("test")))
        kept = long_tailed(train[1], largest=LARGEST)
        return Task(small_cnn, Examples(train[0][kept], train[1][kept]), Examples(*test), tuple(CLASSES))
    parts = [photos(part) for part in ("val", "test")]  # nothing is chosen by the validation part here
    test = Examples(*(torch.cat([getattr(part, of) for part in parts]) for of in ("inputs", "targets")))
    return Task(photo_cnn, photos("train"), test, tuple(sorted(CLASSES)))


def long_tailed(targets: torch.Tensor, *, largest: int) -> list[int]:
    """Positions of the first `largest` examples of class LONG_TAIL[0], a half as many of the next, a third ..."""
    numbers = [list(CLASSES).index(name) for name in LONG_TAIL]
    parts = [torch.nonzero(targets == number).flatten() for number in numbers]
    return [at for rank, part in enumerate(parts, start=1) for at in part[: largest // rank].tolist()]


def undersampled(targets: torch.Tensor, seed: int) -> list[int]:
    """Positions of as many examples of each class as the smallest class has, drawn by `seed`."""
    members: dict[int, list[int]] = {}
    for at, target in enumerate(targets.tolist()):
        members.setdefault(target, []).append(at)
    smallest, rng = min(map(len, members.values())), random.Random(derive_seed("undersample", seed))
    return sorted(at for of in members.values() for at in rng.sample(of, smallest))


def how_of(order: str, targets: torch.Tensor, seed: int) -> dict[str, Any]:
    """What an order gives to `EpochBatches`."""
    weights = class_balanced_weights(targets)
    found: dict[str, dict[str, Any]] = {
        "sqrt weights": {"weights": weights.sqrt()},
        "balanced weights": {"weights": weights},
        "one undersample": {"indices": undersampled(targets, seed)},
    }
    return found.get(order, {})


def loss_of(order: str, targets: torch.Tensor) -> Callable:
    """Cross-entropy; by class where the order says so, with a mean weight of 1 an example."""
    if order != "loss weights":
        return LOSS_FN
    counts = torch.bincount(targets).float()
    return partial(weighted_loss, weights=len(targets) / (len(counts) * counts))


def weighted_loss(logits: torch.Tensor, targets: torch.Tensor, *, weights: torch.Tensor) -> torch.Tensor:
    """Mean over the examples of weight times loss. `cross_entropy(weight=)` divides by the weights of the batch, so a
    batch without rare examples would count as much as others."""
    return (weights[targets] * nn.functional.cross_entropy(logits, targets, reduction="none")).mean()


def run(name: str, order: str, seed: int, updates: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """One training: its figures after each number of updates."""
    task, found, seen = task_of(name), {}, set()
    trainer = make_trainer(LR, seed, task.build, loss_of(order, task.train.targets))
    loader = batches_of(task.train, seed, **how_of(order, task.train.targets, seed))
    trainer.on_step = lambda trainer, report, keys: seen.update(*(key.indices for key in keys))
    for step in at_steps(trainer, loader, updates):
        found[str(step)] = figures(task, predictions(trainer.model, task.test.inputs)) | {"distinct": len(seen)}
    return found


def figures(task: Task, predicted: torch.Tensor) -> dict[str, Any]:
    """Recall of each class, its mean over classes, over the rarest three, and weighed by shares in training."""
    right, counts = predicted == task.test.targets, torch.bincount(task.train.targets).double()
    recalls = torch.stack([right[task.test.targets == number].double().mean() for number in range(len(task.classes))])
    return {
        "recall": {name: round(value, 4) for name, value in zip(task.classes, recalls.tolist(), strict=True)},
        "mean_recall": recalls.mean().item(),
        "accuracy": ((recalls * counts).sum() / counts.sum()).item(),
        "rarest_three": recalls[counts.argsort()[:3]].mean().item(),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over seeds, for one order and one number of updates."""
    recall = {name: spread([row["recall"][name] for row in runs]) for name in runs[0]["recall"]}
    return {"recall": recall} | {name: spread([row[name] for row in runs]) for name in (*FIGURES, "distinct")}


def report(cache: Cache, name: str, updates: tuple[int, ...] = UPDATES, seeds: tuple[int, ...] = SEEDS) -> dict:
    """One task: all orders, and how often one is ahead of another."""
    task, results = task_of(name), {}
    for order in ORDERS:
        runs = [cache.get(run, name, order, seed, updates) for seed in seeds]
        results[order] = {str(step): summary([row[str(step)] for row in runs]) for step in updates}
    counts = Counter(task.classes[target] for target in task.train.targets.tolist())
    at = {str(step): {order: found[str(step)] for order, found in results.items()} for step in updates}
    ahead = {figure: {step: wins_of_more(rows, figure) for step, rows in at.items()} for figure in FIGURES}
    return {"class_counts": dict(counts.most_common()), "results": results, "wins": ahead}


def wins_of_more(rows: dict[str, Any], figure: str) -> dict[str, dict[str, int]]:
    """{a: {b: seeds in which a has more}}."""
    return wins({order: {"_accuracy": row[figure]} for order, row in rows.items()}, "_accuracy")


def flips(tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """Pairs of orders of which one has the higher mean recall and the other the higher accuracy."""
    found = []
    for name, task in tasks.items():
        for step, (a, b) in itertools.product(
            next(iter(task["results"].values())), itertools.combinations(task["results"], 2)
        ):
            first = {
                figure: max((a, b), key=lambda order: task["results"][order][step][figure]["mean"])  # noqa: B023
                for figure in ("mean_recall", "accuracy")
            }
            if len(set(first.values())) == 2:
                found.append({"task": name, "updates": step, "pair": [a, b], "ahead": first})
    return found


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "photos": f"make_catalogue(num_products={NUM_PRODUCTS}, seed=0), {SIDE} x {SIDE} pixels, products modulo 5: "
        "2, 3, 4 to train, 0 and 1 to test; a CNN of 33,834 parameters",
        "fashion": f"the embedded part: {LARGEST}, {LARGEST // 2}, {LARGEST // 3} ... of a class to train, 200 of each "
        "to test; small_cnn, 9,226 parameters",
        "optimizer": f"AdamW, lr {LR}, constant, batch size {BATCH_SIZE}",
        "orders": ORDERS,
        "updates": UPDATES,
        "seeds": SEEDS,
    }


def whole(cache: Cache) -> dict[str, Any]:
    """The record's content."""
    tasks = {name: report(cache, name) for name in ("photos", "fashion")}
    return {"setup": setup(), "tasks": tasks, "flips": flips(tasks)}


def main(arguments: list[str] | None = None) -> None:
    quick = partial(report, name="fashion", updates=(2, 4), seeds=SEEDS[:2])
    program("long_tail", arguments, whole=whole, quick=quick)


if __name__ == "__main__":
    main()
