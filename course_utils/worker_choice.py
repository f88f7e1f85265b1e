"""How many workers to use: a decision that is a pure function of measured times.

It measures nothing and starts nothing: `tuning` does. Re-exported by `loaders`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAIN = 0.05  # a turn this much longer than the shortest is as good: more workers must win more
NEAR_FLOOR = 0.05  # a turn this close above the step alone has nothing left to win
COMPUTE_BOUND = 0.10  # a turn this close above the step alone is the step's; above step and hand-over, theirs
MAX_VAIN = 2  # numbers one after another that may win nothing before measuring ends


@dataclass(frozen=True)
class WorkerTimes:
    """The real loop with one number of workers, in its steady state.

    turn_ms   : one turn: getting a batch and making a step, mean
    wait_ms   : the part of it until the batch is there; without workers that is making it
    startup_s : from the start of the workers to their first batch; 0.0 without workers
    num_turns : turns measured
    handover_ms : the part of a turn that gets a batch which is ready over from a worker; 0.0 where not measured
    """

    num_workers: int
    turn_ms: float
    wait_ms: float = 0.0
    startup_s: float = 0.0
    num_turns: int = 1
    handover_ms: float = 0.0

    @property
    def wait_share(self) -> float:
        """The part of a turn that is waiting, 0 to 1."""
        return self.wait_ms / self.turn_ms


@dataclass(frozen=True)
class WorkerChoice:
    """A number of workers, and why.

    num_workers : the choice
    reason      : in a sentence
    verdict     : "compute-bound" where a turn takes at most 10 % longer than the step alone; "hand-over-bound" where
                  it takes at most 10 % longer than step and hand-over; else "data-bound"
    wait_share  : of a turn with that number, 0 to 1
    slowdown    : a turn with that number, over the step alone; 1.0 is the floor
    pays_after  : batches in an iteration from which the workers' start-up is earned back; None without workers, or
                  where 0 workers were not measured
    """

    num_workers: int
    reason: str
    verdict: str
    wait_share: float
    slowdown: float
    pays_after: int | None


def choose_workers(times: Sequence[WorkerTimes], floor_ms: float) -> WorkerChoice:
    """The fewest workers whose turn is at most 5 % longer than the shortest measured.

    times    : one entry for each number of workers, in any order
    floor_ms : the step alone, on a batch that is there already: no loader makes a turn shorter
    raises   : ValueError without times, for a number that comes twice, for times that are not above 0
    """
    rows = _checked(times, floor_ms)
    best = min(row.turn_ms for row in rows)
    chosen = next(row for row in rows if row.turn_ms <= best * (1 + GAIN))
    return WorkerChoice(
        chosen.num_workers,
        _reason(rows, chosen, floor_ms),
        _verdict(chosen, floor_ms),
        chosen.wait_share,
        chosen.turn_ms / floor_ms,
        _pays_after(rows[0], chosen),
    )


def _verdict(row: WorkerTimes, floor_ms: float) -> str:
    if row.turn_ms <= floor_ms * (1 + COMPUTE_BOUND):
        return "compute-bound"
    near = row.turn_ms <= (floor_ms + row.handover_ms) * (1 + COMPUTE_BOUND)
    return "hand-over-bound" if near else "data-bound"


def why_stop(times: Sequence[WorkerTimes], floor_ms: float) -> str | None:
    """Why more workers need not be measured: a clause; None where they may still win. Numbers count upwards."""
    rows = _checked(times, floor_ms)
    holder, vain = rows[0], 0
    for row in rows[1:]:
        if holder.turn_ms > row.turn_ms * (1 + GAIN):
            holder, vain = row, 0
        else:
            vain += 1
    if holder.turn_ms <= floor_ms * (1 + NEAR_FLOOR):
        return f"a turn of {holder.turn_ms:.3g} ms is within 5 % of the step alone ({floor_ms:.3g} ms)"
    if vain >= MAX_VAIN:
        return f"{rows[-MAX_VAIN].num_workers} and {rows[-1].num_workers} workers won at most 5 %"
    return None


def _checked(times: Sequence[WorkerTimes], floor_ms: float) -> list[WorkerTimes]:
    rows = sorted(times, key=lambda row: row.num_workers)
    counts = [row.num_workers for row in rows]
    if not rows or len(set(counts)) < len(counts):
        raise ValueError(f"need times of at least one number of workers, each number once; got {counts}")
    named = {"floor_ms": floor_ms} | {f"turn_ms of {workers(row.num_workers)}": row.turn_ms for row in rows}
    for name, value in named.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be a time above 0, got {value}")
    return rows


def _reason(rows: list[WorkerTimes], chosen: WorkerTimes, floor_ms: float) -> str:
    told = f"{workers(chosen.num_workers)}: a turn takes {chosen.turn_ms:.3g} ms"
    if chosen is not rows[0]:
        told += f", with {workers(rows[0].num_workers)} {rows[0].turn_ms:.3g} ms"
    if len(rows) == 1:
        return f"{told}; {why_stop(rows, floor_ms) or 'no other number was measured'}"
    if chosen is rows[-1] and not why_stop(rows, floor_ms):
        return f"{told}; larger numbers were not measured"
    return f"{told}; at most 5 % longer than the shortest of {rows[0].num_workers} to {workers(rows[-1].num_workers)}"


def workers(number: int) -> str:
    """The number with its noun."""
    return f"{number} worker" if number == 1 else f"{number} workers"


def _pays_after(without: WorkerTimes, chosen: WorkerTimes) -> int | None:
    if without.num_workers != 0 or chosen.num_workers == 0:
        return None
    return math.ceil(chosen.startup_s * 1e3 / (without.turn_ms - chosen.turn_ms))


@dataclass(frozen=True)
class Tuning:
    """What `tune_workers` found: prints as a table, draws itself with `figure`.

    choice   : a `WorkerChoice`
    times    : a `WorkerTimes` for each number measured
    floor_ms : the step alone
    stopped  : why no more workers were measured
    seconds  : that the measuring took
    """

    choice: WorkerChoice
    times: tuple[WorkerTimes, ...]
    floor_ms: float
    stopped: str
    seconds: float

    #: the figure in a sentence that holds for any machine: for `figures.show(tuning.figure(), tuning.words)`
    words = (
        "Milliseconds of one turn of the loop for each number of workers, the part that is waiting below it, and the "
        "step alone as a dashed line; the chosen number is marked."
    )

    @property
    def num_workers(self) -> int:
        """The choice."""
        return self.choice.num_workers

    def __str__(self) -> str:
        lines = ["workers  turn ms  wait ms  wait share  hand-over ms  start-up s"]
        for row in self.times:
            mark = "<- chosen" if row.num_workers == self.num_workers else ""
            cells = f"{row.num_workers:7}  {row.turn_ms:7.2f}  {row.wait_ms:7.2f}  {row.wait_share:10.0%}"
            cells += f"  {row.handover_ms:12.2f}"
            lines.append(f"{cells}  {row.startup_s:10.2f}  {mark}".rstrip())
        lines.append(f"   none  {self.floor_ms:7.2f}     step alone, the floor")
        told = self.choice.reason + ".", self._verdict(), f"Ended since {self.stopped}."
        return "\n".join([*lines, "", *(fill(words, 92, subsequent_indent="    ") for words in told)])

    def _verdict(self) -> str:
        choice = self.choice
        told = f"{choice.verdict}: a turn takes {choice.slowdown:.2f} x the step alone, "
        told += f"waiting is {choice.wait_share:.0%} of it"
        if choice.pays_after is not None:
            told += f"; {choice.pays_after} batches of an iteration win back the start of the workers"
        if choice.verdict == "data-bound" and self.times[-1].num_workers > choice.num_workers:
            told += "; more workers do not shorten it: look at shared cores and the loading itself"
        return told + "."

    def figure(self) -> Figure:
        """The times over the number of workers, the step alone as a dashed line."""
        from course_utils.figures import REFERENCE, RIGHT, WRONG, axes, label_line

        counts = [row.num_workers for row in self.times]
        fig, ax = axes(title=self.choice.reason.split(";")[0], xlabel="workers", ylabel="one turn (ms)")
        for name, color in (("turn", RIGHT), ("wait", WRONG)):
            values = [getattr(row, f"{name}_ms") for row in self.times]
            ax.plot(counts, values, color=color, marker="o" if name == "turn" else "s")
            label_line(ax, counts[-1], values[-1], name, color)
        chosen = next(row for row in self.times if row.num_workers == self.num_workers)
        ax.plot([chosen.num_workers], [chosen.turn_ms], color=RIGHT, marker="o", markersize=12, fillstyle="none")
        ax.plot([counts[0] - 0.3, counts[-1]], [self.floor_ms] * 2, color=REFERENCE, linestyle="--")
        label_line(ax, counts[-1], self.floor_ms, "step alone", REFERENCE)
        ax.set_xticks(counts)
        ax.set_ylim(bottom=0)
        return fig
