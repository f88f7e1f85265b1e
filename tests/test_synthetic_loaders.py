"""Synthetic loaders: their times by hand, what the tuner's record says, and where the resume that is timed starts."""

from __future__ import annotations

import pytest
import torch

from benchmarks import records, synthetic_loaders
from benchmarks.rows.resume import Numbers, first_batch_ms
from benchmarks.synthetic_loaders import CASES, Case, Synthetic, joined, loader_of, summary


@pytest.mark.parametrize(
    "case, cores, turns",
    [
        (Case(30, 10), 2, [40, 30, 15, 10, 10]),
        (Case(10, 10), 2, [20, 10, 10, 10, 10]),
        (Case(20, 10, load_computes=True, step_computes=True), 2, [30, 20, 15, 15, 15]),  # two cores share 30 ms
        (Case(20, 10, load_computes=True, step_computes=True), 8, [30, 20, 10, 10, 10]),
        (Case(20, 10, load_computes=True), 1, [30, 20, 20, 20, 20]),
        (Case(0, 5, heavy_mib=38), 2, [None] * 5),
    ],
    ids=str,
)
def test_a_turn_of_every_case_is_worked_out_by_hand(case, cores, turns):
    assert [case.turn_ms(number, cores) for number in range(5)] == turns


def test_examples_and_steps_cost_what_their_case_says(monkeypatch):
    spent = []
    monkeypatch.setattr(
        synthetic_loaders, "spend", lambda seconds, computes: spent.append((round(seconds, 6), computes))
    )
    for case in (Case(16, 5, load_computes=True), Case(16, 5, slow_every=40, step_computes=True)):
        dataset = Synthetic(case)
        for index in range(80):
            dataset[index]
        assert sum(seconds for seconds, _ in spent) == pytest.approx(10 * 0.016)  # ten batches of 8
        assert len(spent) == 80 / case.slow_every
        case.step(None)
        assert spent[0][1] is case.load_computes and spent[-1] == (0.005, case.step_computes)
        spent.clear()


def test_a_heavy_batch_is_as_heavy_as_it_says():
    batch = next(iter(loader_of(Case(0, 5, heavy_mib=38))))
    assert batch.nbytes == 38 * 2**20


def test_a_choice_is_compared_with_the_best_measured_and_the_best_predicted():
    grid = {"measured": {"0": 42.0, "1": 30.0, "2": 16.5, "3": 11.0}, "grid_seconds": 4.0}
    tunings = [{"num_workers": n, "verdict": "data-bound", "seconds": s} for n, s in ((2, 3.0), (3, 5.0))]
    case = joined("sleeps 30, step sleeps 10", grid, tunings, 2)
    assert (case["best"], case["tuned"], case["over_best"], case["over_predicted"]) == (
        3,
        [2, 3],
        [1.5, 1.0],
        [1.5, 1.0],
    )
    found = summary({"one": case, "two": case})
    assert found == {
        "worst_over_best": 1.5, "within_bar": 2, "tunings": 4, "tuner_seconds": 8.0, "grid_seconds": 8.0
    }  # fmt: skip


def test_the_tuners_record_holds_every_case_and_its_choices_are_counted_from_them():
    record = records.load("tuner")
    assert list(record["cases"]) == list(CASES) and len(record["cases"]) >= 8
    for case in record["cases"].values():
        least = min(case["measured"].values())
        assert case["over_best"] == [round(case["measured"][str(n)] / least, 3) for n in case["tuned"]]
        assert len(case["tuned"]) == len(case["tuner_seconds"]) == synthetic_loaders.TUNINGS
        assert all(seconds <= record["setup"]["budget_s"] * 1.5 for seconds in case["tuner_seconds"])
    assert record["summary"] == summary(record["cases"])


def test_the_tuners_record_is_within_its_bar_in_every_tuning():
    found = records.load("tuner")["summary"]
    assert found["worst_over_best"] <= synthetic_loaders.BAR and found["within_bar"] == found["tunings"]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_resume_that_is_timed_starts_at_nine_tenths(num_workers, monkeypatch):
    seen = []
    load = synthetic_loaders.ResumableLoader.load_state_dict

    def loading(loader, state):
        load(loader, state)
        seen.append((loader.batches.offset, next(loader.batches.keys(0, loader.batches.offset)).start))

    monkeypatch.setattr(synthetic_loaders.ResumableLoader, "load_state_dict", loading)
    assert first_batch_ms(Numbers(10_000), num_workers) > 0
    assert seen == [(9000 // 64 * 64,) * 2] and torch.equal(Numbers(3)[2], torch.tensor(2))
