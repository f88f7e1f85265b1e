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
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        f"--rootdir={folder}",
        "-p",
        "tests.nbval_strict",
        "-p",
        "no:cacheprovider",
        "--nbval-cell-timeout=1.5",
        "-v",
        "--color=no",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=120)
    verdicts = re.findall(r"(\w+)\.ipynb::([\w-]+) (PASSED|FAILED|SKIPPED|ERROR)", done.stdout)
    return {f"{file}::{cell}": verdict for file, cell, verdict in verdicts}, done.stdout + done.stderr


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebooks")
    compared = stored(
        folder,
        "compared",
        ("right", "1 + 1", says("2")),
        ("place", LOOK, says(repr(["progress.json", folder.name]))),
        ("changed", "1 + 1", says("3")),
        ("missing", "1 + 1", []),
        ("raising", "1 / 0", []),
        ("wipe", "from IPython.display import clear_output", []),
        ("unrun", "1", []),
        ("after-all", "1", says("1")),
    )
    next(cell for cell in compared.cells if cell.id == "unrun").execution_count = None
    write(compared, folder / "compared.ipynb")
    stored(folder, "dying", ("killer", "import os; os._exit(1)", []), ("after", "1", says("1")))
    stored(folder, "hanging", ("sleeper", "import time; time.sleep(60)", []), ("after", "1", says("1")))
    stored(folder, "stubborn", ("loop", IGNORES_INTERRUPTS, []), ("after", "1", says("1")))
    return run(folder)


VERDICTS = {
    "compared": {
        "right": "PASSED",
        "place": "PASSED",
        "changed": "FAILED",
        "missing": "FAILED",
        "raising": "FAILED",
        "wipe": "FAILED",
        "unrun": "FAILED",
        "after-all": "PASSED",
    },
    "dying": {"killer": "FAILED", "after": "SKIPPED"},
    "hanging": {"sleeper": "FAILED", "after": "SKIPPED"},
    "stubborn": {"loop": "FAILED", "after": "SKIPPED"},
}


@pytest.mark.parametrize("notebook", VERDICTS)
def test_verdicts_cell_by_cell(result, notebook):
    verdicts, output = result
    found = {key.partition("::")[2]: verdict for key, verdict in verdicts.items() if key.startswith(f"{notebook}::")}
    assert found == VERDICTS[notebook], output


@pytest.mark.parametrize(
    "words",
    [
        "cell killer killed its kernel",
        "cell sleeper hangs",
        "cell loop hangs",
        "cell unrun is stored without having run",
        "cell wipe uses clear_output",
        "ZeroDivisionError",
    ],
)
def test_the_report_names_the_cell_and_the_reason(result, words):
    assert words in result[1]


def test_where_outputs_are_not_compared_cells_must_still_run(tmp_path):
    stored(tmp_path, "other", ("changed", "1 + 1", says("3")), ("raising", "1 / 0", []))
    verdicts, output = run(tmp_path, COURSE_NOTEBOOKS="run")
    assert verdicts == {"other::changed": "PASSED", "other::raising": "FAILED"}, output
