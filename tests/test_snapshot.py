"""The first epoch in one line: a pure function of rows written by hand."""

import pytest
import torch
from torch import nn

from course_utils.profiling import first_epoch_snapshot
from course_utils.training_loop import Trainer
from tests.conftest import make_tiny_model


def rows(num_steps=20, epoch=0, **more):
    return [
        {
            "step": k,
            "epoch": epoch,
            "loss": 3.0 - k / 10,
            "lr": k / 100,
            "grad_norm": float(k % 5),
            "wait_ms": k,
            **more,
        }
        for k in range(1, num_steps + 1)
    ]


def test_it_is_what_is_worked_out_by_hand():
    found = first_epoch_snapshot(rows(step_ms=42.0) + rows(epoch=1))
    assert (found.epoch, found.steps, found.lr) == (0, (1, 20), (0.01, 0.2))
    assert (found.first_loss, found.last_loss) == pytest.approx((2.9, 1.45))  # steps 11 to 20
    assert (found.grad_norm, found.max_grad_norm, found.wait_ms) == (2.0, 4.0, 10.5)
    assert (found.step_ms, found.wait_share) == (42.0, pytest.approx(210 / 840))
    told = "epoch 0 (steps 1-20) | loss 2.9 -> 1.45 | grad norm 2 (max 4) | lr 0.01 -> 0.2 | step 42 ms | wait 25%"
    assert str(found) == told


def test_without_times_of_steps_it_says_so_and_with_those_of_a_timer_it_has_the_share_of_medians():
    assert str(first_epoch_snapshot(rows())).endswith("| wait 10.5 ms | step not timed")
    timed = first_epoch_snapshot(rows(), step_ms=[20.0, 21.0, 99.0])
    assert (timed.step_ms, timed.wait_share) == (21.0, 0.5)
    assert first_epoch_snapshot(rows(), step_ms=[1.0]).wait_share == 1.0
    assert first_epoch_snapshot(rows(), step_ms=[]).step_ms is None


def test_a_short_epoch_has_the_mean_of_all_its_losses_and_a_later_first_epoch_its_number():
    found = first_epoch_snapshot(rows(3, epoch=4) + rows(5, epoch=5))
    assert found.last_loss == pytest.approx(2.8) and (found.epoch, found.steps) == (4, (1, 3))


def test_a_trainers_history_will_do_and_stays_as_it_is():
    model = make_tiny_model()
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.5), nn.CrossEntropyLoss())
    trainer.fit([(torch.ones(2, 4), torch.zeros(2, dtype=torch.int64))] * 4, num_epochs=2)
    before = [dict(row) for row in trainer.history]
    found = first_epoch_snapshot(trainer.history)
    assert found.steps == (1, 4) and found.lr == (0.5, 0.5) and found.last_loss < found.first_loss
    assert trainer.history == before


@pytest.mark.parametrize(
    "history, told",
    [([], "the history is empty"), ([{"step": 1, "loss": 2.0}], "epoch, lr, grad_norm, wait_ms is not")],
)
def test_what_is_no_history_is_refused(history, told):
    with pytest.raises(ValueError, match=told):
        first_epoch_snapshot(history)


def skewed(**more):
    """Three rows whose medians are far from their means."""
    values = [(1.0, 1.0, 1.0), (1.0, 2.0, 2.0), (10.0, 30.0, 60.0)]
    return [
        {"step": k, "epoch": 0, "loss": loss, "lr": 0.1, "grad_norm": norm, "wait_ms": wait, **more}
        for k, (loss, norm, wait) in enumerate(values, 1)
    ]


def test_the_loss_is_a_mean_and_the_others_are_medians_which_one_slow_step_does_not_move():
    found = first_epoch_snapshot(skewed(), step_ms=[4.0, 5.0, 90.0])
    assert (found.last_loss, found.grad_norm, found.wait_ms, found.step_ms, found.wait_share) == (4.0, 2, 2, 5, 0.4)
    rows_with_times = [row | {"step_ms": ms} for row, ms in zip(skewed(), (10.0, 11.0, 105.0), strict=True)]
    found = first_epoch_snapshot(rows_with_times)
    assert (found.step_ms, found.wait_share) == (11.0, 0.5)  # the share is of all time


def test_an_epoch_of_one_step_is_enough():
    found = first_epoch_snapshot(rows(1, step_ms=4.0))
    assert (found.steps, found.first_loss, found.last_loss, found.wait_share) == ((1, 1), 2.9, 2.9, 0.25)
