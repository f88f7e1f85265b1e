"""nbval as this course runs it: small notebooks with one defect each, given to a pytest of their own."""
import copy
import os
import re
import subprocess
import sys

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.notebook_tools import METADATA, ROOT, write

IGNORES_INTERRUPTS = "import time\nwhile True:\n    try: time.sleep(60)\n    except KeyboardInterrupt: pass"
LOOK = "import os\n[os.path.basename(os.environ['COURSE_PROGRESS']), os.path.basename(os.getcwd())]"


def says(text):
    return [new_output("execute_result", data={"text/plain": text}, execution_count=1)]


def stored(folder, name, *cells):
    """Write a notebook of cells (id, source, outputs), as if it had run."""
    made = [new_code_cell(source, id=key, outputs=outputs, execution_count=1) for key, source, outputs in cells]
    nb = new_notebook(cells=made, metadata=copy.deepcopy(METADATA))
    write(nb, folder / f"{name}.ipynb")
    return nb


def run(folder, **environment):
    """The verdicts of a pytest with the project's own options: {"file::cell": "PASSED"}, and all it printed."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}", "-p", "tests.nbval_strict",
               "-p", "no:cacheprovider", "--nbval-cell-timeout=2", "-v", "--color=no", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    verdicts = re.findall(r"(\w+)\.ipynb::([\w-]+) (PASSED|FAILED|SKIPPED|ERROR)", done.stdout)
    return {f"{file}::{cell}": verdict for file, cell, verdict in verdicts}, done.stdout + done.stderr


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebooks")
    stored(folder, "right", ("number", "1 + 1", says("2")), ("place", LOOK, says(repr(["progress.json", folder.name]))))
    stored(folder, "changed", ("number", "1 + 1", says("3")), ("next", "1", says("1")))
    stored(folder, "missing", ("number", "1 + 1", []))
    stored(folder, "raising", ("number", "1 / 0", []))
    stored(folder, "dying", ("first", "1", says("1")), ("killer", "import os; os._exit(1)", []), ("after", "1", says("1")))
    stored(folder, "hanging", ("sleeper", "import time; time.sleep(60)", []), ("after", "1", says("1")))
    stored(folder, "stubborn", ("loop", IGNORES_INTERRUPTS, []), ("after", "1", says("1")))
    stored(folder, "clearing", ("wipe", "from IPython.display import clear_output", []))
    unrun = stored(folder, "unrun", ("number", "1", []))
    unrun.cells[0].execution_count = None
    write(unrun, folder / "unrun.ipynb")
    return run(folder)


@pytest.mark.parametrize("cell, verdict", [
    ("right::number", "PASSED"), ("right::place", "PASSED"),
    ("changed::number", "FAILED"), ("changed::next", "PASSED"), ("missing::number", "FAILED"), ("raising::number", "FAILED"),
    ("dying::first", "PASSED"), ("dying::killer", "FAILED"), ("dying::after", "SKIPPED"),
    ("hanging::sleeper", "FAILED"), ("hanging::after", "SKIPPED"), ("stubborn::loop", "FAILED"), ("stubborn::after", "SKIPPED"),
    ("clearing::wipe", "FAILED"), ("unrun::number", "FAILED"),
])
def test_verdict(result, cell, verdict):
    verdicts, output = result
    assert verdicts[cell] == verdict, output


@pytest.mark.parametrize("words", [
    "cell killer killed its kernel", "cell sleeper hangs", "cell loop hangs", "cell number is stored without having run",
    "cell wipe uses clear_output", "ZeroDivisionError",
])
def test_the_report_names_the_cell_and_the_reason(result, words):
    assert words in result[1]


def test_where_outputs_are_not_compared_cells_must_still_run(tmp_path):
    stored(tmp_path, "changed", ("number", "1 + 1", says("3")))
    stored(tmp_path, "raising", ("number", "1 / 0", []))
    verdicts, output = run(tmp_path, COURSE_NOTEBOOKS="run")
    assert verdicts == {"changed::number": "PASSED", "raising::number": "FAILED"}, output
