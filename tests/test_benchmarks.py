"""The benchmarks: that rows can be measured and records read. No test here asserts a time."""

from __future__ import annotations

import datetime
import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks import __main__ as program
from benchmarks import batch_size, lr_race, photo_training, records, trainings, warmup
from benchmarks.rows import SUBJECTS, measure
from benchmarks.timing import interleaved, paired, ratio
from course_utils.models import small_cnn
from course_utils.schedules import constant

ROOT = Path(__file__).parents[1]
STORED = (
    "augmentation", "batch_size", "batch_throughput", "clipping", "diagnosis", "forgotten_eval", "frameworks", "leak",
    "long_tail", "lr_race", "normalisation", "optimism", "plateau", "precision", "prefetch", "remedies", "rows",
    "start_methods", "timeline", "tuner", "warmup",
)  # fmt: skip


def run_python(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_the_entry_point_lists_its_rows_without_measuring():
    assert run_python("-m", "benchmarks", "--list").split() == list(SUBJECTS)


def test_core_modules_import_no_slow_library(fresh_python):
    modules = "course_utils.training_loop, course_utils.schedules, course_utils.loaders, course_utils.datasets"
    loaded = fresh_python.run(f"import sys, {modules}; print(*sys.modules)").stdout.split()
    assert "course_utils.schedules" in loaded
    assert not {"torchvision", "matplotlib", "IPython", "ipywidgets", "pandas", "PIL"} & set(loaded)


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "imports"])  # fresh processes: too slow here
def test_each_subject_gives_rows_in_quick_mode(subject):
    rows = measure(subject, quick=True)
    assert rows and all(row.subject == subject and row.runs >= 2 for row in rows)
    for row in rows:
        assert set(row.minima) == set(row.medians) and all(row.minima[who] <= row.medians[who] for who in row.minima)


def test_an_unknown_row_is_named_beside_those_there_are(capsys):
    with pytest.raises(SystemExit):
        program.main(["lodaer"])
    assert "no row 'lodaer'; there are: imports, scheduler_step" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--store", "loader"], ["--store", "--quick"]])
def test_a_part_or_a_quick_run_is_not_stored(arguments, capsys):
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert "all rows" in capsys.readouterr().err


def test_every_candidate_runs_once_a_round_and_the_first_changes():
    order: list[str] = []
    candidates = {name: lambda name=name: order.append(name) for name in "abc"}
    times = interleaved(candidates, rounds=2)
    assert "".join(order) == "abc" + "bca" + "cab"
    assert {name: len(values) for name, values in times.items()} == {"a": 2, "b": 2, "c": 2}


def test_a_ratio_is_one_of_minima_and_is_judged_by_its_bar():
    times = {"mine": [4.0, 3.0, 9.0], "theirs": [2.0, 8.0, 4.0]}
    row = ratio("subject", "name", times, "mine", "theirs", bar=1.4)
    assert (row.value, row.median, row.passed, row.runs) == (1.5, 1.0, False, 3)
    assert program.verdict(row, quick=False) == "FAIL (<= 1.4 x)"
    assert program.verdict(row, quick=True) == "not judged (<= 1.4 x)"


def test_a_paired_row_is_the_median_of_ratios_within_rounds():
    times = {"mine": [4.0, 3.0, 9.0], "theirs": [2.0, 1.0, 9.0]}  # 2, 3 and 1
    row = paired("subject", "name", times, "mine", "theirs")
    assert (row.value, row.median, row.name) == (2.0, 2.0, "name, within rounds")
    assert ratio("subject", "name", times, "mine", "theirs").value == 3.0


def test_the_table_has_one_line_a_row():
    times = {"mine": [3.0], "theirs": [2.0]}
    head, line = program.table([ratio("subject", "mine over theirs", times, "mine", "theirs")]).splitlines()
    assert line.split() == ["mine", "over", "theirs", "1.5", "x", "1.5", "x", "1", "no", "bar"]
    assert head.split() == ["row", "from", "minima", "from", "medians", "runs", "bar"]


def test_what_is_stored_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    content = {"rows": [{"each": [0.5, 1.25], "of": [[1, 2], [3, 4]], "text": "[a, b]"}]}
    path = records.store("tried", {"runs": 3}, content)
    assert records.load("tried") == {"name": "tried", "made": {"runs": 3}} | content
    assert '"each": [0.5, 1.25]' in path.read_text() and [p.name for p in tmp_path.iterdir()] == ["tried.json"]


def test_a_record_that_is_missing_is_named_beside_those_there_are():
    with pytest.raises(FileNotFoundError, match="no record 'race'.*there are: .*lr_race"):
        records.load("race")


def test_a_sweep_goes_on_with_the_pieces_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(trainings.tempfile, "gettempdir", lambda: str(tmp_path))
    made = []

    def piece(number):
        made.append(number)
        return number * 2

    assert [trainings.Cache("tried").get(piece, number, runs=5) for number in (1, 2, 1)] == [2, 4, 2]
    assert made == [1, 2]
    assert trainings.Cache("tried").pieces["piece(2,)"]["runs"] == 5


@pytest.mark.filterwarnings("ignore:SIG:UserWarning")  # the trainer's own words
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stop_at", [3, 6, None])
def test_a_training_that_was_asked_to_stop_ends_the_sweep_and_is_no_piece(tmp_path, monkeypatch, number, stop_at):
    calls = itertools.count(1)

    def stopping(logits, targets):
        if next(calls) == stop_at:
            signal.raise_signal(number)
        return nn.functional.cross_entropy(logits, targets)

    def piece():
        return trainings.train(small_cnn, torch.optim.SGD, constant, num_steps=6, batch_size=8, seed=0).step

    monkeypatch.setattr(trainings.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(trainings, "LOSS_FN", stopping)
    cache = trainings.Cache("tried")
    if stop_at is None:
        assert cache.get(piece) == 6 and len(trainings.Cache("tried").pieces) == 1
        return
    with pytest.raises(KeyboardInterrupt, match=number.name):
        cache.get(piece)
    assert cache.pieces == trainings.Cache("tried").pieces == {}


def test_the_photo_records_stop_as_the_others_do():
    looks = photo_training.at_steps(
        SimpleNamespace(fit=lambda loader, num_steps: None, stopped_by="SIGTERM"), None, [1]
    )
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        next(looks)


def test_a_diverged_training_counts_as_guessing():
    found = trainings.figures(None)
    assert (found["final_loss"], found["test_accuracy"], found["diverged"]) == (2.3026, 0.1, 1)


@pytest.mark.parametrize("num_steps", lr_race.BUDGETS)
def test_every_schedule_fits_its_budget(num_steps):
    for schedule in lr_race.SCHEDULES:
        factors = [lr_race.factor_fn(schedule, num_steps)(step) for step in range(num_steps)]
        assert 0 < factors[0] <= 1 and max(factors) <= 1
        if schedule not in ("constant", "exponential_mild"):
            assert factors[-1] < 0.05  # a cycle that begins anew before the end would stand near 1


def test_a_flip_is_a_pair_whose_order_differs_between_budgets():
    names = list(lr_race.SCHEDULES)
    swapped = [names[1], names[0], *names[2:]]
    budgets = {"10": {"rank": names}, "20": {"rank": swapped}}
    assert lr_race.flips(budgets, "rank") == [{"pair": names[:2], "ahead": {"10": names[0], "20": names[1]}}]


def test_a_seed_of_the_race_gives_a_loss_for_each_update():
    found = lr_race.run_seed(3, [("a", "constant", 1e-3), ("b", "warmup_cosine", 1e-2)], 0, False)
    assert {name: len(losses) for name, losses in found["losses"].items()} == {"a": 3, "b": 3}
    assert found["losses"]["a"][0] == found["losses"]["b"][0]  # the same weights, the same batch


@pytest.mark.parametrize("name", STORED)
def test_a_record_says_where_when_and_how_often(name):
    record = records.load(name)
    made = record["made"]
    assert record["name"] == name and made["runs"] > 0 and made["seconds"] > 0
    assert made["machine"]["cpu"] and made["machine"]["cores"] >= 1 and made["machine"]["threads"] == 1
    assert made["versions"]["torch"].startswith("2.") and datetime.date.fromisoformat(made["date"])
    assert not re.search(r"/(root|home|tmp|work|Users)/", json.dumps(record))


@pytest.mark.parametrize("num_steps", [str(budget) for budget in lr_race.BUDGETS])
def test_each_lr_of_the_race_record_has_worse_neighbours_at_most_a_factor_2_away(num_steps):
    budget = records.load("lr_race")["budgets"][num_steps]
    for schedule, inside in budget["best_inside_grid"].items():
        lrs, best = sorted(map(float, budget["grid"][schedule])), budget["results"][schedule]["lr"]
        assert inside == (lrs[0] < best < lrs[-1])
        upper = [lr for lr in lrs if lr > best]
        assert not upper or upper[0] <= 2 * best


@pytest.mark.parametrize("num_steps", [str(budget) for budget in lr_race.BUDGETS])
def test_the_wins_of_the_race_record_are_counted_from_its_seeds(num_steps):
    budget = records.load("lr_race")["budgets"][num_steps]
    below = [value < 0 for value in budget["results"]["warmup_cosine"]["minus_constant"]["each"]]
    assert len(below) == budget["seeds"] and sum(below) == budget["wins"]["warmup_cosine"]["constant"]


def test_the_grid_of_a_schedule_grows_until_its_best_lr_has_a_worse_one_above():
    class Losses:  # in the place of the cache: the best lr is 0.08, above the largest of the grid
        def get(self, make, num_steps, schedule, lr, seeds, runs):
            return abs(lr - 0.08)

    found = lr_race.try_lrs(Losses(), 40, "warmup_cosine")
    assert list(found) == [*lr_race.BUDGETS[40], 0.08, 0.16] and lr_race.best_lr(found) == 0.08


@pytest.mark.parametrize("num_steps", [str(budget) for budget in lr_race.BUDGETS])
def test_the_race_record_holds_what_the_chapter_reads(num_steps):
    budget = records.load("lr_race")["budgets"][num_steps]
    assert budget["seeds"] == len(lr_race.REPORTED[int(num_steps)]) >= 5
    assert set(budget["results"]) == {"constant 3e-4", *lr_race.SCHEDULES} == set(budget["final_rank"])
    for name, result in budget["results"].items():
        for figure in ("final_loss", "minus_constant", "accuracy", "late_swing"):
            assert len(result[figure]["each"]) == budget["seeds"]
            assert result[figure]["mean"] == pytest.approx(sum(result[figure]["each"]) / budget["seeds"], abs=1e-4)
        assert result["curve"]["step"][-1] == int(num_steps) and len(result["curve"]["mean"]) == lr_race.NUM_POINTS
        if name in lr_race.SCHEDULES:
            grid = budget["grid"][name]
            assert grid[str(result["lr"])] == min(
                loss for loss in grid.values() if loss is not None
            )  # each schedule runs at its own best lr


def test_the_batch_size_record_compares_both_budgets():
    record = records.load("batch_size")
    assert set(record["budgets"]) == {"equal epochs", "equal steps"}
    for sizes in record["budgets"].values():
        assert set(sizes) == {"16", "64", "256", "1024"}
        assert all(len(row["results"]["test_accuracy"]["each"]) == 3 for row in sizes.values())


def test_the_best_factor_of_the_scaling_record_is_the_lowest_of_factors_below_and_above_1():
    for row in records.load("batch_size")["scaling"]["batch_sizes"].values():
        losses = {float(factor): found["val_loss"]["mean"] for factor, found in row["by_factor"].items()}
        assert set(losses) == set(batch_size.FACTORS) and min(losses) < 1 < max(losses)
        assert row["best_factor"] == min(losses, key=losses.get) and len(row["best_factor_each"]) == 3


def test_the_warmup_record_has_runs_with_and_without():
    record = records.load("warmup")
    assert all(set(shares) == {"0.0", "0.01", "0.05", "0.2"} for shares in record["shares"].values())
    assert {"small_cnn", "attention, norm first", "attention, norm last"} == set(record["models"])
    for lrs in record["models"].values():  # the same peaks for each: what differs is the model
        assert list(lrs) == [str(lr) for lr in warmup.MODEL_LRS]
        assert all(set(shares) == {"0.0", "0.1"} for shares in lrs.values())
