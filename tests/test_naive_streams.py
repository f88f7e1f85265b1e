"""What chapter 01 shows of naive streams goes wrong here too, and not with `ShardedRecords`."""

import json

import pytest
from torch.utils.data import DataLoader

from course_utils.naive_streams import JsonLines, SharedLines
from course_utils.streams import ShardedRecords


@pytest.fixture
def shards(tmp_path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, numbers in zip(paths, (range(4), range(4, 10)), strict=True):
        path.write_text("".join(json.dumps(number) + "\n" for number in numbers), encoding="utf-8")
    return paths


def batches(stream, num_workers, batch_size=4):
    return [batch.tolist() for batch in DataLoader(stream, batch_size, num_workers=num_workers)]


@pytest.mark.parametrize("num_workers, times", [(0, 1), (1, 1), (2, 2)])
def test_json_lines_gives_each_record_once_a_worker(shards, num_workers, times):
    numbers = sorted(sum(batches(JsonLines(shards), num_workers), []))
    assert numbers == sorted(list(range(10)) * times)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_shared_lines_gives_each_record_once(shards, num_workers):
    assert sorted(sum(batches(SharedLines(shards), num_workers), [])) == list(range(10))


def test_batches_of_shared_lines_depend_on_the_workers_and_two_are_partial(shards):
    assert batches(SharedLines(shards), 0) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches(SharedLines(shards), 2) == [[0, 2, 4, 6], [1, 3, 5, 7], [8], [9]]


def test_batches_of_sharded_records_do_not(shards):
    records = ShardedRecords(shards, batch_size=4, seed=0)
    alone, with_workers = (batches(records, num_workers, None) for num_workers in (0, 2))
    assert alone == with_workers and [len(batch) for batch in alone] == [4, 4, 2]
