"""What the checker says of a reader's answer, and garbage to hand in, for the tests of each chapter's exercises."""

import ast
import sys

import torch

from course_utils.exercises import check


def judged(id, given):
    """(status, named mistake, all words) of the report on this answer."""
    report = check(id, given)
    return report.status, report.mistake, " ".join(report.lines)


def _endless(*args, **kwargs):
    while True:
        pass


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


def assert_is_reported(id, given):
    """Garbage gets a report that is neither right nor an error of the checker."""
    report = check(id, given)
    allowed = ("wrong", "raised", "not attempted") if given is GARBAGE["None"] else ("wrong", "raised")
    assert report.status in allowed and report.lines
    assert "The checker itself failed" not in repr(report)
    return report


def assert_is_ended(id):
    """An answer that never ends gets a report after the stated time."""
    report = check(id, _endless, seconds=0.05)
    assert report.status == "wrong" and "still running after 0.05 s" in repr(report)


def lines_in_hints(exercise, *, longer_than):
    """The lines of the answer, without its head and its task, that a hint holds."""
    (definition,) = [node for node in ast.parse(exercise.source).body if isinstance(node, ast.FunctionDef)]
    lines = [line.strip() for line in exercise.source.splitlines()[definition.body[1].lineno - 1 :]]
    lines = [line for line in lines if len(line) > longer_than]
    assert lines
    return [line for line in lines if any(line in text for text in exercise.hints)]
