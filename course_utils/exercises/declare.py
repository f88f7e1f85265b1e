"""How an exercise is written down: its answer, its cases, its hints and the wrong answers that people really give.

    @exercise("schedules-1", title="The factor of a warm-up", difficulty="easy", minutes=5,
              cases=[(0, 4), (3, 4), (9, 4)], expected=[0.25, 1.0, 1.0],
              hints=["Which factor should the first update use?", "Past the warm-up the factor stays 1: `min`."])
    def warmup_factor(step: int, warmup_steps: int) -> float:
        \"\"\"What the reader is to write; this docstring is the task and stands in the stub.\"\"\"
        return min(1.0, (step + 1) / warmup_steps)

    @warmup_factor.wrong
    def starts_at_zero(step, warmup_steps):
        \"\"\"The first update has factor 0, so it changes nothing. (What the mistake *does*: this is shown.)\"\"\"
        return min(1.0, step / warmup_steps)

The answer's results are the oracle; the stub, the `.source` of the answer and the messages are read from this code, so
nothing is written twice. It knows neither the reader nor the report.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_utils.exercises import compare
from course_utils.exercises.wording import described_call

PLACE = "# your code here"


@dataclass(eq=False)
class Exercise:
    """One exercise.

    id           : "schedules-1"; the part before the last dash is the chapter's stem
    difficulty   : "easy", "medium" or "hard"; `minutes` is what it takes at that level
    cases        : argument tuples in the order of the answer's parameters, smallest first; or a function for them
    expected     : results worked out by hand, one a case (None: not worked out; a type of error: it is raised);
                   tests hold the answer against them
    imports      : lines that stub and answer need at their top, "import math"
    arrange      : `arrange(*case)` makes fresh arguments for each call (models, optimizers, iterators)
    observe      : `observe(result, *arguments)` gives what is compared; by default the result
    probe        : in place of `observe`, `probe(fn, result, *arguments)`: it may call the reader's function again (with
                   another seed, for every rank), so that any sound answer is accepted and not one form of it
    describe     : `describe(*case)` words a case; by default the call with its arguments
    difference   : `difference(expected, got)` gives None or words; by default that of `compare`, with `rel` and `abs_`
    parts        : where the answer returns a tuple, the names of its places, for the messages: ("the epoch", ...)
    keep_arguments : True where changing an argument is a mistake (a copy protects the case in any event)
    seconds      : wall time for all cases together
    lesson       : one sentence that a right answer has earned
    value        : True where the reader sets a variable instead of writing a function
    """

    id: str
    title: str
    answer: Callable
    cases: Sequence[tuple] | Callable[[], Sequence[tuple]]
    hints: Sequence[str]
    difficulty: str
    minutes: int
    expected: Sequence[Any] | None = None
    imports: str = ""
    arrange: Callable | None = None
    observe: Callable | None = None
    probe: Callable | None = None
    describe: Callable | None = None
    difference: Callable[[Any, Any], str | None] | None = None
    parts: Sequence[str] = ()
    rel: float = compare.REL
    abs_: float = compare.ABS
    keep_arguments: bool = False
    seconds: float = 10.0
    lesson: str = ""
    value: bool = False
    wrong_answers: dict[str, Callable] = field(default_factory=dict)
    other_forms: dict[str, list[Callable]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tolerances = {"rel": self.rel, "abs_": self.abs_, "parts": self.parts}
        self.difference = self.difference or functools.partial(compare.difference, **tolerances)

    @property
    def name(self) -> str:
        """The function's or the variable's name in the reader's cell."""
        return self.answer.__name__

    def wrong(self, fn: Callable) -> Callable:
        """Decorator: a named wrong answer. Its name is the mistake's name, its docstring the message."""
        if fn.__name__ in self.wrong_answers:
            raise ValueError(f"{self.id} has two wrong answers named {fn.__name__}: rename one")
        self.wrong_answers[fn.__name__] = fn
        return fn

    def form_of(self, mistake: str) -> Callable[[Callable], Callable]:
        """Decorator: the same mistake written otherwise, with other results; it gets the same name and message."""
        if mistake not in self.wrong_answers:
            raise ValueError(f"{self.id} has no wrong answer named {mistake}: declare it before its other forms")
        return lambda fn: self.other_forms.setdefault(mistake, []).append(fn) or fn

    def forms(self, mistake: str) -> list[Callable]:
        return [self.wrong_answers[mistake], *self.other_forms.get(mistake, ())]

    def message(self, mistake: str) -> str:
        return " ".join((self.wrong_answers[mistake].__doc__ or "").split())

    @functools.cached_property
    def case_list(self) -> list[tuple]:
        return list(self.cases() if callable(self.cases) else self.cases)

    def arguments(self, case: tuple) -> tuple:
        """Fresh arguments: nothing that a call does to them reaches the next call."""
        return tuple(self.arrange(*copy.deepcopy(case))) if self.arrange else copy.deepcopy(case)

    def bind(self, arguments: tuple) -> tuple[tuple, dict]:
        """Positional and keyword arguments as the answer's signature asks for them."""
        parameters = inspect.signature(self.answer).parameters.values()
        named = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        pairs = list(zip((p.name for p in parameters), arguments, strict=False))
        return tuple(a for n, a in pairs if n not in named), {n: a for n, a in pairs if n in named}

    def words_of(self, case: tuple) -> str:
        if self.value:
            return self.name
        if self.describe:
            return self.describe(*case)
        args, kwargs = self.bind(self.arguments(case))
        return described_call(self.answer, self.name, args, kwargs)

    @functools.cached_property
    def source(self) -> str:
        """What is put into the cell: the answer without decorator, with the imports that it needs."""
        if self.value:
            return f"{self._task()}{self.name} = {self.answer()!r}"
        return self._with_imports(_source_lines(self.answer)[0])

    @functools.cached_property
    def stub(self) -> str:
        """What the chapter's cell holds: the signature, the task, and a place for the reader's code."""
        if self.value:
            return f"{self._task()}{self.name} = ...  {PLACE}"
        head = _source_lines(self.answer)[1]
        return self._with_imports(f"{head}\n    raise NotImplementedError  {PLACE}")

    def _task(self) -> str:
        return "".join(f"# {line}".rstrip() + "\n" for line in inspect.getdoc(self.answer).splitlines())

    def _with_imports(self, code: str) -> str:
        return f"{self.imports}\n\n\n{code}" if self.imports else code


def exercise(id: str, **declared) -> Callable[[Callable], Exercise]:
    """Decorator of the answer: see the module's example and `Exercise` for what can be declared."""
    return lambda answer: Exercise(id, answer=answer, **declared)


def value_exercise(id: str, **declared) -> Callable[[Callable], Exercise]:
    """Decorator of a function without parameters that returns the value the reader is to set: "predict, then run"."""
    return lambda answer: Exercise(id, answer=answer, cases=[()], value=True, **declared)


def _source_lines(fn: Callable) -> tuple[str, str]:
    """The whole definition without the exercise's own decorator, and its head: everything up to the end of the
    docstring. Decorators below it, as `@contextmanager`, belong to the answer."""
    text = textwrap.dedent(inspect.getsource(fn))
    definition = ast.parse(text).body[0]
    lines = text.rstrip().splitlines()
    below = definition.decorator_list[1:]
    start, head_end = (below[0] if below else definition).lineno - 1, definition.body[0].end_lineno
    return "\n".join(lines[start:]), "\n".join(lines[start:head_end])
