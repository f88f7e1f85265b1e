"""Diagnosing a loop: with a clock that tests move, and that it leaves the run and the machine as they were."""

import copy
import multiprocessing
import random
import types

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from course_utils import profiling, speed_limit
from course_utils.endless_batches import EndlessBatches, endless, idle_worker
from course_utils.loaders import ResumableLoader
from course_utils.profiling import StepTimer, diagnose
from course_utils.sampling import EpochBatches
from tests.conftest import make_tiny_model

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Drawing(Dataset):
    """Example i is (i, a draw of each generator)."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor([index, torch.rand(()), random.random(), np.random.rand()], dtype=torch.float32)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(5.0))


def states():
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


def drawing_step(batch):
    return torch.rand(3), random.random(), np.random.rand()


QUICK = {"seconds": 0.05}


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch):
    """The peak is measured on small matrices, so that tests are quick."""
    peak = speed_limit.matmul_peak_gflops
    monkeypatch.setattr(profiling, "matmul_peak_gflops", lambda seconds: peak(seconds, size=32))


# --- nothing is disturbed


def loaders(num_workers):
    generator = torch.Generator().manual_seed(5)
    kept = {"num_workers": num_workers, "persistent_workers": num_workers > 0}
    return {
        "resumable": ResumableLoader(Drawing(), batch_size=4, num_workers=num_workers),
        "resumable, kept": ResumableLoader(Drawing(), batch_size=4, **(kept if num_workers else {})),
        "plain": DataLoader(Drawing(), batch_size=4, shuffle=True, **kept),
        "own generator": DataLoader(Drawing(), batch_size=4, shuffle=True, generator=generator, **kept),
        "keys": DataLoader(Drawing(), batch_sampler=EpochBatches(10, batch_size=4, seed=1), num_workers=num_workers),
        "no batches": DataLoader(Drawing(), batch_size=None, num_workers=num_workers),
        "stream": DataLoader(Stream(), batch_size=2, **kept),
    }


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("kind", loaders(0))
def test_generators_and_workers_are_as_before_although_dataset_and_step_draw(kind, num_workers):
    loader = loaders(num_workers)[kind]
    own = getattr(loader, "generator", None)
    before = states(), own and own.get_state().tolist()
    found = diagnose(loader, drawing_step, **QUICK)
    assert (states(), own and own.get_state().tolist()) == before and found.times.num_workers == num_workers
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_a_loaders_position_key_and_running_iteration_stay(options):
    expected = list(ResumableLoader(Drawing(), batch_size=3, seed=4))
    loader = ResumableLoader(Drawing(), batch_size=3, seed=4, **options)
    iteration = iter(loader)
    first = next(iteration)
    state, key = loader.state_dict(), loader.key
    found = diagnose(loader, drawing_step, **QUICK)
    assert (loader.state_dict(), loader.key) == (state, key) and found.times.num_batches == 4
    assert all(map(torch.equal, [first, *iteration], expected)) and loader.epoch == 1


@pytest.mark.parametrize("persistent", [False, True])
def test_a_running_iteration_of_a_dataloader_goes_on(persistent):
    loader = DataLoader(range(8), batch_size=2, num_workers=1, persistent_workers=persistent)
    iteration = iter(loader)
    first = next(iteration)
    diagnose(loader, id, **QUICK)
    assert torch.cat([first, *iteration]).tolist() == list(range(8))
    assert torch.cat(list(loader)).tolist() == list(range(8)) and loader.persistent_workers is persistent


def test_training_after_it_gives_the_same_weights_where_the_step_had_a_copy():
    def step_of(model):
        optimizer = torch.optim.Adam(model.parameters())

        def step(batch):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

        return step

    def trained(diagnosed):
        torch.manual_seed(3)
        model, loader = make_tiny_model(dropout=0.5), ResumableLoader(Drawing(), batch_size=5)
        if diagnosed:
            found = diagnose(loader, step_of(copy.deepcopy(model)), **QUICK)
            assert found.limit.flops == (160 + 120) + (160 + 120 + 120)  # forward; backward, without the inputs'
        step = step_of(model)
        for batch in loader:
            step(batch)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    assert torch.equal(trained(True), trained(False))


class Failing(Drawing):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            raise OSError("a broken file")
        return super().__getitem__(index)


class Interrupted:
    """A step that is interrupted in its third call."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def __call__(self, batch):
        torch.rand(1)
        self.calls += 1
        if self.calls == 3:
            raise self.error("interrupted")


@pytest.mark.parametrize("make", [ResumableLoader, DataLoader])
@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, OSError])
def test_an_exception_passes_and_leaves_no_worker_position_or_draw(make, error):
    dataset = Failing() if error is OSError else Drawing()
    loader, before = make(dataset, batch_size=3, num_workers=2), states()
    with pytest.raises(error) as caught:
        diagnose(loader, Interrupted(error), **QUICK)
    assert multiprocessing.active_children() == [] and caught.value is not None  # although the traceback is held
    assert states() == before and getattr(loader, "epoch", 0) == 0


def test_a_watched_loader_is_measured_without_its_timer():
    timer = StepTimer(warmup=0)
    diagnose(timer.watch(ResumableLoader(Drawing(), batch_size=4)), id, **QUICK)
    with pytest.raises(ValueError, match="no step was counted: 0 ended"):
        timer.summary()


# --- what is refused


@pytest.mark.parametrize(
    "loader, how, told",
    [
        ([], {}, "the loader is empty"),
        (DataLoader([]), {}, "the loader is empty"),
        (DataLoader([], batch_size=None, num_workers=1), {}, "the loader is empty"),
        (iter([1]), {}, "a list_iterator can be read once only"),
        ([1], {"seconds": 0}, "seconds > 0, got 0"),
        ([1], {"seconds": float("nan")}, "seconds > 0, got nan"),
    ],
)
def test_what_cannot_be_measured_is_refused(loader, how, told):
    with pytest.raises(ValueError, match=told):
        diagnose(loader, id, **QUICK | how)


# --- what is read


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_come_epoch_after_epoch_from_the_start(num_workers):
    loader = ResumableLoader(range(6), batch_size=2, shuffle=False, num_workers=num_workers)
    loader.set_position(0, 4)
    plain = DataLoader(range(6), batch_size=2, num_workers=num_workers)
    stream = DataLoader(Stream(), batch_size=2)
    for given, length in ((loader, 8), (plain, 8), (stream, 5), ([[0, 1], [2, 3]], 4)):
        batches = endless(given).open()
        numbers = [int(number) for _ in range(4) for number in next(batches)]
        batches.close()
        assert numbers[:length] == [0, 1, 2, 3, 4, 5, 0, 1][:length] or numbers == [0, 1, 2, 3, 0, 1, 2, 3]
    assert (loader.batches.epoch, loader.batches.offset) == (0, 4)


def test_an_idle_worker_hands_over_equal_batches_of_new_memory():
    batch = {"images": torch.arange(6.0).view(2, 3), "names": ["a", "b"]}
    batches = idle_worker(batch, 1, None).open()
    first, second = next(batches), next(batches)
    batches.close()
    assert torch.equal(first["images"], batch["images"]) and first["names"] == ["a", "b"]
    first["images"].zero_()
    assert torch.equal(second["images"], batch["images"])


def test_more_workers_than_cores_bring_no_warning_of_their_own(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0}, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with pytest.warns(UserWarning, match="This DataLoader will create"):
        loader = DataLoader(Drawing(), batch_size=4, num_workers=2)
    for source in (endless(loader), idle_worker([1], 2, None)):
        batches = source.open()
        next(batches)
        batches.close()


# --- what is measured, by a clock of our own


class Clock:
    """`time.perf_counter` of the measuring; loading and steps move it."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        for module in (profiling, speed_limit):
            monkeypatch.setattr(module, "time", types.SimpleNamespace(perf_counter=lambda: self.now))

    def batches(self, start_s, load_s, num_workers=0):
        """The first batch after the start, then those made meanwhile at once, then bursts."""
        self.now += start_s
        yield torch.zeros(2)
        for _ in range(2 * num_workers):
            yield torch.zeros(2)
        while True:
            self.now += load_s * max(1, num_workers)
            for _ in range(max(1, num_workers)):
                yield torch.zeros(2)


@pytest.fixture
def scripted(monkeypatch):
    def run(*, step_s, start_s, load_s, num_workers, handover_s=0.0, num_batches=100, seconds=10):
        clock = Clock(monkeypatch)
        source = EndlessBatches(lambda: clock.batches(start_s, load_s, num_workers), num_workers, num_batches)
        idle = EndlessBatches(lambda: clock.batches(9.0, handover_s), 1)
        monkeypatch.setattr(profiling, "endless", lambda loader: source)
        monkeypatch.setattr(profiling, "idle_worker", lambda batch, num_workers, context: idle)
        return diagnose("loader", lambda batch: setattr(clock, "now", clock.now + step_s), seconds=seconds)

    return run


def test_times_are_measured_without_start_up_and_queue_and_in_whole_rounds(scripted):
    found = scripted(step_s=0.010, start_s=3.0, load_s=0.020, num_workers=3, handover_s=0.002)
    times = found.times
    assert (times.step_ms, times.turn_ms, times.wait_ms) == pytest.approx((10, 30, 20))
    assert (times.load_ms, times.startup_ms, times.handover_ms) == pytest.approx((20, 3000, 2))
    assert found.verdict == "start-up-bound" and found.ms == pytest.approx(29.8) and found.caveat == ""


def test_without_workers_there_is_no_hand_over(scripted):
    found = scripted(step_s=0.010, start_s=0.030, load_s=0.030, num_workers=0, handover_s=5.0)
    assert found.times.handover_ms == 0 and found.verdict == "data-bound" and found.ms == pytest.approx(30)


def test_slow_batches_are_measured_all_the_same_and_a_full_queue_is_told(scripted):
    found = scripted(step_s=4.0, start_s=30.0, load_s=30.0, num_workers=1, seconds=1)
    assert "1 seconds were too few to use up what was made ahead" in str(found) and found.verdict != "compute-bound"


def test_a_step_without_a_matrix_product_has_no_limit(scripted):
    assert scripted(step_s=0.01, start_s=0.01, load_s=0.01, num_workers=0).limit is None


class Iterated:
    """A loader that takes 3 s to begin an iteration and 20 ms for each of its batches."""

    def __init__(self, clock, num_batches):
        self.clock, self.num_batches = clock, num_batches

    def __iter__(self):
        self.clock.now += 3.0
        for _ in range(self.num_batches):
            self.clock.now += 0.020
            yield torch.zeros(2)


@pytest.mark.parametrize("num_batches, turn_ms, startup_ms", [(4, 30, 3000 / 4), (1, 3030, 0)])
def test_what_every_iteration_begins_with_is_start_up_and_not_a_turns(monkeypatch, num_batches, turn_ms, startup_ms):
    clock = Clock(monkeypatch)
    step = lambda batch: setattr(clock, "now", clock.now + 0.010)  # noqa: E731
    found = diagnose(Iterated(clock, num_batches), step, seconds=50)
    assert (found.times.turn_ms, found.times.wait_ms) == pytest.approx((turn_ms, turn_ms - 10))
    assert found.times.num_batches == num_batches and found.parts_ms["start-up"] == pytest.approx(startup_ms)
    assert found.verdict == ("start-up-bound" if num_batches > 1 else "data-bound")


def test_the_batches_of_a_stream_are_counted_once_an_iteration_has_ended():
    batches = endless(DataLoader(Stream(), batch_size=2)).open()
    seen = [(next(batches), batches.begun, batches.length)[1:] for _ in range(5)]
    batches.close()
    assert seen == [(1, None)] * 3 + [(2, 3)] * 2
