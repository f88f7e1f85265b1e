"""Chapter 00's experiment: the system at the end of the course, run once on the embedded data.

It only wires: network, data and plan come from `course_utils.train`, the loop from `course_utils.training_loop`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from course_utils import figures
from course_utils.labs.background import Point
from course_utils.labs.live import LiveRun
from course_utils.labs.panel import Goal, Still

if TYPE_CHECKING:
    from course_utils.train import Run

WINDOW = 40  # steps whose losses one drawn number averages: one batch of 64 alone is mostly noise
LOSS, ACCURACY = f"loss (mean of {WINDOW} steps)", "test accuracy"
GOAL = 0.85


def first_run(seed: int = 0, *, num_epochs: int = 4) -> Iterator[Point]:
    """Train the finished system; the last point carries the accuracy on the 2,000 test images.

    The network is built now, by the caller; each `next` is one optimizer update. Stopped and continued, it gives the
    same bits.
    """
    from course_utils.train import build_run

    return _points(build_run(seed=seed, num_epochs=num_epochs))


def _points(run: Run) -> Iterator[Point]:
    losses: deque[float] = deque(maxlen=WINDOW)
    for row in run.trainer.steps(run.train_loader, num_steps=run.total_steps):
        losses.append(row["loss"])
        notes = {ACCURACY: _test_accuracy(run)} if row["step"] == run.total_steps else {}
        yield Point(row["step"], run.total_steps, {LOSS: sum(losses) / len(losses)}, notes)


def _test_accuracy(run: Run) -> float:
    from course_utils.training_loop import evaluate

    # in the thread the generators must not be put back: a cell may have drawn meanwhile
    return evaluate(run.trainer.model, run.test_loader, run.trainer.loss_fn, isolate=False).accuracy


def _reached(point: Point) -> bool:
    return point.notes.get(ACCURACY, 0.0) > GOAL


def _still(points: list[Point]) -> Still:
    """The whole run as a picture; its words are decided facts: trained digits differ between machines."""
    steps, losses = [p.step for p in points], [p.values[LOSS] for p in points]
    title, xlabel = "The same run, made in this cell: fast, then slow", "step (optimizer updates)"
    fig, ax = figures.axes(title=title, xlabel=xlabel, ylabel="training loss")
    ax.plot(steps, losses, color=figures.RIGHT)
    ax.set_ylim(bottom=0)
    figures.label_line(ax, steps[-1], losses[-1], LOSS.replace(" (", "\n("), figures.RIGHT)
    alt = (
        f"Training loss over {points[-1].total} steps, each number the mean of {WINDOW} steps. "
        f"It ends below half of where it began: {losses[-1] < losses[0] / 2}. "
        f"Accuracy on the 2,000 test images is over 85 %: {_reached(points[-1])}."
    )
    return Still(fig, alt)


def start_here_lab(seed: int = 0, *, num_epochs: int = 4) -> LiveRun:
    """The run above with its controls, and below them the same run computed here (3 to 5 s on one core)."""
    still = _still(list(first_run(seed, num_epochs=num_epochs)))
    return LiveRun(
        "start_here",
        lambda: first_run(seed, num_epochs=num_epochs),
        title="The finished system, trained live",
        ylabel="training loss",
        still=still,
        goal=Goal("accuracy on the 2,000 test images over 85 %", _reached),
    )
