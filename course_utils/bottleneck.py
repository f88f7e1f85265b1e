"""What holds a training loop up: a decision that is a pure function of measured times.

It measures nothing and starts nothing: `profiling` does, and re-exports it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_utils.speed_limit import SpeedLimit

WORTH_NAMING = 0.10  # a cause that takes no more than this, over the step alone, is no bottleneck
CAUSES = ("data", "hand-over", "start-up")


@dataclass(frozen=True)
class LoopTimes:
    """A loop and its parts, each timed apart; milliseconds.

    step_ms     : the step alone, on a batch that is there already: the floor
    turn_ms     : one turn of the real loop, getting a batch and making a step, in its steady state
    wait_ms     : the part of a turn until the batch is there; without workers that is making it
    load_ms     : a batch of the loader alone, in its steady state, nothing done with it
    startup_ms  : until the first batch of an iteration is there; with workers, their start too
    handover_ms : until a batch of the same bytes and number of tensors is there, from a worker that has nothing else to
                  do; 0.0 without workers
    num_workers : of the loader
    num_batches : of one iteration, which the start-up is paid for once; None where it is not known: the start-up is
                  not judged then
    """

    step_ms: float
    turn_ms: float
    wait_ms: float = 0.0
    load_ms: float = 0.0
    startup_ms: float = 0.0
    handover_ms: float = 0.0
    num_workers: int = 0
    num_batches: int | None = None


@dataclass(frozen=True)
class Diagnosis:
    """Prints as a table with what to try; draws itself with `figure`.

    verdict  : "data-bound", "hand-over-bound", "start-up-bound" or "compute-bound"
    ms       : of each batch, what the verdict names takes
    share    : that, of the time of a batch, 0 to 1
    parts_ms : "step", "data", "hand-over", "start-up": they add up to the time of a batch, the start-up shared out
               among the batches of an iteration
    advice   : what to try, one to three sentences
    times    : the `LoopTimes` it was decided on
    limit    : the step against the matrix products of this machine; None where it was not measured, or counts none
    caveat   : what the measuring could not do in its time; "" for nothing
    """

    verdict: str
    ms: float
    share: float
    parts_ms: dict[str, float]
    advice: tuple[str, ...]
    times: LoopTimes
    limit: SpeedLimit | None = None
    caveat: str = ""

    #: the figure in a sentence that holds for any machine: for `figures.show(found.figure(), found.words)`
    words = (
        "One bar: the milliseconds of a batch, cut into the step itself, loading that the step waits for, handing over "
        "and each batch's part of the start-up."
    )

    @property
    def batch_ms(self) -> float:
        """The time of a batch, with its part of the start-up."""
        return sum(self.parts_ms.values())

    @property
    def at_best(self) -> float:
        """How many times as fast the loop would be if every batch were there at once."""
        return self.batch_ms / self.parts_ms["step"]

    def __str__(self) -> str:
        lines = [f"{'part':10} ms a batch   share"]
        for name, ms in self.parts_ms.items():
            lines.append(f"{name:10} {ms:10.2f}  {ms / self.batch_ms:6.1%}")
        lines += ["", f"{self.verdict}: {self.ms:.3g} ms of {self.batch_ms:.3g} ms, {self.share:.0%}."]
        lines.append(f"With every batch there at once the loop would be {self.at_best:.2f} x as fast, no more.")
        lines += [f"The step: {self.limit}."] if self.limit else []
        lines += [f"Try: {sentence}" for sentence in self.advice]
        return "\n".join(lines + ([f"Note: {self.caveat}."] if self.caveat else []))

    def figure(self) -> Figure:
        """The parts of a batch's time as one bar."""
        from course_utils.figures import SERIES, axes

        title = f"{self.verdict}: {self.share:.0%} of the time of a batch"
        fig, ax = axes(title=title, xlabel="one batch (ms)", ylabel="", height=1.8)
        left = 0.0
        for (name, ms), series, hatch in zip(self.parts_ms.items(), SERIES, ("", "//", "..", "xx"), strict=False):
            ax.barh([0], [ms], left=left, color=series.color, hatch=hatch, edgecolor="white", label=name)
            left += ms
        ax.set_yticks([])
        ax.set_ylabel("where it goes", fontsize=9)
        fig.legend(ncols=4, fontsize=8, frameon=False, loc="outside lower center")  # the layout makes room for it
        return fig


def decide(times: LoopTimes) -> Diagnosis:
    """The verdict on a table of times.

    raises : ValueError for a step or turn that is not above 0, for another time that is below 0 or not finite, for a
             wait longer than its turn, for a number of batches below 1

    What a turn takes longer than the step alone could be won. The hand-over is its first part: it would be waited for
    if loading cost nothing. The rest is the data's, whether the loop waits for it or workers take the step's cores. The
    first batch's extra time is shared out among the batches of an iteration. The largest of the three is the bottleneck
    where it is more than 10 % of the step, else the step is. Of equal ones, the data comes first.
    """
    _check(times)
    parts = _parts(times)
    part = max(CAUSES, key=lambda cause: parts[cause])
    verdict = f"{part}-bound"
    if parts[part] <= WORTH_NAMING * times.step_ms * (1 + 1e-9):  # 5.5 - 5.0 need not be exactly 0.5
        part, verdict = "step", "compute-bound"
    return Diagnosis(verdict, parts[part], parts[part] / sum(parts.values()), parts, _ADVICE[part](times), times)


def _parts(times: LoopTimes) -> dict[str, float]:
    above = max(0.0, times.turn_ms - times.step_ms)
    handover = min(times.handover_ms, above)
    late = max(0.0, times.startup_ms - times.wait_ms)  # an ordinary wait would have come anyway
    startup = late / times.num_batches if times.num_batches else 0.0
    step = min(times.step_ms, times.turn_ms)
    return {"step": step, "data": above - handover, "hand-over": handover, "start-up": startup}


def _check(times: LoopTimes) -> None:
    for name in ("step_ms", "turn_ms"):
        if not 0 < getattr(times, name) < math.inf:
            raise ValueError(f"{name} must be a time above 0, got {getattr(times, name)}")
    for name in ("wait_ms", "load_ms", "startup_ms", "handover_ms", "num_workers"):
        if not 0 <= getattr(times, name) < math.inf:
            raise ValueError(f"{name} must be 0 or more, got {getattr(times, name)}")
    if times.wait_ms > times.turn_ms:
        raise ValueError(f"wait_ms is a part of turn_ms, got {times.wait_ms} of {times.turn_ms}")
    if times.num_batches is not None and times.num_batches < 1:
        raise ValueError(f"num_batches must be 1 or more, or None, got {times.num_batches}")


def _on_data(times: LoopTimes) -> tuple[str, ...]:
    above = times.turn_ms - times.step_ms
    taken = times.turn_ms - times.wait_ms - times.step_ms  # the step is this much slower while workers load
    cheaper = "make a batch cheaper: keep what is decoded, store or decode it smaller, transform whole batches."
    if times.num_workers == 0:
        return ("move the loading into workers: tune_workers measures how many.", cheaper)
    if taken > above / 2:
        slow = f"the step is {taken:.3g} ms slower while {_workers(times)} load: they share its cores"
        return (f"{slow}; fewer of them, or fit_threads(num_workers) so that threads and workers fit.", cheaper)
    told = f"the loader alone gives a batch every {times.load_ms:.3g} ms, the step needs one every {times.step_ms:.3g}"
    return (f"{told}: tune_workers measures what more than {_workers(times)} would bring.", cheaper)


def _on_handover(times: LoopTimes) -> tuple[str, ...]:
    return (
        "hand over fewer tensors, since each has a price of its own: put what belongs together into one.",
        "hand over fewer bytes: uint8 instead of float32, made into floats after the hand-over.",
        "num_workers=0 where the data is in memory: a dataset with take(key) makes a whole batch at once.",
    )


def _on_startup(times: LoopTimes) -> tuple[str, ...]:
    once = f"an iteration has {times.num_batches} batches and its first one comes after {times.startup_ms:.3g} ms"
    if times.num_workers == 0:
        return (f"{once}: do what is done there once before the loop, such as opening files and reading an index.",)
    return (
        f"{once}: persistent_workers=True pays for it in the first epoch only.",
        f"fewer than {_workers(times)}, or 0, where the whole iteration is short.",
    )


def _on_step(times: LoopTimes) -> tuple[str, ...]:
    return (
        "leave the data side as it is: none of its parts takes more than a tenth of the step's time.",
        "profile_step(step) names the operations that take it; StepTimer says whether forward, backward or optimizer.",
    )


_ADVICE = {"data": _on_data, "hand-over": _on_handover, "start-up": _on_startup, "step": _on_step}


def _workers(times: LoopTimes) -> str:
    return "1 worker" if times.num_workers == 1 else f"{times.num_workers} workers"
