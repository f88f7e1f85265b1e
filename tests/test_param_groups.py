"""Which parameters decay, and whether an optimizer holds them all."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

from course_utils.schedules import check_optimizer_covers, decay_groups
from tests.conftest import make_tiny_model


class Net(nn.Module):
    """One of each kind of parameter; `head` is tied to `embed`."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.conv, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)
        self.plane_norm = nn.LayerNorm((2, 4))
        self.head = nn.Linear(4, 7)
        self.head.weight = self.embed.weight


def names(model, groups):
    of = {id(param): name for name, param in model.named_parameters()}
    return [[of[id(param)] for param in group["params"]] for group in groups]


def test_kernels_and_matrices_decay_and_norms_and_biases_do_not():
    model = Net()
    groups = decay_groups(model, weight_decay=0.1)
    kept = ["conv.bias", "norm.weight", "norm.bias", "plane_norm.weight", "plane_norm.bias", "head.bias"]
    assert names(model, groups) == [["embed.weight", "conv.weight"], kept]
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    check_optimizer_covers(model, AdamW(groups, lr=1e-3))


def test_frozen_parameters_are_in_no_decay_group_and_empty_groups_are_left_out():
    model = nn.Linear(3, 3)
    model.weight.requires_grad_(False)
    assert names(model, decay_groups(model, weight_decay=0.1)) == [["bias"]]
    assert decay_groups(model.requires_grad_(False), weight_decay=0.1) == []


def test_only_the_decayed_group_shrinks_without_gradients():
    model = nn.Linear(2, 2)
    start = [param.detach().clone() for param in model.parameters()]
    optimizer = AdamW(decay_groups(model, weight_decay=0.5), lr=0.1)
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    optimizer.step()
    torch.testing.assert_close(model.weight, start[0] * 0.95)
    assert torch.equal(model.bias, start[1])


def test_an_optimizer_that_holds_everything_once_passes():
    model = Net()
    check_optimizer_covers(model, SGD(model.parameters(), lr=0.1))
    model.conv.requires_grad_(False)
    check_optimizer_covers(model, SGD(model.parameters(), lr=0.1))
    check_optimizer_covers(model, SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))


def test_a_replaced_head_is_missing_and_the_old_one_foreign():
    model = make_tiny_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    model[3] = nn.Linear(4, 5)
    with pytest.raises(ValueError, match=r"missing \['3.weight', '3.bias'\], repeated \[\], and 2 that belong to no"):
        check_optimizer_covers(model, optimizer)


def test_a_parameter_unfrozen_after_the_optimizer_was_made_is_missing():
    model = make_tiny_model()
    model[0].requires_grad_(False)
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    check_optimizer_covers(model, optimizer)
    model[0].requires_grad_(True)
    with pytest.raises(ValueError, match=r"missing \['0.weight', '0.bias'\]"):
        check_optimizer_covers(model, optimizer)


def test_a_parameter_held_twice_is_named():
    model = nn.Linear(2, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = SGD([model.weight, model.weight, model.bias], lr=0.1)
    assert "duplicate parameters" in str(caught[0].message)
    with pytest.raises(ValueError, match=r"missing \[\], repeated \['weight'\], and 0 that"):
        check_optimizer_covers(model, optimizer)


def test_untying_a_tied_weight_leaves_the_new_one_out():
    model = Net()
    optimizer = SGD(model.parameters(), lr=0.1)
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    with pytest.raises(ValueError, match=r"missing \['head.weight'\]"):
        check_optimizer_covers(model, optimizer)


def test_the_number_of_dimensions_decides_whatever_the_parameter_is_for():
    model = nn.Module()
    for name, shape in {"position": (5, 4), "flat_bias": (1, 8), "bias": (8,), "scale": ()}.items():
        model.register_parameter(name, nn.Parameter(torch.ones(shape)))
    assert names(model, decay_groups(model, weight_decay=0.1)) == [["position", "flat_bias"], ["bias", "scale"]]


@pytest.mark.parametrize("weight_decay", [-0.1, math.nan, math.inf])
def test_a_decay_that_is_none_is_an_error(weight_decay):
    with pytest.raises(ValueError, match=f"finite number, 0 or more, got {weight_decay}: below 0 weights grow"):
        decay_groups(nn.Linear(2, 2), weight_decay=weight_decay)
