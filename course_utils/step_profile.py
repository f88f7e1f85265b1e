"""One step under torch's profiler, as a table short enough to be read aloud. No trace is written.

It knows no loop and no data. Re-exported by `profiling`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from course_utils.step_clock import wait_for_device

LOG_LEVEL = "KINETO_LOG_LEVEL"


@dataclass(frozen=True)
class OperationRow:
    """One operation in a step.

    name     : as the profiler calls it: "aten::mm"
    calls    : in the step
    self_ms  : inside it, without the operations that it calls; of the CPU, or of the GPU where `device` says so
    share    : of all self times, 0 to 1
    """

    name: str
    calls: int
    self_ms: float
    share: float


@dataclass(frozen=True)
class StepProfile:
    """The operations of one step, the longest first; prints as a table and a sentence.

    rows         : the longest ones
    num_others   : names that have no row
    others_share : of all self times
    total_ms     : all self times added up
    device       : "CPU" or "GPU": whose time it is
    """

    rows: tuple[OperationRow, ...]
    num_others: int
    others_share: float
    total_ms: float
    device: str

    def __str__(self) -> str:
        width = max(9, *(len(row.name) for row in self.rows))
        lines = [f"{'operation':{width}}  calls  self {self.device} ms   share"]
        for row in self.rows:
            lines.append(f"{row.name:{width}}  {row.calls:5}  {row.self_ms:11.3f}  {row.share:6.1%}")
        lines += [f"{f'{self.num_others} others':{width}}  {'':5}  {'':11}  {self.others_share:6.1%}"]
        return "\n".join([*lines, "", self.sentence()])

    def sentence(self) -> str:
        """The table in a sentence: the operations that make up half of the time."""
        named, covered = [], 0.0
        for row in self.rows:
            named.append(f"{row.name} ({row.calls} {'call' if row.calls == 1 else 'calls'})")
            covered += row.share
            if covered >= 0.5:
                break
        verb = "takes" if len(named) == 1 else "take"
        return f"{', '.join(named)} {verb} {covered:.0%} of {self.total_ms:.3g} ms."


def profile_step(step: Callable[[], Any], *, top: int = 8) -> StepProfile:
    """Run a step twice, the second time under torch's profiler, and say which operations took its time.

    step   : () -> anything; it really runs: hand in one that trains a copy of the model
    top    : rows of the table
    raises : ValueError for a `top` below 1, or a step without any operation of torch

    One step is enough for the shares and fills no memory: profiling a whole epoch does. A single step's times vary;
    `StepTimer` has medians. With a GPU it is the GPU's time (written, not run).
    """
    if top < 1:
        raise ValueError(f"profile_step needs top >= 1, got {top}")
    step()  # the first one allocates and prepares
    on_gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with without_its_log(), profile(activities=activities) as found:
        step()
        wait_for_device()
    kind = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    events = [(event.key, event.count, getattr(event, kind) / 1e3) for event in found.key_averages()]
    return table_of(events, top, on_gpu)


@contextmanager
def without_its_log() -> Iterator[None]:
    """The profiler's lines on stderr are switched off; it reads the variable at its first use in a process."""
    before = os.environ.get(LOG_LEVEL)
    os.environ.setdefault(LOG_LEVEL, "99")
    try:
        yield
    finally:
        if before is None:
            del os.environ[LOG_LEVEL]


def table_of(events: Sequence[tuple[str, int, float]], top: int, on_gpu: bool = False) -> StepProfile:
    """The table of (name, calls, self milliseconds), in any order; names that took no time are left out.

    raises : ValueError where none took any time
    """
    events = sorted((event for event in events if event[2] > 0), key=lambda event: (-event[2], event[0]))
    total = sum(self_ms for _, _, self_ms in events)
    if not events:
        raise ValueError("the step ran no operation of torch: there is nothing to profile")
    rows = tuple(OperationRow(name, calls, self_ms, self_ms / total) for name, calls, self_ms in events[:top])
    others = events[top:]
    return StepProfile(
        rows, len(others), sum(self_ms for _, _, self_ms in others) / total, total, "GPU" if on_gpu else "CPU"
    )
