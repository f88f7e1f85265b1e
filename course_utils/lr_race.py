"""The lr race: several schedules train the same network on the same batches, one update each in turn.

It knows schedules as functions, a way to build a model, and a data set. `schedules` re-exports its names.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from course_utils.loaders import ResumableLoader
from course_utils.randomness import derive_seed, isolated_rng, seed_generators
from course_utils.training_loop import Trainer, evaluate


class Entry(NamedTuple):
    """One that takes part: a factor function (arguments bound) and the lr it multiplies."""

    factor_fn: Callable[[int], float]
    lr: float


@dataclass
class Race:
    """What a race recorded; every list has one value an update (losses, lrs) or one a seed (the rest).

    losses   : {name: {seed: [loss of each update]}}
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
        return [statistics.stdev(losses[-last:]) for losses in self.losses[name].values()]

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
        mine, theirs = (self._smoothed(who, window) for who in (name, other))
        above = [step for step, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a >= b]
        first = above[-1] + 1 if above else 0
        return first if first < self.num_steps else None

    def wins(self, name: str, other: str) -> int:
        """In how many seeds `name` ended with the lower final loss."""
        return sum(a < b for a, b in zip(self.final_loss(name), self.final_loss(other), strict=True))

    def _smoothed(self, name: str, window: int) -> list[float]:
        runs = list(self.losses[name].values())
        mean = [statistics.fmean(losses) for losses in zip(*runs, strict=True)]
        return [statistics.fmean(mean[max(0, step - window + 1) : step + 1]) for step in range(len(mean))]


def _make_runner(entry: Entry, build: Callable[[], nn.Module], dataset, loss_fn, make_optimizer, batch_size, seed):
    """A trainer and its loader. The model's start and the batches are functions of `seed`, not of the entry."""
    with isolated_rng():
        seed_generators(derive_seed(seed, "init"))
        model = build()
    optimizer = make_optimizer(model.parameters(), lr=entry.lr)
    trainer = Trainer(model, optimizer, loss_fn, scheduler=LambdaLR(optimizer, entry.factor_fn))
    return trainer, ResumableLoader(dataset, batch_size=batch_size, seed=seed)


class Runners:
    """The trainers of one race and seed, all built at once (so that nothing is drawn later), advanced in turn."""

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
    ) -> None:
        if not entries or num_steps < 1:
            raise ValueError(f"a race needs entries and num_steps >= 1, got {len(entries)} entries, {num_steps} steps")
        args = (build, dataset, loss_fn, make_optimizer, batch_size, seed)
        pairs = {name: _make_runner(entry, *args) for name, entry in entries.items()}
        self.trainers: dict[str, Trainer] = {name: trainer for name, (trainer, _) in pairs.items()}
        self.num_steps, self.loss_fn = num_steps, loss_fn
        self._iterators = {name: t.steps(loader, num_steps=num_steps) for name, (t, loader) in pairs.items()}

    def __iter__(self) -> Iterator[dict[str, dict[str, Any]]]:
        """One update of each; yields {name: history row}."""
        while True:
            rows = {name: next(steps, None) for name, steps in self._iterators.items()}
            if None in rows.values():
                return
            yield rows

    def accuracy(self, loader: ResumableLoader) -> dict[str, float]:
        """Of each network as it is now."""
        return {name: evaluate(t.model, loader, self.loss_fn).accuracy for name, t in self.trainers.items()}


def race_steps(entries: Mapping[str, Entry], **how: Any) -> Iterator[dict[str, dict[str, Any]]]:
    """The race for one seed as an iterator: each `next` is one update of every entry, {name: history row}.

    All models are built at once, before the first `next`. `how`: build, dataset, num_steps, seed, batch_size,
    loss_fn and make_optimizer, as in `Runners`.
    """
    return iter(Runners(entries, **how))


def race(
    entries: Mapping[str, Entry], *, seeds: Sequence[int] = (0,), val_loader: ResumableLoader | None = None, **how: Any
) -> Race:
    """Race all entries once for each seed; within a seed they start from the same weights and see the same batches.

    entries    : {name: Entry(factor_fn, lr)}
    val_loader : measure accuracy after the last update
    how        : build, dataset, num_steps, batch_size, loss_fn, make_optimizer, as in `Runners`
    """
    result = Race(how["num_steps"], {name: {} for name in entries}, accuracy={name: [] for name in entries})
    for seed in seeds:
        runners = Runners(entries, seed=seed, **how)
        for _ in runners:
            pass
        for name, trainer in runners.trainers.items():
            result.losses[name][seed] = [row["loss"] for row in trainer.history]
            result.lrs[name] = [row["lr"] for row in trainer.history]
        if val_loader is not None:
            for name, accuracy in runners.accuracy(val_loader).items():
                result.accuracy[name].append(accuracy)
    return result
