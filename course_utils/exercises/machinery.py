"""What a chapter's cells call: `check`, `hint`, `answer`, `wrong_answers`, `progress`.

An id is a chapter's stem and a number, `schedules-1`; the module of that stem beside this one is imported on demand.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from course_utils.exercises.declare import Exercise
from course_utils.exercises.hints import Hints
from course_utils.exercises.judging import judge
from course_utils.exercises.progress_file import Progress, load, record, save
from course_utils.exercises.report import Report

CHAPTERS = (
    "start_here", "datasets", "transforms", "sampling", "loaders", "training_loop", "optimizer_step", "schedules",
    "checkpoints", "reproducibility", "nan_debugging", "profiling", "distributed", "capstone",
)  # fmt: skip


def check(id: str, answer: Any = None, *, seconds: float | None = None) -> Report:
    """Judge a reader's answer; a report in any event, so that "Run all" goes on.

    answer  : the function itself, or the value where the exercise asks for one; None or `...` is "not attempted"
    seconds : wall time for all cases; by default what the exercise allows, 10 s or more
    raises  : nothing, but an interrupt by the reader passes through
    """
    title = ""
    try:
        exercise = find(id)
        title = exercise.title
        verdict = judge(exercise, answer, seconds=seconds)
        note = record(exercise.id, verdict.status)
    except UnknownExercise as error:
        return Report(str(id), "", "not attempted", (str(error),))
    except Exception as error:
        return Report(str(id), title, "raised", (f"The checker itself failed: {type(error).__name__}: {error}",))
    return Report(id, title, verdict.status, (*verdict.lines, *([note] if note else [])), verdict.mistake)


def hint(id: str) -> Hints:
    """The hints of an exercise, one at a time, then its answer. UnknownExercise (a ValueError) for another id."""
    exercise = find(id)
    return Hints(id, tuple(exercise.hints), exercise.source)


def answer(id: str) -> Answer:
    """The right answer as a function; `.source` is its code as it is put into the cell. UnknownExercise for another
    id."""
    return Answer(find(id))


def wrong_answers(id: str) -> dict[str, Callable]:
    """The named wrong answers that `check` recognises, by name. UnknownExercise for another id."""
    return dict(find(id).wrong_answers)


def progress(*, reset: bool = False) -> Progress:
    """All exercises and how far you are; `reset=True` forgets it."""
    known, note = ({}, save({})) if reset else load()
    rows = [(c, e.id, e.title, known.get(e.id, "not attempted")) for c in chapters() for e in exercises_of(c).values()]
    return Progress(tuple(rows), note)


class Answer:
    """A right answer: call it, pass it to `check`, or look at its code."""

    def __init__(self, exercise: Exercise) -> None:
        functools.update_wrapper(self, exercise.answer)
        self.source = exercise.source

    def __call__(self, *args, **kwargs) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return self.source


class UnknownExercise(ValueError):
    """There is no exercise of this id; the message names those that exist."""


def find(id: str) -> Exercise:
    """The exercise of this id, its module imported if need be."""
    stem = str(id).rpartition("-")[0]
    if stem not in chapters():
        raise UnknownExercise(f"There is no exercise {id!r}. Chapters with exercises: {', '.join(chapters())}.")
    known = exercises_of(stem)
    if id not in known:
        raise UnknownExercise(f"There is no exercise {id!r}. Known: {', '.join(known)}.")
    return known[id]


def chapters() -> list[str]:
    """Stems of the chapters that have exercises, in the order of the course."""
    return [c for c in CHAPTERS if importlib.util.find_spec(f"{__package__}.{c}")]


def exercises_of(stem: str) -> dict[str, Exercise]:
    """The exercises of one chapter by id, in the order of their numbers."""
    module = importlib.import_module(f"{__package__}.{stem}")
    declared = [e for e in vars(module).values() if isinstance(e, Exercise)]
    return {e.id: e for e in sorted(declared, key=lambda e: int(e.id.rpartition("-")[2]))}
