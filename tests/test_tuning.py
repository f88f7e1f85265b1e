"""Measuring workers: with clocks that tests move, and that it leaves the run and the machine as they were."""

import copy
import multiprocessing
import random
import time
import types

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from course_utils import tuning, tuning_looks
from course_utils.loaders import ResumableLoader, pad_sequences, tune_workers
from course_utils.sampling import EpochBatches
from course_utils.sources import EndlessKeyFeed
from course_utils.streams import ShardedRecords
from course_utils.worker_choice import WorkerTimes
from tests.conftest import make_tiny_model

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Drawing(Dataset):
    """Example i is (i, a draw of each generator)."""

    def __init__(self, num_examples=10):
        self.num_examples = num_examples

    def __len__(self):
        return self.num_examples

    def __getitem__(self, index):
        return torch.tensor([index, torch.rand(()), random.random(), np.random.rand()], dtype=torch.float32)


def states():
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


def drawing_step(batch):
    return torch.rand(3), random.random(), np.random.rand()


QUICK = {"seconds": 0.4, "max_workers": 2}


@pytest.fixture
def all_numbers(monkeypatch):
    """Every number up to `max_workers` is measured, briefly, whatever the times are."""
    monkeypatch.setattr(tuning_looks, "why_stop", lambda times, floor_ms: None)
    monkeypatch.setattr(tuning, "MAX_SLICE_S", 0.02)


# --- nothing is disturbed


@pytest.mark.parametrize("seed", [0, 1])
def test_generators_are_left_to_the_bit_although_dataset_and_step_draw(all_numbers, seed):
    torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)
    before = states()
    found = tune_workers(Drawing(), drawing_step, batch_size=4, seconds=20, max_workers=2)
    assert states() == before and [row.num_workers for row in found.times] == [0, 1, 2]


@pytest.mark.parametrize("num_workers, persistent", [(0, False), (2, False), (2, True)])
def test_a_loaders_position_key_and_running_iteration_stay(all_numbers, num_workers, persistent):
    options = {"num_workers": num_workers, "persistent_workers": True} if persistent else {"num_workers": num_workers}
    expected = list(ResumableLoader(Drawing(), batch_size=3, seed=4))
    loader = ResumableLoader(Drawing(), batch_size=3, seed=4, **options)
    iteration = iter(loader)
    first = next(iteration)
    state, key = loader.state_dict(), loader.key
    tune_workers(loader, drawing_step, seconds=20, max_workers=1)
    assert (loader.state_dict(), loader.key) == (state, key)
    assert all(map(torch.equal, [first, *iteration], expected)) and loader.epoch == 1


def test_training_after_it_gives_the_same_weights_where_the_step_had_a_copy(all_numbers):
    def trained(tuned):
        torch.manual_seed(3)
        model = make_tiny_model(dropout=0.5)
        optimizer, loader = torch.optim.Adam(model.parameters()), ResumableLoader(Drawing(), batch_size=5)

        def step_of(model, optimizer):
            def step(batch):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()

            return step

        if tuned:
            other = copy.deepcopy(model)
            tune_workers(loader, step_of(other, torch.optim.Adam(other.parameters())), seconds=20, max_workers=1)
        for batch in loader:
            step_of(model, optimizer)(batch)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    assert torch.equal(trained(True), trained(False))


class Failing(Drawing):
    def __getitem__(self, index):
        if tuning.torch.utils.data.get_worker_info() is not None:
            raise OSError("a broken file")
        return super().__getitem__(index)


class Interrupted:
    """A step that is interrupted as soon as there are workers."""

    def __init__(self, error):
        self.error = error

    def __call__(self, batch):
        if multiprocessing.active_children():
            raise self.error("interrupted")


@pytest.mark.parametrize(
    "dataset, step, error",
    [
        (Failing(), drawing_step, OSError),
        (Drawing(), Interrupted(ZeroDivisionError), ZeroDivisionError),
        (Drawing(), Interrupted(KeyboardInterrupt), KeyboardInterrupt),
    ],
    ids=["dataset", "step", "Ctrl-C"],
)
def test_an_exception_passes_and_leaves_no_worker_and_the_generators(all_numbers, dataset, step, error):
    before = states()
    with pytest.raises(error) as caught:
        tune_workers(dataset, step, batch_size=4, seconds=20, max_workers=2)
    assert multiprocessing.active_children() == [] and caught.value is not None  # although the traceback is held
    assert states() == before


def test_more_workers_than_cores_bring_no_warning(all_numbers, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0}, raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert len(tune_workers(Drawing(), id, batch_size=4, seconds=20, max_workers=2).times) == 3


# --- what is measured, by a clock of our own


class Clock:
    """`time` of the measuring; workers, steps and pauses move it."""

    def __init__(self, monkeypatch):
        self.now, self.pauses = 0.0, []
        clock = types.SimpleNamespace(perf_counter=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(tuning, "time", clock)

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.pass_by(seconds)

    def pass_by(self, seconds):
        self.now += seconds


class Scripted:
    """In the place of `_batches`: the first batch of w workers comes after the start-up, those made meanwhile at once,
    and then one in each turn takes what a burst of w leaves. After a pause as many are ready as were made ahead."""

    def __init__(self, clock, load, startup=3.0, prefetch=2, handover=0.0):
        self.clock, self.load, self.startup, self.prefetch, self.handover = clock, load, startup, prefetch, handover
        self.closed = []

    def __call__(self, make_feed, num_workers, options):
        try:
            self.clock.pass_by(self.startup if num_workers else self.load(0))
            yield "batch"
            for _ in range(num_workers * self.prefetch):
                yield "batch"
            while not self.clock.pauses:  # in bursts: one wait, then num_workers batches at once
                self.clock.pass_by(self.load(num_workers) * max(1, num_workers))
                for _ in range(max(1, num_workers)):
                    yield "batch"
            for _ in range(num_workers * self.prefetch):
                self.clock.pass_by(self.handover)
                yield "batch"
        finally:
            self.clock.pauses.clear()
            self.closed.append(num_workers)


@pytest.fixture
def scripted(monkeypatch):
    def make(load, step_s, **how):
        clock = Clock(monkeypatch)
        batches = Scripted(clock, load, **how)
        monkeypatch.setattr(tuning, "endless_batches", batches)
        return batches, lambda batch: clock.pass_by(step_s)

    return make


def test_turns_are_measured_without_start_up_and_queue_and_in_whole_rounds(scripted):
    batches, step = scripted(lambda w: 0.030 / max(1, w), 0.010)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=60, max_workers=4)
    assert found.floor_ms == pytest.approx(10.0)
    turns = {row.num_workers: row.turn_ms for row in found.times}
    assert turns == pytest.approx({0: 40.0, 1: 40.0, 2: 25.0, 3: 20.0, 4: 17.5})
    waits = [row.wait_ms for row in found.times]
    assert waits == pytest.approx([30.0, 30.0, 15.0, 10.0, 7.5])
    assert [row.startup_s for row in found.times] == pytest.approx([0.0, 3.01, 3.01, 3.01, 3.01], abs=0.02)
    assert all(row.num_turns % max(1, row.num_workers) == 0 for row in found.times)
    assert batches.closed == [0, 0, 1, 2, 3, 4, 3, 4]  # the floor's batch first, and last a second look at the best


def test_hand_over_is_timed_with_a_full_queue_and_only_where_that_is_soon_full(scripted):
    _, step = scripted(lambda w: 0.030 / max(1, w), 0.010, handover=0.002)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=60, max_workers=2)
    assert [row.handover_ms for row in found.times] == pytest.approx([0.0, 2.0, 2.0])
    _, step = scripted(lambda w: 0.5, 0.010, handover=0.002)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=60, max_workers=1)
    assert [row.handover_ms for row in found.times] == [0.0, 0.0]


def test_the_floor_is_the_median_without_the_first_step(scripted):
    batches, _ = scripted(lambda w: 0.001, 0.0)
    times = iter([5.0, 0.010, 0.030, 0.020, *[1.0] * 99])
    step = lambda batch: batches.clock.pass_by(next(times))  # noqa: E731
    assert tune_workers(Drawing(), step, batch_size=4, seconds=0.1, max_workers=0).floor_ms == pytest.approx(20.0)


@pytest.mark.parametrize("seconds, chosen, looks", [(60, 2, [2, 3]), (14, 3, [])])
def test_the_best_are_looked_at_twice_while_there_is_time_and_a_busy_moment_does_not_count(
    scripted, seconds, chosen, looks
):
    def load(num_workers):
        busy = batches.closed.count(num_workers) == (num_workers == 3)  # 2 at the first look, 3 at the second
        return {0: 0.030, 1: 0.025, 2: 0.010, 3: 0.0096}[num_workers] + 0.002 * (busy and num_workers > 1)

    batches, step = scripted(load, 0.010)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=seconds, max_workers=3)
    assert batches.closed == [0, 0, 1, 2, 3, *looks] and found.num_workers == chosen
    turns = {row.num_workers: row.turn_ms for row in found.times}
    assert turns == pytest.approx({0: 40.0, 1: 35.0, 2: 20.0 if looks else 22.0, 3: 19.6})


def looks_at(turns, *, allowed=99):
    """The looks, with turns in ms that stay the same: (number, whether the hand-over is timed), while time allows."""
    made = []

    def measure(num_workers, with_handover=True):
        made.append((num_workers, with_handover))
        return WorkerTimes(num_workers, turns[num_workers])

    tuning_looks.measure_all(measure, lambda *_: len(made) < allowed, 10.0, len(turns) - 1, 90)
    return made


def test_the_first_look_alone_times_the_hand_over_and_no_look_begins_without_time():
    found = looks_at([100, 22.4, 21.5])
    assert [number for number, _ in found] == [0, 1, 2, 1, 2, *[2, 1] * 3]
    assert [with_handover for _, with_handover in found] == [True] * 3 + [False] * 8
    for allowed in (2, 3, 4, 6, 8):
        assert looks_at([100, 22.4, 21.5], allowed=allowed) == found[:allowed]


@pytest.mark.parametrize("turn_ms, again", [(25.5, [1, 2, 3]), (25.7, [2, 3])])
def test_a_turn_within_a_quarter_of_the_least_is_looked_at_again(turn_ms, again):
    assert [number for number, _ in looks_at([100, turn_ms, 24.8, 20.5])] == [0, 1, 2, 3, *again]


def test_a_choice_on_the_last_of_its_5_percent_is_measured_again_beside_the_shortest_turn(scripted):
    def load(num_workers):
        busy = (
            num_workers == 3 and batches.closed.count(3) < 2
        )  # its first two looks; 22.4 is 1.04 of that, 1.09 of 20.5
        return {0: 0.090, 1: 0.060, 2: 0.0124, 3: 0.0105}[num_workers] + 0.001 * busy

    batches, step = scripted(load, 0.010)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=90, max_workers=3)
    assert batches.closed == [0, 0, 1, 2, 3, 2, 3, 3, 2] and found.num_workers == 3
    assert {row.num_workers: row.turn_ms for row in found.times}[3] == pytest.approx(20.5)


def test_a_choice_that_stays_on_the_last_of_its_5_percent_is_looked_at_three_times_more_and_keeps_its_hand_over(
    scripted,
):
    batches, step = scripted(lambda w: {0: 0.090, 1: 0.0124, 2: 0.0115}[w], 0.010, handover=0.002)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=90, max_workers=2)
    assert batches.closed == [0, 0, 1, 2, 1, 2, *[2, 1] * 3] and found.num_workers == 1
    assert [row.handover_ms for row in found.times] == pytest.approx([0.0, 2.0, 2.0])


def test_numbers_that_were_vain_in_a_busy_moment_do_not_end_it(scripted):
    def load(num_workers):
        busy = 1 <= num_workers <= 2 and num_workers not in batches.closed  # until they are measured again
        return {0: 0.030, 1: 0.030, 2: 0.020, 3: 0.012}[num_workers] + 0.030 * busy

    batches, step = scripted(load, 0.010)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=60, max_workers=3)
    assert batches.closed == [0, 0, 1, 2, 0, 1, 2, 3, 3] and found.num_workers == 3
    assert [row.turn_ms for row in found.times] == pytest.approx([40.0, 40.0, 30.0, 22.0])
    assert found.stopped == "3 was the largest number to try (max_workers)"


def test_it_ends_at_the_floor(scripted):
    batches, step = scripted(lambda w: 0.030 if w < 2 else 0.0001, 0.010)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=60, max_workers=9)
    assert [row.num_workers for row in found.times] == [0, 1, 2] and found.num_workers == 2
    assert batches.closed == [0, 0, 1, 2]  # nothing else comes near: no second look
    assert "within 5 % of the step alone" in found.stopped and found.choice.verdict == "compute-bound"


def test_it_ends_after_two_numbers_in_vain(scripted):
    _, step = scripted(lambda w: 0.030, 0.010)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=60, max_workers=9)
    assert len(found.times) == 3 and found.num_workers == 0 and "won at most 5 %" in found.stopped


@pytest.mark.parametrize("startup, measured", [(1.0, [0, 1, 2]), (4.0, [0, 1]), (11.0, [0])])
def test_a_number_is_begun_only_while_there_is_time_for_it(scripted, startup, measured):
    _, step = scripted(lambda w: 0.200 / max(1, w), 0.010, startup=startup)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=10, max_workers=2)
    assert [row.num_workers for row in found.times] == measured
    assert ("10 seconds" in found.stopped) is (len(measured) < 3)


def test_a_start_that_takes_all_the_time_gives_no_figure(scripted):
    _, step = scripted(lambda w: 0.2, 0.01, startup=50.0)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=10, max_workers=2)
    assert found.stopped == "the 10 seconds were over before 1 had been measured" and len(found.times) == 1


def test_slow_batches_are_measured_all_the_same_without_workers(scripted):
    _, step = scripted(lambda w: 30.0, 0.01)
    found = tune_workers(Drawing(), step, batch_size=4, seconds=10, max_workers=2)
    assert [row.turn_ms for row in found.times] == pytest.approx([30_010]) and found.times[0].num_turns == 1


# --- what is read


class Recorder:
    """A step that keeps what it saw."""

    def __init__(self):
        self.seen = []

    def __call__(self, batch):
        self.seen.append(batch)


def endless(batches, num_keys):
    feed = EndlessKeyFeed(None, batches)
    feed.begin(0, 0)
    return [key for key, _ in zip(feed, range(num_keys), strict=False)]


def test_only_full_batches_are_used_epoch_after_epoch():
    batches = EpochBatches(10, batch_size=4, seed=0)
    keys = endless(batches, 5)
    assert [(key.epoch, key.start, len(key)) for key in keys] == [(0, 0, 4), (0, 4, 4), (1, 0, 4), (1, 4, 4), (2, 0, 4)]
    assert (batches.epoch, batches.offset) == (0, 0)


def test_where_no_batch_is_full_the_one_there_is_comes_again():
    keys = endless(EpochBatches(5, batch_size=4, seed=0, rank=1, world_size=2), 3)
    assert [(key.epoch, len(key)) for key in keys] == [(0, 2), (1, 2), (2, 2)]


def test_subsets_and_collate_fn_are_those_of_the_loader(all_numbers):
    step = Recorder()
    dataset = Subset([torch.arange(n) for n in range(6)], [2, 5])
    tune_workers(dataset, step, batch_size=2, collate_fn=pad_sequences, **QUICK)
    assert step.seen and all(sorted(batch.lengths.tolist()) == [2, 5] for batch in step.seen)


def test_a_stream_is_read_again_and_again(all_numbers, tmp_path):
    (tmp_path / "a.jsonl").write_text("1\n2\n3\n4\n5\n")
    step = Recorder()
    records = ShardedRecords([tmp_path / "a.jsonl"], batch_size=2, seed=0)
    found = tune_workers(records, step, seconds=20, max_workers=2)
    assert len(found.times) == 3 and len(step.seen) > 12
    assert {tuple(batch.tolist()) for batch in step.seen} == {(1, 2), (3, 4), (5,)}


def test_workers_options_are_used_and_a_loaders_too(all_numbers, monkeypatch):
    asked = []

    def begin(make_feed, num_workers, options, real=tuning.endless_batches):
        asked.append((num_workers, options))
        return real(make_feed, num_workers, options)

    monkeypatch.setattr(tuning, "endless_batches", begin)
    loader = ResumableLoader(
        Drawing(), batch_size=2, num_workers=1, prefetch_factor=3, persistent_workers=True, timeout=50
    )
    tune_workers(loader, id, seconds=20, max_workers=1, timeout=40)
    off = {"pin_memory": False}
    assert asked[:3] == [(0, off), (0, off), (1, {"prefetch_factor": 3, "timeout": 40} | off)]
    assert all(each in asked[:3] for each in asked[3:])  # a second look


class Endless(IterableDataset):
    def __iter__(self):
        return iter([1])


@pytest.mark.parametrize(
    "how, error, said",
    [
        ({}, ValueError, "needs batch_size=..."),
        ({"batch_size": 2, "seconds": 0}, ValueError, "seconds > 0 .* got seconds=0"),
        ({"batch_size": 2, "max_workers": -1}, ValueError, "max_workers >= 0, got .*max_workers=-1"),
        ({"batch_size": 2, "persistent_workers": True}, TypeError, r"got \['persistent_workers'\]"),
        ({"batch_size": 2, "num_workers": 2}, TypeError, r"got \['num_workers'\]"),
        ({"dataset": ResumableLoader(Drawing(), batch_size=2), "batch_size": 2}, ValueError, "loader already says"),
        ({"dataset": DataLoader(Drawing(), batch_size=2)}, TypeError, "got a DataLoader: give its dataset"),
        ({"dataset": Drawing(0), "batch_size": 2}, ValueError, "there is no batch to measure"),
        ({"dataset": Endless(), "batch_size": 2}, ValueError, "ShardedRecords"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused_before_anything_runs(how, error, said):
    step = Recorder()
    with pytest.raises(error, match=said):
        tune_workers(**({"dataset": Drawing(), "step": step} | how))
    assert step.seen == []


def test_an_empty_stream_is_refused(tmp_path):
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(ValueError, match="there is no batch to measure"):
        tune_workers(ShardedRecords([tmp_path / "a.jsonl"], batch_size=2, seed=0), id, **QUICK)


def test_a_stream_of_which_this_rank_has_nothing_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("1\n")
    with pytest.raises(ValueError, match="there is no batch to measure"):
        tune_workers(ShardedRecords([tmp_path / "a.jsonl"], batch_size=2, seed=0, rank=1, world_size=2), id, **QUICK)


def test_a_hung_worker_is_ended_by_timeout(all_numbers):
    class Hanging(Drawing):
        def __getitem__(self, index):
            if torch.utils.data.get_worker_info() is not None:
                time.sleep(1.5)
            return super().__getitem__(index)

    with pytest.raises(RuntimeError, match="timed out after 0.5 seconds"):
        tune_workers(Hanging(), id, batch_size=2, seconds=20, max_workers=1, timeout=0.5)


def test_what_it_gives_can_be_decided_again_by_hand(all_numbers):
    found = tune_workers(Drawing(), id, batch_size=2, seconds=20, max_workers=1)
    assert all(isinstance(row, WorkerTimes) and row.num_turns >= 3 for row in found.times)
    assert found.choice == tuning.choose_workers(found.times, found.floor_ms) and found.num_workers in (0, 1)
