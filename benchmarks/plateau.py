"""Does a cosine suit images, and ReduceLROnPlateau text (claim C76)? Both, and a constant lr, on photos and captions.

    python -m benchmarks.plateau

writes `benchmarks/records/plateau.json`. Within a task and seed all runs start from the same weights and see the same
batches. The lr of each schedule is chosen by the validation loss on seeds that are not reported. The validation loss
drives the plateau too, so the test part, which neither has seen, decides.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from benchmarks.catalogue_tasks import NUM_PRODUCTS, PARTS, SIDE, TASKS, WINDOW, alphabet, rows_of
from benchmarks.trainings import LOSS_FN, Cache, begin, collect, initial, plan_of, spread
from course_utils.loaders import ResumableLoader
from course_utils.schedules import constant, make_scheduler, plateau_step
from course_utils.training_loop import Trainer, evaluate

NUM_STEPS, BATCH_SIZE, EVAL_EVERY = 600, 32, 20  # updates, examples, updates
FACTOR, PATIENCE, WARMUP_SHARE = 0.3, 2, 0.05
CHOOSING, REPORTED = (100, 101, 102), (0, 1, 2, 3, 4)  # seeds
LRS = {"photos": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2), "captions": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)}
SCHEDULES = {
    "warmup_cosine": f"{WARMUP_SHARE:.0%} of the updates up, then half a cosine to 0",
    "plateau": f"ReduceLROnPlateau(factor={FACTOR}, patience={PATIENCE}), other arguments as they come, on the "
    f"validation loss after every {EVAL_EVERY} updates: a cut at the evaluation number {PATIENCE + 1} in a row that is "
    "no new lowest",
    "constant": "factor 1",
}


def run(task: str, schedule: str, lr: float, seed: int) -> dict[str, Any]:
    """One training: figures on validation and test part at its end, and lr and validation loss on the way.

    A loss that is not finite stops the sweep: the grid is too wide then.
    """
    trainer, loader = make_trainer(task, schedule, lr, seed)
    plateau = ReduceLROnPlateau(trainer.optimizer, factor=FACTOR, patience=PATIENCE) if schedule == "plateau" else None
    val_losses = []
    for row in trainer.steps(loader, num_steps=NUM_STEPS):
        if row["step"] % EVAL_EVERY == 0:
            val_losses.append(evaluate(trainer.model, in_order(task, "val"), LOSS_FN).loss)
            if plateau is not None:
                plateau_step(plateau, val_losses[-1])
    lrs = [float(f"{row['lr']:.4g}") for row in trainer.history]
    cuts = [step for step in range(2, NUM_STEPS + 1) if plateau is not None and lrs[step - 1] < lrs[step - 2]]
    on_the_way = {"val_losses": [round(loss, 4) for loss in val_losses], "lrs": lrs[EVAL_EVERY - 1 :: EVAL_EVERY]}
    return {"figures": figures(trainer, task), "cuts": cuts} | on_the_way


def make_trainer(task: str, schedule: str, lr: float, seed: int) -> tuple[Trainer, ResumableLoader]:
    """Weights and order come from `seed`. No scheduler for the plateau: the trainer would step it after each update."""
    model = initial(TASKS[task].build, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    plan = plan_of(NUM_STEPS, warmup_share=WARMUP_SHARE) if schedule == "warmup_cosine" else constant
    scheduler = None if schedule == "plateau" else make_scheduler(optimizer, plan)
    loader = ResumableLoader(TASKS[task].data("train"), batch_size=BATCH_SIZE, seed=seed)
    return Trainer(model, optimizer, LOSS_FN, scheduler=scheduler), loader


def in_order(task: str, part: str) -> ResumableLoader:
    """A loader for evaluation."""
    return ResumableLoader(TASKS[task].data(part), batch_size=500, shuffle=False)


def figures(trainer: Trainer, task: str) -> dict[str, float]:
    """Training loss of the last tenth of updates; loss and share of right answers on validation and test part."""
    losses = [row["loss"] for row in trainer.history]
    found = {"final_loss": round(statistics.fmean(losses[-NUM_STEPS // 10 :]), 4)}
    for part in ("val", "test"):
        loss, accuracy, *_ = evaluate(trainer.model, in_order(task, part), LOSS_FN)
        found |= {f"{part}_loss": round(loss, 4), f"{part}_accuracy": round(accuracy, 4)}
    return found


def choose_lrs(cache: Cache, task: str) -> dict[str, dict[str, float]]:
    """{schedule: {lr: validation loss at the end, mean over the choosing seeds}}."""
    return {
        schedule: {
            str(lr): round(
                statistics.fmean(cache.get(run, task, schedule, lr, s)["figures"]["val_loss"] for s in CHOOSING), 4
            )
            for lr in LRS[task]
        }
        for schedule in SCHEDULES
    }


def result(lr: float, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What the reported seeds gave: spreads, the updates that were first at a lower lr, two curves."""
    curve = [round(statistics.fmean(losses), 4) for losses in zip(*(row["val_losses"] for row in runs), strict=True)]
    steps = list(range(EVAL_EVERY, NUM_STEPS + 1, EVAL_EVERY))
    return {
        "lr": lr,
        **collect([row["figures"] for row in runs]),
        "num_cuts": spread([len(row["cuts"]) for row in runs]),
        "cuts": {str(seed): row["cuts"] for seed, row in zip(REPORTED, runs, strict=True)},
        "val_curve": {"step": steps, "mean": curve},
        "one_run": {"seed": REPORTED[0], "step": steps, "lr": runs[0]["lrs"], "val_loss": runs[0]["val_losses"]},
    }


def wins(results: dict[str, Any], figure: str) -> dict[str, dict[str, int]]:
    """{a: {b: seeds in which a is better than b}}: a lower loss, or a higher accuracy; a tie is no win."""
    sign = 1 if figure.endswith("accuracy") else -1
    found: dict[str, dict[str, int]] = {name: {} for name in results}
    for a, b in itertools.permutations(results, 2):
        pairs = zip(results[a][figure]["each"], results[b][figure]["each"], strict=True)
        found[a][b] = sum(sign * mine > sign * theirs for mine, theirs in pairs)
    return found


def report(cache: Cache, task: str) -> dict[str, Any]:
    """One task: the grid, and each schedule at its best lr with the reported seeds."""
    grid, results = choose_lrs(cache, task), {}
    for schedule, row in grid.items():
        lr = float(min(row, key=row.__getitem__))
        results[schedule] = result(lr, [cache.get(run, task, schedule, lr, seed) for seed in REPORTED])
    names = ("val_loss", "test_loss", "test_accuracy")
    return {"grid": grid, "results": results, "wins": {name: wins(results, name) for name in names}}


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    sizes = {name: sum(param.numel() for param in task.build().parameters()) for name, task in TASKS.items()}
    return {
        "data": f"make_catalogue(num_products={NUM_PRODUCTS}, seed=0); no product is in two parts",
        "photos": f"class of a photo of {SIDE} x {SIDE} pixels, of 10; a CNN of three convolutions",
        "captions": f"next of {len(alphabet())} characters in windows of {WINDOW}, captions one a line; a GRU of 64",
        "num_parameters": sizes,
        "num_photos": {part: len(rows_of(part)) for part in PARTS},
        "num_examples": {name: {part: len(task.data(part)) for part in PARTS} for name, task in TASKS.items()},
        "optimizer": "AdamW, defaults but for the lr",
        "num_steps": NUM_STEPS,
        "batch_size": BATCH_SIZE,
        "schedules": SCHEDULES,
        "plateau": {"eval_every": EVAL_EVERY, "factor": FACTOR, "patience": PATIENCE},
        "lr_chosen_by": "lowest mean validation loss after the last update, over the choosing seeds",
        "choosing_seeds": CHOOSING,
        "seeds": REPORTED,
        "losses": "val_loss, test_loss: mean over a part (captions: a character); final_loss: training, last tenth",
    }


def main() -> None:
    cache = begin("plateau")
    tasks = {task: report(cache, task) for task in TASKS}
    print(cache.store({"setup": setup(), "tasks": tasks}).name)


if __name__ == "__main__":
    main()
