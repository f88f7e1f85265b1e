"""The moving average of weights: what it averages, how it starts, and that it gives the weights back."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from course_utils.optimizer_step import EMA, update
from tests.conftest import make_tiny_model


class Net(nn.Module):
    """BatchNorm, a tied weight, a whole-number buffer, a mask with -inf, and a buffer that no state dict holds."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.tensor([0.0, -math.inf]))
        self.register_buffer("cache", torch.zeros(2), persistent=False)

    def forward(self, inputs):
        return self.second(self.norm(self.first(inputs)))


def steps(model, batch, num_steps):
    """Trains, and stops after each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(num_steps):
        update(model, optimizer, F.cross_entropy, [batch])
        yield model


def tensors(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name].nan_to_num(0), expected[name].nan_to_num(0)) for name in found)


def value_of(ema):
    return float(ema.average["weight"])


def one_weight(value=0.0):
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, value)
    return model


# --- the average ----------------------------------------------------------------------------------------------


def test_the_average_is_that_of_averaged_model_buffers_too(tiny_batch):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    oracle = AveragedModel(model, avg_fn=get_ema_avg_fn(0.9), use_buffers=True)
    oracle.update_parameters(model)  # its first call copies
    ema = EMA(model, decay=0.9, warmup=False)
    for _ in steps(model, tiny_batch, 20):
        oracle.update_parameters(model), ema.update(model)
    expected = oracle.module.state_dict()
    averaged = [name for name in expected if "num_batches" not in name]
    torch.testing.assert_close({n: ema.average[n] for n in averaged}, {n: expected[n] for n in averaged})
    assert ema.average["1.num_batches_tracked"] == 20 and ema.num_updates == 20


@pytest.mark.parametrize("warmup, expected", [(False, [0.5, 1.25, 2.125]), (True, [0.9, 1.8, 2.7])])
def test_three_updates_worked_out_by_hand(warmup, expected):
    """Weights 1, 2, 3 after a start of 0. With warm-up the decays are 1/10, 2/11, 3/12."""
    ema, found = EMA(one_weight(0.0), decay=0.5, warmup=warmup), []
    for value in (1.0, 2.0, 3.0):
        ema.update(one_weight(value))
        found.append(value_of(ema))
    expected = expected if not warmup else [0.9, 0.9 * 2 / 11 + 2 * 9 / 11, (0.9 * 2 / 11 + 18 / 11) / 4 + 3 * 3 / 4]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("warmup, num_updates, share", [(False, 1000, 0.999**1000), (True, 10, 1 / 92378)])
def test_what_is_left_of_the_start(warmup, num_updates, share):
    ema = EMA(one_weight(1.0), decay=0.999, warmup=warmup)
    for _ in range(num_updates):
        ema.update(one_weight(0.0))
    assert value_of(ema) == pytest.approx(share, rel=1e-3)


def test_the_warm_up_ends_where_its_decay_passes_the_final_one():
    ema = EMA(one_weight(), decay=0.9)
    decays = []
    for _ in range(100):
        decays.append(ema.next_decay)
        ema.update(one_weight())
    assert decays[:2] == [1 / 10, 2 / 11] and decays[79] == pytest.approx(80 / 89)
    assert decays[80:] == [0.9] * 20 and decays == sorted(decays)


def test_decay_0_is_the_weights_themselves(tiny_batch):
    model = make_tiny_model()
    ema = EMA(model, decay=0.0, warmup=False)
    for _ in steps(model, tiny_batch, 2):
        ema.update(model)
    assert_same(ema.average, tensors(model))


def test_tied_weights_are_averaged_once_masks_and_whole_numbers_copied_and_caches_left_out(tiny_batch):
    model = Net()
    ema = EMA(model, decay=0.5)
    assert [name for name in ema.average if "weight" in name] == ["first.weight", "norm.weight"]
    assert ema.copied == {"mask", "norm.num_batches_tracked"} and "cache" not in ema.average
    model(tiny_batch[0])
    ema.update(model)
    assert torch.equal(ema.average["mask"], model.mask) and ema.average["norm.num_batches_tracked"] == 1
    assert torch.allclose(ema.average["norm.running_mean"], 0.9 * model.norm.running_mean)


def test_running_statistics_fit_averaged_weights_better_than_the_latest_ones():
    """One weight grows by 1 a step: what leaves the layer with averaged weights has the averaged mean, not the last."""
    model = nn.Sequential(one_weight(1.0), nn.BatchNorm1d(1, momentum=1.0))
    ema, inputs = EMA(model, decay=0.9), torch.tensor([[1.0], [3.0]])
    for value in range(1, 51):
        nn.init.constant_(model[0].weight, float(value))
        model(inputs)
        ema.update(model)
    latest = model[1].running_mean.item()
    with ema.applied(model):
        true_mean = model[0](inputs).mean().item()
        assert model[1].running_mean.item() == pytest.approx(true_mean, rel=1e-4)
    assert latest > 1.1 * true_mean


def test_a_frozen_weight_stays_to_the_bit_in_the_average(tiny_batch):
    model = make_tiny_model()
    model[0].weight.requires_grad_(False)
    ema = EMA(model, decay=0.999)
    for _ in steps(model, tiny_batch, 10):
        ema.update(model)
    assert torch.equal(ema.average["0.weight"], model[0].weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_average_of_short_floats_is_kept_in_float32_else_it_would_not_move(dtype):
    ema = EMA(one_weight(1.0).to(dtype), decay=0.9999, warmup=False)
    rounded = torch.ones(1, dtype=dtype)
    for _ in range(20):
        ema.update(one_weight(2.0).to(dtype))
        rounded.lerp_(torch.full((1,), 2.0, dtype=dtype), 1e-4)
    assert rounded.item() == 1.0 and value_of(ema) == pytest.approx(1 + 20 * 1e-4, rel=1e-5)
    model = one_weight(1.0).to(dtype)
    with ema.applied(model):
        assert model.weight.dtype is dtype


def test_the_model_under_torch_compile_and_ddp_is_the_same_model(tiny_batch, monkeypatch):
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    monkeypatch.setattr(nn.parallel, "DistributedDataParallel", Wrapper)
    model = make_tiny_model()
    compiled = nn.Module()
    compiled._orig_mod = Wrapper(model)
    ema = EMA(compiled, decay=0.5)
    assert list(ema.average) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    next(steps(model, tiny_batch, 1))
    ema.update(compiled), ema.update(model)
    with ema.applied(compiled):
        assert_same(tensors(model), ema.average)


# --- applied --------------------------------------------------------------------------------------------------


def test_inside_the_block_the_model_is_the_average_and_afterwards_itself_to_the_bit(tiny_batch):
    model = Net()
    ema = EMA(model, decay=0.9)
    for _ in steps(model, tiny_batch, 5):
        ema.update(model)
    before, pointers = tensors(model), [param.data_ptr() for param in model.parameters()]
    with ema.applied(model) as same:
        assert same is model and model.first.weight is model.second.weight
        assert torch.equal(model.first.weight, ema.average["first.weight"])
        assert not torch.equal(model.first.weight, before["first.weight"])
        model(tiny_batch[0])  # in train mode: statistics move
    assert_same(tensors(model), before)
    assert [param.data_ptr() for param in model.parameters()] == pointers  # the optimizer's tensors


def test_an_exception_puts_the_weights_back(tiny_batch):
    model = make_tiny_model()
    ema = EMA(model)
    next(steps(model, tiny_batch, 1))
    before = tensors(model)
    with pytest.raises(KeyboardInterrupt), ema.applied(model):
        raise KeyboardInterrupt
    assert_same(tensors(model), before)
    ema.update(model)


def test_training_goes_on_as_if_the_average_had_not_been_applied(tiny_batch):
    plain, model = make_tiny_model(), make_tiny_model()
    ema = EMA(model)
    for _, _ in zip(steps(plain, tiny_batch, 5), steps(model, tiny_batch, 5), strict=True):
        ema.update(model)
        with ema.applied(model):
            model(tiny_batch[0])
    assert_same(tensors(model), tensors(plain))


def test_an_update_inside_the_block_is_an_error_and_nested_blocks_are_not(tiny_model):
    ema = EMA(tiny_model)
    with ema.applied(tiny_model):
        with ema.applied(tiny_model):
            pass
        with pytest.raises(RuntimeError, match="the weights are the average there; leave the block first"):
            ema.update(tiny_model)
    assert ema.num_updates == 0


# --- state ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["state", "deepcopy", "pickle"])
def test_going_on_from_a_copy_gives_the_same_average(tiny_batch, way):
    model = make_tiny_model()
    ema = EMA(model, decay=0.9)
    run = steps(model, tiny_batch, 12)
    for _ in range(6):
        ema.update(next(run))
    if way == "state":
        other = EMA(make_tiny_model(), decay=0.9)
        other.load_state_dict(ema.state_dict())
    else:
        other = copy.deepcopy(ema) if way == "deepcopy" else pickle.loads(pickle.dumps(ema))
    for _ in run:
        ema.update(model), other.update(model)
    assert other.num_updates == ema.num_updates == 12  # without its counter it would begin the warm-up again
    assert_same(other.average, ema.average)


def test_a_state_is_shared_neither_when_saved_nor_when_loaded(tiny_batch):
    model = make_tiny_model()
    ema, other = EMA(model), EMA(model)
    state = ema.state_dict()
    before = {name: tensor.clone() for name, tensor in state["average"].items()}
    other.load_state_dict(state)
    for _ in steps(model, tiny_batch, 2):
        ema.update(model), other.update(model)
    assert_same(state["average"], before)


def test_a_state_is_not_loaded_inside_the_block_where_the_model_would_hold_another_average(tiny_model, tiny_batch):
    ema = EMA(tiny_model)
    state = ema.state_dict()
    next(steps(tiny_model, tiny_batch, 1))
    ema.update(tiny_model)
    before = {name: tensor.clone() for name, tensor in ema.average.items()}
    with ema.applied(tiny_model):
        with pytest.raises(RuntimeError, match="load_state_dict inside `applied`: .* leave the block first"):
            ema.load_state_dict(state)
        assert ema.state_dict()["num_updates"] == 1  # saving is no harm
    assert_same(ema.average, before)
    ema.load_state_dict(state)
    assert ema.num_updates == 0


@pytest.mark.parametrize(
    "other, said",
    [
        (lambda: EMA(make_tiny_model(), decay=0.9), "the EMA's decay was 0.999 when saved and is 0.9 now"),
        (lambda: EMA(make_tiny_model(), warmup=False), "the EMA's warmup was True when saved and is False now"),
        (lambda: EMA(nn.Linear(4, 3)), r"it holds {'weight': \(3, 4\), 'bias': \(3,\)}, and got {}"),
    ],
)
def test_a_state_of_another_average_is_an_error(other, said):
    ema = other()
    before = ema.state_dict()
    with pytest.raises(ValueError, match=said):
        ema.load_state_dict(EMA(make_tiny_model()).state_dict())
    assert_same(ema.state_dict()["average"], before["average"])


def test_another_model_is_named_with_both_shapes():
    ema, other = EMA(make_tiny_model()), make_tiny_model()
    other[3] = nn.Linear(4, 5)
    with pytest.raises(ValueError, match=r"it holds {'3.weight': \(3, 4\), .*and got {'3.weight': \(5, 4\)"):
        ema.update(other)
    with pytest.raises(ValueError, match="another model"), ema.applied(other):
        pass
    assert ema.num_updates == 0


@pytest.mark.parametrize("decay", [1.0, -0.1, 1.5, math.nan])
def test_a_decay_outside_0_and_1_is_an_error(decay):
    with pytest.raises(ValueError, match=f"at least 0 and below 1, got {decay}"):
        EMA(make_tiny_model(), decay=decay)


def test_a_model_without_a_tensor_has_an_average_without_one():
    ema = EMA(nn.ReLU())
    ema.update(nn.ReLU())
    assert ema.average == {} and ema.num_updates == 1
