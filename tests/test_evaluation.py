import math
from collections import namedtuple
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from course_utils.evaluation import Mean, eval_mode, evaluate, to_device, unwrap
from course_utils.loaders import ResumableLoader
from tests.conftest import make_tiny_model


def test_a_mean_weighs_values_by_their_counts():
    mean = Mean()
    assert math.isnan(mean.value)
    mean.update(1.0, 9)
    mean.update(torch.tensor(2.0, requires_grad=True), 1)
    assert mean.value == pytest.approx(1.1)  # the mean of the batch means would be 1.5


def test_a_mean_adds_in_double_precision():
    mean = Mean()
    for _ in range(1000):
        mean.update(torch.tensor(0.1), 1)
    assert mean.value == pytest.approx(float(torch.tensor(0.1)), rel=1e-12)


@pytest.mark.parametrize(
    "value, count",
    [(math.nan, 1), (math.inf, 1), (1.0, -1), (1.0, math.nan), (1.0, math.inf), (torch.tensor(math.nan), 1)],
)
def test_a_mean_refuses_what_would_spoil_it_and_stays_as_it_was(value, count):
    mean = Mean()
    mean.update(1.0, 1)
    with pytest.raises(ValueError, match=f"count={count}"):
        mean.update(value, count)
    mean.update(math.nan, 0)  # nothing was counted, so its mean is 0 / 0
    assert mean.value == 1.0


def test_a_mean_takes_its_count_from_a_tensor_too():
    mean = Mean()
    mean.update(torch.tensor(3.0), torch.tensor(2))
    assert (mean.total, mean.count, type(mean.count)) == (6.0, 2.0, float)


def test_the_naive_ways_to_a_mean_are_wrong_or_keep_the_graph():
    losses = [torch.tensor(1.0, requires_grad=True) * 1] * 32 + [torch.tensor(9.0)]
    counts = [4] * 32 + [1]
    mean, total = Mean(), 0.0
    for loss, count in zip(losses, counts, strict=True):
        mean.update(loss, count)
        total = total + loss  # the mistake: a graph that grows
    assert mean.value == pytest.approx((32 * 4 + 9) / 129) and total.grad_fn is not None
    assert float(total.detach()) / 33 == pytest.approx(41 / 33)  # a mean of batch means: 1.24, not 1.06


def test_a_means_state_goes_on_where_it_was():
    one, two = Mean(), Mean()
    one.update(3.0, 4)
    two.load_state_dict(one.state_dict())
    for mean in (one, two):
        mean.update(5.0, 1)
    assert one.value == two.value == pytest.approx(3.4)


def test_eval_mode_gives_every_module_its_own_mode_back_also_on_an_exception():
    model = nn.Sequential(nn.BatchNorm1d(4), make_tiny_model())
    model[0].eval()  # frozen on purpose
    before = [module.training for module in model.modules()]
    with pytest.raises(KeyError), eval_mode(model):
        assert not any(module.training for module in model.modules())
        raise KeyError
    assert [module.training for module in model.modules()] == before and not all(before)


def test_unwrap_finds_the_model_under_wrappers(tiny_model):
    compiled = nn.Module()
    compiled._orig_mod = nn.DataParallel(tiny_model)
    assert unwrap(compiled) is tiny_model and unwrap(tiny_model) is tiny_model


@pytest.mark.parametrize("batch_size", [1, 3, 10])
def test_loss_accuracy_and_confusion_are_those_of_the_whole_set_for_any_batch_size(tiny_model, tiny_batch, batch_size):
    inputs, targets = tiny_batch
    found = evaluate(tiny_model, DataLoader(TensorDataset(*tiny_batch), batch_size=batch_size), F.cross_entropy)
    with torch.no_grad():
        logits = tiny_model(inputs)
    assert found.loss == pytest.approx(F.cross_entropy(logits, targets).item(), rel=1e-6)
    assert found.accuracy == (logits.argmax(1) == targets).sum().item() / 10 and found.count == 10
    for target in range(3):
        for predicted in range(3):
            assert found.confusion[target, predicted] == ((targets == target) & (logits.argmax(1) == predicted)).sum()


def test_confusion_rows_are_targets_and_columns_predictions():
    logits = torch.eye(3)[[0, 1, 1, 2]]
    found = evaluate(nn.Identity(), [(logits, torch.tensor([0, 1, 2, 2]))], F.cross_entropy)
    assert found.confusion.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]] and found.accuracy == 0.75


def test_per_class_numbers_are_those_worked_out_by_hand():
    logits = torch.eye(4)[[0, 1, 1, 2]]
    found = evaluate(nn.Identity(), [(logits, torch.tensor([0, 1, 2, 2]))], F.cross_entropy)
    rows = [tuple(row.values()) for row in found.per_class(["a", "b", "c", "d"])]
    assert rows == [
        ("a", 1, 1, 1, 1.0, 1.0),
        ("b", 1, 2, 1, 1.0, 0.5),
        ("c", 2, 1, 1, 0.5, 1.0),
        ("d", 0, 0, 0, None, None),
    ]
    assert list(found.per_class()[2]) == ["class", "count", "predicted", "right", "recall", "precision"]
    assert [row["class"] for row in found.per_class()] == [0, 1, 2, 3]


def test_per_class_numbers_need_classes_and_a_name_for_each(tiny_model, tiny_batch):
    with pytest.raises(ValueError, match="has no classes"):
        evaluate(nn.Identity(), [(torch.ones(4, 2), torch.zeros(4, 2))], nn.MSELoss()).per_class()
    with pytest.raises(ValueError, match="name for each of 3 classes, got 2"):
        evaluate(tiny_model, [tiny_batch], F.cross_entropy).per_class(["a", "b"])


@pytest.mark.parametrize("ignored", [-100, 0])
def test_ignored_targets_count_neither_in_loss_nor_in_accuracy(ignored):
    logits = torch.eye(3)[[0, 1, 2, 2]]
    targets = torch.tensor([ignored, 1, 1, 2])
    found = evaluate(nn.Identity(), [(logits, targets)], partial(F.cross_entropy, ignore_index=ignored))
    assert found.count == 3 and found.accuracy == pytest.approx(2 / 3) and found.confusion.sum() == 3


def test_a_sequence_of_targets_an_example_is_judged_place_by_place():
    logits = torch.eye(3)[torch.tensor([[0, 1], [2, 2]])].movedim(-1, 1)
    found = evaluate(nn.Identity(), [(logits, torch.tensor([[0, 1], [2, 1]]))], F.cross_entropy)
    assert found.accuracy == 0.75 and found.count == 4


def test_regression_has_a_loss_and_no_accuracy():
    found = evaluate(nn.Identity(), [(torch.ones(4, 2), torch.zeros(4, 2))], nn.MSELoss())
    assert found == (1.0, None, None, 8)


def test_empty_batches_are_passed_over_and_nothing_at_all_is_an_error(tiny_model, tiny_batch):
    inputs, targets = tiny_batch
    empty = (inputs[:0], targets[:0])
    assert evaluate(tiny_model, [empty, tiny_batch], F.cross_entropy).count == 10
    for loader in ([], [empty], [(inputs, targets * 0 - 100)]):
        with pytest.raises(ValueError, match="counted no target"):
            evaluate(tiny_model, loader, F.cross_entropy)


def test_a_loader_that_stands_in_its_epoch_is_read_whole_and_not_moved(tiny_model, tiny_batch):
    loader = ResumableLoader(TensorDataset(*tiny_batch), batch_size=3)
    iteration = iter(loader)
    next(iteration)
    before = loader.state_dict()
    assert evaluate(tiny_model, loader, F.cross_entropy).count == 10
    assert loader.state_dict() == before and len(next(iteration)[0]) == 3


def test_a_failing_evaluation_leaves_position_modes_and_generators(tiny_batch):
    loader, model = ResumableLoader(TensorDataset(*tiny_batch), batch_size=3), make_tiny_model(dropout=0.5)
    next(iter(loader))
    before, generator = loader.state_dict(), torch.get_rng_state()

    def failing(outputs, targets):
        torch.rand(3)
        raise KeyError

    with pytest.raises(KeyError):
        evaluate(model, loader, failing)
    assert loader.state_dict() == before and torch.equal(torch.get_rng_state(), generator)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize(
    "make", [lambda data: DataLoader(data, batch_size=4, shuffle=True), None], ids=["plain", "ours"]
)
def test_training_goes_on_bit_equal_after_an_evaluation(tiny_batch, make):
    def train(evaluating):
        torch.manual_seed(5)
        model = make_tiny_model(dropout=0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(*tiny_batch)
        loader = make(data) if make else ResumableLoader(data, batch_size=4)
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(tiny_batch[0]), tiny_batch[1]).backward()
            optimizer.step()
            if evaluating:
                evaluate(model, loader, F.cross_entropy)
        return torch.cat([param.detach().flatten() for param in model.parameters()])

    assert torch.equal(train(True), train(False))


@pytest.mark.parametrize("shuffle", [False, True])  # each iteration draws a seed for workers, without any too
@pytest.mark.parametrize("fails", [False, True])
def test_a_loaders_own_generator_is_put_back(tiny_model, tiny_batch, fails, shuffle):
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(*tiny_batch), batch_size=4, shuffle=shuffle, generator=generator)
    before = generator.get_state()
    with pytest.raises(ZeroDivisionError) if fails else nullcontext():
        evaluate(tiny_model, loader, (lambda outputs, targets: 1 / 0) if fails else F.cross_entropy)
    assert torch.equal(generator.get_state(), before)


def test_a_samplers_own_generator_is_put_back(tiny_model, tiny_batch):
    data = TensorDataset(*tiny_batch)
    sampler = RandomSampler(data, generator=torch.Generator().manual_seed(3))
    before = sampler.generator.get_state()
    evaluate(tiny_model, DataLoader(data, batch_size=4, sampler=sampler), F.cross_entropy)
    assert torch.equal(sampler.generator.get_state(), before)


def test_evaluation_needs_no_gradients_and_no_dropout(tiny_batch):
    model, seen = make_tiny_model(dropout=0.9), []

    def loss_fn(outputs, targets):
        seen.append(outputs.requires_grad)
        return F.cross_entropy(outputs, targets)

    assert evaluate(model, [tiny_batch], loss_fn).loss == evaluate(model, [tiny_batch], loss_fn).loss
    assert seen == [False, False]


def test_without_isolation_no_generator_is_touched(tiny_model, tiny_batch, monkeypatch):
    monkeypatch.setattr("course_utils.evaluation.isolated_rng", None)
    evaluate(tiny_model, [tiny_batch], F.cross_entropy, isolate=False)
    with pytest.raises(TypeError):
        evaluate(tiny_model, [tiny_batch], F.cross_entropy)


def test_tensors_are_moved_at_any_depth():
    Pair = namedtuple("Pair", "inputs targets")
    moved = to_device(Pair({"ids": [torch.ones(2)]}, (torch.ones(1), "name")), "meta")
    assert moved.inputs["ids"][0].is_meta and moved.targets[0].is_meta and moved.targets[1] == "name"
    assert isinstance(moved, Pair)
    value = [torch.ones(1)]
    assert to_device(value, None) is value
