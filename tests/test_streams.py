"""Records from shards: nothing twice, nothing lost, equal batches for any number of workers, resumable."""

import json
import multiprocessing
import random
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, default_collate, get_worker_info

from course_utils import streams
from course_utils.datasets import ShardedRecords
from course_utils.loaders import ResumableLoader
from course_utils.randomness import isolated_rng

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores: on purpose
NUM_RECORDS = 23


def noisy(record):
    """(number, a draw of each of the three generators)"""
    return torch.tensor([record["n"], torch.rand(()), random.random(), np.random.rand()], dtype=torch.float64)


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    assert multiprocessing.active_children() == []
    yield
    assert multiprocessing.active_children() == []


@pytest.fixture
def shards(tmp_path):
    """Three shards of 10, 0 and 13 records; a blank line at the end of each."""
    paths, numbers = [tmp_path / f"{name}.jsonl" for name in "abc"], iter(range(NUM_RECORDS))
    for path, size in zip(paths, (10, 0, 13), strict=True):
        path.write_text("".join(json.dumps({"n": next(numbers)}) + "\n" for _ in range(size)) + "\n")
    return paths


def records_of(paths, **how):
    return ShardedRecords(paths, **({"batch_size": 4, "seed": 5, "shuffle_buffer": 6, "transform": noisy} | how))


def loader_of(paths, num_workers=0, options=(), **how):
    return ResumableLoader(records_of(paths, **how), num_workers=num_workers, **dict(options))


def epochs(loader, num_epochs=2):
    return [(loader.key, batch) for _ in range(num_epochs) for batch in loader]


def numbers(batches):
    return [int(row[0]) for batch in batches for row in batch]


def equal(got, expected):
    assert len(expected) > 0 and [key for key, _ in got] == [key for key, _ in expected]
    return all(torch.equal(one, two) for (_, one), (_, two) in zip(got, expected, strict=True))


# --- the order of an epoch


@pytest.mark.parametrize("shuffle_buffer", [0, 1, 6, 100])
def test_every_record_comes_once_and_the_last_partial_batch_is_delivered(shards, shuffle_buffer):
    batches = list(records_of(shards, shuffle_buffer=shuffle_buffer))
    assert sorted(numbers(batches)) == list(range(NUM_RECORDS))
    assert [len(batch) for batch in batches] == [4, 4, 4, 4, 4, 3]


def test_the_order_is_a_function_of_seed_and_epoch(shards):
    def order(epoch, **how):
        return [key.indices for key, _, _ in records_of(shards, **how).keyed_batches(epoch)]

    assert order(1) == order(1)
    assert len({str(order(epoch, seed=seed)) for epoch in range(3) for seed in (5, 6)}) == 6


def test_a_buffer_of_0_keeps_the_lines_of_a_shard_in_their_order(shards):
    order = numbers(records_of(shards, shuffle_buffer=0))
    assert order in ([*range(23)], [*range(10, 23), *range(10)])
    assert numbers(records_of(shards, shuffle_buffer=0, seed=1)) != numbers(
        records_of(shards, shuffle_buffer=6, seed=1)
    )


def test_a_record_is_no_earlier_than_its_buffer_allows(shards):
    order = numbers(records_of(shards[2:], shuffle_buffer=3))
    assert all(number - 10 - 3 <= place for place, number in enumerate(order)) and order != sorted(order)


def test_a_record_is_the_same_for_any_batch_size_rank_and_buffer(shards):
    def rows(**how):
        return {tuple(row) for batch in records_of(shards, **how) for row in batch.tolist()}

    whole = rows(batch_size=23)
    assert len(whole) == NUM_RECORDS and rows(batch_size=2, shuffle_buffer=0) == whole
    assert set().union(*(rows(batch_size=2, rank=rank, world_size=3) for rank in range(3))) == whole


def test_ranks_share_each_global_batch_and_may_end_with_an_empty_one(shards):
    ranks = [list(records_of(shards, batch_size=2, rank=rank, world_size=5)) for rank in range(5)]
    assert [[len(batch) for batch in rank] for rank in ranks] == [[2, 2, 1]] * 3 + [[2, 2, 0]] * 2
    assert ranks[4][2].shape == (0, 4) and ranks[4][2].dtype == torch.float64
    whole = [sorted(numbers([batch])) for batch in records_of(shards, batch_size=10)]
    assert [sorted(numbers(parts)) for parts in zip(*ranks, strict=True)] == whole


def padded(examples):
    return pad_sequence([torch.ones(3) for _ in examples], batch_first=True), [int(row[0]) for row in examples]


def test_an_empty_batch_has_the_structure_of_any_other(shards):
    last = list(records_of(shards, batch_size=2, rank=4, world_size=5, collate_fn=padded))[-1]
    assert last[0].shape == (0, 3) and last[1] == []


def test_without_a_transform_records_are_collated_as_they_are(shards):
    (batch,) = records_of(shards[:1], batch_size=10, transform=None, shuffle_buffer=0)
    assert batch["n"].tolist() == list(range(10))


# --- what a key says


def test_a_key_names_file_and_line_of_each_record_and_makes_the_batch_again(shards):
    records = records_of(shards)
    for key, batch, _ in records.keyed_batches(3):
        places = [records.place(index) for index in key]
        assert [json.loads(path.read_text().splitlines()[line - 1])["n"] for path, line in places] == numbers([batch])
        assert torch.equal(records.make(key), batch)
    assert key.epoch == 3 and key.start == 20


def test_an_empty_key_makes_an_empty_batch(shards):
    records = records_of(shards, batch_size=2, rank=4, world_size=5)
    *_, (key, batch, ended) = records.keyed_batches(0)
    assert len(key) == 0 and records.make(key).shape == batch.shape == (0, 4) and ended


def test_reading_leaves_the_generators_as_they_were(shards):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    loader = loader_of(shards)
    list(loader), loader.peek(), list(loader.whole_epoch())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[1:]


# --- errors


def test_a_broken_line_names_file_and_line(shards):
    text = shards[2].read_text().splitlines()
    shards[2].write_text("\n".join([*text[:6], '{"n": 1', *text[7:]]))
    for num_workers in (0, 2):
        with pytest.raises(ValueError, match=r"c\.jsonl, line 7 is not JSON"):
            list(loader_of(shards, num_workers))


@pytest.mark.parametrize("line", [b"\xff\xfe\xfd", b"{'n': 1}", b"nan", b'{"n": 1}{"n": 2}'])
def test_every_kind_of_broken_line_is_named(tmp_path, line):
    (tmp_path / "a.jsonl").write_bytes(b'{"n": 0}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2 is not JSON"):
        list(records_of([tmp_path / "a.jsonl"]))


def test_an_exception_of_the_transform_names_file_and_line(shards):
    with pytest.raises(KeyError, match=r"while transforming the record of .*a\.jsonl, line 1") as caught:
        list(records_of(shards[:1], shuffle_buffer=0, transform=lambda record: record["m"]))
    assert caught.value.args == ("m",)


@pytest.mark.parametrize(
    "how, error, said",
    [
        ({"batch_size": 0}, ValueError, "batch_size >= 1"),
        ({"shuffle_buffer": -1}, ValueError, "shuffle_buffer >= 0"),
        ({"rank": 2, "world_size": 2}, ValueError, "0 <= rank < world_size"),
        ({"paths": []}, ValueError, "at least one file"),
        ({"paths": "a.jsonl"}, ValueError, "put it into a list"),
        ({"paths": ["nowhere.jsonl"]}, FileNotFoundError, "1 of 1 shards are not there, first nowhere.jsonl"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused(shards, how, error, said):
    with pytest.raises(error, match=said):
        records_of(**({"paths": shards} | how))


def test_a_file_given_twice_is_refused(shards):
    with pytest.raises(ValueError, match="a file twice"):
        records_of([shards[0], shards[0]])


# --- workers


@pytest.mark.parametrize("num_workers", [1, 2, 3, 5])
def test_batches_are_equal_for_any_number_of_workers(shards, num_workers):
    expected = epochs(loader_of(shards))
    assert len(expected) == 12
    assert equal(epochs(loader_of(shards, num_workers)), expected)


def test_a_worker_parses_the_lines_of_its_own_batches_only(shards, monkeypatch):
    parsed, loads = [], json.loads
    monkeypatch.setattr(streams, "get_worker_info", lambda: SimpleNamespace(id=1, num_workers=2))
    monkeypatch.setattr(json, "loads", lambda line: parsed.append(line) or loads(line))
    with isolated_rng():
        read = list(records_of(shards))
    assert [len(batch) for batch in read] == [4, 4, 3] and len(parsed) == 11  # batches 1, 3 and 5 of 6


def test_persistent_workers_see_the_new_epoch(shards):
    options = {"persistent_workers": True, "prefetch_factor": 1}
    loader = loader_of(shards, 2, options)
    assert equal(epochs(loader, 3), epochs(loader_of(shards), 3)) and loader.epoch == 3


def test_ranks_come_the_same_from_workers(shards):
    how = {"batch_size": 2, "rank": 4, "world_size": 5}
    assert equal(epochs(loader_of(shards, 2, **how)), epochs(loader_of(shards, **how)))


def test_a_plain_loader_gives_the_same_batches_and_repeats_an_epoch_until_it_is_moved(shards):
    records = records_of(shards)
    plain = DataLoader(records, batch_size=None, num_workers=2, persistent_workers=True)
    first, again = list(plain), list(plain)
    assert all(map(torch.equal, first, again))
    records.set_position(1)
    expected = [batch for _, batch in epochs(loader_of(shards))]
    assert all(map(torch.equal, [*first, *plain], expected)) and len(first) == 6


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & {*multiprocessing.get_all_start_methods()}))
def test_batches_are_equal_however_workers_are_started(shards, method):
    options = {"persistent_workers": True, "multiprocessing_context": method}
    assert equal(epochs(loader_of(shards, 2, options)), epochs(loader_of(shards)))


# --- the position


def test_the_position_counts_at_hand_over_and_ends_with_the_last_batch(shards):
    loader = loader_of(shards, 2)
    seen = [(loader.epoch, loader.state_dict()["offset"], loader.key.start) for _ in loader]
    assert seen == [(0, 4, 0), (0, 8, 4), (0, 12, 8), (0, 16, 12), (0, 20, 16), (1, 0, 20)]


@pytest.mark.parametrize("at", range(1, 12))
def test_a_position_is_resumed_anywhere(shards, at):
    loader, got = loader_of(shards), []
    while len(got) < at:
        got += [(loader.key, batch) for _, batch in zip(range(at - len(got)), loader, strict=False)]
    fresh = loader_of(shards)
    fresh.load_state_dict(loader.state_dict())
    while len(got) < 12:
        got += epochs(fresh, 1)
    assert equal(got, epochs(loader_of(shards)))


@pytest.mark.parametrize("before, at, after", [(0, 2, 3), (3, 4, 2), (2, 6, 0)])
def test_a_position_is_resumed_with_another_number_of_workers(shards, before, at, after):
    loader = loader_of(shards, before)
    got = [(loader.key, batch) for _, batch in zip(range(at), loader, strict=False)]
    fresh = loader_of(shards, after)
    fresh.load_state_dict(loader.state_dict())
    got += epochs(fresh, 1)
    assert equal(got, epochs(loader_of(shards))[: len(got)]) and len(got) in (6, 12)


def test_another_batch_size_goes_on_at_the_same_record_with_a_warning(shards):
    loader, fresh = loader_of(shards), loader_of(shards, batch_size=5)
    got = numbers([next(iter(loader))])
    with pytest.warns(UserWarning, match="batch_size was 4 when saved and is 5 now"):
        fresh.load_state_dict(loader.state_dict())
    assert got + numbers(fresh) == numbers(loader_of(shards))


def test_a_state_of_another_order_or_other_data_is_refused_naming_both_sides(shards):
    state = loader_of(shards).state_dict()
    for how, said in [({"seed": 6}, "seed was 5 .* is 6"), ({"shuffle_buffer": 7}, "shuffle_buffer was 6 .* is 7")]:
        with pytest.raises(ValueError, match=said):
            loader_of(shards, **how).load_state_dict(state)
    with open(shards[0], "a") as shard:
        shard.write('{"n": 99}\n')
    with pytest.raises(ValueError, match="shards was '3 files, .* when saved and is '3 files, "):
        loader_of(shards).load_state_dict(state)


def test_a_state_of_another_kind_of_loader_is_refused(shards):
    stream, photos = loader_of(shards), ResumableLoader(torch.arange(10), batch_size=4)
    for one, two in [(stream, photos), (photos, stream)]:
        with pytest.raises(ValueError, match="cannot resume: .* was "):
            one.load_state_dict(two.state_dict())


def test_a_state_is_plain_and_survives_a_move_of_the_folder(shards, tmp_path):
    loader = loader_of(shards)
    next(iter(loader))
    state = loader.state_dict()
    assert {type(value) for value in state.values()} <= {int, str}
    (tmp_path / "moved").mkdir()
    moved = [path.rename(tmp_path / "moved" / path.name) for path in shards]
    loader_of(moved).load_state_dict(state)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_whole_epochs_and_peeks_disturb_no_iteration(shards, num_workers):
    loader, whole = loader_of(shards, num_workers), list(loader_of(shards))
    iteration = iter(loader)
    next(iteration)
    assert torch.equal(loader.peek(), whole[1]) and all(map(torch.equal, loader.whole_epoch(), whole))
    assert loader.state_dict()["offset"] == 4 and all(map(torch.equal, iteration, whole[1:]))


def test_two_loaders_may_read_one_stream(shards):
    records = records_of(shards)
    loaders = [ResumableLoader(records, num_workers=2) for _ in range(2)]
    loaders[1].set_position(1)
    both = zip(*loaders, strict=True)
    assert [key.epoch for _ in both for key in (loaders[0].key, loaders[1].key)] == [0, 1] * 6


# --- the wrong way: the shared position is moved at hand-over


class LateRecords(ShardedRecords):
    """Worker 1 reads the shared position late: once it was moved, or after `patience` seconds."""

    patience = 0.2

    def __iter__(self):
        info, until = get_worker_info(), time.monotonic() + self.patience
        while info and info.id == 1 and self._position.get() == (0, 0) and time.monotonic() < until:
            time.sleep(0.01)
        return super().__iter__()


def read_late(paths, *, moved_at_hand_over):
    records, seen = LateRecords(paths, batch_size=4, seed=5, transform=noisy), []
    records.patience = 30 if moved_at_hand_over else 0.2
    for batch in DataLoader(records, batch_size=None, num_workers=2, generator=torch.Generator()):
        seen += numbers([batch])
        if moved_at_hand_over:
            records.set_position(0, len(seen))
    return seen


def test_a_shared_position_that_moves_at_hand_over_gives_a_slow_worker_the_wrong_batches(shards):
    assert sorted(read_late(shards, moved_at_hand_over=False)) == list(range(NUM_RECORDS))
    wrong = read_late(shards, moved_at_hand_over=True)
    assert len(set(wrong)) < NUM_RECORDS and len(wrong) > len(set(wrong))  # some never, some twice


def start_late(worker_id):
    time.sleep(0.3 * worker_id)


def test_a_worker_that_starts_late_changes_no_batch(shards):
    loader = loader_of(shards, 2, {"worker_init_fn": start_late})
    assert equal(epochs(loader, 1), epochs(loader_of(shards), 1))


# --- the loader's own arguments


@pytest.mark.parametrize(
    "also", [{"batch_size": 4}, {"seed": 0}, {"rank": 0}, {"collate_fn": default_collate}], ids=str
)
def test_what_the_records_say_is_refused_beside_them(shards, also):
    (name,) = also
    with pytest.raises(ValueError, match=f"ShardedRecords already says what {name}"):
        ResumableLoader(records_of(shards), **also)


def test_a_stream_promises_no_length(shards):
    with pytest.raises(TypeError, match="no length"):
        len(loader_of(shards))
    assert not hasattr(records_of(shards), "__len__")


def test_a_stream_without_records_has_no_batch(shards):
    loader = loader_of(shards[1:2])
    assert list(loader) == [] and loader.epoch == 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_trainer_reads_a_stream_epoch_by_epoch(shards, num_workers):
    from course_utils.training_loop import Trainer

    def example(record):
        return torch.rand(4), record["n"] % 3

    model = torch.nn.Linear(4, 3)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.CrossEntropyLoss())
    loader = loader_of(shards, num_workers, transform=example)
    trainer.fit(loader, num_epochs=2, val_loader=loader_of(shards, transform=example))
    assert trainer.step == 12 and loader.epoch == 2 and len(trainer.val_history) == 2
