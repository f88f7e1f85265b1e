"""The mistakes that chapter 07 shows: each really misleads, nearly all without a word, and ours does not."""

import copy
import functools
import math
import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LRScheduler,
    MultiplicativeLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from course_utils.loaders import ResumableLoader
from course_utils.schedules import (
    check_optimizer_covers,
    lr_curve,
    make_scheduler,
    plateau_step,
    updates_in_run,
    warm_restarts,
    warmup_cosine,
)
from course_utils.training_loop import Trainer
from tests.conftest import make_tiny_model


def optimizer_with(*lrs: float, cls=SGD, **kwargs):
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in lrs]
    for group in groups:
        group["params"][0].grad = torch.ones(1)
    return cls(groups, **kwargs)


def lrs_of(optimizer, scheduler, num_steps: int, group: int = 0) -> list[float]:
    lrs = []
    for _ in range(num_steps):
        lrs.append(optimizer.param_groups[group]["lr"])
        optimizer.step()
        scheduler.step()
    return lrs


def cosine(total_steps: int, **kwargs):
    return functools.partial(warmup_cosine, warmup_steps=0, total_steps=total_steps, **kwargs)


# --- the shape -----------------------------------------------------------------------------------------------------


def test_a_warmup_of_step_over_warmup_steps_makes_a_first_update_that_changes_nothing():
    def from_zero(step, *, warmup_steps):
        return min(1.0, step / warmup_steps)

    optimizer = optimizer_with(0.1)
    weight = optimizer.param_groups[0]["params"][0]
    scheduler = LambdaLR(optimizer, functools.partial(from_zero, warmup_steps=4))
    assert lrs_of(optimizer, scheduler, 1) == [0.0] and weight.item() == 1.0
    ours = optimizer_with(0.1)
    ours_lrs = lrs_of(ours, make_scheduler(ours, functools.partial(warmup_cosine, warmup_steps=4, total_steps=9)), 1)
    assert ours_lrs == [0.025] and ours.param_groups[0]["params"][0].item() == pytest.approx(0.975)
    with pytest.raises(ValueError, match="would change nothing"):
        make_scheduler(optimizer_with(0.1), functools.partial(from_zero, warmup_steps=4))


def test_a_cosine_stepped_past_its_end_rises_again():
    optimizer = optimizer_with(1.0)
    lrs = lrs_of(optimizer, CosineAnnealingLR(optimizer, T_max=4), 9)
    assert lrs == pytest.approx([1, 0.853553, 0.5, 0.146447, 0, 0.146447, 0.5, 0.853553, 1], abs=1e-6)
    assert lr_curve(cosine(4), 9, base_lr=1.0) == pytest.approx([1, 0.853553, 0.5, 0.146447, 0, 0, 0, 0, 0], abs=1e-6)


def test_a_decay_to_zero_cut_off_at_the_minimum_is_flat_at_the_end():
    def cut_off(step, *, total_steps, min_factor):
        return max(warmup_cosine(step, warmup_steps=0, total_steps=total_steps), min_factor)

    wrong = lr_curve(functools.partial(cut_off, total_steps=100, min_factor=0.1), 101, base_lr=1.0)
    right = lr_curve(cosine(100, min_factor=0.1), 101, base_lr=1.0)
    assert (wrong.count(0.1), right.count(0.1)) == (21, 1)


def test_warm_restarts_never_reach_their_minimum():
    plan = functools.partial(warm_restarts, cycle_steps=4, min_factor=0.1)
    assert min(lr_curve(plan, 100, base_lr=1.0)) == pytest.approx(0.231802, abs=1e-6)


# --- what counts as a step -----------------------------------------------------------------------------------------


def test_a_scheduler_stepped_per_micro_batch_runs_four_times_too_fast():
    num_micro_batches, accumulate = 40, 4
    plan = cosine(updates_in_run(40, batch_size=1, num_epochs=1, accumulate=accumulate))
    optimizer = optimizer_with(1.0)
    scheduler = LambdaLR(optimizer, plan)
    wrong = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for micro_batch in range(1, num_micro_batches + 1):
            if micro_batch % accumulate == 0:
                wrong.append(optimizer.param_groups[0]["lr"])
                optimizer.step()
            scheduler.step()  # the mistake: its place is inside the if
    assert len(caught) == 1 and "before `optimizer.step()`" in str(
        caught[0].message
    )  # torch's only word, and only once
    assert wrong == pytest.approx([plan(4 * update + 3) for update in range(10)])
    assert [lr > 0 for lr in wrong] == [True] * 2 + [False] * 8

    model = make_tiny_model()
    optimizer = SGD(model.parameters(), lr=1.0)
    dataset = [(torch.zeros(4), 0)] * num_micro_batches
    trainer = Trainer(
        model, optimizer, nn.CrossEntropyLoss(), scheduler=make_scheduler(optimizer, plan), accumulate=accumulate
    )
    trainer.fit(ResumableLoader(dataset, batch_size=1), num_epochs=1)
    assert [row["lr"] for row in trainer.history] == lr_curve(plan, 10, base_lr=1.0)


def test_t_max_in_epochs_stepped_per_batch_makes_a_cosine_of_ten_batches():
    num_epochs, batches = 10, 100
    optimizer = optimizer_with(1.0)
    lrs = lrs_of(optimizer, CosineAnnealingLR(optimizer, T_max=num_epochs), num_epochs * batches)
    assert [lrs[step] for step in (0, 10, 20, 30)] == pytest.approx([1, 0, 1, 0], abs=1e-9)
    assert sum(b > a for a, b in zip(lrs, lrs[1:], strict=False)) == pytest.approx(500, abs=5)
    total_steps = updates_in_run(100 * 64, batch_size=64, num_epochs=num_epochs)
    right = lr_curve(cosine(total_steps), total_steps, base_lr=1.0)
    assert total_steps == 1000 and right == sorted(right, reverse=True)


def test_a_counter_inside_the_epoch_restarts_the_warmup_every_epoch():
    plan = functools.partial(warmup_cosine, warmup_steps=3, total_steps=10)
    wrong = [plan(step) for _ in range(2) for step in range(5)]
    right = [plan(step) for step in range(10)]
    assert wrong[5:8] == pytest.approx([1 / 3, 2 / 3, 1]) and wrong[5:] == wrong[:5]
    assert right[3:] == sorted(right[3:], reverse=True)


# --- metrics -------------------------------------------------------------------------------------------------------


def test_a_metric_given_to_the_cosine_is_taken_for_the_epoch():
    optimizer = optimizer_with(1.0)
    scheduler = CosineAnnealingLR(optimizer, T_max=10)
    assert lrs_of(optimizer, scheduler, 6)[-1] == pytest.approx(0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scheduler.step(0.42)
    assert scheduler.last_epoch == 0.42
    assert optimizer.param_groups[0]["lr"] == pytest.approx((1 + math.cos(0.042 * math.pi)) / 2)  # 0.9957
    assert ["deprecated" in str(w.message) for w in caught] == [True]  # a warning about something else is all there is
    with pytest.raises(ValueError, match="would jump to epoch 0.42"):
        plateau_step(scheduler, 0.42)


@pytest.mark.parametrize("metrics, cut_at", [([0.5] * 7, 7), ([math.nan] * 7, 6), ([0.9, 0.8] + [math.nan] * 6, 8)])
def test_patience_five_lowers_the_lr_at_the_seventh_equal_value_and_for_nan_in_silence(metrics, cut_at):
    optimizer = optimizer_with(1.0)
    scheduler = ReduceLROnPlateau(optimizer, patience=5)
    lrs = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for metric in metrics:
            scheduler.step(metric)
            lrs.append(optimizer.param_groups[0]["lr"])
    assert (lrs.index(0.1) + 1, caught) == (cut_at, [])
    if any(map(math.isnan, metrics)):
        with pytest.raises(ValueError, match="must be finite, got nan"):
            plateau_step(scheduler, math.nan)


def test_mode_min_with_an_accuracy_lowers_the_lr_while_all_goes_well():
    accuracies = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94]

    def lrs(mode):
        optimizer = optimizer_with(1.0)
        scheduler = ReduceLROnPlateau(optimizer, mode=mode, patience=2)
        return [(plateau_step(scheduler, metric), optimizer.param_groups[0]["lr"])[1] for metric in accuracies]

    assert lrs("min") == pytest.approx([1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01])
    assert lrs("max") == [1.0] * 8


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: SequentialLR(optimizer, [ConstantLR(optimizer), ConstantLR(optimizer)], milestones=[3]),
        lambda optimizer: ChainedScheduler([ConstantLR(optimizer), ConstantLR(optimizer)]),
    ],
    ids=["SequentialLR", "ChainedScheduler"],
)
def test_schedulers_of_schedulers_take_no_metric(make):
    optimizer = optimizer_with(1.0)
    scheduler = make(optimizer)
    optimizer.step()
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        scheduler.step(0.42)


def stepped_with_a_metric(make, num_steps: int):
    """(optimizer, scheduler, warnings) after `num_steps` steps and then step(0.42)."""
    optimizer = optimizer_with(1.0)
    scheduler = make(optimizer)
    lrs_of(optimizer, scheduler, num_steps)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scheduler.step(0.42)
    return optimizer, scheduler, caught


def test_a_metric_sends_warm_restarts_back_to_the_start_without_a_warning():
    optimizer, scheduler, caught = stepped_with_a_metric(lambda o: CosineAnnealingWarmRestarts(o, 10), 5)
    assert (scheduler.T_cur, scheduler.last_epoch, caught) == (0.42, 0, [])
    assert optimizer.param_groups[0]["lr"] == pytest.approx((1 + math.cos(0.042 * math.pi)) / 2)


def test_a_metric_makes_multiplicative_lr_go_one_step_on_and_lose_count():
    optimizer, scheduler, caught = stepped_with_a_metric(lambda o: MultiplicativeLR(o, lambda step: 0.5), 3)
    assert (optimizer.param_groups[0]["lr"], scheduler.last_epoch) == (0.5**4, 0.42)
    assert ["deprecated" in str(w.message) for w in caught] == [True]


@pytest.mark.parametrize("mode, metrics", [("min", [-1.0] * 12), ("max", [-1.0] * 12), ("min", [-1.0, -0.99995] * 6)])
def test_a_relative_threshold_never_lowers_the_lr_for_a_metric_below_zero_that_stands_still(mode, metrics):
    relative, absolute = optimizer_with(1.0), optimizer_with(1.0)
    plain = ReduceLROnPlateau(relative, mode=mode, patience=2)
    ours = ReduceLROnPlateau(absolute, mode=mode, patience=2, threshold_mode="abs")
    for metric in metrics:
        plain.step(metric)
        plateau_step(ours, metric)
    assert relative.param_groups[0]["lr"] == 1.0 and absolute.param_groups[0]["lr"] == pytest.approx(1e-3)
    with pytest.raises(ValueError, match="threshold_mode='abs'"):
        plateau_step(plain, metrics[0])


# --- the class form as people write it -----------------------------------------------------------------------------


class CosineAsWritten(LRScheduler):
    """Total after the constructor of its parent, or before; an absolute minimum."""

    def __init__(self, optimizer, total_steps, *, min_lr=0.0, too_late=False):
        if too_late:
            super().__init__(optimizer)
        self.total_steps, self.min_lr = total_steps, min_lr
        if not too_late:
            super().__init__(optimizer)

    def get_lr(self):
        shape = (1 + math.cos(math.pi * min(1.0, self.last_epoch / self.total_steps))) / 2
        return [self.min_lr + (base_lr - self.min_lr) * shape for base_lr in self.base_lrs]


def test_an_attribute_set_after_the_parents_constructor_is_missing_in_it():
    with pytest.raises(AttributeError, match="no attribute 'total_steps'"):
        CosineAsWritten(optimizer_with(1.0), 10, too_late=True)


def test_the_class_takes_total_steps_from_the_state_and_not_from_the_constructor():
    saved = CosineAsWritten(optimizer_with(1.0), 10).state_dict()
    longer = CosineAsWritten(optimizer_with(1.0), 20)
    longer.load_state_dict(saved)
    assert longer.total_steps == 10


def test_an_absolute_minimum_raises_the_lr_of_a_small_group():
    optimizer = optimizer_with(0.1, 1e-4)
    lrs = lrs_of(optimizer, CosineAsWritten(optimizer, 10, min_lr=1e-3), 11, group=1)
    assert (lrs[0], lrs[-1]) == pytest.approx((1e-4, 1e-3)) and lrs == sorted(lrs)
    right = lr_curve(cosine(10, min_factor=0.01), 11, base_lr=[0.1, 1e-4])
    assert [curve[-1] for curve in right] == pytest.approx([1e-3, 1e-6])


# --- groups and schedulers -----------------------------------------------------------------------------------------


def test_one_lr_for_all_groups_forgets_that_they_differ():
    wrong, right = optimizer_with(0.1, 0.001), optimizer_with(0.1, 0.001)
    for group in wrong.param_groups:
        group["lr"] = 0.1 * cosine(10)(0)
    make_scheduler(right, cosine(10))
    assert [group["lr"] for group in wrong.param_groups] == [0.1, 0.1]
    assert [group["lr"] for group in right.param_groups] == [0.1, 0.001]


def test_a_second_scheduler_rewrites_the_lr_of_a_run_and_loses_one_set_by_hand():
    optimizer = optimizer_with(1.0)
    lrs_of(optimizer, LambdaLR(optimizer, lambda step: 0.5**step), 3)
    assert optimizer.param_groups[0]["lr"] == 0.125
    optimizer.param_groups[0]["lr"] = 0.01
    with pytest.raises(ValueError, match="from 0.01 to 1.0"):
        make_scheduler(optimizer, lambda step: 0.5**step)
    LambdaLR(optimizer, lambda step: 0.5**step)
    assert optimizer.param_groups[0]["lr"] == 1.0


def half_life(step):
    return 0.5**step


def test_the_state_of_the_scheduler_alone_leaves_the_lr_of_the_optimizer_for_one_update():
    first, second = optimizer_with(1.0), optimizer_with(1.0)
    scheduler, resumed = LambdaLR(first, half_life), LambdaLR(second, half_life)
    lrs_of(first, scheduler, 2)
    resumed.load_state_dict(scheduler.state_dict())
    assert (resumed.get_last_lr(), second.param_groups[0]["lr"]) == ([0.25], 1.0)
    assert lrs_of(second, resumed, 2) == [1.0, 0.125]
    third = optimizer_with(1.0)
    resumed = LambdaLR(third, half_life)
    resumed.load_state_dict(scheduler.state_dict())
    third.load_state_dict(first.state_dict())
    assert lrs_of(third, resumed, 2) == [0.25, 0.125]


class Decay:
    """A factor as an object: its setting is an attribute."""

    def __init__(self, gamma):
        self.gamma = gamma

    def __call__(self, step):
        return self.gamma**step


def test_lambda_lr_stores_the_attributes_of_a_callable_object_and_overwrites_them_and_no_partials():
    saved = LambdaLR(optimizer_with(1.0), Decay(0.5)).state_dict()
    resumed = LambdaLR(optimizer_with(1.0), Decay(0.9))
    resumed.load_state_dict(saved)
    assert saved["lr_lambdas"] == [{"gamma": 0.5}] and resumed.lr_lambdas[0].gamma == 0.5
    assert LambdaLR(optimizer_with(1.0), cosine(10)).state_dict()["lr_lambdas"] == [{}]
    assert LambdaLR(optimizer_with(1.0), half_life).state_dict()["lr_lambdas"] == [None]


def test_a_plot_made_by_stepping_the_scheduler_uses_it_up():
    def plotted_by_stepping(scheduler, num_steps):
        lrs = []
        for _ in range(num_steps):
            lrs.append(scheduler.get_last_lr()[0])
            scheduler.step()
        return lrs

    optimizer = optimizer_with(1.0)
    scheduler = LambdaLR(optimizer, cosine(10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plot = plotted_by_stepping(scheduler, 10)
    assert plot == lr_curve(cosine(10), 10, base_lr=1.0)  # the figure is right
    assert optimizer.param_groups[0]["lr"] == 0.0  # and the run trains with lr 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's word about the order of the two steps
        assert lrs_of(optimizer, scheduler, 10) == [0.0] * 10


# --- optimizers and their state ------------------------------------------------------------------------------------


def moved_by(cls, gradients: list[float], *, lrs=None, **kwargs):
    """(weight, optimizer) after one update for each gradient."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = cls([weight], **kwargs)
    for step, gradient in enumerate(gradients):
        weight.grad = torch.full((1,), gradient)
        if lrs is not None:
            optimizer.param_groups[0]["lr"] = lrs[step]
        optimizer.step()
    return weight, optimizer


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_adams_state_loads_into_sgd_in_silence_and_fails_at_the_step(momentum):
    _, adam = moved_by(Adam, [1.0], lr=0.1)
    weight = nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    sgd = SGD([weight], lr=0.5, momentum=momentum)
    sgd.load_state_dict(adam.state_dict())
    assert sgd.param_groups[0]["lr"] == 0.1 and "momentum" not in sgd.param_groups[0]
    with pytest.raises(KeyError, match="momentum"):
        sgd.step()


def test_the_state_of_sgd_with_momentum_does_not_load_into_adam():
    _, sgd = moved_by(SGD, [1.0], lr=0.1, momentum=0.9)
    with pytest.raises(KeyError, match="step"):
        Adam([nn.Parameter(torch.zeros(1))], lr=0.1).load_state_dict(sgd.state_dict())


def test_adams_state_turns_adamw_at_default_settings_into_adams_decay():
    _, adam = moved_by(Adam, [1.0], lr=0.1)
    adamw = AdamW([nn.Parameter(torch.zeros(1))], lr=0.1)
    assert adamw.param_groups[0]["weight_decay"] == 0.01
    adamw.load_state_dict(adam.state_dict())
    assert adamw.param_groups[0]["weight_decay"] == 0


def test_adam_loaded_with_adamws_state_decays_like_adamw():
    weight, adamw = moved_by(AdamW, [1.0], lr=0.1, weight_decay=0.5)
    loaded = nn.Parameter(weight.detach().clone())
    adam = Adam([loaded], lr=0.1, weight_decay=0.5)
    assert adam.param_groups[0]["decoupled_weight_decay"] is False
    adam.load_state_dict(copy.deepcopy(adamw.state_dict()))  # without a copy they share the moments
    assert adam.param_groups[0]["decoupled_weight_decay"] is True
    for param, optimizer in ((weight, adamw), (loaded, adam)):
        param.grad = torch.full((1,), -2.0)
        optimizer.step()
    assert torch.equal(weight, loaded)


def test_loading_a_state_overwrites_the_settings_of_the_constructor():
    _, saved = moved_by(AdamW, [1.0], lr=0.1, betas=(0.9, 0.999), weight_decay=0.01)
    optimizer = AdamW([nn.Parameter(torch.zeros(1))], lr=0.5, betas=(0.5, 0.6), weight_decay=0.3)
    optimizer.load_state_dict(saved.state_dict())
    [group] = optimizer.param_groups
    assert (group["lr"], group["betas"], group["weight_decay"]) == (0.1, (0.9, 0.999), 0.01)


@pytest.mark.parametrize("cls", [Adam, AdamW, functools.partial(SGD, momentum=0.9)])
def test_the_moments_are_equal_to_the_bit_for_two_lr_sequences_with_the_same_gradients(cls):
    gradients = [0.3, -2.0, 5.0, 0.01, 1.7]
    states = []
    for lrs in ([0.1] * 5, [0.1, 0.1, 3.0, 1e-5, 0.7]):
        weight, optimizer = moved_by(cls, gradients, lrs=lrs, lr=0.1)
        states.append((weight.item(), copy.deepcopy(optimizer.state[weight])))
    (weight, moments), (other_weight, other_moments) = states
    names = sorted(name for name, value in moments.items() if isinstance(value, torch.Tensor))
    assert names in (["exp_avg", "exp_avg_sq", "step"], ["momentum_buffer"]) and weight != other_weight
    assert all(torch.equal(moments[name], other_moments[name]) for name in names)


@pytest.mark.parametrize("weight_decay, equal", [(0.0, True), (0.01, False)])
def test_adam_is_adamw_to_the_bit_without_weight_decay(weight_decay, equal):
    ends = []
    for cls in (Adam, AdamW):
        model, data = make_tiny_model(), torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
        optimizer = cls(model.parameters(), lr=0.01, weight_decay=weight_decay)
        for _ in range(20):
            optimizer.zero_grad()
            model(data).square().sum().backward()
            optimizer.step()
        ends.append(nn.utils.parameters_to_vector(model.parameters()))
    assert torch.equal(*ends) == equal


@pytest.mark.parametrize("cls, left", [(Adam, 0.257726), (AdamW, 0.999881)])
def test_a_thousand_updates_without_gradient_at_weight_decay_1e_4(cls, left):
    weight = nn.Parameter(torch.ones(1))
    optimizer = cls([weight], lr=1e-3, weight_decay=1e-4)
    for _ in range(1000):
        weight.grad = torch.zeros(1)
        optimizer.step()
    assert weight.item() == pytest.approx(left, abs=2e-6)


def test_adamws_decay_is_a_product_and_float32_rounds_it():
    assert (1 - 1e-3 * 1e-4) ** 1000 == pytest.approx(0.9999, abs=1e-8)  # the weight above ends at 0.99988: float32
    weight = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimizer = AdamW([weight], lr=1e-3, weight_decay=1e-4)
    for _ in range(1000):
        weight.grad = torch.zeros(1, dtype=torch.float64)
        optimizer.step()
    assert weight.item() == pytest.approx((1 - 1e-7) ** 1000, abs=1e-12)


@pytest.mark.parametrize("gradient", [1e-3, 1.0, 1e3])
def test_adams_first_update_is_the_lr_whatever_the_gradient_and_sgds_is_not(gradient):
    by_adam, _ = moved_by(Adam, [gradient], lr=0.01)
    by_sgd, _ = moved_by(SGD, [gradient], lr=0.01)
    assert by_adam.item() == pytest.approx(-0.01, rel=2e-5)
    assert by_sgd.item() == pytest.approx(-0.01 * gradient)


@pytest.mark.parametrize("gradient, share", [(0.0, 0.0), (1e-8, 0.5), (1e-7, 10 / 11), (1e-6, 100 / 101)])
def test_adams_first_update_is_less_than_the_lr_where_the_gradient_is_near_eps(gradient, share):
    weight, _ = moved_by(Adam, [gradient], lr=0.01)  # g / (|g| + eps), and eps is 1e-8
    assert weight.item() == pytest.approx(-0.01 * share, rel=1e-5)


def test_a_head_replaced_after_the_optimizer_was_made_never_trains(tiny_batch):
    inputs, targets = tiny_batch
    model = make_tiny_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    model[3] = nn.Linear(4, 3)
    head, body = model[3].weight.detach().clone(), model[0].weight.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    assert torch.equal(model[3].weight, head) and not torch.equal(model[0].weight, body)
    with pytest.raises(ValueError, match="missing .'3.weight', '3.bias'."):
        check_optimizer_covers(model, optimizer)
    check_optimizer_covers(model, SGD(model.parameters(), lr=0.1))
