import random
from collections import namedtuple
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, default_collate

from course_utils.loaders import ResumableLoader, cut_to_zero
from course_utils.randomness import keyed_uniform
from course_utils.sampling import EpochBatches


class Noisy(Dataset):
    """Example i is (i, a draw of each of the three generators)."""

    def __init__(self, num_examples=10):
        self.num_examples = num_examples

    def __len__(self):
        return self.num_examples

    def __getitem__(self, index):
        return torch.tensor([index, torch.rand(()), random.random(), np.random.rand()], dtype=torch.float64)


class Taking(Dataset):
    """A dataset that makes whole batches: (index, repeat, a keyed draw)."""

    batch_transform = None

    def __init__(self, num_examples=10):
        self.num_examples, self.keys = num_examples, []

    def __len__(self):
        return self.num_examples

    def __getitem__(self, index):
        return torch.tensor([float(index), 0, 0])

    def take(self, key):
        self.keys.append(key)
        pairs = torch.tensor(list(key.examples()), dtype=torch.float32)
        return torch.cat([pairs, keyed_uniform(key, 1)], dim=1)


def rows(batches):
    return {tuple(row) for batch in batches for row in batch.tolist()}


def indices(batches):
    return [batch[:, 0].long().tolist() for batch in batches]


def where(loader):
    state = loader.state_dict()
    return state["epoch"], state["offset"]


@pytest.mark.parametrize("dataset", [Noisy(), Taking()], ids=["examples", "take"])
@pytest.mark.parametrize("how", [{"batch_size": 3}, {"batch_size": 7}, {"batch_size": 2, "shuffle": False}], ids=str)
def test_an_example_is_the_same_for_any_batch_size_and_order(dataset, how):
    reference = ResumableLoader(dataset, batch_size=10, seed=4)
    loader = ResumableLoader(dataset, seed=4, **how)
    for _ in range(2):  # epochs
        assert rows(loader) == rows(reference)


def test_an_example_is_the_same_on_any_rank():
    whole = ResumableLoader(Noisy(), batch_size=10, seed=4)
    ranks = [ResumableLoader(Noisy(), batch_size=2, seed=4, rank=rank, world_size=3) for rank in range(3)]
    assert rows(whole) == set().union(*(rows(rank) for rank in ranks))


def test_an_example_changes_with_epoch_seed_and_repeat():
    loader = ResumableLoader(Noisy(), batch_size=10, seed=4)
    first, second, other = rows(loader), rows(loader), rows(ResumableLoader(Noisy(), batch_size=10, seed=5))
    assert not first & second and not first & other
    batches = EpochBatches(10, batch_size=10, seed=4, weights=[0, 1] + [0] * 8)
    assert len(rows(ResumableLoader(Noisy(), batches=batches))) == 10  # the same index, ten different pictures


def test_what_collate_draws_is_a_function_of_the_batchs_start():
    def mixing(examples):
        return torch.stack([*examples, torch.rand(4)])

    def mixed(**how):
        return [batch[-1].tolist() for batch in ResumableLoader(Noisy(), collate_fn=mixing, seed=4, **how)]

    assert mixed(batch_size=5) == mixed(batch_size=5)
    four, two = mixed(batch_size=4), mixed(batch_size=2)
    assert (two[0], two[2], two[4]) == tuple(four)
    assert two[0] != two[1]


@pytest.mark.parametrize("dataset", [Noisy(), Taking()], ids=["examples", "take"])
def test_loading_leaves_the_generators_as_they_were(dataset):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    loader = ResumableLoader(dataset, batch_size=4)
    list(loader), loader.peek(), list(loader.whole_epoch())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_to_begin_a_plain_loader_moves_the_global_generator_and_to_begin_this_one_does_not(num_workers):
    before = torch.get_rng_state()
    next(iter(ResumableLoader(Noisy(), batch_size=4, num_workers=num_workers)))
    assert torch.equal(torch.get_rng_state(), before)
    iter(DataLoader(Noisy(), batch_size=4))  # the mistake: it draws a seed for workers, also where it has none
    assert not torch.equal(torch.get_rng_state(), before)


def test_workers_draw_alike_for_one_seed_and_otherwise_for_another():
    first, again, other = (rows(ResumableLoader(Noisy(), batch_size=5, seed=s, num_workers=2)) for s in (4, 4, 5))
    assert first == again and not first & other


class OwnGenerator(Noisy):
    """The mistake: a generator in the dataset, of which every worker gets a copy."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index):
        return torch.tensor([index, self.rng.random()])


def test_a_generator_kept_in_the_dataset_repeats_itself_and_those_seeded_for_each_example_do_not():
    plain = DataLoader(OwnGenerator(), batch_size=1, num_workers=2)
    first, second = ([batch[0, 1].item() for batch in plain] for _ in range(2))
    assert first[::2] == first[1::2] and first == second  # both workers, both epochs
    loader = ResumableLoader(Noisy(), batch_size=1, seed=0, num_workers=2)
    draws = [batch[0, column].item() for batch in [*loader, *loader] for column in (1, 2, 3)]
    assert len(set(draws)) == len(draws) == 60


def test_the_generators_are_put_back_when_an_example_fails():
    class Failing(Noisy):
        def __getitem__(self, index):
            torch.rand(5)
            raise OSError("a broken file")

    before = torch.get_rng_state()
    loader = ResumableLoader(Failing(), batch_size=4)
    with pytest.raises(OSError, match="a broken file"):
        next(iter(loader))
    assert torch.equal(torch.get_rng_state(), before)
    assert where(loader) == (0, 0)  # the batch was not handed over


def test_a_dataset_with_take_draws_alone_so_a_background_run_disturbs_no_cell(monkeypatch):
    def forbidden(*args):
        raise AssertionError("a generator was touched")

    for name in ("seed_generators", "isolated_rng"):
        monkeypatch.setattr(f"course_utils.batches.{name}", forbidden)
    loader = ResumableLoader(Taking(5), batch_size=2, rank=1, world_size=2)
    assert [len(batch) for batch in loader] == [2, 0]
    with pytest.raises(AssertionError):
        next(iter(ResumableLoader(Noisy(), batch_size=2)))


def test_the_position_counts_batches_as_they_are_handed_over():
    loader = ResumableLoader(Noisy(), batch_size=4, seed=4)
    seen = [(where(loader), loader.key.start, len(batch)) for batch in loader]
    assert seen == [((0, 4), 0, 4), ((0, 8), 4, 4), ((1, 0), 8, 2)]
    assert loader.key.epoch == 0 and loader.epoch == 1


def test_the_position_is_in_global_examples():
    loader = ResumableLoader(Noisy(), batch_size=2, rank=1, world_size=2)
    assert [where(loader) for _ in loader] == [(0, 4), (0, 8), (1, 0)]


def test_the_key_names_the_batch_last_handed_over_and_makes_it_again():
    loader = ResumableLoader(Noisy(), batch_size=4, seed=4)
    assert loader.key is None
    for batch in loader:
        assert torch.equal(loader.make(loader.key), batch)
        assert loader.key.indices == batch[:, 0].long().tolist()


def test_one_iteration_is_the_rest_of_the_present_epoch():
    loader = ResumableLoader(Noisy(), batch_size=4, seed=4)
    whole = list(ResumableLoader(Noisy(), batch_size=4, seed=4))
    next(iter(loader))
    rest = list(loader)
    assert len(whole) == 3 and all(map(torch.equal, rest, whole[1:])) and len(rest) == 2
    assert len(list(loader)) == 3 and loader.epoch == 2


@pytest.mark.parametrize(
    "how", [lambda loader: iter(loader), lambda loader: loader.set_position(0)], ids=["iter", "set"]
)
def test_a_new_iteration_or_position_ends_the_one_before(how):
    loader = ResumableLoader(Noisy(), batch_size=4)
    old = iter(loader)
    next(old)
    how(loader)
    with pytest.raises(RuntimeError, match="this iteration has ended"):
        next(old)


def test_peek_shows_the_next_batch_and_moves_nothing():
    loader = ResumableLoader(Noisy(), batch_size=4, seed=4)
    iteration = iter(loader)
    next(iteration)
    peeked = loader.peek()
    assert where(loader) == (0, 4)
    assert torch.equal(peeked, loader.peek()) and torch.equal(peeked, next(iteration))


def test_a_whole_epoch_starts_at_offset_0_and_leaves_a_running_iteration_alone():
    loader = ResumableLoader(Noisy(), batch_size=4, seed=4)
    iteration = iter(loader)
    first = next(iteration)
    whole = list(loader.whole_epoch())
    assert sum(map(len, whole)) == 10 and torch.equal(whole[0], first)
    assert where(loader) == (0, 4) and torch.equal(next(iteration), whole[1])


def test_a_loaded_position_goes_on_with_the_same_bits():
    reference = ResumableLoader(Noisy(), batch_size=4, seed=4)
    expected = [*reference, *reference, *reference]
    loader, got = ResumableLoader(Noisy(), batch_size=4, seed=4), []
    for _ in range(len(expected)):
        fresh = ResumableLoader(Noisy(), batch_size=4, seed=4)
        fresh.load_state_dict(loader.state_dict())
        got.append(next(iter(fresh)))
        loader = fresh
    assert all(map(torch.equal, got, expected)) and len(got) == 9


def test_the_state_holds_plain_values_only():
    loader = ResumableLoader(Noisy(), batches=EpochBatches(10, batch_size=4, seed=4, weights=[1.0] * 10))
    next(iter(loader))
    assert {type(value) for value in loader.state_dict().values()} <= {int, bool, str}


@pytest.mark.parametrize(
    "other, said",
    [
        ({"seed": 5}, "seed was 4 when saved and is 5 now"),
        ({"shuffle": False}, "shuffle was True when saved and is False now"),
        ({"drop_last": True}, "drop_last was False when saved and is True now"),
        ({"num_examples": 11}, "num_examples was 10 when saved and is 11 now"),
        ({"weights": [1] * 10}, "weights was 'none' when saved and is '[0-9a-f]{16}' now"),
        ({"indices": [3, 4]}, "indices was 'none' when saved and is '[0-9a-f]{16}' now"),
    ],
    ids=str,
)
def test_a_state_of_another_order_is_refused_naming_both_sides(other, said):
    saved = ResumableLoader(Noisy(), batch_size=4, seed=4).state_dict()
    batches = EpochBatches(**({"num_examples": 10, "batch_size": 4, "seed": 4} | other))
    loader = ResumableLoader(Noisy(batches.num_examples), batches=batches)
    with pytest.raises(ValueError, match=said):
        loader.load_state_dict(saved)
    assert where(loader) == (0, 0)


@pytest.mark.parametrize(
    "other, said", [({"batch_size": 3}, "batch_size was 4 .* is 3"), ({"world_size": 2}, "world_size was 1 .* is 2")]
)
def test_another_batch_or_world_size_goes_on_at_the_same_example_with_a_warning(other, said):
    loader = ResumableLoader(Noisy(), batch_size=4, seed=4, shuffle=False)
    next(iter(loader))
    fresh = ResumableLoader(Noisy(), **({"batch_size": 4, "seed": 4, "shuffle": False} | other))
    with pytest.warns(UserWarning, match=said):
        fresh.load_state_dict(loader.state_dict())
    assert where(fresh) == (0, 4) and indices(fresh)[0][0] == 4


def test_a_larger_batch_under_drop_last_that_no_longer_fits_starts_the_next_epoch():
    loader = ResumableLoader(Noisy(), batch_size=2, drop_last=True)
    next(iter(loader))
    fresh = ResumableLoader(Noisy(), batch_size=9, drop_last=True)
    with pytest.warns(UserWarning, match="batch_size was 2 when saved and is 9 now"):
        fresh.load_state_dict(loader.state_dict())
    assert where(fresh) == (1, 0) and [len(batch) for batch in fresh] == [9]


def test_a_subset_is_unwrapped_so_keys_and_take_stay():
    base = Taking()
    loader = ResumableLoader(Subset(Subset(base, [1, 3, 5, 7, 9]), [4, 0, 2]), batch_size=2, shuffle=False)
    assert indices(loader) == [[9, 1], [5]]
    assert [key.indices for key in base.keys] == [[9, 1], [5]]
    whole = {row[0]: row for row in rows(ResumableLoader(base, batch_size=10))}
    assert rows(loader.whole_epoch()) != set()
    loader.set_position(0)
    assert rows(loader) == {whole[9], whole[1], whole[5]}


def test_a_class_derived_from_subset_keeps_what_it_does_itself():
    class Doubling(Subset):
        def __getitem__(self, index):
            return 2 * super().__getitem__(index)

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    loader = ResumableLoader(Doubling(Taking(), [3, 4]), batch_size=2, shuffle=False)
    assert indices(loader) == [[6, 8]]


def test_a_collate_fn_switches_take_off():
    base = Taking()
    (batch,) = ResumableLoader(base, batch_size=10, collate_fn=default_collate)
    assert base.keys == [] and batch.shape == (10, 3)


def test_a_collate_fn_beside_a_batch_transform_is_an_error():
    base = Taking()
    base.batch_transform = lambda images, targets, key: (images, targets)
    for dataset in (base, Subset(base, [1])):
        with pytest.raises(ValueError, match="batch_transform would be lost"):
            ResumableLoader(dataset, batch_size=10, collate_fn=default_collate)


Pair = namedtuple("Pair", "boxes names")


def collate_pairs(examples):
    return Pair([torch.ones(2, 4) for _ in examples], [f"name {row[0]:.0f}" for row in examples])


def collate_nested(examples):
    padded = pad_sequence([torch.ones(3) for _ in examples], batch_first=True)
    return {
        "inputs": {"ids": padded, "lengths": (torch.tensor([3] * len(examples)),)},
        "scale": torch.ones(1),
        "kind": "text",
    }


def empty_batch(collate_fn=None, dataset=None):
    loader = ResumableLoader(dataset or Noisy(), batch_size=10, rank=10, world_size=11, collate_fn=collate_fn)
    (batch,) = loader
    assert len(loader.key) == 0
    return batch


def test_an_empty_batch_has_the_shape_and_dtype_of_any_other():
    assert empty_batch().shape == (0, 4) and empty_batch().dtype == torch.float64
    assert empty_batch(dataset=Taking()).shape == (0, 3)


def test_an_empty_batch_keeps_the_structure_of_any_other():
    assert empty_batch(collate_pairs) == Pair([], [])
    nested = empty_batch(collate_nested)
    assert nested["inputs"]["ids"].shape == (0, 3) and nested["inputs"]["lengths"][0].shape == (0,)
    assert nested["scale"].shape == (1,) and nested["kind"] == "text"


def test_an_empty_batch_of_columns_first_is_cut_where_it_grows():
    assert empty_batch(partial(torch.stack, dim=1)).shape == (4, 0)
    assert len(empty_batch(np.stack)) == 0


def test_an_empty_batch_is_made_of_an_example_of_the_pool():
    class Broken(Noisy):
        def __getitem__(self, index):
            if index == 0:
                raise OSError("example 0 is broken, and not in the pool")
            return super().__getitem__(index)

    batches = EpochBatches(10, batch_size=3, seed=4, indices=[5, 6], rank=2, world_size=3)
    (batch,) = ResumableLoader(Broken(), batches=batches)
    assert batch.shape == (0, 4)


def test_cutting_leaves_what_does_not_grow():
    once, twice = ([torch.ones(n, 2), torch.ones(5), 7, "x", None] for n in (1, 2))
    cut = cut_to_zero(once, twice)
    assert cut[0].shape == (0, 2) and cut[1].shape == (5,) and cut[2:] == [7, "x", None]


def test_every_rank_makes_the_same_number_of_batches():
    loaders = [ResumableLoader(Noisy(9), batch_size=2, rank=rank, world_size=4) for rank in range(4)]
    assert [[len(batch) for batch in loader] for loader in loaders] == [[2, 1], [2, 0], [2, 0], [2, 0]]
    assert {len(loader) for loader in loaders} == {2}


@pytest.mark.parametrize(
    "how, said",
    [
        ({}, "needs batch_size=..., or batches="),
        ({"batches": EpochBatches(10, batch_size=2, seed=0), "batch_size": 2}, "already says what batch_size"),
        ({"batches": EpochBatches(10, batch_size=2, seed=0), "seed": 0}, "already says what seed"),
        ({"batches": EpochBatches(10, batch_size=2, seed=0), "shuffle": True, "rank": 0}, "what rank, shuffle"),
        ({"batches": EpochBatches(10, batch_size=2, seed=0), "drop_last": False}, "already says what drop_last"),
        ({"batches": EpochBatches(9, batch_size=2, seed=0)}, "for 9 examples, the dataset has 10"),
        ({"batch_size": 2, "in_order": False}, "in_order: batches out of order"),
        ({"batch_size": 2, "sampler": [1]}, "sampler: the order is a function of"),
        ({"batch_size": 2, "batch_sampler": [[1]]}, "batch_sampler: give batches=EpochBatches"),
        ({"batch_size": 2, "worker_method": "thread"}, "worker_method: worker threads would share"),
    ],
    ids=str,
)
def test_contradicting_arguments_are_refused_with_the_reason(how, said):
    with pytest.raises(ValueError, match=said):
        ResumableLoader(Noisy(), **how)


def test_a_subset_beside_batches_is_refused_with_the_fix():
    with pytest.raises(ValueError, match=r"indices=subset\.indices"):
        ResumableLoader(Subset(Noisy(), [1, 2]), batches=EpochBatches(2, batch_size=2, seed=0))


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="'batchsize'"):
        ResumableLoader(Noisy(), batchsize=2)


def test_iterable_datasets_are_refused_with_a_pointer():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([1])

    with pytest.raises(ValueError, match="ShardedRecords"):
        ResumableLoader(Stream(), batch_size=2)


def test_targets_of_a_tensor_dataset_come_as_a_list_of_two():
    inputs, targets = next(iter(ResumableLoader(TensorDataset(torch.ones(4, 2), torch.arange(4)), batch_size=3)))
    assert inputs.shape == (3, 2) and targets.shape == (3,)
