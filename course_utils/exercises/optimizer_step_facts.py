"""Facts about an update, told apart with the tolerance that its numbers need; what follows from a mistake is left out.

It knows no exercise. The order of the facts is the order in which they are told.
"""

from __future__ import annotations

import functools

from course_utils.exercises import facts as general

_TOLERANCES = {"rel": 1e-4, "abs_": 1e-6}
close_facts_differ = functools.partial(general.close_facts_differ, **_TOLERANCES)


def up_to_the_first_fault(facts: dict, sound: dict) -> dict:
    """The facts as far as the first that is not as it should be.

    Two answers with the same first fault are then one mistake, whatever else they do.
    """
    kept = {}
    for name, value in facts.items():
        kept[name] = value
        if is_at_fault({name: value}, sound):
            break
    return kept


def is_at_fault(facts: dict, sound: dict) -> bool:
    """True where one of the facts gathered so far is not as it should be."""
    shared = (name for name in facts if name in sound)
    return any(general.fact_differs(name, sound[name], facts[name], **_TOLERANCES) for name in shared)


def times(number: int) -> str:
    """How often something was done: "never", "once", "3 times"."""
    return {0: "never", 1: "once"}.get(number, f"{number} times")
