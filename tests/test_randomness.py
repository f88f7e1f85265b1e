import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from course_utils.randomness import (
    BatchKey,
    derive_seed,
    generators_put_back,
    isolated_rng,
    keyed_uniform,
    seed_everything,
    seed_generators,
)


def draws():
    return torch.rand(3).tolist(), random.random(), np.random.rand(3).tolist()


def test_a_key_acts_as_the_list_of_its_indices():
    key = BatchKey(7, 3, 16, [5, 2, 9])
    assert (list(key), len(key), key[1], key[-1]) == ([5, 2, 9], 3, 2, 9)


def test_plain_dataloader_and_subset_take_keys_for_lists_of_indices():
    squares = TensorDataset(torch.arange(10) ** 2)
    keys = [BatchKey(7, 3, 0, [5, 2]), BatchKey(7, 3, 2, [9])]
    (first,), (second,) = DataLoader(squares, batch_sampler=keys)
    assert (first.tolist(), second.tolist()) == ([25, 4], [81])
    (of_subset,) = next(iter(DataLoader(Subset(squares, [3, 4, 5]), batch_sampler=[BatchKey(0, 0, 0, [2, 0])])))
    assert of_subset.tolist() == [25, 9]


def test_a_key_is_frozen_and_pairs_each_example_with_its_repeat():
    key = BatchKey(7, 3, 16, [5, 5], [0, 1])
    assert list(key.examples()) == [(5, 0), (5, 1)]
    assert list(BatchKey(7, 3, 16, [5, 2]).examples()) == [(5, 0), (2, 0)]
    with pytest.raises(AttributeError):
        key.epoch = 4


def test_derived_seeds_know_types_and_borders():
    parts = [
        (1, "2:3"),
        ("1:2", 3),
        (12,),
        ("12",),
        (1, 2),
        (2, 1),
        (1,),
        (True,),
        (1.0,),
        (None,),
        ("None",),
        (),
        ("",),
    ]
    assert len({derive_seed(*some) for some in parts}) == len(parts)


def test_derived_seeds_are_the_same_on_every_machine(fresh_python):
    assert derive_seed(0) == 2700103397827648474
    assert derive_seed(7, "order", 3) == 5701082313188309868
    program = "from course_utils.randomness import derive_seed; print(derive_seed(7, 'order', 3))"
    assert int(fresh_python.run(program).stdout) == derive_seed(7, "order", 3)


def test_derived_seeds_are_mixed_because_torch_keeps_the_low_32_bits():
    def first(seed):
        return torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()

    assert first(5) == first(5 + 2**32)  # why mixing is needed
    assert first(derive_seed(5)) != first(derive_seed(5 + 2**32))


def test_derive_seed_refuses_what_has_no_single_spelling():
    with pytest.raises(TypeError, match=r"got \[1\] of list"):
        derive_seed([1])


def test_seeding_repeats_the_draws_of_all_three_generators_and_ranks_differ():
    runs = []
    for seed, rank in [(4, 0), (4, 0), (4, 1), (5, 0)]:
        seed_everything(seed, rank=rank)
        runs.append(draws())
    assert runs[0] == runs[1]
    assert all(a != b for other in (2, 3) for a, b in zip(runs[0], runs[other], strict=True))


def test_isolated_rng_puts_all_three_generators_back_also_on_an_exception():
    seed_generators(3)
    expected = draws()
    seed_generators(3)
    with pytest.raises(KeyError), isolated_rng():
        seed_generators(8)
        draws()
        raise KeyError
    assert draws() == expected


def test_keyed_draws_are_the_same_for_an_example_in_any_batch():
    whole = keyed_uniform(BatchKey(7, 3, 0, [4, 17, 9]), 5)
    alone = keyed_uniform(BatchKey(7, 3, 99, [17]), 5)
    assert whole.shape == (3, 5) and whole.dtype == torch.float32
    assert torch.equal(whole[1:2], alone)


def test_the_first_keyed_draws_do_not_depend_on_how_many_there_are():
    key = BatchKey(7, 3, 0, [4, 17, 9])
    assert torch.equal(keyed_uniform(key, 2), keyed_uniform(key, 5)[:, :2])
    assert keyed_uniform(key, 0).shape == (3, 0) and keyed_uniform(BatchKey(7, 3, 0, []), 2).shape == (0, 2)


@pytest.mark.parametrize(
    "other, stream",
    [
        (BatchKey(8, 3, 0, [17]), ""),
        (BatchKey(7, 4, 0, [17]), ""),
        (BatchKey(7, 3, 0, [18]), ""),
        (BatchKey(7, 3, 0, [17], [1]), ""),
        (BatchKey(7, 3, 0, [17]), "flip"),
    ],
    ids=["seed", "epoch", "index", "repeat", "stream"],
)
def test_keyed_draws_depend_on_each_part_of_their_key(other, stream):
    here = keyed_uniform(BatchKey(7, 3, 0, [17]), 4)
    assert not (here == keyed_uniform(other, 4, stream=stream)).any()


def test_keyed_draws_are_uniform_and_never_one():
    values = keyed_uniform(BatchKey(7, 3, 0, list(range(20_000))), 4)
    assert 0 <= values.min() and values.max() < 1
    shares = torch.histc(values, bins=10, min=0, max=1) / values.numel()
    assert (shares - 0.1).abs().max() < 0.004  # four standard deviations
    assert torch.corrcoef(values.T).fill_diagonal_(0).abs().max() < 0.03
    assert torch.equal(values * 2**24, (values * 2**24).round())  # 24 bits: the largest is 1 - 2**-24


def test_keyed_draws_keep_their_values_between_versions():
    values = keyed_uniform(BatchKey(7, 3, 0, [17, 0]), 2, stream="crop") * 2**24
    assert values.int().tolist() == [[52660, 15819539], [12107450, 13616180]]


def test_keyed_draws_touch_no_generator_and_refuse_a_negative_number():
    before = torch.get_rng_state()
    keyed_uniform(BatchKey(7, 3, 0, [17]), 4)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="got -1"):
        keyed_uniform(BatchKey(7, 3, 0, [17]), -1)


def test_generators_put_back_restores_those_it_is_given_too_also_on_an_exception():
    own = torch.Generator().manual_seed(3)
    before, global_before = own.get_state(), torch.get_rng_state()
    with pytest.raises(KeyError), generators_put_back([own]):
        torch.rand(5, generator=own), torch.rand(5)
        raise KeyError
    assert torch.equal(own.get_state(), before) and torch.equal(torch.get_rng_state(), global_before)
