"""What every test gets: one torch thread, folders of its own, a tiny model and batch from a fixed seed."""

import gc
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

_FOLDER = tempfile.TemporaryDirectory(prefix="course-tests-", ignore_cleanup_errors=True)
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # before torch is imported: threads that spin slow a busy machine
os.environ["OMP_NUM_THREADS"] = "1"  # kernels and other child processes too
os.environ["COURSE_WORK"] = os.path.join(_FOLDER.name, "work")
os.environ["COURSE_PROGRESS"] = os.path.join(_FOLDER.name, "progress.json")

if "forkserver" in multiprocessing.get_all_start_methods():
    multiprocessing.set_forkserver_preload(["torch"])  # each worker would import it: two seconds

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: children would ignore Ctrl-C too
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402


def pytest_collection_finish():
    """What is there before the first test stays: 600,000 objects that no later `gc.collect()` need look at."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread_and_a_fixed_seed():
    """Each test starts from the same generators, whatever ran before it.

    `torch.manual_seed` would leave a note of its caller for a GPU that may wake up later: a millisecond a test.
    """
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(autouse=True)
def progress_file(monkeypatch):
    """No test writes to a reader's file, nor to that of another test."""
    path = Path(tempfile.mkdtemp(dir=_FOLDER.name)) / "progress.json"
    monkeypatch.setenv("COURSE_PROGRESS", str(path))
    return path


def make_tiny_model(*, dropout: float = 0.0) -> nn.Module:
    """4 inputs, 3 classes, 35 parameters; the same weights at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 3))


@pytest.fixture
def tiny_model():
    return make_tiny_model()


@pytest.fixture
def tiny_batch():
    """inputs float32 (10, 4), targets int64 (10,) in 0 .. 2; the same at every call."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(10, 4, generator=generator), torch.randint(3, (10,), generator=generator)


@pytest.fixture(scope="session")
def fresh_python():
    """`fresh_python.run(code)`: a short program in a process of its own that need not import torch first."""
    from tests.fresh_python import FreshPython

    fresh = FreshPython()
    yield fresh
    fresh.close()


@pytest.fixture
def outputs(monkeypatch):
    """What a notebook cell would get, one dict an output."""
    import IPython.display

    from course_utils import figures

    sent = []
    monkeypatch.setattr(figures, "_in_ipython", lambda: True)
    monkeypatch.setattr(IPython.display, "publish_display_data", sent.append)
    return sent


def held() -> dict[str, set]:
    """Child processes, threads, open shared memory and shared-memory files of this process or of one that has ended."""
    shared = {_target(path) for path in Path("/proc/self/fd").glob("*")}  # nothing elsewhere than Linux
    files = {path.name for path in Path("/dev/shm").glob("torch_*")}
    return {
        "children": {child.pid for child in multiprocessing.active_children()},
        "threads": set(threading.enumerate()),
        "shared memory": {name for name in shared if "torch_" in name},
        "files": {name for name in files if _is_ours_or_nobodys(int(name.split("_")[1]))},
    }


def _target(link: Path) -> str:
    """What an open file is; "" where another thread has closed it meanwhile."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _is_ours_or_nobodys(pid: int) -> bool:
    return pid == os.getpid() or not Path(f"/proc/{pid}").exists()


@pytest.fixture
def nothing_is_left():
    """After the test: no child process, thread or shared memory that was not there before it."""
    before = held()
    yield
    for _ in range(50):  # a thread that feeds a closed queue takes a moment to end
        left = {kind: now - before[kind] for kind, now in held().items()}
        if not any(left.values()):
            return
        gc.collect()  # a traceback's cycle may hold a loader
        time.sleep(0.05)
    assert left == {kind: set() for kind in left}


@pytest.fixture
def no_run_is_left():
    """After the test: the live run is ended, the labs are closed, and no thread of theirs is alive."""
    from course_utils.labs import background, panel

    yield
    background._end_current()
    for lab in list(panel._on_page.values()):
        lab.close()
    panel._on_page.clear()
    assert not any(thread.name == "live run" for thread in threading.enumerate())


@pytest.fixture(scope="module")
def still(request):
    """A lab's still twin, drawn once for all labs of a file: it is most of what a lab takes to make.

    The file says which by STILL_TWIN, the lab's module and the name of the function that draws it.
    """
    lab, name = request.module.STILL_TWIN
    drawn = getattr(lab, name)()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab, name, lambda: drawn)
        yield drawn


@pytest.fixture
def no_widgets(monkeypatch):
    """As where ipywidgets is not installed."""
    from course_utils.labs import bench, knobs, panel

    for module in (knobs, panel, bench):
        monkeypatch.setattr(module, "widgets", None)
