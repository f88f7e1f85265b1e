"""What a `StepTimer` found, as a table: medians, 90th percentiles and shares. It times nothing.

Re-exported by `profiling`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SectionTimes:
    """One row of a summary, over the steps in which the section occurred.

    median_ms, p90_ms : of a step; a section that is entered several times in a step is added up
    share             : of the time of all steps, 0 to 1
    num_steps         : steps in which it occurred
    """

    name: str
    median_ms: float
    p90_ms: float
    share: float
    num_steps: int


@dataclass(frozen=True)
class TimerSummary:
    """What `StepTimer.summary` found: prints as a table; `summary["wait"]` is a row.

    rows      : a `SectionTimes` for each section in the order of its first use, then "rest", what no section covers
    step      : the whole step
    startups_ms : first wait of each iteration of a watched loader; its step is not among the rows
    warmups_ms  : steps made while things warm up; not among the rows
    """

    rows: tuple[SectionTimes, ...]
    step: SectionTimes
    startups_ms: tuple[float, ...]
    warmups_ms: tuple[float, ...]

    def __getitem__(self, name: str) -> SectionTimes:
        for row in (*self.rows, self.step):
            if row.name == name:
                return row
        raise KeyError(f"no section {name!r}, there are {[row.name for row in self.rows]}")

    def __str__(self) -> str:
        width = max(7, *(len(row.name) for row in self.rows))
        lines = [f"{'section':{width}}  median ms    p90 ms   share"]
        for row in (*self.rows, self.step):
            lines.append(f"{row.name:{width}}  {row.median_ms:9.3f} {row.p90_ms:9.3f}  {row.share:6.1%}")
        return "\n".join([*lines, "", f"Steps counted: {self.step.num_steps}. Kept apart: {self._apart()}."])

    def _apart(self) -> str:
        told = f"{len(self.startups_ms)} with a start-up"
        if self.startups_ms:
            told += f" (first batch after {statistics.median(self.startups_ms):.3g} ms)"
        told += f", {len(self.warmups_ms)} of warm-up"
        return told + (f" ({statistics.median(self.warmups_ms):.3g} ms a step)" if self.warmups_ms else "")


def row_of(name: str, times_ms: Sequence[float], all_ms: float) -> SectionTimes:
    """A row from the times of one section and the time of all steps; nine tenths by linear interpolation."""
    p90 = statistics.quantiles(times_ms, n=10, method="inclusive")[8] if len(times_ms) > 1 else times_ms[0]
    share = sum(times_ms) / all_ms if all_ms else 0.0  # a clock that ticks rarely may say 0
    return SectionTimes(name, statistics.median(times_ms), p90, share, len(times_ms))
