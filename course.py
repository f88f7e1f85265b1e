#!/usr/bin/env python3
"""The commands of the course. They need nothing but Python (on Windows: py course.py ...).

  python3 course.py lab [NN]      open the course, or chapter NN, in JupyterLab
  python3 course.py test          run every test and every shipped chapter
  python3 course.py setup         only make the environment (lab and test do it themselves)
  python3 course.py run [NN ...]  execute shipped chapters in a fresh kernel and store their outputs
  python3 course.py restore NN    lay a fresh copy of chapter NN; yours is kept under a dated name
  python3 course.py clean         remove the environment and caches, never your copies

What follows -- goes on to JupyterLab (lab) or pytest (test):  python3 course.py test -- tests/test_course.py -q
"""
# This file must be readable for any Python 3, so that an old one can say that it is too old.
import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
NOTEBOOKS = ROOT / "notebooks"
VENV = ROOT / ".venv"
STAMP = VENV / "course.json"  # what the environment was made from; written last, so a half-made one has none
PIP_LOG = VENV / "pip.log"
FIRST = "00_start_here.ipynb"
MANIFEST = ".shipped.json"  # in the work folder: for each copy the digest of the chapter it was made from
BESIDE = ("course_utils", "tests", "benchmarks", "README.md", "CONTRIBUTING.md", "LICENSE")  # what chapters link to
CACHES = ("__pycache__", ".ipynb_checkpoints", ".pytest_cache", ".hypothesis", ".ruff_cache")
OLDEST, NEWEST = (3, 11), (3, 14)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # asked only with --cpu
GIB = 2**30


def say(text):
    print(f"[course] {text}", flush=True)


def stop(text):
    """End with status 1 and one sentence for the reader."""
    raise SystemExit(f"[course] {text}")


def dotted(version):
    return ".".join(str(part) for part in version)


def read_json(path):
    """The dict stored in `path`; empty where there is none that can be read."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def replace_with(path, write):
    """Let `write(temporary path)` make the file, then put it in place: whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    write(part)
    os.replace(str(part), str(path))


def write_json(path, content):
    replace_with(path, lambda part: part.write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8"))


# ---------------------------------------------------------------- the environment

def check_python(version=sys.version_info):
    """Stop unless this Python can run the course; name one on this machine that can."""
    if OLDEST <= tuple(version[:2]) <= NEWEST:
        return
    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    found = [name for name in names if shutil.which(name)]
    advice = (f"This machine has one: start the command with {found[0]} instead of python3." if found
              else "Install one, from python.org or your system's packages.")
    stop(f"The course needs Python {dotted(OLDEST)} to {dotted(NEWEST)}, this is {dotted(version[:3])}. {advice}")


def python_in_venv():
    return VENV / "Scripts" / "python.exe" if os.name == "nt" else VENV / "bin" / "python"


def requirements(extras=()):
    """The packages that pyproject.toml names, each with its bounds."""
    import tomllib  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    return project["dependencies"] + [need for extra in extras for need in optional[extra]]


def fingerprint():
    """Changes with the list of packages, the Python and the place of the course."""
    parts = [(ROOT / "pyproject.toml").read_text(encoding="utf-8"), dotted(sys.version_info[:2]), str(ROOT)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def ensure_environment(extras, cpu):
    """Make .venv ready: at once if its stamp says that it is, else install what is missing."""
    stamp = read_json(STAMP)
    has_python = python_in_venv().exists()
    if cpu and stamp and not stamp.get("cpu"):
        say("The environment holds the full build already. For the small one: python3 course.py clean, then again.")
    if has_python and stamp.get("made_from") == fingerprint() and set(extras) <= set(stamp["extras"]):
        return
    if has_python and stamp and not os.access(str(VENV), os.W_OK):
        say("The environment was made for another state of the course. It is not yours to change and is used as it is.")
        return
    install(sorted(set(extras) | set(stamp.get("extras", []))), cpu or bool(stamp.get("cpu")))


def install(extras, cpu):
    started = time.monotonic()
    check_space(cpu)
    make_venv()
    if STAMP.exists():
        STAMP.unlink()  # from here to the end the environment counts as unfinished
    say("Installing the packages: a few minutes, 'Installing collected packages' is silent for a while.")
    say("Ctrl-C interrupts; the same command goes on from there.")
    if cpu and sys.platform == "linux":  # elsewhere the usual build is the small one
        say("Taking PyTorch's small build, without CUDA.")
        torch = [need for need in requirements() if need.startswith("torch")]
        problem = pip_install("--index-url", CPU_INDEX, *torch)
        if problem:
            stop(problem)
    install_course(extras)
    try_imports()
    write_json(STAMP, {"made_from": fingerprint(), "extras": extras, "cpu": cpu})
    say(f"The environment is ready ({time.monotonic() - started:.0f} s).")


def check_space(cpu):
    """Stop before the download where a disk is too small; what an interrupted installation left counts as room."""
    large = sys.platform == "linux" and not cpu  # torch for Linux brings CUDA: 3 GB to fetch, 6 to keep
    wanted = {}
    for folder, gib in ((ROOT, 6.5 if large else 2.5), (Path(tempfile.gettempdir()), 3 if large else 0.5)):
        wanted.setdefault(disk_of(folder), []).append((folder, gib))
    there = sum(os.lstat(str(file)).st_size for file in VENV.rglob("*")) if VENV.exists() else 0
    for places in wanted.values():
        folder, needed = places[0][0], sum(gib for _, gib in places)
        free = shutil.disk_usage(str(folder)).free
        if free + (there if folder == ROOT else 0) < needed * GIB:
            smaller = "The small build needs less: --cpu. " if large else ""
            stop(f"No room: the installation needs {needed:g} GB on the disk of {folder}, "
                 f"{free / GIB:.1f} GB are free. {smaller}TMPDIR=DIR moves the temporary files.")


def disk_of(folder):
    """Equal for two folders if they share a disk."""
    return os.stat(str(folder)).st_dev


def venv_works():
    """Whether .venv has a pip and the Python that runs here: a half-made, broken or moved one has not."""
    probe = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([str(python_in_venv()), "-c", probe], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    return answer.stdout.decode().strip() == dotted(sys.version_info[:2])


def make_venv():
    """Make .venv, or make it anew if the one that is there does not work."""
    if venv_works():
        return
    try:
        import ensurepip  # noqa: F401  (Debian and Ubuntu ship it, and the rest of venv, as a package of its own)
        import venv
    except ImportError:
        package = f"python{dotted(sys.version_info[:2])}-venv"
        stop("This Python cannot make environments: `venv` or `ensurepip` is missing. On Debian or Ubuntu: "
             f"sudo apt install python3-venv (or {package}), then the same command again.")
    not_from_inside()
    say(f"Making the environment {VENV} with Python {dotted(sys.version_info[:3])}.")
    try:
        venv.create(str(VENV), with_pip=False, clear=True, symlinks=os.name != "nt")
        if call([python_in_venv(), "-Im", "ensurepip", "--upgrade", "--default-pip"], ROOT) != 0:
            raise OSError("ensurepip failed")
    except OSError as error:
        stop(f"Cannot make {VENV}: {error}. Is the folder writable and the disk not full? "
             "With your own Python and packages: --here.")


def not_from_inside():
    if Path(sys.prefix).resolve() == VENV.resolve():
        stop("This is the Python inside .venv, which cannot replace itself. Use your system's: python3 course.py ...")


def install_course(extras):
    """The packages of pyproject.toml and the course itself, linked to this folder."""
    def editable(wanted):
        return pip_install("-e", f"{ROOT}[{','.join(wanted)}]" if wanted else str(ROOT))

    problem = editable(extras)
    if problem and "playwright" in problem and "browser" in extras:
        say("There is no playwright for this machine; the tests in a browser will be skipped.")
        problem = editable([extra for extra in extras if extra != "browser"])
    if problem:
        stop(problem)


def pip_install(*arguments):
    """Run pip in .venv; return None, or a sentence that says what went wrong."""
    if PIP_LOG.exists():
        PIP_LOG.unlink()
    command = [python_in_venv(), "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
               "--log", PIP_LOG, *arguments]
    environment = dict(os.environ, PIP_USER="0")  # a reader's `user = true` cannot hold in an environment
    if call(command, ROOT, environment) == 0:
        return None
    log = PIP_LOG.read_text(encoding="utf-8", errors="replace") if PIP_LOG.exists() else ""
    return f"The installation did not finish: {pip_problem(log)} pip's own words are above and in {PIP_LOG}."


def pip_problem(log):
    """What a failed pip's log says, in words: disk first, since a full disk shows in many ways."""
    if re.search(r"No space left on device|Errno 28|WinError 112|Disk quota exceeded", log):
        return ("the disk is full, here or where temporary files go. TMPDIR=DIR moves those, PIP_NO_CACHE_DIR=1 keeps "
                "no second copy of what is fetched. Then the same command goes on from there.")
    if re.search(r"NewConnectionError|NameResolutionError|Could not resolve|getaddrinfo|ConnectTimeout|ReadTimeout"
                 r"|Network is unreachable|Connection refused|ConnectionReset|ProxyError|SSLError|IncompleteRead", log):
        return "the package index was not reached. Check the network (proxy?), then the same command again."
    missing = re.search(r"No matching distribution found for (\S+)", log)
    if missing:
        return f"there is no {missing.group(1)} for this Python on this machine."
    return "pip failed."


def try_imports():
    """Import the large packages once: it shows that they work, and compiles what the first chapter would wait for."""
    say("Importing torch once (a new machine compiles it now).")
    if call([python_in_venv(), "-c", "import torch, torchvision, jupyterlab, matplotlib.pyplot, ipywidgets"], ROOT):
        stop("The packages are installed but cannot be imported; the lines above say why. "
             "If an interruption left them damaged: python3 course.py clean, then again.")


def missing_here(extras):
    """The requirements that the running Python lacks, or has in another version."""
    from importlib import metadata
    try:
        from packaging.requirements import Requirement  # comes with jupyterlab
    except ImportError:
        Requirement = None
    lacking = []
    for need in requirements(extras):
        try:
            version = metadata.version(re.match(r"[\w.-]+", need).group())
        except metadata.PackageNotFoundError:
            lacking.append(need)
            continue
        if Requirement and not Requirement(need).specifier.contains(version, prereleases=True):
            lacking.append(f"{need} (has {version})")
    return lacking


def python_for(args, extras):
    """The Python that runs the course: of .venv, or with --here the running one if it has all that is needed."""
    if not args.here:
        ensure_environment(extras, args.cpu)
        return python_in_venv()
    lacking = missing_here(extras)
    if lacking:
        wanted = f".[{','.join(extras)}]" if extras else "."
        stop(f"This Python ({sys.executable}) lacks: {', '.join(lacking)}. "
             f'Install with: {Path(sys.executable).name} -m pip install -e "{wanted}"  or leave out --here.')
    return Path(sys.executable)


# ---------------------------------------------------------------- starting programs

def child_environment(python, **more):
    """What our programs see: the course importable, its tools first in PATH, idle threads that do not spin."""
    def in_front(entry, name):
        return os.pathsep.join(filter(None, [str(entry), os.environ.get(name)]))

    return dict(os.environ, PYTHONPATH=in_front(ROOT, "PYTHONPATH"), PATH=in_front(python.parent, "PATH"),
                OMP_WAIT_POLICY="PASSIVE", JUPYTER_PREFER_ENV_PATH="1", **more)


def call(command, folder, environment=None):
    """Run to the end and return the exit status. Interrupted, we leave only after the program has."""
    process = subprocess.Popen([str(part) for part in command], cwd=str(folder), env=environment)
    try:
        return process.wait()
    except KeyboardInterrupt:
        end(process)
        raise


def end(process, patience=5.0):
    """Ctrl-C reached the program too: let it tidy up (pip has GBs in temporary files), ask once more, then kill it."""
    def ask():
        process.send_signal(signal.SIGINT)

    for insist in (lambda: None, process.kill if os.name == "nt" else ask, process.kill):
        try:
            insist()
            process.wait(patience)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            continue


def become(command, folder, environment):
    """Go on as `command`: it gets every signal itself and nothing of us is left. Windows cannot; there we wait."""
    command = [str(part) for part in command]
    if os.name == "posix":
        sys.stdout.flush()
        os.chdir(str(folder))
        os.execvpe(command[0], command, environment)
    process = subprocess.Popen(command, cwd=str(folder), env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            pass  # Ctrl-C reached the program too; it ends by itself


# ---------------------------------------------------------------- the reader's copies

def chapters(number="[0-9][0-9]"):
    """The shipped chapters in order, or the one of `number`."""
    found = sorted(NOTEBOOKS.glob(f"{number}_*.ipynb"))
    if not found:
        stop(f"There is no chapter {number} in {NOTEBOOKS}." if number.isdigit() else f"No chapters in {NOTEBOOKS}.")
    return found


def digest(path):
    """Of what a reader reads and runs: kinds, ids and sources of the cells, not outputs; None if it cannot be read."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts = [[cell["cell_type"], cell.get("id"), "".join(cell["source"])] for cell in cells]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def work_folder(args):
    """Where the reader's copies are: --work, else COURSE_WORK, else work/ beside this file."""
    folder = Path(args.work or os.environ.get("COURSE_WORK") or ROOT / "work").expanduser().resolve()
    if folder in (ROOT, NOTEBOOKS):
        stop(f"{folder} belongs to the course itself; give another folder for your copies.")
    return folder


@contextlib.contextmanager
def writing_in(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        stop(f"Your copies cannot be written in {folder} ({error.strerror or error}). "
             "Choose a folder of your own: --work DIR, or COURSE_WORK=DIR.")


def copy_chapter(shipped, copy):
    replace_with(copy, lambda part: shutil.copyfile(str(shipped), str(part)))


def copy_chapters(work):
    """Copy the chapters that `work` lacks, change none, and return the names of those that are newer in the course."""
    made_from, new, stale = read_json(work / MANIFEST), [], []
    for shipped in chapters():
        copy, now = work / shipped.name, digest(shipped)
        if not copy.exists():
            copy_chapter(shipped, copy)
            new.append(shipped.name)
        if digest(copy) == now:
            made_from[shipped.name] = now
        if made_from.get(shipped.name) != now:
            stale.append(shipped.name)
    write_json(work / MANIFEST, made_from)
    if new:
        say(f"Copied into {work}: {', '.join(new)}.")
    for name in stale:
        say(f"The course has a newer {name} than your copy, which is left as it is. To get the new one, "
            f"with yours kept beside it: python3 course.py restore {name[:2]}")
    return stale


def put_beside(work):
    """Link what chapters link to beside copies that are elsewhere.

    JupyterLab opens in that folder and does not climb above it: there `../course_utils` means `course_utils`.
    """
    for name in BESIDE:
        source, link = ROOT / name, work / name
        if link.is_symlink():
            link.unlink()  # the course may have moved
        if link.exists() or not source.exists():
            continue  # what the reader put there stays
        try:
            link.symlink_to(source, target_is_directory=source.is_dir())
        except OSError:  # Windows, where links need a right that most readers lack
            if source.is_dir():
                shutil.copytree(str(source), str(link), ignore=shutil.ignore_patterns(*CACHES))
            else:
                shutil.copyfile(str(source), str(link))


def restore(args):
    """Lay a fresh copy of one chapter; keep the reader's under a dated name."""
    if len(args.numbers) != 1:
        stop("Say which chapter: python3 course.py restore 00")
    shipped, work = chapters(args.numbers[0])[0], work_folder(args)
    copy = work / shipped.name
    with writing_in(work):
        if copy.exists():
            kept = dated_name(copy)
            os.replace(str(copy), str(kept))
            say(f"Your copy is now {kept}.")
        copy_chapter(shipped, copy)
        write_json(work / MANIFEST, dict(read_json(work / MANIFEST), **{shipped.name: digest(shipped)}))
    say(f"A fresh copy is {copy}.")


def dated_name(copy):
    """A free name beside `copy` that carries the time."""
    stem, count = f"{copy.stem}.{time.strftime('%Y%m%d-%H%M%S')}", 1
    kept = copy.with_name(f"{stem}.ipynb")
    while kept.exists():
        count += 1
        kept = copy.with_name(f"{stem}-{count}.ipynb")
    return kept


# ---------------------------------------------------------------- the commands

def has_display():
    """Whether a browser can open; without this question w3m or lynx would start in the terminal."""
    if sys.platform in ("win32", "cygwin", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def lab_options(work, chapter):
    """JupyterLab's options: where it opens, quiet but for its address, one Ctrl-C ends it."""
    root = ROOT if work == ROOT / "work" else work
    place = "/".join(["/lab/tree", *work.relative_to(root).parts, chapter])
    options = [f"--ServerApp.root_dir={root}", f"--LabApp.default_url={place}",
               "--ServerApp.answer_yes=True",  # Ctrl-C ends it without a question
               "--ServerApp.log_level=WARN", "--LabApp.log_level=WARN",  # the address is still printed ...
               "--PasswordIdentityProvider.hashed_password=",  # ... which a reader's own password would hide
               "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    if not has_display():
        options.append("--no-browser")
    return options


def lab(args):
    work = work_folder(args)
    chapter = chapters(args.numbers[0])[0].name if args.numbers else FIRST
    with writing_in(work):
        copy_chapters(work)
        if work != ROOT / "work":
            put_beside(work)
    python = python_for(args, [])
    progress = os.environ.get("COURSE_PROGRESS") or str(work / "progress.json")
    environment = child_environment(python, COURSE_WORK=str(work), COURSE_PROGRESS=progress)
    say("Starting JupyterLab. Ctrl-C here ends it and every kernel.")
    if not has_display():
        say("No display here: open the address that is printed below in a browser.")
    return become([python, "-m", "jupyterlab", *lab_options(work, chapter), *args.rest],
                  ROOT if work == ROOT / "work" else work, environment)


def test(args):
    python = python_for(args, ["test"] if args.here else ["test", "browser"])
    return become([python, "-m", "pytest", *args.rest], ROOT, child_environment(python))


def setup(args):
    python = python_for(args, [])
    say(f"Ready: {python}. Next: python3 course.py lab")


def run(args):
    numbers = [shipped.name[:2] for number in args.numbers for shipped in chapters(number)]
    python = python_for(args, ["test"])
    return become([python, ROOT / "tests" / "notebook_tools.py", *numbers, *args.rest], ROOT, child_environment(python))


def clean(args):
    """Remove the environment and caches; the reader's copies only when told, and asked."""
    not_from_inside()
    work = ROOT / "work"
    kept = (work, ROOT / ".git", VENV)
    caches = [Path(folder) / name for folder, names, _ in walk(ROOT, kept) for name in names if name in CACHES]
    doomed = [VENV, ROOT / "build", ROOT / "dist", *ROOT.glob("*.egg-info"), *caches]
    if args.work_too:
        if not args.yes and input(f"Remove your copies and answers in {work}? [y/N] ").strip().lower() != "y":
            stop("Nothing was removed.")
        doomed.append(work)
    for path in filter(Path.exists, doomed):
        say(f"Removing {path}.")
        try:
            path.unlink() if path.is_symlink() else shutil.rmtree(str(path))
        except OSError as error:
            stop(f"Cannot remove {path}: {error}. Is JupyterLab still running?")
    if work.exists():
        say(f"Your copies in {work} are as they were.")


def walk(top, without):
    """`os.walk` that does not enter the folders of `without`."""
    for folder, names, files in os.walk(str(top)):
        names[:] = [name for name in names if Path(folder) / name not in without]
        yield folder, list(names), files


COMMANDS = {"lab": lab, "test": test, "setup": setup, "run": run, "restore": restore, "clean": clean}


def parse(words):
    own, rest = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(prog="course.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=list(COMMANDS))
    parser.add_argument("numbers", nargs="*", metavar="NN", help="chapters (lab, run, restore)")
    parser.add_argument("--here", action="store_true", help="use the running Python and its packages, make no .venv")
    parser.add_argument("--cpu", action="store_true", help="small install: PyTorch's build without CUDA (Linux)")
    parser.add_argument("--work", metavar="DIR", help="folder of your copies (else COURSE_WORK, else work/)")
    parser.add_argument("--work-too", action="store_true", help="clean: remove work/ as well, after a question")
    parser.add_argument("--yes", action="store_true", help="clean --work-too: do not ask")
    if not own:
        parser.print_help()
        raise SystemExit(2)
    args = parser.parse_intermixed_args(own)  # options and chapters in any order
    if args.numbers and args.command not in ("lab", "run", "restore"):
        parser.error(f"{args.command} takes no chapter; what is meant for pytest goes after --")
    if not all(re.fullmatch(r"\d\d?", number) for number in args.numbers):
        parser.error(f"chapters are numbers such as 00 or 07, not {' '.join(args.numbers)}")
    args.numbers, args.rest = [number.zfill(2) for number in args.numbers], rest
    return args


def main(words):
    check_python()
    args = parse(words)
    try:
        return COMMANDS[args.command](args) or 0
    except KeyboardInterrupt:
        say("Interrupted. The same command goes on from here.")
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
