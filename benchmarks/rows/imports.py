"""What importing the package costs beyond `import torch`, in fresh processes, once Python has its bytecode.

The bytecode goes into a folder of the measurement's own, since some systems are told to write none: then every import
compiles anew, and that would be measured.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from benchmarks.timing import Row, duration

STATEMENTS = {
    "Trainer": "from course_utils.training_loop import Trainer",
    "schedules": "import course_utils.schedules",
}
BAR_MS = 50


def _milliseconds(statement: str, bytecode: str) -> float:
    program = (
        f"import sys, time, torch; sys.dont_write_bytecode, sys.pycache_prefix = False, {bytecode!r}; "
        f"began = time.perf_counter(); {statement}; print((time.perf_counter() - began) * 1e3)"
    )
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


def measure(*, quick: bool = False) -> list[Row]:
    rounds, times = (1 if quick else 5), {name: [] for name in STATEMENTS}
    with tempfile.TemporaryDirectory() as bytecode:
        for number in range(rounds + 1):  # the first one compiles
            for name, statement in STATEMENTS.items():
                found = _milliseconds(statement, bytecode)
                if number:
                    times[name].append(found)
    return [
        duration("imports", f"{STATEMENTS[name]}, beyond torch", found, bar=BAR_MS) for name, found in times.items()
    ]
