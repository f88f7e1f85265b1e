from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, StepLR

from course_utils import run_state
from tests.conftest import make_tiny_model


def factor(step, *, total_steps, floor=0.0):
    return max(floor, 1 - step / total_steps)


def plan(factor_fn):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    return LambdaLR(optimizer, factor_fn)


def test_the_parameter_table_lists_names_and_shapes_in_order():
    table = run_state.parameter_table(make_tiny_model())
    assert table == [("0.weight", (4, 4)), ("0.bias", (4,)), ("3.weight", (3, 4)), ("3.bias", (3,))]


def two(first, second, *, shape=2):
    return nn.ModuleDict({first: nn.Linear(2, shape), second: nn.Linear(2, 2)})


@pytest.mark.parametrize(
    "other, said",
    [
        (two("b", "a"), r"parameter 0 was a.weight \(2, 2\), is b.weight \(2, 2\)"),
        (two("a", "c"), r"parameter 2 was b.weight \(2, 2\), is c.weight"),
        (two("a", "b", shape=3), r"parameter 0 was a.weight \(2, 2\), is a.weight \(3, 2\)"),
        (nn.ModuleDict({"a": nn.Linear(2, 2)}), "the state has 4 parameters, the model has 2"),
    ],
)
def test_names_order_and_shapes_of_parameters_must_match(other, said):
    saved = run_state.parameter_table(two("a", "b"))
    run_state.check_parameters(saved, two("a", "b"))
    with pytest.raises(ValueError, match=said):
        run_state.check_parameters(saved, other)


def normalised(*sizes):
    return nn.Sequential(nn.Linear(2, sizes[0]), *(nn.BatchNorm1d(size, affine=False) for size in sizes))


@pytest.mark.parametrize(
    "other, said",
    [
        (normalised(4, 4), "only the model has 2.num_batches_tracked"),
        (normalised(4), None),
        (nn.Sequential(nn.Linear(2, 4)), "only the state has 1.num_batches_tracked"),
        (
            nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(6, affine=False)),
            r"1.running_mean was \(4,\) .* is \(6,\) now",
        ),
    ],
)
def test_buffers_must_match_too_before_anything_is_loaded(other, said):
    saved = normalised(4).state_dict()
    if said is None:
        return run_state.check_tensors(saved, other)
    run_state.check_parameters(run_state.parameter_table(normalised(4)), other)  # the parameters are the same
    with pytest.raises(ValueError, match=said):
        run_state.check_tensors(saved, other)


def test_the_optimizers_own_order_and_class_must_match():
    model = two("a", "b")
    saved = run_state.describe_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    run_state.check_optimizer(saved, torch.optim.SGD(model.parameters(), lr=0.5), model)
    turned = torch.optim.SGD(reversed(list(model.parameters())), lr=0.1)
    with pytest.raises(ValueError, match=r"groups was \[\['a.weight'.* is \[\['b.bias'"):
        run_state.check_optimizer(saved, turned, model)
    with pytest.raises(ValueError, match="class was SGD when saved and is AdamW now"):
        run_state.check_optimizer(saved, torch.optim.AdamW(model.parameters()), model)


def test_lambda_lr_alone_would_load_another_plan_without_a_word():
    short, long = plan(partial(factor, total_steps=10)), plan(partial(factor, total_steps=99))
    long.load_state_dict(short.state_dict())  # no error: the mistake
    with pytest.raises(ValueError, match="'total_steps': 10.*'total_steps': 99"):
        run_state.check_scheduler(run_state.describe_scheduler(short), long)


@pytest.mark.parametrize(
    "other",
    [
        plan(partial(factor, total_steps=10, floor=0.1)),
        plan(lambda step: 1.0),
        None,
        StepLR(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), 1),
    ],
    ids=["argument", "function", "none", "class"],
)
def test_another_plan_of_the_lr_is_refused(other):
    saved = run_state.describe_scheduler(plan(partial(factor, total_steps=10)))
    run_state.check_scheduler(saved, plan(partial(factor, total_steps=10)))
    with pytest.raises(ValueError, match="the plan of the lr was"):
        run_state.check_scheduler(saved, other)


def test_a_described_plan_is_plain_and_knows_bound_arguments_through_partials(tmp_path):
    inner = partial(factor, total_steps=10)
    described = run_state.describe_factor(partial(inner, floor=torch.tensor(0.5)))
    assert described == {"name": "factor", "args": [], "kwargs": {"total_steps": 10, "floor": "tensor(0.5000)"}}
    assert run_state.describe_factor(partial(max, 0.5))["args"] == [0.5]
    torch.save(described, tmp_path / "plan.pt")
    assert torch.load(tmp_path / "plan.pt", weights_only=True) == described


def closing_over(total_steps):
    def falling(step):
        return 1 - step / total_steps if step else falling(1)  # names itself

    return falling


def chained(step, *, parts, inner):
    return inner(step) * len(parts)


def test_what_a_plan_closes_over_is_bound_too():
    saved = run_state.describe_scheduler(plan(closing_over(10)))
    assert saved["factors"] == [{"name": "falling", "args": [], "kwargs": {"total_steps": 10}}]
    with pytest.raises(ValueError, match="'total_steps': 10.*'total_steps': 99"):
        run_state.check_scheduler(saved, plan(closing_over(99)))


def test_a_description_has_no_address_of_this_process():
    inner = partial(factor, total_steps=10)
    described = run_state.describe_factor(partial(chained, parts=(1, [inner, object()]), inner=inner))
    kwargs = described["kwargs"]
    assert kwargs["inner"] == {"name": "factor", "args": [], "kwargs": {"total_steps": 10}}
    assert kwargs["parts"] == [1, [kwargs["inner"], "<object object>"]]


def test_environments_that_differ_give_one_warning_old_to_new():
    with pytest.warns(UserWarning, match="torch: 2.10 -> 2.14; num_threads: 1 -> 2") as caught:
        run_state.warn_environment(
            {"torch": "2.10", "num_threads": 1, "device": "cpu"}, {"torch": "2.14", "num_threads": 2, "device": "cpu"}
        )
    assert len(caught) == 1
    run_state.warn_environment({"torch": "2.14"}, {"torch": "2.14"})  # a warning here would be an error
