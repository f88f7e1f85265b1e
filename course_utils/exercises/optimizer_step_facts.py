"""Facts about an update, told apart with the tolerance that numbers need; what follows from a mistake is left out.

It knows no exercise. The order of the facts is the order in which they are told.
"""

from __future__ import annotations

from typing import Any

from course_utils.exercises.compare import difference
from course_utils.exercises.facts import Said
from course_utils.exercises.wording import short

REL, ABS = 1e-4, 1e-6


def up_to_the_first_fault(facts: dict, sound: dict) -> dict:
    """The facts as far as the first that is not as it should be.

    Two answers with the same first fault are then one mistake, whatever else they do.
    """
    kept = {}
    for name, value in facts.items():
        kept[name] = value
        if name in sound and _words(name, sound[name], value):
            break
    return kept


def is_at_fault(facts: dict, sound: dict) -> bool:
    """True where one of the facts gathered so far is not as it should be."""
    return any(_words(name, sound[name], value) for name, value in facts.items() if name in sound)


def close_facts_differ(expected: Any, got: Any) -> str | None:
    """The first fact that is not as it should be, in words; numbers may differ by rounding. None where all are."""
    if not isinstance(expected, dict):  # a mistake whose result could not be asked
        return difference(expected, got)
    if not isinstance(got, dict):
        return f"the facts cannot be read from {short(got)}"
    names = [*expected, *(name for name in got if name not in expected)]
    found = (_words(name, expected.get(name, _MISSING), got.get(name, _MISSING)) for name in names)
    return next((words for words in found if words), None)


_MISSING = Said("not reached", "not reached")


def _words(name: str, expected: Any, got: Any) -> str | None:
    if isinstance(expected, str) or isinstance(got, str):
        same = type(expected) in (str, Said) and type(got) in (str, Said) and expected == got
        given = repr(got) if type(got) is str and not isinstance(expected, str) else _said(got)
        return None if same else f"{name}: {given}; it should be: {_said(expected)}"
    if _plainly_equal(expected, got):
        return None
    if expected == [] and isinstance(got, list):
        return f"{name}: {short(got)}; it should be: none"
    words = difference(expected, got, rel=REL, abs_=ABS)
    return f"{name}: {words}" if words else None


def _plainly_equal(expected: Any, got: Any) -> bool:
    """Without the words, for speed: numbers, and lists of numbers, with the same digits."""
    plain = (int, float, str)
    if type(expected) is list and type(got) is list:
        return len(expected) == len(got) and all(map(_plainly_equal, expected, got))
    return type(expected) is type(got) and type(expected) in plain and expected == got


def _said(value: Any) -> str:
    return value.details if isinstance(value, Said) else value if isinstance(value, str) else short(value)


def times(number: int) -> str:
    """How often something was done: "never", "once", "3 times"."""
    return {0: "never", 1: "once"}.get(number, f"{number} times")
