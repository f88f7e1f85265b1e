"""The record on the scale of the input: how steps are counted, and what the chapter reads."""

from __future__ import annotations

import json
import statistics

import pytest
import torch

from benchmarks import normalisation, records


def test_the_target_is_reached_where_the_mean_of_a_window_is():
    losses = [3.0, 1.0, 2.0, 1.0, 1.0]
    assert normalisation.steps_to(losses, 2.0, 2) == 2  # (3 + 1) / 2
    assert normalisation.steps_to(losses, 1.4, 3) == 4  # (1 + 2 + 1) / 3 = 4 / 3, after (3 + 1 + 2) / 3 = 2
    assert normalisation.steps_to(losses, 0.9, 1) is None


def test_a_median_is_given_only_where_all_seeds_reached_the_target():
    rows = [{"steps_to_target": steps, "final_loss": 1.0, "test_accuracy": 0.5} for steps in (10, 30, None)]
    assert normalisation.summary(rows)["steps_to_target"] == {"each": [10, 30, None], "reached": 2, "median": None}
    assert normalisation.summary(rows[:2])["steps_to_target"]["median"] == 20


@pytest.fixture
def few_photos(monkeypatch):
    values = torch.randint(0, 256, (40, 3, 32, 32), generator=torch.Generator().manual_seed(0)).float()
    targets = torch.arange(40) % 10
    monkeypatch.setattr(normalisation, "pixels", lambda part: values)
    monkeypatch.setattr(normalisation, "photos", lambda part: normalisation.Examples(values, targets))
    normalisation.data.cache_clear()
    yield values
    normalisation.data.cache_clear()


def test_each_scale_is_what_it_says(few_photos):
    assert torch.equal(normalisation.data("raw", "train").inputs, few_photos)
    assert torch.equal(normalisation.data("unit", "train").inputs, few_photos / 255)
    assert normalisation.moments("own")["std"] == pytest.approx([1, 1, 1], abs=1e-3)
    red = (few_photos[:, 0] / 255 - 0.485) / 0.229
    assert torch.allclose(normalisation.data("imagenet", "test").inputs[:, 0], red)


def test_a_quick_run_gives_every_model_and_scale_and_stores_nothing(few_photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    normalisation.main(["--quick"])
    models = json.loads(capsys.readouterr().out)["models"]
    assert all(set(scales) == set(normalisation.SCALES) for scales in models.values()) and len(models) == 3
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", list(normalisation.MODELS))
def test_the_normalisation_record_holds_what_the_chapter_reads(model):
    record = records.load("normalisation")
    assert set(record["models"][model]) == set(normalisation.SCALES) == set(record["inputs"])
    for scale, rows in record["models"][model].items():
        assert list(rows) == [str(lr) for lr in normalisation.LRS[model]]
        losses = {lr: row["final_loss"]["mean"] for lr, row in rows.items()}
        assert losses[record["best_lr"][model][scale]] == min(losses.values())
        for row in rows.values():
            steps = row["steps_to_target"]["each"]
            reached = [step for step in steps if step is not None]
            assert len(steps) == len(row["final_loss"]["each"]) == 5
            whole = len(reached) == 5
            assert row["steps_to_target"]["median"] == (statistics.median(reached) if whole else None)
