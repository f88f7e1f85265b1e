"""One stem names a chapter, its module, exercises, live experiment and tests; imports point back."""

import ast
import functools
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.notebook_tools import ROOT, shipped

PACKAGE = ROOT / "course_utils"
CHAPTERS = (
    "start_here",
    "datasets",
    "transforms",
    "sampling",
    "loaders",
    "training_loop",
    "optimizer_step",
    "schedules",
    "checkpoints",
    "reproducibility",
    "nan_debugging",
    "profiling",
    "distributed",
    "capstone",
)
MODULE = {"start_here": "machine", "capstone": "train"}  # the other chapters' modules have the chapter's name
LEAVES = ("machine", "randomness", "figures", "models", "data")  # used by every chapter; they use only each other
# Parts of a chapter's module that was split by subject.
PARTS = {
    "augmentations": "transforms",
    "backward_memory": "profiling",
    "batches": "datasets",
    "best": "training_loop",
    "bottleneck": "profiling",
    "boxes": "transforms",
    "catalogue": "datasets",
    "catalogue_faults": "datasets",
    "catalogue_photos": "datasets",
    "catalogue_plan": "datasets",
    "channel_statistics": "transforms",
    "clipping": "optimizer_step",
    "collate": "loaders",
    "counting": "optimizer_step",
    "ema": "optimizer_step",
    "endless_batches": "profiling",
    "evaluation": "training_loop",
    "finder": "nan_debugging",
    "folder_scan": "datasets",
    "freezing": "optimizer_step",
    "history": "training_loop",
    "image_folder": "datasets",
    "images": "datasets",
    "interrupts": "training_loop",
    "jpeg_header": "datasets",
    "key_ranges": "datasets",
    "live_bytes": "profiling",
    "loader_memory": "loaders",
    "lr_finder": "schedules",
    "lr_race": "schedules",
    "mapped_images": "datasets",
    "measured_loop": "loaders",
    "naive_loaders": "loaders",
    "naive_streams": "datasets",
    "param_groups": "schedules",
    "photo_file": "datasets",
    "pipeline_model": "loaders",
    "pipeline_timeline": "loaders",
    "plateau": "schedules",
    "precision": "optimizer_step",
    "progress_bar": "training_loop",
    "ragged": "optimizer_step",
    "reference_model": "transforms",
    "run_state": "training_loop",
    "sanity_checks": "training_loop",
    "sanity_rules": "training_loop",
    "sanity_training": "training_loop",
    "snapshot": "profiling",
    "sources": "loaders",
    "speed_limit": "profiling",
    "splits": "datasets",
    "step_clock": "profiling",
    "step_profile": "profiling",
    "step_timer": "profiling",
    "streams": "datasets",
    "synthetic_pipeline": "loaders",
    "timer_summary": "profiling",
    "tuning": "loaders",
    "tuning_looks": "loaders",
    "update_order": "training_loop",
    "windows": "training_loop",
    "worker_choice": "loaders",
    "worker_pool": "loaders",
}
SCRIPTS = {"data.make_reference_model": "transforms"}  # remake what ships; no module imports them
ANYTHING = (
    "train",
    "preflight",
    "labs.start_here",
    "labs.capstone",
    "exercises.capstone",
)  # they show the whole system
HEAVY_AT_IMPORT = ("torchvision", "matplotlib", "ipywidgets", "IPython", "pandas")
MAX_LINES, MAX_EXERCISE_LINES = 240, 350  # exercises are a list: each is read alone


@functools.cache
def modules() -> tuple[str, ...]:
    """Every module of the package by its name after `course_utils.`: "schedules", "labs", "labs.schedules"."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if any(part.startswith(".") for part in parts):
            continue  # Lab's checkpoints of a module that a reader opened
        found.append(".".join(parts).removesuffix("__init__").rstrip("."))
    return tuple(name for name in found if name)


def file_of(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(source: str, known: Sequence[str]) -> set[str]:
    """The modules of the package that the source imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import of {node.module}: write course_utils in full"
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found |= {name.removeprefix("course_utils.") for name in names if name.startswith("course_utils.")}
    return {name for name in found if name in known}


@functools.cache
def imports_of(module: str) -> frozenset[str]:
    """The modules of the package that `module` imports."""
    return frozenset(imports(file_of(module).read_text(encoding="utf-8"), modules()))


def place(module: str) -> int | None:
    """The chapter's number; -1 for leaves and the machinery of labs and exercises; None without a chapter."""
    package, _, stem = module.rpartition(".")
    stem = SCRIPTS.get(module, PARTS.get(stem, stem))
    if module in LEAVES or (package in LEAVES and module not in SCRIPTS) or module in ("labs", "exercises"):
        return -1
    if module == "preflight":
        return len(CHAPTERS)
    if package in ("labs", "exercises"):
        own = [number for number, chapter in enumerate(CHAPTERS) if f"{stem}_".startswith(f"{chapter}_")]
        return own[0] if own else -1
    names = [MODULE.get(chapter, chapter) for chapter in CHAPTERS]
    return names.index(stem) if stem in names else None


def points_back(importer: str, imported: str) -> bool:
    """True if `importer` may import `imported`."""
    inside = ("labs", "exercises")
    if imported.split(".")[0] in inside and importer.split(".")[0] != imported.split(".")[0]:
        return False  # the computing function knows no widget and no checker
    if importer in ANYTHING:
        return True
    if (PARTS.get(importer, importer), PARTS.get(imported, imported)) == ("training_loop", "optimizer_step"):
        return True
    return None not in (place(importer), place(imported)) and place(imported) <= place(importer)


def chapters() -> list[tuple[int, str]]:
    """(number, stem) of the shipped notebooks."""
    return [(int(path.stem[:2]), path.stem[3:]) for path in shipped()]


# --- chapters ---


@pytest.mark.parametrize("number, stem", chapters())
def test_chapter_stands_in_the_fixed_list(number, stem):
    assert CHAPTERS[number] == stem


@pytest.mark.parametrize("number, stem", chapters())
def test_chapter_has_its_module_exercises_lab_and_tests(number, stem):
    module = MODULE.get(stem, stem)
    needed = [f"course_utils/{module}.py", f"course_utils/labs/{stem}.py", f"tests/test_{module}.py"]
    needed += [f"course_utils/exercises/{stem}.py"] if number else []
    assert [name for name in needed if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("folder", ["labs", "exercises"])
def test_chapters_labs_and_exercises_have_a_notebook(folder):
    stems = {path.stem for path in (PACKAGE / folder).glob("*.py")} & set(CHAPTERS)
    assert stems - {stem for _, stem in chapters()} == set()


def test_every_module_has_tests_of_its_name_and_every_part_is_tested_somewhere():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py")]
    tested = set().union(*(imports(source, modules()) for source in sources))
    names = [name for name in modules() if "." not in name and name not in ("data", "labs", "exercises")]
    assert len(names) > 5
    assert [name for name in names if name not in PARTS and not (ROOT / f"tests/test_{name}.py").is_file()] == []
    assert [name for name in names if name in PARTS and not {name, PARTS[name]} & tested] == []


def test_every_folder_of_the_package_is_installed():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    assert set(packages) == {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}


def test_every_file_of_the_package_that_is_no_module_is_installed_and_data_is_named_in_the_notice():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    installed = setuptools["package-data"]
    others = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    patterns = {path: installed.get(".".join(path.parent.relative_to(ROOT).parts), []) for path in others}
    assert [path for path in others if not any(fnmatch(path.name, pattern) for pattern in patterns[path])] == []
    arrays = [path.name for path in others if path.suffix == ".npz"]
    notice = (PACKAGE / "data" / "NOTICE").read_text(encoding="utf-8")
    assert len(arrays) >= 2 and [name for name in arrays if name not in notice] == []


# --- imports ---


@pytest.mark.parametrize("module", modules())
def test_module_belongs_to_a_chapter(module):
    assert place(module) is not None, f"{module} belongs to no chapter: name it in PARTS"


@pytest.mark.parametrize("module", modules())
def test_imports_point_back(module):
    assert [name for name in sorted(imports_of(module)) if not points_back(module, name)] == []


@pytest.mark.parametrize("part, stem", PARTS.items())
def test_a_part_is_used_by_its_own_chapter(part, stem):
    family = [stem, *(other for other, chapter in PARTS.items() if chapter == stem and other != part)]
    pages = "".join(path.read_text(encoding="utf-8") for path in shipped() if path.stem[3:] == stem)
    if file_of(part).exists() and file_of(stem).exists():
        family += [module for module in modules() if module.startswith("labs.") and place(module) == place(stem)]
        by_modules = any(part in imports_of(module) for module in family if file_of(module).exists())
        assert by_modules or f"from course_utils.{part} import" in pages


def test_the_import_graph_has_edges():
    assert sum(len(imports_of(module)) for module in modules()) > 10


@pytest.mark.parametrize(
    "source, found",
    [
        ("from course_utils.sampling import EpochBatches", {"sampling"}),
        ("from course_utils import run_state", {"run_state"}),
        ("import course_utils.loaders", {"loaders"}),
        ("def later():\n    from course_utils.labs.live import LiveRun", {"labs.live"}),
        ("import torch\nfrom course_utils_else import x", set()),
    ],
)
def test_imports_are_seen_in_every_form(source, found):
    assert imports(source, ["sampling", "run_state", "loaders", "labs.live", "labs"]) == found


@pytest.mark.parametrize(
    "importer, imported, allowed",
    [
        ("schedules", "training_loop", True),
        ("training_loop", "schedules", False),
        ("training_loop", "optimizer_step", True),
        ("evaluation", "optimizer_step", True),
        ("optimizer_step", "training_loop", True),
        ("loaders", "optimizer_step", False),
        ("machine", "randomness", True),
        ("machine", "datasets", False),
        ("figures", "schedules", False),
        ("datasets", "catalogue", True),
        ("catalogue", "transforms", False),
        ("transforms", "catalogue", True),
        ("nan_debugging", "finder", True),
        ("checkpoints", "finder", False),
        ("train", "distributed", True),
        ("preflight", "train", True),
        ("distributed", "train", False),
        ("labs.schedules", "schedules", True),
        ("labs.schedules", "checkpoints", False),
        ("labs.schedules", "labs.live", True),
        ("labs.live", "schedules", False),
        ("labs.live", "figures", True),
        ("labs.start_here", "train", True),
        ("exercises.schedules", "training_loop", True),
        ("exercises.schedules", "profiling", False),
        ("exercises.schedules_groups", "schedules", True),
        ("exercises.schedules_groups", "profiling", False),
        ("exercises.report", "schedules", False),
        ("schedules", "labs.live", False),
        ("figures", "labs", False),
        ("train", "exercises.check", False),
    ],
)
def test_what_may_import_what(importer, imported, allowed):
    assert points_back(importer, imported) is allowed


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_imported_by_no_module(script):
    assert [module for module in modules() if script in imports_of(module)] == []


@pytest.mark.parametrize("module", ["helpers", "lr_tools", "train_loop"])
def test_a_module_without_a_chapter_is_noticed(module):
    assert place(module) is None


# --- cost and size ---


def look(module: str, names: tuple[str, ...]) -> str:
    """A program that tells which of `names` stand in sys.modules when it has imported `module`."""
    return f"import json, sys, {module}; print(json.dumps([name for name in {names!r} if name in sys.modules]))"


def test_the_package_alone_costs_nothing():
    code = look("course_utils", ("torch", "numpy", "PIL", *HEAVY_AT_IMPORT))
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []


def test_core_modules_import_neither_torchvision_nor_matplotlib(fresh_python):
    core = [f"course_utils.{name}" for name in modules() if "." not in name and name not in ("labs", "exercises")]
    assert len(core) > 5
    assert json.loads(fresh_python.run(look(", ".join(core), HEAVY_AT_IMPORT)).stdout) == []


def test_a_heavy_import_would_be_noticed(fresh_python):
    assert json.loads(fresh_python.run(look("matplotlib", HEAVY_AT_IMPORT)).stdout) == ["matplotlib"]


@pytest.mark.parametrize("module", modules())
def test_module_can_be_read_in_one_sitting(module):
    lines = file_of(module).read_text(encoding="utf-8").splitlines()
    limit = MAX_EXERCISE_LINES if module.startswith("exercises.") and place(module) >= 0 else MAX_LINES
    assert len(lines) <= limit, f"course_utils.{module} has {len(lines)} lines; split it by subject"
