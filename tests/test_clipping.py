"""What clipping by norm and by value do to a gradient's length and direction."""

import math

import pytest
import torch
from torch.nn import functional as F

from course_utils.optimizer_step import clip_effect, update
from tests.conftest import make_tiny_model

GRADIENTS = [torch.tensor([3.0]), torch.tensor([[4.0]])]  # norm 5


@pytest.mark.parametrize(
    "how, clipped_norm, cosine",
    [
        ({}, 5.0, 1.0),
        ({"max_norm": 1.0}, 1.0, 1.0),
        ({"max_norm": 10.0}, 5.0, 1.0),
        ({"max_value": 1.0}, math.sqrt(2), 7 / (5 * math.sqrt(2))),  # (3, 4) becomes (1, 1)
        ({"max_norm": 2.5, "max_value": 1.5}, math.sqrt(4.5), 10.5 / (5 * math.sqrt(4.5))),  # (1.5, 2), then (1.5, 1.5)
        ({"max_norm": 2.0, "norm_type": math.inf}, 2.5, 1.0),  # the largest value, 4, becomes 2
        ({"max_norm": 3.5, "norm_type": 1.0}, 2.5, 1.0),  # 3 + 4 = 7 becomes 3.5
    ],
)
def test_lengths_and_directions_worked_out_by_hand(how, clipped_norm, cosine):
    effect = clip_effect(GRADIENTS, **how)
    assert effect == pytest.approx((5.0, clipped_norm, cosine), rel=1e-5)
    assert [gradient.item() for gradient in GRADIENTS] == [3.0, 4.0]


@pytest.mark.parametrize("how", [{"max_norm": 0.05}, {"max_value": 0.01}, {"max_norm": 0.05, "max_value": 0.01}])
def test_it_is_what_update_does(tiny_batch, how):
    model, plain = make_tiny_model(), make_tiny_model()
    F.cross_entropy(plain(tiny_batch[0]), tiny_batch[1]).backward()
    effect = clip_effect([param.grad for param in plain.parameters()], **how)
    report = update(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy, [tiny_batch], **how)
    norm = torch.cat([param.grad.flatten() for param in model.parameters()]).norm().item()
    assert effect[:2] == pytest.approx((report.grad_norm, norm), rel=1e-5)


def test_the_value_turns_a_gradient_and_the_norm_does_not():
    gradients = [torch.randn(100, generator=torch.Generator().manual_seed(0)).pow(3)]
    assert clip_effect(gradients, max_value=0.1).cosine < 0.8 and clip_effect(gradients, max_norm=0.1).cosine > 0.9999


def test_without_a_direction_the_cosine_is_nan():
    assert math.isnan(clip_effect([torch.zeros(2)], max_norm=1.0).cosine)
