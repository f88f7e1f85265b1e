from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from course_utils.randomness import derive_seed
from course_utils.sampling import BatchKey, EpochBatches, class_balanced_weights, undersample

few = settings(max_examples=60, derandomize=True, deadline=None, database=None)
sizes = {"num_examples": st.integers(0, 30), "batch_size": st.integers(1, 7), "world_size": st.integers(1, 4)}


def rank_keys(num_examples, world_size, *, epoch=0, offset=0, **how):
    every = [EpochBatches(num_examples, rank=r, world_size=world_size, seed=5, **how) for r in range(world_size)]
    return [list(batches.keys(epoch, offset)) for batches in every]


@few
@given(**sizes, epoch=st.integers(0, 3))
def test_the_ranks_together_see_every_example_once_in_equally_many_steps(num_examples, batch_size, world_size, epoch):
    ranks = rank_keys(num_examples, world_size, batch_size=batch_size, epoch=epoch)
    assert sorted(i for keys in ranks for key in keys for i in key) == list(range(num_examples))
    assert len({len(keys) for keys in ranks}) == 1
    assert len({tuple(key.start for key in keys) for keys in ranks}) == 1


@few
@given(**sizes, drop_last=st.booleans())
def test_len_is_the_number_of_keys_of_a_whole_epoch(num_examples, batch_size, world_size, drop_last):
    how = {"batch_size": batch_size, "world_size": world_size, "drop_last": drop_last, "seed": 5}
    batches = EpochBatches(num_examples, **how)
    assert len(batches) == len(list(batches))


@few
@given(**sizes, done=st.integers(0, 5), drop_last=st.booleans())
def test_the_keys_from_an_offset_are_the_rest_of_the_epoch(num_examples, batch_size, world_size, done, drop_last):
    how = {"batch_size": batch_size, "drop_last": drop_last, "epoch": 2}
    whole = rank_keys(num_examples, world_size, **how)
    rest = rank_keys(num_examples, world_size, offset=done * batch_size * world_size, **how)
    assert rest == [keys[done:] for keys in whole]


@few
@given(**sizes)
def test_a_global_batch_does_not_depend_on_how_many_ranks_share_it(num_examples, batch_size, world_size):
    ranks = rank_keys(num_examples, world_size, batch_size=batch_size)
    (alone,) = rank_keys(num_examples, 1, batch_size=batch_size * world_size)
    for step, key in enumerate(alone):
        shares = [keys[step].indices for keys in ranks]
        assert [shares[place % world_size][place // world_size] for place in range(len(key))] == key.indices


def test_ranks_take_every_second_example_and_a_last_batch_may_be_empty():
    first, second = rank_keys(5, 2, batch_size=2, shuffle=False)
    assert first == [BatchKey(5, 0, 0, [0, 2]), BatchKey(5, 0, 4, [4])]
    assert second == [BatchKey(5, 0, 0, [1, 3]), BatchKey(5, 0, 4, [])]


@pytest.mark.parametrize("change", [{"seed": 6}, {"epoch": 1}], ids=str)
def test_the_order_depends_on_seed_and_epoch(change):
    def order(seed=5, epoch=0):
        return EpochBatches(50, batch_size=10, seed=seed).order(epoch)

    assert order() == order()
    assert order() != order(**change)
    assert sorted(order()) == sorted(order(**change)) == list(range(50))


def test_making_keys_moves_nothing_and_touches_no_generator():
    batches, before = EpochBatches(10, batch_size=4, seed=5), torch.get_rng_state()
    assert list(batches) == list(batches) == list(batches.keys(0))
    assert (batches.epoch, batches.offset) == (0, 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_plain_dataloader_repeats_epoch_0_until_the_caller_moves_the_position():
    batches = EpochBatches(10, batch_size=4, seed=5)
    loader = DataLoader(TensorDataset(torch.arange(10)), batch_sampler=batches)
    first, again = ([x.tolist() for (x,) in loader] for _ in range(2))
    assert first == again
    batches.set_position(1)
    assert [x.tolist() for (x,) in loader] == [key.indices for key in batches.keys(1)] != first


@pytest.mark.parametrize(
    "drop_last, offset, position",
    [
        (False, 0, (0, 0)),
        (False, 9, (0, 9)),
        (False, 10, (1, 0)),
        (True, 6, (0, 6)),
        (True, 7, (1, 0)),
        (True, 0, (0, 0)),
    ],
)
def test_a_position_without_a_batch_left_is_the_next_epochs_start(drop_last, offset, position):
    batches = EpochBatches(10, batch_size=2, world_size=2, seed=5, drop_last=drop_last)
    batches.set_position(0, offset)
    assert (batches.epoch, batches.offset) == position
    assert list(batches)


def test_an_epoch_that_never_has_a_batch_keeps_its_number():
    batches = EpochBatches(3, batch_size=4, seed=5, drop_last=True)
    batches.set_position(2)
    assert (batches.epoch, batches.offset) == (2, 0) and list(batches) == [] and len(batches) == 0


def test_drop_last_counts_from_the_present_offset():
    (keys,) = rank_keys(10, 1, batch_size=4, shuffle=False, drop_last=True, offset=2)
    assert [key.indices for key in keys] == [[2, 3, 4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize("epoch, offset", [(-1, 0), (0, -1), (0, 11)])
def test_a_position_outside_the_epoch_is_refused(epoch, offset):
    batches = EpochBatches(10, batch_size=4, seed=5)
    with pytest.raises(ValueError, match=f"got epoch={epoch}, offset={offset}"):
        batches.set_position(epoch, offset)


def test_keys_hold_dataset_indices_when_a_part_is_used():
    batches = EpochBatches(100, batch_size=3, seed=5, indices=[90, 7, 31, 55])
    assert len(batches) == 2
    assert sorted(i for key in batches for i in key) == [7, 31, 55, 90]
    in_order = EpochBatches(100, batch_size=3, seed=5, indices=torch.tensor([90, 7, 31]), shuffle=False)
    assert next(iter(in_order)).indices == [90, 7, 31]


def test_weights_belong_to_indices_and_their_number_is_the_epochs_length():
    batches = EpochBatches(100, batch_size=10, seed=5, indices=[90, 7, 31], weights=[0.0, 1.0, 0.0])
    assert batches.order(0) == [7, 7, 7]
    assert [key.indices for key in batches] == [[7, 7, 7]]


def test_a_draw_that_rounds_up_to_the_end_takes_the_last_place_that_may_be_drawn(monkeypatch):
    draws = torch.tensor([0.0, 1 - 2**-53, 1.0], dtype=torch.float64)  # 1.0: the product with the sum may round to it
    monkeypatch.setattr(torch, "rand", lambda *size, **how: draws)
    assert EpochBatches(5, batch_size=5, seed=0, weights=[0, 0.3, 0.3, 0.4, 0]).order(0) == [1, 3, 3]


def test_weights_are_drawn_also_where_multinomial_refuses_them(monkeypatch):
    monkeypatch.delattr(torch, "multinomial")  # no more than 2**24 weights
    assert set(EpochBatches(3, batch_size=3, seed=0, weights=[0, 1, 0]).order(0)) == {1}


@pytest.mark.parametrize("weights", [[1.0, 2.0] * 5, [0.0, 3.0, 0.0], [1e-12, 1e12] * 40], ids=str)
def test_weighted_orders_are_those_that_multinomial_draws(weights):
    generator = torch.Generator().manual_seed(derive_seed(5, "order", 2))
    weights = torch.tensor(weights, dtype=torch.float64)
    drawn = torch.multinomial(weights, len(weights), replacement=True, generator=generator)
    assert EpochBatches(len(weights), batch_size=3, seed=5, weights=weights).order(2) == drawn.tolist()


def test_weights_draw_in_proportion_with_replacement():
    order = EpochBatches(4000, batch_size=10, seed=5, weights=[1.0, 3.0] * 2000).order(0)
    odd = sum(index % 2 for index in order) / len(order)
    assert len(order) == 4000 and abs(odd - 0.75) < 0.03  # four standard deviations


def test_repeats_number_the_draws_of_an_index_over_all_ranks_of_an_epoch():
    weights = [1.0, 50.0, 1.0]
    ranks = rank_keys(3, 2, batch_size=1, weights=weights, epoch=4)
    pairs = [pair for keys in ranks for key in keys for pair in key.examples()]
    assert len(set(pairs)) == 3
    drawn = Counter(index for index, _ in pairs)
    assert sorted(pairs) == sorted((index, r) for index, times in drawn.items() for r in range(times))


def test_repeats_go_on_counting_from_an_offset():
    batches = EpochBatches(4, batch_size=2, seed=5, weights=[0, 1, 0, 0])
    assert [key.repeats for key in batches.keys(0)] == [[0, 1], [2, 3]]
    assert next(batches.keys(0, offset=2)).repeats == [2, 3]


def test_indices_named_twice_are_told_apart_and_without_repetition_repeats_are_none():
    (key,) = EpochBatches(10, batch_size=9, seed=5, indices=[3, 3, 4], shuffle=False)
    assert list(key.examples()) == [(3, 0), (3, 1), (4, 0)]
    (key,) = EpochBatches(3, batch_size=9, seed=5)
    assert key.repeats is None


@pytest.mark.parametrize(
    "how, said",
    [
        ({"weights": [1, 1, 1, 1], "shuffle": False}, "contradicts shuffle=False"),
        ({"weights": [1, 1]}, r"shape \(4,\), got \(2,\)"),
        ({"weights": [1, -1, 1, 1]}, "finite, 0 or more"),
        ({"weights": [1, float("nan"), 1, 1]}, "finite, 0 or more"),
        ({"weights": [1, float("inf"), 1, 1]}, "finite, 0 or more"),
        ({"weights": [0, 0, 0, 0]}, "not all 0"),
        ({"indices": [0, 4]}, "num_examples=4.*got 4"),
        ({"indices": [-1]}, "got -1"),
        ({"indices": [0.5]}, "integers"),
        ({"indices": [True, False, True, True]}, "integers"),
        ({"batch_size": 0}, "batch_size >= 1"),
        ({"rank": 2, "world_size": 2}, "rank=2, world_size=2"),
        ({"rank": -1}, "rank=-1"),
    ],
    ids=str,
)
def test_contradictions_are_value_errors_that_say_what_came(how, said):
    with pytest.raises(ValueError, match=said):
        EpochBatches(4, **({"batch_size": 2, "seed": 0} | how))


@pytest.mark.parametrize(
    "name, other",
    [
        ("seed", {"seed": 6}),
        ("shuffle", {"shuffle": False}),
        ("drop_last", {"drop_last": True}),
        ("weights", {"weights": [1, 1, 1, 2]}),
        ("indices", {"indices": [0, 1, 2, 3]}),
        ("num_examples", {"num_examples": 5}),
    ],
)
def test_the_identity_differs_where_the_order_would(name, other):
    here, there = ({"num_examples": 4, "batch_size": 2, "seed": 5} | change for change in ({}, other))
    one, two = EpochBatches(**here).identity(), EpochBatches(**there).identity()
    assert [key for key in one if one[key] != two[key]] == [name]
    assert one == EpochBatches(**(here | {"batch_size": 3, "world_size": 2})).identity()


def test_class_balanced_weights_give_each_class_the_same_sum():
    targets = [0, 0, 0, 2, 2, 7]
    weights = class_balanced_weights(targets)
    assert weights.dtype == torch.float64
    assert torch.equal(weights, torch.tensor([1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2, 1], dtype=torch.float64))


def test_a_weight_per_class_would_draw_the_first_examples_only():
    targets = torch.tensor([0] * 90 + [1] * 10)
    per_class = 1.0 / torch.bincount(targets)
    assert set(WeightedRandomSampler(per_class, 100)) <= {0, 1}  # the mistake: torch accepts it
    with pytest.raises(ValueError, match=r"class_weights\[targets\]"):
        EpochBatches(100, batch_size=10, seed=0, weights=per_class)
    order = EpochBatches(100, batch_size=10, seed=0, weights=class_balanced_weights(targets)).order(0)
    assert 30 < sum(index >= 90 for index in order) < 70


@pytest.mark.parametrize("targets", [[], [0.5, 1.0], [[0, 1]]], ids=str)
def test_weights_and_undersampling_need_one_integer_an_example(targets):
    with pytest.raises(ValueError, match="integers of shape"):
        class_balanced_weights(targets)
    with pytest.raises(ValueError, match="integers of shape"):
        undersample(targets, seed=0)


def test_undersampling_keeps_as_many_of_each_class_as_the_rarest_has_and_none_twice():
    targets = torch.tensor([4] * 50 + [0] * 7 + [9] * 3 + [4] * 10)
    chosen = undersample(targets, seed=0).tolist()
    assert Counter(targets[chosen].tolist()) == {4: 3, 0: 3, 9: 3}
    assert chosen == sorted(set(chosen))


def test_undersampling_is_a_function_of_seed_and_epoch_and_touches_no_generator():
    targets, before = torch.tensor([0] * 50 + [1] * 5), torch.get_rng_state()
    first = undersample(targets, seed=0)
    assert torch.equal(first, undersample(targets, seed=0, epoch=0))
    assert not torch.equal(first, undersample(targets, seed=0, epoch=1))
    assert not torch.equal(first, undersample(targets, seed=1))
    assert torch.equal(torch.get_rng_state(), before)


def test_undersampling_reaches_every_example_over_the_epochs():
    targets = torch.tensor([0] * 20 + [1] * 10)
    seen = {i for epoch in range(20) for i in undersample(targets, seed=0, epoch=epoch).tolist()}
    assert seen == set(range(30))
