"""The diagnosis as a decision on tables of times: each verdict, each boundary, each refusal."""

from dataclasses import replace

import pytest

from course_utils.bottleneck import LoopTimes, decide
from course_utils.speed_limit import SpeedLimit

# step, turn, wait, load, start-up, hand-over, workers, batches; then the verdict, its ms and share by hand
TABLE = {
    "loading in the loop": ((10, 40, 30, 30, 30, 0, 0, 100), "data-bound", 30.0, 0.75),
    "too few workers": ((10, 21, 10, 20, 20, 1, 1, 100), "data-bound", 10.0, 10 / 21.1),
    "workers take the step's cores": ((10, 16, 0.5, 8, 0.5, 0.5, 2, 100), "data-bound", 5.5, 5.5 / 16),
    "many small tensors": ((10, 16, 6, 7, 6, 5.5, 2, 100), "hand-over-bound", 5.5, 5.5 / 16),
    "an idle worker that is slower than the real one": ((10, 14, 4, 4, 4, 9, 2, 100), "hand-over-bound", 4.0, 4 / 14),
    "five batches an epoch": ((20, 21, 1, 3, 101, 1, 2, 5), "start-up-bound", 20.0, 20 / 41),
    "opening a file without workers": ((10, 11, 1, 1, 301, 0, 0, 10), "start-up-bound", 30.0, 30 / 41),
    "batches in memory": ((10, 10.1, 0.1, 0.1, 0.1, 0, 0, 100), "compute-bound", 10.0, 10 / 10.1),
    "enough workers": ((20, 21, 1, 5, 81, 1, 2, 1000), "compute-bound", 20.0, 20 / 21.08),
    "a turn that was faster than the step alone": ((10, 9, 0, 1, 0, 1, 2, 100), "compute-bound", 9.0, 1.0),
}


@pytest.mark.parametrize("row, verdict, ms, share", TABLE.values(), ids=TABLE)
def test_verdict_and_numbers_are_those_worked_out_by_hand(row, verdict, ms, share):
    found = decide(LoopTimes(*row))
    assert (found.verdict, found.ms, found.share) == (verdict, pytest.approx(ms), pytest.approx(share))
    assert found.batch_ms == pytest.approx(sum(found.parts_ms.values())) and 1 <= len(found.advice) <= 3


def test_handing_over_is_not_starving():
    starved = LoopTimes(step_ms=5, turn_ms=10.5, wait_ms=5.5, load_ms=10.5, num_workers=1)
    assert decide(replace(starved, handover_ms=0.5)).verdict == "data-bound"
    assert decide(replace(starved, handover_ms=5.5)).verdict == "hand-over-bound"  # the queue was full all the time


@pytest.mark.parametrize("step_ms", [0.1, 0.3, 5.0, 7.7, 1e4])
@pytest.mark.parametrize("over, verdict", [(0.10, "compute-bound"), (0.101, "data-bound")])
def test_a_tenth_of_the_step_is_where_a_cause_begins(step_ms, over, verdict):
    assert decide(LoopTimes(step_ms, step_ms * (1 + over))).verdict == verdict
    both = LoopTimes(step_ms, step_ms, startup_ms=step_ms * over * 10, num_workers=1, num_batches=10)
    assert decide(both).verdict == verdict.replace("data", "start-up")


def test_three_small_causes_are_no_bottleneck():
    found = decide(LoopTimes(10, 11.8, wait_ms=1.8, handover_ms=0.9, startup_ms=9.8, num_workers=2, num_batches=10))
    assert found.verdict == "compute-bound" and found.at_best == pytest.approx(1.26)
    assert found.parts_ms == pytest.approx({"step": 10, "data": 0.9, "hand-over": 0.9, "start-up": 0.8})


@pytest.mark.parametrize("handover, verdict", [(2.0, "data-bound"), (2.001, "hand-over-bound")])
def test_of_equal_causes_the_data_comes_first(handover, verdict):
    assert decide(LoopTimes(10, 14, wait_ms=4, handover_ms=handover, num_workers=1)).verdict == verdict


def test_the_start_up_is_shared_out_and_an_ordinary_wait_is_no_part_of_it():
    times = LoopTimes(10, 13, wait_ms=3, startup_ms=103, num_workers=1)
    parts = [decide(replace(times, num_batches=count)).parts_ms["start-up"] for count in (1, 10, 1000, None)]
    assert parts == pytest.approx([100, 10, 0.1, 0])


@pytest.mark.parametrize(
    "change, told",
    [
        ({"num_workers": 0}, "move the loading into workers"),
        ({"num_workers": 1, "wait_ms": 30, "load_ms": 40}, "gives a batch every 40 ms, the step needs one every 10"),
        ({"num_workers": 2, "wait_ms": 1}, "the step is 29 ms slower while 2 workers load"),
        ({"num_workers": 1, "handover_ms": 29, "wait_ms": 30}, "fewer tensors"),
        ({"turn_ms": 10, "startup_ms": 900, "num_batches": 5, "num_workers": 1}, "persistent_workers=True"),
        ({"turn_ms": 10, "startup_ms": 900, "num_batches": 5}, "5 batches and its first one comes after 900 ms: do"),
        ({"turn_ms": 10}, "leave the data side"),
    ],
)
def test_the_first_advice_fits_the_cause(change, told):
    assert told in decide(replace(LoopTimes(10, 40), **change)).advice[0]


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"step_ms": 0}, "step_ms must be a time above 0, got 0"),
        ({"turn_ms": float("nan")}, "turn_ms must be a time above 0, got nan"),
        ({"turn_ms": float("inf")}, "turn_ms must be a time above 0, got inf"),
        ({"startup_ms": -1}, "startup_ms must be 0 or more, got -1"),
        ({"handover_ms": float("nan")}, "handover_ms must be 0 or more, got nan"),
        ({"wait_ms": 11}, "wait_ms is a part of turn_ms, got 11 of 10"),
        ({"num_batches": 0}, "num_batches must be 1 or more, or None, got 0"),
    ],
)
def test_times_that_cannot_be_are_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        decide(replace(LoopTimes(10, 10), **wrong))


def test_it_prints_its_parts_the_limits_and_what_to_try():
    found = decide(LoopTimes(10, 40, wait_ms=30))
    limit = SpeedLimit(flops=200_000_000, step_ms=10, peak_gflops=80)
    lines = str(replace(found, limit=limit, caveat="too few seconds")).splitlines()
    assert lines[:5] == [
        "part       ms a batch   share",
        "step            10.00   25.0%",
        "data            30.00   75.0%",
        "hand-over        0.00    0.0%",
        "start-up         0.00    0.0%",
    ]
    assert lines[6] == "data-bound: 30 ms of 40 ms, 75%."
    assert "4.00 x as fast" in lines[7] and "20 of 80 GFLOP/s, 25% of the peak; at the peak 2.5 ms" in lines[8]
    assert lines[9].startswith("Try: ") and lines[-1] == "Note: too few seconds."


def test_its_figure_is_one_bar_of_four_parts_and_its_words_quote_no_time():
    found = decide(LoopTimes(10, 40, wait_ms=30))
    ax = found.figure().axes[0]
    assert [bar.get_width() for bar in ax.patches] == [10, 30, 0, 0]
    assert ax.get_title(loc="left").startswith("data-bound")
    assert not any(character.isdigit() for character in found.words)


def test_the_legend_of_its_figure_lies_inside_the_picture():
    fig = decide(LoopTimes(10, 40, wait_ms=30)).figure()
    fig.draw_without_rendering()
    box = fig.legends[0].get_window_extent()
    assert fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 and fig.bbox.y0 <= box.y0
    assert box.y1 <= fig.axes[0].xaxis.label.get_window_extent().y0
