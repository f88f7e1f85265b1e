"""The mistakes of one optimizer step: each really goes wrong, and `update` in its place does not.

Wrong sums of micro-batches are in test_ragged.py (mean of means, divided by k, added up, first or last alone), frozen
parts that move in test_freezing.py.
"""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.optimizer_step import EMA, NonFiniteError, update
from tests.conftest import make_tiny_model


def setup(lr=0.1, **how):
    model = make_tiny_model()
    return model, torch.optim.SGD(model.parameters(), lr=lr, **how)


def weights(model):
    return torch.cat([param.detach().flatten() for param in model.parameters()])


def step_of(model):
    """How far the weights are from the start."""
    return (weights(model) - weights(make_tiny_model())).norm().item()


def cut(batch, lengths):
    return list(zip(*(part.split(lengths) for part in batch), strict=True))


def right_step(batch, **how):
    model, optimizer = setup()
    update(model, optimizer, F.cross_entropy, [batch], **how)
    return step_of(model)


# --- when to step ---------------------------------------------------------------------------------------------


def updates_made(num_batches, accumulate, when):
    return sum(when(batch, accumulate, num_batches) for batch in range(num_batches))


@pytest.mark.parametrize(
    "when, made",
    [
        (lambda b, k, n: (b + 1) % k == 0, [2, 0]),  # the last batches of an epoch never reach a step, or none does
        (lambda b, k, n: b % k == 0, [3, 1]),  # the right number, each on the first micro-batch alone
        (lambda b, k, n: (b + 1) % k == 0 or b + 1 == n, [math.ceil(10 / 4), math.ceil(3 / 4)]),
    ],
)
def test_how_many_updates_ten_and_three_batches_make(when, made):
    assert [updates_made(10, 4, when), updates_made(3, 4, when)] == made


def test_stepping_on_the_first_micro_batch_uses_a_quarter_of_the_data(tiny_batch):
    model, optimizer = setup()
    stepped = []
    for number, (inputs, targets) in enumerate(cut(tiny_batch, [3, 3, 3, 1])):
        F.cross_entropy(model(inputs), targets).backward()
        if number % 4 == 0:
            optimizer.step()
            stepped.append(len(inputs))
            optimizer.zero_grad()
    assert stepped == [3]
    report = update(*setup(), F.cross_entropy, cut(tiny_batch, [3, 3, 3, 1]))
    assert report.count == 10


def test_a_window_left_over_leaks_into_the_next_epoch(tiny_batch):
    """Two epochs of 3 micro-batches, a step after every 2: the second step mixes both epochs."""
    origins, window = [], []
    for epoch in range(2):
        for number in range(3):
            window.append(epoch)
            if (number + epoch * 3 + 1) % 2 == 0:
                origins.append(tuple(window))
                window = []
    assert (0, 1) in origins


def test_zero_grad_between_backward_and_step_trains_nothing(tiny_batch):
    model, optimizer = setup()
    F.cross_entropy(model(tiny_batch[0]), tiny_batch[1]).backward()
    optimizer.zero_grad()
    optimizer.step()
    assert step_of(model) == 0.0 < right_step(tiny_batch)


def test_zero_grad_in_every_micro_batch_leaves_the_last_one(tiny_batch):
    model, optimizer = setup()
    for inputs, targets in cut(tiny_batch, [5, 5]):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    alone, other = setup()
    update(alone, other, F.cross_entropy, [cut(tiny_batch, [5, 5])[1]])
    assert torch.equal(weights(model), weights(alone))


def test_without_zero_grad_gradients_of_all_steps_add_up(tiny_batch):
    model, optimizer = setup()
    F.cross_entropy(model(tiny_batch[0]), tiny_batch[1]).backward()
    first = model[0].weight.grad.clone()
    F.cross_entropy(model(tiny_batch[0]), tiny_batch[1]).backward()
    torch.testing.assert_close(model[0].weight.grad, 2 * first)
    update(model, optimizer, F.cross_entropy, [tiny_batch])
    torch.testing.assert_close(model[0].weight.grad, first)


# --- graphs ---------------------------------------------------------------------------------------------------


def live_graphs(keep, batch):
    """How many of three micro-batches' graphs are alive after the third forward."""
    model, alive, kept = make_tiny_model(), [], []

    class Graph(torch.autograd.Function):
        @staticmethod
        def forward(ctx, outputs):
            ctx.token = Token()
            return outputs.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Token:
        def __init__(self):
            alive.append(1)

        def __del__(self):
            alive.pop()

    for inputs, targets in cut(batch, [3, 3, 4]):
        loss = F.cross_entropy(Graph.apply(model(inputs)), targets)
        kept.append(keep(loss))
    del loss
    return len(alive)


@pytest.mark.parametrize(
    "keep, graphs",
    [(lambda loss: loss, 3), (lambda loss: loss.detach(), 0), (lambda loss: (loss.backward(), loss.item()), 0)],
)
def test_a_loss_that_is_kept_keeps_its_graph(tiny_batch, keep, graphs):
    assert live_graphs(keep, tiny_batch) == graphs


def test_one_backward_of_the_added_losses_gives_the_step_and_keeps_every_graph(tiny_batch):
    model, optimizer = setup()
    total = sum(F.cross_entropy(model(x), y) * len(y) / 10 for x, y in cut(tiny_batch, [6, 4]))
    total.backward()
    optimizer.step()
    assert step_of(model) == pytest.approx(right_step(tiny_batch), rel=1e-5)


def test_backward_twice_through_one_graph_is_an_error_that_retain_graph_hides(tiny_batch):
    model = make_tiny_model()
    loss = F.cross_entropy(model(tiny_batch[0]), tiny_batch[1])
    loss.backward(retain_graph=True)
    once = model[0].weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(model[0].weight.grad, 2 * once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


# --- clipping -------------------------------------------------------------------------------------------------


def test_clipping_after_the_step_clips_nothing(tiny_batch):
    model, optimizer = setup()
    F.cross_entropy(model(tiny_batch[0]), tiny_batch[1]).backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    assert step_of(model) == pytest.approx(right_step(tiny_batch), rel=1e-5)
    assert right_step(tiny_batch, max_norm=0.01) == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_clipping_each_micro_batch_is_not_clipping_the_window(tiny_batch):
    model, optimizer = setup()
    for inputs, targets in cut(tiny_batch, [5, 5]):
        (F.cross_entropy(model(inputs), targets) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    right, other = setup()
    update(right, other, F.cross_entropy, cut(tiny_batch, [5, 5]), max_norm=0.1)
    assert (weights(model) - weights(right)).norm() > 0.05 * step_of(right)


@pytest.mark.parametrize("bad, others", [(math.nan, math.nan), (math.inf, 0.0)])
def test_one_bad_gradient_makes_all_of_them_nan_or_0_when_they_are_clipped(bad, others):
    params = [nn.Parameter(torch.ones(1)) for _ in range(2)]
    params[0].grad, params[1].grad = torch.tensor([bad]), torch.tensor([1.0])
    nn.utils.clip_grad_norm_(params, 1.0)
    assert str(params[1].grad.item()) == str(others)
    params[0].grad = torch.tensor([bad])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)


def test_an_infinite_gradient_that_was_clipped_leaves_a_finite_looking_norm_behind():
    param = nn.Parameter(torch.ones(2))
    param.grad = torch.tensor([math.inf, 1.0])
    nn.utils.clip_grad_value_([param], 1.0)
    assert torch.isfinite(param.grad).all()  # nothing tells any more


# --- float16 --------------------------------------------------------------------------------------------------


def fp16_step(batch, how, max_norm=0.5, scale=2.0**16):
    """One scaled step by hand; `how` clips, and may unscale."""
    model, optimizer = setup(lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    scaler.scale(10 * F.cross_entropy(model(batch[0]), batch[1])).backward()
    how(scaler, optimizer, lambda: nn.utils.clip_grad_norm_(model.parameters(), max_norm))
    scaler.step(optimizer)
    scaler.update()
    return step_of(model)


def test_clipping_before_unscale_clips_the_scale_away(tiny_batch):
    right = fp16_step(tiny_batch, lambda scaler, optimizer, clip: (scaler.unscale_(optimizer), clip()))
    wrong = fp16_step(tiny_batch, lambda scaler, optimizer, clip: clip())
    early = fp16_step(tiny_batch, lambda scaler, optimizer, clip: (clip(), scaler.unscale_(optimizer)))
    assert right == pytest.approx(0.5, rel=1e-3) and wrong == early == pytest.approx(0.5 / 2**16, rel=0.05)


def test_unscaling_twice_is_an_error_also_once_a_micro_batch(tiny_batch):
    with pytest.raises(RuntimeError, match="already been called"):
        fp16_step(tiny_batch, lambda scaler, optimizer, clip: (scaler.unscale_(optimizer), scaler.unscale_(optimizer)))


def test_updating_the_scale_in_the_middle_of_a_window_mixes_two_scales(tiny_batch):
    """The scale doubles after the first micro-batch: its gradient is divided by twice what it was multiplied by."""
    model, optimizer = setup(lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
    parts = cut(tiny_batch, [5, 5])
    for inputs, targets in parts:
        scaler.scale(F.cross_entropy(model(inputs), targets) / 2).backward()
        if inputs is parts[0][0]:
            scaler.update(2048.0)
    scaler.step(optimizer)
    right, other = setup(lr=1.0)
    update(right, other, F.cross_entropy, parts, scaler=torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert (weights(model) - weights(right)).norm() > 0.1 * step_of(right)


def test_plain_loss_times_count_costs_the_first_steps_of_a_healthy_run():
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(512, 4, generator=generator), torch.randint(3, (512,), generator=generator)
    model, scaler, skipped = make_tiny_model(), torch.amp.GradScaler("cpu"), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss * 512).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    assert 1 <= skipped < 12  # update skips none: test_a_healthy_float16_run_skips_no_step_however_its_window_is_cut


def overflowing(outputs, targets):
    return outputs.sum() * 1e36


def test_scaler_step_returns_none_both_ways_and_a_schedule_moves_on_a_skipped_step(tiny_batch):
    model, optimizer = setup()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(overflowing(model(tiny_batch[0]), None)).backward()
    assert scaler.step(optimizer) is None
    scaler.update()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05 and step_of(model) == 0.0  # halved without an update
    assert "before `optimizer.step()`" in str(caught[0].message)
    report = update(model, optimizer, overflowing, [tiny_batch], scaler=scaler)
    assert report.skipped == "overflow"  # what a loop can ask


def test_an_average_that_counts_skipped_steps_forgets_too_early(tiny_batch):
    model = make_tiny_model()
    naive, right = EMA(model), EMA(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for loss_fn in [overflowing] * 20 + [F.cross_entropy]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        report = update(model, optimizer, loss_fn, [tiny_batch], scaler=scaler)
        naive.update(model)
        if not report.skipped:
            right.update(model)
    assert (naive.num_updates, right.num_updates) == (21, 1)
    assert not torch.allclose(naive.average["0.weight"], right.average["0.weight"])


def test_nan_in_every_step_halves_the_scale_without_an_error_and_without_a_scaler_is_one(tiny_batch):
    model, optimizer = setup()
    scaler = torch.amp.GradScaler("cpu")

    def broken(outputs, targets):
        return outputs.sum() * math.nan

    assert {update(model, optimizer, broken, [tiny_batch], scaler=scaler).skipped for _ in range(180)} == {"overflow"}
    assert scaler.get_scale() == 0.0
    with pytest.raises(NonFiniteError):
        update(model, optimizer, broken, [tiny_batch])


def test_a_scaler_that_is_not_saved_begins_with_a_burst_of_skipped_steps(tiny_batch):
    def skips(scaler):
        run = setup(lr=0.0)
        reports = [update(*run, lambda o, t: o.sum() * 1e15, [tiny_batch], scaler=scaler) for _ in range(20)]
        return sum(report.skipped == "overflow" for report in reports)

    scaler, resumed, fresh = (torch.amp.GradScaler("cpu", init_scale=2.0**80) for _ in range(3))
    assert skips(scaler) > 3
    resumed.load_state_dict(scaler.state_dict())
    assert skips(resumed) == 0 and skips(fresh) > 3


def test_without_a_scale_small_gradients_are_0_in_float16():
    layer, inputs = nn.Linear(2, 2, bias=False), torch.ones(1, 2)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = layer(inputs).float().sum() * 1e-8
    loss.backward()
    assert torch.equal(layer.weight.grad, torch.zeros(2, 2))
    layer.weight.grad = None
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    how = {"scaler": scaler, "autocast_dtype": torch.float16, "count_fn": len}
    update(layer, optimizer, lambda outputs, targets: outputs.float().sum() * 1e-8, [(inputs, inputs)], **how)
    torch.testing.assert_close(layer.weight.grad, torch.full((2, 2), 1e-8), rtol=1e-2, atol=0)


def test_a_mask_of_minus_a_billion_is_no_float16_number():
    scores, mask = torch.zeros(1, 2, dtype=torch.float16), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="cannot be converted"):
        scores.masked_fill(mask, -1e9)
    assert torch.isnan((scores + torch.tensor(-1e9).half()).softmax(1)).all()  # a row of -inf
    lowest = scores.masked_fill(mask, torch.finfo(torch.float16).min)
    assert lowest.softmax(1).tolist() == [[0.5, 0.5]]


def test_backward_inside_autocast_computes_the_same_here(tiny_batch):
    """The advice is to leave it out: on another device or version it may not."""
    found = []
    for inside in (True, False):
        model = make_tiny_model()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tiny_batch[0]), tiny_batch[1])
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        found.append(model[0].weight.grad)
    assert torch.equal(*found)
