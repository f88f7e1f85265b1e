"""The lr race: several schedules train the same network on the same batches, one update each in turn.

It knows schedules as functions, a way to build a model, and a data set. `schedules` re-exports its names.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from course_utils.loaders import ResumableLoader
from course_utils.optimizer_step import NonFiniteError
from course_utils.randomness import derive_seed, isolated_rng, seed_generators
from course_utils.training_loop import Trainer, evaluate


class Entry(NamedTuple):
    """One that takes part: a factor function (arguments bound) and the lr it multiplies."""

    factor_fn: Callable[[int], float]
    lr: float


@dataclass
class Race:
    """What a race recorded; every list has one value an update (losses, lrs) or one a seed (the rest).

    losses   : {name: {seed: [loss of each update]}}; inf from the update on whose loss or gradient was not finite
    lrs      : {name: [lr of each update]}
    accuracy : {name: [on the validation set after the last update]}
    """

    num_steps: int
    losses: dict[str, dict[int, list[float]]] = field(default_factory=dict)
    lrs: dict[str, list[float]] = field(default_factory=dict)
    accuracy: dict[str, list[float]] = field(default_factory=dict)

    def final_loss(self, name: str, *, share: float = 0.1) -> list[float]:
        """For each seed, the mean loss of the last `share` of updates."""
        last = max(1, round(share * self.num_steps))
        return [statistics.fmean(losses[-last:]) for losses in self.losses[name].values()]

    def late_swing(self, name: str, *, share: float = 0.1) -> list[float]:
        """For each seed, the standard deviation of the loss over the last `share` of updates."""
        last = max(2, round(share * self.num_steps))
        tails = [losses[-last:] for losses in self.losses[name].values()]
        return [statistics.stdev(tail) if math.isfinite(sum(tail)) else math.inf for tail in tails]

    def early_rank(self, *, share: float = 0.2) -> list[str]:
        """Names from the lowest to the highest mean loss over the tenth of updates that ends at `share` of the run."""
        stop = max(1, round(share * self.num_steps))
        start = max(0, stop - max(1, self.num_steps // 10))
        mean = {
            name: statistics.fmean(loss for losses in runs.values() for loss in losses[start:stop])
            for name, runs in self.losses.items()
        }
        return sorted(mean, key=mean.__getitem__)

    def crossing(self, name: str, other: str, *, window: int = 20) -> int | None:
        """The update from which the smoothed mean loss of `name` stays below that of `other`; None if it never does."""
        mine, theirs = (self.smoothed(who, window) for who in (name, other))
        above = [step for step, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a >= b]
        first = above[-1] + 1 if above else 0
        return first if first < self.num_steps else None

    def wins(self, name: str, other: str) -> int:
        """In how many seeds `name` ended with the lower final loss."""
        return sum(a < b for a, b in zip(self.final_loss(name), self.final_loss(other), strict=True))

    def smoothed(self, name: str, window: int) -> list[float]:
        """The mean loss over seeds, each value the mean of the last `window` updates."""
        runs = list(self.losses[name].values())
        mean = [statistics.fmean(losses) for losses in zip(*runs, strict=True)]
        return [statistics.fmean(mean[max(0, step - window + 1) : step + 1]) for step in range(len(mean))]


def _make_runner(entry: Entry, build, dataset, loss_fn, make_optimizer, batch_size, seed, keyed_draws):
    """A trainer and its loader. Start weights, batches and draws are functions of `seed`, not of the entry."""
    with isolated_rng():
        seed_generators(derive_seed(seed, "init"))
        model = build()
    optimizer = make_optimizer(model.parameters(), lr=entry.lr)
    scheduler = LambdaLR(optimizer, entry.factor_fn)
    trainer = Trainer(model, optimizer, loss_fn, scheduler=scheduler, seed=seed if keyed_draws else None)
    return trainer, ResumableLoader(dataset, batch_size=batch_size, seed=seed)


def _check_models(models: list[nn.Module], keyed_draws: bool) -> None:
    """raises : ValueError unless the models are different objects with equal weights, and draw only where they may"""
    if len({id(model) for model in models}) < len(models):
        raise ValueError("build must make a new model on each call; it returned the same one, so all would train it")
    first = models[0].state_dict()
    for model in models[1:]:
        if not all(torch.equal(tensor, first[name]) for name, tensor in model.state_dict().items()):
            raise ValueError("build made models with different weights: seed the generator that it draws from")
    dropouts = [m for m in models[0].modules() if isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0]
    if dropouts and not keyed_draws:
        raise ValueError("dropout draws from the generators that other cells use: race without it, or keyed_draws=True")


class Runners:
    """The trainers of one race and seed, all built at once (so that nothing is drawn later), advanced in turn.

    build       : () -> a new model; drawn weights are the same for all entries
    dataset     : as for `ResumableLoader`; all entries see the same batches of batch_size examples
    keyed_draws : set the generators before each update from (seed, step), so that dropout is the same for all entries;
                  False touches no generator: a live run beside other cells must not
    diverged    : names of entries whose loss or gradient was not finite; they make no more updates, their loss is inf
    raises      : ValueError for no entries, no steps, models that do not start alike, or dropout without keyed_draws
    """

    def __init__(
        self,
        entries: Mapping[str, Entry],
        *,
        build: Callable[[], nn.Module],
        dataset: Any,
        num_steps: int,
        seed: int = 0,
        batch_size: int = 64,
        loss_fn: Callable = nn.functional.cross_entropy,
        make_optimizer: Callable[..., Optimizer] = AdamW,
        keyed_draws: bool = False,
    ) -> None:
        if not entries or num_steps < 1:
            raise ValueError(f"a race needs entries and num_steps >= 1, got {len(entries)} entries, {num_steps} steps")
        args = (build, dataset, loss_fn, make_optimizer, batch_size, seed, keyed_draws)
        pairs = {name: _make_runner(entry, *args) for name, entry in entries.items()}
        self.trainers: dict[str, Trainer] = {name: trainer for name, (trainer, _) in pairs.items()}
        _check_models([trainer.model for trainer in self.trainers.values()], keyed_draws)
        self.entries, self.num_steps, self.loss_fn = dict(entries), num_steps, loss_fn
        self.diverged: set[str] = set()
        self._step = 0
        self._iterators = {name: t.steps(loader, num_steps=num_steps) for name, (t, loader) in pairs.items()}

    def __iter__(self) -> Iterator[dict[str, dict[str, Any]]]:
        """One update of each; yields {name: history row}."""
        while self._step < self.num_steps:
            self._step += 1
            yield {name: self._advance(name) for name in self.trainers}

    def _advance(self, name: str) -> dict[str, Any]:
        """One update of one entry; of a diverged one a row that says so."""
        if name not in self.diverged:
            try:
                return next(self._iterators[name])
            except NonFiniteError:
                self.diverged.add(name)
        entry, history = self.entries[name], self.trainers[name].history or [{"epoch": 0, "wait_ms": 0.0}]
        lr = entry.lr * entry.factor_fn(self._step - 1)
        return history[-1] | {"step": self._step, "loss": math.inf, "lr": lr, "grad_norm": math.inf}

    def accuracy(self, loader: ResumableLoader) -> dict[str, float]:
        """Of each network as it is now; NaN for a diverged one. Touches no generator, as a live run must not."""
        return {name: self._accuracy(name, loader) for name in self.trainers}

    def _accuracy(self, name: str, loader: ResumableLoader) -> float:
        model = self.trainers[name].model
        if name in self.diverged or not all(param.isfinite().all() for param in model.parameters()):
            return math.nan
        return evaluate(model, loader, self.loss_fn, isolate=False).accuracy


def race_steps(entries: Mapping[str, Entry], **how: Any) -> Iterator[dict[str, dict[str, Any]]]:
    """The race for one seed as an iterator: each `next` is one update of every entry, {name: history row}.

    All models are built at once, before the first `next`, and no generator is touched after that, so it can run beside
    other cells. `how`: build, dataset, num_steps, seed, batch_size, loss_fn and make_optimizer, as in `Runners`.

    raises : ValueError for a model with dropout, which would draw from the generators of those cells; use `race`
    """
    return iter(Runners(entries, **how))


def race(
    entries: Mapping[str, Entry],
    *,
    num_steps: int,
    seeds: Sequence[int] = (0,),
    val_loader: ResumableLoader | None = None,
    **how: Any,
) -> Race:
    """Race all entries once for each seed; within a seed they start from the same weights and see the same batches.

    entries    : {name: Entry(factor_fn, lr)}
    num_steps  : updates of each
    val_loader : measure accuracy after the last update
    how        : build, dataset, batch_size, loss_fn, make_optimizer, as in `Runners`
    """
    result = Race(num_steps, {name: {} for name in entries}, accuracy={name: [] for name in entries})
    for seed in seeds:
        runners = Runners(entries, num_steps=num_steps, seed=seed, keyed_draws=True, **how)
        rows = list(runners)
        for name in entries:
            result.losses[name][seed] = [row[name]["loss"] for row in rows]
            result.lrs[name] = [row[name]["lr"] for row in rows]
        if val_loader is not None:
            for name, accuracy in runners.accuracy(val_loader).items():
                result.accuracy[name].append(accuracy)
    return result
