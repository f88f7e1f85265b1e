"""A bar that shows a run's updates: how many are planned, and the latest loss and lr.

It knows history rows; it trains nothing. tqdm is imported when a bar is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import length_hint


def planned_updates(
    loader: Iterable, *, accumulate: int, num_epochs: int | None = None, num_steps: int | None = None
) -> int | None:
    """Updates from a run's start to the end that `Trainer.fit` gives it; None where that takes a length not known."""
    an_epoch = math.ceil(length_hint(loader) / accumulate) or None  # 0 for a stream, which has no length
    totals = [num_steps, an_epoch and num_epochs and an_epoch * num_epochs]
    return min(filter(None, totals), default=None)


@contextmanager
def progress_bar(total: int | None, *, made: int) -> Iterator[Callable[[dict], None]]:
    """A function that shows a row; tqdm redraws by time, so showing costs microseconds a step.

    total : updates from the run's start to its end; None shows a count without an end
    made  : updates made before
    """
    from tqdm.auto import tqdm

    with tqdm(total=total, initial=made, unit="step") as shown:

        def show(row: dict) -> None:
            shown.set_postfix(loss=f"{row['loss']:.3f}", lr=f"{row['lr']:.2g}", refresh=False)
            shown.update()

        yield show
