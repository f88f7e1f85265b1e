"""Schedules: tables worked out by hand, torch's own classes as oracles, and what ties a schedule to an optimizer."""

import io
import math
import pickle
import re
from fractions import Fraction
from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    StepLR,
)

from course_utils.loaders import ResumableLoader
from course_utils.schedules import (
    constant,
    exponential,
    lr_curve,
    make_scheduler,
    step_decay,
    updates_in_run,
    warm_restarts,
    warmup_cosine,
)
from course_utils.training_loop import Trainer
from tests.conftest import make_tiny_model
from tests.warmup_cosine_lr import WarmupCosineLR

PLANS = [
    constant,
    partial(exponential, gamma=0.5, decay_steps=7),
    partial(step_decay, step_size=5, gamma=0.3),
    partial(warmup_cosine, warmup_steps=4, total_steps=20, min_factor=0.1),
    partial(warm_restarts, cycle_steps=4, cycle_mult=2, min_factor=0.1),
]


def name_of(plan) -> str:
    return getattr(plan, "func", plan).__name__


def optimizer_with(*lrs: float, cls=SGD, **kwargs):
    """One parameter and one param group for each lr, with gradients of one."""
    groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": lr} for lr in lrs]
    for group in groups:
        group["params"][0].grad = torch.ones(1)
    return cls(groups, **kwargs)


def recorded(optimizer, scheduler, num_steps: int) -> list[list[float]]:
    """The lrs of each group in a run: read, update, step the schedule."""
    rows = []
    for _ in range(num_steps):
        rows.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return [list(lrs) for lrs in zip(*rows, strict=True)]


# --- the functions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step, factor", [(0, 0.25), (1, 0.5), (3, 1.0), (4, 1.0), (6, 0.853553), (8, 0.5), (11, 0.038060), (12, 0), (99, 0)]
)
def test_warmup_cosine_hits_the_values_worked_out_by_hand(step, factor):
    assert warmup_cosine(step, warmup_steps=4, total_steps=12) == pytest.approx(factor, abs=1e-6)


@pytest.mark.parametrize("step, factor", [(0, 1.0), (2, 0.55), (4, 0.1), (5, 0.1), (1000, 0.1)])
def test_warmup_cosine_without_warmup_decays_to_its_minimum_and_stays(step, factor):
    assert warmup_cosine(step, warmup_steps=0, total_steps=4, min_factor=0.1) == pytest.approx(factor)


@pytest.mark.parametrize(
    "plan, factors",
    [
        (constant, [1, 1, 1, 1, 1]),
        (partial(exponential, gamma=0.25, decay_steps=2), [1, 0.5, 0.25, 0.125, 0.0625]),
        (partial(step_decay, step_size=2, gamma=0.1), [1, 1, 0.1, 0.1, 0.01]),
        (partial(warm_restarts, cycle_steps=2), [1, 0.5, 1, 0.5, 1]),
        (partial(warm_restarts, cycle_steps=1, cycle_mult=2), [1, 1, 0.5, 1, 0.853553]),
    ],
)
def test_the_other_schedules_hit_the_values_worked_out_by_hand(plan, factors):
    assert [plan(step) for step in range(5)] == pytest.approx(factors, abs=1e-6)


@pytest.mark.parametrize(
    "plan, oracle",
    [
        (constant, lambda o: LambdaLR(o, lambda step: 1.0)),
        (partial(exponential, gamma=0.9), lambda o: ExponentialLR(o, 0.9)),
        (partial(step_decay, step_size=3, gamma=0.5), lambda o: StepLR(o, 3, gamma=0.5)),
        (partial(warm_restarts, cycle_steps=4), lambda o: CosineAnnealingWarmRestarts(o, 4)),
        (partial(warm_restarts, cycle_steps=3, cycle_mult=2), lambda o: CosineAnnealingWarmRestarts(o, 3, T_mult=2)),
        (
            partial(warm_restarts, cycle_steps=3, cycle_mult=3, min_factor=0.1),
            lambda o: CosineAnnealingWarmRestarts(o, 3, T_mult=3, eta_min=0.2),
        ),
    ],
)
def test_a_schedule_equals_torchs_own_class(plan, oracle):
    optimizer = optimizer_with(2.0)
    [lrs] = recorded(optimizer, oracle(optimizer), 50)
    assert lr_curve(plan, 50, base_lr=2.0) == pytest.approx(lrs, rel=1e-12)


def test_without_warmup_the_cosine_equals_torchs_inside_its_range():
    optimizer = optimizer_with(2.0)
    [lrs] = recorded(optimizer, CosineAnnealingLR(optimizer, T_max=30, eta_min=0.2), 31)
    assert lr_curve(partial(warmup_cosine, warmup_steps=0, total_steps=30, min_factor=0.1), 31, base_lr=2.0) == (
        pytest.approx(lrs, rel=1e-12)
    )


sizes = st.integers(1, 500).flatmap(lambda total: st.tuples(st.integers(0, total - 1), st.just(total)))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(sizes, st.floats(0, 1), st.integers(0, 2000))
def test_warmup_cosine_keeps_its_promises_for_any_sizes(size, min_factor, step):
    warmup_steps, total_steps = size
    plan = partial(warmup_cosine, warmup_steps=warmup_steps, total_steps=total_steps, min_factor=min_factor)
    assert 0 <= plan(step) <= 1
    assert plan(0) > 0
    assert plan(max(0, warmup_steps - 1)) == plan(warmup_steps) == 1.0
    assert plan(total_steps) == plan(total_steps + step) == min_factor
    if step >= warmup_steps:
        assert plan(step + 1) <= plan(step)
        assert plan(step) >= min_factor
    elif step + 1 < warmup_steps:
        assert plan(step + 1) > plan(step)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 50), st.integers(1, 4), st.floats(0, 1), st.integers(0, 5000))
def test_warm_restarts_stay_in_bounds_and_each_cycle_starts_at_one(cycle_steps, cycle_mult, min_factor, step):
    plan = partial(warm_restarts, cycle_steps=cycle_steps, cycle_mult=cycle_mult, min_factor=min_factor)
    starts = [sum(cycle_steps * cycle_mult**k for k in range(n)) for n in range(4)]
    assert [plan(start) for start in starts] == [1.0] * 4
    assert min_factor - 1e-12 <= plan(step) <= 1


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(st.floats(0.01, 1), st.integers(1, 50), st.integers(0, 5000))
def test_decays_never_rise(gamma, size, step):
    for plan in (partial(exponential, gamma=gamma, decay_steps=size), partial(step_decay, gamma=gamma, step_size=size)):
        assert plan(0) == 1.0
        assert 0 <= plan(step + 1) <= plan(step) <= 1


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: warmup_cosine(0, warmup_steps=5, total_steps=5), "warmup_steps=5, total_steps=5"),
        (lambda: warmup_cosine(0, warmup_steps=-1, total_steps=5), "warmup_steps=-1"),
        (lambda: warmup_cosine(0, warmup_steps=1, total_steps=5, min_factor=1.5), "min_factor=1.5"),
        (lambda: warmup_cosine(0, warmup_steps=1, total_steps=5, min_factor=math.nan), "min_factor=nan"),
        (lambda: exponential(0, gamma=0.0), "gamma=0.0"),
        (lambda: exponential(0, gamma=1.1), "gamma=1.1"),
        (lambda: exponential(0, gamma=0.9, decay_steps=0), "decay_steps=0"),
        (lambda: step_decay(0, step_size=0), "step_size=0"),
        (lambda: warm_restarts(0, cycle_steps=0), "cycle_steps=0"),
        (lambda: warm_restarts(0, cycle_steps=1, cycle_mult=0), "cycle_mult=0"),
        (lambda: lr_curve(constant, 0, base_lr=1.0), "total_steps must be 1 or more, got 0"),
        (lambda: lr_curve(constant, 2.5, base_lr=1.0), "total_steps must be a whole number, got 2.5"),
        (lambda: updates_in_run(10, batch_size=1, num_epochs=1.5), "num_epochs must be a whole number, got 1.5"),
        (lambda: updates_in_run(7, batch_size=4, num_epochs=1, world_size=2, drop_last=True), "7 examples .* 4 x 2"),
        (lambda: updates_in_run(10, batch_size=0, num_epochs=1), "batch_size must be 1 or more, got 0"),
        (lambda: updates_in_run(10, batch_size=1, num_epochs=1, accumulate=0), "accumulate must be 1 or more, got 0"),
    ],
)
def test_an_impossible_argument_is_an_error_that_repeats_it(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("plan", PLANS[1:], ids=name_of)
@pytest.mark.parametrize("as_number", [float, np.float64, lambda size: size + 0.1], ids=["float", "np.float64", "part"])
def test_a_size_that_is_no_whole_number_is_an_error(plan, as_number):
    counts = [name for name, value in plan.keywords.items() if isinstance(value, int)]
    assert counts
    for name in counts:
        with pytest.raises(ValueError, match=f"{name} must be a whole number, got"):
            plan(0, **{name: as_number(plan.keywords[name])})


def test_a_warmup_of_a_tenth_is_an_error_that_says_how_to_count():
    with pytest.raises(
        ValueError, match=r"warmup_steps must be a whole number, got 0.1: .* int\(share \* total_steps\)"
    ):
        warmup_cosine(0, warmup_steps=0.1, total_steps=100)


@pytest.mark.parametrize("plan", PLANS, ids=name_of)
def test_a_step_below_zero_or_between_two_updates_is_an_error(plan):
    with pytest.raises(ValueError, match="step must be 0 or more, got -1"):
        plan(-1)
    with pytest.raises(ValueError, match="step must be a whole number, got 0.5"):
        plan(0.5)


@pytest.mark.parametrize("plan", PLANS[1:], ids=name_of)
def test_numpy_integers_are_counts(plan):
    sizes = {name: np.int64(value) for name, value in plan.keywords.items() if isinstance(value, int)}
    assert sizes
    factors = [plan(np.int32(step), **sizes) for step in range(25)]
    assert factors == pytest.approx([plan(step) for step in range(25)], rel=1e-14)


# --- plan and optimizer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", PLANS, ids=name_of)
def test_the_planned_curve_is_the_recorded_one_for_each_group(plan):
    optimizer = optimizer_with(0.1, 0.003, 5.0)
    lrs = recorded(optimizer, make_scheduler(optimizer, plan), 30)
    assert lr_curve(plan, 30, base_lr=[0.1, 0.003, 5.0]) == lrs


def test_the_trainer_records_the_planned_curve(tiny_model, tiny_batch):
    plan = PLANS[3]
    optimizer = SGD(tiny_model.parameters(), lr=0.1)
    trainer = Trainer(tiny_model, optimizer, nn.CrossEntropyLoss(), scheduler=make_scheduler(optimizer, plan))
    trainer.fit([tiny_batch], num_steps=25)
    assert [row["lr"] for row in trainer.history] == lr_curve(plan, 25, base_lr=0.1)


def test_drawing_a_curve_uses_nothing_up():
    optimizer = optimizer_with(0.1)
    scheduler = make_scheduler(optimizer, PLANS[3])
    before = repr((scheduler.state_dict(), optimizer.state_dict()))
    lr_curve(PLANS[3], 20, base_lr=scheduler.base_lrs)
    assert repr((scheduler.state_dict(), optimizer.state_dict())) == before


def test_a_tensor_lr_is_planned_and_scheduled():
    optimizer = optimizer_with(torch.tensor(0.5), cls=AdamW, capturable=False, foreach=False)
    [lrs] = recorded(optimizer, make_scheduler(optimizer, PLANS[3]), 25)
    assert lrs == pytest.approx(lr_curve(PLANS[3], 25, base_lr=torch.tensor(0.5)), rel=1e-6)


@pytest.mark.parametrize("plan", PLANS, ids=name_of)
def test_a_schedule_can_be_pickled_and_its_state_loads_with_weights_only(plan):
    assert [pickle.loads(pickle.dumps(plan))(step) for step in range(9)] == [plan(step) for step in range(9)]
    optimizer, other = optimizer_with(0.1, 1.0), optimizer_with(0.1, 1.0)
    scheduler, resumed = make_scheduler(optimizer, plan), make_scheduler(other, plan)
    recorded(optimizer, scheduler, 7)
    file = io.BytesIO()
    torch.save({"scheduler": scheduler.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed.load_state_dict(state["scheduler"])
    other.load_state_dict(state["optimizer"])
    assert recorded(other, resumed, 9) == recorded(optimizer, scheduler, 9)


def test_a_first_update_without_an_lr_is_an_error():
    with pytest.raises(ValueError, match="would change nothing"):
        make_scheduler(optimizer_with(0.1), lambda step: min(1.0, step / 4))
    with pytest.raises(ValueError, match="finite number, got nan"):
        make_scheduler(optimizer_with(0.1), lambda step: math.nan)
    with pytest.raises(ValueError, match="finite number, got tensor"):
        make_scheduler(optimizer_with(0.1), lambda step: torch.ones(()))


@pytest.mark.parametrize("factor_fn", [0.5, [constant], None])
def test_what_is_no_function_is_an_error_that_repeats_it(factor_fn):
    with pytest.raises(ValueError, match=re.escape(f"must be a function from step to factor, got {factor_fn!r}: bind")):
        make_scheduler(optimizer_with(0.1), factor_fn)


@pytest.mark.parametrize("number", [np.float32, np.float64, Fraction, int])
def test_any_real_number_is_a_factor_and_the_lr_stays_a_float_that_a_checkpoint_can_hold(number):
    optimizer = optimizer_with(0.1)
    [lrs] = recorded(optimizer, make_scheduler(optimizer, lambda step: 1.0 if step == 1 else number(1 + step // 2)), 4)
    assert lrs == [0.1, 0.1, 0.2, 0.2] == lr_curve(lambda step: number(1 + step // 2), 4, base_lr=0.1)
    assert type(optimizer.param_groups[0]["lr"]) is float
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["param_groups"][0]["lr"] == 0.1 * 3


@pytest.mark.parametrize("many", [tuple, np.array, torch.tensor], ids=["tuple", "array", "tensor"])
def test_the_base_lrs_of_several_groups_may_be_an_array(many):
    assert lr_curve(PLANS[3], 9, base_lr=many([0.5, 0.25])) == lr_curve(PLANS[3], 9, base_lr=[0.5, 0.25])


def test_a_second_scheduler_in_mid_run_is_an_error_and_changes_nothing():
    optimizer = optimizer_with(0.1, 0.2)
    recorded(optimizer, make_scheduler(optimizer, PLANS[1]), 7)
    with pytest.raises(ValueError, match=r"param group 0 .* began at 0.1: .* from 0.05 to 0.1\."):
        make_scheduler(optimizer, PLANS[1])
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.1]
    for group in optimizer.param_groups:
        del group["initial_lr"]
    assert recorded(optimizer, make_scheduler(optimizer, constant), 3) == [[0.05] * 3, [0.1] * 3]


def test_the_same_scheduler_built_again_before_the_run_is_no_error():
    optimizer = optimizer_with(0.1)
    for _ in range(2):
        scheduler = make_scheduler(optimizer, PLANS[3])
    assert recorded(optimizer, scheduler, 20) == [lr_curve(PLANS[3], 20, base_lr=0.1)]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_updates_in_run_counts_what_the_trainer_makes(num, batch_size, num_epochs, accumulate, world_size, drop_last):
    dataset = [(torch.full((4,), float(i)), i % 3) for i in range(num)]
    model = make_tiny_model()
    how = {"batch_size": batch_size, "world_size": world_size, "drop_last": drop_last}
    trainer = Trainer(model, SGD(model.parameters(), lr=1e-4), nn.CrossEntropyLoss(), accumulate=accumulate)
    loader = ResumableLoader(dataset, rank=0, **how)  # rank 0 has an example in every batch
    if drop_last and num < batch_size * world_size:
        with pytest.raises(ValueError, match="leaves no batch"):
            updates_in_run(num, **how, num_epochs=num_epochs, accumulate=accumulate)
        with pytest.raises(ValueError, match="no batch"):
            trainer.fit(loader, num_epochs=num_epochs)
    else:
        planned = updates_in_run(num, **how, num_epochs=num_epochs, accumulate=accumulate)
        assert len(trainer.fit(loader, num_epochs=num_epochs).history) == planned


@pytest.mark.parametrize(
    "how, updates",
    [
        ({"batch_size": 64, "num_epochs": 1}, 157),
        ({"batch_size": 64, "num_epochs": 3, "drop_last": True}, 468),
        ({"batch_size": 64, "num_epochs": 3, "accumulate": 4}, 120),
        ({"batch_size": 64, "num_epochs": 3, "accumulate": 4, "world_size": 2}, 60),
    ],
)
def test_updates_of_ten_thousand_examples_worked_out_by_hand(how, updates):
    assert updates_in_run(10_000, **how) == updates


# --- the class form ------------------------------------------------------------------------------------------------

SIZES = {"warmup_steps": 4, "total_steps": 20, "min_factor": 0.1}


def test_the_class_form_equals_the_function_to_the_bit_in_every_group():
    of_class, of_function = optimizer_with(0.1, 0.003, 5.0), optimizer_with(0.1, 0.003, 5.0)
    by_class = recorded(of_class, WarmupCosineLR(of_class, **SIZES), 30)
    assert by_class == recorded(of_function, make_scheduler(of_function, partial(warmup_cosine, **SIZES)), 30)
    assert by_class == lr_curve(partial(warmup_cosine, **SIZES), 30, base_lr=[0.1, 0.003, 5.0])


@pytest.mark.parametrize("saved_at", [0, 3, 4, 19, 25])
def test_the_class_form_goes_on_from_its_state(saved_at):
    first, second = optimizer_with(0.1, 1.0), optimizer_with(0.1, 1.0)
    scheduler, resumed = WarmupCosineLR(first, **SIZES), WarmupCosineLR(second, **SIZES)
    recorded(first, scheduler, saved_at)
    resumed.load_state_dict(scheduler.state_dict())
    second.load_state_dict(first.state_dict())
    assert recorded(second, resumed, 9) == recorded(first, scheduler, 9)


def test_the_class_form_refuses_the_state_of_another_plan():
    scheduler = WarmupCosineLR(optimizer_with(0.1), **SIZES)
    longer = WarmupCosineLR(optimizer_with(0.1), **(SIZES | {"total_steps": 40}))
    with pytest.raises(ValueError, match="total_steps was 20 when saved and is 40 now"):
        longer.load_state_dict(scheduler.state_dict())
    assert longer.plan["total_steps"] == 40


def test_a_constant_schedule_changes_no_bit_of_training(tiny_batch):
    def weights(scheduled: bool):
        model = make_tiny_model()
        optimizer = AdamW(model.parameters(), lr=0.1)
        scheduler = make_scheduler(optimizer, constant) if scheduled else None
        trainer = Trainer(model, optimizer, nn.CrossEntropyLoss(), scheduler=scheduler)
        list(islice(trainer.steps([tiny_batch], num_steps=5), 5))
        return nn.utils.parameters_to_vector(model.parameters())

    assert torch.equal(weights(True), weights(False))
