"""One update after another, written for several frameworks: all do the same work on the same batches.

The work: zero the gradients, forward, loss, backward, the gradient's norm, clip it to 1, read loss and norm, refuse
what is not finite, the optimizer's step, a row of history. Every loop ends with the same weights, to the bit. "barest
loop" alone reads, clips, checks and notes nothing.

Lightning, Ignite and Accelerate are no dependency of the course: `FITS` names the package that a loop needs, and
`present()` the loops whose package is there. What can be switched off without changing the work (bars, logs,
checkpoints, summaries) is off.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from benchmarks.rows.trainer_step import Batches
from course_utils.machine import fit_threads
from course_utils.training_loop import Trainer

LOSS_FN, MAX_NORM = nn.CrossEntropyLoss(), 1.0
Fit = Callable[["TurnLoader", nn.Module, torch.optim.Optimizer], list[dict[str, float]]]


class TurnLoader:
    """A loader whose loop runs in a thread and makes `group` steps whenever it has the turn: loops alternate finely.

    seconds : a step, one value for each turn but the first and the last
    """

    def __init__(self, batches: Batches, num_steps: int, group: int) -> None:
        self.batches, self.num_steps, self.group = batches, num_steps, group
        self.seconds: list[float] = []
        self._go, self._back = threading.Event(), threading.Event()
        self._began: float | None = None
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Begins a turn before every `group`-th batch; a loop that looks a batch ahead does so in every turn."""
        for number, batch in enumerate(itertools.islice(itertools.cycle(self.batches), self.num_steps)):
            if number % self.group == 0:
                self._wait_for_turn()
            yield batch

    def _wait_for_turn(self) -> None:
        if self._began is not None:
            self.seconds.append((time.perf_counter() - self._began) / self.group)
        self._back.set()
        self._go.wait()
        self._go.clear()
        self._began = time.perf_counter()

    def start(self, run: Callable[[], Any]) -> None:
        """Run it in a thread, up to the first batch; raises what it raised."""
        self._thread = threading.Thread(target=self._guarded, args=(run,), daemon=True)
        self._thread.start()
        self._wait()

    def _guarded(self, run: Callable[[], Any]) -> None:
        try:
            fit_threads()
            run()
        except BaseException as error:
            self._error = error
        self._back.set()

    def turn(self) -> None:
        """`group` steps; raises what the loop raised."""
        self._back.clear()
        self._go.set()
        self._wait()

    def _wait(self) -> None:
        self._back.wait()
        if self._error is not None:
            raise self._error

    def join(self) -> None:
        """Wait for the end of a loop that has had all its turns."""
        self._thread.join()


def checked(loss: float, norm: float) -> dict[str, float]:
    """A row of history; FloatingPointError for what is not finite."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise FloatingPointError(f"loss {loss}, gradient norm {norm}")
    return {"loss": loss, "grad_norm": norm}


def barest(loader: TurnLoader, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    for inputs, targets in loader:
        optimizer.zero_grad()
        LOSS_FN(model(inputs), targets).backward()
        optimizer.step()
    return []


def inlined(loader: TurnLoader, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    history = []
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = LOSS_FN(model(inputs), targets)
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM))
        row = checked(loss.item(), norm)
        optimizer.step()
        history.append(row | {"step": len(history) + 1, "lr": optimizer.param_groups[0]["lr"]})
    return history


def course_trainer(loader: TurnLoader, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    trainer = Trainer(model, optimizer, LOSS_FN, max_norm=MAX_NORM)
    return list(trainer.fit(loader, num_steps=len(loader)).history)


def lightning(loader: TurnLoader, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    import lightning.pytorch as pl

    history: list[dict[str, float]] = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            inputs, targets = batch
            self.loss = LOSS_FN(self.net(inputs), targets)
            return self.loss

        def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None) -> None:
            norm = float(nn.utils.clip_grad_norm_(self.net.parameters(), MAX_NORM))
            row = checked(self.loss.item(), norm)
            history.append(row | {"step": len(history) + 1, "lr": optimizer.param_groups[0]["lr"]})

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the number of workers, on a GPU that is not there
        trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=1, **dict.fromkeys(off, False))
        trainer.fit(Module(), loader)
    return history


def ignite(loader: TurnLoader, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    from ignite.engine import Engine

    history: list[dict[str, float]] = []

    def update(engine: Engine, batch: Any) -> float:
        inputs, targets = batch
        optimizer.zero_grad()
        loss = LOSS_FN(model(inputs), targets)
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM))
        row = checked(loss.item(), norm)
        optimizer.step()
        history.append(row | {"step": engine.state.iteration, "lr": optimizer.param_groups[0]["lr"]})
        return row["loss"]

    Engine(update).run(loader, max_epochs=1)
    return history


def accelerate(loader: TurnLoader, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    from accelerate import Accelerator

    accelerator, history = Accelerator(cpu=True), []
    model, optimizer = accelerator.prepare(model, optimizer)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = LOSS_FN(model(inputs), targets)
        accelerator.backward(loss)
        norm = float(accelerator.clip_grad_norm_(model.parameters(), MAX_NORM))
        row = checked(loss.item(), norm)
        optimizer.step()
        history.append(row | {"step": len(history) + 1, "lr": optimizer.param_groups[0]["lr"]})
    return history


FITS: dict[str, tuple[Fit, str | None, str | None]] = {  # loop, module that it needs, name to install it by
    "inlined loop": (inlined, None, None),
    "barest loop": (barest, None, None),
    "Trainer": (course_trainer, None, None),
    "Lightning": (lightning, "lightning", "lightning"),
    "Ignite": (ignite, "ignite", "pytorch-ignite"),
    "Accelerate": (accelerate, "accelerate", "accelerate"),
}


def present() -> dict[str, Fit]:
    """The loops that can run here."""
    return {name: fit for name, (fit, module, _) in FITS.items() if module is None or find_spec(module)}


def missing() -> dict[str, str]:
    """{loop: the package to install} of the others."""
    return {name: package for name, (_, _, package) in FITS.items() if name not in present()}


def packages() -> dict[str, str]:
    """{package: version} of those that are there."""
    return {package: version(package) for name, (_, _, package) in FITS.items() if package and name in present()}
