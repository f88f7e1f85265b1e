"""What importing the package costs beyond `import torch`, in fresh processes."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.timing import Row, duration

STATEMENTS = {
    "Trainer": "from course_utils.training_loop import Trainer",
    "schedules": "import course_utils.schedules",
}
BAR_MS = 50


def _milliseconds(statement: str) -> float:
    program = (
        f"import time, torch; began = time.perf_counter(); {statement}; print((time.perf_counter() - began) * 1e3)"
    )
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def measure(*, quick: bool = False) -> list[Row]:
    rounds, times = (1 if quick else 7), {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            times[name].append(_milliseconds(statement))
    return [
        duration("imports", f"{STATEMENTS[name]}, beyond torch", found, bar=BAR_MS) for name, found in times.items()
    ]
