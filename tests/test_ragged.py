"""Every way to add up micro-batches against the whole batch, and the memory that a cut keeps."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.optimizer_step import RULES, activation_bytes, cut, gradient_error, update, window_gradient
from course_utils.profiling import bytes_for_backward
from tests.conftest import make_tiny_model

WRONG = {
    "by examples": {"ignored": True},
    "mean of means": {},
    "divided by accumulate": {"accumulate": 4},
    "divided twice": {},
    "added up": {},
    "first alone": {},
    "last alone": {},
}


def ignoring(batch):
    inputs, targets = batch
    return inputs, torch.where(torch.arange(len(targets)) < 3, -100, targets)


def error(batch, lengths, rule="by targets", **how):
    return gradient_error(make_tiny_model(), F.cross_entropy, batch, lengths, rule, **how)


def random_cut(seed, length=10):
    generator = random.Random(seed)
    ends = sorted(generator.choices(range(length + 1), k=generator.randint(0, 5)))
    return [end - start for start, end in zip([0, *ends], [*ends, length], strict=True)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ignored", [False, True])
def test_weighing_by_targets_is_the_whole_batch_however_it_is_cut(tiny_batch, seed, ignored):
    batch = ignoring(tiny_batch) if ignored else tiny_batch
    assert error(batch, random_cut(seed)) < 1e-6


@pytest.mark.parametrize("rule", WRONG)
def test_every_other_rule_is_far_off_for_a_ragged_cut(tiny_batch, rule):
    how = dict(WRONG[rule])
    batch = ignoring(tiny_batch) if how.pop("ignored", False) else tiny_batch
    assert error(batch, [5, 4, 1], rule, **how) > 1e-2
    assert {"by targets", *WRONG} == set(RULES)


@pytest.mark.parametrize("rule", ["by examples", "mean of means", "divided by accumulate"])
def test_equal_micro_batches_hide_the_mistake(tiny_batch, rule):
    assert error(tiny_batch, [5, 5], rule) < 1e-6


@pytest.mark.parametrize(
    "rule, factor", [("divided by accumulate", 1 / 4), ("divided twice", 1 / 2), ("added up", 2.0)]
)
def test_some_rules_have_the_direction_and_not_the_length(tiny_batch, rule, factor):
    """So Adam, which divides by the gradient's size, hides them."""
    lengths, accumulate = ([5, 5], 4) if rule != "divided by accumulate" else ([10], 4)
    found = window_gradient(make_tiny_model(), F.cross_entropy, tiny_batch, lengths, rule, accumulate=accumulate)
    whole = window_gradient(make_tiny_model(), F.cross_entropy, tiny_batch, [10])
    torch.testing.assert_close(found, factor * whole)


@pytest.mark.parametrize("lengths", [[10], [4, 4, 2], [9, 0, 1]], ids=str)
def test_the_right_rule_is_that_of_update(tiny_batch, lengths):
    model, loss_fn = make_tiny_model(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]))
    update(model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn, cut(tiny_batch, lengths))
    expected = torch.cat([param.grad.flatten() for param in model.parameters()]).double()
    torch.testing.assert_close(window_gradient(make_tiny_model(), loss_fn, tiny_batch, lengths), expected)


@pytest.mark.parametrize("lengths", [[3, 7], [0, 10], [7, 0, 3]], ids=str)
def test_an_empty_or_ignored_micro_batch_is_passed_over_and_makes_a_mean_of_means_too_short(tiny_batch, lengths):
    inputs, targets = ignoring(tiny_batch)
    batch = (inputs.flip(0), targets.flip(0)) if lengths[0] == 7 else (inputs, targets)
    assert error(batch, lengths) < 1e-6
    share = sum(length not in (0, 3) for length in lengths) / len(lengths)
    assert error(batch, lengths, "mean of means") == pytest.approx(1 - share, rel=1e-5)


def test_a_count_fn_of_the_callers_counts(tiny_batch):
    assert error(tiny_batch, [9, 1], count_fn=lambda targets: 1) == error(tiny_batch, [9, 1], "mean of means") > 1e-2


def test_batchnorm_in_train_mode_is_never_the_whole_batch_and_in_evaluation_mode_it_is(tiny_batch):
    model = nn.Sequential(nn.BatchNorm1d(4), make_tiny_model())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert gradient_error(model, F.cross_entropy, tiny_batch, [5, 5]) > 1e-2
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert gradient_error(model.eval(), F.cross_entropy, tiny_batch, [5, 5]) < 1e-6


def test_frozen_and_unused_parameters_take_their_place(tiny_batch):
    model = make_tiny_model()
    model[0].requires_grad_(False)
    model.unused = nn.Parameter(torch.ones(2))
    model.forward = lambda inputs: model[3](torch.tanh(model[0](inputs)))
    assert window_gradient(model, F.cross_entropy, tiny_batch, [10]).shape == (17,)
    assert all(param.grad is None for param in model.parameters())


@pytest.mark.parametrize("lengths", [[5, 4], [11], [-1, 11], []], ids=str)
def test_lengths_that_do_not_fit_are_an_error(tiny_batch, lengths):
    with pytest.raises(ValueError, match="add up to the batch's 10 examples, got"):
        cut(tiny_batch, lengths)


def test_a_rule_that_is_not_known_is_an_error(tiny_batch):
    with pytest.raises(ValueError, match="no rule 'mean': there are .'by targets'"):
        error(tiny_batch, [10], "mean")


# --- memory ---------------------------------------------------------------------------------------------------


def conv_net():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 3))


@pytest.mark.parametrize("lengths", [[8], [4, 4], [1, 7], [2, 2, 2, 2]], ids=str)
def test_the_largest_micro_batch_decides_what_is_kept(lengths):
    model, batch = conv_net(), (torch.randn(8, 1, 8, 8), torch.randint(3, (8,)))
    largest = max(cut(batch, lengths), key=lambda part: len(part[0]))
    largest = tuple(part.clone() for part in largest)  # a view keeps all of its memory
    expected = bytes_for_backward(lambda: F.cross_entropy(model(largest[0]), largest[1]))
    assert activation_bytes(model, F.cross_entropy, batch, lengths) == expected


def test_a_quarter_of_the_batch_keeps_about_a_quarter():
    batch = (torch.randn(64, 1, 8, 8), torch.randint(3, (64,)))
    whole, parts = (activation_bytes(conv_net(), F.cross_entropy, batch, lengths) for lengths in ([64], [16] * 4))
    assert 0.25 <= parts / whole < 0.3


def test_counting_leaves_the_model_as_it_was():
    model, batch = conv_net(), (torch.randn(8, 1, 8, 8), torch.randint(3, (8,)))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    activation_bytes(model, F.cross_entropy, batch, [8])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
