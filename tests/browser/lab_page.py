"""A notebook open in JupyterLab in a browser: run cells, touch widgets, collect everything that went wrong.

It speaks to Lab's own commands and models (`window.jupyterapp`), so no menu and no pixel is clicked.
"""

import json
import os
import shutil
from pathlib import Path

import nbformat
import pytest

READY = """path => { const panel = window.jupyterapp?.shell.currentWidget;
    return panel?.context?.isReady && panel.context.path === path
        && panel.sessionContext?.session?.kernel?.status === 'idle'; }"""
OPEN = """async ([path, id]) => { await window.jupyterapp.restored;
    await window.jupyterapp.commands.execute('docmanager:open', id ? {path, kernel: {id}} : {path}); }"""
CLOSE = """() => [...window.jupyterapp.shell.widgets('main')].forEach(widget => widget.dispose())"""
KERNEL = """() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"""
LISTEN = """() => { window.trouble = [];
    window.jupyterapp.shell.currentWidget.sessionContext.iopubMessage.connect((_, message) => {
        const {ename, evalue, name, text} = message.content;
        if (message.header.msg_type === 'error') window.trouble.push(`${ename}: ${evalue}`);
        if (message.header.msg_type === 'stream' && name === 'stderr') window.trouble.push(`stderr: ${text}`); }); }"""
RUN_TAGGED = """async (tags) => { const notebook = window.jupyterapp.shell.currentWidget.content; let ran = 0;
    for (const [index, cell] of notebook.widgets.entries()) {
        const own = cell.model.getMetadata('tags') ?? [];
        if (cell.model.type !== 'code' || !tags.some(tag => own.includes(tag))) continue;
        notebook.deselectAll(); notebook.activeCellIndex = index; ran += 1;
        await window.jupyterapp.commands.execute('notebook:run-cell'); }
    return ran; }"""
RUN_CODE = """async (code) => { const session = window.jupyterapp.shell.currentWidget.sessionContext.session;
    const reply = await session.kernel.requestExecute({code, store_history: false}).done;
    return reply.content.status; }"""
SCROLL_TO_LIVE = """async () => { const notebook = window.jupyterapp.shell.currentWidget.content;
    const index = notebook.widgets.findIndex(cell => (cell.model.getMetadata('tags') ?? []).includes('live'));
    notebook.activeCellIndex = index; await notebook.scrollToItem(index, 'start'); }"""

# Leaves the kernel as a fresh one, but for what is imported.
LEAVE_NOTHING = """
import sys
if 'course_utils.labs.panel' in sys.modules:
    from course_utils.labs import background, panel
    background._end_current()
    for lab in [*panel._on_page.values()]:
        lab.close()
    panel._on_page.clear()
if 'ipywidgets' in sys.modules:
    sys.modules['ipywidgets'].Widget.close_all()
get_ipython().reset(new_session=False)
"""

# On a busy machine Lab's widget manager may ask the kernel before ipywidgets is imported there; it asks again.
EARLY_COMM = "stderr: No such comm"

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")


def absent(reason: str) -> None:
    """Skip the test; fail it where browser tests must run: CI=true or COURSE_BROWSER=required."""
    if os.environ.get("CI") == "true" or os.environ.get("COURSE_BROWSER") == "required":
        pytest.fail(f"the browser tests must run here, but {reason}")
    pytest.skip(reason)


def find_chromium(bundled: str) -> str | None:
    """The first browser of this family on the path, else playwright's own if it was downloaded."""
    found = next(filter(None, map(shutil.which, BROWSERS)), bundled)
    return found if Path(found).exists() else None


class LabPage:
    """One notebook in one browser page.

    page     : playwright's page; one that shows Lab already opens the notebook in it
    kernel   : id of a running kernel that the notebook takes; by default it starts its own
    outputs  : locator of the notebook's output areas; scope every search to it, source code has the same words
    """

    def __init__(self, page, server, notebook: str, kernel: str | None = None) -> None:
        self.base, token, self.root = server
        self.page, self.notebook, self._trouble = page, notebook, []
        self._listeners = {
            "console": lambda message: self._note(message.type == "error", f"console: {message.text}"),
            "pageerror": lambda error: self._note(True, f"page: {error}"),
            "request": lambda request: self._note(not self._is_own(request.url), f"outside: {request.url}"),
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)
        if not page.url.startswith(f"{self.base}/lab"):
            page.goto(f"{self.base}/lab?reset&token={token}")
            page.wait_for_function("() => window.jupyterapp", timeout=60_000)
        page.evaluate(OPEN, [notebook, kernel])
        self._wait_until_ready()
        page.evaluate(LISTEN)
        self.kernel = page.evaluate(KERNEL)
        self.outputs = page.locator(".jp-NotebookPanel:visible .jp-OutputArea")

    def _wait_until_ready(self, timeout: float = 60_000) -> None:
        self.page.wait_for_function(READY, arg=self.notebook, timeout=timeout)

    def leave(self) -> None:
        """Close the notebook; page and kernel are then as good as new."""
        self._wait_until_ready(timeout=5_000)
        self.run_code(LEAVE_NOTHING)
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)
        self.page.evaluate(CLOSE)

    def _note(self, bad: bool, words: str) -> None:
        if bad:
            self._trouble.append(words)

    def _is_own(self, url: str) -> bool:
        return url.startswith((self.base, self.base.replace("http", "ws"), "data:", "blob:"))

    def run_cells(self, *tags: str) -> int:
        """Run the code cells that carry one of `tags`, in order, and wait; returns how many."""
        count = self.page.evaluate(RUN_TAGGED, list(tags))
        self._wait_until_ready()
        self.scroll_to_live()
        return count

    def run_code(self, code: str) -> None:
        """Run code in the notebook's kernel, and wait; no cell is added, errors are among the `trouble`."""
        assert self.page.evaluate(RUN_CODE, code) == "ok"

    def scroll_to_live(self) -> None:
        """Lab draws only the cells in view."""
        self.page.evaluate(SCROLL_TO_LIVE)

    def trouble(self) -> list[str]:
        """All that went wrong: errors of cells and callbacks, stderr, the console, requests to other hosts."""
        shown = [f"shown: {words}" for words in self.outputs.locator(".live-error").all_inner_texts()]
        found = [*self._trouble, *self.page.evaluate("() => window.trouble"), *shown]
        return [words for words in found if not words.startswith(EARLY_COMM)]

    def button(self, words: str):
        return self.outputs.get_by_role("button", name=words)

    def move_slider(self, label: str, key: str, times: int) -> None:
        """By its keys, "ArrowRight" or "ArrowLeft"."""
        self.outputs.locator(".widget-slider", has_text=label).locator(".noUi-handle").focus()
        for _ in range(times):
            self.page.keyboard.press(key)

    def save(self) -> dict:
        """Save as Ctrl-S does; returns the notebook as it is on the disk."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return json.loads((self.root / self.notebook).read_text("utf-8"))

    def copy_saved(self, name: str) -> str:
        """Copy the saved notebook, so that it can be opened without the kernel that made its widgets."""
        shutil.copy(self.root / self.notebook, self.root / name)
        return name


def write_notebook(root, name: str, cells: dict[str, str]) -> str:
    """A small notebook from tag -> source; returns its path relative to `root`."""
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for tag, source in cells.items():
        notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": [tag]}))
    nbformat.write(notebook, root / name)
    return name
