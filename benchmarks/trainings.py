"""What the sweeps share: the data, a cache of finished pieces, one training with its final figures.

A piece is a function call with plain arguments; its result is kept in a temporary file until the record is stored, so
an interrupted sweep goes on where it stopped.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import records
from course_utils.datasets import ArrayDataset, load_fashion
from course_utils.loaders import ResumableLoader
from course_utils.machine import fit_threads
from course_utils.models import MEAN, STD
from course_utils.optimizer_step import NonFiniteError
from course_utils.randomness import derive_seed, isolated_rng, seed_generators
from course_utils.schedules import constant, make_scheduler, warmup_cosine
from course_utils.training_loop import Trainer, evaluate

NUM_TRAIN = 9_000  # of the 10,000; the other 1,000 choose the lr where it is chosen by validation
LOSS_FN = nn.functional.cross_entropy


@functools.cache
def data(part: str) -> ArrayDataset:
    """Scaled once, float32 (N, 1, 28, 28): "all" (10,000) or its parts "train" (9,000), "val" (1,000); or "test"."""
    rows = {"train": slice(0, NUM_TRAIN), "val": slice(NUM_TRAIN, None)}.get(part, slice(None))
    found = load_fashion("test" if part == "test" else "train")
    images = (found.images[rows].float() / 255 - MEAN) / STD
    return ArrayDataset(images, found.targets[rows], classes=found.classes)


def in_order(part: str) -> ResumableLoader:
    """A loader for evaluation."""
    return ResumableLoader(data(part), batch_size=500, shuffle=False)


class Cache:
    """Results of finished pieces, in a file in the temporary folder; `runs` and `seconds` add up what they cost."""

    def __init__(self, name: str) -> None:
        self.name, self.path = name, Path(tempfile.gettempdir()) / f"course-benchmarks-{name}.json"
        self.pieces: dict[str, dict] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def get(self, make: Callable[..., Any], *args: Any, runs: int = 1) -> Any:
        """`make(*args)`, or what it gave before."""
        key = f"{make.__name__}{args}"
        if key not in self.pieces:
            began = time.perf_counter()
            result = make(*args)
            self.pieces[key] = {"result": result, "runs": runs, "seconds": time.perf_counter() - began}
            self.path.write_text(json.dumps(self.pieces))
            print(f"{self.pieces[key]['seconds']:6.1f} s  {key}", file=sys.stderr, flush=True)
        return self.pieces[key]["result"]

    def store(self, content: dict[str, Any]) -> Path:
        """Write the record and forget the pieces."""
        runs, seconds = (sum(piece[name] for piece in self.pieces.values()) for name in ("runs", "seconds"))
        path = records.store(self.name, records.made_on(runs=runs, seconds=seconds), content)
        self.path.unlink(missing_ok=True)
        return path


def begin(name: str) -> Cache:
    """One thread, and the pieces that an interrupted sweep left."""
    fit_threads()
    return Cache(name)


def plan_of(num_steps: int, *, warmup_share: float, cosine: bool = True) -> Callable[[int], float]:
    """Warm-up over a share of the run (rounded; a share above 0 is at least one update), then a cosine or flat."""
    warmup_steps = max(1, round(warmup_share * num_steps)) if warmup_share else 0
    if cosine:
        return functools.partial(warmup_cosine, warmup_steps=warmup_steps, total_steps=num_steps)
    return functools.partial(_rise, warmup_steps=warmup_steps) if warmup_steps else constant


def _rise(step: int, *, warmup_steps: int) -> float:
    return min(1.0, (step + 1) / warmup_steps)


def fit_whole(trainer: Trainer, loader: Any, num_steps: int) -> Trainer:
    """`trainer.fit` to `num_steps` updates since its start.

    raises : KeyboardInterrupt where the trainer was asked to stop: a piece that was cut short is no result. (Loops over
             `trainer.steps` need no such care: there a signal ends the program itself)
    """
    trainer.fit(loader, num_steps=num_steps)
    if trainer.stopped_by:
        raise KeyboardInterrupt(trainer.stopped_by)
    return trainer


def initial(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A network whose initial weights are a function of `seed`; the global generators stay as they are."""
    with isolated_rng():
        seed_generators(derive_seed(seed, "init"))
        return build()


def train(build, make_optimizer, factor_fn, *, num_steps: int, batch_size: int, seed: int) -> Trainer | None:
    """One training on the 9,000, or None where it diverged. Initial weights and order are functions of `seed`."""
    model = initial(build, seed)
    optimizer = make_optimizer(model.parameters())
    trainer = Trainer(model, optimizer, LOSS_FN, scheduler=make_scheduler(optimizer, factor_fn))
    try:
        return fit_whole(trainer, ResumableLoader(data("train"), batch_size=batch_size, seed=seed), num_steps)
    except NonFiniteError:
        return None


def figures(trainer: Trainer | None) -> dict[str, float]:
    """Mean loss of the last tenth of updates, and loss and accuracy on the three parts.

    A run that diverged (inf or NaN) counts as guessing: loss ln 10, accuracy 0.1.
    """
    if trainer is None:
        losses = {f"{name}_loss": round(math.log(10), 4) for name in ("final", "train", "val", "test")}
        return losses | {f"{part}_accuracy": 0.1 for part in ("train", "val", "test")} | {"diverged": 1}
    losses = [row["loss"] for row in trainer.history]
    found = {"final_loss": round(statistics.fmean(losses[-max(1, len(losses) // 10) :]), 4)}
    for part in ("train", "val", "test"):
        loss, accuracy, *_ = evaluate(trainer.model, in_order(part), LOSS_FN)
        found |= {f"{part}_loss": round(loss, 4), f"{part}_accuracy": round(accuracy, 4)}
    return found | {"diverged": 0}


def largest_curvature(model: nn.Module, *, num_examples: int = 1_000, iterations: int = 15) -> float:
    """Largest eigenvalue of the training loss's Hessian (sharpness), by power iteration on fixed examples."""
    part, params = data("train"), list(model.parameters())
    loss = LOSS_FN(model(part.images[:num_examples]), part.targets[:num_examples])
    gradient = torch.autograd.grad(loss, params, create_graph=True)
    generator = torch.Generator().manual_seed(0)
    vector = [torch.randn(param.shape, generator=generator) for param in params]
    for _ in range(iterations):
        norm = torch.sqrt(sum((part**2).sum() for part in vector))
        vector = [part / norm for part in vector]
        product = torch.autograd.grad(gradient, params, vector, retain_graph=True)
        eigenvalue = float(sum((a * b).sum() for a, b in zip(vector, product, strict=True)))
        vector = list(product)
    return round(eigenvalue, 3)


def collect(rows: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """{figure: {"mean", "stdev", "each"}} from one dict a seed."""
    return {name: spread([row[name] for row in rows]) for name in rows[0]}


def spread(values: list[float]) -> dict[str, Any]:
    """Mean, standard deviation over seeds, and each value."""
    rounded = [round(value, 4) for value in values]
    return {"mean": round(statistics.fmean(values), 4), "stdev": round(statistics.stdev(values), 4), "each": rounded}
