"""Chapter 00's experiment: the system at the end of the course, run once on the embedded data.

It only wires: network, data and plan come from `course_utils.train`, the loop from `course_utils.training_loop`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from course_utils import figures
from course_utils.labs.background import Point
from course_utils.labs.live import Goal, LiveRun, Still

WINDOW = 40  # steps whose losses one drawn number averages: one batch of 64 alone is mostly noise
LOSS, ACCURACY = f"mean of {WINDOW} steps", "test accuracy"
GOAL = 0.85


def first_run(seed: int = 0, *, num_epochs: int = 4) -> Iterator[Point]:
    """Train the finished system; the last point carries the accuracy on the 2,000 test images.

    The network is built now, by the caller; each `next` is one optimizer update. Stopped and continued, it gives the
    same bits.
    """
    from course_utils.train import build_run

    return _points(build_run(seed=seed, num_epochs=num_epochs), num_epochs)


def _points(run, num_epochs: int) -> Iterator[Point]:
    from course_utils.training_loop import evaluate

    losses: deque[float] = deque(maxlen=WINDOW)
    for row in run.trainer.steps(run.train_loader, num_epochs=num_epochs):
        losses.append(row["loss"])
        notes = {}
        if row["step"] == run.total_steps:
            notes = {
                ACCURACY: evaluate(
                    run.trainer.model, run.test_loader, run.trainer.loss_fn, isolate=False
                ).accuracy
            }
        yield Point(row["step"], run.total_steps, {LOSS: sum(losses) / len(losses)}, notes)


def _reached(point: Point) -> bool:
    return point.notes.get(ACCURACY, 0.0) > GOAL


def _still(points: list[Point]) -> Still:
    """The whole run as a picture; its words are decided facts: trained digits differ between machines."""
    steps, losses = [p.step for p in points], [p.values[LOSS] for p in points]
    title, xlabel = "The loss falls fast, then slowly", "step (optimizer updates)"
    fig, ax = figures.axes(title=title, xlabel=xlabel, ylabel="training loss")
    ax.plot(steps, losses, color=figures.RIGHT)
    ax.set_ylim(bottom=0)
    figures.label_line(ax, steps[-1], losses[-1], LOSS.replace(" of ", "\nof "), figures.RIGHT)
    alt = (
        f"Training loss over {points[-1].total} steps, each number the {LOSS}. "
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
