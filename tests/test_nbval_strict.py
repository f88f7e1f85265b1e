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


def start(folder, **environment):
    """A pytest with the project's own options, started and not waited for."""
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
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process):
    """The verdicts of a pytest, {"file::cell": "PASSED"}, and all it printed."""
    with process:
        try:
            output, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    verdicts = re.findall(r"(\w+)\.ipynb::([\w-]+) (PASSED|FAILED|SKIPPED|ERROR)", output)
    return {f"{file}::{cell}": verdict for file, cell, verdict in verdicts}, output


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """{"compared": ..., "run": ...}: both at a time, because most of their seconds are waits for kernels that hang."""
    folder, other = tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("other")
    stored(other, "other", ("changed", "1 + 1", says("3")), ("raising", "1 / 0", []))
    merely_run = start(other, COURSE_NOTEBOOKS="run")
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
    return {"compared": end(start(folder)), "run": end(merely_run)}


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
def test_verdicts_cell_by_cell(results, notebook):
    verdicts, output = results["compared"]
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
def test_the_report_names_the_cell_and_the_reason(results, words):
    assert words in results["compared"][1]


def test_where_outputs_are_not_compared_cells_must_still_run(results):
    verdicts, output = results["run"]
    assert verdicts == {"other::changed": "PASSED", "other::raising": "FAILED"}, output
