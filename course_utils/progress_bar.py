"""A bar that shows a run's updates: how many are planned, and the latest loss, lr, gradient norm and waiting.

It knows history rows; it trains nothing. tqdm is imported when a bar is asked for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import length_hint
from typing import Any, TextIO

SECONDS = 0.1  # between two looks of the bar


def planned_updates(
    loader: Iterable, *, accumulate: int, num_epochs: int | None = None, num_steps: int | None = None
) -> int | None:
    """Updates from a run's start to the end that `Trainer.fit` gives it; None where that takes a length not known."""
    an_epoch = math.ceil(length_hint(loader) / accumulate) or None  # 0 for a stream, which has no length
    totals = [num_steps, an_epoch and num_epochs and an_epoch * num_epochs]
    return min(filter(None, totals), default=None)


@contextmanager
def progress_bar(
    total: int | None, *, made: int, file: TextIO | None = None, clock: Callable[[], float] = time.perf_counter
) -> Iterator[Callable[[dict], None]]:
    """A function that shows a row. It draws ten times a second, whatever the number of rows.

    total : updates from the run's start to its end; None shows a count without an end
    made  : updates made before
    file  : where it is drawn as text, each drawing after a carriage return; None: as a widget, or on stderr
    """
    import tqdm
    import tqdm.auto

    how = {"total": total, "initial": made, "unit": "step", "mininterval": 0, "miniters": 1}
    with tqdm.auto.tqdm(**how) if file is None else tqdm.tqdm(**how, file=file) as bar:
        shown = _Shown(bar, clock)
        try:
            yield shown.add
        finally:
            shown.draw()


class _Shown:
    """Rows since the bar was drawn last. Formatting and drawing cost more than a small step: both wait for the time."""

    def __init__(self, bar: Any, clock: Callable[[], float]) -> None:
        self.bar, self.clock = bar, clock
        self.drawn_at, self.rows, self.wait_ms, self.row = clock(), 0, 0.0, None

    def add(self, row: dict) -> None:
        self.rows, self.wait_ms, self.row = self.rows + 1, self.wait_ms + row["wait_ms"], row
        if self.clock() - self.drawn_at >= SECONDS:
            self.draw()

    def draw(self) -> None:
        """The last row, and the share of the time since the last drawing that the steps waited for batches."""
        if not self.rows:
            return
        now = self.clock()
        share = min(1.0, self.wait_ms / 1e3 / max(now - self.drawn_at, 1e-9))
        self.bar.set_postfix_str(postfix(self.row, share), refresh=False)
        self.bar.update(self.rows)
        self.drawn_at, self.rows, self.wait_ms = now, 0, 0.0


def postfix(row: dict, wait_share: float) -> str:
    """`loss=0.412, lr=0.001, norm=1.3, wait=4%`"""
    return f"loss={row['loss']:.3f}, lr={row['lr']:.2g}, norm={row['grad_norm']:.2g}, wait={wait_share:.0%}"
