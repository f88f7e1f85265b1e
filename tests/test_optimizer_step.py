import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.optimizer_step import NonFiniteError, default_count, update
from tests.conftest import make_tiny_model

CUTS = [[10], [5, 5], [4, 4, 2], [1, 9], [3, 0, 7], [0, 10, 0]]


def setup(lr=0.1, **how):
    model = make_tiny_model()
    return model, torch.optim.SGD(model.parameters(), lr=lr, **how)


def cut(batch, lengths):
    return list(zip(*(part.split(lengths) for part in batch), strict=True))


def gradients(model):
    return torch.cat([param.grad.flatten() for param in model.parameters()])


def weights(model):
    return torch.cat([param.detach().flatten() for param in model.parameters()])


@pytest.mark.parametrize("lengths", CUTS, ids=str)
def test_the_step_is_that_of_the_whole_batch_however_it_is_cut(tiny_batch, lengths):
    (whole, one), (parts, other) = setup(), setup()
    expected = update(whole, one, F.cross_entropy, [tiny_batch], max_norm=0.1)
    report = update(parts, other, F.cross_entropy, cut(tiny_batch, lengths), max_norm=0.1)
    torch.testing.assert_close(weights(parts), weights(whole))
    assert report[:3] == pytest.approx(expected[:3], rel=1e-5) and report.count == 10 and report.skipped == ""


@pytest.mark.parametrize("seed", range(15))
def test_a_token_weighted_window_is_the_whole_batch_to_a_millionth_for_any_cut(seed):
    """Sequences of 6 tokens, of which any number is padding."""
    generator = torch.Generator().manual_seed(seed)
    inputs, targets = torch.randn(12, 6, 4, generator=generator), torch.randint(3, (12, 6), generator=generator)
    targets[torch.rand(12, 6, generator=generator) < torch.rand(12, 1, generator=generator)] = -100
    ends = torch.randint(13, (4,), generator=generator).sort().values
    lengths = torch.diff(ends, prepend=torch.tensor([0]), append=torch.tensor([12])).tolist()
    model, optimizer = setup()
    whole = make_tiny_model()

    def loss_fn(outputs, targets, ignore_index=-100):
        return F.cross_entropy(outputs.transpose(1, 2), targets, ignore_index=ignore_index)

    loss_fn(whole(inputs), targets).backward()
    report = update(model, optimizer, loss_fn, cut((inputs, targets), lengths))
    assert (gradients(model) - gradients(whole)).norm() < 1e-6 * gradients(whole).norm()
    assert report.count == int((targets != -100).sum())


@pytest.mark.parametrize("lengths", [[10], [4, 4, 2]], ids=str)
def test_losses_and_norm_are_read_together_so_that_a_device_is_waited_for_once(tiny_batch, lengths, monkeypatch):
    model, optimizer = setup()
    reads = []
    for name in ("tolist", "item", "__float__", "__int__", "__bool__"):
        plain = getattr(torch.Tensor, name)

        def read(tensor, *args, name=name, plain=plain):
            reads.append((name, tensor.numel()))
            return plain(tensor, *args)

        monkeypatch.setattr(torch.Tensor, name, read)
    how = {"max_norm": 0.05, "max_value": 0.01, "count_fn": len}
    report = update(model, optimizer, F.cross_entropy, cut(tiny_batch, lengths), **how)
    assert reads == [("tolist", len(lengths) + 1)] and report.count == 10


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_loss_of_another_type_than_the_gradients_is_read_to_its_last_bit(tiny_batch, dtype):
    model, optimizer = setup()
    report = update(model, optimizer, lambda o, t: F.cross_entropy(o.to(dtype), t), [tiny_batch], count_fn=len)
    assert report.loss == F.cross_entropy(make_tiny_model()(tiny_batch[0]).to(dtype), tiny_batch[1]).item()
    assert report.grad_norm == pytest.approx(gradients(model).norm().item())


def test_micro_batches_are_drawn_one_at_a_time_so_that_one_graph_lives_at_once(tiny_batch):
    model, optimizer = setup()
    seen = []

    def stream():
        for part in cut(tiny_batch, [6, 4]):
            seen.append(model[3].weight.grad is not None)
            yield part

    assert update(model, optimizer, F.cross_entropy, stream()).count == 10 and seen == [False, True]


def test_dividing_by_the_number_of_micro_batches_would_weigh_a_ragged_one_wrongly(tiny_batch):
    right, wrong = make_tiny_model(), make_tiny_model()
    F.cross_entropy(right(tiny_batch[0]), tiny_batch[1]).backward()
    for inputs, targets in cut(tiny_batch, [9, 1]):
        (F.cross_entropy(wrong(inputs), targets) / 2).backward()
    assert (gradients(wrong) - gradients(right)).norm() > 0.1 * gradients(right).norm()


@pytest.mark.parametrize("max_norm, max_value", [(None, None), (0.05, None), (None, 0.01), (0.05, 0.01), (100.0, None)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_micro_batch_gives_the_bits_of_the_plain_loop(tiny_batch, max_norm, max_value, dtype):
    (plain, one), (model, other) = (setup(momentum=0.9) for _ in range(2))
    plain.to(dtype), model.to(dtype)
    inputs, targets = tiny_batch[0].to(dtype), tiny_batch[1]
    for _ in range(4):
        one.zero_grad()
        loss = F.cross_entropy(plain(inputs), targets)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), float("inf") if max_norm is None else max_norm)
        if max_value is not None:
            nn.utils.clip_grad_value_(plain.parameters(), max_value)
        one.step()
        report = update(model, other, F.cross_entropy, [(inputs, targets)], max_norm=max_norm, max_value=max_value)
        assert torch.equal(weights(plain), weights(model))
        assert report[:2] == (loss.item(), norm.item())


def test_the_reported_norm_is_taken_before_clipping_over_the_optimizers_parameters(tiny_batch):
    model = make_tiny_model()
    optimizer = torch.optim.SGD(model[3].parameters(), lr=0.1)
    report = update(model, optimizer, F.cross_entropy, [tiny_batch], max_norm=1e-3)
    own = torch.cat([param.grad.flatten() for param in model[3].parameters()])
    assert own.norm().item() == pytest.approx(1e-3, rel=1e-3)
    fresh = make_tiny_model()
    F.cross_entropy(fresh(tiny_batch[0]), tiny_batch[1]).backward()
    expected = torch.cat([param.grad.flatten() for param in fresh[3].parameters()]).norm().item()
    assert report.grad_norm == pytest.approx(expected)


def test_gradients_left_by_someone_else_do_not_count(tiny_batch):
    (clean, one), (dirty, _) = setup(), setup()
    other = torch.optim.SGD(dirty[3].parameters(), lr=0.1)  # the model holds more than the optimizer
    dirty(tiny_batch[0]).sum().backward()
    update(clean, one, F.cross_entropy, [tiny_batch])
    update(dirty, other, F.cross_entropy, [tiny_batch])
    assert torch.equal(gradients(clean), gradients(dirty))


def test_gradients_of_parameters_that_no_model_holds_are_cleared_too(tiny_batch):
    model, extra = make_tiny_model(), nn.Parameter(torch.ones(1))
    extra.grad = torch.ones(1)
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
    update(model, optimizer, F.cross_entropy, [tiny_batch])
    assert extra.item() == 1.0 and extra.grad is None


@pytest.mark.parametrize("factor", [0.5, 0.9, 0.9985, 0.9995, 1.0, 1.0005, 1.0015, 1.1, 2.0])
@pytest.mark.parametrize("size", [1.0, 1e-5])
def test_a_bound_near_the_norm_clips_to_the_bit_as_torch_does(tiny_batch, factor, size):
    (plain, one), (model, other) = setup(), setup()

    def loss_fn(outputs, targets):
        return F.cross_entropy(outputs, targets) * size

    loss_fn(plain(tiny_batch[0]), tiny_batch[1]).backward()
    max_norm = factor * gradients(plain).norm().item()
    nn.utils.clip_grad_norm_(plain.parameters(), max_norm)
    one.step()
    update(model, other, loss_fn, [tiny_batch], max_norm=max_norm, count_fn=len)
    assert torch.equal(weights(plain), weights(model)) and torch.equal(gradients(plain), gradients(model))


@pytest.mark.parametrize("name", ["max_norm", "max_value"])
@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan")])
def test_a_bound_that_is_not_above_0_is_refused_before_anything_is_done(tiny_batch, name, bound):
    model, optimizer = setup()
    before = weights(model)
    with pytest.raises(ValueError, match=f"{name} must be above 0, got {bound}: 0 stops training"):
        update(model, optimizer, F.cross_entropy, [tiny_batch], **{name: bound})
    assert torch.equal(weights(model), before) and model[0].weight.grad is None


# --- what counts


IGNORING = [
    (F.cross_entropy, [0, 1, -100, 2], 3),
    (nn.CrossEntropyLoss(), [0, 1, -100, 2], 3),
    (nn.CrossEntropyLoss(ignore_index=0), [0, 1, 0, 2], 2),
    (partial(F.cross_entropy, ignore_index=2), [0, 1, 2, 2], 2),
    (nn.NLLLoss(ignore_index=1), [1, 1, 1, 1], 0),
    (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 4.0])), [0, 2, 2, -100], 9),
    (partial(F.cross_entropy, weight=torch.tensor([0.5, 0.0, 1.0])), [0, 1, 1, 0], 1),
    (lambda outputs, targets: outputs.mean(), [0, 1, 2, 2], 4),
]


@pytest.mark.parametrize("loss_fn, targets, count", IGNORING)
def test_integer_targets_count_as_the_loss_itself_counts_them(loss_fn, targets, count):
    assert default_count(loss_fn)(torch.tensor(targets)) == count


def test_class_probabilities_count_once_an_example():
    count = default_count(nn.CrossEntropyLoss())
    assert count(torch.rand(5, 3)) == 5 and count(torch.rand(5, 3, 2, 2)) == 20
    assert count(torch.rand(3)) == 1 and count(torch.rand(0, 3)) == 0


@pytest.mark.parametrize("loss_fn", [nn.MSELoss(), F.mse_loss, nn.BCEWithLogitsLoss(weight=torch.ones(2)), F.l1_loss])
def test_regression_targets_all_count_also_minus_100(loss_fn):
    assert default_count(loss_fn)(torch.full((4, 2), -100.0)) == 8


@pytest.mark.parametrize(
    "loss_fn, targets, said",
    [
        (nn.CrossEntropyLoss(reduction="sum"), None, "reduction='mean', got 'sum'"),
        (partial(F.cross_entropy, reduction="none"), None, "got 'none'"),
        (nn.KLDivLoss(reduction="batchmean"), None, "got 'batchmean'"),
        (lambda outputs, targets: outputs.mean(), torch.tensor([1, -100]), "down to -100.*pass count_fn"),
        (nn.MSELoss(), torch.tensor([1, -1]), "down to -1.*pass count_fn"),
        (nn.CrossEntropyLoss(), {"labels": torch.tensor([1])}, "a dict, not one tensor: pass count_fn"),
    ],
)
def test_what_cannot_be_counted_asks_for_a_count_fn(loss_fn, targets, said):
    with pytest.raises(ValueError, match=said):
        default_count(loss_fn)(targets)


LOSSES = {
    "ignored": (nn.CrossEntropyLoss(ignore_index=1), None),
    "weighted": (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]), ignore_index=2), None),
    "smoothed": (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]), label_smoothing=0.1), None),
    "probabilities": (nn.CrossEntropyLoss(), lambda targets: F.one_hot(targets, 3) * 0.8 + 0.1),
    "regression": (nn.MSELoss(), lambda targets: -100.0 * F.one_hot(targets, 3)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("lengths", [[4, 4, 2], [1, 1, 8]], ids=str)
def test_every_kind_of_loss_gives_the_whole_batchs_step(tiny_batch, name, lengths):
    loss_fn, convert = LOSSES[name]
    batch = tiny_batch if convert is None else (tiny_batch[0], convert(tiny_batch[1]))
    (whole, one), (parts, other) = setup(1e-3), setup(1e-3)
    expected = loss_fn(whole(batch[0]), batch[1]).item()
    update(whole, one, loss_fn, [batch])
    report = update(parts, other, loss_fn, cut(batch, lengths))
    assert report.loss == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradients(parts), gradients(whole))


def test_a_count_fn_of_the_callers_counts_what_is_no_tensor(tiny_batch):
    def loss_fn(outputs, targets):
        return F.cross_entropy(outputs, targets["labels"])

    parts = [(inputs, {"labels": targets}) for inputs, targets in cut(tiny_batch, [7, 3])]
    (model, optimizer), (whole, one) = setup(), setup()
    report = update(model, optimizer, loss_fn, parts, count_fn=lambda targets: torch.tensor(len(targets["labels"])))
    update(whole, one, F.cross_entropy, [tiny_batch])
    assert report.count == 10
    torch.testing.assert_close(gradients(model), gradients(whole))


def test_a_micro_batch_with_nothing_to_count_has_no_forward(tiny_batch):
    inputs, targets = tiny_batch
    model, optimizer = setup()
    seen = []
    model.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    window = [(inputs[:0], targets[:0]), (inputs, targets), (inputs[:4], torch.full((4,), -100))]
    report = update(model, optimizer, F.cross_entropy, window)
    assert seen == [10] and report.count == 10


@pytest.mark.parametrize("window", ["no micro-batch", "empty", "ignored"])
def test_a_window_without_targets_changes_nothing(tiny_batch, window):
    inputs, targets = tiny_batch
    batches = {"no micro-batch": [], "empty": [(inputs[:0], targets[:0])], "ignored": [(inputs, targets * 0 - 100)]}
    model, optimizer = setup(momentum=0.9)
    update(model, optimizer, F.cross_entropy, [tiny_batch])
    before, state = weights(model), copy.deepcopy(optimizer.state_dict())
    report = update(model, optimizer, F.cross_entropy, batches[window])
    assert report.skipped == "no targets" and report.count == 0
    assert torch.equal(weights(model), before)
    assert str(optimizer.state_dict()) == str(state)


# --- what is not finite


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_raises_before_the_weights_are_touched(tiny_batch, bad):
    model, optimizer = setup(momentum=0.9)
    update(model, optimizer, F.cross_entropy, [tiny_batch])
    before, state = weights(model), str(optimizer.state_dict())
    inputs = tiny_batch[0].clone()
    inputs[3, 1] = bad
    with pytest.raises(NonFiniteError, match="the weights are as they were"):
        update(model, optimizer, lambda o, t: o.pow(2).mean(), [(inputs * 1e30, tiny_batch[1])], max_norm=1.0)
    assert torch.equal(weights(model), before) and str(optimizer.state_dict()) == state
    assert issubclass(NonFiniteError, FloatingPointError)


def test_an_infinite_gradient_under_a_finite_loss_is_seen_although_clipping_would_hide_it(tiny_batch):
    def loss_fn(outputs, targets):
        return outputs.sub(outputs.detach()).abs().sqrt().mean()  # loss 0, derivative of sqrt at 0: inf

    model, optimizer = setup()
    gradient = torch.tensor([float("inf"), 1.0])
    assert (gradient * (1.0 / gradient.norm())).nan_to_num(0).tolist() == [0.0, 0.0]  # why the norm comes first
    with pytest.raises(NonFiniteError):
        update(model, optimizer, loss_fn, [tiny_batch], max_norm=1.0)


def scaled(init_scale=1024.0, **how):
    return torch.amp.GradScaler("cpu", init_scale=init_scale, **how)


def test_a_scaler_changes_no_step_that_is_finite(tiny_batch):
    (plain, one), (model, other) = setup(), setup()
    expected = update(plain, one, F.cross_entropy, cut(tiny_batch, [6, 4]), max_norm=0.05)
    report = update(model, other, F.cross_entropy, cut(tiny_batch, [6, 4]), max_norm=0.05, scaler=scaled())
    torch.testing.assert_close(weights(model), weights(plain))
    assert report[:3] == pytest.approx(expected[:3], rel=1e-5)  # norm and clip are of unscaled gradients


def overflowing(outputs, targets):
    return outputs.sum() * 1e36


def test_an_overflow_skips_the_step_and_lowers_the_scale(tiny_batch):
    model, optimizer = setup(momentum=0.9)
    before, scaler = weights(model), scaled()
    report = update(model, optimizer, overflowing, [tiny_batch], scaler=scaler, max_norm=1.0)
    assert report.skipped == "overflow" and not torch.isfinite(torch.tensor(report.grad_norm))
    assert torch.equal(weights(model), before) and not optimizer.state
    assert scaler.get_scale() == 512.0


def test_a_window_without_targets_leaves_the_scale_but_the_rank_has_one(tiny_batch):
    model, optimizer = setup()
    scaler = scaled(growth_interval=1)
    assert update(model, optimizer, F.cross_entropy, [], scaler=scaler).skipped == "no targets"
    assert scaler._scale is not None and scaler.get_scale() == 1024.0
    update(model, optimizer, F.cross_entropy, [tiny_batch], scaler=scaler)
    assert scaler.get_scale() == 2048.0


def test_the_scaled_loss_is_in_units_of_the_first_count(tiny_batch):
    """loss * count would overflow float16 at once: 3000 * 32 > 65504."""
    seen = []

    class Spy(torch.amp.GradScaler):
        def scale(self, value):
            seen.append(float(value.detach()))
            return super().scale(value)

    model, optimizer = setup()
    update(model, optimizer, lambda o, t: o.sum() * 0 + 3.0, cut(tiny_batch, [4, 6]), scaler=Spy("cpu"))
    assert seen == [0.0, 3.0, 2.25]  # a zero first, so that a rank without examples has its scale


def test_a_larger_count_later_halves_what_was_added_up_and_changes_no_bit(tiny_batch):
    """1 target, then 9: in units of 1 the second loss would be 9 times as large as any in the window."""
    (plain, one), (model, other) = setup(), setup()
    update(plain, one, F.cross_entropy, cut(tiny_batch, [1, 7, 2]))
    seen = []

    class Spy(torch.amp.GradScaler):
        def scale(self, value):
            seen.append(float(value.detach()))
            return super().scale(value)

    report = update(model, other, F.cross_entropy, cut(tiny_batch, [1, 7, 2]), scaler=Spy("cpu", init_scale=1024.0))
    assert torch.equal(weights(plain), weights(model)) and torch.equal(gradients(plain), gradients(model))
    losses = [F.cross_entropy(make_tiny_model()(x), y).item() for x, y in cut(tiny_batch, [1, 7, 2])]
    assert seen[1:] == pytest.approx([losses[0], losses[1] * 7 / 8, losses[2] * 2 / 8]) and report.count == 10


@pytest.mark.parametrize("lengths", [[512], [256, 256], [1, 511], [1, 1, 510], [500, 12]], ids=str)
def test_a_healthy_float16_run_skips_no_step_however_its_window_is_cut(lengths):
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(512, 4, generator=generator), torch.randint(3, (512,), generator=generator)
    model, optimizer = setup()
    scaler = torch.amp.GradScaler("cpu")  # 65,536 at first
    how = {"scaler": scaler, "autocast_dtype": torch.float16}
    reports = [update(model, optimizer, F.cross_entropy, cut(batch, lengths), **how) for _ in range(3)]
    assert [report.skipped for report in reports] == [""] * 3 and scaler.get_scale() == 65536.0


def test_a_hook_that_raises_leaves_the_scaler_as_it_was_and_usable(tiny_batch):
    model, optimizer = setup()
    scaler = scaled(growth_interval=2)

    def stop(report):
        raise KeyError("stop")

    how = {"scaler": scaler, "max_norm": 1.0}
    update(model, optimizer, F.cross_entropy, [tiny_batch], **how)
    with pytest.raises(KeyError):
        update(model, optimizer, F.cross_entropy, [tiny_batch], before_step=stop, **how)
    assert scaler.get_scale() == 1024.0 and scaler._get_growth_tracker() == 1
    assert update(model, optimizer, F.cross_entropy, [tiny_batch], **how).skipped == ""
    assert scaler.get_scale() == 2048.0


def test_a_skipped_step_calls_no_hook(tiny_batch):
    called = []
    update(*setup(), overflowing, [tiny_batch], scaler=scaled(), before_step=called.append)
    update(*setup(), F.cross_entropy, [], before_step=called.append)
    assert called == []


def test_a_scaler_that_is_disabled_counts_as_none(tiny_batch):
    (plain, one), (model, other) = setup(), setup()
    off = torch.amp.GradScaler("cpu", enabled=False)
    assert update(plain, one, F.cross_entropy, [tiny_batch]) == update(
        model, other, F.cross_entropy, [tiny_batch], scaler=off
    )
    assert torch.equal(weights(plain), weights(model))
    with pytest.raises(NonFiniteError):
        update(model, other, overflowing, [tiny_batch], scaler=off)


@pytest.mark.parametrize("scaler", [None, torch.amp.GradScaler("cpu", enabled=False)])
def test_float16_without_a_scaler_is_refused(tiny_batch, scaler):
    with pytest.raises(ValueError, match="torch.float16 needs a scaler that is enabled"):
        update(*setup(), F.cross_entropy, [tiny_batch], scaler=scaler, autocast_dtype=torch.float16)


def test_forward_and_loss_are_under_autocast_and_backward_is_not(tiny_batch):
    model, optimizer = setup()
    seen = []

    def loss_fn(outputs, targets):
        seen.append(torch.is_autocast_enabled("cpu"))
        outputs.register_hook(lambda gradient: seen.append(torch.is_autocast_enabled("cpu")))
        return F.cross_entropy(outputs, targets)

    update(model, optimizer, loss_fn, [tiny_batch] * 2, autocast_dtype=torch.bfloat16, count_fn=len)
    assert seen == [True, False] * 2 and model[0].weight.grad.dtype is torch.float32


def test_bfloat16_runs_the_forward_under_autocast(tiny_batch):
    model, optimizer = setup()
    kinds = []
    model[3].register_forward_hook(lambda module, args, output: kinds.append(output.dtype))
    update(model, optimizer, F.cross_entropy, [tiny_batch], autocast_dtype=torch.bfloat16)
    update(model, optimizer, F.cross_entropy, [tiny_batch])
    assert kinds == [torch.bfloat16, torch.float32]


# --- the order


class Ordered(torch.optim.SGD):
    def __init__(self, params, log):
        super().__init__(params, lr=0.1)
        self.log = log

    def step(self, closure=None):
        self.log.append("step")


def test_the_order_is_backward_sync_unscale_norm_clip_hook_step_scale(tiny_batch, monkeypatch):
    log, model = [], make_tiny_model()

    class Logged(torch.amp.GradScaler):
        def unscale_(self, optimizer):
            log.append("unscale")
            super().unscale_(optimizer)

        def update(self, new_scale=None):
            log.append("scale")
            super().update(new_scale)

    def logged(name, fn):
        return lambda *args, **kwargs: (log.append(name), fn(*args, **kwargs))[1]

    from course_utils import optimizer_step

    for name in ("get_total_norm", "clip_grads_with_norm_", "clip_grad_value_"):
        monkeypatch.setattr(optimizer_step, name, logged(name, getattr(optimizer_step, name)))
    loss_fn = logged("forward", F.cross_entropy)
    how = {"max_norm": 0.01, "max_value": 1.0, "scaler": Logged("cpu"), "count_fn": len}
    how |= {"sync": lambda model, totals: (log.append("sync"), totals)[1], "before_step": lambda r: log.append("hook")}
    update(model, Ordered(model.parameters(), log), loss_fn, cut(tiny_batch, [6, 4]), **how)
    assert " ".join(log) == (
        "forward forward sync unscale get_total_norm clip_grads_with_norm_ clip_grad_value_ hook step scale"
    )


def test_the_hook_sees_the_report_and_clipped_gradients_and_the_old_weights(tiny_batch):
    model, optimizer = setup()
    before, seen = weights(model), []

    def hook(report):
        seen.append((report, gradients(model).norm().item(), torch.equal(weights(model), before)))

    report = update(model, optimizer, F.cross_entropy, [tiny_batch], max_norm=0.01, before_step=hook)
    assert seen == [(report, pytest.approx(0.01, rel=1e-3), True)]
    assert not torch.equal(weights(model), before)


def test_a_hook_that_raises_stops_the_step(tiny_batch):
    model, optimizer = setup()
    before = weights(model)

    def stop(report):
        raise KeyError("stop")

    with pytest.raises(KeyError):
        update(model, optimizer, F.cross_entropy, [tiny_batch], before_step=stop)
    assert torch.equal(weights(model), before)


# --- ranks, with a sync that adds up two models in one process


def two_ranks(windows, make_scaler=lambda: None):
    """Both ranks' updates: the first pass collects each rank's sums, the second gives their total to both."""
    sums = []

    def collect(model, totals):
        sums.append(([None if p.grad is None else p.grad.clone() for p in model.parameters()], totals))
        return totals * 0

    def add(model, totals):
        for place, param in enumerate(model.parameters()):
            parts = [grads[place] for grads, _ in sums if grads[place] is not None]
            param.grad = sum(parts) if parts else None
        return sum(totals for _, totals in sums)

    for window in windows:
        update(*setup(), F.cross_entropy, window, sync=collect, scaler=make_scaler())
    ranks = [setup() for _ in windows]
    how = {"sync": add, "max_norm": 0.1}
    pairs = zip(ranks, windows, strict=True)
    reports = [update(*rank, F.cross_entropy, window, scaler=make_scaler(), **how) for rank, window in pairs]
    return [model for model, _ in ranks], reports


@pytest.mark.parametrize("make_scaler", [lambda: None, scaled], ids=["plain", "scaler"])
@pytest.mark.parametrize("lengths", [[5, 5], [7, 3], [10, 0]], ids=str)
def test_two_ranks_make_the_step_of_one_also_where_one_is_empty(tiny_batch, lengths, make_scaler):
    whole, optimizer = setup()
    expected = update(whole, optimizer, F.cross_entropy, [tiny_batch], max_norm=0.1)
    first, second = cut(tiny_batch, lengths)
    models, reports = two_ranks([cut(first, [2, lengths[0] - 2]), [second]], make_scaler)
    assert torch.equal(weights(models[0]), weights(models[1])) and reports[0] == reports[1]
    torch.testing.assert_close(weights(models[0]), weights(whole))
    assert reports[0][:3] == pytest.approx(expected[:3], rel=1e-5)


def test_two_ranks_without_targets_skip_together(tiny_batch):
    first = cut(tiny_batch, [0, 10])[0]
    models, reports = two_ranks([[first], [first]])
    assert [report.skipped for report in reports] == ["no targets"] * 2
    assert all(torch.equal(weights(model), weights(make_tiny_model())) for model in models)


def test_sync_gets_plain_sums_in_float64(tiny_batch):
    model, optimizer = setup()
    seen = {}

    def sync(model, totals):
        seen.update(gradient=gradients(model), totals=totals)
        return totals

    report = update(model, optimizer, F.cross_entropy, cut(tiny_batch, [6, 4]), sync=sync)
    fresh = make_tiny_model()
    F.cross_entropy(fresh(tiny_batch[0]), tiny_batch[1], reduction="sum").backward()
    torch.testing.assert_close(seen["gradient"], gradients(fresh))
    assert seen["totals"].dtype == torch.float64
    assert seen["totals"].tolist() == pytest.approx([report.loss * 10, 10])


def test_a_model_in_ddp_is_refused(tiny_model, tiny_batch, monkeypatch):
    class Fake(nn.Module):
        pass

    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", Fake)
    compiled = nn.Module()
    compiled._orig_mod = Fake()
    optimizer = torch.optim.SGD(tiny_model.parameters(), lr=0.1)
    for model in (Fake(), compiled):
        with pytest.raises(ValueError, match="pass the model itself, not its DDP wrapper"):
            update(model, optimizer, F.cross_entropy, [tiny_batch])


def test_the_equality_does_not_hold_with_batchnorm_in_train_mode(tiny_batch):
    found = []
    for lengths in ([10], [5, 5]):
        model = nn.Sequential(nn.BatchNorm1d(4), make_tiny_model())
        update(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy, cut(tiny_batch, lengths))
        found.append(weights(model))
    assert (found[0] - found[1]).abs().max() > 1e-4


def test_the_equality_does_not_hold_with_two_dropouts_which_draw_in_turns(tiny_batch):
    """One layer alone draws the same numbers for any cut here, example after example; the second one's come between."""
    found = {}
    for training, lengths in ((True, (10,)), (True, (5, 5)), (False, (10,)), (False, (5, 5))):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Dropout(0.5), *make_tiny_model(dropout=0.5)).train(training)
        update(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy, cut(tiny_batch, list(lengths)))
        found[training, lengths] = weights(model)
    assert (found[True, (10,)] - found[True, (5, 5)]).abs().max() > 1e-3
    torch.testing.assert_close(found[False, (10,)], found[False, (5, 5)])


@pytest.mark.parametrize("lengths", [[10], [5, 5]], ids=str)
def test_dropout_draws_as_the_plain_loop_does(tiny_batch, lengths):
    (model, plain), parts = (make_tiny_model(dropout=0.5) for _ in range(2)), cut(tiny_batch, lengths)
    torch.manual_seed(0)
    update(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy, parts)
    torch.manual_seed(0)
    for inputs, targets in parts:
        (F.cross_entropy(plain(inputs), targets) * len(targets) / 10).backward()
    torch.testing.assert_close(gradients(model), gradients(plain))
