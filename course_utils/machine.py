"""What this machine gives a training run: cores, threads, memory, device, versions.

It knows no model and no data. Torch is imported where it is asked about, so the import stays cheap.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def _quota_v2(folder: Path) -> float:
    """Cores that `cpu.max` grants; infinite without a limit."""
    quota, period = (folder / "cpu.max").read_text().split()
    return math.inf if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float:
    """Cores that the older pair of files grants; a quota of -1 is no limit."""
    quota = int((folder / "cpu" / "cpu.cfs_quota_us").read_text())
    period = int((folder / "cpu" / "cpu.cfs_period_us").read_text())
    return math.inf if quota <= 0 else quota / period


def container_quota(folder: Path = CGROUP) -> float:
    """Cores that the container may use, from cgroup files under `folder`; infinite where there are none.

    A container on a 64-core host with a quota of 2 still *sees* 64 cores: `os.cpu_count()` says 64.
    """
    for read in (_quota_v2, _quota_v1):
        try:
            return read(folder)
        except (OSError, ValueError):
            continue  # not Linux, another cgroup version, or a file in a form that grants nothing
    return math.inf


def usable_cpus() -> int:
    """Cores this process may really use: affinity and container quota counted, at least 1."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity call
        allowed = os.cpu_count() or 1
    quota = container_quota()
    return max(1, min(allowed, math.floor(quota))) if quota < math.inf else allowed


def fit_threads(num_workers: int = 0, *, max_threads: int = 1) -> int:
    """Set torch's threads so that they and `num_workers` loader processes fit the cores; return the number set.

    num_workers : processes that will compute beside this one
    max_threads : the most to use; 1 keeps a room full of kernels fast and digits the same
    returns     : min(max_threads, usable_cpus() - num_workers), at least 1
    raises      : ValueError for a negative num_workers or max_threads below 1
    """
    if num_workers < 0 or max_threads < 1:
        raise ValueError(
            f"fit_threads needs num_workers >= 0 and max_threads >= 1, got num_workers={num_workers}, "
            f"max_threads={max_threads}"
        )
    import torch

    threads = max(1, min(max_threads, usable_cpus() - num_workers))
    torch.set_num_threads(threads)
    return threads


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def environment() -> dict[str, str | int]:
    """What can change the bits of a run: versions, device, cores, threads, start method. Plain str and int values."""
    import torch

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),  # a class of its own, which weights_only refuses
        "torchvision": _installed("torchvision"),
        "numpy": _installed("numpy"),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "usable_cpus": usable_cpus(),
        "num_threads": torch.get_num_threads(),
        "start_method": multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
    }


@dataclass(frozen=True)
class Finding:
    """One line of the machine check: what was looked at, what was found, what to do about it."""

    topic: str
    found: str
    advice: str
    ok: bool = True

    def __str__(self) -> str:
        return f"{' ' if self.ok else '!'} {self.topic:13} {self.found:32} {self.advice}"


def _free_memory_gib() -> float:
    import psutil

    return psutil.virtual_memory().available / 2**30


def _judge_python(number: tuple[int, int]) -> Finding:
    fits = (3, 11) <= number < (3, 15)
    advice = "fits" if fits else "the course is made for 3.11 to 3.14: install one of them and run course.py with it"
    return Finding("Python", ".".join(map(str, number)), advice, fits)


def _judge_torch(torch_version: str, torchvision_version: str) -> Finding:
    major, minor = (int(part) for part in torch_version.split(".")[:2])
    fits = (2, 10) <= (major, minor) < (2, 15) and torchvision_version != "not installed"
    advice = "fits" if fits else "the course needs torch >=2.10,<2.15 and the torchvision made for it"
    return Finding("PyTorch", f"{torch_version}, torchvision {torchvision_version}", advice, fits)


def _judge_cores(cores: int, seen: int) -> Finding:
    found = f"{cores} usable" + (f" of {seen} seen" if seen != cores else "")
    advice = (
        "enough; chapters that start workers use at most 2" if cores > 1 else "worker processes will share one core"
    )
    return Finding("Cores", found, advice)


def _judge_threads(threads: int) -> Finding:
    advice = "as the course sets it"
    if threads > 1:
        advice = "call fit_threads(): the course runs with 1"
    return Finding("Torch threads", str(threads), advice, threads == 1)


def _judge_memory(free_gib: float) -> Finding:
    ok = free_gib >= 2
    advice = "enough" if ok else "close other programs or kernels: a chapter needs up to 2 GiB"
    return Finding("Free memory", "2 GiB or more" if ok else f"{free_gib:.1f} GiB", advice, ok)


def _judge_gpu(name: str | None) -> Finding:
    advice = "nothing to do: every chapter runs on the CPU" if name is None else "cells marked GPU will use it"
    return Finding("GPU", name or "none", advice)


def _judge_start_method(method: str) -> Finding:
    if method == "fork":
        return Finding("Worker start", method, "workers copy this process, notebook classes too")
    return Finding("Worker start", method, "workers import: keep datasets in a module")


def check_machine() -> list[Finding]:
    """Look at this machine and say in words what it means for the course. Changes nothing."""
    import torch

    now = environment()
    return [
        _judge_python(sys.version_info[:2]),
        _judge_torch(str(now["torch"]), str(now["torchvision"])),
        _judge_cores(usable_cpus(), os.cpu_count() or 1),
        _judge_threads(torch.get_num_threads()),
        _judge_memory(_free_memory_gib()),
        _judge_gpu(torch.cuda.get_device_name() if torch.cuda.is_available() else None),
        _judge_start_method(str(now["start_method"])),
    ]
