"""Bytes kept for backward: each number worked out by hand."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_utils.profiling import bytes_for_backward, checkpointed, compare_memory, tensors_for_backward


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


INPUTS, TARGETS = torch.linspace(-1, 1, 40).view(10, 4), torch.arange(10) % 3


def test_a_small_network_keeps_what_is_worked_out_by_hand():
    model = mlp()
    kept = tensors_for_backward(lambda: F.cross_entropy(model(INPUTS), TARGETS))
    assert [(tensor.shape, tensor.nbytes) for tensor in kept] == [
        ((10, 4), 160),  # the inputs, for the first layer's weights
        ((10, 8), 320),  # ReLU's result, which the second layer saves again: once
        ((10, 3), 120),  # log-probabilities: of log_softmax and of the loss, once
        ((10,), 80),  # targets, int64
        ((), 4),  # the loss's total weight
    ]
    assert bytes_for_backward(lambda: F.cross_entropy(model(INPUTS), TARGETS)) == 684


def shared(x):
    return x.view(10, 4)[:2].sin().sum() + x.exp().sum()


@pytest.mark.parametrize(
    "fn, nbytes",
    [
        (lambda x: x.sin().sum(), 160),  # its input
        (lambda x: x.exp().sum(), 160),  # its result
        (lambda x: x.tanh().tanh().sum(), 320),  # two results
        (lambda x: (x * 3).sum() + (x + x).sum(), 0),  # linear: nothing
        (lambda x: (x * x).sum(), 160),  # one memory, saved twice
        (lambda x: x[:2].sin().sum(), 160),  # a view keeps all of it alive
        (lambda x: x[:2].clone().sin().sum(), 32),
        (lambda x: x.double().sin().sum(), 320),
        (lambda x: (x > 0).sum() + x.relu().sum(), 160),
        (shared, 320),  # the input once, exp's result
    ],
)
def test_each_operation_keeps_what_its_derivative_needs(fn, nbytes):
    weight = torch.ones(10, 4, requires_grad=True)
    assert bytes_for_backward(lambda: fn(weight + 0)) == nbytes


def test_memory_that_is_given_back_and_used_again_counts_each_time():
    weight = torch.ones(1000, requires_grad=True)

    def forward():
        for _ in range(3):
            dropped = weight.exp()  # noqa: F841
        return weight.exp().sum()

    assert bytes_for_backward(forward) == 4 * 4000


def test_parameters_are_not_counted_frozen_ones_neither_nor_buffers():
    frozen = mlp()
    frozen[2].requires_grad_(False)
    assert bytes_for_backward(lambda: frozen(INPUTS).sum()) == 160 + 320  # ReLU's result for its own derivative
    norm = nn.BatchNorm1d(4).eval()
    assert bytes_for_backward(lambda: norm(INPUTS).sum()) == 160
    weight = torch.ones(4, 3, requires_grad=True)
    assert bytes_for_backward(lambda: ((INPUTS @ weight) @ weight.T).sum()) == 160 + 120
    tied = nn.Linear(4, 4)
    assert bytes_for_backward(lambda: tied(tied(INPUTS)).sum()) == 320


def test_a_result_of_any_form_will_do_and_one_without_a_graph_is_refused():
    model = mlp()
    assert bytes_for_backward(lambda: {"losses": [model(INPUTS).sum()], "count": 10}) == 480
    for fn in (lambda: model(INPUTS).sum().item(), lambda: model(INPUTS).detach(), lambda: None):
        with pytest.raises(ValueError, match="fn returned no tensor with a graph: it must return its loss"):
            bytes_for_backward(fn)


def test_nothing_is_held_afterwards_also_on_an_exception():
    held = []

    def forward(fail):
        result = torch.ones(10, requires_grad=True).exp()
        held.append(weakref.ref(result))
        return result.exp().sum() / (0 if fail else 1) if not fail else 1 / 0

    bytes_for_backward(lambda: forward(False))
    with pytest.raises(ZeroDivisionError):
        bytes_for_backward(lambda: forward(True))
    gc.collect()
    assert [ref() for ref in held] == [None, None]
    assert not nn.modules.module._global_forward_pre_hooks


# --- checkpointing


def four_blocks(dropout=0.0):
    torch.manual_seed(1)
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(dropout)) for _ in range(4)])


def test_checkpointing_keeps_the_inputs_of_segments_and_all_of_the_last():
    model, inputs = four_blocks(), torch.ones(10, 8)  # 320 bytes each: x, then one ReLU a block
    assert bytes_for_backward(lambda: model(inputs).sum()) == 5 * 320
    kept = [bytes_for_backward(lambda: checkpointed(model, segments)(inputs).sum()) for segments in (1, 2, 4)]  # noqa: B023
    assert kept == [5 * 320, 4 * 320, 5 * 320]  # 2: x, second segment's input and two results; 4: a block keeps no less


def test_checkpointing_deep_segments_keeps_less():
    deep = nn.Sequential(*[nn.Tanh() for _ in range(16)])
    weight = torch.ones(10, 8, requires_grad=True)
    plain, kept = (bytes_for_backward(lambda: fn(weight + 0).sum()) for fn in (deep, checkpointed(deep, 4)))  # noqa: B023
    assert plain == 16 * 320 and kept == (3 + 4) * 320  # the inputs of three segments, the last one's four results


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_checkpointing_gives_the_same_loss_and_gradients_to_the_bit(dropout):
    found = []
    for segments in (None, 2, 4):
        model = four_blocks(dropout)
        run = checkpointed(model, segments) if segments else model
        torch.manual_seed(7)
        loss = run(torch.linspace(0, 1, 80).view(10, 8)).square().sum()
        loss.backward()
        found.append(torch.cat([loss.detach()[None], *[param.grad.flatten() for param in model.parameters()]]))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("model, segments", [(nn.Linear(2, 2), 1), (nn.Sequential(nn.ReLU()), 2), (mlp(), 0)])
def test_what_cannot_be_cut_into_segments_is_refused(model, segments):
    with pytest.raises(ValueError, match=f"1 to len.model. segments, got .*num_segments={segments}"):
        checkpointed(model, segments)


def test_the_table_has_bytes_and_times_and_leaves_no_gradient():
    deep, weight = nn.Sequential(*[nn.Tanh() for _ in range(16)]), torch.ones(10, 8, requires_grad=True)
    ways = {"plain": lambda: deep(weight + 0).sum(), "4 segments": lambda: checkpointed(deep, 4)(weight + 0).sum()}
    table = compare_memory(ways, seconds=0.01)
    assert [(row.name, row.kept_bytes) for row in table] == [("plain", 5120), ("4 segments", 2240)]
    assert all(row.peak_bytes > row.kept_bytes for row in table)  # `test_live_bytes` knows by how much
    assert weight.grad is None and all(row.step_ms > 0 for row in table)
    lines = str(table).splitlines()
    assert lines[1].split()[:3] == ["plain", "0.005", "100%"] and lines[1].split()[4] == "100%"
    assert lines[2].split()[:4] == ["4", "segments", "0.002", "44%"]
    with pytest.raises(ValueError, match="at least one way"):
        compare_memory({})
