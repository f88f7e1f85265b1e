"""Hold a declared exercise against what every exercise promises: a list of problems, empty for a sound one.

It is run by the tests on every exercise, and on toy exercises that are defective on purpose.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from course_utils.exercises.compare import is_array
from course_utils.exercises.declare import PLACE, Exercise
from course_utils.exercises.judging import all_same, judge, mistake_outcome, right_outcomes, same
from course_utils.exercises.running import ENDS, Outcome

LEAST_HINTS, LEAST_WRONG, MOST_WRONG, LEAST_MESSAGE, LONGEST_LINE = 2, 2, 16, 50, 100
_DIFFICULTIES = ("easy", "medium", "hard")


def verify(exercise: Exercise) -> list[str]:
    """What is wrong with this exercise, in words."""
    checks = (_declaration, _oracle, _code, _mistakes, _messages, _right_forms, _nonsense)
    return [f"{exercise.id}: {problem}" for check in checks for problem in check(exercise)]


def _declaration(exercise: Exercise) -> Iterator[str]:
    if len(exercise.hints) < LEAST_HINTS:
        yield f"needs {LEAST_HINTS} hints or more, has {len(exercise.hints)}"
    if not LEAST_WRONG <= len(exercise.wrong_answers) <= MOST_WRONG:
        yield f"needs {LEAST_WRONG} to {MOST_WRONG} named wrong answers, has {len(exercise.wrong_answers)}"
    if exercise.difficulty not in _DIFFICULTIES or exercise.minutes < 1 or not exercise.title:
        yield f"needs a title, minutes and a difficulty of {_DIFFICULTIES}"
    if not exercise.case_list:
        yield "needs at least one case"


def _oracle(exercise: Exercise) -> Iterator[str]:
    """The answer is right by its own check, every time, and agrees with what was worked out by hand."""
    verdict = judge(exercise, exercise.answer)
    if verdict.status != "right":
        yield f"its answer is judged {verdict.status}: {' '.join(verdict.lines)}"
    expected = exercise.expected
    if expected is None:
        return
    if len(expected) != len(exercise.case_list):
        yield f"has {len(exercise.case_list)} cases and {len(expected)} expected results"
        return
    for case, wanted, outcome in zip(exercise.case_list, expected, right_outcomes(exercise), strict=True):
        if wanted is not None and not _agrees(exercise, wanted, outcome):
            yield f"its answer gives {outcome.value!r} for {case}, by hand it is {wanted!r}"


def _agrees(exercise: Exercise, wanted: Any, outcome: Outcome) -> bool:
    if isinstance(wanted, type) and issubclass(wanted, BaseException):
        return isinstance(outcome.error, wanted)
    return outcome.status == "returned" and exercise.difference(wanted, outcome.value) is None


def _code(exercise: Exercise) -> Iterator[str]:
    """`.source` and the stub stand alone in a cell: one is right, the other not attempted."""
    for label, code, status in (("source", exercise.source, "right"), ("stub", exercise.stub, "not attempted")):
        try:
            cell: dict[str, Any] = {}
            exec(compile(code, f"<{label} of {exercise.id}>", "exec"), cell)
            found = judge(exercise, cell[exercise.name]).status
        except Exception as error:
            found = f"an error, {type(error).__name__}: {error}"
        if found != status:
            yield f"its {label} in a cell is judged {found}"
    for line in (*exercise.stub.splitlines(), *exercise.source.splitlines()):
        if len(line) > LONGEST_LINE:
            yield f"a line of its cell has more than {LONGEST_LINE} characters: {line.strip()!r}"
    if PLACE not in exercise.stub:
        yield f"its stub does not say {PLACE!r}"


def _mistakes(exercise: Exercise) -> Iterator[str]:
    """Each named wrong answer is told apart from the right one and from those of other names, judged as itself, and its
    message is shown."""
    forms = [(name, fn) for name in exercise.wrong_answers for fn in exercise.forms(name)]
    for name, fn in forms:
        given = _outcomes(exercise, fn)
        if all(
            same(exercise, r, g)
            for r, g in itertools.zip_longest(right_outcomes(exercise), given, fillvalue=Outcome("endless"))
        ):
            yield f"no case tells the wrong answer {_called(fn)} from the right one"
        verdict = judge(exercise, fn)
        if (verdict.status, verdict.mistake) != ("wrong", name):
            yield f"the wrong answer {_called(fn)} is judged {verdict.status}, mistake {verdict.mistake}"
        if fn is exercise.wrong_answers[name] and not any(exercise.message(name) in line for line in verdict.lines):
            yield f"the message of {name} is not shown"
    for (name, one), (another, other) in itertools.combinations(forms, 2):
        if name == another:
            continue
        first, second = _outcomes(exercise, one), _outcomes(exercise, other)
        if all_same(exercise, first, second) or all_same(exercise, second, first):
            yield f"no case tells the wrong answers {_called(one)} and {_called(other)} apart"


def _outcomes(exercise: Exercise, fn: Callable) -> list[Outcome]:
    """What a wrong answer comes to in all cases, as far as going on helps."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(exercise.case_list) and not (outcomes and outcomes[-1].status in ENDS):
        outcomes.append(mistake_outcome(exercise, fn, len(outcomes)))
    return outcomes


def _called(fn: Callable) -> str:
    return getattr(fn, "__name__", str(fn))


def _messages(exercise: Exercise) -> Iterator[str]:
    messages = {name: exercise.message(name) for name in exercise.wrong_answers}
    for name, message in messages.items():
        if len(message) < LEAST_MESSAGE:
            yield f"the message of {name} does not say what the mistake does: {message!r}"
    if len(set(messages.values())) < len(messages):
        yield "two wrong answers have the same message"


def _right_forms(exercise: Exercise) -> Iterator[str]:
    """The answer's results in other forms that mean the same are right too."""
    for label, convert in _FORMS.items():
        if _applies(exercise, convert) and judge(exercise, _given(exercise, convert)).status != "right":
            yield f"rejects the right results as {label}"


def _nonsense(exercise: Exercise) -> Iterator[str]:
    """Results that are nothing like the right ones are never right."""
    if all(o.returned == "None" or o.error for o in right_outcomes(exercise)):
        candidates = {"a function that does nothing": lambda *args, **kwargs: len(args) and None}
    else:
        candidates = {
            label: _given(exercise, convert) for label, convert in _NONSENSE.items() if _applies(exercise, convert)
        }
    for label, fn in candidates.items():
        if judge(exercise, fn).status == "right":
            yield f"accepts {label}"


def _given(exercise: Exercise, convert: Callable) -> Any:
    """What a reader would hand in: a function, or in an exercise that asks for a value the value."""
    fn = _through(exercise, convert)
    return fn() if exercise.value else fn


def _through(exercise: Exercise, convert: Callable) -> Callable:
    """The answer with its results converted; the parameters stay visible to the signature check."""

    def converted(*args, **kwargs):
        result = exercise.answer(*args, **kwargs)
        return _convert(convert, result)

    converted.__signature__ = inspect.signature(exercise.answer)
    return converted


def _applies(exercise: Exercise, convert: Callable) -> bool:
    if exercise.observe or exercise.probe:
        return convert in _NONSENSE.values() and convert is _none
    return any(_convert(convert, o.value) is not o.value for o in right_outcomes(exercise) if o.status == "returned")


def _convert(convert: Callable, result: Any) -> Any:
    converted = convert(result)
    return result if converted is NotImplemented else converted


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _tensor(value: Any) -> Any:
    import torch

    return torch.tensor(value) if _is_number(value) else NotImplemented


def _numpy(value: Any) -> Any:
    import numpy

    return numpy.asarray(value)[()] if _is_number(value) else NotImplemented


def _float(value: Any) -> Any:
    return float(value) if _is_number(value) else NotImplemented


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else NotImplemented


def _list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else NotImplemented


def _none(value: Any) -> None:
    return None


def _shifted(value: Any) -> Any:
    return value + 1 if _is_number(value) else NotImplemented


def _boxed(value: Any) -> Any:
    """A shape that broadcasting would let pass."""
    return value[None] if is_array(value) else [value] if _is_number(value) else NotImplemented


def _longer(value: Any) -> Any:
    return [*value, *(value[:1] or [0])] if isinstance(value, (list, tuple)) else NotImplemented


def _iterator(value: Any) -> Any:
    return iter(value) if isinstance(value, (list, tuple)) else NotImplemented


def _text(value: Any) -> str:
    return f"{value}!"


_FORMS = {"floats": _float, "0-d tensors": _tensor, "NumPy scalars": _numpy, "tuples": _tuple, "lists": _list}
_NONSENSE = {
    "None": _none,
    "numbers that are 1 too large": _shifted,
    "results with one more dimension": _boxed,
    "lists that are one longer": _longer,
    "iterators": _iterator,
    "strings": _text,
}
