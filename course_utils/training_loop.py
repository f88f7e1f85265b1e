"""The training loop: a trainer whose state is whole at every step boundary.

It knows a model, a loader and one update at a time; files, processes and schedules are other modules' business.
Means and evaluation live in `evaluation` and are re-exported here.
"""

from __future__ import annotations

import copy
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import nn

from course_utils import run_state
from course_utils.evaluation import Evaluation, Mean, eval_mode, evaluate, to_device, unwrap
from course_utils.interrupts import stop_at_boundary
from course_utils.machine import environment
from course_utils.optimizer_step import NonFiniteError, StepReport, default_count, update
from course_utils.randomness import derive_seed, isolated_rng, seed_everything

__all__ = ["Evaluation", "Mean", "Trainer", "eval_mode", "evaluate", "unwrap"]

MAX_SKIPS_IN_A_ROW = 100
_END = object()


class PlainLoader:
    """Lends a loader without a position (a `DataLoader`, a list of batches) an epoch counter: it looks a batch ahead.

    Its place inside an epoch is not saved: going on starts the epoch again.
    """

    key = None

    def __init__(self, loader: Iterable, epoch: int = 0) -> None:
        self.loader, self.epoch = loader, epoch

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        batch = next(batches, _END)
        while batch is not _END:
            coming = next(batches, _END)
            if coming is _END:
                self.epoch += 1  # counted at hand-over, as ResumableLoader does
            yield batch
            batch = coming

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """raises : ValueError for a place inside an epoch, which this loader could not find again"""
        if state.get("offset"):
            raise ValueError(
                f"cannot resume: the state is {state['offset']} examples into epoch {state['epoch']}, and a loader "
                "without state_dict can only start an epoch: give a ResumableLoader"
            )
        self.epoch = state["epoch"]


class Trainer:
    """Makes updates from a loader's batches, and remembers all that going on needs.

    scheduler  : stepped once after each update that was made; never for a skipped one
    accumulate : micro-batches an update; an epoch's last window holds what is left
    max_norm, max_value, scaler, autocast_dtype, count_fn, sync : as in `optimizer_step.update`
    ema        : something with `update(model)` and `state_dict`, called after each update
    seed       : set the generators before each window from (seed, step, rank), so dropout does not depend on what else
                 drew; None touches no generator
    device     : where inputs and targets are moved; None leaves them
    progress   : show a bar in `fit`
    on_step    : on_step(trainer, report, keys) after clipping, before the weights change: the one extension point

    `step` counts optimizer updates. `history` has one dict an update: step, epoch, loss, lr, grad_norm, wait_ms;
    `val_history` one an epoch with a validation loader: step, epoch, loss, accuracy.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_fn: Callable,
        *,
        scheduler: Any = None,
        accumulate: int = 1,
        max_norm: float | None = None,
        max_value: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        autocast_dtype: torch.dtype | None = None,
        count_fn: Callable | None = None,
        sync: Callable | None = None,
        ema: Any = None,
        seed: int | None = None,
        rank: int = 0,
        device: torch.device | str | None = None,
        progress: bool = False,
        on_step: Callable | None = None,
    ) -> None:
        if accumulate < 1:
            raise ValueError(f"accumulate needs 1 or more micro-batches an update, got {accumulate}")
        self.model, self.optimizer, self.loss_fn, self.scheduler, self.ema = model, optimizer, loss_fn, scheduler, ema
        self.accumulate, self.scaler, self.seed, self.rank = accumulate, scaler, seed, rank
        self.device, self.progress, self.on_step = device, progress, on_step
        self._clipping = {"max_norm": max_norm, "max_value": max_value}
        self._how = {"count_fn": count_fn or default_count(loss_fn), "autocast_dtype": autocast_dtype, "sync": sync}
        self.step, self.stopped_by, self.mean = 0, None, Mean()
        self.best: dict[str, float] = {"accuracy": -1.0, "loss": math.inf, "step": 0}
        self.history: list[dict[str, Any]] = []
        self.val_history: list[dict[str, Any]] = []
        self._loader: Any = None
        self._loader_state: dict[str, Any] | None = None
        self._epoch_end_due, self._skips = False, 0

    def fit(self, train_loader, *, num_epochs: int | None = None, num_steps: int | None = None, val_loader=None):
        """Train until `num_epochs` epochs or `num_steps` updates *since the run's start*, whichever comes first.

        On a finished run it does nothing. Ctrl-C or SIGTERM stop at the next step boundary with a warning: call `fit`
        again to go on. A second Ctrl-C stops at once. Returns the trainer.
        """
        loader = self._attach(train_loader, num_epochs, num_steps)
        self.stopped_by = None
        bar = self._bar(train_loader, num_epochs, num_steps)
        with stop_at_boundary() as stop, self._generators_put_back(), bar as show:
            for row in self._updates(loader, num_epochs, num_steps, val_loader):
                show(row)
                if stop.requested:
                    break
        self.stopped_by = stop.requested
        if stop.requested:
            warnings.warn(f"{stop.requested}: stopped after step {self.step}; call fit again to go on", stacklevel=2)
        return self

    def steps(self, train_loader, *, num_epochs: int | None = None, num_steps: int | None = None, val_loader=None):
        """The same run as an iterator: each `next` makes one update and gives its history row."""
        updates = self._updates(self._attach(train_loader, num_epochs, num_steps), num_epochs, num_steps, val_loader)
        while True:
            with self._generators_put_back():
                row = next(updates, None)
            if row is None:
                return
            yield row

    def _attach(self, loader: Any, num_epochs: int | None, num_steps: int | None) -> Any:
        """Take a loader for the run; give it the position of a state that was loaded before it was known."""
        if num_epochs is None and num_steps is None:
            raise ValueError("fit needs num_epochs=..., num_steps=..., or both")
        before = self._loader
        if isinstance(before, PlainLoader) and before.loader is loader:
            loader = before
        elif not hasattr(loader, "load_state_dict"):
            loader = PlainLoader(loader, epoch=before.epoch if before is not None else 0)
        if self._loader_state is not None and loader is not before:
            loader.load_state_dict(self._loader_state)
        self._loader, self._loader_state = loader, None
        return loader

    def _updates(self, loader, num_epochs, num_steps, val_loader) -> Iterator[dict[str, Any]]:
        while True:
            if self._epoch_end_due:
                self._end_epoch(loader, val_loader)
            if loader.epoch >= (math.inf if num_epochs is None else num_epochs):
                return
            if self.step >= (math.inf if num_steps is None else num_steps):
                return
            yield from self._rest_of_epoch(loader, num_steps)

    def _rest_of_epoch(self, loader, num_steps) -> Iterator[dict[str, Any]]:
        """Updates until the epoch or the run ends. All is settled before it yields, so stopping there loses nothing."""
        if not self.model.training:
            self.model.train()
        epoch = loader.epoch
        for window, keys, wait_ms in self._windows(loader):
            report = self._update(window, keys)
            self._epoch_end_due = loader.epoch != epoch
            if not report.skipped:
                yield self._record(report, epoch, wait_ms)
            if self._epoch_end_due or self.step == num_steps:
                return
        raise ValueError(f"the train loader gave no batch in epoch {epoch}: is the dataset smaller than one batch?")

    def _windows(self, loader) -> Iterator[tuple[list, list, float]]:
        """The micro-batches of each update, their keys, and the milliseconds spent waiting for them."""
        batches = iter(loader)
        while True:
            began, window, keys = time.perf_counter(), [], []
            for batch in islice(batches, self.accumulate):
                window.append(to_device(batch, self.device))
                keys.append(loader.key)
            if not window:
                return
            yield window, keys, (time.perf_counter() - began) * 1e3

    def _update(self, window: list, keys: list) -> StepReport:
        if self.seed is not None:
            seed_everything(derive_seed(self.seed, "step", self.step), rank=self.rank)
        hook = None if self.on_step is None else lambda report: self.on_step(self, report, keys)
        report = update(
            self.model, self.optimizer, self.loss_fn, window,
            scaler=self.scaler, before_step=hook, **self._clipping, **self._how,
        )  # fmt: skip
        self._skips = self._skips + 1 if report.skipped else 0
        if self._skips == MAX_SKIPS_IN_A_ROW:
            raise NonFiniteError(f"{self._skips} updates in a row were skipped ({report.skipped}) at step {self.step}")
        return report

    def _record(self, report: StepReport, epoch: int, wait_ms: float) -> dict[str, Any]:
        """Count the update that was made: step, history, schedule, EMA."""
        self.step += 1
        self.mean.update(report.loss, report.count)
        lr = self.optimizer.param_groups[0]["lr"]
        row = {"step": self.step, "epoch": epoch, "loss": report.loss, "lr": float(lr), "grad_norm": report.grad_norm}
        self.history.append(row | {"wait_ms": wait_ms})
        if self.scheduler is not None:
            self.scheduler.step()
        if self.ema is not None:
            self.ema.update(self.model)
        return self.history[-1]

    def _end_epoch(self, loader, val_loader) -> None:
        row = {"step": self.step, "epoch": loader.epoch - 1, "train_loss": self.mean.value}
        if val_loader is not None:
            alone = threading.current_thread() is threading.main_thread()  # else a cell may draw meanwhile
            how = {"count_fn": self._how["count_fn"], "device": self.device, "isolate": alone}
            found = evaluate(self.model, val_loader, self.loss_fn, **how)
            row |= {"loss": found.loss, "accuracy": found.accuracy}
            self.val_history.append(row)
            self._keep_best(found)
        self.mean, self._epoch_end_due = Mean(), False

    def _keep_best(self, found: Evaluation) -> None:
        """By accuracy; by loss where the targets are no classes."""
        if found.accuracy is not None:
            better = found.accuracy > self.best["accuracy"]
        else:
            better = found.loss < self.best["loss"]
        if better:
            self.best = {"accuracy": found.accuracy or 0.0, "loss": found.loss, "step": self.step}

    def _generators_put_back(self) -> AbstractContextManager:
        return nullcontext() if self.seed is None else isolated_rng()

    @contextmanager
    def _bar(self, loader, num_epochs, num_steps) -> Iterator[Callable[[dict], None]]:
        """A function that shows a row; tqdm redraws by time, so showing costs microseconds a step."""
        if not self.progress:
            yield lambda row: None
            return
        from tqdm.auto import tqdm

        an_epoch = math.ceil(len(loader) / self.accumulate) if hasattr(loader, "__len__") else None
        totals = [num_steps, an_epoch and num_epochs and an_epoch * num_epochs]
        with tqdm(total=min(filter(None, totals), default=None), initial=self.step, unit="step") as shown:

            def show(row: dict) -> None:
                shown.set_postfix(loss=f"{row['loss']:.3f}", lr=f"{row['lr']:.2g}", refresh=False)
                shown.update()

            yield show

    def state_dict(self) -> dict[str, Any]:
        """All that going on needs, copied: it does not change while training goes on. Valid at step boundaries."""
        model = unwrap(self.model)
        state = {
            "model": model.state_dict(),
            "parameters": run_state.parameter_table(model),
            "optimizer": self.optimizer.state_dict(),
            "optimizer_order": run_state.describe_optimizer(self.optimizer, model),
            "scheduler": self.scheduler.state_dict() if self.scheduler is not None else None,
            "plan": run_state.describe_scheduler(self.scheduler),
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            "ema": self.ema.state_dict() if self.ema is not None else None,
            "loader": self._loader.state_dict() if self._loader is not None else self._loader_state,
            "step": self.step,
            "mean": self.mean.state_dict(),
            "best": dict(self.best),
            "epoch_end_due": self._epoch_end_due,
            "seed": self.seed,
            "environment": environment(),
        }
        return copy.deepcopy(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a saved state; the loader's part waits for the loader that `fit` brings.

        raises : ValueError that names what differs: parameters (names, order, shapes), optimizer, plan of the lr, seed
        warns  : once, where the environment differs
        """
        model, state = unwrap(self.model), copy.deepcopy(state)  # the optimizer would train inside the caller's tensors
        run_state.check_parameters(state["parameters"], model)
        run_state.check_optimizer(state["optimizer_order"], self.optimizer, model)
        run_state.check_scheduler(state["plan"], self.scheduler)
        if state["seed"] != self.seed:
            raise ValueError(f"cannot resume: seed was {state['seed']} when saved and is {self.seed} now")
        for name in ("scaler", "ema"):
            if (state[name] is None) != (getattr(self, name) is None):
                was, now = ("without", "with") if state[name] is None else ("with", "without")
                raise ValueError(f"cannot resume: the run was saved {was} {name} and is {now} one now")
        if self._loader is not None and state["loader"] is not None:
            self._loader.load_state_dict(state["loader"])  # a loader that comes later gets it in `_attach`
        self._loader_state = state["loader"]
        run_state.warn_environment(state["environment"], environment())
        model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for name in ("scheduler", "scaler", "ema"):
            if state[name] is not None:
                getattr(self, name).load_state_dict(state[name])
        self.mean.load_state_dict(state["mean"])
        self.step, self.best, self._epoch_end_due = state["step"], state["best"], state["epoch_end_due"]
