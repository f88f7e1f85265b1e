"""The model of a loading pipeline: tables worked out by hand, what must hold for any times, and the formula."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, get_worker_info

from course_utils.figures import png_bytes
from course_utils.loaders import fewest_workers, simulate_pipeline, steady_turn_ms

DISK = {"load_computes": False}


def spans(intervals, count):
    """(start, end) of the first ones."""
    return [(it.start_ms, it.end_ms) for it in intervals[:count]]


def close(table):
    return [pytest.approx(pair) for pair in table]


# --- tables worked out by hand ---


def test_without_workers_each_step_follows_its_load():
    line = simulate_pipeline(30, 10, num_workers=0, startup_ms=99)
    assert spans(line.loads, 3) == spans(line.waits, 3) == [(0, 30), (40, 70), (80, 110)]
    assert spans(line.steps, 3) == [(30, 40), (70, 80), (110, 120)] and line.handovers == ()
    assert (line.turn_ms, line.wait_ms, line.startup_ms, line.first_batch_ms) == pytest.approx((40, 30, 0, 30))
    assert {it.worker for it in line.loads} == {None}


def test_two_workers_deliver_in_bursts():
    line = simulate_pipeline(30, 10, num_workers=2, **DISK)
    assert spans(line.loads, 4) == [(0, 30), (0, 30), (30, 60), (30, 60)]
    assert [it.worker for it in line.loads[:4]] == [0, 1, 0, 1]
    assert spans(line.waits, 4) == [(0, 30), (40, 40), (50, 60), (70, 70)]
    assert spans(line.steps, 4) == [(30, 40), (40, 50), (60, 70), (70, 80)]
    assert (line.turn_ms, line.wait_share, line.step_ms) == pytest.approx((15, 1 / 3, 10))


@pytest.mark.parametrize(
    "prefetch_factor, loads",
    [
        (1, [(0, 4), (4, 8), (10, 14), (16, 20)]),  # batch 2 is asked for when 1 is handed over, at 10
        (2, [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20), (22, 26)]),  # the queue is full at 20
    ],
)
def test_a_worker_rests_when_it_holds_as_many_batches_as_it_may(prefetch_factor, loads):
    line = simulate_pipeline(4, 6, num_workers=1, prefetch_factor=prefetch_factor, **DISK)
    assert spans(line.loads, len(loads)) == loads
    assert spans(line.steps, 3) == [(4, 10), (10, 16), (16, 22)]


def test_on_one_core_load_and_step_slow_each_other():
    line = simulate_pipeline(10, 10, num_workers=1, cores=1)
    assert spans(line.loads, 3) == close([(0, 10), (10, 30), (30, 50)])
    assert spans(line.steps, 2) == close([(10, 30), (30, 50)])
    assert (line.turn_ms, line.step_ms, line.wait_share) == pytest.approx((20, 20, 0))


def test_three_on_two_cores_have_two_thirds_of_a_core_each():
    line = simulate_pipeline(8, 6, num_workers=2, cores=2)
    assert spans(line.loads, 2) == [(0, 8), (0, 8)]
    assert spans(line.steps, 1) == close([(8, 17)])  # 6 ms of work at 2/3
    assert spans(line.loads[2:], 2) == close([(8, 20), (8, 20)])  # 8 ms at 2/3, all the way: step 1 follows at once


def test_what_does_not_compute_needs_no_core():
    on_gpu = simulate_pipeline(10, 10, num_workers=1, cores=1, step_computes=False)
    assert spans(on_gpu.steps, 2) == [(10, 20), (20, 30)] and on_gpu.turn_ms == pytest.approx(10)


def test_the_trainer_pays_for_the_hand_over_and_then_asks_for_one_batch_more():
    line = simulate_pipeline(4, 6, num_workers=1, prefetch_factor=1, handover_ms=2, **DISK)
    assert spans(line.handovers, 3) == [(4, 6), (12, 14), (20, 22)]
    assert spans(line.steps, 2) == [(6, 12), (14, 20)]
    assert spans(line.loads, 3) == [(0, 4), (6, 10), (14, 18)]
    assert (line.turn_ms, line.wait_ms, line.first_batch_ms) == pytest.approx((8, 2, 6))


def test_a_slow_batch_is_waited_for_where_the_queue_is_too_short():
    line = simulate_pipeline(2, 4, num_workers=1, slow_every=3, slow_factor=5, **DISK)
    assert spans(line.loads, 6) == [(0, 2), (2, 4), (4, 14), (14, 16), (16, 18), (18, 28)]
    assert spans(line.waits, 6) == [(0, 2), (6, 6), (10, 14), (18, 18), (22, 22), (26, 28)]
    long = simulate_pipeline(2, 4, num_workers=1, slow_every=3, slow_factor=5, prefetch_factor=6, **DISK)
    assert line.turn_ms == pytest.approx(14 / 3) == long.turn_ms  # one worker: 14 ms for three batches
    short, deep = (
        simulate_pipeline(2, 4.8, num_workers=1, slow_every=3, slow_factor=5, prefetch_factor=n, **DISK) for n in (2, 4)
    )
    assert short.wait_ms > 0 and deep.wait_ms == pytest.approx(0)  # two batches ahead last 9.6 ms, a slow load 10


def test_batches_behind_a_slow_one_are_ready_and_wait_for_it():
    line = simulate_pipeline([50, 10, 10, 10], 5, num_workers=2, **DISK)
    assert spans(line.loads, 4) == [(0, 50), (0, 10), (50, 60), (10, 20)]
    assert spans(line.steps, 2) == [(50, 55), (55, 60)]


def test_start_up_is_in_the_first_wait_and_in_no_mean():
    cold, warm = (simulate_pipeline(4, 6, num_workers=2, startup_ms=ms, **DISK) for ms in (100, 0))
    assert spans(cold.loads, 2) == [(100, 104), (100, 104)] and spans(cold.waits, 1) == [(0, 104)]
    assert (cold.turn_ms, cold.wait_ms, cold.first_batch_ms) == pytest.approx((warm.turn_ms, warm.wait_ms, 104))
    assert (cold.startup_ms, warm.startup_ms) == (100, 0)


def test_the_steady_state_does_not_depend_on_how_many_intervals_are_kept():
    few, many = (simulate_pipeline(7, 3, num_workers=3, num_batches=n) for n in (1, 400))
    assert (len(few.steps), len(many.steps), len(many.loads)) == (1, 400, 400)
    assert few.turn_ms == pytest.approx(many.turn_ms, rel=0.01)


def test_a_queue_that_fills_for_hundreds_of_turns_is_no_steady_state():
    line = simulate_pipeline(30, 10, num_workers=12, prefetch_factor=4, handover_ms=1, step_computes=False)
    assert line.turn_ms == pytest.approx(15.5, rel=0.01)  # 16.5 while all twelve load and slow the hand-over


# --- what holds for any times ---

TIMES = st.floats(0.5, 50)
PIPELINES = st.fixed_dictionaries(
    {
        "num_workers": st.integers(1, 5),
        "prefetch_factor": st.integers(1, 4),
        "cores": st.integers(1, 4),
        "handover_ms": st.sampled_from([0.0, 0.7]),
        "load_computes": st.booleans(),
        "step_computes": st.booleans(),
        "startup_ms": st.sampled_from([0.0, 12.5]),
    }
)
few = settings(max_examples=40, deadline=None)


@few
@given(st.lists(TIMES, min_size=1, max_size=4), TIMES, PIPELINES)
def test_batches_come_in_order_and_no_worker_holds_more_than_it_may(loads, step, pipeline):
    line = simulate_pipeline(loads, step, **pipeline)
    number, ahead = pipeline["num_workers"], pipeline["num_workers"] * pipeline["prefetch_factor"]
    rows = list(zip(line.loads, line.waits, line.handovers, line.steps, strict=True))
    assert len(rows) == 40
    for i, (load, wait, handover, step_) in enumerate(rows):
        assert (load.batch, handover.batch, step_.batch, load.worker) == (i, i, i, i % number)
        assert load.end_ms <= wait.end_ms == handover.start_ms <= handover.end_ms == step_.start_ms < step_.end_ms
        assert i < ahead or load.start_ms >= line.handovers[i - ahead].end_ms
        assert i < number or load.start_ms >= line.loads[i - number].end_ms  # a worker makes one batch at a time
    assert all(wait.start_ms == step.end_ms for wait, step in zip(line.waits[1:], line.steps, strict=False))
    assert 0 <= line.wait_share < 1


@few
@given(st.lists(TIMES, min_size=1, max_size=4), TIMES, PIPELINES)
def test_no_more_cores_are_used_than_there_are(loads, step, pipeline):
    line = simulate_pipeline(loads, step, **pipeline | {"load_computes": True, "step_computes": True})
    end = line.steps[-1].end_ms
    work = sum(loads[it.batch % len(loads)] for it in line.loads) + len(line.steps) * step
    assert work <= (end - line.startup_ms) * pipeline["cores"] * (1 + 1e-6)
    assert all(it.end_ms - it.start_ms >= loads[it.batch % len(loads)] * (1 - 1e-6) for it in line.loads)


@few
@given(TIMES, TIMES, PIPELINES)
def test_smooth_loads_agree_with_the_formula_within_2_percent(load, step, pipeline):
    found = simulate_pipeline(load, step, **pipeline).turn_ms
    del pipeline["startup_ms"]
    assert found == pytest.approx(steady_turn_ms(load, step, **pipeline), rel=0.02)


@few
@given(TIMES, TIMES, PIPELINES)
def test_longer_loads_or_steps_make_no_turn_shorter_and_more_cores_none_longer(load, step, pipeline):
    turn = simulate_pipeline(load, step, **pipeline).turn_ms
    assert simulate_pipeline(load * 1.5, step, **pipeline).turn_ms >= turn * 0.98
    assert simulate_pipeline(load, step * 1.5, **pipeline).turn_ms >= turn * 0.98
    assert simulate_pipeline(load, step, **pipeline | {"cores": pipeline["cores"] + 1}).turn_ms <= turn * 1.02


@few
@given(st.lists(TIMES, min_size=1, max_size=3), TIMES, PIPELINES)
def test_where_nothing_computes_more_prefetching_ends_no_step_later_nor_do_more_workers_of_like_loads(
    loads, step, pipeline
):
    still = pipeline | {"load_computes": False, "step_computes": False, "handover_ms": 0.0}
    for name, times in (("num_workers", loads[0]), ("prefetch_factor", loads)):
        line = simulate_pipeline(times, step, **still)
        more = simulate_pipeline(times, step, **still | {name: still[name] + 1})
        assert all(b.end_ms <= a.end_ms + 1e-6 for a, b in zip(line.steps, more.steps, strict=True))


def test_one_worker_more_is_slower_where_it_deals_all_slow_batches_to_the_same_ones():
    three, four = (simulate_pipeline([1, 5], 1, num_workers=n, **DISK) for n in (3, 4))
    assert three.turn_ms == pytest.approx(1) and four.turn_ms == pytest.approx(1.25)  # of four, two load for 5 ms each


# --- the goal ---


@pytest.mark.parametrize(
    "load, step, options, found",
    [
        (30, 10, DISK, 3),  # 3 workers: a batch each 10 ms
        (31, 10, DISK, 3),  # waiting is 1 ms in 31
        (32, 10, DISK, 4),  # 2 ms in 32 are too much
        (1, 100, {}, 0),  # loading in the loop is 1 % of it
        (30, 10, {"handover_ms": 1, **DISK}, None),  # 1 of 11 ms is hand-over, with any number
    ],
)
def test_fewest_workers_keeps_waiting_below_5_percent(load, step, options, found):
    assert fewest_workers(load, step, **options) == found


def test_a_small_share_of_waiting_is_not_yet_a_short_turn():
    number = fewest_workers(30, 10, cores=2)
    line = simulate_pipeline(30, 10, num_workers=number, cores=2)
    assert line.wait_share < 0.05 and line.turn_ms == pytest.approx(20, rel=0.02)  # 40 ms of work on two cores
    assert line.step_ms > 19  # the step itself takes twice as long


# --- the real loader keeps the same rules ---


class WhoMadeIt(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return get_worker_info().id


def test_the_real_loader_asks_for_batches_and_deals_them_out_as_the_model_does(nothing_is_left):
    asked = []

    class Recorded:
        def __iter__(self):
            for index in range(12):
                asked.append(index)
                yield [index]

        def __len__(self):
            return 12

    loader = DataLoader(WhoMadeIt(), batch_sampler=Recorded(), num_workers=2, prefetch_factor=2)
    seen = [(batch.item(), len(asked)) for batch in loader]
    assert seen == [(i % 2, min(12, 4 + i + 1)) for i in range(12)]  # 2 x 2 ahead, one more with each hand-over


# --- what it refuses, and what it shows ---


@pytest.mark.parametrize(
    "arguments, told",
    [
        ({"load_ms": -1}, "load_ms must be a time of at least 0, got -1"),
        ({"load_ms": float("nan")}, "load_ms must be a time of at least 0, got nan"),
        ({"load_ms": []}, "need at least one load"),
        ({"step_ms": 0}, "step_ms must be a time above 0, got 0"),
        ({"step_ms": float("inf")}, "step_ms must be a time above 0, got inf"),
        ({"handover_ms": -0.1}, "handover_ms must be a time of at least 0, got -0.1"),
        ({"startup_ms": -2}, "startup_ms must be a time of at least 0, got -2"),
        ({"num_workers": -1}, "num_workers must be a whole number of at least 0, got -1"),
        ({"num_workers": 1.5}, "num_workers must be a whole number of at least 0, got 1.5"),
        ({"prefetch_factor": 0}, "prefetch_factor must be a whole number of at least 1, got 0"),
        ({"num_batches": 0}, "num_batches must be a whole number of at least 1, got 0"),
        ({"cores": 0}, "cores must be a whole number of at least 1, got 0"),
        ({"slow_every": 0}, "slow_every >= 1 (1: none is slow)"),
        ({"slow_factor": -1}, "slow_factor >= 0"),
    ],
    ids=str,
)
def test_what_is_no_time_or_no_count_is_refused(arguments, told):
    arguments = {"load_ms": 3.0, "step_ms": 2.0, "num_workers": 1} | arguments
    with pytest.raises(ValueError) as caught:
        simulate_pipeline(arguments.pop("load_ms"), arguments.pop("step_ms"), **arguments)
    assert told in str(caught.value)


def test_a_load_that_costs_nothing_is_allowed():
    line = simulate_pipeline(0, 10, num_workers=2)
    assert (line.turn_ms, line.wait_ms) == pytest.approx((10, 0)) and spans(line.steps, 1) == [(0, 10)]


def test_the_figure_has_a_row_for_each_worker_and_for_the_trainer():
    line = simulate_pipeline(30, 10, num_workers=2, startup_ms=20, handover_ms=1)
    figure = line.figure(num_batches=5)
    (ax,) = figure.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["worker 0", "worker 1", "trainer"]
    assert ax.get_xlim() == (0, pytest.approx(line.steps[4].end_ms))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "start-up", "load", "wait", "hand-over", "step"]  # fmt: skip
    drawn = [it for it in line.loads if it.end_ms <= line.steps[4].end_ms]
    assert [text.get_text() for text in ax.texts] == [str(it.batch) for it in drawn]
    assert png_bytes(figure) == png_bytes(line.figure(num_batches=5))


def test_without_workers_the_figure_has_one_row_of_loads_and_steps():
    figure = simulate_pipeline(30, 10, num_workers=0).figure()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["trainer"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["load", "step"]


def test_the_words_name_what_is_drawn_and_that_it_is_a_model():
    line = simulate_pipeline(30, 10, num_workers=2, **DISK)
    assert line.words.startswith("A model, not a measurement: what 2 workers and the trainer do over time.")
    assert line.words.endswith("a turn takes 15 ms; 33% of it is waiting, a step takes 10 ms.")
    alone = simulate_pipeline(30, 10, num_workers=0).words
    assert (
        "hand-over" not in line.words
        and "black a hand-over" in simulate_pipeline(30, 10, num_workers=2, handover_ms=1).words
    )
    assert "hand-over" not in alone and alone.endswith("a turn takes 40 ms; 75% of it is waiting.")


def test_steps_never_overlap():
    line = simulate_pipeline([3, 9, 1], 4, num_workers=3, handover_ms=0.5)
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(line.steps))
