"""What a loss is a mean over, read from the loss; and the check that a count fits it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.optimizer_step import cut_gap, default_count


class Wrapped(nn.Module):
    def __init__(self, inner, **attributes):
        super().__init__()
        self.inner = inner
        vars(self).update(attributes)

    def forward(self, outputs, targets):
        return self.inner(outputs, targets)


@pytest.mark.parametrize(
    "inner, said",
    [
        (nn.CrossEntropyLoss(ignore_index=0), "holds inner, a CrossEntropyLoss with .*'ignore_index': 0} and no class"),
        (nn.CrossEntropyLoss(weight=torch.ones(3)), "'ignore_index': -100} and class weights.*pass count_fn"),
        (nn.CrossEntropyLoss(reduction="sum"), "{'reduction': 'sum'"),
        (nn.Sequential(nn.MSELoss(reduction="none")), "holds inner.0, a MSELoss"),
    ],
)
def test_a_loss_inside_a_loss_with_settings_of_its_own_is_not_guessed(inner, said):
    with pytest.raises(ValueError, match=said):
        default_count(Wrapped(inner))


@pytest.mark.parametrize(
    "loss_fn, count",
    [
        (Wrapped(nn.CrossEntropyLoss()), 4),
        (Wrapped(nn.CrossEntropyLoss(ignore_index=0), ignore_index=0), 3),
        (Wrapped(nn.Linear(3, 3)), 4),  # weights of a layer are no class weights
        (Wrapped(nn.BCEWithLogitsLoss(weight=torch.ones(4))), 4),  # weighs, and is a mean over all elements
    ],
)
def test_a_loss_inside_a_loss_that_can_be_read_is(loss_fn, count):
    assert default_count(loss_fn)(torch.tensor([0, 1, 2, 1])) == count


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_class_weights_add_up_in_float64(dtype):
    weight = torch.tensor([0.1, 1.0, 3.0], dtype=dtype, requires_grad=True)
    count = default_count(nn.CrossEntropyLoss(weight=weight))
    assert count(torch.tensor([0] * 1000)) == pytest.approx(1000 * weight[0].item(), rel=1e-12)


def test_a_count_is_a_plain_number_that_no_device_has_to_be_waited_for():
    for loss_fn in (F.cross_entropy, nn.MSELoss(), nn.CrossEntropyLoss(weight=torch.ones(3))):
        assert type(default_count(loss_fn)(torch.tensor([0, 1]))) in (int, float)


# --- cut_gap --------------------------------------------------------------------------------------------------


def dice(outputs, targets):
    """A loss of the whole batch: it is no mean over anything."""
    return 1 - 2 * (outputs.sigmoid() * targets).sum() / (outputs.sigmoid().sum() + targets.sum())


def mean_of_row_means(outputs, targets):
    return torch.stack([F.cross_entropy(row, of) for row, of in zip(outputs, targets, strict=True)]).mean()


TOKENS = torch.tensor([[0, 1, 2, 1], [2, -100, -100, -100], [1, 0, -100, -100]])


@pytest.mark.parametrize(
    "loss_fn, targets",
    [
        (lambda o, t: F.cross_entropy(o.transpose(1, 2), t), None),
        (nn.MSELoss(), torch.rand(3, 4, 3)),
        (nn.BCEWithLogitsLoss(), torch.rand(3, 4, 3)),
    ],
)
def test_a_mean_over_what_is_counted_has_no_gap(loss_fn, targets):
    count_fn = (lambda t: int((t != -100).sum())) if targets is None else None
    targets = TOKENS if targets is None else targets
    assert cut_gap(loss_fn, torch.randn(3, 4, 3), targets, count_fn=count_fn) < 1e-6


def test_ignored_examples_are_passed_over():
    targets = torch.tensor([-100, 1, 2, -100])
    assert cut_gap(nn.CrossEntropyLoss(), torch.randn(4, 3), targets) < 1e-6


@pytest.mark.parametrize(
    "loss_fn, targets, count_fn",
    [
        (dice, torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 0.0]]), None),
        (lambda o, t: F.cross_entropy(o, t, ignore_index=0), torch.tensor([0, 1, 2]), torch.numel),  # nobody can see it
    ],
)
def test_what_is_no_mean_over_what_is_counted_has_one(loss_fn, targets, count_fn):
    outputs = torch.tensor([[1.0, 0.0, -1.0], [3.0, 0.0, 0.5], [-2.0, 1.0, 0.0]])

    def nan_is_zero(outputs, targets):  # an ignored example alone is 0 / 0
        return loss_fn(outputs, targets).nan_to_num(0)

    assert cut_gap(nan_is_zero, outputs, targets, count_fn=count_fn) > 0.05


def test_a_mean_of_row_means_counts_rows_not_tokens():
    outputs = torch.randn(3, 4, 3, requires_grad=True)
    assert cut_gap(mean_of_row_means, outputs, TOKENS, count_fn=len) < 1e-6
    assert cut_gap(mean_of_row_means, outputs, TOKENS, count_fn=lambda t: int((t != -100).sum())) > 1e-3


def test_a_gap_is_relative_to_the_loss_of_the_whole():
    outputs, targets = torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1)

    def doubled_when_whole(o, t):
        return o.mean() * len(o)

    assert cut_gap(doubled_when_whole, outputs, targets, count_fn=len) == pytest.approx(0.5)  # |2 - 4| / 4
