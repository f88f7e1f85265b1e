"""The assembled program in its first form."""

import csv
import json
import subprocess
import sys

import pytest
import torch

from course_utils.models import small_cnn
from course_utils.train import build_run, main


def weights_after(num_steps, seed):
    run = build_run(seed=seed, num_epochs=1)
    run.trainer.fit(run.train_loader, num_steps=num_steps)
    return torch.cat([param.detach().flatten() for param in run.trainer.model.parameters()])


def test_a_run_is_a_function_of_its_seed():
    first = weights_after(5, seed=1)
    torch.rand(3)  # something else drew in between
    assert torch.equal(weights_after(5, seed=1), first)
    assert not torch.equal(weights_after(5, seed=2), first)


def test_building_a_run_draws_nothing_from_the_global_generator():
    before = torch.get_rng_state()
    build_run()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("wrong", [{"num_epochs": 0}, {"batch_size": 0}, {"lr": -1.0}])
def test_a_run_that_cannot_be_is_refused_with_what_came(wrong):
    with pytest.raises(ValueError, match="got"):
        build_run(**wrong)


@pytest.mark.slow
def test_the_program_reaches_85_percent_and_writes_what_it_says(tmp_path):
    command = [sys.executable, "-m", "course_utils.train", "--epochs", "4", "--output", str(tmp_path / "run")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    with (tmp_path / "run" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert result["test_accuracy"] > 0.85 and result["steps"] == len(rows) == 628
    state = torch.load(tmp_path / "run" / "weights.pt", weights_only=True)
    small_cnn().load_state_dict(state)


def test_several_ranks_are_refused_with_a_pointer(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit) as stop:
        main(["--epochs", "1"])
    assert stop.value.code == 2 and "chapter 12" in capsys.readouterr().err


def test_a_finished_run_is_not_overwritten(tmp_path, capsys):
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path)])
    assert "another --output" in capsys.readouterr().err and (tmp_path / "result.json").read_text() == "{}"
