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


@pytest.fixture
def lab_page(lab_server, browser):
    """A function that opens a notebook of the copy in a page of its own; all pages are closed after the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 1100})
    yield lambda notebook: LabPage(context.new_page(), lab_server, notebook)
    context.close()


@pytest.fixture
def screenshot(request):
    """Store a picture of a locator under its name, when asked to."""
    wanted = request.config.getoption("--update-screenshot", default=False)

    def store(locator, name):
        if wanted:
            locator.screenshot(path=Path(__file__).parent / "screenshots" / name)

    return store
