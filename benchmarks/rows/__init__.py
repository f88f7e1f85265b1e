"""The rows of the table, one module a subject; each has `measure(*, quick) -> list[Row]`.

quick : the fewest rounds that give a figure, to see that a row works; such a figure says nothing
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.timing import Row

SUBJECTS = (
    "imports",
    "scheduler_step",
    "trainer_step",
    "frameworks",
    "optimizers",
    "loader",
    "seeding",
    "photos",
    "augment",
    "paths",
    "resume",
    "step_costs",
)


def measure(subject: str, *, quick: bool = False) -> list[Row]:
    """The rows of one subject; ValueError for a name that is none."""
    if subject not in SUBJECTS:
        raise ValueError(f"no row {subject!r}; there are: {', '.join(SUBJECTS)}")
    return import_module(f"benchmarks.rows.{subject}").measure(quick=quick)
