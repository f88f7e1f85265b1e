import io
import math
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from course_utils import training_loop
from course_utils.evaluation import evaluate
from course_utils.loaders import ResumableLoader
from course_utils.optimizer_step import NonFiniteError
from course_utils.randomness import derive_seed, seed_everything
from course_utils.sampling import EpochBatches
from course_utils.schedules import warmup_cosine
from course_utils.training_loop import Trainer
from course_utils.windows import windows
from tests.conftest import make_tiny_model


def make_data(num_examples=22):
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(num_examples, 4, generator=generator)
    return TensorDataset(inputs, torch.randint(3, (num_examples,), generator=generator))


def make_loader(num_examples=22, batch_size=4, **how):
    return ResumableLoader(make_data(num_examples), batch_size=batch_size, seed=3, **how)


def make_trainer(*, dropout=0.3, total_steps=40, **how):
    """Momentum, a schedule and dropout: all that a resumed run could get wrong."""
    model = make_tiny_model(dropout=dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    plan = partial(warmup_cosine, warmup_steps=2, total_steps=total_steps)
    return Trainer(model, optimizer, F.cross_entropy, scheduler=LambdaLR(optimizer, plan), **({"seed": 1} | how))


def weights(trainer):
    return torch.cat([param.detach().flatten() for param in trainer.model.parameters()])


def rows(history):
    return [{name: value for name, value in row.items() if name != "wait_ms"} for row in history]


def run(num_steps=None, loader=None, num_epochs=None, val_loader=None, **how):
    loader = make_loader() if loader is None else loader
    return make_trainer(**how).fit(loader, num_steps=num_steps, num_epochs=num_epochs, val_loader=val_loader)


def saved_and_loaded(state, path):
    torch.save(state, path)
    return torch.load(path, weights_only=True)


# --- the loop itself


def test_the_trainer_makes_the_bits_of_a_loop_written_by_hand():
    trainer = run(num_epochs=2, max_norm=0.1)
    hand, loader, step = make_trainer(), make_loader(), 0
    for _ in range(2):
        for inputs, targets in loader:
            seed_everything(derive_seed(1, "step", step), rank=0)
            hand.optimizer.zero_grad()
            F.cross_entropy(hand.model(inputs), targets).backward()
            nn.utils.clip_grad_norm_(hand.model.parameters(), 0.1)
            hand.optimizer.step()
            hand.scheduler.step()
            step += 1
    assert trainer.step == step == 12
    assert torch.equal(weights(trainer), weights(hand))


def test_history_has_one_row_an_update_with_the_lr_it_used():
    trainer = run(num_epochs=2)
    assert len(trainer.history) == 12
    assert set(trainer.history[0]) == {"step", "epoch", "loss", "lr", "grad_norm", "wait_ms"}
    assert [row["step"] for row in trainer.history] == list(range(1, 13))
    assert [row["epoch"] for row in trainer.history] == [0] * 6 + [1] * 6
    expected = [0.05 * warmup_cosine(step, warmup_steps=2, total_steps=40) for step in range(12)]
    assert [row["lr"] for row in trainer.history] == pytest.approx(expected)
    assert all(type(row["loss"]) is float and row["grad_norm"] > 0 <= row["wait_ms"] for row in trainer.history)


@pytest.mark.parametrize(
    "num_epochs, num_steps, made", [(2, None, 12), (None, 7, 7), (2, 7, 7), (1, 7, 6), (0, None, 0), (None, 0, 0)]
)
def test_epochs_and_steps_are_totals_and_whichever_comes_first_ends_the_run(num_epochs, num_steps, made):
    trainer, loader = make_trainer(), make_loader()
    for _ in range(2):  # on a finished run fit does nothing
        trainer.fit(loader, num_epochs=num_epochs, num_steps=num_steps)
        assert trainer.step == len(trainer.history) == made


def test_fit_needs_an_end():
    with pytest.raises(ValueError, match="num_epochs=..., num_steps=..., or both"):
        make_trainer().fit(make_loader())
    for how in ({"accumulate": 0}, {"max_skips": 0}):
        with pytest.raises(ValueError, match="accumulate and max_skips need 1 or more, got .*0"):
            make_trainer(**how)


def test_an_epochs_last_window_holds_what_is_left():
    seen = []
    run(num_epochs=2, accumulate=4, on_step=lambda trainer, report, keys: seen.append((report.count, len(keys))))
    assert seen == [(16, 4), (6, 2)] * 2


def test_accumulated_windows_make_the_steps_of_larger_batches():
    small = run(num_epochs=2, loader=make_loader(batch_size=2), accumulate=4, dropout=0.0)
    large = run(num_epochs=2, loader=make_loader(batch_size=8), dropout=0.0)
    assert small.step == large.step == 6
    torch.testing.assert_close(weights(small), weights(large))


def test_a_loader_that_gives_no_batch_is_an_error_not_an_endless_loop():
    with pytest.raises(ValueError, match="no batch in epoch 0"):
        run(num_epochs=1, loader=make_loader(num_examples=3, drop_last=True))
    with pytest.raises(ValueError, match="no batch in epoch 0"):
        run(num_epochs=1, loader=[])


def test_frozen_layers_stay_frozen_and_a_model_in_eval_mode_is_woken():
    trainer = make_trainer()
    trainer.model[2].eval()
    trainer.fit(make_loader(), num_steps=2, val_loader=make_loader())
    assert trainer.model.training and not trainer.model[2].training
    trainer.model.eval()
    assert trainer.fit(make_loader(), num_steps=3).model[2].training


# --- randomness


def test_dropout_is_a_function_of_seed_step_and_rank():
    def drawing(trainer, report, keys):
        torch.rand(trainer.step)  # something else draws, differently at each step

    reference = weights(run(num_steps=8))
    torch.manual_seed(99)
    assert torch.equal(weights(run(num_steps=8, on_step=drawing)), reference)
    assert not torch.equal(weights(run(num_steps=8, seed=2)), reference)
    assert not torch.equal(weights(run(num_steps=8, rank=1)), reference)


def test_each_step_has_its_own_dropout():
    losses = [row["loss"] for row in run(num_steps=3, loader=[make_data().tensors], total_steps=10**9).history]
    trainer = make_trainer(total_steps=10**9)
    trainer.optimizer.param_groups[0]["lr"] = 0.0
    trainer.scheduler = None
    still = [row["loss"] for row in trainer.fit([make_data().tensors], num_steps=3).history]
    assert len(set(still)) == 3 == len(set(losses))


@pytest.mark.parametrize("fit", [True, False], ids=["fit", "steps"])
def test_a_seeded_trainer_puts_the_generators_back(fit):
    before = torch.get_rng_state()
    if fit:
        run(num_steps=3)
    else:
        iterator = make_trainer().steps(make_loader(), num_steps=3)
        next(iterator)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_no_generator_is_touched(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a generator was touched")

    for name in ("seed_everything", "isolated_rng"):
        monkeypatch.setattr(training_loop, name, forbidden)
    assert run(num_steps=3, seed=None, dropout=0.0).step == 3


def test_a_run_with_validation_in_a_thread_disturbs_no_draw_of_the_main_thread(monkeypatch):
    calls = []
    monkeypatch.setattr("course_utils.evaluation.isolated_rng", lambda: calls.append(1))
    batches = [make_data().tensors]
    work = partial(run, num_epochs=2, loader=batches, val_loader=batches, seed=None, dropout=0.0)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert calls == []
    with pytest.raises(TypeError):
        work()
    assert calls == [1]


def test_evaluation_leaves_training_bit_equal():
    with_validation = run(num_epochs=3, val_loader=make_loader(10))
    evaluating = run(num_epochs=3, on_step=lambda t, r, k: evaluate(t.model, make_loader(), F.cross_entropy))
    assert torch.equal(weights(with_validation), weights(run(num_epochs=3)))
    assert torch.equal(weights(evaluating), weights(with_validation))


# --- stop and go on


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("stop", [0, 1, 3, 5, 6, 7, 11])
def test_a_run_stopped_anywhere_goes_on_to_the_same_bits(tmp_path, stop, accumulate):
    whole = run(num_epochs=4, accumulate=accumulate, val_loader=make_loader(10))
    stop = min(stop, whole.step - 1)
    first = run(num_steps=stop, accumulate=accumulate, val_loader=make_loader(10))
    second = make_trainer(accumulate=accumulate)
    second.load_state_dict(saved_and_loaded(first.state_dict(), tmp_path / "state.pt"))
    second.fit(make_loader(), num_epochs=4, val_loader=make_loader(10))
    assert torch.equal(weights(second), weights(whole))
    assert rows(first.history + second.history) == rows(whole.history)
    assert first.val_history + second.val_history == whole.val_history
    assert second.best.metric == whole.best.metric and second.step == whole.step
    assert all(torch.equal(tensor, whole.best.model[name]) for name, tensor in second.best.model.items())


def test_steps_and_fit_are_the_same_run_and_can_take_turns():
    whole, trainer, loader = run(num_epochs=3), make_trainer(), make_loader()
    iterator = trainer.steps(loader, num_epochs=3)
    first = [next(iterator) for _ in range(4)]
    trainer.fit(loader, num_steps=9)
    rest = list(trainer.steps(loader, num_epochs=3))
    assert [row["step"] for row in first + rest] == [1, 2, 3, 4, *range(10, 19)]
    assert torch.equal(weights(trainer), weights(whole)) and rows(trainer.history) == rows(whole.history)


CHILD = """
import sys, torch
from tests.test_training_loop import make_loader, make_trainer, weights
torch.set_num_threads(1)
trainer = make_trainer()
trainer.load_state_dict(torch.load(sys.argv[1], weights_only=True))
trainer.fit(make_loader(), num_steps=15)
torch.save(weights(trainer), sys.argv[1])
"""


def test_a_run_goes_on_to_the_same_bits_in_a_new_process(tmp_path):
    path, root = tmp_path / "state.pt", str(Path(__file__).parents[1])
    torch.save(run(num_steps=9).state_dict(), path)  # in the middle of the second epoch
    subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, cwd=root)
    assert torch.equal(torch.load(path, weights_only=True), weights(run(num_steps=15)))


def test_the_end_of_an_epoch_that_a_stop_came_before_is_made_up_for():
    val_loader = make_loader(10)
    whole = run(num_epochs=2, val_loader=val_loader)
    first = make_trainer()
    updates = first.steps(make_loader(), num_epochs=2, val_loader=val_loader)
    for _ in range(6):  # the epoch's last update is made, its validation is not
        next(updates)
    assert first.state_dict()["epoch_end_due"] and first.val_history == []
    second = make_trainer()
    second.load_state_dict(first.state_dict())
    second.fit(make_loader(), num_epochs=2, val_loader=val_loader)
    assert second.val_history == whole.val_history and len(whole.val_history) == 2
    assert set(whole.val_history[0]) == {"step", "epoch", "train_loss", "loss", "accuracy"}


@pytest.mark.parametrize("resumed", [False, True], ids=["same trainer", "resumed"])
@pytest.mark.parametrize("more", [0, 4])
def test_a_run_that_ended_with_an_epoch_owes_its_validation_to_the_fit_that_brings_a_loader(resumed, more):
    val_loader, loader = make_loader(10), make_loader()
    whole = run(num_steps=6 + more, val_loader=val_loader)
    trainer = run(num_steps=6, loader=loader).fit(loader, num_steps=6)  # a second fit without one changes nothing
    assert trainer.val_history == []
    if resumed:
        state, trainer, loader = trainer.state_dict(), make_trainer(), make_loader()
        trainer.load_state_dict(state)
    for _ in range(2):  # once, not twice
        trainer.fit(loader, num_steps=6 + more, val_loader=val_loader)
        assert trainer.val_history == whole.val_history and len(whole.val_history) == 1


def test_an_epoch_that_is_owed_keeps_its_number_under_a_fresh_loader():
    trainer = run(num_epochs=2)
    trainer.fit(make_loader(), num_steps=13, val_loader=make_loader(10))
    assert [(row["epoch"], row["step"]) for row in trainer.val_history] == [(1, 12)]


def test_the_best_metric_survives_a_resume_and_is_not_overwritten_by_a_worse_one():
    first = run(num_epochs=1, val_loader=make_loader(10))
    state = first.state_dict()
    state["best"]["metric"] = {"accuracy": 1.0, "loss": 0.0, "step": 3}
    second = make_trainer()
    second.load_state_dict(state)
    second.fit(make_loader(), num_epochs=2, val_loader=make_loader(10))
    assert second.best.metric == state["best"]["metric"]
    assert torch.equal(second.best.model["0.weight"], state["best"]["model"]["0.weight"])


def test_the_best_model_is_the_one_that_was_validated_and_training_on_leaves_it():
    trainer, kept = make_trainer(total_steps=200), {}
    updates = trainer.steps(make_loader(), num_epochs=9, val_loader=make_loader(10))
    for row in updates:
        kept[row["step"]] = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    best = max(trainer.val_history, key=lambda row: row["accuracy"])  # the first of the largest
    assert trainer.best.metric == {name: best[name] for name in ("accuracy", "loss", "step")}
    assert best["step"] < trainer.step
    assert all(torch.equal(tensor, kept[best["step"]][name]) for name, tensor in trainer.best.model.items())
    trainer.model.load_state_dict(trainer.best.model)
    assert evaluate(trainer.model, make_loader(10), F.cross_entropy).accuracy == best["accuracy"]
    assert run(num_epochs=1, val_loader=make_loader(10), keep_best=False).best.model is None


# --- early stop


class Still:
    """In the place of `evaluate`: accuracies out of a table."""

    def __init__(self, *accuracies):
        self.rest = list(accuracies)

    def __call__(self, model, loader, loss_fn, **how):
        return training_loop.Evaluation(1.0, self.rest.pop(0), None, 10)


def test_a_run_without_progress_stops_after_patience_validations(monkeypatch):
    monkeypatch.setattr(training_loop, "evaluate", Still(0.5, 0.6, 0.6, 0.5))
    trainer, loader = make_trainer(patience=2, total_steps=200), make_loader()
    trainer.fit(loader, num_epochs=20, val_loader=loader)
    assert trainer.stopped_by == "patience" and trainer.step == 24 and trainer.best.metric["step"] == 12
    trainer.fit(loader, num_epochs=20, val_loader=loader)  # it stays stopped
    assert trainer.step == 24 and trainer.stopped_by == "patience"
    assert list(trainer.steps(loader, num_epochs=20, val_loader=loader)) == []
    trainer.best.patience = 3
    monkeypatch.setattr(training_loop, "evaluate", Still(0.5))
    assert trainer.fit(loader, num_epochs=20, val_loader=loader).step == 30


@pytest.mark.parametrize("stop", [5, 6, 14, 18, 20, 23])
def test_a_resumed_run_stops_early_at_the_same_step(monkeypatch, tmp_path, stop):
    table = [0.5, 0.55, 0.58, 0.99]  # each step is small: the best moves, the patience runs out
    how = {"patience": 2, "min_delta": 0.1, "total_steps": 200}
    monkeypatch.setattr(training_loop, "evaluate", Still(*table))
    first = run(num_steps=stop, val_loader=make_loader(), **how)
    second = make_trainer(**how)
    second.load_state_dict(saved_and_loaded(first.state_dict(), tmp_path / "state.pt"))
    second.fit(make_loader(), num_epochs=20, val_loader=make_loader())
    assert second.step == 18 and second.stopped_by == "patience" and second.best.metric["step"] == 18


def test_min_delta_reaches_the_best_and_patience_needs_a_validation(monkeypatch):
    monkeypatch.setattr(training_loop, "evaluate", Still(0.5, 0.55))
    trainer = run(num_epochs=9, val_loader=make_loader(), patience=1, min_delta=0.1)
    assert trainer.step == 12 and trainer.best.metric["step"] == 12
    with pytest.raises(ValueError, match="patience=1 counts validations: fit needs val_loader"):
        make_trainer(patience=1).fit(make_loader(), num_epochs=1)


def test_an_epoch_in_which_every_update_was_skipped_has_no_train_loss():
    inputs, targets = make_data(8).tensors
    nothing, whole = (inputs, targets * 0 - 100), (inputs, targets)
    epochs = iter([[whole], [nothing], [whole]])

    class Changing:
        def __iter__(self):
            return iter(next(epochs))

    trainer = run(num_epochs=3, loader=Changing(), val_loader=[whole])
    losses = [row["train_loss"] for row in trainer.val_history]
    assert losses[1] is None and losses[0] > 0 < losses[2]


def test_the_running_mean_of_an_epoch_survives_a_resume():
    first = run(num_steps=3)
    second = make_trainer()
    second.load_state_dict(first.state_dict())
    second.fit(make_loader(), num_epochs=1, val_loader=make_loader(10))
    whole = run(num_epochs=1, val_loader=make_loader(10))
    assert second.val_history[0]["train_loss"] == whole.val_history[0]["train_loss"]
    losses = [row["loss"] for row in whole.history]
    expected = (sum(losses[:5]) * 4 + losses[5] * 2) / 22  # a ragged last batch counts for what it holds
    assert whole.val_history[0]["train_loss"] == pytest.approx(expected)


def test_a_state_does_not_change_while_training_goes_on_and_loading_copies_it():
    trainer, loader = make_trainer(), make_loader()
    trainer.fit(loader, num_steps=4)
    state, again = trainer.state_dict(), trainer.state_dict()
    trainer.fit(loader, num_steps=8)
    assert str(state) == str(again) and state["step"] == 4
    other = make_trainer()
    other.load_state_dict(state)
    other.fit(make_loader(), num_steps=8)
    assert str(state) == str(again)
    assert torch.equal(weights(other), weights(trainer))


class Shadow:
    """A moving average with a counter: what an `ema` is to the trainer."""

    def __init__(self, model):
        self.average, self.num_updates = [param.detach().clone() for param in model.parameters()], 0

    def update(self, model):
        self.num_updates += 1
        for mine, param in zip(self.average, model.parameters(), strict=True):
            mine.lerp_(param.detach(), 0.3)

    def state_dict(self):
        return {"average": self.average, "num_updates": self.num_updates}

    def load_state_dict(self, state):
        self.average, self.num_updates = state["average"], state["num_updates"]


def test_scaler_and_average_are_part_of_the_state(tmp_path):
    def make():
        trainer = make_trainer(scaler=torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3))
        trainer.ema = Shadow(trainer.model)
        return trainer

    whole, first, second = make().fit(make_loader(), num_steps=11), make().fit(make_loader(), num_steps=4), make()
    second.load_state_dict(saved_and_loaded(first.state_dict(), tmp_path / "state.pt"))
    second.fit(make_loader(), num_steps=11)
    assert second.scaler.state_dict() == whole.scaler.state_dict() and whole.scaler.get_scale() == 2.0**13
    assert second.ema.num_updates == 11 and torch.equal(weights(second), weights(whole))
    assert all(torch.equal(a, b) for a, b in zip(second.ema.average, whole.ema.average, strict=True))


STATE = """
    model parameters optimizer optimizer_order scheduler plan scaler ema seed step mean best environment loader
    epoch_end_due
"""


def test_a_state_holds_all_that_the_contract_lists():
    state = run(num_steps=7, val_loader=make_loader(10)).state_dict()
    assert state.keys() == set(STATE.split())
    assert state["plan"] == {
        "class": "LambdaLR",
        "factors": [{"name": "warmup_cosine", "args": [], "kwargs": {"warmup_steps": 2, "total_steps": 40}}],
    }
    assert (state["step"], state["seed"], state["mean"]["count"], state["epoch_end_due"]) == (7, 1, 4, False)
    assert (state["loader"]["epoch"], state["loader"]["offset"], state["best"]["metric"]["step"]) == (1, 4, 6)
    assert state["parameters"][0] == ("0.weight", (4, 4)) and "torch" in state["environment"]


def test_the_state_has_the_models_own_names_and_no_history():
    trainer = make_trainer()
    compiled = nn.Module()
    compiled._orig_mod = trainer.model
    plain = trainer.state_dict()
    trainer.model = compiled
    state = trainer.state_dict()
    assert state["model"].keys() == plain["model"].keys() == {"0.weight", "0.bias", "3.weight", "3.bias"}
    assert "history" not in state


# --- states and loaders


def stopped(num_steps=4):
    return run(num_steps=num_steps).state_dict()


def test_a_state_waits_for_the_loader_that_fit_brings():
    trainer = make_trainer()
    trainer.load_state_dict(stopped())
    assert trainer.state_dict()["loader"] == stopped()["loader"]
    loader = make_loader()
    trainer.fit(loader, num_steps=4)
    assert loader.state_dict()["offset"] == 16


@pytest.mark.parametrize("fresh", [False, True], ids=["the same loader", "a fresh loader"])
def test_a_state_loaded_into_a_trainer_that_has_run_moves_its_loader(fresh):
    trainer, loader = make_trainer(), make_loader()
    trainer.fit(loader, num_steps=8)
    state, eight = stopped(), weights(trainer)
    trainer.load_state_dict(state)
    assert loader.state_dict()["offset"] == 16
    trainer.fit(make_loader() if fresh else loader, num_steps=8)
    assert torch.equal(weights(trainer), eight)


def test_a_state_with_a_place_in_an_epoch_is_not_lost_on_a_plain_loader():
    trainer = make_trainer()
    trainer.load_state_dict(stopped())
    with pytest.raises(ValueError, match="16 examples into epoch 0.*give a ResumableLoader"):
        trainer.fit([make_data().tensors], num_epochs=1)
    plain = run(num_epochs=1, loader=[make_data().tensors]).state_dict()
    trainer = make_trainer()
    trainer.load_state_dict(plain)
    with pytest.raises(ValueError, match="no place inside an epoch"):
        trainer.fit(make_loader(), num_epochs=2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [(x, y) for x, y in DataLoader(make_data(), batch_size=4)],
        lambda: DataLoader(make_data(), batch_size=4),
        lambda: DataLoader(make_data(), batch_sampler=EpochBatches(22, batch_size=4, seed=0, shuffle=False)),
    ],
    ids=["list", "DataLoader", "EpochBatches"],
)
def test_plain_loaders_and_lists_of_batches_train_too(make):
    expected = run(num_epochs=3, loader=make_loader(shuffle=False), accumulate=4)
    trainer = run(num_epochs=3, loader=make(), accumulate=4)
    assert torch.equal(weights(trainer), weights(expected))
    assert [row["epoch"] for row in trainer.history] == [0, 0, 1, 1, 2, 2]


def test_a_plain_loader_goes_on_at_the_next_epoch():
    batches = list(DataLoader(make_data(), batch_size=4))
    first = run(num_epochs=1, loader=batches)
    second = make_trainer()
    second.load_state_dict(first.state_dict())
    second.fit(batches, num_epochs=3)
    assert torch.equal(weights(second), weights(run(num_epochs=3, loader=batches)))
    assert first.fit(batches, num_epochs=3).step == 18


def test_a_plain_loader_made_anew_goes_on_counting_epochs():
    trainer = run(num_epochs=1, loader=DataLoader(make_data(), batch_size=4))
    trainer.fit(DataLoader(make_data(), batch_size=4), num_epochs=2)
    assert [row["epoch"] for row in trainer.history] == [0] * 6 + [1] * 6


def test_steps_and_fit_count_the_epochs_of_a_plain_loader_together():
    trainer, batches = make_trainer(), list(DataLoader(make_data(), batch_size=4))
    iterator = trainer.steps(batches, num_epochs=3)
    for _ in range(6):
        next(iterator)
    trainer.fit(batches, num_epochs=2)
    assert [row["epoch"] for row in iterator] == [2] * 6


# --- mismatches


def other_model(*sizes):
    model = nn.Sequential(*(nn.Linear(one, two) for one, two in zip(sizes, sizes[1:], strict=False)))
    return Trainer(model, torch.optim.AdamW(model.parameters()), F.cross_entropy, seed=1)


class Average:
    def update(self, model):
        pass

    def state_dict(self):
        return {}


def normalised():
    model = nn.Sequential(*make_tiny_model(), nn.BatchNorm1d(3, affine=False))
    return Trainer(model, torch.optim.AdamW(model.parameters()), F.cross_entropy, seed=1)


def with_optimizer(make):
    trainer = make_trainer()
    trainer.optimizer = make(trainer.model)
    return trainer


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: make_trainer(total_steps=50), "'total_steps': 40.*'total_steps': 50"),
        (lambda: make_trainer(seed=2), "seed was 1 when saved and is 2 now"),
        (lambda: make_trainer(seed=None), "seed was 1 when saved and is None now"),
        (lambda: make_trainer(ema=Average()), "saved without ema and is with one now"),
        (lambda: make_trainer(scaler=torch.amp.GradScaler("cpu")), "saved without scaler and is with one now"),
        (lambda: other_model(4, 5, 3), r"parameter 0 was 0.weight \(4, 4\), is 0.weight \(5, 4\)"),
        (normalised, "only the model has 4.num_batches_tracked"),
        (lambda: with_optimizer(lambda model: torch.optim.SGD(model.parameters(), lr=1)), "was AdamW .* is SGD"),
        (lambda: with_optimizer(lambda m: torch.optim.AdamW(reversed(list(m.parameters())))), "groups was"),
    ],
    ids=["plan", "seed", "no seed", "ema", "scaler", "shapes", "buffers", "optimizer", "order"],
)
def test_a_state_of_another_run_is_refused_naming_both_sides_and_nothing_is_loaded(make, said):
    trainer = make()
    before = weights(trainer)
    with pytest.raises(ValueError, match=said):
        trainer.load_state_dict(stopped())
    assert torch.equal(weights(trainer), before) and trainer.step == 0


def test_another_order_of_examples_is_refused_before_anything_is_loaded():
    trainer = make_trainer()
    trainer.fit(ResumableLoader(make_data(), batch_size=4, seed=8), num_steps=1)
    before = weights(trainer)
    with pytest.raises(ValueError, match="seed was 3 when saved and is 8 now"):
        trainer.load_state_dict(stopped())
    assert torch.equal(weights(trainer), before) and trainer.step == 1


def test_another_environment_is_one_warning_old_to_new():
    state = stopped()
    state["environment"] |= {"torch": "2.0.0", "num_threads": 64}
    with pytest.warns(UserWarning) as caught:
        make_trainer().load_state_dict(state)
    assert len(caught) == 1
    assert "torch: 2.0.0 -> " in str(caught[0].message) and "num_threads: 64 -> 1" in str(caught[0].message)
    assert caught[0].filename == __file__


# --- the hook, skipped windows, signals


def test_on_step_comes_after_clipping_and_before_the_step_with_the_keys_of_the_window():
    seen, before = [], weights(make_trainer())

    def on_step(trainer, report, keys):
        norm = torch.cat([param.grad.flatten() for param in trainer.model.parameters()]).norm().item()
        seen.append((trainer.step, report.grad_norm > 0.01, norm, [key.start for key in keys]))
        assert trainer.step > 0 or torch.equal(weights(trainer), before)

    run(num_steps=2, accumulate=2, max_norm=0.01, on_step=on_step)
    assert seen == [(0, True, pytest.approx(0.01, rel=1e-3), [0, 4]), (1, True, pytest.approx(0.01, rel=1e-3), [8, 12])]


class CountingAverage(Average):
    calls = 0

    def update(self, model):
        self.calls += 1


@pytest.mark.parametrize("why", ["overflow", "no targets"])
def test_a_skipped_window_moves_the_data_but_no_step_schedule_average_or_history(why):
    def loss_fn(outputs, targets):
        return F.cross_entropy(outputs, targets) * (1e38 if bad and why == "overflow" else 1.0)

    inputs, targets = make_data().tensors
    trainer = make_trainer(ema=CountingAverage(), scaler=torch.amp.GradScaler("cpu"))
    trainer.loss_fn, bad = loss_fn, True
    trainer._how["count_fn"] = lambda targets: int((targets >= 0).sum())
    loader = ResumableLoader(TensorDataset(inputs, targets if why == "overflow" else targets * 0 - 100), batch_size=4)
    found = windows(loader, 1)
    for _ in range(2):
        window, keys, _ = next(found)
        assert trainer._update(window, keys).skipped == why
    assert (trainer.step, trainer.ema.calls, trainer.history, trainer.scheduler.last_epoch) == (0, 0, [], 0)
    assert loader.state_dict()["offset"] == 8


@pytest.mark.parametrize("how, skips", [({}, 100), ({"max_skips": 1}, 1), ({"max_skips": 7}, 7)])
def test_a_run_in_which_every_window_is_skipped_ends_with_an_error(how, skips):
    inputs, targets = make_data().tensors
    with pytest.raises(NonFiniteError, match=rf"{skips} updates in a row were skipped \(no targets\) at step 0"):
        run(num_steps=1, loader=[(inputs, targets * 0 - 100)], **how)


def test_only_skips_in_a_row_count():
    inputs, targets = make_data(8).tensors
    nothing, whole = (inputs, targets * 0 - 100), (inputs, targets)
    assert run(num_epochs=5, loader=[nothing, nothing, whole, nothing], max_skips=4).step == 5
    with pytest.raises(NonFiniteError, match="3 updates in a row .* at step 1"):
        run(num_epochs=5, loader=[nothing, nothing, whole, nothing], max_skips=3)


def test_skipped_windows_at_an_epochs_end_do_not_lose_its_end():
    inputs, targets = make_data(8).tensors
    batches = [(inputs[:4], targets[:4]), (inputs[4:], targets[4:] * 0 - 100)]
    trainer = run(num_epochs=2, loader=batches, val_loader=batches)
    assert [row["epoch"] for row in trainer.history] == [0, 1]
    assert [row["epoch"] for row in trainer.val_history] == [0, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_at_the_next_step_boundary_and_fit_goes_on(number):
    def interrupt(trainer, report, keys):
        if trainer.step == 3 and trainer.stopped_by is None:
            signal.raise_signal(number)

    whole, trainer, loader = run(num_epochs=2), make_trainer(on_step=interrupt), make_loader()
    with pytest.warns(UserWarning, match=f"{number.name}: stopped after step 4"):
        trainer.fit(loader, num_epochs=2)
    assert trainer.step == 4 and trainer.stopped_by == number.name
    assert len(trainer.history) == 4 and trainer.state_dict()["step"] == 4  # all is usable
    trainer.fit(loader, num_epochs=2)
    assert trainer.stopped_by is None and torch.equal(weights(trainer), weights(whole))


def test_a_signal_during_a_validation_stops_before_the_next_epoch(monkeypatch):
    def interrupted(*args, **how):
        signal.raise_signal(signal.SIGTERM)
        return evaluate(*args, **how)

    whole, loader = run(num_epochs=2, val_loader=make_loader(10)), make_loader()
    monkeypatch.setattr(training_loop, "evaluate", interrupted)
    trainer = make_trainer()
    with pytest.warns(UserWarning, match="SIGTERM: stopped after step 6"):
        trainer.fit(loader, num_epochs=2, val_loader=make_loader(10))
    assert trainer.step == 6 and len(trainer.val_history) == 1
    monkeypatch.undo()
    trainer.fit(loader, num_epochs=2, val_loader=make_loader(10))
    assert torch.equal(weights(trainer), weights(whole)) and trainer.val_history == whole.val_history


def test_a_second_ctrl_c_stops_at_once_and_leaves_the_generators():
    def interrupt_twice(trainer, report, keys):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before, handler = torch.get_rng_state(), signal.getsignal(signal.SIGINT)
    trainer = make_trainer(on_step=interrupt_twice)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(make_loader(), num_epochs=2)
    assert trainer.step == 0 and torch.equal(weights(trainer), weights(make_trainer()))
    assert torch.equal(torch.get_rng_state(), before) and signal.getsignal(signal.SIGINT) is handler


def test_what_is_not_finite_stops_the_run_with_weights_as_they_were():
    inputs, targets = make_data(8).tensors
    spoiled = inputs.clone()
    spoiled[5] = math.nan
    trainer = make_trainer(dropout=0.0)
    with pytest.raises(NonFiniteError):
        trainer.fit([(inputs, targets), (spoiled, targets)], num_epochs=1)
    assert trainer.step == 1 and torch.isfinite(weights(trainer)).all()


def test_the_bar_counts_updates_and_changes_nothing(capsys):
    trainer = run(num_epochs=2, accumulate=4, progress=True)
    shown = capsys.readouterr().err
    assert "4/4" in shown and all(f"{name}=" in shown for name in ("loss", "lr", "norm", "wait"))
    assert torch.equal(weights(trainer), weights(run(num_epochs=2, accumulate=4)))
    text = io.StringIO()
    run(num_epochs=2, accumulate=4, progress=text)
    assert "4/4" in text.getvalue() and "loss=" in text.getvalue() and capsys.readouterr().err == ""


def test_what_belongs_to_an_update_reaches_it_and_the_rest_does_not(monkeypatch):
    seen, plain = [], training_loop.update

    def watched(*args, **how):
        seen.append(how)
        return plain(*args, **how)

    monkeypatch.setattr(training_loop, "update", watched)
    how = {"max_norm": 0.5, "max_value": 0.1, "autocast_dtype": torch.bfloat16, "count_fn": len}
    how |= {"sync": lambda model, totals: totals, "scaler": torch.amp.GradScaler("cpu")}
    run(num_steps=2, **how)
    assert len(seen) == 2 and all(given == how | {"before_step": None} for given in seen)


def test_training_and_validation_batches_are_moved_to_the_device(monkeypatch):
    seen = []
    for module in ("windows", "evaluation"):
        watched = lambda batch, device, module=module: (seen.append((module, device)), batch)[1]  # noqa: E731
        monkeypatch.setattr(f"course_utils.{module}.to_device", watched)
    run(num_epochs=1, val_loader=make_loader(8), device="cpu", loader=make_loader(8))
    assert seen == [("windows", "cpu")] * 2 + [("evaluation", "cpu")] * 2


def test_validation_counts_as_training_does():
    batches = [make_data(8).tensors, make_data(3).tensors]
    trainer = run(num_epochs=1, loader=batches, val_loader=batches, count_fn=lambda targets: float(len(targets) == 8))
    whole = evaluate(trainer.model, batches[:1], F.cross_entropy)
    assert trainer.val_history[0]["loss"] == whole.loss


def test_each_epochs_train_loss_is_its_own():
    trainer = run(num_epochs=2, val_loader=make_loader(10))
    for row in trainer.val_history:
        losses = [one["loss"] for one in trainer.history if one["epoch"] == row["epoch"]]
        assert row["train_loss"] == pytest.approx((sum(losses[:5]) * 4 + losses[5] * 2) / 22)
