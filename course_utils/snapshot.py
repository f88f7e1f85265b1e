"""The first epoch of a run in one line, by which it can be compared with another run.

A pure function of a `Trainer`'s history; it measures nothing. Re-exported by `profiling`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LAST_STEPS = 10  # the loss at the end is a mean: one batch's loss says little
NEEDED = ("step", "epoch", "loss", "lr", "grad_norm", "wait_ms")


@dataclass(frozen=True)
class Snapshot:
    """Prints as one line.

    epoch           : the first in the history
    steps           : first and last step of it, as counted from the run's start
    first_loss      : of its first step
    last_loss       : mean over its last ten steps, or over all where there are fewer
    grad_norm, max_grad_norm : median and largest
    lr              : first and last
    wait_ms         : median
    step_ms         : median, waiting included; None where it was not measured
    wait_share      : of the time of the epoch's steps, 0 to 1; None likewise
    """

    epoch: int
    steps: tuple[int, int]
    first_loss: float
    last_loss: float
    grad_norm: float
    max_grad_norm: float
    lr: tuple[float, float]
    wait_ms: float
    step_ms: float | None
    wait_share: float | None

    def __str__(self) -> str:
        told = [
            f"epoch {self.epoch} (steps {self.steps[0]}-{self.steps[1]})",
            f"loss {self.first_loss:.4g} -> {self.last_loss:.4g}",
            f"grad norm {self.grad_norm:.3g} (max {self.max_grad_norm:.3g})",
            f"lr {self.lr[0]:.3g} -> {self.lr[1]:.3g}",
        ]
        if self.step_ms is None:
            return " | ".join([*told, f"wait {self.wait_ms:.3g} ms", "step not timed"])
        return " | ".join([*told, f"step {self.step_ms:.3g} ms", f"wait {self.wait_share:.0%}"])


def first_epoch_snapshot(history: Sequence[Mapping[str, Any]], *, step_ms: Sequence[float] | None = None) -> Snapshot:
    """The line of the first epoch in `history`.

    history : a `Trainer`'s rows, one a step: step, epoch, loss, lr, grad_norm, wait_ms, and step_ms where it is there
    step_ms : milliseconds of whole steps, waiting included, where the rows have none: `StepTimer.step_ms` of a timer
              that watched the loader, one micro-batch a step
    raises  : ValueError for an empty history, or rows that lack something

    The epoch is what the history has of it: a run that was stopped in it, or resumed in it, has a part; `steps` says
    which. Without `step_ms` the share of waiting is not known, and the line says so.
    """
    rows = [row for row in history if row.get("epoch") == history[0].get("epoch")]
    if not rows:
        raise ValueError("the history is empty: make at least one step before its snapshot")
    missing = [name for name in NEEDED if name not in rows[0]]
    if missing:
        raise ValueError(f"a row of the history needs {', '.join(NEEDED)}; {', '.join(missing)} is not there")
    waits, norms = [row["wait_ms"] for row in rows], [row["grad_norm"] for row in rows]
    step, share = _timing(rows, waits, step_ms)
    return Snapshot(
        rows[0]["epoch"],
        (rows[0]["step"], rows[-1]["step"]),
        float(rows[0]["loss"]),
        statistics.fmean(float(row["loss"]) for row in rows[-LAST_STEPS:]),
        statistics.median(norms),
        max(norms),
        (rows[0]["lr"], rows[-1]["lr"]),
        statistics.median(waits),
        step,
        share,
    )


def _timing(
    rows: Sequence[Mapping[str, Any]], waits: Sequence[float], step_ms: Sequence[float] | None
) -> tuple[float | None, float | None]:
    """Median step and share of waiting; (None, None) where no step was timed.

    With times from elsewhere, which leave out start-up and warm-up, the share is that of the medians.
    """
    if "step_ms" in rows[0]:
        times = [row["step_ms"] for row in rows]
        return statistics.median(times), sum(waits) / sum(times)
    if not step_ms:
        return None, None
    step = statistics.median(step_ms)
    return step, min(1.0, statistics.median(waits) / step)
