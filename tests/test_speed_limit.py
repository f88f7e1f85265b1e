"""Operations counted and worked out by hand; the peak and the share as arithmetic on scripted times."""

import types

import pytest
import torch
from torch import nn

from course_utils import speed_limit as module
from course_utils.profiling import SpeedLimit, flops_of, matmul_peak_gflops, speed_limit


@pytest.mark.parametrize(
    "fn, flops",
    [
        (lambda: torch.ones(3, 4) @ torch.ones(4, 5), 2 * 3 * 4 * 5),
        (lambda: nn.Linear(4, 5)(torch.ones(3, 4)), 2 * 3 * 4 * 5),  # the bias is not counted
        (lambda: nn.Linear(4, 5)(torch.ones(3, 4)).sum().backward(), 2 * 2 * 3 * 4 * 5),  # the weights' gradient
        (lambda: nn.Conv2d(2, 3, 3, padding=1)(torch.ones(1, 2, 4, 4)), 2 * 2 * 3 * 9 * 16),
        (lambda: torch.ones(9).exp().sum(), 0),
    ],
)
def test_operations_are_those_worked_out_by_hand(fn, flops):
    assert flops_of(fn) == flops


def test_share_and_best_time_are_those_worked_out_by_hand():
    limit = SpeedLimit(flops=3_000_000_000, step_ms=100, peak_gflops=120)
    assert (limit.gflops, limit.share, limit.best_ms) == pytest.approx((30, 0.25, 25))
    assert "3000 million operations in 100 ms are 30 of 120 GFLOP/s, 25% of the peak; at the peak 25 ms" == str(limit)


def test_the_peak_is_that_of_the_fastest_product(monkeypatch):
    now, costs = [0.0], iter([9, 0.4, 0.2, 0.8, *[1.0] * 99])
    monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(module.torch, "mm", lambda a, b, out: now.__setitem__(0, now[0] + next(costs)))
    assert matmul_peak_gflops(1.0, size=1000) == pytest.approx(2 * 1000**3 / 0.2 / 1e9)


def test_a_step_has_a_limit_and_draws_nothing_of_its_own():
    weight, before = torch.ones(8, 8), torch.get_rng_state()
    limit = speed_limit(lambda: weight @ weight, seconds=0.02)
    assert limit.flops == 1024 and limit.step_ms > 0 and limit.peak_gflops > 0
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda: matmul_peak_gflops(0), "got seconds=0, size=1024"),
        (lambda: matmul_peak_gflops(size=0), "size=0"),
        (lambda: speed_limit(lambda: torch.ones(3).exp()), "no matrix product"),
    ],
)
def test_what_has_no_peak_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()
