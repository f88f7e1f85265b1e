"""One JupyterLab and one browser for all tests of this folder: a real server, real kernels, Chromium without a window.

Where playwright or a Chromium is absent the tests skip and say so; with CI=true or COURSE_BROWSER=required they fail.
`python -m pytest tests/browser --update-screenshot` stores the pictures under `screenshots/`; else nothing is stored.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.browser.lab_page import LabPage, absent, find_chromium

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = '{"fetchNews": "false", "checkForUpdates": false, "doNotDisturbMode": true}'  # no question, no look-up
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
VIEWPORT = {"width": 1280, "height": 1100}
FOLDERS = ["JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "COURSE_WORK"]
FOLDERS += ["JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"]


def pytest_addoption(parser):
    parser.addoption("--update-screenshot", action="store_true", help="store the screenshots that the README shows")


@pytest.fixture(scope="package")
def browser():
    """A Chromium; closed when the folder's tests are over, since playwright's event loop would hinder other tests."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright is not installed: pip install 'playwright>=1.48'")
    with sync_playwright() as playwright:
        path = find_chromium(playwright.chromium.executable_path)
        if path is None:
            absent("no Chromium was found: apt-get install chromium, or python -m playwright install chromium")
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def _lay_out(folder):
    """A copy of the notebooks, with links to what they lead to: Lab never writes into the checkout."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for name in ("course_utils", "tests"):
        try:
            (folder / name).symlink_to(ROOT / name, target_is_directory=True)
        except OSError:  # Windows without the right to make links
            shutil.copytree(ROOT / name, folder / name)


def _environment(folder, token):
    """Nothing of the user's Jupyter is read or changed; the token is in no argument list."""
    own = {name: str(folder / name.lower()) for name in FOLDERS}
    settings = Path(own["JUPYTERLAB_SETTINGS_DIR"]) / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(SETTINGS)
    more = {
        "JUPYTER_TOKEN": token,
        "OMP_WAIT_POLICY": "PASSIVE",
        "COURSE_PROGRESS": str(folder / "progress.json"),
    }
    return os.environ | own | more | {"PYTHONPATH": str(ROOT)}


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(process, address, log, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            return urllib.request.urlopen(address, timeout=2).close()
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="package")
def lab_server(browser, tmp_path_factory):
    """(address, token, folder) of a JupyterLab whose root is a copy; not started where there is no browser."""
    folder = tmp_path_factory.mktemp("lab")
    root, log, token, port = folder / "root", folder / "lab.log", secrets.token_hex(16), _free_port()
    _lay_out(root)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += ["--port-retries=0", f"--ServerApp.root_dir={root}", "--expose-app-in-browser", "--allow-root"]
    base = f"http://127.0.0.1:{port}"
    with log.open("w") as file:
        process = subprocess.Popen(command, env=_environment(folder, token), stdout=file, stderr=file, cwd=root)
    try:
        _wait_for(process, f"{base}/api/status?token={token}", log)
        yield base, token, root
    finally:
        _end(process, f"{base}/api/shutdown?token={token}")


def _end(process, address):
    """Ask the server to end with its kernels; insist where it does not."""
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="POST"), timeout=5).close()
        process.wait(15)
    except (OSError, subprocess.TimeoutExpired):
        process.terminate()
        process.wait(15)


class SharedPage:
    """One page and one kernel for the notebooks of many tests: Lab's start and imports took most of their time."""

    def __init__(self, browser, server) -> None:
        self.browser, self.server, self.context = browser, server, None

    def open(self, notebook):
        if self.context is None:
            self.context, self.kernel = self.browser.new_context(viewport=VIEWPORT), None
            self.page = self.context.new_page()
        try:
            self.lab = LabPage(self.page, self.server, notebook, self.kernel)
            self.kernel = self.lab.kernel
            self.lab.run_code(f"import os; os.chdir({str((self.server[2] / notebook).parent)!r}); del os")
        except Exception:
            self.close()
            raise
        return self.lab

    def leave(self):
        """Make ready for the next test; where that does not work the next one gets another page and kernel."""
        try:
            self.lab.leave()
        except Exception:
            self.close()

    def close(self):
        if self.context is not None:
            self.context.close()
        self.context = None


@pytest.fixture(scope="package")
def shared_page(browser, lab_server):
    shared = SharedPage(browser, lab_server)
    yield shared
    shared.close()


@pytest.fixture
def lab_page(lab_server, browser, shared_page):
    """A function that opens a notebook of the copy; with `alone=True` in a page and with a kernel of its own."""
    contexts, shared = [], []

    def open_notebook(notebook, *, alone=False):
        if not alone:
            shared.append(shared_page.open(notebook))
            return shared[-1]
        contexts.append(browser.new_context(viewport=VIEWPORT))
        return LabPage(contexts[-1].new_page(), lab_server, notebook)

    yield open_notebook
    for context in contexts:
        context.close()
    if shared:
        shared_page.leave()


@pytest.fixture
def screenshot(request):
    """Store a picture of a locator under its name, when asked to."""
    wanted = request.config.getoption("--update-screenshot", default=False)

    def store(locator, name):
        if wanted:
            locator.screenshot(path=Path(__file__).parent / "screenshots" / name)

    return store
