"""What holds for every exercise, whatever is handed in; verify() and its defects are in test_exercises.py."""

import sys

import pytest
import torch

from course_utils.exercises import check
from course_utils.exercises.machinery import chapters, exercises_of

EVERY = [exercise for stem in chapters() for exercise in exercises_of(stem).values()]
FUNCTIONS = [exercise for exercise in EVERY if "def " in exercise.source]  # the others ask for a value
each_exercise = pytest.mark.parametrize("exercise", EVERY, ids=lambda exercise: exercise.id)

GARBAGE = {
    "None": lambda *a, **k: None,
    "nan": lambda *a, **k: float("nan"),
    "text": lambda *a, **k: "42",
    "an object": lambda *a, **k: object(),
    "a dict of lists": lambda *a, **k: {"params": [1, {2}], "ms": [1, {2}]},
    "a list of dicts": lambda *a, **k: [{"params": [1], "lr": None}],
    "a tuple that is too long": lambda *a, **k: (1, 2, 3, 4),
    "a tensor of many": lambda *a, **k: torch.zeros(3, 4),
    "a generator": lambda *a, **k: (x for x in "ab"),
    "a generator of pairs": lambda *a, **k: ((x, None) for x in range(3)),
    "itself": lambda *a, **k: GARBAGE,
    "an error": lambda *a, **k: {}["missing"],
    "an exit": lambda *a, **k: sys.exit("gone"),
    "one parameter too many": lambda a, b, c, d, e, f, g: 1,
    "no parameter": lambda: 1,
    "a number in place of a function": 42,
    "text in place of a function": "steady",
    "a class": dict,
    "a class that takes one": int,
    "a function of Python": print,
}


def _endless(*args, **kwargs):
    while True:
        pass


def test_there_are_exercises_of_every_chapter_that_has_some():
    assert len(EVERY) >= 50 and len(chapters()) >= 9
    assert [exercise.id for exercise in EVERY if exercise not in FUNCTIONS] == ["schedules-10"]


@each_exercise
def test_garbage_gets_a_report_that_is_neither_right_nor_a_named_mistake(exercise):
    for name, given in GARBAGE.items():
        report = check(exercise.id, given)
        allowed = ("wrong", "raised", "not attempted") if name == "None" else ("wrong", "raised")
        assert report.status in allowed and report.lines, name
        assert "The checker itself failed" not in repr(report), name


@pytest.mark.parametrize("exercise", FUNCTIONS, ids=lambda exercise: exercise.id)
def test_an_endless_answer_is_ended(exercise):
    report = check(exercise.id, _endless, seconds=0.05)
    assert report.status == "wrong" and "still running after 0.05 s" in repr(report)
