"""The assembled program: trains the course's small network on the embedded data.

    python -m course_utils.train --epochs 4 --output runs/first

This is its first form: one process, no checkpoint. It writes `history.csv`, `result.json` and `weights.pt`.
"""

from __future__ import annotations

import argparse
import csv
import functools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from course_utils.datasets import load_fashion
from course_utils.loaders import ResumableLoader
from course_utils.machine import environment, fit_threads
from course_utils.models import MEAN, STD, small_cnn
from course_utils.randomness import derive_seed, isolated_rng, seed_generators
from course_utils.schedules import make_scheduler, updates_in_run, warmup_cosine
from course_utils.training_loop import Evaluation, Trainer, evaluate
from course_utils.transforms import ToFloat


class Run(NamedTuple):
    """A run that has not begun: `run.trainer.fit(run.train_loader, num_steps=run.total_steps)` makes it."""

    trainer: Trainer
    train_loader: ResumableLoader
    test_loader: ResumableLoader
    total_steps: int

    def evaluate(self) -> Evaluation:
        """Of the network as it is now, on the 2,000 test images."""
        return evaluate(self.trainer.model, self.test_loader, self.trainer.loss_fn)


def build_run(*, seed: int = 0, num_epochs: int = 4, batch_size: int = 64, lr: float = 0.01) -> Run:
    """Network, data, optimizer and plan of the course's first run, all functions of `seed`.

    raises : ValueError for num_epochs, batch_size or lr that are not above 0
    """
    if num_epochs < 1 or batch_size < 1 or lr <= 0:
        raise ValueError(f"need num_epochs >= 1, batch_size >= 1, lr > 0; got {num_epochs}, {batch_size}, {lr}")
    to_float = ToFloat(mean=MEAN, std=STD)
    train_set, test_set = (load_fashion(split, batch_transform=to_float) for split in ("train", "test"))
    with isolated_rng():
        seed_generators(derive_seed(seed, "init"))
        model = small_cnn()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0, fused=True)
    total_steps = updates_in_run(len(train_set), batch_size=batch_size, num_epochs=num_epochs)
    plan = functools.partial(warmup_cosine, warmup_steps=total_steps // 5, total_steps=total_steps)
    trainer = Trainer(model, optimizer, nn.CrossEntropyLoss(), scheduler=make_scheduler(optimizer, plan))
    train_loader = ResumableLoader(train_set, batch_size=batch_size, seed=seed)
    return Run(trainer, train_loader, ResumableLoader(test_set, batch_size=500, shuffle=False), total_steps)


def write_results(run: Run, found: Evaluation, output: Path) -> None:
    """`history.csv` (one row an update), `result.json` (accuracy, loss, environment), `weights.pt` (a state dict)."""
    with (output / "history.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(run.trainer.history[0]))
        writer.writeheader()
        writer.writerows(run.trainer.history)
    result = {"steps": run.trainer.step, "test_loss": found.loss, "test_accuracy": found.accuracy}
    text = json.dumps(result | {"environment": environment()}, indent=1)
    (output / "result.json").write_text(text, encoding="utf-8")
    torch.save(run.trainer.model.state_dict(), output / "weights.pt")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m course_utils.train", description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4, help="passes over the 10,000 training images (default 4)")
    parser.add_argument("--output", type=Path, help="folder for history, result and weights; made if absent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.01, help="peak learning rate (default 0.01)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="torch threads at most (default 1)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = _parser()
    args = parser.parse_args(argv)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        parser.error("this version trains in one process; several ranks come with chapter 12: run it without torchrun")
    if args.output is not None and (args.output / "result.json").exists():
        parser.error(f"{args.output} holds a finished run: give another --output (going on comes with chapter 08)")
    fit_threads(max_threads=args.threads)
    try:
        run = build_run(seed=args.seed, num_epochs=args.epochs, batch_size=args.batch_size, lr=args.lr)
    except ValueError as error:
        parser.error(str(error))
    if args.output is not None:
        args.output.mkdir(parents=True, exist_ok=True)
    run.trainer.progress = sys.stderr.isatty()
    run.trainer.fit(run.train_loader, num_steps=run.total_steps)
    found = run.evaluate()
    made = f"{run.trainer.step} of {run.total_steps} steps"
    print(f"{made}, test accuracy {found.accuracy:.4f}, test loss {found.loss:.4f}")
    if args.output is not None:
        write_results(run, found, args.output)
        print(f"written to {args.output}: history.csv, result.json, weights.pt")
    return 0 if run.trainer.stopped_by is None else 130


if __name__ == "__main__":
    sys.exit(main())
