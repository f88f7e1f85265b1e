"""Clocks for sections of a step, one a kind of device: a mark is a point in time, two marks give milliseconds.

They know no section. Used by `step_timer`; `wait_for_device` by everything that times.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """What a `StepTimer` reads."""

    def mark(self) -> Any:
        """Now."""

    def ms(self, begin: Any, end: Any) -> float:
        """Milliseconds from one mark to another."""


class HostClock:
    """The processor's clock: where the work is done when the call returns."""

    def mark(self) -> float:
        return time.perf_counter()

    def ms(self, begin: float, end: float) -> float:
        return (end - begin) * 1e3


class CudaClock:
    """Events in the GPU's queue: recording one waits for nothing. Written, not run."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ms(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()  # only now: nothing is waited for while the loop runs
        return begin.elapsed_time(end)


class WaitingClock(HostClock):
    """The processor's clock after the device has done what it was asked for. Written, not run on a device."""

    def mark(self) -> float:
        wait_for_device()
        return super().mark()


def clock_for(device: torch.device | str | None) -> Clock:
    """The clock for work on `device`; None takes the accelerator where there is one."""
    kind = torch.device(device).type if device is not None else _accelerator()
    if kind == "cpu":
        return HostClock()
    return CudaClock() if kind == "cuda" else WaitingClock()


def _accelerator() -> str:
    return torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"


def wait_for_device() -> None:
    """An accelerator works behind the program's back: what was asked of it is awaited. Nothing without one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
