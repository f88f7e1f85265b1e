"""Records about loaders: that their loops are what they say, that pieces add up, and that what is stored is whole."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import diagnosis, loops, pieces, prefetch, records, start_methods, timeline, trainings
from benchmarks.loops import Batches, Costs, feed_of, run_loop
from benchmarks.pieces import OutOfTime, Pieces, Uncached
from course_utils.bottleneck import LoopTimes, decide
from course_utils.pipeline_model import simulate_pipeline

# --- pieces


def double(number):
    return number * 2


def test_a_piece_that_is_there_is_given_when_the_time_is_over_and_a_new_one_is_not_begun(tmp_path, monkeypatch):
    monkeypatch.setattr(trainings.tempfile, "gettempdir", lambda: str(tmp_path))
    assert Pieces("tried").get(double, 1) == 2
    late = Pieces("tried", seconds=0)
    assert late.get(double, 1) == 2
    with pytest.raises(OutOfTime, match=r"double\(2,\)"):
        late.get(double, 2)


def test_a_program_goes_on_where_its_time_was_over_and_stores_the_whole_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trainings.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(records, "RECORDS", tmp_path / "records")
    how = {"whole": lambda cache: {"sum": cache.get(double, 1) + cache.get(double, 2)}, "quick": lambda cache: {}}
    Pieces("tried").get(double, 1)
    pieces.program("tried", ["--seconds", "0"], **how)
    assert "1 pieces are there; the next one is double(2,)" in capsys.readouterr().out
    pieces.program("tried", [], **how)
    record = records.load("tried")
    assert record["sum"] == 6 and record["made"]["runs"] == 2 and not list(tmp_path.glob("*.json"))


def test_quick_prints_and_keeps_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trainings.tempfile, "gettempdir", lambda: str(tmp_path))
    pieces.program("tried", ["--quick"], whole=None, quick=lambda cache: {"found": cache.get(double, 3)})
    assert json.loads(capsys.readouterr().out) == {"found": 6} and not list(tmp_path.iterdir())


# --- loops


def test_the_batches_of_a_loop_cost_what_the_model_is_told(monkeypatch):
    spent = []
    monkeypatch.setattr(
        loops.synthetic_loaders, "spend", lambda seconds, computes: spent.append((round(seconds * 1e3, 6), computes))
    )
    costs = Costs(5, 10, load_computes=True, slow_every=4, slow_factor=3.0)
    dataset = Batches(costs)
    for index in range(8):
        dataset[index]
    costs.step(None)
    assert spent == [(5, True)] * 3 + [(15, True)] + [(5, True)] * 3 + [(15, True), (10, False)]
    model = simulate_pipeline(5, 10, num_workers=0, slow_every=4, slow_factor=3.0)
    assert [round(load.end_ms - load.start_ms) for load in model.loads[:8]] == [5, 5, 5, 15] * 2


@pytest.mark.parametrize("num_workers, prefetch, period, length", [(0, 2, 3, 3), (2, 1, 3, 6), (2, 4, 2, 2)])
@pytest.mark.usefixtures("nothing_is_left")
def test_a_loop_is_timed_in_whole_rounds_of_workers_and_of_its_period(num_workers, prefetch, period, length):
    seen = []
    found = run_loop(feed_of(Costs(0.1, 0)), seen.append, num_workers, prefetch, seconds=0.0, period=period, turns=7)
    assert found["num_turns"] == math.ceil(7 / length) * length
    assert len(seen) - found["num_turns"] >= num_workers * prefetch + 1  # what was made meanwhile is not timed
    assert 0 < found["wait_ms"] < found["turn_ms"] and found["longest_wait_ms"] >= found["wait_ms"]
    assert (found["handover_ms"] > 0) is (num_workers > 0)


# --- diagnosis


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
@pytest.mark.parametrize("name", list(diagnosis.loops(2)))
def test_the_known_verdict_of_every_loop_is_that_of_its_arithmetic(name, cores):
    loop = diagnosis.loops(cores)[name]
    handover_ms = 20.0 if loop.known == "hand-over-bound" else 0.0
    turn_ms = loop.case.turn_ms(loop.num_workers, cores)
    turn_ms = loop.case.step_ms + handover_ms if handover_ms else turn_ms
    start = {"startup_ms": 400, "num_batches": 16} if loop.opens else {}
    times = LoopTimes(loop.case.step_ms, turn_ms, handover_ms=handover_ms, num_workers=loop.num_workers, **start)
    found = decide(times)
    assert found.verdict == loop.known and found.ms == pytest.approx(loop.known_ms or handover_ms)


def test_right_diagnoses_are_counted_and_what_they_say_is_put_over_what_is_known():
    loop = diagnosis.loops(2)["data, 2 workers"]
    parts = {"step": 10.0, "data": 22.0, "hand-over": 1.0, "start-up": 0.0}
    one = {"verdict": "data-bound", "ms": 22.0, "share": 0.67, "parts_ms": parts, "advice": ["a"], "num_batches": 9}
    case = diagnosis.joined(loop, [one, one | {"ms": 24.0}, one | {"verdict": "hand-over-bound", "ms": 24.0}])
    assert (case["ms_over_known"], case["says_cores"], case["parts_ms"]) == (1.2, 0, parts)
    assert diagnosis.summary({"one": case, "two": case | {"ms_over_known": None}}) == {
        "right": 4, "diagnoses": 6, "least_over_known": 1.2, "most_over_known": 1.2
    }  # fmt: skip


@pytest.mark.parametrize("name", ["data, no workers", "hand-over of many tensors", "start-up, no workers"])
def test_a_loop_is_diagnosed_in_quick_mode(name, monkeypatch):
    monkeypatch.setattr(diagnosis, "OPENING_S", 0.02)
    found = diagnosis.diagnosed(name, 0, 0.02)
    assert found["verdict"].endswith("-bound") and found["num_batches"] >= 16 and len(found["parts_ms"]) == 4


def test_the_diagnosis_record_is_right_on_every_loop():
    record = records.load("diagnosis")
    assert set(record["cases"]) == set(diagnosis.loops(record["setup"]["cores"])) and len(record["cases"]) >= 6
    for case in record["cases"].values():
        assert case["verdicts"] == [case["known"]] * record["setup"]["repeats"]
    assert record["summary"] == diagnosis.summary(record["cases"])
    assert record["summary"]["right"] == record["summary"]["diagnoses"]
    assert record["cases"]["shared cores"]["says_cores"] == record["setup"]["repeats"]
    assert {case["known"] for case in record["cases"].values()} == {
        "data-bound", "hand-over-bound", "start-up-bound", "compute-bound"
    }  # fmt: skip


# --- timeline


def test_a_loop_is_put_over_its_prediction_and_the_far_ones_are_listed():
    def run(turn_ms, handover_ms=1.0):
        return {"turn_ms": turn_ms, "wait_ms": 2.0, "longest_wait_ms": 3.0, "handover_ms": handover_ms, "num_turns": 9}

    runs = {(0, 2): [run(44.0, 0.0), run(41.0, 0.0)], (2, 2): [run(20.0), run(30.0)], (3, 2): [run(12.1), run(12.2)]}
    case = timeline.joined(Costs(30, 10), runs, 2)
    assert [loop["predicted_ms"] for loop in case["loops"]] == pytest.approx([40.0, 15.0, 11.0])
    assert [loop["without_handover_ms"] for loop in case["loops"]] == pytest.approx([40.0, 15.0, 10.0])
    assert [loop["over"] for loop in case["loops"]] == [1.025, 1.333, 1.1]
    assert (case["measured_best"], case["predicted_best"], case["handover_ms"]) == (3, 3, 1.0)
    found = timeline.summary({"one": case})
    assert found == {
        "loops": 3, "within_10_percent": 2, "within_10_percent_without_handover": 1, "least_over": 1.025,
        "most_over": 1.333, "off": [["one", 2, 2, 1.333]],
    }  # fmt: skip


def test_the_photos_costs_are_those_of_their_loop_without_workers():
    runs = {(0, 2): [{"turn_ms": 33.0, "wait_ms": 24.0}, {"turn_ms": 30.0, "wait_ms": 22.0}]}
    found = timeline.given(timeline.CASES["photos"], runs)
    assert (found.load_ms, found.step_ms, found.load_computes) == (22.0, 8.0, True)
    assert timeline.given(Costs(1, 2), {}) == Costs(1, 2)


def test_timelines_are_measured_in_quick_mode(monkeypatch):
    monkeypatch.setattr(timeline, "CASES", {"quick": Costs(1, 1)})
    monkeypatch.setattr(timeline, "WORKERS", (0, 1))
    found = timeline.report(Uncached(), names=("quick",), rounds=1, seconds=0.0)
    assert [loop["num_workers"] for loop in found["cases"]["quick"]["loops"]] == [0, 1]


def test_the_timeline_record_holds_what_the_model_says_today():
    record = records.load("timeline")
    assert list(record["cases"]) == list(timeline.CASES) and record["summary"] == timeline.summary(record["cases"])
    for name, case in record["cases"].items():
        costs = Costs(**{field: case[field] for field in vars(Costs(1, 1))})
        assert [(loop["num_workers"], loop["prefetch_factor"]) for loop in case["loops"]] == timeline.runs_of(name)
        for loop in case["loops"]:
            how = loop["num_workers"], loop["prefetch_factor"]
            again = timeline.predicted(costs, *how, case["handover_ms"], record["setup"]["cores"])
            assert {key: loop[key] for key in again} == pytest.approx(again, abs=0.02)
            assert loop["over"] == pytest.approx(loop["measured_ms"] / loop["predicted_ms"], abs=1e-3)


# --- prefetch


def test_every_choice_of_the_prefetch_record_is_measured_in_quick_mode(monkeypatch):
    monkeypatch.setattr(prefetch, "LOOPS", {"rare": Costs(1, 1, slow_every=2, slow_factor=2.0)})
    rare = prefetch.report(Uncached(), rounds=1, batches=8)["loops"]["rare"]
    assert list(rare["choices"]) == [prefetch.name_of(*how) for how in prefetch.CHOICES]
    assert rare["choices"]["3 workers, prefetch 2"]["ahead"] == 6 and set(rare["wins"]) == {"prefetch 8", "3 workers"}


def test_the_prefetch_record_tells_smoothness_from_throughput():
    record = records.load("prefetch")
    assert set(record["loops"]) == {"steady", "rare"}
    for loop in record["loops"].values():
        least = {how: loop["choices"][prefetch.name_of(*how)]["least"] for how in prefetch.CHOICES}
        assert all(len(one["seconds"]) == record["setup"]["rounds"] for one in loop["choices"].values())
        assert loop["prefetch_gain"] == pytest.approx(least[2, 1] / least[2, 8], abs=2e-3)
        assert loop["worker_gain"] == pytest.approx(least[2, 2] / least[3, 2], abs=2e-3)
    steady, rare = record["loops"]["steady"], record["loops"]["rare"]
    assert steady["worker_gain"] > 1.3 > 1.15 > steady["prefetch_gain"]
    assert rare["prefetch_gain"] > 1.4 > 1.2 > rare["worker_gain"]


# --- start methods


def test_what_persistent_workers_save_is_a_later_epochs_least_against_least():
    short = {"short fresh": [[3.0, 3.5], [2.0, 2.5]], "short persistent": [[3.1, 3.6], [0.1, 0.5]]}
    other = {"short fresh": [[2.9, 3.4], [2.1, 2.6]], "short persistent": [[3.2, 3.8], [0.1, 0.6]]}
    found = start_methods.joined([short, other], ["short"])
    assert found["first_ever_s"] == [3.0, 2.9]
    assert found["epochs"]["short"]["fresh"]["epoch_s"][1] == {"least": 2.5, "median": 2.55, "each": [2.5, 2.6]}
    assert (found["saved_s"], found["saved_share"]) == ({"short": 2.0}, {"short": 0.8})


def test_a_way_of_starting_is_timed_in_a_fresh_process():
    way = start_methods.ways_here()[0]
    found = start_methods.in_fresh_process(way, 0, {"short": {"examples": 16, "ms": 0.1}}, 2)
    assert set(found) == {"short fresh", "short persistent"}
    assert all(0 < first <= whole for epochs in found.values() for first, whole in epochs)


def test_the_start_methods_record_has_every_way_that_its_platform_has():
    record = records.load("start_methods")
    assert list(record["ways"]) == record["platform"]["ways"] and record["platform"]["default"] in record["ways"]
    for way in record["ways"].values():
        assert set(way["epochs"]) == {"short", "long"} and len(way["first_ever_s"]) == record["setup"]["runs"]
        for length, kinds in way["epochs"].items():
            later = {kind: min(row["least"] for row in kinds[kind]["epoch_s"][1:]) for kind in kinds}
            assert way["saved_s"][length] == pytest.approx(later["fresh"] - later["persistent"], abs=1e-3)
