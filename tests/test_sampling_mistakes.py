"""The mistakes that chapter 03 shows: each really misleads, nearly all without a word, and ours does not."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

from course_utils.randomness import BatchKey, derive_seed, keyed_uniform
from course_utils.sampling import EpochBatches
from tests.conftest import make_tiny_model


def read(loader):
    return torch.cat(list(loader)).tolist()


# --- order and position ---------------------------------------------------------------------------------------


def test_data_in_class_order_gives_batches_of_one_class_and_a_shuffle_does_not():
    targets = torch.arange(10).repeat_interleave(64)
    counts = {}
    for shuffle in (False, True):
        generator = torch.Generator().manual_seed(0)
        loader = DataLoader(TensorDataset(targets), batch_size=64, shuffle=shuffle, generator=generator)
        counts[shuffle] = [len(batch.unique()) for (batch,) in loader]
    assert counts[False] == [1] * 10 and min(counts[True]) >= 8


def test_a_plain_loader_repeats_the_rest_of_an_epoch_and_promises_a_whole_one():
    batches = EpochBatches(100, batch_size=10, seed=0)
    loader = DataLoader(range(100), batch_sampler=batches)
    batches.set_position(1, offset=40)
    assert read(loader) == read(loader) == batches.order(1)[40:] and len(loader) == 10
    batches.set_position(2)
    assert read(loader) == batches.order(2)


def test_a_distributed_samplers_epoch_1_is_epoch_0_of_the_next_seed_and_ours_is_not():
    one, other = (DistributedSampler(range(100), 1, 0, seed=seed) for seed in (0, 1))
    one.set_epoch(1)
    assert list(one) == list(other)
    one, other = (EpochBatches(100, batch_size=1, seed=seed) for seed in (0, 1))
    assert one.order(1) != other.order(0)


def test_one_generator_used_twice_makes_a_second_split_of_the_first_ones_training_part():
    one = torch.Generator().manual_seed(0)
    first, second = (random_split(range(100), [80, 20], generator=one)[1].indices for _ in range(2))
    anew = random_split(range(100), [80, 20], generator=torch.Generator().manual_seed(0))[1].indices
    assert set(second) - set(first) and anew == first


def run(model, optimizer, batches, times):
    inputs, targets = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3
    for _ in range(times):
        key = next(iter(batches))
        noise = keyed_uniform(key, 4)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[key.indices] + noise), targets[key.indices]).backward()
        optimizer.step()
        batches.set_position(key.epoch, key.start + len(key))


def fresh():
    model = make_tiny_model()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), EpochBatches(50, batch_size=8, seed=0)


@pytest.mark.parametrize("forgotten", ["nothing", "optimizer", "epoch", "offset"])
def test_a_run_goes_on_with_equal_bits_unless_something_is_forgotten(forgotten):
    whole, stopped = fresh(), fresh()
    run(*whole, 18)
    run(*stopped, 9)  # seven batches an epoch, so in the second one
    saved = copy.deepcopy([part.state_dict() for part in stopped[:2]])
    model, optimizer, batches = fresh()
    model.load_state_dict(saved[0])
    if forgotten != "optimizer":
        optimizer.load_state_dict(saved[1])
    epoch, offset = stopped[2].epoch, stopped[2].offset
    assert (epoch, offset) == (1, 16)
    batches.set_position(0 if forgotten == "epoch" else epoch, 0 if forgotten == "offset" else offset)
    run(model, optimizer, batches, 9)
    assert torch.equal(model[0].weight, whole[0][0].weight) is (forgotten == "nothing")


# --- ranks ----------------------------------------------------------------------------------------------------


def gradient(batch, reduction):
    model, inputs = make_tiny_model(), torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    loss = nn.functional.cross_entropy(model(inputs[batch]), torch.arange(9)[batch] % 3, reduction=reduction)
    return loss.item(), torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize("parts", [[[8], [], [], []], [[0, 4], [1], [2], [3]]])
def test_a_mean_of_the_ranks_gradients_is_wrong_and_their_sum_over_all_examples_is_right(parts):
    whole = [index for part in parts for index in part]
    means = torch.stack([gradient(part, "mean")[1] for part in parts]).mean(0)
    sums = sum(gradient(part, "sum")[1] for part in parts) / len(whole)
    right = gradient(whole, "mean")[1]
    torch.testing.assert_close(sums, right)
    assert not torch.allclose(means, right, rtol=1e-3)


def test_an_empty_batchs_mean_loss_is_nan_its_sum_is_0_and_its_gradient_is_0():
    (mean, gradient_of_mean), (total, gradient_of_sum) = (gradient([], how) for how in ("mean", "sum"))
    assert mean != mean and total == 0.0
    assert not gradient_of_mean.any() and not gradient_of_sum.any()


# --- keys -----------------------------------------------------------------------------------------------------


def first_draw(seed):
    return torch.rand((), generator=torch.Generator().manual_seed(seed)).item()


def test_what_is_packed_above_32_bits_is_lost_and_what_is_mixed_first_is_not():
    packed = [5 + epoch * 2**32 for epoch in range(10)]
    assert len({first_draw(seed) for seed in packed}) == 1
    assert len({first_draw(derive_seed(seed)) for seed in packed}) == 10


def test_seeds_of_32_bits_coincide_among_200_000_keys():
    lows = {derive_seed(0, 0, index) % 2**32 for index in range(200_000)}
    assert 200_000 - 40 < len(lows) < 200_000


def test_crop_and_flip_on_one_stream_are_tied_and_on_two_are_not():
    key = BatchKey(0, 0, 0, range(1000))
    tied = [keyed_uniform(key, 1, stream="augment") for _ in range(2)]
    apart = [keyed_uniform(key, 1, stream=name) for name in ("crop", "flip")]
    both = [((crop > 0.5) & (flip < 0.5)).sum().item() for crop, flip in (tied, apart)]
    assert both[0] == 0 and 180 < both[1] < 320
