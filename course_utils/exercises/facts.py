"""Facts about an answer, where many results are right: what an exercise's `probe` gathers, and how they are told apart.

A fact is a name and a value: {"each record comes": "once"}. It knows no exercise.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

import numpy
import torch

from course_utils.exercises import compare
from course_utils.exercises.isolation import SEED
from course_utils.exercises.wording import short

LEFT_ALONE = "left alone"  # what `moved_generators` says of an answer that draws from generators of its own


class Said(str):
    """A fact in a few words, which are compared, and its details, which are shown: two generators that moved are one
    mistake, and so are two records that never came, whichever they are."""

    def __new__(cls, words: str, details: str) -> Said:
        said = super().__new__(cls, words)
        said.details = details
        return said


def facts_differ(expected: dict, got: dict) -> str | None:
    """The first fact that is not as it should be, in words; None where all are."""
    if not isinstance(got, dict):
        return f"the facts cannot be read from {short(got)}"
    wrong = (name for name in expected if got.get(name) != expected[name])
    return next((f"{name}: {_said(got.get(name))}; it should be: {_said(expected[name])}" for name in wrong), None)


def close_facts_differ(expected: Any, got: Any, *, rel: float = compare.REL, abs_: float = compare.ABS) -> str | None:
    """The first fact that is not as it should be, in words; None where all are.

    As `facts_differ`, but a fact that is no word may be anything that `compare.difference` compares: numbers may differ
    by rounding. A fact that one of the two lacks is a difference.
    """
    if not isinstance(expected, dict):  # a mistake whose result could not be asked
        alike = isinstance(expected, Iterator) and type(expected) is type(got)  # without a value to compare
        return None if alike else compare.difference(expected, got)
    if not isinstance(got, dict):
        return f"the facts cannot be read from {short(got)}"
    names = [*expected, *(name for name in got if name not in expected)]
    found = (
        fact_differs(name, expected.get(name, _MISSING), got.get(name, _MISSING), rel=rel, abs_=abs_) for name in names
    )
    return next((words for words in found if words), None)


_MISSING = Said("not reached", "not reached")


def fact_differs(
    name: str, expected: Any, got: Any, *, rel: float = compare.REL, abs_: float = compare.ABS
) -> str | None:
    """One fact, as in `close_facts_differ`."""
    if isinstance(expected, str) or isinstance(got, str):
        same = type(expected) in (str, Said) and type(got) in (str, Said) and expected == got
        given = repr(got) if type(got) is str and not isinstance(expected, str) else _said(got)
        return None if same else f"{name}: {given}; it should be: {_said(expected)}"
    if _plainly_equal(expected, got):
        return None
    if expected == [] and isinstance(got, list):
        return f"{name}: {short(got)}; it should be: none"
    words = compare.difference(expected, got, rel=rel, abs_=abs_)
    return f"{name}: {words}" if words else None


def _plainly_equal(expected: Any, got: Any) -> bool:
    """Without the words, for speed: numbers, and lists of numbers, with the same digits."""
    plain = (int, float, str)
    if type(expected) is list and type(got) is list:
        return len(expected) == len(got) and all(map(_plainly_equal, expected, got))
    return type(expected) is type(got) and type(expected) in plain and expected == got


def _said(value: object) -> str:
    return value.details if isinstance(value, Said) else value if isinstance(value, str) else short(value)


def times_each(wanted: Sequence, given: Iterable) -> str:
    """How often each of `wanted` is among `given`: "once", or in words the first that are not, "7 never, 0 2 times"."""
    counts = Counter(given)
    off = [f"{short(item)} never" if not counts[item] else f"{short(item)} {counts[item]} times"
           for item in wanted if counts[item] != 1]  # fmt: skip
    strange = [f"{short(item)}, which is none of them" for item in counts if item not in set(wanted)]
    return ", ".join([*off[:3], *strange[:1]]) + (f" and {len(off) - 3} more" if len(off) > 3 else "") or "once"


def moved_generators() -> str:
    """Which global generators moved since a checked call began, in words. It holds inside `probe` and `observe` only.

    There every call begins with the generators seeded alike (`isolation.isolated`); torch and NumPy are imported here,
    because a library that a reader's call imports first brings a generator that was never seeded.
    """
    moved = []
    if random.getstate() != random.Random(SEED).getstate():
        moved.append("Python's")
    if not torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(SEED).get_state()):
        moved.append("torch's")
    if not _same_numpy_state():
        moved.append("NumPy's")
    return f"{' and '.join(moved)} moved" if moved else LEFT_ALONE


def _same_numpy_state() -> bool:
    now, then = numpy.random.get_state(), numpy.random.RandomState(SEED).get_state()
    return now[2] == then[2] and bool((now[1] == then[1]).all())


def use_of_generators(call: Callable[[], object]) -> str:
    """How `call` uses the global generators: LEFT_ALONE, "drawn from" or "seeded", with the details of `Said`.

    It is called twice, with the generators in two states. Who seeds them leaves one state behind, who draws leaves two;
    a call that remembers its first result draws nothing the second time, and has not seeded either.
    """
    first, second = [(_seeded(seed), _called(call)) for seed in (SEED, SEED + 1)]
    states = dict(zip(_NAMES, zip(*first, *second, strict=True), strict=True))
    moved = [name for name, (before, after, *others) in states.items() if before != after or others[0] != others[1]]
    seeded = [name for name, (_, after, _, after_others) in states.items() if after == after_others]
    _seeded(SEED)
    if not moved:
        return LEFT_ALONE
    return Said("seeded", f"{_all(seeded)} seeded") if seeded else Said("drawn from", f"{_all(moved)} drawn from")


_NAMES = ("Python's", "torch's", "NumPy's")


def _all(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _states() -> tuple:
    numpys = numpy.random.get_state()
    return random.getstate(), torch.get_rng_state().numpy().tobytes(), (numpys[1].tobytes(), numpys[2])


def _seeded(seed: int) -> tuple:
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    numpy.random.seed(seed)
    return _states()


def _called(call: Callable[[], object]) -> tuple:
    call()
    return _states()


def uses_hash(code: CodeType | None) -> bool:
    """True where a function, or one inside it, calls hash()."""
    if code is None:
        return False
    return "hash" in code.co_names or any(uses_hash(c) for c in code.co_consts if isinstance(c, CodeType))
