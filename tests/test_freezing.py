"""Frozen parts stay as they are, whatever mode the model is put in; early layers learn more slowly."""

import copy
import math
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.optimizer_step import depth_groups, freeze, unfreeze, update
from course_utils.schedules import check_optimizer_covers, make_scheduler, warmup_cosine
from course_utils.training_loop import eval_mode
from tests.conftest import make_tiny_model


def net():
    """Two blocks with BatchNorm and dropout, and a head."""
    block = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)) for _ in range(2)]
    return nn.Sequential(*block, nn.Linear(4, 3))


def train(model, batch, num_steps=3, **how):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(num_steps):
        model.train()
        update(model, optimizer, F.cross_entropy, [batch], **how)


def tensors(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def moved(model, before):
    return [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])]


# --- freeze ---------------------------------------------------------------------------------------------------


def test_a_frozen_part_keeps_weights_and_statistics_although_the_model_trains(tiny_batch):
    model = net()
    assert freeze(model, "0") == ["0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias"]
    before = tensors(model)
    train(model, tiny_batch)
    assert moved(model, before) == [name for name in before if not name.startswith("0.")]


def test_a_frozen_part_uses_no_dropout_and_the_running_statistics(tiny_batch):
    model = net()
    freeze(model, "0")
    expected = copy.deepcopy(model[0]).eval()(tiny_batch[0])
    model.train()
    assert torch.equal(model[0](tiny_batch[0]), expected)
    assert not any(module.training for module in model[0].modules()) and model[1].training


def test_without_the_mode_the_statistics_of_frozen_weights_move(tiny_batch):
    model = net()
    model[0].requires_grad_(False)
    before = tensors(model)
    train(model, tiny_batch)
    assert [name for name in moved(model, before) if name.startswith("0.")] == [
        "0.1.running_mean", "0.1.running_var", "0.1.num_batches_tracked",
    ]  # fmt: skip


def test_evaluation_mode_once_lasts_until_train_is_called(tiny_batch):
    model = net()
    model[0].requires_grad_(False).eval()
    before = tensors(model)
    model.train()
    model(tiny_batch[0])
    assert "0.1.running_mean" in moved(model, before)


@pytest.mark.parametrize("of", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_the_model_is_frozen_too_and_by_itself(tiny_batch, of):
    model = net()
    freeze(model, "0")
    other = of(model)
    unfreeze(model, "0")
    before = tensors(other)
    train(other, tiny_batch)
    assert [name for name in moved(other, before) if name.startswith("0.")] == []


def test_gradients_pass_through_a_frozen_part_to_what_lies_before_it(tiny_batch):
    model = net()
    freeze(model, "1", "2")
    before = tensors(model)
    train(model, tiny_batch)
    assert {name[0] for name in moved(model, before)} == {"0"}


def test_a_single_parameter_can_be_frozen(tiny_batch):
    model = make_tiny_model()
    assert freeze(model, "0.bias", "3") == ["0.bias", "3.weight", "3.bias"]
    before = tensors(model)
    train(model, tiny_batch)
    assert moved(model, before) == ["0.weight"]


def test_a_tied_weight_is_frozen_with_either_of_its_names():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "head": nn.Linear(4, 5)})
    model["head"].weight = model["embed"].weight
    assert freeze(model, "head.weight") == ["embed.weight"]


def test_a_gradient_left_from_before_is_dropped_so_that_a_step_does_not_apply_it(tiny_batch):
    model = make_tiny_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    F.cross_entropy(model(tiny_batch[0]), tiny_batch[1]).backward()
    before = tensors(model)
    freeze(model, "0")
    optimizer.step()
    assert moved(model, before) == ["3.weight", "3.bias"]


def test_zeroed_gradients_instead_of_none_move_a_frozen_weight_by_momentum_and_decay(tiny_batch):
    model = make_tiny_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    update(model, optimizer, F.cross_entropy, [tiny_batch])
    model[0].requires_grad_(False)
    before = tensors(model)
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    assert "0.weight" in moved(model, before)
    freeze(model, "0")
    unfreeze(model, "0"), freeze(model, "0")
    before = tensors(model)
    optimizer.step()
    assert "0.weight" not in moved(model, before)


def test_freezing_twice_changes_nothing_more_and_unfreezing_undoes_it(tiny_batch):
    model, plain = net(), net()
    plain.load_state_dict(model.state_dict())
    assert freeze(model, "0") and freeze(model, "0") == [] and freeze(model, "0.1") == []
    assert len(model[0][1]._forward_pre_hooks) == 1
    assert unfreeze(model, "0") == ["0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias"]
    assert all(module.training for module in model.modules()) and unfreeze(model, "0") == []
    for one in (model, plain):
        torch.manual_seed(3)
        train(one, tiny_batch)
    assert moved(model, tensors(plain)) == []


def test_unfreezing_in_evaluation_leaves_evaluation_mode():
    model = net()
    freeze(model, "0")
    model.eval()
    unfreeze(model, "0")
    assert not model[0].training


def test_evaluation_gives_every_module_its_own_mode_back():
    model = net()
    freeze(model, "0")
    with eval_mode(model):
        pass
    assert not model[0].training and model[1].training


@pytest.mark.parametrize("function", [freeze, unfreeze])
@pytest.mark.parametrize("names, said", [(["0", "7"], r"no \['7'\]: its children are \['0', '1', '2'\]"), ([], "no p")])
def test_a_name_that_the_model_does_not_have_freezes_nothing(function, names, said):
    model = net()
    with pytest.raises(ValueError, match=said):
        function(model, *names)
    assert model.training and model[0].training and all(param.requires_grad for param in model.parameters())


def test_the_optimizer_is_right_when_it_holds_what_can_train():
    model = net()
    freeze(model, "0", "1")
    optimizer = torch.optim.SGD([param for param in model.parameters() if param.requires_grad], lr=0.1)
    check_optimizer_covers(model, optimizer)


# --- lr by depth ----------------------------------------------------------------------------------------------


def test_each_part_has_a_fraction_of_the_lr_of_the_part_after_it():
    model = net()
    groups = depth_groups(model, lr=1.0, factor=0.5)
    assert [(group["name"], group["lr"], len(group["params"])) for group in groups] == [
        ("0", 0.25, 4), ("1", 0.5, 4), ("2", 1.0, 2),
    ]  # fmt: skip
    check_optimizer_covers(model, torch.optim.AdamW(groups))


def test_an_update_moves_each_part_by_its_own_lr(tiny_batch):
    model, plain = make_tiny_model(), make_tiny_model()
    update(plain, torch.optim.SGD(plain.parameters(), lr=1.0), F.cross_entropy, [tiny_batch])
    start = tensors(make_tiny_model())
    update(model, torch.optim.SGD(depth_groups(model, lr=1.0, factor=0.1)), F.cross_entropy, [tiny_batch])
    for name, share in {"0.weight": 0.1, "3.weight": 1.0}.items():
        moves = [one.state_dict()[name] - start[name] for one in (model, plain)]
        torch.testing.assert_close(moves[0], share * moves[1], rtol=1e-3, atol=1e-6)


def test_a_schedule_keeps_the_ratio():
    optimizer = torch.optim.SGD(depth_groups(net(), lr=1.0, factor=0.5))
    scheduler = make_scheduler(optimizer, partial(warmup_cosine, warmup_steps=2, total_steps=10))
    for _ in range(5):
        lrs = [group["lr"] for group in optimizer.param_groups]
        assert lrs == pytest.approx([lrs[2] / 4, lrs[2] / 2, lrs[2]])
        optimizer.step(), scheduler.step()


def test_parts_of_the_callers_share_a_depth_and_keep_their_place_when_frozen():
    model = net()
    freeze(model, "1")
    groups = depth_groups(model, lr=1.0, factor=0.5, parts=["0.0", "0.1", "1", "2"])
    assert [(group["name"], group["lr"]) for group in groups] == [("0.0", 0.125), ("0.1", 0.25), ("2", 1.0)]
    both = depth_groups(model, lr=1.0, factor=0.5, parts=[("0", "1"), "2.weight", "2.bias"])
    assert [(group["name"], group["lr"], len(group["params"])) for group in both] == [
        ("0, 1", 0.25, 4), ("2.weight", 0.5, 1), ("2.bias", 1.0, 1),
    ]  # fmt: skip


def test_by_default_frozen_children_have_no_depth_and_own_parameters_come_first():
    model = nn.Module()
    model.token = nn.Parameter(torch.zeros(1, 4))
    model.body, model.act, model.head = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)
    assert [group["name"] for group in depth_groups(model, lr=1.0, factor=0.5)] == ["token", "body", "head"]
    freeze(model, "body")
    assert [group["lr"] for group in depth_groups(model, lr=1.0, factor=0.5)] == [0.5, 1.0]


def test_a_tied_weight_goes_with_the_part_nearest_to_the_input():
    model = nn.ModuleDict({"embed": nn.Embedding(5, 4), "head": nn.Linear(4, 5)})
    model["head"].weight = model["embed"].weight
    groups = depth_groups(model, lr=1.0, factor=0.5)
    assert [[tuple(param.shape) for param in group["params"]] for group in groups] == [[(5, 4)], [(5,)]]


@pytest.mark.parametrize(
    "how, said",
    [
        ({"parts": ["0", "2"]}, r"no part holds \['1.0.weight', '1.0.bias', '1.1.weight', '1.1.bias'\]"),
        ({"parts": ["0", "0.1", "1", "2"]}, r"0.1.weight is held by \('0',\) and by \('0.1',\): one part only"),
        ({"parts": ["0", "1", "head"]}, r"the model has no \['head'\]"),
        ({"factor": 0.0}, "finite and above 0, got lr=1.0, factor=0.0"),
        ({"lr": math.inf}, "got lr=inf"),
        ({"lr": math.nan}, "got lr=nan"),
    ],
)
def test_parts_that_do_not_fit_are_an_error(how, said):
    with pytest.raises(ValueError, match=said):
        depth_groups(net(), **{"lr": 1.0, "factor": 0.5, **how})
