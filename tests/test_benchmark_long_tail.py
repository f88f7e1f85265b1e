"""The long tail's record: its orders, its figures, and that its wins are counted from its seeds."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import long_tail, records
from benchmarks.catalogue_tasks import Examples
from course_utils.catalogue_plan import CLASSES, LONG_TAIL

TARGETS = torch.tensor([0] * 6 + [1] * 3 + [2] * 2)


def test_the_tail_falls_as_1_and_a_half_and_a_third():
    kept = long_tail.long_tailed(torch.arange(10).repeat(60), largest=60)
    counts = torch.bincount(torch.arange(10).repeat(60)[kept])
    by_rank = [int(counts[list(CLASSES).index(name)]) for name in LONG_TAIL]
    assert by_rank == [60, 30, 20, 15, 12, 10, 8, 7, 6, 6] and len(set(kept)) == len(kept)


def test_undersampling_keeps_as_many_of_each_class_as_the_smallest_has():
    first, second = (long_tail.undersampled(TARGETS, seed) for seed in (0, 1))
    assert torch.bincount(TARGETS[first]).tolist() == [2, 2, 2] and first != second


def test_the_weighted_loss_is_worked_out_by_hand():
    logits, targets = torch.zeros(2, 3), torch.tensor([0, 2])  # guessing: ln 3 each
    loss = long_tail.loss_of("loss weights", TARGETS)(logits, targets)
    weights = 11 / (3 * 6) + 11 / (3 * 2)
    assert float(loss) == pytest.approx(weights * torch.tensor(3.0).log().item() / 2)


def test_recall_counts_classes_and_accuracy_counts_by_their_shares_in_training():
    test = Examples(torch.zeros(6, 1), torch.tensor([0, 0, 1, 1, 2, 2]))
    task = long_tail.Task(None, Examples(torch.zeros(11, 1), TARGETS), test, ("a", "b", "c"))
    found = long_tail.figures(task, torch.tensor([0, 0, 1, 0, 0, 0]))
    assert found["recall"] == {"a": 1.0, "b": 0.5, "c": 0.0} and found["mean_recall"] == pytest.approx(0.5)
    assert found["accuracy"] == pytest.approx((6 * 1.0 + 3 * 0.5 + 2 * 0.0) / 11)


def test_a_flip_is_a_pair_whose_order_differs_between_recall_and_accuracy():
    rows = {"a": (0.5, 0.9), "b": (0.6, 0.8), "c": (0.7, 0.95)}
    named = {
        order: {"10": {"mean_recall": {"mean": recall}, "accuracy": {"mean": accuracy}}}
        for order, (recall, accuracy) in rows.items()
    }
    ahead = {"mean_recall": "b", "accuracy": "a"}
    assert long_tail.flips({"t": {"results": named}}) == [
        {"task": "t", "updates": "10", "pair": ["a", "b"], "ahead": ahead}
    ]


def test_a_quick_run_gives_every_order_and_stores_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    long_tail.main(["--quick"])
    found = json.loads(capsys.readouterr().out)
    assert set(found["results"]) == set(long_tail.ORDERS) and not list(tmp_path.iterdir())
    assert found["results"]["shuffle"]["4"]["distinct"]["each"] == [128, 128]  # 4 batches of 32, nothing twice


@pytest.mark.parametrize("task", ["photos", "fashion"])
def test_the_long_tail_record_counts_its_wins_and_means_from_its_seeds(task):
    found = records.load("long_tail")["tasks"][task]
    assert set(found["results"]) == set(long_tail.ORDERS) and len(found["class_counts"]) == 10
    for step in map(str, long_tail.UPDATES):
        rows = {order: of[step] for order, of in found["results"].items()}
        for figure in long_tail.FIGURES:
            assert found["wins"][figure][step] == long_tail.wins_of_more(rows, figure)
        for row in rows.values():
            assert len(row["mean_recall"]["each"]) == 5
            recalls = [recall["mean"] for recall in row["recall"].values()]
            assert row["mean_recall"]["mean"] == pytest.approx(sum(recalls) / 10, abs=2e-4)


def test_the_flips_of_the_long_tail_record_are_those_of_its_means():
    record = records.load("long_tail")
    assert record["flips"] == long_tail.flips(record["tasks"])
