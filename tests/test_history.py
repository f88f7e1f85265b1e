import csv
import json
import math

import pytest

from course_utils.history import History

ROWS = [
    {"step": 1, "epoch": 0, "loss": 2.1, "lr": 0.1},
    {"step": 2, "epoch": 0, "loss": 1 / 3, "lr": 0.1},
    {"step": 3, "epoch": 1, "loss": 1e-300, "lr": 0.05, "note": None},
]


def test_a_history_is_a_list_of_rows_and_has_columns():
    history = History(ROWS)
    assert history == ROWS and history[-1]["loss"] == 1e-300 and history + [] == ROWS
    assert history.names == ["step", "epoch", "loss", "lr", "note"]
    assert history.column("step") == [1, 2, 3] and history.column("note") == [None] * 3
    assert History().column("loss") == []


def test_a_column_that_is_not_there_is_an_error_that_lists_the_columns():
    with pytest.raises(KeyError, match="no column 'accuracy' .* step, epoch, loss, lr, note"):
        History(ROWS).column("accuracy")


def test_json_lines_come_back_to_the_last_digit(tmp_path):
    path = History(ROWS).write_jsonl(tmp_path / "history.jsonl")
    assert History.read_jsonl(path) == ROWS and type(History.read_jsonl(path)) is History
    assert [json.loads(line) for line in path.read_text().splitlines()] == ROWS


def test_json_lines_are_appended_by_a_run_that_goes_on_and_else_written_anew(tmp_path):
    path = History(ROWS[:2]).write_jsonl(tmp_path / "history.jsonl")
    History(ROWS[2:]).write_jsonl(path, append=True)
    assert History.read_jsonl(path) == ROWS
    History(ROWS[:1]).write_jsonl(path)
    assert History.read_jsonl(path) == ROWS[:1]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_json_has_no_word_for_is_refused_and_the_file_stays(tmp_path, value):
    path = History(ROWS).write_jsonl(tmp_path / "history.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        History([*ROWS, {"step": 4, "loss": value}]).write_jsonl(path)
    assert History.read_jsonl(path) == ROWS


def test_csv_has_a_column_a_name_and_the_same_digits(tmp_path):
    path = History(ROWS).write_csv(tmp_path / "history.csv")
    assert path.read_bytes().splitlines()[0] == b"step,epoch,loss,lr,note"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == [2.1, 1 / 3, 1e-300]
    assert [row["note"] for row in rows] == ["", "", ""]
    assert History().write_csv(tmp_path / "empty.csv").read_text().strip() == ""


@pytest.mark.parametrize("window, means", [(1, [4, 2, 0, 6]), (2, [4, 3, 1, 3]), (99, [4, 3, 2, 3])])
def test_smoothed_values_are_means_over_what_there_is(window, means):
    assert History({"loss": value} for value in [4, 2, 0, 6]).smoothed("loss", window) == means


def test_the_figure_shows_the_values_and_their_means():
    ax = History(ROWS).figure("lr", window=2, title="The lr falls").axes[0]
    values, means = ax.lines
    assert list(values.get_xdata()) == list(means.get_xdata()) == [1, 2, 3]
    assert list(values.get_ydata()) == [0.1, 0.1, 0.05] and list(means.get_ydata()) == pytest.approx([0.1, 0.1, 0.075])
    assert ax.get_title(loc="left") == "The lr falls" and ax.get_ylabel() == "lr" and "step" in ax.get_xlabel()
    assert len(History(ROWS).figure(window=1).axes[0].lines) == 1
    with pytest.raises(ValueError, match="history is empty"):
        History().figure()
