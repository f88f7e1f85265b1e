"""A plateau scheduler gets a metric that says something, or an error before it has seen it."""

import math

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from course_utils.schedules import plateau_step


def optimizer_with(lr: float) -> SGD:
    return SGD([nn.Parameter(torch.ones(1))], lr=lr)


def plateau(*, lr=1.0, **kwargs):
    optimizer = optimizer_with(lr)
    return ReduceLROnPlateau(optimizer, **kwargs), optimizer.param_groups[0]


def test_a_plateau_lowers_the_lr_at_the_seventh_equal_value_for_patience_five():
    scheduler, group = plateau(patience=5)
    assert [plateau_step(scheduler, 0.5) for _ in range(13)] == [False] * 6 + [True] + [False] * 5 + [True]
    assert group["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize("metric", [math.nan, math.inf, -math.inf, torch.tensor(math.nan)])
def test_a_metric_that_is_not_finite_is_an_error_that_the_scheduler_never_sees(metric):
    scheduler, group = plateau(patience=0)
    plateau_step(scheduler, 0.5)
    before = repr(scheduler.state_dict())
    with pytest.raises(ValueError, match="must be finite"):
        plateau_step(scheduler, metric)
    assert (repr(scheduler.state_dict()), group["lr"]) == (before, 1.0)


def test_a_metric_for_another_scheduler_is_an_error():
    optimizer = optimizer_with(1.0)
    scheduler = CosineAnnealingLR(optimizer, T_max=10)
    with pytest.raises(ValueError, match=r"CosineAnnealingLR.step\(0.42\) would jump to epoch 0.42"):
        plateau_step(scheduler, 0.42)
    assert scheduler.last_epoch == 0


def test_plateau_step_is_the_schedulers_own_step():
    metrics = [0.9, 0.8, 0.8, 0.8, 0.8, 0.7, 0.71, 0.72, 0.73, 0.74]
    ours, mine = plateau(patience=1, cooldown=1)
    theirs, other = plateau(patience=1, cooldown=1)
    for metric in metrics:
        plateau_step(ours, torch.tensor(metric, dtype=torch.float64))
        theirs.step(metric)
        assert mine["lr"] == other["lr"]
    assert mine["lr"] < 1.0


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("metric", [-1.0, -1e-9, torch.tensor(-2.0)])
def test_a_metric_below_zero_with_a_relative_threshold_is_an_error_that_names_the_other(mode, metric):
    scheduler, group = plateau(mode=mode, patience=2)
    plateau_step(scheduler, 0.0)
    before = repr(scheduler.state_dict())
    with pytest.raises(ValueError, match="got -.* with threshold_mode='rel': .* build .* with threshold_mode='abs'"):
        plateau_step(scheduler, metric)
    assert (repr(scheduler.state_dict()), group["lr"]) == (before, 1.0)


@pytest.mark.parametrize("how", [{"threshold_mode": "abs"}, {"threshold": 0.0}])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_equal_metrics_below_zero_lower_the_lr_where_the_threshold_is_absolute_or_none(mode, how):
    scheduler, _ = plateau(mode=mode, patience=2, **how)
    assert [plateau_step(scheduler, -1.0) for _ in range(7)] == [False] * 3 + [True] + [False] * 2 + [True]
