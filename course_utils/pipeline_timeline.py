"""What a loading pipeline did over time: intervals of workers and trainer, the steady state, and the figure of it.

`pipeline_model` makes one from given times. Re-exported by `loaders`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from course_utils.worker_choice import workers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Interval(NamedTuple):
    """One piece of work, or of waiting. `worker` is None for what the trainer does itself."""

    batch: int
    start_ms: float
    end_ms: float
    worker: int | None = None


@dataclass(frozen=True)
class Timeline:
    """What `simulate_pipeline` found.

    loads, waits, handovers, steps : an `Interval` for each batch, in order. A wait ends when the batch is loaded, and
                  may be empty; without workers it is the load, and there is no hand-over
    turn_ms     : one turn, get a batch and step, in the steady state; mean over whole rounds, the first ones left out
    wait_ms     : the part of it until the batch is there: waiting and hand-over; without workers, loading
    startup_ms  : until the workers could begin; 0.0 without workers. It is in no mean
    num_workers : as given
    """

    num_workers: int
    loads: tuple[Interval, ...]
    waits: tuple[Interval, ...]
    handovers: tuple[Interval, ...]
    steps: tuple[Interval, ...]
    turn_ms: float
    wait_ms: float
    startup_ms: float

    @property
    def wait_share(self) -> float:
        """The part of a steady turn that is waiting, 0 to 1."""
        return self.wait_ms / self.turn_ms

    @property
    def step_ms(self) -> float:
        """How long a step takes in the steady state: longer than given where workers compute on the same cores."""
        return self.turn_ms - self.wait_ms

    @property
    def first_batch_ms(self) -> float:
        """When the first batch is there: start-up, its load, its hand-over."""
        return self.steps[0].start_ms

    @property
    def words(self) -> str:
        """The figure in a sentence: for `figures.show(timeline.figure(), timeline.words)`."""
        told = f"A model, not a measurement: what {workers(self.num_workers)} and the trainer do over time. "
        told += "Grey bars load a batch, with its number; blue bars are steps"
        told += "; hatched orange is the trainer's waiting" if self.num_workers else ""
        told += ", black a hand-over. " if any(it.end_ms > it.start_ms for it in self.handovers) else ". "
        told += f"In the steady state a turn takes {self.turn_ms:.3g} ms; {self.wait_share:.0%} of it is waiting"
        return told + (f", a step takes {self.step_ms:.3g} ms." if self.num_workers else ".")

    def figure(self, *, num_batches: int = 12) -> Figure:
        """Rows of workers and of the trainer over time, until the step of batch `num_batches - 1` ends."""
        from course_utils.figures import axes

        title = f"{workers(self.num_workers)}: a turn takes {self.turn_ms:.3g} ms, {self.wait_share:.0%} of it waiting"
        height = 1.2 + 0.32 * (self.num_workers + 1)
        fig, ax = axes(title=title, xlabel="time (ms)", ylabel="", width=6.5, height=height)
        end_ms = self.steps[min(num_batches, len(self.steps)) - 1].end_ms
        _draw(ax, self, end_ms)
        fig.legend(ncols=5, fontsize=8, frameon=False, loc="outside lower center")
        ax.set_yticks(range(self.num_workers + 1), [*(f"worker {n}" for n in range(self.num_workers)), "trainer"])
        ax.set_ylim(self.num_workers + 0.5, -0.5)  # the trainer below
        ax.set_xlim(0, end_ms)
        return fig


def _draw(ax: Axes, timeline: Timeline, end_ms: float) -> None:
    from course_utils.figures import REFERENCE, RIGHT, WRONG

    trainer = timeline.num_workers
    waits = timeline.waits if trainer else ()  # without workers the trainer's loads are its waiting
    looks = {
        "load": (timeline.loads, {"facecolor": "#CCCCCC", "edgecolor": REFERENCE}),
        "wait": (waits, {"facecolor": "white", "edgecolor": WRONG, "hatch": "////"}),
        "hand-over": (timeline.handovers, {"facecolor": "black", "edgecolor": "black"}),
        "step": (timeline.steps, {"facecolor": RIGHT, "edgecolor": "white"}),
    }
    if timeline.startup_ms:
        begun = [Interval(0, 0.0, timeline.startup_ms, number) for number in range(trainer)]
        looks = {"start-up": (begun, {"facecolor": "white", "edgecolor": REFERENCE, "hatch": ".."})} | looks
    for name, (intervals, look) in looks.items():
        shown = [it for it in intervals if it.start_ms < end_ms and it.end_ms > it.start_ms]
        for row in {it.worker for it in shown}:
            bars = [(it.start_ms, it.end_ms - it.start_ms) for it in shown if it.worker == row]
            ax.broken_barh(bars, ((trainer if row is None else row) - 0.35, 0.7), linewidth=0.6, **look)
        if shown:
            ax.fill_between([], [], label=name, linewidth=0.6, **look)  # the key's patch
    for it in timeline.loads:
        if it.end_ms <= end_ms and it.end_ms - it.start_ms > end_ms / 40:  # else the number has no room
            row = trainer if it.worker is None else it.worker
            ax.text((it.start_ms + it.end_ms) / 2, row, it.batch, ha="center", va="center", fontsize=7, clip_on=True)
