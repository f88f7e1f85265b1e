"""Workers of a `ResumableLoader`: the same bits for any number of them, and none left behind."""

import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
import weakref

import pytest
import torch
from torch.utils.data import Subset, get_worker_info

from course_utils.loaders import ResumableLoader
from course_utils.randomness import keyed_uniform
from course_utils.sampling import EpochBatches
from course_utils.training_loop import Trainer
from course_utils.worker_pool import can_pin
from tests.conftest import held, make_tiny_model
from tests.noisy_data import Noisy

pytestmark = [
    pytest.mark.usefixtures("nothing_is_left"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than cores: on purpose
]


METHODS = {*multiprocessing.get_all_start_methods()}
FORK = "fork" if "fork" in METHODS else "spawn"  # Windows only spawns


class Taking(Noisy):
    def take(self, key):
        pairs = torch.tensor(list(key.examples()), dtype=torch.float32)
        return torch.cat([pairs, keyed_uniform(key, 2)], dim=1)


class InOneGo(Noisy):
    """What PyTorch's own fetcher asks for a whole list; here each example keeps its generators."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Labelled(Noisy):
    def __getitem__(self, index):
        return torch.rand(4) + index, index % 3


class WithWorker(Noisy):
    """Example i is (i, the process that made it)."""

    def __getitem__(self, index):
        return torch.tensor([index, os.getpid()])


def loader_of(dataset=None, **how):
    return ResumableLoader(dataset or Noisy(), **({"batch_size": 3, "seed": 4, "num_workers": 2} | how))


def epochs(loader, num_epochs=2):
    """Batches and keys; an epoch's end in between makes persistent workers go on with the next."""
    return [(loader.key, batch) for _ in range(num_epochs) for batch in loader]


def equal(got, expected):
    assert len(expected) > 0 and [key for key, _ in got] == [key for key, _ in expected]
    return all(torch.equal(one, two) for (_, one), (_, two) in zip(got, expected, strict=True))


def workers_alive():
    return len(multiprocessing.active_children())


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    assert workers_alive() == 0
    yield
    if workers_alive():
        gc.collect()  # a traceback's cycle holds the loader, and persistent workers go with it
    assert workers_alive() == 0


def test_what_a_test_leaves_behind_would_be_noticed():
    before, going = held(), threading.Event()
    thread = threading.Thread(target=going.wait)
    child = multiprocessing.get_context(FORK).Process(target=time.sleep, args=(30,))
    child.start(), thread.start()
    shared = torch.ones(3).share_memory_()
    found = {kind: len(now - before[kind]) for kind, now in held().items()}
    going.set(), thread.join(), child.kill(), child.join(), child.close()
    assert found["children"] == found["threads"] == 1 and shared.sum() == 3
    assert found["shared memory"] == (1 if sys.platform == "linux" else 0)


FORKED = [
    {"num_workers": 1},
    {"num_workers": 2, "prefetch_factor": 1},
    {"num_workers": 2, "prefetch_factor": 5, "persistent_workers": True},
    {"num_workers": 4, "persistent_workers": True},
    {"num_workers": 1, "prefetch_factor": 1, "persistent_workers": True},
    {"num_workers": 2, "prefetch_factor": 2},
    {"num_workers": 4, "prefetch_factor": 5},
]


@pytest.mark.parametrize("workers", FORKED, ids=str)
@pytest.mark.parametrize("dataset", [Noisy(), Taking()], ids=["examples", "take"])
def test_every_bit_is_the_same_with_workers(dataset, workers):
    torch.manual_seed(random.randrange(1000))  # what the main process draws from matters not
    before = torch.get_rng_state()
    got = epochs(loader_of(dataset, **workers, multiprocessing_context=FORK), num_epochs=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(got, epochs(loader_of(dataset, num_workers=0), num_epochs=3)) and len(got) == 12


@pytest.mark.parametrize(
    "dataset",
    [InOneGo(), Subset(Taking(), [7, 1, 4, 9]), Subset(Noisy(), [7, 1, 4, 9])],
    ids=["getitems", "subset of take", "subset"],
)
def test_every_bit_is_the_same_for_datasets_of_any_kind(dataset):
    plain = dataset if isinstance(dataset, Subset) else Noisy()
    assert equal(epochs(loader_of(dataset)), epochs(loader_of(plain, num_workers=0)))


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted({"spawn", "forkserver"} & METHODS))
def test_every_bit_is_the_same_however_workers_are_started(method):
    how = {"persistent_workers": True, "multiprocessing_context": method}
    assert equal(epochs(loader_of(**how)), epochs(loader_of(num_workers=0)))


def test_weights_ranks_and_empty_batches_come_the_same_from_workers():
    def batches():
        return EpochBatches(10, batch_size=3, seed=4, weights=[1, 9] * 5, rank=3, world_size=4)

    expected = epochs(ResumableLoader(Noisy(), batches=batches()))
    assert equal(epochs(ResumableLoader(Noisy(), batches=batches(), num_workers=2)), expected)
    assert {len(batch) for _, batch in expected} == {2}
    empty = [loader_of(rank=10, world_size=11, num_workers=n) for n in (0, 2)]
    assert [[batch.shape for batch in loader] for loader in empty] == [[(0, 4)], [(0, 4)]]


def test_batches_are_made_by_workers_and_counted_at_hand_over():
    loader = loader_of(WithWorker(), batch_size=1, prefetch_factor=4)
    seen = [(loader.batches.offset, int(batch[0, 1])) for batch in loader]
    assert [offset for offset, _ in seen] == [*range(1, 10), 0] and loader.epoch == 1
    assert len({pid for _, pid in seen} - {os.getpid()}) == 2


@pytest.mark.parametrize("at, before, after", [(1, 0, 2), (3, 2, 1), (4, 1, 0), (6, 2, 4)])
def test_a_position_is_resumed_with_another_number_of_workers(at, before, after):
    loader, got = loader_of(num_workers=before), []
    while len(got) < at:
        got += [(loader.key, batch) for _, batch in zip(range(at - len(got)), loader, strict=False)]
    fresh = loader_of(num_workers=after)
    fresh.load_state_dict(loader.state_dict())
    while len(got) < 12:
        got += epochs(fresh, 1)
    assert equal(got, epochs(loader_of(num_workers=0), 3))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_position_is_resumed_with_other_batches_and_ranks_and_nothing_comes_twice(num_workers):
    loader = loader_of(num_workers=num_workers)
    seen, state = next(iter(loader)), loader.state_dict()
    ranks = [loader_of(batch_size=2, rank=rank, world_size=2, num_workers=2 - num_workers) for rank in (0, 1)]
    for rank in ranks:
        with pytest.warns(UserWarning, match="was . when saved and is 2 now"):
            rank.load_state_dict(state)
    rest = [example for rank in ranks for batch in rank for example in batch.tolist()]
    whole = next(iter(loader_of(batch_size=10, num_workers=0)))
    assert sorted(seen.tolist() + rest) == sorted(whole.tolist())
    assert {rank.epoch for rank in ranks} == {1}


# --- one iteration at a time, and what runs beside it


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("how", [iter, lambda loader: loader.set_position(0)], ids=["iter", "set"])
def test_a_new_iteration_or_position_ends_the_one_before_and_its_workers(how, persistent):
    loader = loader_of(persistent_workers=persistent)
    old = iter(loader)
    next(old)
    assert workers_alive() == 2
    new = how(loader)
    assert workers_alive() == (2 if persistent else 0)
    with pytest.raises(RuntimeError, match="this iteration has ended"):
        next(old)
    assert new is None or len(list(new)) == 3  # the rest of the epoch, not disturbed by the old one's end


@pytest.mark.parametrize("persistent", [False, True])
def test_whole_epochs_and_peeks_disturb_no_iteration(persistent):
    loader, plain = loader_of(persistent_workers=persistent), loader_of(num_workers=0)
    whole, before = list(plain), torch.get_rng_state()
    iteration = iter(loader)
    assert torch.equal(next(iteration), whole[0])
    for _ in range(2):
        assert torch.equal(loader.peek(), whole[1])
        assert all(map(torch.equal, loader.whole_epoch(), whole))
    next(loader.whole_epoch())  # left early
    assert loader.key.start == 0 and loader.batches.offset == 3
    assert all(map(torch.equal, iteration, whole[1:])) and loader.epoch == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_two_whole_epochs_at_a_time_do_not_mix():
    loader = loader_of()
    both = zip(loader.whole_epoch(), loader.whole_epoch(), strict=True)
    assert [torch.equal(one, two) for one, two in both] == [True] * 4


def test_two_whole_epochs_at_a_time_of_persistent_workers_are_refused():
    loader = loader_of(persistent_workers=True)
    first, second = loader.whole_epoch(), loader.whole_epoch()
    next(first), next(second)
    with pytest.raises(RuntimeError, match="one at a time"):
        next(first)
    assert len(list(second)) == 3  # the first one's end left the workers alone


def test_persistent_workers_are_the_same_processes_for_a_second_epoch():
    loader = loader_of(WithWorker(), persistent_workers=True)
    first, second = ({int(batch[0, 1]) for batch in loader} for _ in range(2))
    assert len(first) == 2 and first == second


# --- endings


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_that_breaks_or_raises_leaves_no_worker_busy(persistent):
    loader = loader_of(persistent_workers=persistent)
    for _ in loader:
        break
    assert workers_alive() == (2 if persistent else 0)
    with pytest.raises(KeyboardInterrupt):
        for _ in loader:
            raise KeyboardInterrupt
    assert workers_alive() == (2 if persistent else 0)
    assert loader.batches.offset == 6 and len(list(loader)) == 2


class Failing(Noisy):
    samples = [(f"photos/{index}.png", 0) for index in range(10)]

    def __init__(self, error):
        self.error = error

    def __getitem__(self, index):
        if index == 7:
            raise self.error
        return super().__getitem__(index)


class TwoArguments(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


ERRORS = [OSError("cannot read"), KeyError("cannot read"), TwoArguments("cannot read", 2)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_names_index_and_path_and_ends_the_workers(num_workers, error):
    loader = loader_of(Failing(error), batch_size=1, shuffle=False, num_workers=num_workers)
    with pytest.raises((type(error), RuntimeError)) as caught:
        list(loader)
    told = "".join(traceback.format_exception(caught.value))
    assert workers_alive() == 0  # although the traceback is still held
    assert "cannot read" in told and "while making example 7: photos/7.png" in told
    assert loader.batches.offset == 7 and loader.key.indices == [6]


def test_after_an_exception_persistent_workers_are_made_anew():
    loader = loader_of(Failing(OSError("broken")), batch_size=1, shuffle=False, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(OSError, match="broken"):
            list(loader)
        assert workers_alive() == 0
    loader.set_position(0, 8)
    assert len(list(loader)) == 2


def test_an_exception_of_take_names_the_examples():
    class Broken(Taking):
        def take(self, key):
            raise ValueError("broken")

    with pytest.raises(ValueError, match=r"while making the batch of examples \[0, 1, 2\]"):
        next(iter(loader_of(Broken(), shuffle=False, num_workers=1)))


def test_ctrl_c_reaches_the_main_process_alone_and_no_batch_is_lost():
    iteration = iter(loader_of(prefetch_factor=1))
    got = [next(iteration), next(iteration)]  # one of each worker: both have begun
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGINT)
    time.sleep(0.2)
    assert len(got + list(iteration)) == 4


@pytest.fixture
def looks_often(monkeypatch):
    """PyTorch looks whether its workers live every fifth of a second, not every 5 s."""
    look = torch.utils.data.dataloader._MultiProcessingDataLoaderIter._try_get_data
    assert look.__defaults__ == (5.0,)
    monkeypatch.setattr(look, "__defaults__", (0.2,))


@pytest.mark.parametrize("noticed", [True, False])
def test_persistent_workers_that_ended_are_made_anew(noticed, looks_often):
    loader = loader_of(persistent_workers=True)
    list(loader)
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGTERM)
        if noticed:
            child.join()
    assert len(list(loader)) == 4


STOPPED = """
import multiprocessing, os, signal, sys, threading, time, warnings
import torch
from course_utils.loaders import ResumableLoader

warnings.simplefilter("ignore")
os.setsid()  # Ctrl-C reaches a group of processes: not the tests'

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.tensor(index)

loader = ResumableLoader(
    Slow(), batch_size=1, shuffle=False, num_workers=2, persistent_workers=PERSISTENT
)
got = []
try:
    for batch in loader:
        got.append(int(batch))
        if len(got) == 3:
            os.killpg(0, signal.SIGINT)  # Ctrl-C: this process and its workers
            time.sleep(5)
except KeyboardInterrupt:
    print("stopped at", loader.batches.offset)
time.sleep(0.5)  # a reader takes longer before the cell is run again
print(*got, *(int(batch) for batch in loader))
del loader
deadline = time.monotonic() + 20
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.05)  # the thread that fed a worker's queue ends a moment after the worker
print("left:", len(multiprocessing.active_children()), "children,", threading.active_count() - 1, "threads")
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="Ctrl-C is sent to a process group")
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "new"])
def test_after_a_real_ctrl_c_the_same_loader_goes_on_where_it_stood(fresh_python, persistent):
    told = fresh_python.run(STOPPED.replace("PERSISTENT", str(persistent)))
    expected = ["stopped at 3", "0 1 2 3 4 5 6 7 8 9", "left: 0 children, 0 threads"]
    assert told.stdout.splitlines() == expected, told.stderr


def test_an_exception_of_a_class_that_cannot_be_pickled_arrives():
    class Local(Exception):
        pass

    with pytest.raises(RuntimeError, match="Local, of a class that cannot be pickled: broken"):
        list(loader_of(Failing(Local("broken")), timeout=20))


DYING = """
import os, warnings
import torch
from course_utils.loaders import ResumableLoader

warnings.simplefilter("ignore")

class Dying(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 5 and os.path.exists(FLAG):
            os._exit(3)
        return torch.tensor(index)

loader = ResumableLoader(Dying(), batch_size=1, shuffle=False, num_workers=2, persistent_workers=True)
try:
    list(loader)
except RuntimeError as error:
    print("exited unexpectedly" in str(error), loader.batches.offset <= 5)
os.remove(FLAG)
print(loader.batches.offset + len(list(loader)))
"""


def test_a_worker_that_dies_is_told_and_the_next_iteration_works(fresh_python, tmp_path):
    (tmp_path / "flag").touch()  # in a process of its own: the news of a death may strike anywhere in this one
    told = fresh_python.run(DYING.replace("FLAG", repr(str(tmp_path / "flag"))))
    assert told.stdout.split() == ["True", "True", "10"], told.stderr


def test_a_hung_worker_is_ended_by_timeout():
    class Hanging(Noisy):
        def __getitem__(self, index):
            time.sleep(2)

    with pytest.raises(RuntimeError, match="timed out after 0.5 seconds"):
        next(iter(loader_of(Hanging(), num_workers=1, batch_size=1, timeout=0.5)))
    assert workers_alive() == 0


def test_training_with_workers_gives_the_same_weights_resumed_with_another_number():
    def weights(first, second, at):
        model = make_tiny_model(dropout=0.2)
        trainer = Trainer(model, torch.optim.AdamW(model.parameters()), torch.nn.CrossEntropyLoss(), seed=1)
        loaders = [ResumableLoader(Labelled(), batch_size=3, num_workers=n) for n in (first, second)]
        trainer.fit(loaders[0], num_steps=at)
        loaders[1].load_state_dict(loaders[0].state_dict())
        trainer.fit(loaders[1], num_steps=9)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    straight = weights(0, 0, 5)
    assert torch.equal(weights(2, 0, 5), straight) and torch.equal(weights(1, 2, 3), straight)


# --- options


def mark_worker(worker_id):
    get_worker_info().dataset.maker.dataset.mark = 100 + worker_id


class Marked(Noisy):
    mark = 0

    def __getitem__(self, index):
        return torch.tensor([index, self.mark])


def test_worker_init_fn_reaches_the_dataset():
    marks = [int(batch[0, 1]) for batch in loader_of(Marked(), worker_init_fn=mark_worker)]
    assert marks == [100, 101, 100, 101]


@pytest.mark.parametrize(
    "option", [{"persistent_workers": True}, {"prefetch_factor": 2}, {"timeout": 1}, {"worker_init_fn": mark_worker}]
)
def test_options_of_workers_are_refused_without_workers(option):
    with pytest.raises(ValueError, match="is for workers: give num_workers=1 or more, got 0"):
        loader_of(num_workers=0, **option)


def test_an_error_of_a_worker_is_no_cycle_that_keeps_the_loader_alive():
    loader = loader_of(Failing(OSError("broken")))
    with pytest.raises(OSError, match="broken") as caught:
        list(loader)
    left = weakref.ref(loader)
    gc.disable()
    try:
        del loader, caught
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("option", [{"num_workers": -1}, {"prefetch_factor": -1}, {"multiprocessing_context": "x"}])
def test_options_that_do_not_fit_are_noticed_when_the_loader_is_made(option):
    with pytest.raises(ValueError):
        loader_of(**option)


def test_pinning_memory_without_a_gpu_is_left_out_in_silence():
    if torch.accelerator.is_available():
        pytest.skip("there is a GPU")
    assert equal(epochs(loader_of(pin_memory=True), 1), epochs(loader_of(num_workers=0, pin_memory=True), 1))


@pytest.mark.parametrize("accelerator, pins", [(None, False), ("mps", False), ("cuda", True)])
def test_memory_is_pinned_where_torch_pins_it(monkeypatch, accelerator, pins):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: accelerator and torch.device(accelerator))
    assert can_pin() is pins


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_are_pinned(num_workers):
    assert all(batch.is_pinned() for batch in loader_of(num_workers=num_workers, pin_memory=True))
