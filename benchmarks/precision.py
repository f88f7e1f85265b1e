"""Mixed precision on this processor: accuracy, time, memory, skipped steps (chapter 06, C36).

    python -m benchmarks.precision --seconds 80

writes `benchmarks/records/precision.json`; `--quick` tries it with a few updates and two seeds, and stores nothing.
The same network is trained from the same weights on the same batches of Fashion-MNIST, in several types.

    results[way], way of WAYS
        words
        accuracy, val_loss : spreads, on the 1,000 validation examples, judged in the type of the weights
        accuracy_gap       : spread, seed by seed, of float32's accuracy - own
        skipped            : spread of the updates that were skipped, an overflow each
        skipped_at         : of the first seed, the updates (from 1 on) that were
        scale              : the first seed's loss scale after the last update, null without a scaler
        zeros              : spread of the mean share of gradient entries that are 0, over every 20th update
        kept_bytes         : kept for backward by one forward pass of a batch
        weight_bytes       : of parameters and optimizer state
        gradient_error     : |own - float32's| / |float32's|, of the first update's gradient; null where that overflows
        ms, median_ms      : of a step; least and median of interleaved rounds
        over_first         : own ms over float32's
    operations[operation][dtype] : `ms`, `median_ms`, `over_first` of one operation alone, without autocast
    units : whether this CPU computes in bfloat16, float16 itself; null where torch does not say
    setup : net, data, updates, seeds, rounds

A spread is {"mean", "stdev", "each"} over seeds. Times are of one thread and of this processor: one that computes in
bfloat16 itself has others, and so has a GPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.costs import compared, digits, milliseconds, state_bytes
from benchmarks.model_remedies import units
from benchmarks.pieces import program
from benchmarks.timing import interleaved
from benchmarks.trainings import LOSS_FN, data, initial, spread
from course_utils.loaders import ResumableLoader
from course_utils.models import small_cnn
from course_utils.profiling import bytes_for_backward

SEEDS, NUM_STEPS, BATCH_SIZE, LR, LOOK_EVERY, ROUNDS, CALLS = (0, 1, 2, 3, 4), 280, 64, 2e-3, 20, 30, 3


@dataclass(frozen=True)
class Way:
    """dtype: of autocast, or of weights and inputs where `weights`; init_scale: of a `GradScaler`, None for none."""

    words: str
    dtype: torch.dtype | None = None
    init_scale: float | None = None
    weights: bool = False


WAYS = {
    "float32": Way("everything in float32"),
    "bfloat16": Way("torch.autocast to bfloat16; weights stay float32", torch.bfloat16),
    "float16": Way("torch.autocast to float16 with GradScaler; weights stay float32", torch.float16, 2.0**16),
    "float16, scale from 2**32": Way("the same with GradScaler(init_scale=2.0**32): too large", torch.float16, 2.0**32),
    "float16, no scaler": Way("torch.autocast to float16 without GradScaler", torch.float16),
    "bfloat16 weights": Way("model.bfloat16(): weights and optimizer state too", torch.bfloat16, weights=True),
}
OPERATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "matmul 256 x 256": lambda x: x @ x,
    "conv2d 3 x 3, 16 channels": lambda x: F.conv2d(x.view(16, 16, 16, 16), x.view(-1)[:2304].view(16, 16, 3, 3)),
    "add 65,536": lambda x: x + x,
}


class Training:
    """One network in one way, and its step; `skipped` counts overflows."""

    def __init__(self, way: Way, seed: int) -> None:
        self.way, self.skipped, self.updates = way, [], 0
        self.model = initial(small_cnn, seed)
        if way.weights:
            self.model.to(way.dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=way.init_scale or 1.0, enabled=way.init_scale is not None)

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """In the way's type; float (B, 10)."""
        if self.way.weights:
            return self.model(images.to(self.way.dtype)).float()
        with nullcontext() if self.way.dtype is None else torch.autocast("cpu", dtype=self.way.dtype):
            return self.model(images).float()

    def loss(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return LOSS_FN(self.logits(images), targets)

    def step(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One update, or a skipped one; returns the loss."""
        self.optimizer.zero_grad()
        loss = self.loss(images, targets)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        self.updates += 1
        if self.way.init_scale and not torch.isfinite(self.gradient()).all():
            self.skipped.append(self.updates)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def gradient(self) -> torch.Tensor:
        """All of it, in one vector; float32."""
        return torch.cat([param.grad.flatten() for param in self.model.parameters()]).float()


def batches(seed: int) -> Any:
    """Endless: epoch after epoch, the same for every way."""
    loader = ResumableLoader(data("train"), batch_size=BATCH_SIZE, seed=seed)
    while True:
        yield from loader


def first_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of its own memory: a view would keep all images for backward."""
    return data("train").images[:BATCH_SIZE].clone(), data("train").targets[:BATCH_SIZE].clone()


def run(way: str, seed: int, num_steps: int) -> dict[str, Any]:
    """One training's figures; a loss that is no number counts as it is found, without a rescue."""
    training, zeros = Training(WAYS[way], seed), []
    for step, (images, targets) in zip(range(num_steps), batches(seed), strict=False):
        training.step(images, targets)
        if step % LOOK_EVERY == 0:
            zeros.append((training.gradient() == 0).double().mean().item())
    part = data("val")
    with torch.no_grad():  # no autocast: what is judged are the weights that came out
        logits = training.model(part.images.to(next(training.model.parameters()).dtype)).float()
    return {
        "accuracy": (logits.argmax(1) == part.targets).double().mean().item(),
        "val_loss": LOSS_FN(logits, part.targets).item(),
        "skipped": training.skipped,
        "scale": training.scaler.get_scale() if WAYS[way].init_scale else None,
        "zeros": statistics.fmean(zeros),
    }


def counted(way: str) -> dict[str, Any]:
    """What needs no clock: bytes, and how far the first gradient is from float32's."""
    images, targets = first_batch()
    plain, own = (Training(WAYS[name], 0) for name in ("float32", way))
    kept = bytes_for_backward(lambda: own.loss(images, targets))
    for training in (plain, own):
        training.step(images, targets)
    error = float((own.gradient() - plain.gradient()).norm() / plain.gradient().norm())
    while not own.optimizer.state:  # updates are skipped until the scale fits
        own.step(images, targets)
    weights = sum(param.nbytes for param in own.model.parameters())
    return {
        "kept_bytes": kept,
        "weight_bytes": weights + state_bytes(own.optimizer),
        "gradient_error": digits(error) if math.isfinite(error) else None,
    }


def times(rounds: int, calls: int) -> dict[str, dict[str, float]]:
    """{way: ms, median_ms, over_first} of a step: every way in every round."""
    images, targets = first_batch()
    candidates = {}
    for name, way in WAYS.items():
        training = Training(way, 0)
        candidates[name] = lambda training=training: training.step(images, targets)
    return compared(
        {name: milliseconds(of) for name, of in interleaved(candidates, rounds=rounds, calls=calls).items()}
    )


def operations(rounds: int, calls: int) -> dict[str, dict[str, dict[str, float]]]:
    """{operation: {dtype: ms, median_ms, over_first}}, one operation alone."""
    values = torch.rand(256, 256, generator=torch.Generator().manual_seed(0))
    found = {}
    for name, operation in OPERATIONS.items():
        candidates = {}
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            cast = values.to(dtype)
            candidates[str(dtype).removeprefix("torch.")] = lambda cast=cast, operation=operation: operation(cast)
        timed = interleaved(candidates, rounds=rounds, calls=calls)
        found[name] = compared({dtype: milliseconds(of) for dtype, of in timed.items()})
    return found


def summary(way: str, runs: list[dict[str, Any]], plain: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over seeds."""
    found: dict[str, Any] = {"words": WAYS[way].words}
    found |= {name: spread([row[name] for row in runs]) for name in ("accuracy", "val_loss", "zeros")}
    found["accuracy_gap"] = spread([a["accuracy"] - b["accuracy"] for a, b in zip(plain, runs, strict=True)])
    found["skipped"] = spread([len(row["skipped"]) for row in runs])
    return found | {"skipped_at": runs[0]["skipped"], "scale": runs[0]["scale"]}


def report(cache: Any, *, seeds=SEEDS, num_steps=NUM_STEPS, rounds=ROUNDS, calls=CALLS) -> dict[str, Any]:
    """`results`, `operations` and `units` of the record."""
    runs = {way: [cache.get(run, way, seed, num_steps) for seed in seeds] for way in WAYS}
    counts = {way: cache.get(counted, way) for way in WAYS}
    timed, alone = (cache.get(make, rounds, calls, runs=rounds) for make in (times, operations))
    results = {way: summary(way, of, runs["float32"]) | counts[way] | timed[way] for way, of in runs.items()}
    return {"results": results, "operations": alone, "units": units()}


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "data": "9,000 training examples of Fashion-MNIST, 1,000 validation examples",
        "net": "small_cnn, 9,226 parameters",
        "optimizer": f"AdamW, lr {LR}, constant, {NUM_STEPS} updates (2 epochs), batch size {BATCH_SIZE}",
        "init_scale": {way: of.init_scale for way, of in WAYS.items()},
        "rounds": ROUNDS,
        "calls": CALLS,
        "seeds": SEEDS,
    }


def main(arguments: list[str] | None = None) -> None:
    program(
        "precision",
        arguments,
        whole=lambda cache: {"setup": setup(), **report(cache)},
        quick=lambda cache: report(cache, seeds=SEEDS[:2], num_steps=2, rounds=2, calls=1),
    )


if __name__ == "__main__":
    main()
