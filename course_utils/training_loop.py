"""The training loop: a trainer whose state is whole at every step boundary.

It knows a model, a loader and one update at a time; files, processes and schedules are other modules' business.
`evaluation`, `best`, `history`, `sanity_checks` and `update_order` are re-exported here. `windows` reads the loader,
`run_state` the state.
"""

from __future__ import annotations

import copy
import math
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TextIO

import torch
from torch import nn

from course_utils import run_state
from course_utils.best import Best
from course_utils.counting import default_count
from course_utils.evaluation import Evaluation, Mean, eval_mode, evaluate, unwrap
from course_utils.history import History
from course_utils.interrupts import StopRequest, stop_at_boundary
from course_utils.machine import environment
from course_utils.optimizer_step import NonFiniteError, StepReport, update
from course_utils.progress_bar import planned_updates, progress_bar
from course_utils.randomness import derive_seed, isolated_rng, seed_everything
from course_utils.sanity_checks import SanityReport, overfit_one_batch, sanity_check
from course_utils.update_order import every_order, run_order
from course_utils.windows import windows, with_position

__all__ = [
    "Best", "Evaluation", "History", "Mean", "SanityReport", "Trainer", "eval_mode", "evaluate", "every_order",
    "overfit_one_batch", "run_order", "sanity_check", "unwrap",
]  # fmt: skip


class Trainer:
    """Makes updates from a loader's batches, and remembers all that going on needs.

    scheduler  : stepped once after each update that was made; never for a skipped one
    accumulate : micro-batches an update; an epoch's last window holds what is left
    max_norm, max_value, scaler, autocast_dtype, count_fn, sync : as in `optimizer_step.update`
    ema        : something with `update(model)` and `state_dict`, called after each update
    seed       : set the generators before each window from (seed, step, rank), so dropout does not depend on what else
                 drew; None touches no generator
    device     : where inputs and targets are moved; None leaves them
    progress   : show a bar in `fit`; a text stream in place of True: draw it there
    on_step    : on_step(trainer, report, keys) after clipping, before the weights change: the one extension point
    max_skips  : updates skipped in a row after which the run ends with a NonFiniteError
    patience, min_delta, keep_best : the early stop, and whether the best model is kept, as in `best.Best`

    `step` counts optimizer updates. `history` has one dict an update: step, epoch, loss, lr, grad_norm, wait_ms;
    `val_history` one an epoch with a validation loader: step, epoch, train_loss, loss, accuracy. `best.metric` and
    `best.model` are the best validation's. `stopped_by` is None, or what stopped `fit`: a signal's name, "patience".
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
        progress: bool | TextIO = False,
        on_step: Callable | None = None,
        max_skips: int = 100,
        patience: int | None = None,
        min_delta: float = 0.0,
        keep_best: bool = True,
    ) -> None:
        if accumulate < 1 or max_skips < 1:
            raise ValueError(f"accumulate and max_skips need 1 or more, got {accumulate} and {max_skips}")
        self.model, self.optimizer, self.loss_fn, self.scheduler, self.ema = model, optimizer, loss_fn, scheduler, ema
        self.accumulate, self.scaler, self.seed, self.rank = accumulate, scaler, seed, rank
        self.device, self.progress, self.on_step, self.max_skips = device, progress, on_step, max_skips
        self._how = {"count_fn": count_fn or default_count(loss_fn), "autocast_dtype": autocast_dtype, "sync": sync}
        self._how |= {"max_norm": max_norm, "max_value": max_value}
        self.step, self._skips, self.stopped_by, self.mean = 0, 0, None, Mean()
        self.best = Best(keep_model=keep_best, patience=patience, min_delta=min_delta)
        self.history, self.val_history = History(), History()
        self._loader: Any = None
        self._loader_state: dict[str, Any] | None = None
        self._ended_epoch: int | None = None  # the epoch whose end (validation, best) is still to be done

    def fit(
        self, train_loader: Iterable, *, num_epochs: int | None = None, num_steps: int | None = None, val_loader=None
    ) -> Trainer:
        """Train until `num_epochs` epochs or `num_steps` updates *since the run's start*, whichever comes first.

        On a finished run it makes no update. The validation of an epoch that a run ended with, and had no `val_loader`
        for, is made up for by a later `fit` that brings one. Ctrl-C or SIGTERM stop at the next step boundary with a
        warning: call `fit` again to go on. A second Ctrl-C stops at once. Returns the trainer.
        """
        loader = self._attach(train_loader, num_epochs, num_steps, val_loader)
        self.stopped_by = None
        bar = self._bar(train_loader, num_epochs, num_steps)
        with stop_at_boundary() as stop, self._generators_put_back(), bar as show:
            for row in self._updates(loader, num_epochs, num_steps, val_loader, stop):
                show(row)
                if stop.requested:
                    break
        self.stopped_by = stop.requested or ("patience" if self.best.stalled else None)
        if stop.requested:
            warnings.warn(f"{stop.requested}: stopped after step {self.step}; call fit again to go on", stacklevel=2)
        return self

    def steps(
        self, train_loader: Iterable, *, num_epochs: int | None = None, num_steps: int | None = None, val_loader=None
    ) -> Iterator[dict[str, Any]]:
        """The same run as an iterator: each `next` makes one update and gives its history row."""
        loader = self._attach(train_loader, num_epochs, num_steps, val_loader)
        updates = self._updates(loader, num_epochs, num_steps, val_loader, StopRequest())
        while True:
            with self._generators_put_back():
                row = next(updates, None)
            if row is None:
                return
            yield row

    def state_dict(self) -> dict[str, Any]:
        """All that going on needs, copied: it does not change while training goes on. Valid at step boundaries."""
        position = self._loader.state_dict() if self._loader is not None else self._loader_state
        own = {"loader": position, "epoch_end_due": self._ended_epoch is not None}
        return copy.deepcopy(run_state.collect(self) | own)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a saved state; the loader's part waits for the loader that `fit` brings.

        raises : ValueError that names what differs: parameters (names, order, shapes), optimizer, plan of the lr, seed
        warns  : once, where the environment differs
        """
        state = copy.deepcopy(state)  # the optimizer would train inside the caller's tensors
        run_state.check(state, self)
        if self._loader is not None and state["loader"] is not None:
            self._loader.load_state_dict(state["loader"])  # a loader that comes later gets it in `_attach`
        self._loader_state = state["loader"]
        run_state.warn_environment(state["environment"], environment())
        run_state.restore(state, self)
        self._ended_epoch = state["loader"]["epoch"] - 1 if state["epoch_end_due"] else None

    def _attach(self, loader: Any, num_epochs: int | None, num_steps: int | None, val_loader: Any) -> Any:
        """Take a loader for the run; give it the position of a state that was loaded before it was known."""
        if num_epochs is None and num_steps is None:
            raise ValueError("fit needs num_epochs=..., num_steps=..., or both")
        if self.best.patience is not None and val_loader is None:
            raise ValueError(f"patience={self.best.patience} counts validations: fit needs val_loader=...")
        loader = with_position(loader, self._loader)
        if self._loader_state is not None and loader is not self._loader:
            loader.load_state_dict(self._loader_state)
        self._loader, self._loader_state = loader, None
        return loader

    def _generators_put_back(self) -> AbstractContextManager:
        """Around updates: what they draw is the run's own, the caller's generators stand as before."""
        return nullcontext() if self.seed is None else isolated_rng()

    def _bar(self, loader, num_epochs, num_steps) -> AbstractContextManager[Callable[[dict], None]]:
        """A function that shows a row, or does nothing."""
        if self.progress is False or self.progress is None:
            return nullcontext(lambda row: None)
        planned = planned_updates(loader, accumulate=self.accumulate, num_epochs=num_epochs, num_steps=num_steps)
        return progress_bar(planned, made=self.step, file=None if self.progress is True else self.progress)

    def _updates(self, loader, num_epochs, num_steps, val_loader, stop: StopRequest) -> Iterator[dict[str, Any]]:
        """Epoch after epoch until a total or a stop; each epoch's end is settled before the next begins."""
        last_epoch, last_step = (math.inf if total is None else total for total in (num_epochs, num_steps))
        while True:
            over = loader.epoch >= last_epoch or self.step >= last_step
            if self._ended_epoch is not None and not (over and val_loader is None):  # a later fit may bring one
                self._end_epoch(val_loader)
            if over or self.best.stalled or stop.requested:
                return
            yield from self._rest_of_epoch(loader, num_steps)

    def _rest_of_epoch(self, loader, num_steps) -> Iterator[dict[str, Any]]:
        """Updates until the epoch or the run ends. All is settled before it yields, so stopping there loses nothing."""
        if not self.model.training:
            self.model.train()
        epoch = loader.epoch
        for window, keys, wait_ms in windows(loader, self.accumulate, device=self.device):
            report = self._update(window, keys)
            self._ended_epoch = epoch if loader.epoch != epoch else None
            if not report.skipped:
                yield self._record(report, epoch, wait_ms)
            if self._ended_epoch is not None or self.step == num_steps:
                return
        raise ValueError(f"the train loader gave no batch in epoch {epoch}: is the dataset smaller than one batch?")

    def _update(self, window: list, keys: list) -> StepReport:
        """One update, with generators set from (seed, step, rank); an error where too many in a row were skipped."""
        if self.seed is not None:
            seed_everything(derive_seed(self.seed, "step", self.step), rank=self.rank)
        hook = None if self.on_step is None else lambda report: self.on_step(self, report, keys)
        how = self._how | {"scaler": self.scaler, "before_step": hook}
        report = update(self.model, self.optimizer, self.loss_fn, window, **how)
        self._skips = self._skips + 1 if report.skipped else 0
        if self._skips >= self.max_skips:
            raise NonFiniteError(f"{self._skips} updates in a row were skipped ({report.skipped}) at step {self.step}")
        return report

    def _record(self, report: StepReport, epoch: int, wait_ms: float) -> dict[str, Any]:
        """Count the update that was made: step, history, schedule, EMA."""
        self.step += 1
        self.mean.update(report.loss, report.count)
        lr = float(self.optimizer.param_groups[0]["lr"])
        row = {"step": self.step, "epoch": epoch, "loss": report.loss, "lr": lr}
        row |= {"grad_norm": report.grad_norm, "wait_ms": wait_ms}
        self.history.append(row)
        if self.scheduler is not None:
            self.scheduler.step()
        if self.ema is not None:
            self.ema.update(self.model)
        return row

    def _end_epoch(self, val_loader) -> None:
        """Validate, keep the best metric, begin a new mean."""
        train_loss = self.mean.value if self.mean.count else None  # every update of the epoch was skipped
        row = {"step": self.step, "epoch": self._ended_epoch, "train_loss": train_loss}
        if val_loader is not None:
            alone = threading.current_thread() is threading.main_thread()  # else a cell may draw meanwhile
            how = {"count_fn": self._how["count_fn"], "device": self.device, "isolate": alone}
            found = evaluate(self.model, val_loader, self.loss_fn, **how)
            self.val_history.append(row | {"loss": found.loss, "accuracy": found.accuracy})
            self.best.see(found, self.step, self.model)
        self.mean, self._ended_epoch = Mean(), None
