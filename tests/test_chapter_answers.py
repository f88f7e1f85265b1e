"""The three states of a chapter's exercises: as shipped, with every answer put in, with a wrong answer put in.

Each named wrong answer's own message is tested in process (test_exercises.py); here the cells run in a kernel.
"""

import contextlib
import copy
import re
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tests.chapter_rules import exercise_cells, exercise_ids
from tests.notebook_tools import (
    NOTEBOOKS,
    NotebookError,
    code_cells,
    kernel,
    kernel_environment,
    read,
    run_cells,
    shipped,
    tags,
)

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


def begin_anew(folder: Path) -> NotebookNode:
    """A notebook that leaves its kernel without names, and with an empty place for work and progress."""
    places = {name: kernel_environment(folder)[name] for name in ("COURSE_WORK", "COURSE_PROGRESS")}
    source = f"get_ipython().reset(new_session=False)\nimport os\nos.environ.update({places!r})\ndel os"
    return new_notebook(cells=[new_code_cell(source, id="begin-anew")])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run the cells that exercises need (tagged setup, exercise or check); what the checks say.

    All in one kernel, because most of a fresh one's seconds are imports; each notebook begins without names in it.
    """
    with contextlib.ExitStack() as stack:
        kernels = []

        def run(nb: NotebookNode) -> dict[str, str]:
            client = kernels.pop() if kernels else stack.enter_context(kernel(NOTEBOOKS))
            run_cells(client, begin_anew(tmp_path_factory.mktemp("chapter")))
            run_cells(client, nb, only=exercise_cells)
            kernels.append(client)  # not where a cell failed: the next notebook gets a kernel of its own
            return verdicts(nb)

        yield run


def test_every_chapter_from_01_on_is_tested_with_its_answers():
    assert {path.stem for path in shipped() if int(path.name[:2]) > 0} <= {path.stem for path in WITH_EXERCISES}


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_shipped_chapter_is_unanswered(path):
    nb = read(path)
    assert verdicts(nb) == dict.fromkeys(exercise_ids(nb), "not attempted")


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_chapter_with_its_answers_is_right(path, run):
    from course_utils.exercises import answer

    nb = read(path)
    answered = put_in(nb, {name: answer(name).source for name in exercise_ids(nb)})
    assert run(answered) == dict.fromkeys(exercise_ids(nb), "right")


@pytest.mark.parametrize(
    "path", [path for path in WITH_EXERCISES if path.stem == WITH_A_WRONG_ANSWER], ids=lambda path: path.stem
)
def test_chapter_with_a_wrong_answer_runs_on(path, run):
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
def test_verdict_follows_the_answer_that_is_put_in(source, verdict, run):
    assert run(put_in(small_chapter(), {"x-1": source} if source else {})) == {"x-1": verdict}


def test_a_notebook_finds_nothing_of_the_one_before(run):
    def look(source):
        cell = new_code_cell(source, id="check-x-1", metadata={"tags": ["check"]})
        return run(new_notebook(cells=[cell]))["x-1"]

    seen = "'four' in globals() or os.path.exists(os.environ['COURSE_PROGRESS'])"
    leave = "import os\nfour = 4\nopen(os.environ['COURSE_PROGRESS'], 'w').close()\n"
    assert look(f"{leave}print('right' if {seen} else 'wrong')") == "right"
    assert look(f"import os\nprint('right' if {seen} else 'wrong')") == "wrong"


def test_a_cell_that_raises_is_told_and_the_next_notebook_runs(run):
    broken = put_in(small_chapter(), {"x-1": "1 / 0"})
    with pytest.raises(NotebookError, match="cell ex-x-1, line 1"):
        run(broken)
    assert run(small_chapter()) == {"x-1": "not attempted"}


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
