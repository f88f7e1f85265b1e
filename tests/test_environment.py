"""Versions live in pyproject.toml; what else names them must agree."""

import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import course

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PIP_NAMES = {"pytorch": "torch", "matplotlib-base": "matplotlib"}  # conda's name -> the name on pip's side


def bounds_of_pip(project):
    """{name: bounds} of everything that a reader needs to use and to test the course, Python included."""
    needs = map(Requirement, project["dependencies"] + project["optional-dependencies"]["test"])
    return {canonicalize_name(need.name): need.specifier for need in needs} | {
        "python": SpecifierSet(project["requires-python"])}


def bounds_of_conda(environment):
    """{pip's name: bounds} of conda's list, without pip itself."""
    lines = [line.partition(" ") for line in environment["dependencies"] if isinstance(line, str) and line != "pip"]
    return {canonicalize_name(PIP_NAMES.get(name, name)): SpecifierSet(bounds) for name, _, bounds in lines}


@pytest.fixture
def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def test_conda_gets_the_same_packages_with_the_same_bounds(environment):
    assert len(PROJECT["dependencies"]) > 5
    assert bounds_of_conda(environment) == bounds_of_pip(PROJECT)


@pytest.mark.parametrize("old, new", [("torch>=2.10,<2.15", "torch>=2.10,<2.16"), ("tqdm>=4.66,<5", "rich>=13")])
def test_a_changed_bound_or_another_package_is_noticed(environment, old, new):
    changed = PROJECT | {"dependencies": [new if need == old else need for need in PROJECT["dependencies"]]}
    assert changed["dependencies"] != PROJECT["dependencies"]
    assert bounds_of_conda(environment) != bounds_of_pip(changed)


def test_conda_takes_only_conda_forge_and_the_course_itself_through_pip(environment):
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert environment["dependencies"][-1] == {"pip": ["-e ."]}  # --no-deps in such a list is an error of pip's


def test_course_py_knows_the_pythons_that_pyproject_allows():
    allowed = SpecifierSet(PROJECT["requires-python"])
    oldest, newest = course.OLDEST[1], course.NEWEST[1]
    minors = [minor for minor in range(0, 40) if allowed.contains(f"3.{minor}.1")]
    assert minors == list(range(oldest, newest + 1))


def test_the_workflow_tests_the_oldest_and_the_newest_python():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    tested = {str(python) for python in workflow["jobs"]["test"]["strategy"]["matrix"]["python"]}
    assert {course.dotted(course.OLDEST), course.dotted(course.NEWEST)} <= tested
