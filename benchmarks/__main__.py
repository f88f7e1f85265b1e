"""Measure and print the table of figures.

    python -m benchmarks                  all rows
    python -m benchmarks imports loader   these subjects
    python -m benchmarks --store          all rows, and store them in benchmarks/records/rows.json

Exit status 1 where a row misses its bar.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time

from benchmarks import records
from benchmarks.rows import SUBJECTS, measure
from benchmarks.timing import Row
from course_utils.machine import fit_threads


def heading(made: dict) -> str:
    """Machine, versions, date and load in two lines."""
    machine, versions = made["machine"], " ".join(f"{name} {number}" for name, number in made["versions"].items())
    cores = f"{machine['cores']} cores, {machine['threads']} torch thread(s)"
    load = ", load average {} before, {} after".format(*made["load_average"])
    return f"{machine['cpu']}, {cores}, {machine['platform']}\n{versions}, {made['date']}{load}"


def verdict(row: Row, quick: bool) -> str:
    """What the last column says; a quick figure is not judged."""
    if row.bar is None:
        return "no bar"
    return f"{'not judged' if quick else 'pass' if row.passed else 'FAIL'} (<= {row.bar:g} {row.unit})"


def table(rows: list[Row], *, quick: bool = False) -> str:
    """One line a row: figure from minima, from medians, runs, verdict."""
    head = ("row", "from minima", "from medians", "runs", "bar")
    lines = [head] + [
        (row.name, f"{row.value:.3g} {row.unit}", f"{row.median:.3g} {row.unit}", str(row.runs), verdict(row, quick))
        for row in rows
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    aligned = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(line.rstrip() for line in aligned)


def as_record(row: Row) -> dict:
    """A row as plain values, times to four digits."""
    found = dataclasses.asdict(row) | {"passed": row.passed}
    for name in ("value", "median"):
        found[name] = float(f"{found[name]:.4g}")
    for name in ("minima", "medians"):
        found[name] = {who: float(f"{value:.4g}") for who, value in found[name].items()}
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Print a table of measured figures.")
    parser.add_argument("subjects", nargs="*", metavar="name", help=f"of {', '.join(SUBJECTS)}; none means all")
    parser.add_argument("--list", action="store_true", help="print the names and measure nothing")
    parser.add_argument("--quick", action="store_true", help="two rounds: see that rows work; the figures say nothing")
    parser.add_argument("--store", action="store_true", help="store all rows in benchmarks/records/rows.json")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.subjects if name not in SUBJECTS]
    if unknown:
        parser.error(f"no row {unknown[0]!r}; there are: {', '.join(SUBJECTS)}")
    if chosen.store and (chosen.subjects or chosen.quick):
        parser.error("--store stores all rows, measured in one run: leave out names and --quick")
    return chosen


def main(arguments: list[str] | None = None) -> int:
    chosen = parse(arguments)
    if chosen.list:
        print("\n".join(SUBJECTS))
        return 0
    fit_threads()
    began, load, rows = time.perf_counter(), records.load_average(), []
    for subject in chosen.subjects or SUBJECTS:
        print(f"measuring {subject}", file=sys.stderr, flush=True)
        rows += measure(subject, quick=chosen.quick)
    made = records.made_on(runs=sum(row.runs for row in rows), seconds=time.perf_counter() - began)
    made["load_average"] = [load, records.load_average()]
    print(heading(made), table(rows, quick=chosen.quick), sep="\n\n")
    if chosen.store:
        print(records.store("rows", made, {"rows": [as_record(row) for row in rows]}).name)
    return int(any(row.passed is False for row in rows) and not chosen.quick)


if __name__ == "__main__":
    sys.exit(main())
