"""The speed limit of a step: its floating-point operations, counted, against the fastest this machine multiplies.

It knows no loop and no data. Re-exported by `profiling`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from course_utils.step_clock import wait_for_device

GIGA = 1e9
MIN_RUNS = 3


@dataclass(frozen=True)
class SpeedLimit:
    """A step against the peak of matrix products.

    flops       : floating-point operations of one step, as `flops_of` counts them
    step_ms     : median of the step
    peak_gflops : 1e9 operations a second in large float32 matrix products
    """

    flops: int
    step_ms: float
    peak_gflops: float

    @property
    def gflops(self) -> float:
        """1e9 operations a second that the step reaches."""
        return self.flops / self.step_ms * 1e3 / GIGA

    @property
    def share(self) -> float:
        """Of the peak; 1.0 is a step that does nothing but multiply large matrices."""
        return self.gflops / self.peak_gflops

    @property
    def best_ms(self) -> float:
        """The step at the peak: nothing makes the same operations faster on this machine, with as many threads."""
        return self.flops / self.peak_gflops * 1e3 / GIGA

    def __str__(self) -> str:
        return (
            f"{self.flops / 1e6:.4g} million operations in {self.step_ms:.3g} ms are {self.gflops:.3g} of "
            f"{self.peak_gflops:.3g} GFLOP/s, {self.share:.0%} of the peak; at the peak {self.best_ms:.3g} ms"
        )


def flops_of(fn: Callable[[], Any]) -> int:
    """Floating-point operations in one call: a multiplication and an addition are two.

    fn : runs once, forward and backward as it likes

    It counts matrix products, convolutions and attention, by their shapes; additions, activations, normalisations and
    the optimizer's update are not counted, nor what is outside torch.
    """
    with FlopCounterMode(display=False) as counter:
        fn()
    return counter.get_total_flops()


def matmul_peak_gflops(
    seconds: float = 0.3, *, size: int | None = None, device: torch.device | str | None = None
) -> float:
    """The fastest of repeated products of two float32 matrices (size, size), in 1e9 operations a second.

    seconds : how long to repeat; three products at least
    size    : 1024 on a CPU, 8192 on an accelerator
    device  : None takes the accelerator where there is one (written, not run)
    raises  : ValueError for seconds or a size that is not above 0

    With torch's present number of threads. It draws nothing.
    """
    device = torch.device(device) if device is not None else _where()
    size = (1024 if device.type == "cpu" else 8192) if size is None else size
    if not seconds > 0 or size < 1:
        raise ValueError(f"matmul_peak_gflops needs seconds > 0 and size >= 1, got seconds={seconds}, size={size}")
    with torch.inference_mode():
        a = torch.full((size, size), 0.5, device=device)
        out = torch.empty_like(a)
        times = times_of(lambda: torch.mm(a, a, out=out), seconds)
    return 2 * size**3 / max(min(times), 1e-9) / GIGA


def speed_limit(fn: Callable[[], Any], *, seconds: float = 1.0) -> SpeedLimit:
    """Count a step's operations, time it, and time matrix products beside it.

    fn      : a step, run some times: hand in one that trains a copy
    seconds : half for the step, half for the peak
    raises  : ValueError where `fn` has no operation that `flops_of` counts
    """
    flops = flops_of(fn)
    if not flops:
        raise ValueError("the step has no matrix product, convolution or attention: its limit is another one")
    step_ms = 1e3 * statistics.median(times_of(fn, seconds / 2))
    return SpeedLimit(flops, max(step_ms, 1e-4), matmul_peak_gflops(seconds / 2))


def times_of(fn: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds of each call, for `seconds` and three calls at least, after one that is not counted."""
    fn()
    found, end = [], time.perf_counter() + seconds
    while len(found) < MIN_RUNS or time.perf_counter() < end:
        wait_for_device()
        began = time.perf_counter()
        fn()
        wait_for_device()
        found.append(time.perf_counter() - began)
    return found


def _where() -> torch.device:
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
