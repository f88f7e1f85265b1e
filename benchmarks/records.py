"""Stored results as JSON files with the machine that made them: `load`, `store`, `made_on`.

It imports no torch at the top, so a notebook can load it from its path, or read the JSON file itself:

    json.loads((Path(course_utils.__file__).parents[1] / "benchmarks/records/lr_race.json").read_text())
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"


def load(name: str) -> dict[str, Any]:
    """The record `name`; FileNotFoundError that lists the records there are."""
    path = RECORDS / f"{name}.json"
    if not path.exists():
        there = ", ".join(sorted(path.stem for path in RECORDS.glob("*.json"))) or "none"
        raise FileNotFoundError(f"no record {name!r} in benchmarks/records; there are: {there}")
    return json.loads(path.read_text(encoding="utf-8"))


def store(name: str, made: dict[str, Any], content: dict[str, Any]) -> Path:
    """Write a record: its name, how it was made, its content. The file is whole or as before."""
    path = RECORDS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    text = json.dumps({"name": name, "made": made} | content, indent=1, allow_nan=False)
    text = _numbers_on_one_line(text) + "\n"
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path


def made_on(*, runs: int, seconds: float) -> dict[str, Any]:
    """Where and when: machine, versions, date, number of runs, total seconds."""
    from course_utils.machine import environment

    found = environment()
    versions = {name: found[name] for name in ("python", "torch", "numpy")}
    machine = {"cpu": cpu_name(), "cores": found["usable_cpus"], "threads": found["num_threads"]}
    machine |= {name: found[name] for name in ("platform", "cpu_capability", "device")}
    date = datetime.date.today().isoformat()
    return {"machine": machine, "versions": versions, "date": date, "runs": runs, "seconds": round(seconds)}


def load_average() -> float | None:
    """Programs that wanted a core in the last minute, this one included; None where the system does not say.

    Above the number of cores the machine was busy with something else, and its times are in doubt.
    """
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def cpu_name() -> str:
    """The processor's name as the system gives it, with family and model where Linux lists them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = fields.get("model name") or platform.machine()
    return f"{name} (family {fields['cpu family']}, model {fields['model']})" if "cpu family" in fields else name


def _numbers_on_one_line(text: str) -> str:
    """Lists of plain values on one line each: a record is read by people too."""
    return re.sub(r"\[([^\[\]{}]*)\]", lambda found: f"[{' '.join(found.group(1).split())}]", text)
