"""The mistakes that chapter 11 shows: each really misleads, without a word, and ours does not."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from course_utils import step_clock
from course_utils.datasets import ArrayDataset
from course_utils.loaders import ResumableLoader
from course_utils.pipeline_model import simulate_pipeline
from course_utils.profiling import (
    LoopTimes,
    StepTimer,
    bytes_for_backward,
    checkpointed,
    decide,
    flops_of,
    peak_bytes,
    profile_step,
    tensors_for_backward,
)
from course_utils.step_profile import without_its_log
from course_utils.transforms import ToFloat, with_transform


class HandClock:
    """Stands in for the module `time`; whole milliseconds, so that differences are exact enough to be rounded."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def work(self, ms):
        self.now += ms / 1e3


@pytest.fixture
def clock(monkeypatch):
    found = HandClock()
    monkeypatch.setattr(step_clock, "time", found)
    return found


def batches(clock, waits):
    for ms in waits:
        clock.work(ms)
        yield ms


# --- what is outside the stopwatch


def test_a_stopwatch_around_the_step_reports_ten_times_the_speed(clock):
    counted = 0.0
    for _ in batches(clock, [90] * 10):
        began = clock.perf_counter()
        clock.work(10)
        counted += clock.perf_counter() - began
    assert 10 / counted == pytest.approx(100) and 10 / clock.now == pytest.approx(10)  # steps a second

    timer = StepTimer(warmup=0, device="cpu")
    for _ in timer.watch(list(batches(clock, [0] * 3))):
        with timer.section("forward"):
            clock.work(10)
    assert timer.summary()["wait"].share == 0  # a list is there at once
    watched = StepTimer(warmup=0, device="cpu")
    for _ in watched.watch(batches(clock, [90] * 10)):
        with watched.section("forward"):
            clock.work(10)
    assert watched.summary()["wait"].share == pytest.approx(0.9)


def test_a_step_ten_times_as_fast_hardly_helps_a_loop_that_waits():
    before = decide(LoopTimes(step_ms=5, turn_ms=100, wait_ms=95, load_ms=95))
    faster_step, faster_load = 95 + 0.5, 5 + 9.5
    assert (100 / faster_step, 100 / faster_load) == pytest.approx((1.047, 6.897), abs=1e-3)
    assert (before.verdict, before.at_best) == ("data-bound", 20.0)


class Counting(Dataset):
    """Photos that count how often they are made."""

    classes, made = ("a", "b"), 0

    def __init__(self):
        self.images = torch.arange(6 * 3 * 4 * 4, dtype=torch.uint8).view(6, 3, 4, 4)
        self.targets = torch.tensor([0, 1] * 3)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index >= 6:
            raise IndexError
        self.made += 1
        return self.images[index], int(self.targets[index])


def trained(dataset):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = ResumableLoader(with_transform(dataset, batch_transform=ToFloat()), batch_size=4, seed=1)
    for _ in range(3):
        for images, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), targets).backward()
            optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_every_epoch_decodes_again_to_the_same_weights_that_decoding_once_gives():
    photos = Counting()
    again = trained(photos)
    assert photos.made == 3 * 6
    kept = ArrayDataset(torch.stack([image for image, _ in photos]), photos.targets, classes=photos.classes)
    assert photos.made == 4 * 6 and torch.equal(trained(kept), again) and photos.made == 4 * 6


# --- which steps count


def test_a_mean_over_the_first_steps_names_the_optimizer_which_is_the_shortest_section(clock):
    script = [dict(forward=40, backward=60, optimizer=500), *[dict(forward=2, backward=4, optimizer=1)] * 7]
    totals, timer = dict.fromkeys(script[0], 0), StepTimer(warmup=1, device="cpu")
    for step in script:
        for name, ms in step.items():
            totals[name] += ms
            with timer.section(name):
                clock.work(ms)
        timer.end_step()
    found = timer.summary()
    assert max(totals, key=totals.get) == "optimizer"
    medians = {row.name: round(row.median_ms, 6) for row in found.rows}
    assert medians == {"forward": 2, "backward": 4, "optimizer": 1, "rest": 0}
    assert [round(ms) for ms in found.warmups_ms] == [600]


def test_each_epochs_first_wait_is_a_start_up_and_no_wait_of_the_steady_state(clock):
    timer, waits = StepTimer(warmup=0, device="cpu"), [400, 12, 12]
    for _ in range(2):
        for _ in timer.watch(batches(clock, waits)):
            with timer.section("forward"):
                clock.work(3)
    assert sum(waits) / 3 > 100
    assert timer.summary()["wait"].median_ms == pytest.approx(12)
    assert timer.summary().startups_ms == pytest.approx((400, 400))


# --- a device that works behind the program's back


class ToyDevice:
    """A call returns after 0.1 ms; the work is done in the order of the calls."""

    def __init__(self, clock):
        self.clock, self.done_at, self.waits = clock, 0.0, 0

    def call(self, ms):
        self.clock.work(0.1)
        self.done_at = max(self.done_at, self.clock.now) + ms / 1e3

    def wait(self):
        self.waits, self.clock.now = self.waits + 1, max(self.done_at, self.clock.now)


def on_device(monkeypatch, clock, kind, item_after=None):
    """Medians of (forward, backward, optimizer), and how often the device was waited for."""
    device, timer = ToyDevice(clock), StepTimer(warmup=0, device=kind)
    monkeypatch.setattr(step_clock, "wait_for_device", device.wait)
    for _ in range(3):
        for name, ms in {"forward": 8, "backward": 16, "optimizer": 2}.items():
            with timer.section(name):
                device.call(ms)
                if name == item_after:
                    device.wait()
        timer.end_step()
    summary = timer.summary()
    return [round(summary[name].median_ms, 3) for name in ("forward", "backward", "optimizer")], device.waits


def test_a_clock_that_does_not_wait_times_the_asking(monkeypatch, clock):
    assert on_device(monkeypatch, clock, "cpu") == ([0.1, 0.1, 0.1], 0)
    assert on_device(monkeypatch, clock, "mps") == ([8.1, 16.1, 2.1], 3 * 7)


@pytest.mark.parametrize("item_after, place", [("forward", 0), ("optimizer", 2)])
def test_moving_item_moves_the_time_to_another_section(monkeypatch, clock, item_after, place):
    medians, _ = on_device(monkeypatch, clock, "cpu", item_after)
    assert medians[place] > 25 and sorted(medians)[:2] == [0.1, 0.1]


@pytest.mark.parametrize("read_every, turn_ms", [(1, 16.0), (100, 10.06)])
def test_reading_the_loss_each_step_keeps_the_program_from_running_ahead(clock, read_every, turn_ms):
    device = ToyDevice(clock)
    for number in range(1, 101):
        clock.work(5.9)
        device.call(10)
        if number % read_every == 0:
            device.wait()
    assert clock.now * 1e3 / 100 == pytest.approx(turn_ms)


def test_a_device_that_is_faster_than_the_program_waits_for_the_program_whatever_is_read(clock):
    device = ToyDevice(clock)
    for _ in range(100):
        clock.work(5.9)
        device.call(2)
    device.wait()
    assert clock.now * 1e3 / 100 == pytest.approx(6.02)


class LateDevice(list):
    """Copies when it is waited for."""

    def ask_copy(self, target, source):
        self.append(lambda: target.copy_(source))

    def wait(self):
        while self:
            self.pop(0)()


@pytest.mark.parametrize("wait_between, arrived, read_back", [(False, 2, 0), (True, 1, 1)])
def test_a_copy_that_is_not_waited_for_takes_the_next_batch_and_is_read_too_early(wait_between, arrived, read_back):
    late, host, on_device, result = LateDevice(), torch.tensor([1]), torch.zeros(1), torch.zeros(1)
    late.ask_copy(on_device, host)
    late.ask_copy(result, on_device)
    if wait_between:
        late.wait()
    read = result.item()
    host.fill_(2)  # the buffer is used again
    late.wait()
    assert (on_device.item(), read) == (arrived, read_back)


# --- what the parts say


def test_a_part_timed_alone_does_not_see_the_hand_over_that_no_other_process_can_do():
    """The loader alone takes 16 ms a batch, the step 20, a turn their sum: the larger of them is not the bottleneck."""
    turn = simulate_pipeline(12, 20, num_workers=2, handover_ms=16, load_computes=False, step_computes=False).turn_ms
    assert turn == pytest.approx(36)
    assert decide(LoopTimes(step_ms=20, turn_ms=turn, handover_ms=15, num_workers=2)).verdict == "hand-over-bound"


def test_data_alone_plus_model_alone_is_not_the_wall_time():
    turn = simulate_pipeline(40, 20, num_workers=2, load_computes=False, step_computes=False).turn_ms
    assert turn == pytest.approx(20) and 40 + 20 == 3 * turn


def test_half_use_of_the_device_has_three_causes_and_prefetch_is_a_remedy_of_none():
    times = [
        LoopTimes(step_ms=8, turn_ms=16, wait_ms=8, load_ms=32, num_workers=2),
        LoopTimes(step_ms=8, turn_ms=16, wait_ms=8, handover_ms=7.5, num_workers=2),
        LoopTimes(step_ms=8, turn_ms=8, startup_ms=160, num_workers=2, num_batches=20),
    ]
    found = [decide(each) for each in times]
    assert [each.parts_ms["step"] / each.batch_ms for each in found] == [0.5] * 3
    assert [each.verdict for each in found] == ["data-bound", "hand-over-bound", "start-up-bound"]
    assert not any("prefetch" in sentence for each in found for sentence in each.advice)


@pytest.mark.parametrize(
    "load, more_prefetch_helps, a_worker_helps",
    [(20, False, True), ([0.5] * 15 + [80], True, False)],
    ids=["steady and too slow", "fast enough but for one in 16"],
)
def test_prefetch_and_workers_each_cure_what_the_other_does_not(load, more_prefetch_helps, a_worker_helps):
    def wait(num_workers, prefetch):
        how = {"load_computes": False, "step_computes": False, "num_batches": 320}
        return simulate_pipeline(load, 10, num_workers=num_workers, prefetch_factor=prefetch, **how).wait_ms

    first = wait(1, 1)
    assert (wait(1, 16) < first / 2) == more_prefetch_helps
    assert (wait(2, 1) < first / 2) == a_worker_helps


# --- memory and events


def test_the_smallest_view_keeps_the_whole_batch_alive():
    batch, layer = torch.rand(64, 100), nn.Linear(100, 3)

    def kept(part):
        return tensors_for_backward(lambda: layer(part).sum())[0].nbytes

    parts = [kept(part) for part in batch.split(16)]
    copies = [kept(part.clone()) for part in batch.split(16)]
    assert parts == [64 * 100 * 4] * 4 and copies == [16 * 100 * 4] * 4


def step_of(model, inputs):
    model = copy.deepcopy(model)
    return lambda: model(inputs).sum().backward()


def test_a_profiled_epoch_keeps_events_of_every_step_and_profile_step_those_of_one():
    step = step_of(nn.Linear(4, 2), torch.rand(3, 4))

    def events(num_steps):
        with without_its_log(), torch.profiler.profile() as found:
            for _ in range(num_steps):
                step()
        return len(found.events())

    assert events(10) > 8 * events(1)
    schedule = torch.profiler.schedule(wait=8, warmup=1, active=1)
    with without_its_log(), torch.profiler.profile(schedule=schedule, acc_events=True) as picked:
        for _ in range(10):
            step()
            picked.step()
    assert events(10) > 5 * len(picked.events()) > 0
    assert max(row.calls for row in profile_step(step, top=3).rows) < 10


def test_micro_batches_save_no_operation():
    model, inputs = nn.Linear(8, 4), torch.rand(12, 8)
    whole = flops_of(step_of(model, inputs))
    assert whole == sum(flops_of(step_of(model, part)) for part in inputs.split(3)) == 2 * (2 * 12 * 8 * 4)


def test_mean_losses_of_micro_batches_add_up_to_so_many_times_the_gradient():
    model, inputs, targets = nn.Linear(8, 4), torch.rand(12, 8), torch.arange(12) % 4

    def gradient(weight, size):
        model.zero_grad()
        for part, right in zip(inputs.split(size), targets.split(size), strict=True):
            (weight * nn.functional.cross_entropy(model(part), right)).backward()
        return model.weight.grad.clone()

    whole = gradient(1, 12)
    torch.testing.assert_close(gradient(1, 3), 4 * whole)
    torch.testing.assert_close(gradient(1 / 4, 3), whole)


def test_a_segment_that_is_computed_again_moves_the_running_statistics_twice():
    norm = nn.BatchNorm1d(4)
    checkpointed(nn.Sequential(norm, nn.ReLU()), 2)(torch.rand(8, 4, requires_grad=True)).sum().backward()
    assert int(norm.num_batches_tracked) == 2


def test_bytes_kept_may_shrink_where_the_peak_does_not():
    """The first layers are the largest, as in many convolutional networks: their segment is computed again whole."""

    def net(width=8):
        shapes = [(3, width, 1), (width, width, 2), (width, 2 * width, 2)]
        convs = [nn.Conv2d(a, b, 3, stride=stride, padding=1) for a, b, stride in shapes]
        return nn.Sequential(*[layer for conv in convs for layer in (conv, nn.ReLU())])

    model, images = net(), torch.rand(8, 3, 32, 32)
    ways = [model, checkpointed(model, 2)]
    kept = [bytes_for_backward(lambda way=way: way(images).sum()) for way in ways]
    peaks = [
        peak_bytes(lambda way=way: torch.autograd.grad(way(images).sum(), list(model.parameters()))) for way in ways
    ]
    assert kept[1] < 0.6 * kept[0] and 0.9 < peaks[1] / peaks[0] < 1.1
