"""nbval, stricter and quicker to fail.

nbval runs each shipped notebook in a kernel and compares every output with the stored one.  This plugin adds:

- a kernel that died is noticed within a second (nbval waits for the whole cell timeout);
- a cell that hangs is ended and named, and the later cells of its notebook are skipped, not run in a broken kernel;
- a cell that was stored without having run fails (nbval would compare nothing and pass);
- `clear_output` and `interact` fail with the reason (their output cannot be compared);
- tests are named after cell ids: `notebooks/07_schedules.ipynb::race`;
- kernels get the environment of `notebook_tools.kernel_environment`.

`COURSE_NOTEBOOKS=run` runs the cells and compares nothing: for platforms and versions other than those that stored
the outputs.
"""

import os
import queue
import re
import tempfile
import time
from pathlib import Path
from unittest import mock

import nbval.plugin
import pytest
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError

from tests.notebook_tools import kernel_environment

UNCOMPARABLE = re.compile(r"\bclear_output\b|\binteract(?:ive|ive_output|_manual)?\b\s*\(|@interact\b")


class KernelDied(RuntimeError):
    """The kernel's process is gone."""


class WatchedKernel(RunningKernel):
    """nbval's kernel, whose life is looked at while an answer is awaited."""

    def await_reply(self, msg_id, timeout=None):
        """Wait for the answer to `msg_id`.

        timeout : seconds, or None for no limit
        raises  : queue.Empty after `timeout`; KernelDied within about a second
        """
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            try:
                reply = self.get_message("shell", timeout=min(1.0, max(0.0, end - time.monotonic())))
            except queue.Empty:
                if not self.is_alive():
                    raise KernelDied from None
                if time.monotonic() >= end:
                    raise
                continue
            if reply["parent_header"].get("msg_id") == msg_id:
                return


class StrictNotebook(IPyNbFile):
    """A notebook; `broken` says why its kernel is of no more use, "" while it is."""

    broken = ""

    def collect(self):
        for cell in super().collect():
            options = cell.options
            if os.environ.get("COURSE_NOTEBOOKS") == "run":
                options["check"] = False
            yield StrictCell.from_parent(
                self, name=cell.cell.get("id", cell.name), cell_num=cell.cell_num, cell=cell.cell, options=options
            )

    def setup(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with (
            mock.patch.dict(os.environ, kernel_environment(Path(self.folder.name))),
            mock.patch.object(nbval.plugin, "RunningKernel", WatchedKernel),
        ):
            super().setup()

    def teardown(self):
        super().teardown()
        if hasattr(self.kernel, "km"):  # a kernel that died: nbval leaves its channels open
            self.kernel.stop()
        self.folder.cleanup()


class StrictCell(IPyNbCell):
    """One code cell as a test."""

    def setup(self):
        if self.parent.broken:
            pytest.skip(self.parent.broken)
        self.output_timeout = min(self.output_timeout, self.config.option.nbval_cell_timeout)

    def runtest(self):
        source = self.cell.source
        if found := UNCOMPARABLE.search(source):
            self.fail(
                f"uses {found.group().strip('( ')}, whose output nbval cannot compare; show a figure, or use a live run"
            )
        if source.strip() and self.cell.execution_count is None:
            self.fail("is stored without having run, so nothing would be compared; run `python course.py run`")
        try:
            super().runtest()
        except KernelDied:
            self.parent.broken = f"the kernel died in cell {self.name}"
            self.fail("killed its kernel")
        finally:
            if self.parent.timed_out:
                self.parent.broken = f"cell {self.name} hung before this one"

    def fail(self, reason: str) -> None:
        """Fail with this cell's id and source."""
        self.raise_cell_error(f"cell {self.name} {reason}")

    def repr_failure(self, excinfo):
        """nbval's own report, with the cell's id before it."""
        text = super().repr_failure(excinfo)
        if isinstance(excinfo.value, NbCellError) and "Timeout of" in str(excinfo.value):
            return f"cell {self.name} hangs\n{text}"
        return f"cell {self.name}\n{text}"

    def reportinfo(self):
        return self.path, 0, self.name


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    """Take nbval's place for notebooks; what other plugins collect stays."""
    collected = yield
    return [
        StrictNotebook.from_parent(parent, path=file_path) if type(node) is IPyNbFile else node for node in collected
    ]
