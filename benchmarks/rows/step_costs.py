"""What watching a step costs, in microseconds a step: a `StepTimer`, reading the loss, a progress bar (C62, C84).

Each is measured alone, around work that is nearly nothing, so that the difference is its own. On a CPU `loss.item()`
waits for nothing: the number is there. On a GPU it waits for all that was asked of the device before.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import torch

from benchmarks.timing import Row, extra, interleaved
from course_utils.profiling import StepTimer

NUM_STEPS, SECTIONS = 200, ("wait", "to_device", "forward", "backward", "optimizer")
LOSS = torch.tensor(0.6931, requires_grad=True) * 1.0


def _nothing() -> None:
    for step in range(NUM_STEPS):
        _ = step


def _timer() -> Callable[[], None]:
    timer = StepTimer(keep=NUM_STEPS, device="cpu")

    def steps() -> None:
        for _ in range(NUM_STEPS):
            for name in SECTIONS:
                with timer.section(name):
                    pass
            timer.end_step()

    return steps


def _watched() -> Callable[[], None]:
    timer = StepTimer(keep=NUM_STEPS, device="cpu")

    def steps() -> None:
        for _ in timer.watch(range(NUM_STEPS)):
            pass

    return steps


def _item() -> None:
    for _ in range(NUM_STEPS):
        LOSS.item()


def _print_item() -> None:
    """Into memory: what a terminal or a notebook adds is not in it."""
    there = io.StringIO()
    for _ in range(NUM_STEPS):
        print(LOSS.item(), file=there)


def _bar(refresh: bool | None) -> Callable[[], None]:
    from tqdm import tqdm

    def steps() -> None:
        bar: Iterator[int] = tqdm(range(NUM_STEPS), file=io.StringIO())
        for step in bar:
            if refresh is not None:
                bar.set_postfix(loss=step, refresh=refresh)

    return steps


CANDIDATES: dict[str, tuple[str, Callable[[], Callable[[], None]]]] = {
    "sections": ("a StepTimer with five sections", _timer),
    "watch": ("StepTimer.watch: the wait alone", _watched),
    "item": ("loss.item() on a CPU", lambda: _item),
    "print": ("print(loss.item()), into memory", lambda: _print_item),
    "tqdm": ("a tqdm bar", lambda: _bar(None)),
    "postfix": ("a tqdm bar with set_postfix", lambda: _bar(True)),
    "postfix, no refresh": ("a tqdm bar with set_postfix(refresh=False)", lambda: _bar(False)),
}


def measure(*, quick: bool = False) -> list[Row]:
    calls = {name: make() for name, (_, make) in CANDIDATES.items()}
    times = interleaved(calls | {"bare loop": _nothing}, rounds=2 if quick else 25)
    return [
        extra("step_costs", f"a step: {words}", times, name, "bare loop", per=NUM_STEPS)
        for name, (words, _) in CANDIDATES.items()
    ]
