"""Sections of a step: by a clock that tests move, with a Trainer, and without a trace on the run."""

import copy
import random
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from course_utils import step_clock
from course_utils.loaders import ResumableLoader
from course_utils.profiling import StepTimer
from course_utils.step_clock import CudaClock, HostClock, WaitingClock, clock_for
from course_utils.timer_summary import TimerSummary, row_of
from course_utils.training_loop import Trainer
from tests.conftest import make_tiny_model


@pytest.fixture
def pass_by(monkeypatch):
    """Move the timer's clock by some milliseconds."""
    now = [0.0]
    monkeypatch.setattr(step_clock, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))

    def move(ms):
        now[0] += ms / 1e3

    return move


def run(timer, pass_by, waits, *, forward=2, backward=4):
    """A watched loop over batches that take `waits` ms; 1 ms of each step is in no section."""

    def loader():
        for wait in waits:
            pass_by(wait)
            yield wait

    for _ in timer.watch(loader()):
        with timer.section("forward"):
            pass_by(forward)
        pass_by(1)
        with timer.section("backward"):
            pass_by(backward)


# --- the numbers


def test_medians_ninths_and_shares_are_those_worked_out_by_hand(pass_by):
    timer = StepTimer(warmup=0)
    run(timer, pass_by, [50, *range(1, 12)])
    found = timer.summary()
    assert [row.name for row in found.rows] == ["wait", "forward", "backward", "rest"]
    assert (found["wait"].median_ms, found["wait"].p90_ms) == pytest.approx((6, 10))
    assert (found["step"].median_ms, found["step"].p90_ms, found.step.num_steps) == pytest.approx((13, 17, 11))
    shares = [row.share for row in found.rows]
    assert shares == pytest.approx([66 / 143, 22 / 143, 44 / 143, 11 / 143]) and sum(shares) == pytest.approx(1)


def test_start_up_and_warm_up_are_kept_apart(pass_by):
    timer = StepTimer(warmup=3)
    run(timer, pass_by, [50, 40, 30, 1, 1])
    run(timer, pass_by, [60, 1, 1])  # the next epoch starts workers again
    found = timer.summary()
    assert found.startups_ms == pytest.approx((50, 60)) and found.warmups_ms == pytest.approx((47, 37))
    assert found.step.num_steps == 4 and found["wait"].p90_ms == pytest.approx(1)
    assert timer.step_ms == pytest.approx([8, 8, 8, 8])


def test_sections_without_a_watched_loader_and_twice_in_a_step_add_up(pass_by):
    timer = StepTimer(warmup=1)
    for scale in (100, 1, 1):
        for ms in (2, 3):  # two micro-batches
            with timer.section("forward"):
                pass_by(ms * scale)
        timer.end_step()
        pass_by(1000)  # between steps: nobody's
    found = timer.summary()
    assert found["forward"].median_ms == pytest.approx(5) and found.step.median_ms == pytest.approx(5)
    assert found.warmups_ms == pytest.approx((500,)) and found.step.num_steps == 2


def test_a_section_of_some_steps_has_its_own_median_and_the_share_of_all(pass_by):
    timer = StepTimer(warmup=0)
    for turn in range(4):
        with timer.section("step it"):
            pass_by(4)
        if turn == 3:
            with timer.section("validate"):
                pass_by(16)
        timer.end_step()
    found = timer.summary()["validate"]
    assert (found.median_ms, found.num_steps, found.share) == pytest.approx((16, 1, 0.5))


def test_only_the_newest_steps_are_kept(pass_by):
    timer = StepTimer(warmup=0, keep=2)
    run(timer, pass_by, [0, 1, 2, 3, 4])
    assert timer.step_ms == pytest.approx([10, 11])


def test_it_prints_a_small_table(pass_by):
    timer = StepTimer(warmup=2)
    run(timer, pass_by, [50, 3, 1, 1])
    assert str(timer.summary()).splitlines() == [
        "section   median ms    p90 ms   share",
        "wait          1.000     1.000   12.5%",
        "forward       2.000     2.000   25.0%",
        "backward      4.000     4.000   50.0%",
        "rest          1.000     1.000   12.5%",
        "step          8.000     8.000  100.0%",
        "",
        "Steps counted: 2. Kept apart: 1 with a start-up (first batch after 50 ms), 1 of warm-up (10 ms a step).",
    ]


def test_a_clock_that_says_0_gives_shares_of_0():
    assert row_of("step", [0.0, 0.0], 0.0).share == 0.0


# --- what is not counted, what is refused


def test_a_step_that_is_left_is_not_counted(pass_by):
    timer = StepTimer(warmup=0)
    run(timer, pass_by, [1, 1, 1])
    for _ in timer.watch([0, 0, 0]):
        with timer.section("forward"):
            pass_by(1000)
        break
    assert timer.step_ms == pytest.approx([8, 8])
    with pytest.raises(ZeroDivisionError):
        for turn in timer.watch([0, 1, 2]):
            with timer.section("forward"):
                pass_by(1000 / (1 - turn))
    run(timer, pass_by, [1, 1])  # the cell is run again
    assert len(timer.step_ms) == 3 and max(timer.step_ms) == pytest.approx(8)


def test_a_step_with_an_exception_that_is_caught_is_not_counted(pass_by):
    timer = StepTimer(warmup=0)
    for turn in range(3):
        try:
            with timer.section("forward"):
                pass_by(1)
                1 / (turn - 1)
        except ZeroDivisionError:
            pass
        timer.end_step()
    assert timer.step_ms == pytest.approx([1, 1])


def test_an_interrupt_between_two_lines_leaves_no_section_open(pass_by):
    timer = StepTimer(warmup=0)
    timer.section("forward").__enter__()  # and never left
    run(timer, pass_by, [1, 1])
    assert timer.step_ms == pytest.approx([8])


def test_a_loop_that_was_left_has_no_open_step_and_closed_late_it_does_not_end_the_next_ones(pass_by):
    timer = StepTimer(warmup=0)
    old, new = iter(timer.watch([0, 0])), iter(timer.watch([0, 0, 0, 0]))
    next(old), next(new), next(new)
    pass_by(5)
    old.close()
    next(new)
    assert timer.step_ms == pytest.approx([5])
    new.close()
    with pytest.raises(RuntimeError, match="no step is open"):
        timer.end_step()


def nested(timer):
    with timer.section("forward"), timer.section("backward"):
        pass


def ended_inside(timer):
    with timer.section("forward"):
        timer.end_step()


@pytest.mark.parametrize(
    "wrong, error, told",
    [
        (nested, RuntimeError, "section 'backward' was entered inside 'forward': sections do not nest"),
        (ended_inside, RuntimeError, "inside the section 'forward': leave it first"),
        (StepTimer.end_step, RuntimeError, "no step is open: enter a section first"),
        (lambda timer: timer.section("rest"), ValueError, "a section cannot be called 'rest'"),
        (StepTimer.summary, ValueError, "no step was counted: 0 ended, 3 are kept apart"),
        (lambda timer: StepTimer(warmup=-1), ValueError, "got warmup=-1, keep=10000"),
        (lambda timer: StepTimer(keep=0), ValueError, "got warmup=3, keep=0"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, error, told):
    with pytest.raises(error, match=told):
        wrong(StepTimer())


def test_a_name_that_is_not_there_is_an_error_that_says_which_are(pass_by):
    timer = StepTimer(warmup=0)
    run(timer, pass_by, [1, 1])
    with pytest.raises(KeyError, match="no section 'fwd', there are .*'wait', 'forward', 'backward', 'rest'"):
        timer.summary()["fwd"]


# --- with a trainer


def trained(wrap, **options):
    torch.manual_seed(3)
    model, data = make_tiny_model(), TensorDataset(torch.randn(20, 4), torch.arange(20) % 3)
    loader = ResumableLoader(data, batch_size=4, seed=1, **options)
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss())
    trainer.fit(wrap(loader), num_steps=7)
    return trainer, loader


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("options", [{}, {"num_workers": 1}])
def test_a_trainer_over_a_watched_loader_makes_the_same_run_and_has_its_waits(options):
    timer = StepTimer(warmup=0)
    (with_timer, loader), (without, other) = trained(timer.watch, **options), trained(lambda loader: loader)
    for one, two in zip(with_timer.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(one, two)
    assert loader.state_dict() == other.state_dict() and with_timer.state_dict()["loader"] == loader.state_dict()
    found = timer.summary()
    assert [row.name for row in found.rows] == ["wait", "rest"] and len(found.startups_ms) == 2
    assert found.step.num_steps == 3  # 7, without the first and the last of each epoch: a Trainer leaves the loop there


def test_a_trainer_over_a_watched_list_has_its_epochs():
    timer, model = StepTimer(warmup=0), make_tiny_model()
    batches = [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64))] * 3
    trainer = Trainer(model, torch.optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss())
    trainer.fit(timer.watch(batches), num_epochs=2)
    assert trainer.step == 6 and len(timer.watch(batches)) == 3 and len(timer.step_ms) == 4


def test_a_watched_loader_can_be_copied_and_has_all_that_the_loader_has():
    loader = ResumableLoader(range(6), batch_size=2)
    watched = copy.copy(StepTimer().watch(loader))
    watched.set_position(0, 2)
    assert len(watched) == 3 and loader.batches.offset == 2 and watched.state_dict() == loader.state_dict()
    assert not hasattr(StepTimer().watch([1]), "state_dict")


# --- nothing is disturbed


def test_it_draws_nothing_and_holds_no_tensor():
    import weakref

    timer, held = StepTimer(warmup=0), []
    before = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()
    for batch in timer.watch([0, 1, 2]):
        with timer.section("forward"):
            tensor = torch.full((2,), batch)
            held.append(weakref.ref(tensor))
        del tensor
    timer.summary()
    assert (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()) == before
    assert [ref() for ref in held] == [None] * 3


# --- clocks


def test_each_device_has_its_clock(monkeypatch):
    assert type(clock_for("cpu")) is HostClock and type(clock_for("mps")) is WaitingClock
    assert type(clock_for("cuda:1")) is CudaClock and type(clock_for(torch.device("cuda"))) is CudaClock
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert type(clock_for(None)) is HostClock
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    assert type(clock_for(None)) is CudaClock


def test_a_device_is_waited_for_at_borders_on_mps_and_only_when_read_on_cuda(monkeypatch):
    waits, events = [], []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing
            events.append(self)

        def record(self):
            self.at = len(events)

        def synchronize(self):
            waits.append("event")

        def elapsed_time(self, end):
            return float(end.at - self.at)

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waits.append("device"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    timer = StepTimer(warmup=0, device="cuda")
    for _ in timer.watch([0, 1, 2]):
        pass
    assert waits == [] and len(events) == 11  # two a wait, one a step's end
    assert timer.summary()["wait"].median_ms == 1.0 and set(waits) == {"event"}
    waits.clear()
    clock_for("mps").mark(), clock_for("cpu").mark()
    assert waits == ["device"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_work_counts_and_not_its_launch():
    timer, matrix = StepTimer(warmup=1, device="cuda"), torch.ones(4096, 4096, device="cuda")
    for _ in range(4):
        with timer.section("one"):
            matrix @ matrix
        with timer.section("ten"):
            for _ in range(10):
                matrix @ matrix
        timer.end_step()
    found = timer.summary()
    assert found["ten"].median_ms > 3 * found["one"].median_ms


def test_the_table_is_as_wide_as_its_longest_name_and_not_narrower_than_its_heading():
    rows = (row_of("a", [1.0, 2.0, 9.0], 24.0), row_of("rest", [4.0, 4.0, 4.0], 24.0))
    step = row_of("step", [5.0, 6.0, 13.0], 24.0)
    assert str(TimerSummary(rows, step, (1.0, 2.0, 30.0), (4.0, 5.0, 60.0))).splitlines() == [
        "section  median ms    p90 ms   share",
        "a            2.000     7.600   50.0%",
        "rest         4.000     4.000   50.0%",
        "step         6.000    11.600  100.0%",
        "",
        "Steps counted: 3. Kept apart: 3 with a start-up (first batch after 2 ms), 3 of warm-up (5 ms a step).",
    ]


def test_of_two_steps_and_of_one_there_are_nine_tenths_too():
    assert row_of("a", [0.0, 10.0], 10.0).p90_ms == pytest.approx(9.0) and row_of("a", [3.0], 3.0).p90_ms == 3.0
