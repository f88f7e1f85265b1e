"""The sweep on photos and captions: its tasks, its plateau, its record."""

from __future__ import annotations

import pytest

from benchmarks import catalogue_tasks, plateau, records
from course_utils.training_loop import Evaluation


@pytest.fixture
def small_catalogue(tmp_path, monkeypatch):
    """The tasks on 20 products, and on none that another test left."""
    cached = [found for found in vars(catalogue_tasks).values() if hasattr(found, "cache_clear")]
    monkeypatch.setattr(catalogue_tasks.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(catalogue_tasks, "NUM_PRODUCTS", 20)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def test_no_product_is_in_two_parts_and_each_window_is_followed_by_its_targets(small_catalogue):
    products = [{row["product"] for row in catalogue_tasks.rows_of(part)} for part in ("train", "val", "test")]
    assert sorted(product for part in products for product in part) == list(range(20))
    found = catalogue_tasks.captions("train")
    assert len(found) > 2 and found.targets.flatten()[:-1].tolist() == found.inputs.flatten()[1:].tolist()
    assert catalogue_tasks.photos("train").inputs.mean().abs() < 1e-5


@pytest.mark.parametrize("task", ["photos", "captions"])
def test_the_plateau_cuts_after_the_third_evaluation_in_a_row_without_a_new_lowest(task, small_catalogue, monkeypatch):
    scripted = iter([3.0, 2.0, 2.0, 2.5, 2.0, 1.0])  # evaluations 3, 4 and 5 are no new lowest: the third one cuts
    monkeypatch.setattr(plateau, "NUM_STEPS", 12)
    monkeypatch.setattr(plateau, "EVAL_EVERY", 2)
    monkeypatch.setattr(plateau, "figures", lambda trainer, task: {})
    monkeypatch.setattr(plateau, "evaluate", lambda *_: Evaluation(next(scripted), None, None, 1))
    found = plateau.run(task, "plateau", 0.01, 0)
    assert found["cuts"] == [11] and found["lrs"] == pytest.approx([0.01] * 5 + [0.003])


def test_a_win_is_a_lower_loss_or_a_higher_accuracy_and_a_tie_is_none():
    results = {"a": {"loss": {"each": [1, 2, 3]}, "accuracy": {"each": [0.6, 0.5, 0.9]}}}
    results["b"] = {"loss": {"each": [2, 2, 2]}, "accuracy": {"each": [0.5, 0.5, 0.6]}}
    assert plateau.wins(results, "loss") == {"a": {"b": 1}, "b": {"a": 1}}
    assert plateau.wins(results, "accuracy") == {"a": {"b": 2}, "b": {"a": 0}}


@pytest.mark.parametrize("task", list(plateau.LRS))
def test_the_plateau_record_compares_schedules_at_lrs_inside_their_grids(task):
    found = records.load("plateau")["tasks"][task]
    assert set(found["results"]) == set(plateau.SCHEDULES) == set(found["grid"])
    for schedule, result in found["results"].items():
        grid, lrs = found["grid"][schedule], list(found["grid"][schedule])
        assert grid[str(result["lr"])] == min(grid.values()) and str(result["lr"]) in lrs[1:-1]
        assert all(len(result[name]["each"]) == 5 for name in ("val_loss", "test_loss", "test_accuracy"))
        assert result["num_cuts"]["each"] == [len(cuts) for cuts in result["cuts"].values()]
        assert (result["num_cuts"]["mean"] > 0) == (schedule == "plateau")
        assert len(result["one_run"]["lr"]) == len(result["val_curve"]["mean"]) == 30
    for figure, wins in found["wins"].items():
        assert wins == plateau.wins(found["results"], figure)
