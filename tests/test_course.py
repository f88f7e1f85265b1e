"""The commands of course.py, each in a small copy of the project in a folder whose name has a space."""

import ast
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types
import urllib.request
from pathlib import Path

import psutil
import pytest

import course as shipped_course

ROOT = Path(__file__).resolve().parents[1]
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals or links")


def notebook(*sources):
    cells = [{"cell_type": "code", "id": f"cell-{i}", "metadata": {}, "source": source.splitlines(keepends=True),
              "execution_count": None, "outputs": []} for i, source in enumerate(sources)]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def edit(path, change):
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content["cells"])
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


@pytest.fixture
def course(tmp_path, monkeypatch):
    """course.py as a module, in a project of two chapters."""
    root = tmp_path / "the course"
    (root / "notebooks").mkdir(parents=True)
    for name in ("course.py", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    for name in ("00_start_here.ipynb", "07_schedules.ipynb"):
        content = json.dumps(notebook("print(6 * 7)", "x = 1\nx"), indent=1)
        (root / "notebooks" / name).write_text(content, encoding="utf-8")
    for variable in ("COURSE_WORK", "COURSE_PROGRESS", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    spec = importlib.util.spec_from_file_location("course_in_tmp", root / "course.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def work(course):
    folder = course.ROOT / "work"
    folder.mkdir()
    course.copy_chapters(folder)
    return folder


def start(course, *words, **environment):
    """Run a command as a reader does, with the Python of the tests."""
    return subprocess.run([sys.executable, str(course.ROOT / "course.py"), *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, env=os.environ | environment)


def pretend_calls(course, monkeypatch, status=0):
    """Let `course.call` start nothing; return the list of the commands it was given."""
    commands = []

    def call(command, folder, environment=None):
        commands.append([str(part) for part in command])
        return status

    monkeypatch.setattr(course, "call", call)
    monkeypatch.setattr(course, "make_venv", lambda: course.VENV.mkdir(exist_ok=True))
    return commands


def change_packages(course):
    project = course.ROOT / "pyproject.toml"
    project.write_text(project.read_text(encoding="utf-8") + "\n# another list\n", encoding="utf-8")


def pretend_environment(course, extras=(), cpu=False):
    """A .venv that looks finished."""
    course.python_in_venv().parent.mkdir(parents=True)
    course.python_in_venv().touch()
    course.write_json(course.STAMP, {"made_from": course.fingerprint(), "extras": list(extras), "cpu": cpu})


# ---------------------------------------------------------------- the Python that runs it

def test_an_old_python_can_read_course_py_to_the_end():
    source = (ROOT / "course.py").read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=(3, 6))
    annotated = [node for node in ast.walk(tree) if isinstance(node, ast.arg) and node.annotation]
    assert tree.body and not annotated  # annotations are evaluated: `list[str]` would end an old Python


def test_course_py_needs_nothing_but_python():
    tree = ast.parse((ROOT / "course.py").read_text(encoding="utf-8"))
    top = [name for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))
           for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])]
    assert len(top) > 5 and set(top) <= sys.stdlib_module_names


@pytest.mark.parametrize("version", [(3, 10, 12), (2, 7, 18), (3, 15, 0)])
def test_a_python_that_is_too_old_or_too_new_is_told_which_are_needed(course, monkeypatch, version):
    monkeypatch.setattr(course.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 to 3\.14, this is " + course.dotted(version)):
        course.check_python(version)


def test_a_better_python_on_the_machine_is_named(course, monkeypatch):
    monkeypatch.setattr(course.shutil, "which", lambda name: name if name == "python3.12" else None)
    with pytest.raises(SystemExit, match=r"with python3\.12 instead of python3"):
        course.check_python((3, 9, 1))


# ---------------------------------------------------------------- the environment

def test_a_finished_environment_is_used_without_touching_it(course, monkeypatch):
    pretend_environment(course, extras=["browser", "test"])
    commands = pretend_calls(course, monkeypatch)
    course.ensure_environment(["test"], cpu=False)
    assert commands == []


@pytest.mark.parametrize("break_it", [
    change_packages,
    lambda course: course.python_in_venv().unlink(),
    lambda course: course.STAMP.write_text("{half"),
    lambda course: course.STAMP.unlink(),
])
def test_an_environment_of_another_state_is_installed_again(course, monkeypatch, break_it):
    pretend_environment(course)
    break_it(course)
    commands = pretend_calls(course, monkeypatch)
    course.ensure_environment([], cpu=False)
    assert any("pip" in command for command in commands)
    assert course.read_json(course.STAMP)["made_from"] == course.fingerprint()


def test_the_tests_add_their_packages_to_the_same_environment_and_keep_the_small_build(course, monkeypatch):
    pretend_environment(course, extras=["browser"], cpu=True)
    commands = pretend_calls(course, monkeypatch)
    course.ensure_environment(["test"], cpu=False)
    assert commands[-2][-1] == f"{course.ROOT}[browser,test]"
    stamp = course.read_json(course.STAMP)
    assert (stamp["extras"], stamp["cpu"]) == (["browser", "test"], True)


@pytest.mark.parametrize("platform, asked", [("linux", True), ("win32", False), ("darwin", False)])
def test_the_small_build_comes_from_pytorchs_index_on_linux_alone(course, monkeypatch, platform, asked):
    monkeypatch.setattr(course.sys, "platform", platform)
    commands = pretend_calls(course, monkeypatch)
    course.ensure_environment([], cpu=True)
    indexed = [command[-3:] for command in commands if course.CPU_INDEX in command]
    bounds = [need for need in course.requirements() if need.startswith("torch")]
    assert len(bounds) == 2 and indexed == ([[course.CPU_INDEX, *bounds]] if asked else [])


def test_no_other_index_is_asked_without_cpu(course, monkeypatch):
    commands = pretend_calls(course, monkeypatch)
    course.ensure_environment(["test", "browser"], cpu=False)
    assert commands and not any(part.startswith(("--index", "http")) for command in commands for part in command)


def test_an_interrupted_installation_is_not_taken_for_a_finished_one(course, monkeypatch, capsys):
    pretend_environment(course)
    change_packages(course)
    pretend_calls(course, monkeypatch)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(course, "call", interrupted)
    assert course.main(["setup"]) == 130
    assert not course.STAMP.exists() and "same command goes on" in capsys.readouterr().out


@POSIX
@pytest.mark.parametrize("on_interrupt, program, status", [
    ("SIG_DFL", "pass", 0),  # Ctrl-C reached it before
    ("SIG_DFL", "time.sleep(60)", -signal.SIGINT),
    ("SIG_IGN", "time.sleep(60)", -signal.SIGKILL),
])
def test_an_interrupted_program_gets_time_then_a_signal_then_an_end(course, on_interrupt, program, status):
    source = f"import signal, time; signal.signal(signal.SIGINT, signal.{on_interrupt}); print(flush=True); {program}"
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        course.end(process, patience=0.3)
        assert process.poll() == status


def test_a_failed_installation_ends_with_a_sentence_and_no_stamp(course, monkeypatch):
    pretend_calls(course, monkeypatch, status=1)
    with pytest.raises(SystemExit, match="did not finish"):
        course.ensure_environment([], cpu=False)
    assert not course.STAMP.exists()


def test_packages_that_cannot_be_imported_are_told(course, monkeypatch):
    pretend_calls(course, monkeypatch, status=1)
    with pytest.raises(SystemExit, match="cannot be imported.*course.py clean"):
        course.try_imports()


def test_a_machine_without_playwright_still_gets_the_tests(course, monkeypatch):
    tried = []

    def pip_install(*arguments):
        tried.append(arguments[-1])
        return "there is no playwright for this Python" if "browser" in arguments[-1] else None

    monkeypatch.setattr(course, "pip_install", pip_install)
    course.install_course(["browser", "test"])
    assert tried == [f"{course.ROOT}[browser,test]", f"{course.ROOT}[test]"]


@pytest.mark.parametrize("line, sentence", [
    ("OSError: [Errno 28] No space left on device", "disk is full"),
    ("Retrying after NewConnectionError(...)\nNo matching distribution found for torch", "not reached"),
    ("getaddrinfo failed", "not reached"),
    ("ReadTimeoutError: Read timed out.", "not reached"),
    ("ERROR: No matching distribution found for torch<2.15,>=2.10", "no torch<2.15,>=2.10 for this Python"),
    ("something else", "pip failed"),
])
def test_what_pip_logged_is_said_in_words(course, line, sentence):
    assert sentence in course.pip_problem(f"Collecting torch\n{line}\n")


@pytest.fixture
def disks(course, monkeypatch):
    """{folder: free GB} of a pretended machine; folders with equal numbers in `disk` share a disk."""
    machine = types.SimpleNamespace(disk={"the course": 0, "tmp": 0}, free={0: 0.0, 1: 0.0})
    number = lambda folder: machine.disk[Path(folder).name]  # noqa: E731
    monkeypatch.setattr(course.tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(course, "disk_of", number)
    monkeypatch.setattr(course.shutil, "disk_usage",
                        lambda folder: types.SimpleNamespace(free=machine.free[number(folder)] * 2**30))
    return machine


@pytest.mark.parametrize("platform, cpu, gib", [("linux", False, 9.5), ("linux", True, 3), ("win32", False, 3)])
def test_a_disk_that_is_too_small_is_told_before_the_download(course, monkeypatch, disks, platform, cpu, gib):
    monkeypatch.setattr(course.sys, "platform", platform)
    disks.free[0] = gib
    course.check_space(cpu)
    disks.free[0] = gib - 0.1
    with pytest.raises(SystemExit, match=f"needs {gib:g} GB on the disk of .*the course, {gib - 0.1:.1f} GB are free"):
        course.check_space(cpu)


def test_temporary_files_on_another_disk_need_room_there(course, monkeypatch, disks):
    monkeypatch.setattr(course.sys, "platform", "linux")
    disks.disk["tmp"], disks.free = 1, {0: 6.5, 1: 3}
    course.check_space(cpu=False)
    disks.free[1] = 2.9
    with pytest.raises(SystemExit, match="needs 3 GB on the disk of /tmp.*TMPDIR"):
        course.check_space(cpu=False)


def test_what_an_interrupted_installation_left_counts_as_room(course, disks):
    disks.free[0] = 3 - 1000 / 2**30
    course.VENV.mkdir()
    (course.VENV / "torch.part").write_bytes(bytes(1000))
    course.check_space(cpu=True)


def test_a_python_without_ensurepip_gets_the_debian_command(course, monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(SystemExit, match=r"apt install python3-venv \(or python3\.\d+-venv\)"):
        course.make_venv()


def test_a_folder_where_no_environment_can_be_made_is_told(course):
    course.VENV.write_text("a file in its place")
    with pytest.raises(SystemExit, match="Cannot make .*--here"):
        course.make_venv()


def test_a_half_made_environment_is_made_anew_and_a_whole_one_is_kept(course):
    import venv
    venv.create(course.VENV, with_pip=False)
    assert not course.venv_works()
    course.make_venv()
    assert course.venv_works()
    (course.VENV / "witness").touch()
    course.make_venv()
    assert (course.VENV / "witness").exists()
    assert "there is no no-such-package>=3" in course.pip_install("--no-index", "no-such-package>=3")
    unreachable = course.pip_install("--index-url", "http://127.0.0.1:9/simple", "--retries", "0", "no-such-package")
    assert "not reached" in unreachable and str(course.PIP_LOG) in unreachable


def test_readers_who_may_not_change_a_shared_environment_use_it(course, monkeypatch, capsys):
    pretend_environment(course)
    change_packages(course)
    commands = pretend_calls(course, monkeypatch)
    monkeypatch.setattr(course.os, "access", lambda path, mode: False)
    course.ensure_environment([], cpu=False)
    assert commands == [] and "used as it is" in capsys.readouterr().out


# ---------------------------------------------------------------- --here

def test_here_names_what_the_running_python_lacks(course):
    project = course.ROOT / "pyproject.toml"
    text = project.read_text(encoding="utf-8").replace('"numpy>=2.0,<3"', '"numpy<1", "no-such-package>=3"')
    project.write_text(text, encoding="utf-8")
    done = start(course, "setup", "--here")
    assert done.returncode == 1
    assert re.search(r"lacks: numpy<1 \(has 2\..*\), no-such-package>=3\. Install with: .* -m pip", done.stderr)


def test_here_makes_no_environment(course):
    done = start(course, "setup", "--here")
    assert done.returncode == 0 and f"Ready: {sys.executable}" in done.stdout
    assert not course.VENV.exists()


# ---------------------------------------------------------------- the reader's copies

def test_copies_are_made_of_the_chapters_that_work_lacks(course, work, capsys):
    (work / "07_schedules.ipynb").unlink()
    assert course.copy_chapters(work) == []
    copies = sorted(work.glob("*.ipynb"))
    assert [copy.read_bytes() for copy in copies] == [shipped.read_bytes() for shipped in course.chapters()]
    assert capsys.readouterr().out.splitlines()[-1].endswith("07_schedules.ipynb.")


def put_in_answer(cells):
    cells[1]["source"] = ["x = 'my own answer'"]


@pytest.mark.parametrize("same_chapter", [
    lambda path: os.utime(path),
    lambda path: edit(path, lambda cells: cells[0].update(outputs=[{"output_type": "stream"}], execution_count=9)),
    lambda path: edit(path, lambda cells: cells[0]["metadata"].update(tags=["setup"])),
    lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
])
def test_a_chapter_that_was_executed_again_or_checked_out_anew_is_not_newer(course, work, same_chapter):
    edit(work / course.FIRST, put_in_answer)
    same_chapter(course.NOTEBOOKS / course.FIRST)
    assert course.copy_chapters(work) == []


@pytest.mark.parametrize("new_chapter", [
    lambda cells: cells[0].update(source=["print(43)"]),
    lambda cells: cells[0].update(id="another-id"),
    lambda cells: cells[0].update(cell_type="markdown"),
    lambda cells: cells.pop(),
])
def test_a_newer_chapter_is_named_each_time_and_the_copy_is_left_as_it_is(course, work, new_chapter, capsys):
    mine = work / course.FIRST
    edit(mine, put_in_answer)
    before = mine.read_bytes()
    edit(course.NOTEBOOKS / course.FIRST, new_chapter)
    assert course.copy_chapters(work) == [course.FIRST] == course.copy_chapters(work)
    assert mine.read_bytes() == before
    assert "course.py restore 00" in capsys.readouterr().out


@pytest.mark.parametrize("manifest", [None, "{broken", "[]"])
def test_without_its_list_a_copy_that_differs_counts_as_old_and_one_that_is_equal_does_not(course, work, manifest):
    (work / course.MANIFEST).unlink()
    if manifest:
        (work / course.MANIFEST).write_text(manifest)
    edit(work / course.FIRST, put_in_answer)
    assert course.copy_chapters(work) == [course.FIRST]


def test_a_copy_that_cannot_be_read_is_left_and_told(course, work):
    (work / course.FIRST).write_text("{half a notebook")
    (work / course.MANIFEST).unlink()
    assert course.copy_chapters(work) == [course.FIRST]
    assert (work / course.FIRST).read_text() == "{half a notebook"


def test_a_killed_copy_leaves_no_half_a_notebook(course, work, monkeypatch):
    def killed(source, target):
        Path(target).write_text("{half")
        raise KeyboardInterrupt

    (work / course.FIRST).unlink()
    monkeypatch.setattr(course.shutil, "copyfile", killed)
    with pytest.raises(KeyboardInterrupt):
        course.copy_chapters(work)
    assert not (work / course.FIRST).exists()


def test_restore_lays_a_fresh_copy_and_keeps_every_old_one(course, work):
    edit(work / course.FIRST, put_in_answer)
    first_answer = (work / course.FIRST).read_bytes()
    edit(course.NOTEBOOKS / course.FIRST, lambda cells: cells[0].update(source=["print(43)"]))
    assert course.main(["restore", "0"]) == course.main(["restore", "00"]) == 0
    kept = sorted(work.glob("00_start_here.*-*.ipynb"))
    assert len(kept) == 2 and first_answer in [path.read_bytes() for path in kept]
    assert (work / course.FIRST).read_bytes() == (course.NOTEBOOKS / course.FIRST).read_bytes()
    assert course.copy_chapters(work) == []


def test_restore_says_that_there_is_no_such_chapter(course, work):
    with pytest.raises(SystemExit, match="no chapter 42"):
        course.main(["restore", "42"])
    with pytest.raises(SystemExit, match="Say which chapter"):
        course.main(["restore"])


@pytest.mark.parametrize("where", [["--work", "elsewhere"], []])
def test_copies_go_to_the_folder_of_the_option_or_the_variable(course, monkeypatch, tmp_path, where):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_WORK", str(tmp_path / ("not here" if where else "elsewhere")))
    course.main(["restore", "07", *where])
    assert (tmp_path / "elsewhere" / "07_schedules.ipynb").exists()
    assert not (course.ROOT / "work").exists() and not (tmp_path / "not here").exists()


@pytest.mark.parametrize("folder", [".", "notebooks"])
def test_the_courses_own_folders_are_refused_for_copies(course, folder):
    with pytest.raises(SystemExit, match="belongs to the course itself"):
        course.main(["restore", "00", "--work", str(course.ROOT / folder)])


def test_a_folder_that_cannot_be_written_is_one_sentence(course, tmp_path):
    (tmp_path / "file").write_text("")
    for command in (["lab", "--here"], ["restore", "00"]):
        with pytest.raises(SystemExit, match="cannot be written in .* Choose a folder of your own: --work DIR"):
            course.main([*command, "--work", str(tmp_path / "file" / "work")])


def make_linked_folders(course):
    for name in ("course_utils", "tests"):
        (course.ROOT / name / "__pycache__").mkdir(parents=True)
        (course.ROOT / name / "module.py").write_text(f"# {name}\n")


@POSIX
def test_beside_copies_elsewhere_stand_links_that_follow_a_moved_course(course, tmp_path):
    make_linked_folders(course)
    (tmp_path / "tests").symlink_to(tmp_path / "where the course was")
    (tmp_path / "course_utils").mkdir()
    course.put_beside(tmp_path)
    assert (tmp_path / "tests" / "module.py").samefile(course.ROOT / "tests" / "module.py")
    assert list((tmp_path / "course_utils").iterdir()) == []  # the reader's own folder stays


def test_where_links_are_not_allowed_copies_stand_beside(course, tmp_path, monkeypatch):
    def not_allowed(*_, **__):
        raise OSError("A required privilege is not held by the client")

    make_linked_folders(course)
    monkeypatch.setattr(Path, "symlink_to", not_allowed)
    (course.ROOT / "README.md").write_text("# Read me")
    course.put_beside(tmp_path)
    assert [path.name for path in (tmp_path / "tests").iterdir()] == ["module.py"]
    assert not (tmp_path / "tests").is_symlink() and (tmp_path / "README.md").read_text() == "# Read me"


@pytest.mark.skipif(not (ROOT / "notebooks" / "07_schedules.ipynb").exists(), reason="chapter 07 is not there yet")
def test_what_shipped_chapters_link_to_stands_beside_copies_elsewhere():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.ipynb")]
    targets = {target for text in texts for target in re.findall(r"\]\(\.\./([^/)#]+)", text)}
    assert targets, "no chapter links to its module"
    assert targets <= set(shipped_course.BESIDE)


# ---------------------------------------------------------------- lab

@pytest.mark.parametrize("platform, variables, expected", [
    ("linux", {}, False), ("linux", {"DISPLAY": ":0"}, True), ("linux", {"WAYLAND_DISPLAY": "w"}, True),
    ("linux", {"DISPLAY": ""}, False), ("darwin", {}, True), ("win32", {}, True),
])
def test_a_browser_is_opened_only_where_it_can_be_seen(course, monkeypatch, tmp_path, platform, variables, expected):
    monkeypatch.setattr(course.sys, "platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert course.has_display() is expected
    assert ("--no-browser" not in course.lab_options(tmp_path, course.FIRST)) is expected


@pytest.mark.parametrize("user, allowed", [(0, True), (1000, False)])
def test_root_is_allowed_to_run_lab(course, monkeypatch, tmp_path, user, allowed):
    monkeypatch.setattr(course.os, "geteuid", lambda: user, raising=False)
    assert ("--allow-root" in course.lab_options(tmp_path, course.FIRST)) is allowed


def test_lab_opens_the_copy_at_the_top_that_its_links_need(course, tmp_path):
    assert f"--ServerApp.root_dir={course.ROOT}" in course.lab_options(course.ROOT / "work", "07_schedules.ipynb")
    assert "--LabApp.default_url=/lab/tree/work/07_schedules.ipynb" in course.lab_options(
        course.ROOT / "work", "07_schedules.ipynb")
    assert f"--ServerApp.root_dir={tmp_path}" in course.lab_options(tmp_path, course.FIRST)
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in course.lab_options(tmp_path, course.FIRST)


def processes_of(marker):
    """The running processes whose environment holds `marker`: also those that lost their parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and marker in process.environ().values():
                found.append(process)
        except (psutil.Error, OSError):
            pass
    return found


def until(condition, seconds=30):
    """The first true value of `condition()`; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    return value


def post(address, path):
    """Ask Lab's server; it prints its address a moment before it answers."""
    base, token = re.search(r"(http://127\.0\.0\.1:\d+)/.*token=(\w+)", address).groups()
    request = urllib.request.Request(base + path, method="POST", headers={"Authorization": f"token {token}"})

    def answer():
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.load(reply)
        except ConnectionError:
            return None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionError):
                return None
            raise

    return until(answer)


def end_lab_with_one_interrupt(lab, log, work):
    try:
        address = until(lambda: re.search(r"http://127\.0\.0\.1:\d+\S*token=\w+", log.read_text()))[0]
        assert "/lab/tree/00_start_here.ipynb" in address and "open the address" in log.read_text()
        post(address, "/api/kernels")
        kernel = until(lambda: [process for process in processes_of(str(work)) if process.pid != lab.pid])[0]
        assert kernel.environ()["COURSE_PROGRESS"] == str(work / "progress.json")
        lab.send_signal(signal.SIGINT)
        assert lab.wait(timeout=15) == 0
        until(lambda: not processes_of(str(work)), seconds=5)
    finally:
        lab.kill()
        lab.wait()


@POSIX
def test_one_interrupt_ends_lab_with_its_kernels_and_leaves_no_process(course, tmp_path):
    import pty  # POSIX alone has it

    make_linked_folders(course)
    work, log = tmp_path / "my copies", tmp_path / "log"
    folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")
    own = {name: str(tmp_path / name) for name in folders}
    command = [sys.executable, str(course.ROOT / "course.py"), "lab", "--here", "--work", str(work)]
    ours, terminal = pty.openpty()  # at a terminal JupyterLab would ask whether Ctrl-C is meant
    with log.open("w") as out, os.fdopen(ours), os.fdopen(terminal) as stdin:
        lab = subprocess.Popen(command, stdin=stdin, stdout=out, stderr=out, env=os.environ | own)
        end_lab_with_one_interrupt(lab, log, work)
    assert sorted(path.name for path in work.glob("*.ipynb")) == ["00_start_here.ipynb", "07_schedules.ipynb"]


# ---------------------------------------------------------------- test, run, clean

def test_the_tests_status_and_arguments_pass_through_and_threads_wait_quietly(course):
    quiet = "import os\ndef test_quiet():\n    assert os.environ['OMP_WAIT_POLICY'] == 'PASSIVE'\n"
    (course.ROOT / "test_a.py").write_text(quiet + "def test_red():\n    assert 0\n")
    found = {"OMP_WAIT_POLICY": "ACTIVE", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take seconds to import
    done = start(course, "test", "--here", "--", "-o", "addopts=", "-p", "no:cacheprovider", "test_a.py", **found)
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout


def test_the_tests_get_their_own_packages_and_the_browsers(course, monkeypatch):
    seen = []
    monkeypatch.setattr(course, "ensure_environment", lambda extras, cpu: seen.append((extras, cpu)))
    monkeypatch.setattr(course, "become", lambda command, folder, environment: seen.append(command) or 5)
    assert course.main(["test", "--cpu", "--", "-x"]) == 5
    assert seen == [(["test", "browser"], True), [course.python_in_venv(), "-m", "pytest", "-x"]]


def test_run_executes_a_shipped_chapter_and_stores_its_outputs(course):
    (course.ROOT / "tests").mkdir()
    for name in ("__init__.py", "notebook_tools.py"):
        shutil.copy(ROOT / "tests" / name, course.ROOT / "tests")
    done = start(course, "run", "--here", "0")
    assert done.returncode == 0, done.stderr
    first, other = (json.loads(path.read_text(encoding="utf-8"))["cells"][0] for path in course.chapters())
    assert "".join(first["outputs"][0]["text"]) == "42\n" and other["outputs"] == []


@pytest.fixture
def littered(course, work):
    pretend_environment(course)
    for name in ("course_utils/__pycache__/x.pyc", "notebooks/.ipynb_checkpoints/y", ".pytest_cache/z",
                 "course_utils.egg-info/PKG-INFO", ".git/__pycache__/g", "work/.ipynb_checkpoints/w",
                 "course_utils/kept.py"):
        path = course.ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return course.ROOT


def files(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_clean_removes_the_environment_and_caches_and_nothing_else(course, littered):
    kept = ["course.py", "pyproject.toml", "course_utils/kept.py", ".git/__pycache__/g",
            "notebooks/00_start_here.ipynb", "notebooks/07_schedules.ipynb",
            "work/00_start_here.ipynb", "work/07_schedules.ipynb", "work/.shipped.json", "work/.ipynb_checkpoints/w"]
    assert course.main(["clean"]) == 0
    assert files(littered) == sorted(kept)


@pytest.mark.parametrize("words, answer, goes", [
    (["--work-too"], "", False), (["--work-too"], "n", False), (["--work-too"], "y", True),
    (["--work-too", "--yes"], None, True), (["--yes"], None, False),
])
def test_the_readers_copies_go_only_when_asked_for_and_confirmed(course, littered, monkeypatch, words, answer, goes):
    monkeypatch.setattr("builtins.input", lambda question: answer)
    if words == ["--work-too"] and not goes:
        with pytest.raises(SystemExit, match="Nothing was removed"):
            course.main(["clean", *words])
    else:
        course.main(["clean", *words])
    assert (littered / "work" / "00_start_here.ipynb").exists() is not goes


def test_the_python_inside_the_environment_does_not_remove_it(course, monkeypatch):
    monkeypatch.setattr(course.sys, "prefix", str(course.VENV))
    with pytest.raises(SystemExit, match="inside .venv"):
        course.main(["clean"])


@pytest.mark.parametrize("words", [[], ["lab", "seven"], ["test", "07"], ["setup", "07"], ["frobnicate"],
                                   ["run", "007"]])
def test_a_command_that_is_not_understood_changes_nothing(course, words, capsys):
    with pytest.raises(SystemExit) as stopped:
        course.main(words)
    assert stopped.value.code == 2
    assert not course.VENV.exists() and not (course.ROOT / "work").exists()
