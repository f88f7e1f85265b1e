"""Batches ahead in bytes: worked out by hand, and counted in the workers."""

import time
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, get_worker_info

from course_utils import loader_memory
from course_utils.loader_memory import batch_bytes, shared_memory_free, shared_memory_problem
from course_utils.loaders import ResumableLoader, collate_boxes, loader_memory_mib
from course_utils.randomness import keyed_uniform
from course_utils.streams import ShardedRecords

MIB = 2**20


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """As much shared memory as a test asks for; else a lot, whatever this machine has."""
    free = [2**40]
    monkeypatch.setattr(loader_memory, "shared_memory_free", lambda: free[0])
    return free


def images(num_bytes):
    return torch.zeros(num_bytes, dtype=torch.uint8)


@pytest.mark.parametrize(
    "how, batches",
    [
        ({"num_workers": 2}, 4),  # prefetch_factor is 2 unless told
        ({"num_workers": 3, "prefetch_factor": 5}, 15),
        ({"num_workers": 1, "prefetch_factor": 1}, 1),
        ({"num_workers": 2, "pin_memory": True}, 5),  # the fifth is being copied
        ({"num_workers": 0}, 0),
        ({"num_workers": 0, "pin_memory": True}, 0),
    ],
    ids=str,
)
def test_every_worker_holds_whole_batches(how, batches):
    assert loader_memory_mib(images(3 * MIB), **how) == 3.0 * batches


def test_a_photo_batch_is_worked_out_by_hand():
    batch = torch.zeros(64, 3, 224, 224), torch.zeros(64, dtype=torch.int64)
    assert batch_bytes(batch) == 64 * 3 * 224 * 224 * 4 + 64 * 8 == 38_535_680
    assert loader_memory_mib(batch, num_workers=4, prefetch_factor=2) == pytest.approx(294.0, abs=0.01)


Pair = namedtuple("Pair", "ids names")


@pytest.mark.parametrize(
    "batch, total, shared",
    [
        ({"a": images(5), "b": [images(2), (images(1),)]}, 8, 8),
        (Pair(images(7), ["one", "two"]), 7, 7),
        ([np.zeros(4, dtype=np.float64), images(1)], 33, 1),
        ([], 0, 0),
        (["text", None, 3], 0, 0),
    ],
    ids=["nested", "namedtuple", "array", "empty", "other"],
)
def test_tensors_and_arrays_count_at_any_depth_and_only_tensors_are_shared(batch, total, shared):
    assert (batch_bytes(batch), batch_bytes(batch, shared_only=True)) == (total, shared)


def test_a_view_counts_with_all_that_it_is_a_view_of_and_once():
    whole = images(1000)
    assert batch_bytes(whole[:10]) == 1000 and batch_bytes([whole[:10], whole[10:20]]) == 1000
    assert batch_bytes(whole[:10].clone()) == 10
    assert batch_bytes(torch.zeros(1).expand(64)) == 4


class Drawn(Dataset):
    """24 bytes an example; it draws."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.rand(6)


class Taking(Drawn):
    def take(self, key):
        return keyed_uniform(key, 12)


@pytest.mark.parametrize(
    "dataset, each",
    [
        (Drawn(), 24),
        (Taking(), 48),
        (Subset(Taking(), [5, 6, 7, 8]), 48),
        (TensorDataset(torch.zeros(9, 6)), 24),
    ],
    ids=["examples", "take", "subset", "tensors"],
)
def test_of_a_dataset_one_batch_is_made_and_nothing_disturbed(dataset, each):
    before = torch.get_rng_state()
    assert loader_memory_mib(dataset, batch_size=4, num_workers=1, prefetch_factor=1) * MIB == 4 * each
    assert torch.equal(torch.get_rng_state(), before)


def test_a_dataset_smaller_than_the_batch_counts_what_it_has():
    assert loader_memory_mib(Drawn(), batch_size=64, num_workers=1, prefetch_factor=1) * MIB == 240
    assert loader_memory_mib(Subset(Drawn(), []), batch_size=4, num_workers=1) == 0


def test_a_collate_fn_of_ones_own_is_counted():
    dataset = [(torch.zeros(3, 4, 4), {"boxes": torch.zeros(n, 4), "labels": torch.zeros(n)}) for n in (0, 2)]
    found = loader_memory_mib(Subset(dataset, [0, 1]), batch_size=2, num_workers=1, collate_fn=collate_boxes)
    assert found * MIB == 2 * (2 * 48 * 4 + 2 * 16 + 2 * 4)


def test_a_stream_says_its_batch_size_itself(tmp_path):
    (tmp_path / "a.jsonl").write_text("1\n2\n3\n")
    records = ShardedRecords([tmp_path / "a.jsonl"], batch_size=2, seed=0)
    assert loader_memory_mib(records, num_workers=1, prefetch_factor=1) * MIB == 16  # two int64
    with pytest.raises(ValueError, match="ShardedRecords already says"):
        loader_memory_mib(records, batch_size=2, num_workers=1)


@pytest.mark.parametrize(
    "given, how, said",
    [
        (Drawn(), {"num_workers": 1}, "a dataset needs batch_size=..., 1 or more, got None"),
        (Drawn(), {"num_workers": 1, "batch_size": 0}, "1 or more, got 0"),
        (images(1), {"num_workers": 1, "batch_size": 4}, r"a batch \(Tensor\) has its size"),
        (images(1), {"num_workers": -1}, "num_workers >= 0 .* got num_workers=-1"),
        (images(1), {"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor >= 1, got .*prefetch_factor=0"),
    ],
)
def test_what_does_not_fit_is_refused(given, how, said):
    with pytest.raises(ValueError, match=said):
        loader_memory_mib(given, **how)


# --- shared memory


@pytest.mark.parametrize("free, fits", [(64 * MIB, True), (64 * MIB - 1, False), (0, False), (None, True)])
def test_the_last_byte_decides_and_no_limit_is_no_problem(free, fits):
    assert (shared_memory_problem(16, 4 * MIB, free) is None) is fits


def test_the_problem_is_told_in_numbers_with_what_would_fit():
    told = shared_memory_problem(8, 12 * MIB, 64 * MIB)
    assert told.startswith("8 batches made ahead, 12.0 MiB each, need 96.0 MiB of shared memory, and /dev/shm has 64.0")
    assert "room for 5:" in told and "fewer workers" in told and "--shm-size" in told


def test_a_warning_comes_where_it_will_not_fit_and_counts_shared_bytes_once(room):
    room[0] = 12 * MIB
    assert loader_memory_mib(images(3 * MIB), num_workers=2, pin_memory=True) == 15.0  # pinned copies are not in shm
    loader_memory_mib(np.zeros(30 * MIB, dtype=np.uint8), num_workers=2)  # arrays go through a pipe
    room[0] -= 1
    with pytest.warns(UserWarning, match="need 12.0 MiB of shared memory"):
        loader_memory_mib(images(3 * MIB), num_workers=2)


def test_systems_without_the_folder_have_no_number(tmp_path):
    assert shared_memory_free(tmp_path / "missing") is None
    assert shared_memory_free(tmp_path) is None or shared_memory_free(tmp_path) > 0


class Counted(Dataset):
    """Each worker counts the batches it has made; of one example each."""

    def __init__(self):
        self.made = torch.zeros(4, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.made[get_worker_info().id] += 1
        return index


@pytest.mark.parametrize("num_workers, prefetch_factor", [(1, 1), (1, 5), (2, 2)])
def test_workers_make_that_many_batches_ahead_and_then_wait(num_workers, prefetch_factor):
    dataset, ahead = Counted(), num_workers * prefetch_factor
    how = {"num_workers": num_workers, "prefetch_factor": prefetch_factor}
    iteration = iter(ResumableLoader(dataset, batch_size=1, **how))
    for taken in (1, 2, 3):
        next(iteration)
        for _ in range(1000):
            if dataset.made.sum() >= taken + ahead:
                break
            time.sleep(0.01)
        time.sleep(0.05)  # one more would come now
        assert int(dataset.made.sum()) == taken + ahead
    iteration.close()


class Plain:
    """A dataset of a class of its own: PyTorch needs no more."""

    def __getitem__(self, index):
        return torch.zeros(3)

    def __len__(self):
        return 5


def test_a_batch_of_one_and_a_dataset_that_is_no_dataset_by_class_are_counted():
    assert loader_memory_mib(Drawn(), batch_size=1, num_workers=1, prefetch_factor=1) * MIB == 24
    assert loader_memory_mib(Plain(), batch_size=2, num_workers=1, prefetch_factor=1) * MIB == 24


def test_free_shared_memory_is_blocks_times_their_size(tmp_path, monkeypatch):
    found = SimpleNamespace(f_bavail=3, f_frsize=4096)
    monkeypatch.setattr(loader_memory.os, "statvfs", lambda folder: found, raising=False)  # Windows has none
    assert shared_memory_free(tmp_path) == 3 * 4096
    monkeypatch.delattr(loader_memory.os, "statvfs")
    assert shared_memory_free(tmp_path) is None


def test_the_warning_names_the_callers_line(room):
    room[0] = 0
    with pytest.warns(UserWarning, match="shared memory") as caught:
        loader_memory_mib(images(8), num_workers=1)
    assert caught[0].filename == __file__
