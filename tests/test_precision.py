"""What autocast keeps in float32, what float16 loses, how a loss scale moves: found by running, not from a list."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.optimizer_step import Float32Island, autocast_policy, calls_of, scale_history, share_lost
from tests.conftest import make_tiny_model

HALVES = [torch.bfloat16, torch.float16]


# --- autocast -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", HALVES)
def test_products_run_in_the_lower_type_losses_in_float32_and_the_rest_as_it_comes(dtype):
    policy = autocast_policy(dtype=dtype)
    assert {policy[name] for name in ("matmul", "linear", "conv2d", "attention")} == {"lower"}
    assert policy["cross_entropy"] == policy["mse_loss"] == "float32"
    assert policy["relu"] == policy["add"] == policy["max_pool2d"] == "as it comes"
    assert set(policy.values()) <= {"lower", "float32", "as it comes"} and len(policy) >= 20


def test_operations_of_the_callers_are_tried_and_what_is_missing_is_said():
    def missing(x):
        if x.dtype is torch.bfloat16:
            raise NotImplementedError("not implemented for 'BFloat16'")
        return x

    tried = {"mine": lambda x: F.linear(x, x).relu(), "up": lambda x: x.float(), "missing": missing}
    found = autocast_policy(tried, dtype=torch.bfloat16)
    assert found == {"mine": "lower", "up": "float32", "missing": "not there"}


def autocast_step(model, batch, dtype=torch.bfloat16):
    with torch.autocast("cpu", dtype=dtype):
        loss = F.cross_entropy(model(batch[0]), batch[1])
    loss.backward()


def test_the_calls_of_a_step_show_casts_and_that_backward_has_forwards_types(tiny_batch):
    model = make_tiny_model()
    calls = calls_of(lambda: autocast_step(model, tiny_batch))
    products = [call for call in calls if call.name in ("addmm", "mm")]
    assert [call.name for call in products] == ["addmm", "addmm", "mm", "mm", "mm"]
    assert {dtype for call in products for dtype in (*call.takes, call.gives)} == {torch.bfloat16}
    softmax = next(call for call in calls if call.name == "_log_softmax")
    assert softmax.takes == (torch.float32,) and calls[0][1:] == ((torch.float32,), torch.bfloat16)
    assert all(call.name not in ("t", "view", "detach") for call in calls)


def test_without_autocast_nothing_is_cast(tiny_batch):
    model = make_tiny_model()
    calls = calls_of(lambda: F.cross_entropy(model(tiny_batch[0]), tiny_batch[1]).backward())
    assert {call.gives for call in calls} == {torch.float32} and "_to_copy" not in [call.name for call in calls]


def test_a_weight_that_is_used_twice_is_cast_once_inside_one_block():
    layer, inputs = nn.Linear(4, 4, bias=False), torch.randn(2, 4)

    def twice():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(layer(inputs))

    assert [call.name for call in calls_of(twice)].count("_to_copy") == 2  # input and weight


def test_calls_look_into_lists_and_leave_whole_numbers_out():
    found = calls_of(lambda: (torch.cat([torch.ones(1), torch.ones(1).double()]), torch.arange(3) + 1))
    assert [call.takes for call in found if call.name == "cat"] == [(torch.float32, torch.float64)]
    assert all(call.name not in ("add", "arange") for call in found)


# --- the island -----------------------------------------------------------------------------------------------


class SumOfSquares(nn.Module):
    """Overflows float16 from 256 on: 256 ** 2 > 65504."""

    def forward(self, inputs, *, weight=None):
        return inputs.pow(2).sum(1, keepdim=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_inside_the_island_a_layer_computes_in_float32(dtype):
    layer, inputs = nn.Linear(4, 4), torch.randn(2, 4).to(dtype)
    island = Float32Island(layer)
    with torch.autocast("cpu", dtype=dtype):
        assert layer(inputs).dtype is dtype
        assert torch.equal(island(inputs), layer.forward(inputs.float()).float()) is False
        out = island(inputs)
        assert torch.is_autocast_enabled("cpu")
    assert torch.equal(out, layer(inputs.float()))


def test_the_island_keeps_finite_what_overflows_outside():
    inputs = torch.full((1, 2), 300.0, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.isinf(SumOfSquares()(inputs)) and Float32Island(SumOfSquares())(inputs).item() == 180_000


def test_gradients_pass_through_the_island_into_the_type_before_it():
    island, inputs = Float32Island(nn.LayerNorm(4)), torch.randn(2, 4, dtype=torch.float16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        island(inputs).pow(2).sum().backward()
    assert inputs.grad.dtype is torch.float16 and island.inside.weight.grad.dtype is torch.float32


def test_the_island_takes_keywords_and_leaves_whole_numbers_and_float64():
    seen = {}

    class Spy(nn.Module):
        def forward(self, *args, **kwargs):
            seen.update(args=[x.dtype if torch.is_tensor(x) else x for x in args], kw=kwargs["mask"].dtype)

    Float32Island(Spy())(torch.zeros(1, dtype=torch.int64), torch.zeros(1).double(), "x", mask=torch.zeros(1).half())
    assert seen == {"args": [torch.int64, torch.float64, "x"], "kw": torch.float32}


def test_the_islands_parameters_are_named_inside():
    assert list(copy.deepcopy(Float32Island(nn.Linear(1, 1))).state_dict()) == ["inside.weight", "inside.bias"]


# --- what is lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scale, dtype, lost",
    [
        (1.0, torch.float16, (0.5, 0.0)),
        (1024.0, torch.float16, (0.25, 0.25)),
        (2.0**20, torch.float16, (0.0, 0.5)),
        (1.0, torch.bfloat16, (0.0, 0.0)),
    ],
)
def test_small_numbers_become_0_and_large_ones_inf(scale, dtype, lost):
    values = torch.tensor([1e-12, 1e-9, 1.0, 1e3, 0.0, math.nan, math.inf])
    assert share_lost(values, scale=scale, dtype=dtype) == lost


def test_nothing_but_zeros_has_no_share():
    with pytest.raises(ValueError, match="at least one number that is finite and not 0"):
        share_lost(torch.tensor([0.0, math.inf]))


# --- the loss scale -------------------------------------------------------------------------------------------


def test_the_scale_falls_at_an_overflow_and_grows_after_quiet_steps():
    rows = scale_history([1.0, 1.0, 1.0, 1e3, 1.0], init_scale=16384.0, growth_interval=2)
    assert [(row.step, row.scale, row.skipped) for row in rows] == [
        (1, 16384.0, False), (2, 16384.0, False), (3, 32768.0, False), (4, 32768.0, True), (5, 16384.0, False),
    ]  # fmt: skip
    assert [row.gradient for row in rows] == [1.0, 1.0, 1.0, math.inf, 1.0]


def test_a_small_gradient_is_lost_without_a_scale_and_kept_with_one():
    assert scale_history([1e-8], init_scale=1.0)[0].gradient == 0.0
    assert scale_history([1e-8])[0].gradient == pytest.approx(1e-8, rel=1e-2)


def test_an_overflow_costs_its_own_factor_and_a_wait_its_own_interval():
    rows = scale_history([1e9, 1.0, 1.0], init_scale=64.0, growth_interval=1, growth_factor=8.0, backoff_factor=0.25)
    assert [row.scale for row in rows] == [64.0, 16.0, 128.0]


def test_nan_in_every_step_takes_the_scale_to_0_without_an_error():
    assert scale_history([math.nan] * 200)[-1].scale == 0.0


def test_it_moves_as_a_scaler_of_a_real_model_does(tiny_batch):
    from course_utils.optimizer_step import update

    model, scaler = make_tiny_model(), torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.0), []
    factors = [1.0, 1e36, 1.0, 1.0, 1.0, 1.0]
    for factor in factors:
        found.append(scaler.get_scale())

        def loss_fn(outputs, targets, factor=factor):
            return outputs.sum() * factor

        update(model, optimizer, loss_fn, [tiny_batch], scaler=scaler)
    assert found == [row.scale for row in scale_history(factors, init_scale=1024.0, growth_interval=3)]
