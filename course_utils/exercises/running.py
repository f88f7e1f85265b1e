"""Call an answer on one case and say what came of it: a result, an error, nothing attempted, no end.

It judges nothing. What the call could disturb is restored, and what it prints is kept.
"""

from __future__ import annotations

import copy
import dis
import inspect
import linecache
import sysconfig
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.exercises.compare import difference
from course_utils.exercises.declare import Exercise
from course_utils.exercises.isolation import isolated
from course_utils.exercises.limit import StillRunning, call_with_limit
from course_utils.exercises.wording import kind


@dataclass(frozen=True)
class Outcome:
    """What one call came to.

    status   : "returned", "raised", "unreadable" (`observe` can make nothing of it), "endless" or "not attempted"
    value    : what is compared, or the plain result where that failed; `returned` is the kind of the plain result
    error    : what was raised; `line` says where in the reader's own code
    changed  : names of the arguments that the call changed, where that is forbidden
    """

    status: str
    value: Any = None
    returned: str = ""
    error: BaseException | None = None
    line: str = ""
    printed: str = ""
    changed: tuple[str, ...] = ()


ENDS = ("endless", "not attempted")  # after an outcome like this going on cannot help


def run_all(exercise: Exercise, fn: Callable, *, seconds: float, like: list[Outcome] | None = None) -> list[Outcome]:
    """One outcome a case; ends early where going on cannot help.

    seconds : wall time for all cases together
    like    : the answer's outcomes; a result of a kind that `observe` was not made for is then not given to it
    """
    outcomes: list[Outcome] = []
    deadline = time.monotonic() + seconds
    for number, case in enumerate(exercise.case_list):
        left = max(deadline - time.monotonic(), 0.01)
        outcomes.append(run_case(exercise, fn, case, left, like[number].returned if like else None))
        if outcomes[-1].status in ENDS:
            break
    return outcomes


def is_empty(fn: Callable) -> bool:
    """True for a body of `pass`, `...` or a docstring alone: code that does nothing but return None."""
    if not inspect.isfunction(fn) or inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        return False
    code = [i for i in dis.get_instructions(fn) if i.opname not in ("RESUME", "NOP", "CACHE")]
    return len(code) <= 2 and code[-1].opname.startswith("RETURN") and code[0].argval is None


def run_case(exercise: Exercise, fn: Callable, case: tuple, seconds: float, expected_kind: str | None) -> Outcome:
    """What one call comes to; `expected_kind` is the kind of the answer's result, as in `Outcome.returned`."""
    arguments = exercise.arguments(case)
    before = copy.deepcopy(arguments) if exercise.keep_arguments else None
    stage: dict[str, Any] = {}
    with isolated() as printed:
        try:
            value = call_with_limit(_call, exercise, fn, arguments, stage, expected_kind, seconds=seconds)
            found = {"status": "returned", "value": value}
        except StillRunning:
            found = {"status": "endless"}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a reader's `exit()` must not end the kernel
            found = _failure(exercise, fn, error, stage)
    changed = _changed(exercise, before, arguments) if before is not None else ()
    return Outcome(**found, returned=stage.get("kind", ""), printed=printed.getvalue(), changed=changed)


def _call(exercise: Exercise, fn: Callable, arguments: tuple, stage: dict, expected_kind: str | None) -> Any:
    args, kwargs = exercise.bind(arguments)
    result = fn(*args, **kwargs)
    stage["kind"], stage["result"] = _rough_kind(result), result
    if inspect.iscoroutine(result):
        result.close()
    surprising = stage["kind"] != "a value" and expected_kind not in (None, *as_good_as(stage["kind"]))
    if surprising:
        return result
    if exercise.probe:
        return exercise.probe(fn, result, *arguments)
    return exercise.observe(result, *arguments) if exercise.observe else result


def _rough_kind(result: Any) -> str:
    words = kind(result)
    return words if words in ("None", "a generator", "a coroutine", "an iterator") else "a value"


def as_good_as(rough_kind: str) -> tuple[str, ...]:
    """The rough kinds that a result of this one may stand for: an iterator does all that a generator is asked for."""
    return (rough_kind, "a generator") if rough_kind == "an iterator" else (rough_kind,)


def _changed(exercise: Exercise, before: tuple, after: tuple) -> tuple[str, ...]:
    names = inspect.signature(exercise.answer).parameters
    return tuple(n for n, b, a in zip(names, before, after, strict=False) if difference(b, a, rel=0, abs_=0))


def _failure(exercise: Exercise, fn: Callable, error: BaseException, stage: dict) -> dict:
    observing = [getattr(looks, "__code__", None) for looks in (exercise.observe, exercise.probe) if looks]
    walk = [f for f in traceback.walk_tb(error.__traceback__) if f[0].f_code not in observing]
    frames = [f for f in walk if _is_own(f[0].f_code.co_filename, fn)]
    if isinstance(error, NotImplementedError) and _raised_in(error, frames):
        return {"status": "not attempted", "error": error}
    status = "raised" if frames or "kind" not in stage else "unreadable"
    return {"status": status, "error": error, "line": _words_of_line(frames), "value": stage.get("result")}


def _raised_in(error: BaseException, own_frames: list) -> bool:
    """True where a `raise` of the reader's raised it: torch raises NotImplementedError too, for other reasons, and from
    C, so that the innermost frame is the reader's."""
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    by_raise = last.tb_frame.f_code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return by_raise and any(frame is last.tb_frame for frame, _ in own_frames)


def _is_own(filename: str, fn: Callable) -> bool:
    """The reader's cells: the file of the function itself, and whatever is neither a library's nor ours."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is not None and filename == code.co_filename:
        return True
    libraries = (*_LIBRARIES, str(Path(__file__).parents[1]))
    return not filename.startswith((*libraries, "<frozen", "<string>"))


_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _words_of_line(frames: list) -> str:
    """`line 3 of your code: return lr / 0`; the number counts from the top of the cell."""
    if not frames:
        return ""
    frame, number = frames[-1]
    text = linecache.getline(frame.f_code.co_filename, number, frame.f_globals).strip()
    return f"line {number} of your code: {text}" if text else f"line {number} of your code"
