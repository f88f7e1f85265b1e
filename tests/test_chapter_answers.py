"""The three states of a chapter's exercises: as shipped, with every answer put in, with a wrong answer put in.

Each named wrong answer's own message is tested in process (test_exercises.py); here the cells run in a kernel.
"""

import copy
import re

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tests.chapter_rules import exercise_cells, exercise_ids
from tests.notebook_tools import NOTEBOOKS, code_cells, execute, read, shipped, tags

WITH_EXERCISES = [path for path in shipped() if exercise_ids(read(path))]
WITH_A_WRONG_ANSWER = "07_schedules"
STATUS = re.compile(r"\W*(not attempted|right|wrong|raised)\b")  # a report begins with a sign and its status


def verdicts(nb: NotebookNode) -> dict[str, str]:
    """What each check cell says: {"schedules-1": "right"}; the status its text begins with, "" without one."""
    found = {}
    for cell in code_cells(nb):
        if cell.id.startswith("check-"):
            text = "".join(output.get("data", {}).get("text/plain", output.get("text", "")) for output in cell.outputs)
            status = STATUS.match(text)
            found[cell.id.removeprefix("check-")] = status[1] if status else ""
    return found


def put_in(nb: NotebookNode, sources: dict[str, str]) -> NotebookNode:
    """A copy of `nb` in which the stub of each exercise of `sources` is replaced by the source.

    raises : KeyError for an exercise that has no stub
    """
    answered = copy.deepcopy(nb)
    stubs = {cell.id.removeprefix("ex-"): cell for cell in code_cells(answered) if "exercise" in tags(cell)}
    for name, source in sources.items():
        stubs[name].source = source
    return answered


def wrong_source(name: str, stub: str) -> str:
    """Source that binds the stub's function, or variable, to the first named wrong answer of exercise `name`."""
    bound = re.search(r"^(?:(?:def|class) (\w+)|(\w+) = )", stub, re.MULTILINE)
    mistake = f"next(iter(wrong_answers({name!r}).values()))"
    value = mistake if bound[1] else f"{mistake}()"
    return f"from course_utils.exercises import wrong_answers\n\n{bound[1] or bound[2]} = {value}"


def run(nb: NotebookNode) -> dict[str, str]:
    """Run the cells that exercises need (tagged setup, exercise or check) in a fresh kernel; what the checks say."""
    execute(nb, NOTEBOOKS, only=exercise_cells)
    return verdicts(nb)


def test_every_chapter_from_01_on_is_tested_with_its_answers():
    assert {path.stem for path in shipped() if int(path.name[:2]) > 0} <= {path.stem for path in WITH_EXERCISES}


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_shipped_chapter_is_unanswered(path):
    nb = read(path)
    assert verdicts(nb) == dict.fromkeys(exercise_ids(nb), "not attempted")


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_chapter_with_its_answers_is_right(path):
    from course_utils.exercises import answer

    nb = read(path)
    answered = put_in(nb, {name: answer(name).source for name in exercise_ids(nb)})
    assert run(answered) == dict.fromkeys(exercise_ids(nb), "right")


@pytest.mark.parametrize(
    "path", [path for path in WITH_EXERCISES if path.stem == WITH_A_WRONG_ANSWER], ids=lambda path: path.stem
)
def test_chapter_with_a_wrong_answer_runs_on(path):
    nb = read(path)
    first, *others = exercise_ids(nb)
    stub = next(cell.source for cell in nb.cells if cell.id == f"ex-{first}")
    assert run(put_in(nb, {first: wrong_source(first, stub)})) == {first: "wrong"} | dict.fromkeys(
        others, "not attempted"
    )


# --- the machinery, on a chapter without torch ---


def small_chapter():
    """A chapter whose check says "right" when `double(2)` is 4; its cell without a tag must not run."""
    check = (
        "try: answer = double(2)\nexcept NotImplementedError: answer = None\n"
        "print('not attempted' if answer is None else 'right' if answer == four else 'wrong, not right')"
    )
    return new_notebook(
        cells=[
            new_code_cell("four = 4", id="set-up", metadata={"tags": ["setup"]}),
            new_code_cell("raise SystemError('not needed by exercises')", id="long-training"),
            new_code_cell(
                "def double(x):\n    raise NotImplementedError", id="ex-x-1", metadata={"tags": ["exercise"]}
            ),
            new_code_cell(check, id="check-x-1", metadata={"tags": ["check"]}),
        ]
    )


@pytest.mark.parametrize(
    "source, verdict",
    [
        (None, "not attempted"),
        ("def double(x):\n    return 2 * x", "right"),
        ("def double(x):\n    return 3 * x", "wrong"),
    ],
)
def test_verdict_follows_the_answer_that_is_put_in(source, verdict):
    assert run(put_in(small_chapter(), {"x-1": source} if source else {})) == {"x-1": verdict}


def test_an_answer_without_a_stub_is_an_error():
    with pytest.raises(KeyError, match="x-2"):
        put_in(small_chapter(), {"x-2": "pass"})


def test_a_check_that_says_nothing_has_no_verdict():
    assert verdicts(small_chapter()) == {"x-1": ""}


def test_a_wrong_answer_takes_the_stubs_name():
    source = wrong_source("x-1", "from math import pi\n\ndef double(x):\n    raise NotImplementedError")
    assert "double = next(iter(wrong_answers('x-1').values()))" in source


def test_a_wrong_answer_to_a_value_exercise_is_a_value():
    source = wrong_source("x-1", "# Which lr?\n# lr = 1 at first.\nlr = ...  # your code here")
    assert source.endswith("\nlr = next(iter(wrong_answers('x-1').values()))()")
