"""Decide: right, wrong (and which mistake), raised, not attempted. Pure: no progress is kept, nothing is shown."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from course_utils.exercises.compare import as_number
from course_utils.exercises.declare import Exercise
from course_utils.exercises.running import Outcome, as_good_as, is_empty, run_all, run_case
from course_utils.exercises.wording import kind, short, words_of_error

ORACLE_SECONDS = 60.0


@dataclass(frozen=True)
class Verdict:
    """status: "not attempted", "right", "wrong" or "raised"; mistake: a wrong answer's name or None; lines: the
    words."""

    status: str
    lines: tuple[str, ...] = ()
    mistake: str | None = None


NOT_ATTEMPTED = Verdict("not attempted", ("Write your answer in the cell above, run it, then run this cell again.",))


def judge(exercise: Exercise, answer: Any, *, seconds: float | None = None) -> Verdict:
    """Run `answer` on all cases and compare it with the exercise's answer and its named wrong answers."""
    if answer is None or answer is ... or is_empty(answer):
        return NOT_ATTEMPTED
    fn = _as_function(exercise, answer)
    problem = _not_callable(exercise, fn) or _signature_problem(exercise, fn)
    if problem:
        return Verdict("wrong", (problem,))
    right = right_outcomes(exercise)
    limit = exercise.seconds if seconds is None else seconds
    return _decide(exercise, right, run_all(exercise, fn, seconds=limit, like=right), limit)


def right_outcomes(exercise: Exercise) -> list[Outcome]:
    """The oracle: computed once, then kept with the exercise."""
    if "_right" not in exercise.__dict__:
        exercise.__dict__["_right"] = run_all(exercise, exercise.answer, seconds=ORACLE_SECONDS)
    return exercise.__dict__["_right"]


def mistake_outcome(exercise: Exercise, fn: Callable, place: int) -> Outcome:
    """What a named wrong answer, or a form of it, comes to in one case: run when it is asked for, and kept."""
    known = exercise.__dict__.setdefault("_outcomes", {}).setdefault(fn, {})
    if place not in known:
        like = right_outcomes(exercise)[place].returned
        known[place] = run_case(exercise, fn, exercise.case_list[place], ORACLE_SECONDS, like)
    return known[place]


def _decide(exercise: Exercise, right: list[Outcome], given: list[Outcome], limit: float) -> Verdict:
    if given[0].status == "not attempted":
        return NOT_ATTEMPTED
    failing = next((i for i, r in enumerate(right) if i >= len(given) or not same(exercise, r, given[i])), None)
    if failing is None:
        return Verdict("right", tuple(_right_lines(exercise, given)))
    mistake = recognise(exercise, given)
    case, outcome = exercise.case_list[failing], given[failing]
    lines = list(_mistake_lines(exercise, mistake)) + list(
        _failure_lines(exercise, case, right[failing], outcome, limit)
    )
    raised = outcome.status in ("raised", "not attempted") and not mistake
    return Verdict("raised" if raised else "wrong", tuple(lines), mistake)


def recognise(exercise: Exercise, given: list[Outcome]) -> str | None:
    """The name of the wrong answer whose outcomes these are: in every case, or else in all where no error is due.

    The second is for one mistake among several: who cuts too early and forgot the NaN as well hears of the first.
    """
    right = right_outcomes(exercise)
    plain = [i for i, outcome in enumerate(right) if outcome.error is None]
    if len(given) < len(right):
        return _named(exercise, given, range(len(given)))
    only_errors_differ = all(same(exercise, right[i], given[i]) for i in plain)
    return _named(exercise, given, range(len(right))) or (
        None if only_errors_differ else _named(exercise, given, plain)
    )


def _named(exercise: Exercise, given: list[Outcome], places: Sequence[int]) -> str | None:
    """The first mistake with these outcomes at `places`; those where the answer fails are looked at first."""
    right = right_outcomes(exercise)
    ordered = sorted(places, key=lambda i: same(exercise, right[i], given[i]))
    for name in exercise.wrong_answers:
        for fn in exercise.forms(name):
            if all(_alike(exercise, mistake_outcome(exercise, fn, i), given[i], i) for i in ordered):
                return name
    return None


def all_same(exercise: Exercise, wanted: list[Outcome], given: list[Outcome]) -> bool:
    """Equal outcomes in every case."""
    pairs = enumerate(zip(wanted, given, strict=False))
    return len(wanted) == len(given) and all(_alike(exercise, w, g, place) for place, (w, g) in pairs)


def _alike(exercise: Exercise, wanted: Outcome, given: Outcome, place: int) -> bool:
    """Equal outcomes of one case.

    Two errors must also carry the same text, or any slip would be a named mistake. Not so where an error is asked for,
    nor where one of a type that the exercise asks for elsewhere comes too often: their text is the reader's own.
    """
    due = [outcome.error for outcome in right_outcomes(exercise)]
    own_words = due[place] is not None or type(given.error) in {type(error) for error in due if error is not None}
    return same(exercise, wanted, given) and (own_words or str(wanted.error) == str(given.error))


def same(exercise: Exercise, wanted: Outcome, given: Outcome) -> bool:
    """Equal results, or the same type of error, and the same arguments changed."""
    if wanted.status != given.status or wanted.changed != given.changed or wanted.status == "endless":
        return False
    if wanted.error is not None:
        return isinstance(given.error, type(wanted.error))
    if given.returned != "a value" and wanted.returned not in as_good_as(given.returned):
        return False
    return exercise.difference(wanted.value, given.value) is None


def _as_function(exercise: Exercise, answer: Any) -> Any:
    """In an exercise that asks for a value, the value itself stands for a function that returns it.

    A function of the reader's is a wrong value; only the exercise's own answer and wrong answers are called there.
    """
    own = [exercise.answer, *(fn for name in exercise.wrong_answers for fn in exercise.forms(name))]
    given = getattr(answer, "__wrapped__", answer)  # `answer(id)` wraps the exercise's answer
    return answer if not exercise.value or any(given is fn for fn in own) else lambda: answer


def _not_callable(exercise: Exercise, fn: Any) -> str | None:
    if callable(fn):
        return None
    return (
        f"This exercise checks the function itself, and got {kind(fn)} ({short(fn)}). "
        f'Pass its name without parentheses: check("{exercise.id}", {exercise.name}).'
    )


def _signature_problem(exercise: Exercise, fn: Callable) -> str | None:
    """Missing, renamed or surplus parameters, told before the call: the error inside would name the checker's line."""
    args, kwargs = exercise.bind(exercise.arguments(exercise.case_list[0]))
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as error:
        wanted = ", ".join(str(p).split(":")[0].split(" =")[0] for p in _parameters(exercise.answer))
        takes = ", ".join(p.name for p in _parameters(fn))
        return f"Your function takes ({takes}); it is called with ({wanted}): {error}. Keep the stub's parameters."
    except ValueError:  # a builtin without a signature: the call itself will tell
        pass
    return None


def _parameters(fn: Callable) -> list[inspect.Parameter]:
    return list(inspect.signature(fn).parameters.values())


def _right_lines(exercise: Exercise, given: list[Outcome]) -> Iterator[str]:
    if not exercise.value:
        yield f"Right in {len(given)} of {len(given)} cases."
    if exercise.lesson:
        yield exercise.lesson
    yield from _printed(given[0])


def _mistake_lines(exercise: Exercise, mistake: str | None) -> Iterator[str]:
    if mistake:
        yield f"Recognised: {mistake.replace('_', ' ')}. {exercise.message(mistake)}"


def _failure_lines(exercise: Exercise, case: tuple, right: Outcome, given: Outcome, limit: float) -> Iterator[str]:
    """The first failing case: what came instead of the right result, in the words that fit."""
    call = exercise.words_of(case)
    if given.status == "endless":
        yield f"{call} was still running after {limit:g} s and was ended. Does every loop in it end?"
    elif given.status == "not attempted":
        yield f"{call} reaches a NotImplementedError: this branch is still to be written."
    elif given.status == "raised":
        due = f"should raise {type(right.error).__name__}, and " if right.error is not None else ""
        yield f"{call} {due}raised {words_of_error(given.error)}"
        yield from [given.line] * bool(given.line)
    elif given.status == "unreadable":
        made = "what your function left behind" if given.returned == "None" else f"the result {short(given.value)}"
        yield f"{call}: {made} is not of the kind that the task asks for ({words_of_error(given.error)})."
    else:
        yield from _result_lines(exercise, call, right, given)
    yield from _printed(given)


def _result_lines(exercise: Exercise, call: str, right: Outcome, given: Outcome) -> Iterator[str]:
    if right.status == "raised":
        yield f"{call} should raise {type(right.error).__name__}, and returned {short(given.value)}"
        return
    if given.returned == "None" and right.returned != "None":
        yield f"{call} returned None. {_why_none(given)}"
        return
    if right.returned not in as_good_as(given.returned) and given.returned in _ODD_RETURNS:
        yield f"{call} returned {_ODD_RETURNS[given.returned]}"
        return
    if exercise.value:
        yield _value_line(call, right.value, given.value)
    elif words := exercise.difference(right.value, given.value):
        yield f"{call}: {words}"
    if given.changed != right.changed:
        names = ", ".join(given.changed)
        yield f"{call} changed its argument {names}: the caller still needs it as it was. Work on a copy."


def _value_line(name: str, right: Any, given: Any) -> str:
    """What was set, and its kind if that is the fault; the right value would be the whole answer."""
    wanted, got = kind(as_number(right)), kind(as_number(given))
    return f"{name} = {short(given)} is not right" + (f": {wanted} is asked for, not {got}." if got != wanted else ".")


def _why_none(given: Outcome) -> str:
    if given.printed:
        return "It prints its result; a caller cannot use what is only printed: return it."
    return "Is the `return` missing, or is there a path that ends without one?"


_ODD_RETURNS = {
    "a generator": "a generator, which can be read only once and has computed nothing yet: collect it with list(...).",
    "an iterator": "an iterator, which can be read only once: collect it with list(...).",
    "a coroutine": "a coroutine: write `def`, not `async def`.",
}


def _printed(given: Outcome) -> Iterator[str]:
    if given.printed.strip():
        yield f"Printed meanwhile: {textwrap.shorten(given.printed, 90, placeholder=' ...')}"
