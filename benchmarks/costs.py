"""What the records about speed share: times as plain figures, and the memory that torch hands out, counted."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from course_utils import live_bytes


def milliseconds(seconds: list[float], *, per: int = 1) -> dict[str, float]:
    """{"ms", "median_ms"}: the least and the median of some measurements, for each of the `per` things in one."""
    of = {"ms": min(seconds), "median_ms": statistics.median(seconds)}
    return {name: digits(value * 1e3 / per) for name, value in of.items()}


def digits(value: float) -> float:
    """Four significant ones."""
    return float(f"{value:.4g}")


def compared(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same rows with `over_first`: how many times as long as the first row takes, from the least times."""
    first = next(iter(rows.values()))["ms"]
    return {name: row | {"over_first": digits(row["ms"] / first)} for name, row in rows.items()}


def peak_bytes(fn: Callable[[], Any]) -> int:
    """The most that torch's allocator had handed out during one `fn()`, beyond what it had before."""
    return live_bytes.peak_bytes(fn, prepare=False)


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of all tensors that the optimizer keeps from one step to the next."""
    values = [value for state in optimizer.state.values() for value in state.values()]
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))
