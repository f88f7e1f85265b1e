"""Executing, normalising and storing notebooks, shown on small ones."""

import copy
import os
import time

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests import notebook_tools as tools
from tests.notebook_tools import (
    METADATA,
    NotebookError,
    chosen,
    execute,
    normalise,
    read,
    report,
    shipped,
    store,
    write,
)

PICTURE = """
from matplotlib.figure import Figure
from course_utils.figures import show
print("before", end=" ", flush=True)
print("the picture")
figure = Figure(figsize=(5, 3))
figure.subplots().plot([0, 1])
show(figure, "one line that rises")
"""


def notebook(*sources):
    cells = [new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources, start=1)]
    return new_notebook(cells=cells, metadata=copy.deepcopy(METADATA))


def test_two_executions_store_equal_bytes(tmp_path):
    path = tmp_path / "00_x.ipynb"
    write(notebook(PICTURE, "object.__name__"), path)
    assert list(store(path)) == ["cell-1", "cell-2"]
    first = path.read_bytes()
    store(path)
    assert path.read_bytes() == first and b"image/png" in first


@pytest.mark.parametrize(
    "last, words",
    [
        ("1 / 0", r"cell cell-2, line 3: `1 / 0` raised ZeroDivisionError: division by zero"),
        ("import os; os._exit(1)", r"the kernel died while cell cell-2 ran"),
        ("import time; time.sleep(60)", r"cell cell-2 hangs: not done after 1 s"),
    ],
)
def test_a_cell_that_fails_is_named_and_nothing_is_stored(tmp_path, last, words):
    path = tmp_path / "00_x.ipynb"
    write(notebook("a = 1", f"b = 2\n\n{last}", "c = 3"), path)
    before, start = path.read_bytes(), time.monotonic()
    with pytest.raises(NotebookError, match=words):
        store(path, cell_timeout=1 if "sleep" in last else 60)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    assert time.monotonic() - start < 30  # far below the 60 s after which the cell itself would have ended


def test_only_the_chosen_cells_run_and_the_others_lose_their_outputs(tmp_path):
    nb = notebook("x = 1", "x = 2", "x")
    nb.cells[1].outputs = [new_output("stream", text="old")]
    assert list(execute(nb, tmp_path, only=lambda cell: cell.id != "cell-2")) == ["cell-1", "cell-3"]
    assert nb.cells[2].outputs[0].data["text/plain"] == "1"
    assert nb.cells[1].outputs == [] and [cell.execution_count for cell in nb.cells] == [1, None, 2]


def test_the_kernel_writes_beside_no_reader_and_finds_the_package(tmp_path):
    look = "import os, course_utils\n[*map(os.environ.get, ['COURSE_WORK', 'COURSE_PROGRESS', 'MINE']), os.getcwd()]"
    nb = notebook(look)
    execute(nb, tmp_path, env={"MINE": "here"})
    work, progress, mine, cwd = eval(nb.cells[0].outputs[0].data["text/plain"])
    assert os.path.samefile(cwd, tmp_path) and mine == "here"
    assert not os.path.exists(os.path.dirname(work)) and os.path.dirname(work) == os.path.dirname(progress)


def test_normalise_joins_neighbouring_pieces_of_a_stream_and_no_others():
    nb = notebook("1")
    words = new_output("display_data", data={"text/plain": "x"})
    pieces = [
        new_output("stream", name=name, text=text) for name, text in [("stdout", "a"), ("stdout", "b"), ("stderr", "c")]
    ]
    nb.cells[0].outputs = [*pieces, words, new_output("stream", name="stdout", text="d")]
    assert [output.get("text", "-") for output in normalise(nb).cells[0].outputs] == ["ab", "c", "-", "d"]


def test_normalise_drops_what_a_run_left_and_keeps_tags():
    nb = notebook("1")
    nb.metadata = nbformat.from_dict({"widgets": {"x": 1}, "language_info": {"name": "python", "version": "3.11.7"}})
    nb.cells[0].metadata = nbformat.from_dict({"tags": ["setup"], "execution": {"a": 1}, "collapsed": True})
    normalise(nb)
    assert nb.metadata == METADATA and nb.cells[0].metadata == {"tags": ["setup"]}


def test_normalise_drops_a_widget_only_where_words_remain():
    nb = notebook("1", "2")
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}
    nb.cells[0].outputs = [new_output("display_data", data=view | {"text/plain": "a slider"})]
    nb.cells[1].outputs = [new_output("display_data", data=dict(view))]
    normalise(nb)
    assert list(nb.cells[0].outputs[0].data) == ["text/plain"] and nb.cells[1].outputs[0].data == view


def test_write_keeps_the_old_file_when_the_notebook_is_not_valid(tmp_path):
    path = tmp_path / "00_x.ipynb"
    write(notebook("1"), path)
    broken = notebook("2")
    broken.cells[0].outputs = "none"
    with pytest.raises(nbformat.ValidationError):
        write(broken, path)
    assert read(path).cells[0].source == "1" and list(tmp_path.iterdir()) == [path]


def test_a_folder_without_chapters_is_an_error(tmp_path):
    (tmp_path / "draft.ipynb").write_text("{}")
    with pytest.raises(FileNotFoundError, match="found none"):
        shipped(tmp_path)


def test_chapters_are_chosen_by_number(tmp_path):
    paths = [tmp_path / "00_start_here.ipynb", tmp_path / "07_schedules.ipynb"]
    assert chosen(["7", "00", "07"], paths) == [paths[1], paths[0]]
    assert chosen([], paths) == paths
    with pytest.raises(ValueError, match=r"\(00, 07\), got 08"):
        chosen(["08"], paths)


def test_report_names_the_three_slowest_cells(tmp_path):
    line = report(tmp_path / "07_schedules.ipynb", {"a": 1.0, "b": 3.0, "c": 0.25, "d": 2.0})
    assert line.split() == "07_schedules 6.2 s slowest: b 3.0 s, d 2.0 s, a 1.0 s".split()


def test_command_says_which_chapter_was_not_stored_and_goes_on(tmp_path, monkeypatch, capsys):
    for name, source in [("00_a", "1 / 0"), ("01_b", "2")]:
        write(notebook(source), tmp_path / f"{name}.ipynb")
    monkeypatch.setattr(tools, "shipped", lambda: shipped(tmp_path))
    assert tools.main([]) == 1
    output, errors = capsys.readouterr()
    assert "00_a" in errors and "not stored: cell cell-1, line 1" in errors and output.startswith("01_b")
    assert read(tmp_path / "01_b.ipynb").cells[0].execution_count == 1


def test_command_refuses_a_number_without_a_chapter(tmp_path, monkeypatch):
    write(notebook("1"), tmp_path / "00_a.ipynb")
    monkeypatch.setattr(tools, "shipped", lambda: shipped(tmp_path))
    with pytest.raises(SystemExit) as ended:
        tools.main(["5"])
    assert ended.value.code == 2
