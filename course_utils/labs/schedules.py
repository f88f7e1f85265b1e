"""Chapter 07's experiment: the lr race. Schedules train the same network on the same batches, side by side.

It only wires: the race is `course_utils.lr_race`, the schedules are `course_utils.schedules`.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from course_utils import figures
from course_utils.labs.background import Point
from course_utils.labs.knobs import choice, number
from course_utils.labs.live import LiveRun
from course_utils.labs.panel import Goal, Still
from course_utils.lr_race import Entry, Race, Runners, race
from course_utils.schedules import constant, exponential, step_decay, warm_restarts, warmup_cosine

WINDOW = 20  # updates whose losses one drawn number averages: one batch of 64 alone is mostly noise
NUM_STEPS = 300
SLOW, YOURS = "constant 3e-4", "yours"
SHARE = "share of the constant's loss"
GOAL = 0.6
KINDS = ("constant", "exponential", "step decay", "warm-up + cosine", "warm restarts")
LRS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)


def bound(kind: str, *, num_steps: int = NUM_STEPS, warmup_share: float = 0.1) -> Callable[[int], float]:
    """A factor function of this kind, its lengths bound to a run of `num_steps` updates.

    raises : ValueError for a kind that is none of `KINDS`
    """
    plans = {
        "constant": constant,
        "exponential": functools.partial(exponential, gamma=0.1, decay_steps=num_steps),
        "step decay": functools.partial(step_decay, step_size=max(1, num_steps // 3)),
        "warm-up + cosine": functools.partial(
            warmup_cosine, warmup_steps=round(warmup_share * num_steps), total_steps=num_steps
        ),
        "warm restarts": functools.partial(warm_restarts, cycle_steps=max(1, num_steps // 3)),
    }
    if kind not in plans:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    return plans[kind]


def standard_entries(num_steps: int = NUM_STEPS) -> dict[str, Entry]:
    """The three that are always on the track: constant 3e-4, and two plans from a peak of 0.01."""
    return {
        SLOW: Entry(constant, 3e-4),
        "exponential": Entry(bound("exponential", num_steps=num_steps), 0.01),
        "warm-up + cosine": Entry(bound("warm-up + cosine", num_steps=num_steps), 0.01),
    }


def _course_data() -> dict:
    """Network and data of the race, as `Runners` takes them."""
    from course_utils.datasets import load_fashion
    from course_utils.models import MEAN, STD, small_cnn
    from course_utils.transforms import ToFloat

    return {"build": small_cnn, "dataset": load_fashion("train", batch_transform=ToFloat(mean=MEAN, std=STD))}


def race_points(entries: Mapping[str, Entry], *, num_steps: int = NUM_STEPS, seed: int = 0) -> Iterator[Point]:
    """The race for one seed, one point an update of all; builds every network now, in the calling thread."""
    return _points(Runners(entries, num_steps=num_steps, seed=seed, **_course_data()))


def _points(runners: Runners) -> Iterator[Point]:
    recent = {name: deque(maxlen=WINDOW) for name in runners.trainers}
    for step, rows in enumerate(runners, start=1):
        for name, row in rows.items():
            recent[name].append(row["loss"])
        means = {name: statistics.fmean(losses) for name, losses in recent.items()}
        drawn = {name: mean for name, mean in means.items() if math.isfinite(mean)}  # a diverged line ends
        notes = {"your lr": rows[YOURS]["lr"], SHARE: _share(drawn)} if YOURS in rows else {}
        yield Point(step, runners.num_steps, drawn, notes)


def _share(losses: Mapping[str, float]) -> float:
    """The reader's own loss as a share of the constant lr's; inf when the reader's has diverged, NaN when both have."""
    return losses.get(YOURS, math.inf) / losses.get(SLOW, math.nan)


def _reached(point: Point) -> bool:
    """The reader's own loss against the constant lr's, at the end of the race."""
    return point.step == point.total and _share(point.values) <= GOAL


def still_race(result: Race) -> Still:
    """A finished race as a picture, its words decided facts: trained digits differ between machines."""
    names, seeds = list(result.losses), len(next(iter(result.losses.values())))
    final = {name: statistics.fmean(result.final_loss(name)) for name in names}
    last = max(names, key=final.__getitem__)
    title = f"Same start, same batches: {last} stays behind"
    fig, ax = figures.axes(title=title, xlabel="step (optimizer updates)", ylabel="training loss")
    for name, look in zip(names, figures.SERIES, strict=False):
        losses = result.smoothed(name, WINDOW)
        style = {**look.style, "markevery": max(1, result.num_steps // 6), "markersize": 4}
        ax.plot(range(1, len(losses) + 1), losses, **style)
        figures.label_line(ax, len(losses), losses[-1], name, look.color)
    finite = [loss for loss in final.values() if math.isfinite(loss)] or [1.0]
    ax.set_ylim(0.6 * min(finite), 1.8 * max(finite))  # the fall at the start is alike; the ends are what differs
    alt = (
        f"Training loss of {len(names)} schedules over {result.num_steps} steps, mean of {WINDOW} steps and of {seeds} "
        f"{'seed' if seeds == 1 else 'seeds'}. Highest at the end: {last}. The axis is cut to where they end."
    )
    return Still(fig, alt)


def lr_race_lab(*, result: Race | None = None, num_steps: int = NUM_STEPS) -> LiveRun:
    """The race with the reader's own schedule beside three fixed ones.

    result : a race made in the cell, shown as the still twin; without it the standard entries race here (about 4 s)
    """
    if result is None:
        result = race(standard_entries(num_steps), num_steps=num_steps, **_course_data())
    kind = choice("Your schedule", KINDS, "constant")
    peak = choice("Peak lr", {f"{lr:g}": lr for lr in LRS}, 1e-3)
    warmup = number("Warm-up share", 0.1, low=0.0, high=0.5, step=0.05)
    seed = choice("Seed", [0, 1, 2, 3, 4], 0)

    def build() -> Iterator[Point]:
        own = bound(kind.value, num_steps=num_steps, warmup_share=warmup.value)
        entries = {YOURS: Entry(own, peak.value), **standard_entries(num_steps)}
        return race_points(entries, num_steps=num_steps, seed=seed.value)

    return LiveRun(
        "schedules",
        build,
        title="Same start, same batches",
        ylabel=f"training loss, mean of {WINDOW} steps",
        y_range=(0, 2.5),  # a guess among 10 classes has 2.3; a line that leaves at the top has begun to diverge
        still=still_race(result),
        knobs=[kind, peak, warmup, seed],
        goal=Goal(f"end with at most {GOAL:g} of the loss of {SLOW}, in the same {num_steps} steps", _reached),
    )
