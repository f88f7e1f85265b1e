"""Measuring side by side: in each round every candidate runs once, so that a busy moment meets all of them.

A row keeps minima and medians. Its figure is the minimum's: other programs can only add time.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

Times = dict[str, list[float]]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    name    : what is measured, against what
    value   : the figure from minima, in `unit`; `median` is the same from medians
    bar     : the most that `value` may be; None for a figure without a bar
    runs    : measurements of each candidate
    minima, medians : of each candidate, in `candidate_unit`
    """

    subject: str
    name: str
    value: float
    median: float
    unit: str
    runs: int
    candidate_unit: str
    minima: dict[str, float] = field(default_factory=dict)
    medians: dict[str, float] = field(default_factory=dict)
    bar: float | None = None

    @property
    def passed(self) -> bool | None:
        """None without a bar."""
        return None if self.bar is None else self.value <= self.bar


def interleaved(candidates: dict[str, Callable[[], Any]], *, rounds: int, calls: int = 1) -> Times:
    """Seconds a call: one value a round for each candidate, whose order turns from round to round.

    The first round warms up and is thrown away. The garbage collector is off meanwhile.
    """
    times: Times = {name: [] for name in candidates}
    with collector_off():
        for round_number in range(rounds + 1):
            for name in turned(candidates, round_number):
                seconds = _seconds(candidates[name], calls)
                if round_number:
                    times[name].append(seconds)
    return times


@contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection inside the block; afterwards as before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def turned(names: Iterable[str], round_number: int) -> list[str]:
    """The names in their order, from another one on in each round."""
    names = list(names)
    first = round_number % len(names)
    return names[first:] + names[:first]


def _seconds(call: Callable[[], Any], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def ratio(subject: str, name: str, times: Times, of: str, over: str, *, bar: float | None = None) -> Row:
    """A row that says how many times longer `of` takes than `over`."""
    chosen = {who: [seconds * 1e6 for seconds in times[who]] for who in (of, over)}
    low, middle = {w: min(t) for w, t in chosen.items()}, {w: statistics.median(t) for w, t in chosen.items()}
    return _row(subject, name, low[of] / low[over], middle[of] / middle[over], "x", chosen, low, middle, "us", bar)


def paired(subject: str, name: str, times: Times, of: str, over: str, *, bar: float | None = None) -> Row:
    """As `ratio`, but `value` is the median over rounds of the ratio within a round: for few, long, uneven rounds.

    A round of both must lie close together, so that a busy moment meets both.
    """
    row = ratio(subject, f"{name}, within rounds", times, of, over, bar=bar)
    within = statistics.median(a / b for a, b in zip(times[of], times[over], strict=True))
    return replace(row, value=within)


def extra(subject: str, name: str, times: Times, of: str, over: str, *, per: int = 1, bar: float | None = None) -> Row:
    """A row that says how many microseconds longer `of` takes than `over`, for each of the `per` things in a call."""
    chosen = {who: [seconds * 1e6 / per for seconds in times[who]] for who in (of, over)}
    low, middle = {w: min(t) for w, t in chosen.items()}, {w: statistics.median(t) for w, t in chosen.items()}
    return _row(subject, name, low[of] - low[over], middle[of] - middle[over], "us", chosen, low, middle, "us", bar)


def duration(subject: str, name: str, milliseconds: list[float], *, bar: float | None = None) -> Row:
    """A row of one candidate, in milliseconds."""
    low, middle, chosen = min(milliseconds), statistics.median(milliseconds), {name: milliseconds}
    return _row(subject, name, low, middle, "ms", chosen, {name: low}, {name: middle}, "ms", bar)


def memory(
    subject: str, name: str, mib: dict[str, list[float]], of: str, over: str, *, bar: float | None = None
) -> Row:
    """A row that says how many times as much memory `of` takes as `over`, from lists of MiB."""
    low, middle = {w: min(m) for w, m in mib.items()}, {w: statistics.median(m) for w, m in mib.items()}
    return _row(subject, name, low[of] / low[over], middle[of] / middle[over], "x", mib, low, middle, "MiB", bar)


def _row(subject, name, value, median, unit, chosen, minima, medians, candidate_unit, bar) -> Row:
    runs = len(next(iter(chosen.values())))
    return Row(subject, name, value, median, unit, runs, candidate_unit, minima, medians, bar)
