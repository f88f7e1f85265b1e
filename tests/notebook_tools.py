"""Run the shipped notebooks and store what they printed.

The notebook is the source; nothing generates it. This file knows how to execute one in a fresh kernel, how to bring
its outputs into one form (two executions give equal bytes), and how to store it. What a notebook must look like is in
`notebook_rules.py` and `chapter_rules.py`; comparing outputs is nbval's work.

Command line (used by `course.py run`): `python tests/notebook_tools.py 00 07`, or no number for all.
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_notebook

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
CELL_TIMEOUT = 120.0  # seconds; a new machine's first import of torch compiles its files and takes long
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
CELL_METADATA_OF_A_RUN = ("execution", "ExecuteTime", "collapsed", "scrolled", "trusted")


class NotebookError(RuntimeError):
    """A cell of a notebook did not run to its end; the message names the cell."""


def shipped(folder: Path = NOTEBOOKS) -> list[Path]:
    """The notebooks `NN_stem.ipynb` of `folder`, in order.

    raises : FileNotFoundError if there is none, so that no loop over notebooks is empty without a word
    """
    paths = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise FileNotFoundError(f"needs at least one notebook NN_stem.ipynb in {folder}, found none")
    return paths


def read(path: Path) -> NotebookNode:
    """Read a notebook as nbformat 4, cell ids as they are stored."""
    return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)


def code_cells(nb: NotebookNode) -> list[NotebookNode]:
    """The code cells that hold something, in order."""
    return [cell for cell in nb.cells if cell.cell_type == "code" and cell.source.strip()]


def tags(cell: NotebookNode) -> list[str]:
    """The cell's tags, an empty list if it has none."""
    return list(cell.metadata.get("tags", []))


def texts(cell: NotebookNode) -> list[str]:
    """What the cell's outputs say in words: streams and every text form (text/plain, text/html), in order."""
    found = []
    for output in cell.get("outputs", []):
        found += [output.text] if "text" in output else []
        found += [str(value) for mime, value in output.get("data", {}).items() if mime.startswith("text/")]
    return found


def kernel_environment(folder: Path) -> dict[str, str]:
    """Environment of a kernel that checks the course: it writes into `folder`, never beside the reader's work."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path),
        "COURSE_WORK": str(folder / "work"),
        "COURSE_PROGRESS": str(folder / "progress.json"),
        "IPYTHONDIR": str(folder / "ipython"),  # no start-up files of the user's
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def _client(nb: NotebookNode, cell_timeout: float) -> NotebookClient:
    """A client for the kernel of this very Python; a user's own kernelspec named python3 is not asked."""
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    return NotebookClient(
        nb,
        km=manager,
        timeout=cell_timeout,
        shutdown_kernel="immediate",
        extra_arguments=["--log-level=ERROR"],  # its warning about TCP would stand before each result
        store_widget_state=False,
        record_timing=False,
    )


def _source_line(cell: NotebookNode, traceback: str) -> str:
    """The line of the cell in which the error left it: "line 2: `next(loader)`", or "" if the traceback has none."""
    numbers = re.findall(r"Cell In\[\d+\], line (\d+)", re.sub(r"\x1b\[[\d;]*m", "", traceback))
    if not numbers:
        return ""
    number = int(numbers[-1])
    return f", line {number}: `{cell.source.splitlines()[number - 1].strip()}`"


def _run_cell(client: NotebookClient, index: int, cell: NotebookNode, count: int) -> None:
    """Run one cell; every way in which it can fail becomes a NotebookError that names it."""
    try:
        client.execute_cell(cell, index, execution_count=count)
    except CellExecutionError as error:
        where = _source_line(cell, error.traceback)
        raise NotebookError(f"cell {cell.id}{where} raised {error.ename}: {error.evalue}") from None
    except CellTimeoutError:
        raise NotebookError(f"cell {cell.id} hangs: not done after {client.timeout:g} s") from None
    except DeadKernelError:
        raise NotebookError(f"the kernel died while cell {cell.id} ran") from None


@contextlib.contextmanager
def kernel(
    cwd: Path, *, cell_timeout: float = CELL_TIMEOUT, env: Mapping[str, str] | None = None
) -> Iterator[NotebookClient]:
    """A fresh kernel for `run_cells`; it ends with the block, and what it wrote in `kernel_environment` goes with it.

    cwd          : its working folder (for a shipped notebook: notebooks/)
    cell_timeout : seconds a cell may take
    env          : additions to its environment
    """
    client = _client(new_notebook(), cell_timeout)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = kernel_environment(Path(folder)) | dict(env or {})
        with client.setup_kernel(cwd=str(cwd), env=environment, cleanup_kc=True):
            yield client


def run_cells(
    client: NotebookClient, nb: NotebookNode, *, only: Callable[[NotebookNode], bool] | None = None
) -> dict[str, float]:
    """Run the code cells of `nb` in a kernel, in place, from top to bottom.

    only    : which code cells run; the others lose their outputs
    returns : seconds per cell id, in order
    raises  : NotebookError that names the cell which raised, hung or killed its kernel
    """
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    runnable = {cell.id for cell in code_cells(nb) if only is None or only(cell)}
    cells = [(index, cell) for index, cell in enumerate(nb.cells) if cell.id in runnable]
    client.nb, seconds = nb, {}
    client.reset_execution_trackers()
    for count, (index, cell) in enumerate(cells, start=1):
        start = time.perf_counter()
        _run_cell(client, index, cell, count)
        seconds[cell.id] = time.perf_counter() - start
    return seconds


def execute(
    nb: NotebookNode,
    cwd: Path,
    *,
    cell_timeout: float = CELL_TIMEOUT,
    only: Callable[[NotebookNode], bool] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """`run_cells` in a `kernel` of its own: seconds per cell id."""
    with kernel(cwd, cell_timeout=cell_timeout, env=env) as client:
        return run_cells(client, nb, only=only)


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join neighbouring pieces of one stream: where a stream is cut depends on the machine's load."""
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def normalise(nb: NotebookNode) -> NotebookNode:
    """Bring `nb` into the form that is stored, in place, and return it.

    Goes: notebook metadata but kernel and language, what a run left in cell metadata, widget views (their ids are
    random; the words beside them stay), cuts inside a stream. Paths of the machine stay: they are defects, and a test
    finds them.
    """
    nb.metadata = nbformat.from_dict(METADATA)
    nb.nbformat, nb.nbformat_minor = 4, 5
    for cell in nb.cells:
        for key in CELL_METADATA_OF_A_RUN:
            cell.metadata.pop(key, None)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if any(mime.startswith("text/") for mime in data):
                data.pop(WIDGET_VIEW, None)
        if cell.cell_type == "code":
            cell.outputs = _merge_streams(cell.outputs)
    return nb


def write(nb: NotebookNode, path: Path) -> None:
    """Write `nb` to `path` whole or not at all."""
    nbformat.validate(nb)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8", newline="\n"
    ) as file:
        file.write(nbformat.writes(nb).rstrip("\n") + "\n")
    try:
        mode = path.stat().st_mode if path.exists() else 0o644
        os.chmod(file.name, mode & 0o777)  # a temporary file is readable by its owner alone
        os.replace(file.name, path)
    except OSError:
        os.unlink(file.name)
        raise


def store(path: Path, *, cell_timeout: float = CELL_TIMEOUT) -> dict[str, float]:
    """Execute the notebook at `path` and write it back if every cell succeeded; else the file stays as it was.

    returns : seconds per cell id
    raises  : NotebookError
    """
    nb = read(path)
    seconds = execute(nb, path.parent, cell_timeout=cell_timeout)
    write(normalise(nb), path)
    return seconds


def report(path: Path, seconds: Mapping[str, float]) -> str:
    """One line: the chapter's seconds and its three slowest cells."""
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:3]
    cells = ", ".join(f"{name} {seconds[name]:.1f} s" for name in slowest)
    return f"{path.stem:<24} {sum(seconds.values()):6.1f} s   slowest: {cells}"


def chosen(numbers: list[str], paths: list[Path]) -> list[Path]:
    """The notebooks with these numbers ("07" or "7"), all if none is given.

    raises : ValueError for a number that no notebook has
    """
    by_number = {path.name[:2]: path for path in paths}
    unknown = [number for number in numbers if number.zfill(2) not in by_number]
    if unknown:
        raise ValueError(f"needs numbers of shipped chapters ({', '.join(by_number)}), got {', '.join(unknown)}")
    wanted = {number.zfill(2): None for number in numbers}  # each once, in the order given
    return [by_number[number] for number in wanted] or paths


def main(arguments: list[str] | None = None) -> int:
    """Execute and store chapters; 0 if all were stored, 1 if a cell failed, 2 for a wrong number."""
    parser = argparse.ArgumentParser(description="Execute shipped chapters in a fresh kernel and store their outputs.")
    parser.add_argument("numbers", nargs="*", help="chapter numbers, such as 00 07; none for all")
    parser.add_argument("--cell-timeout", type=float, default=CELL_TIMEOUT, help="seconds a cell may take")
    options = parser.parse_args(arguments)
    try:
        paths = chosen(options.numbers, shipped())
    except (ValueError, FileNotFoundError) as error:
        parser.error(str(error))
    failed = 0
    for path in paths:
        try:
            print(report(path, store(path, cell_timeout=options.cell_timeout)), flush=True)
        except NotebookError as error:
            failed = 1
            print(f"{path.stem:<24} not stored: {error}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
