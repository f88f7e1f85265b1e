"""What chapter 04 shows of naive datasets really happens in workers; those that only cost or fail do as they say."""

import traceback

import pytest
import torch
from torch.utils.data import DataLoader

from course_utils import naive_loaders as naive
from course_utils.loaders import ResumableLoader
from course_utils.naive_streams import Stream
from course_utils.randomness import BatchKey, isolated_rng
from course_utils.worker_pool import as_it_is

pytestmark = pytest.mark.usefixtures("nothing_is_left")
WHITE = torch.ones(40, 1, dtype=torch.float64)


def lights(dataset_class, num_workers, num_epochs=2, batch_size=10):
    loader = DataLoader(dataset_class(WHITE, torch.arange(40)), batch_size, num_workers=num_workers)
    return [torch.cat([pixels[:, 0] for pixels, _ in loader]).tolist() for _ in range(num_epochs)]


@pytest.mark.parametrize("num_workers, different", [(0, 80), (1, 40), (2, 20)])
def test_a_generator_of_the_datasets_own_gives_n_over_w_different_draws_in_any_number_of_epochs(num_workers, different):
    epochs = lights(naive.OwnGenerator, num_workers)
    assert len(set(sum(epochs, []))) == different
    assert (epochs[0] == epochs[1]) == (num_workers > 0)


def test_the_copies_stand_in_neighbouring_batches_and_never_within_one():
    (epoch,) = lights(naive.OwnGenerator, 2, num_epochs=1)
    batches = [epoch[start : start + 10] for start in range(0, 40, 10)]
    assert batches[0] == batches[1] and batches[2] == batches[3] and batches[0] != batches[2]
    assert all(len(set(batch)) == 10 for batch in batches)


def test_the_global_generator_gives_all_different_draws_but_others_for_each_number_of_workers():
    drawn = [sum(lights(naive.GlobalGenerator, num_workers), []) for num_workers in (0, 2)]
    assert [len(set(each)) for each in drawn] == [80, 80] and set(drawn[0]) & set(drawn[1]) == set()
    assert all(0.5 <= light < 1.5 for light in sum(drawn, []))


def test_globals_are_seeded_for_each_worker_and_epoch_and_an_own_state_is_not():
    loader = DataLoader(naive.Draws(2), num_workers=2)
    rows = [[column.item() for column in batch] for _ in range(2) for batch in loader]
    assert [row[0] for row in rows] == [0, 1, 0, 1]
    assert all(len({row[source] for row in rows}) == 4 for source in (1, 2, 3))
    assert [row[4] for row in rows] == [985772] * 4


def test_the_initial_seed_and_the_workers_number_do_not_fit_into_numpy():
    loader = DataLoader(naive.Draws(2), num_workers=1, worker_init_fn=naive.seed_with_id)
    with pytest.raises(ValueError, match=r"Seed must be between 0 and 2\*\*32 - 1") as told:
        list(loader)
    traceback.clear_frames(told.tb)  # they would keep the loader alive until it is collected as a cycle: 5 s


def test_seeding_the_copy_in_each_worker_mends_an_own_state():
    loader = DataLoader(naive.Draws(2), num_workers=2, worker_init_fn=naive.seed_own_state)
    assert len({batch[4].item() for _ in range(2) for batch in loader}) == 4


def test_a_batch_made_by_key_is_the_loaders_to_the_bit():
    dataset = naive.GlobalGenerator(WHITE, torch.arange(40))
    ours = ResumableLoader(dataset, batch_size=8, seed=3)
    for inputs, targets in ours:
        with isolated_rng():
            by_hand = naive.MadeByKey(dataset).__getitems__(ours.key)
        assert torch.equal(by_hand[0], inputs) and torch.equal(by_hand[1], targets)


def test_a_key_reaches_a_worker_whole():
    keys = [BatchKey(0, 0, 0, [3, 1]), BatchKey(0, 0, 2, [2])]
    made = DataLoader(
        naive.MadeByKey(naive.Slow(4, 0)), batch_sampler=keys, collate_fn=as_it_is, num_workers=1
    )  # fmt: skip
    assert [indices.tolist() for indices, _ in made] == [[3, 1], [2]]


@pytest.mark.parametrize("persistent, seen", [(False, [0, 1, 2]), (True, [0, 0, 0])])
def test_an_attribute_set_later_does_not_reach_persistent_workers(persistent, seen):
    dataset, saw = naive.EpochAttribute(), []
    loader = DataLoader(dataset, batch_size=4, num_workers=1, persistent_workers=persistent)
    for dataset.epoch in range(3):
        saw += next(iter(loader)).unique().tolist()
    assert saw == seen


def test_slow_examples_take_their_share_and_that_of_the_others(monkeypatch):
    slept = []
    monkeypatch.setattr(naive.time, "sleep", slept.append)
    assert [naive.Slow(8, 5.0, slow_every=4)[index] for index in range(8)] == [(index, -1) for index in range(8)]
    assert slept == [0.02, 0.02]
    naive.Slow(1, 0)[0]
    assert slept == [0.02, 0.02]


@pytest.mark.parametrize("num_tensors", [1, 8])
def test_pieces_hold_the_same_numbers_in_any_number_of_tensors(num_tensors):
    pieces = naive.Pieces(3, num_tensors, num_floats=64)
    assert len(pieces) == 3 and len(pieces[2]) == num_tensors
    assert torch.equal(torch.cat(pieces[2]), torch.full((64,), 2.0))


@pytest.mark.parametrize("init, threads", [(None, 1), (naive.four_threads, 4)])
def test_torch_computes_with_one_thread_in_a_worker_unless_told_otherwise(init, threads):
    torch.set_num_threads(2)
    (counts,) = DataLoader(naive.NumThreads(), batch_size=4, num_workers=1, worker_init_fn=init)
    assert counts.tolist() == [threads] * 4


def test_names_are_read_and_the_readers_own_memory_told():
    (mib,) = naive.Names(["a", "b"]).__getitems__([0, 1])
    assert mib > 1 and naive.Names([""]).__getitems__([0]) == []


@pytest.mark.parametrize("made_by, equal", [(naive.MadeByKey, False), (naive.MadeIsolated, True)])
def test_a_batch_made_here_moves_the_loops_own_draws_unless_the_generators_are_put_back(made_by, equal):
    dataset = made_by(naive.GlobalGenerator(WHITE, torch.arange(40)))
    torch.manual_seed(5)
    untouched = torch.rand(2)
    torch.manual_seed(5)
    first = torch.rand(1)
    batch = dataset.__getitems__(BatchKey(0, 0, 0, [3, 1]))
    assert torch.equal(torch.cat([first, torch.rand(1)]), untouched) is equal
    assert torch.equal(batch[0], naive.MadeByKey(dataset.dataset).__getitems__(BatchKey(0, 0, 0, [3, 1]))[0])


def test_what_is_said_is_the_value_or_the_error():
    assert naive.said(lambda: 7) == "7" and naive.said(lambda: 1 / 0) == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("num_workers, came", [(0, [0, 1, 2]), (2, [0, 0, 1, 1, 2, 2])])
def test_each_worker_reads_the_whole_of_a_stream(num_workers, came):
    assert [int(number) for number in DataLoader(Stream(3), num_workers=num_workers, batch_size=None)] == came
    assert repr(Stream(3)) == "Stream(3)"
