"""Programs in a process of their own: what they leave, where they run, and that none knows of another."""

import os
import sys

import pytest

from tests import fresh_python


def test_what_it_prints_and_its_status_arrive(fresh_python):
    done = fresh_python.run("import sys; print('é'); print('to stderr', file=sys.stderr); sys.exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, "é\n", "to stderr\n")


def test_an_error_is_told_as_python_tells_it(fresh_python):
    done = fresh_python.run("print(1)\n1 / 0")
    assert done.returncode == 1 and done.stdout == "1\n"
    assert done.stderr.startswith("Traceback") and done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_program_finds_nothing_of_the_one_before_nor_of_the_tests(fresh_python):
    look = "import os, sys; print(os.getpid(), hasattr(sys, 'left'), {'pytest', 'course_utils'} & {*sys.modules})"
    first = fresh_python.run(f"{look}; sys.left = 1; import course_utils, pytest").stdout.split(maxsplit=1)
    second = fresh_python.run(look).stdout.split(maxsplit=1)
    assert first[1] == second[1] == "False set()\n" and len({first[0], second[0], str(os.getpid())}) == 3


def test_two_programs_run_at_a_time_and_either_may_be_waited_for_first(fresh_python, tmp_path):
    meet = "from pathlib import Path\nmine, other = map(Path, {})\nmine.touch()\nwhile not other.exists(): pass"
    marks = [str(tmp_path / name) for name in "ab"]
    first, second = fresh_python.start(meet.format(marks)), fresh_python.start(meet.format(marks[::-1]))
    assert (second().returncode, first().returncode) == (0, 0)


def test_what_is_to_happen_at_its_end_happens_and_an_exit_at_once_ends_it(fresh_python):
    assert fresh_python.run("import atexit; atexit.register(print, 'bye')").stdout == "bye\n"
    assert fresh_python.run("import os; os._exit(9)").returncode == 9
    told = fresh_python.run("import sys; sys.exit('no room')")
    assert (told.returncode, told.stderr) == (1, "no room\n")


def test_it_runs_where_the_test_runs_with_its_environment(fresh_python, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "here")
    monkeypatch.delenv("COURSE_PROGRESS")
    done = fresh_python.run("import os; print(os.getcwd(), os.environ['MINE'], 'COURSE_PROGRESS' in os.environ)")
    assert done.stdout == f"{os.path.realpath(tmp_path)} here False\n"


def test_its_strings_have_other_hashes_than_ours(fresh_python):
    asked = "[hash(text) for text in 'abcdefgh']"
    assert fresh_python.run(f"print({asked})").stdout.strip() != str(eval(asked))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each program imports for itself")
def test_torch_is_there_already_and_no_library_that_is_slow_beside_it(fresh_python):
    slow = "{'torch', 'torchvision', 'matplotlib', 'PIL', 'IPython', 'ipywidgets', 'pandas'}"
    assert fresh_python.run(f"import sys; print({slow} & {{*sys.modules}})").stdout == "{'torch'}\n"


def test_closed_it_has_no_process_and_starts_one_for_the_next_program(monkeypatch):
    fresh = fresh_python.FreshPython()
    monkeypatch.setattr(fresh_python, "SERVER", fresh_python.SERVER.replace("import torch\n", ""))
    for _ in range(2):
        assert fresh.run("print('x')").stdout == "x\n"
        server = fresh._server
        fresh.close()
        assert server is None or server.poll() == 0
