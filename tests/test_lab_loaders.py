"""Chapter 04's experiment: each pipeline's answer, the judging, the timeline's picture, and the loop measured here."""

import copy
import html
import pickle
import time
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from course_utils.labs import loaders as lab_loaders
from course_utils.labs.background import BackgroundRun
from course_utils.labs.loaders import OWN, in_words, pipeline_lab, still_pipeline, told_of
from course_utils.labs.loaders_drawing import height_for, load_share, timeline_svg
from course_utils.labs.loaders_pipelines import (
    MOST_LONGER,
    MOST_PREFETCH,
    MOST_WORKERS,
    PRESETS,
    fewest,
    longer_by,
    look,
    preset_of,
    verdict,
    words,
)
from course_utils.measured_loop import Measured, MeasuredLoop, StartedBatches
from course_utils.synthetic_pipeline import BATCH_SIZE, Costs, Priced, SyntheticBatches, loops_per_ms, spend

pytestmark = pytest.mark.usefixtures("no_run_is_left", "nothing_is_left", "still")
STILL_TWIN = lab_loaders, "still_pipeline"

DISK, NETWORK, HUGE, MEMORY, TENSORS, CORES = PRESETS
ANSWERS = {DISK: 3, NETWORK: 1, HUGE: 1, MEMORY: 0, TENSORS: None, CORES: None}
QUICK = Costs(0.5, 0.5, num_workers=1)


def seen(name, **changes):
    """A pipeline with these changes, as the lab looks at it."""
    costs, cores, _ = PRESETS[name]
    return look(replace(costs, **changes), cores)


# --- what is computed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_each_pipeline_has_its_answer_and_every_setting_with_fewer_workers_loses_more(name):
    costs, cores, _ = PRESETS[name]
    found = fewest(costs, cores)
    assert (None if found is None else min(found.values())) == ANSWERS[name]
    for number in range(MOST_WORKERS + 1 if found is None else ANSWERS[name]):
        for prefetch in (1, 2, 4, MOST_PREFETCH):
            line = replace(costs, num_workers=number, prefetch_factor=prefetch).predicted(cores)
            assert longer_by(line, costs.step_ms) > MOST_LONGER


def test_prefetch_factor_matters_in_the_pipeline_with_rare_slow_batches_only():
    spread = {name: set((fewest(*PRESETS[name][:2]) or {1: None}).values()) for name in PRESETS}
    assert {name for name, numbers in spread.items() if len(numbers) > 1} == {HUGE}
    assert fewest(*PRESETS[HUGE][:2]) == {1: 7, 2: 4, 3: 3, 4: 2, 5: 2, 6: 2, 7: 1, 8: 1}


def test_the_lessons_hold_in_the_model():
    assert fewest(replace(PRESETS[TENSORS].costs, handover_ms=1), 4)[2] == 1  # "lower the hand-over to 1 ms"
    slowed = seen(CORES, num_workers=4)
    assert slowed.timeline.wait_share < 0.05 and slowed.timeline.turn_ms == pytest.approx(20, rel=0.01)
    assert seen(CORES, num_workers=1).timeline.turn_ms == pytest.approx(30)


@pytest.mark.parametrize(
    "name, changes, told",
    [
        (DISK, {"num_workers": 2}, "\u25cb A turn is 50% longer than the step alone: the step waits 33% of the time."),
        (DISK, {"num_workers": 4}, "\u25cb The step waits 0% of the time, but fewer workers do it too."),
        (DISK, {"num_workers": 3}, "\u2713 The step waits 0% of the time, with the fewest workers: 3. Load-bound"),
        (
            HUGE,
            {"num_workers": 4},
            "\u25cb The fewest with this prefetch_factor; with another one fewer workers than 4",
        ),
        (HUGE, {"num_workers": 1, "prefetch_factor": 8}, "\u2713 "),
        (
            MEMORY,
            {"num_workers": 0},
            "\u2713 The step waits 4% of the time, with the fewest workers: 0. Hand-over-bound",
        ),
        (MEMORY, {}, "\u25cb A turn is 25% longer than the step alone: the step waits 20% of the time."),
        (
            CORES,
            {"num_workers": 4},
            "\u25cb A turn is 100% longer than the step alone: the step waits 0% of the time, and it takes 20 ms "
            "instead of 10, because 4 workers compute on its cores.",
        ),
    ],
)
def test_a_setting_is_judged_in_words(name, changes, told):
    view = seen(name, **changes)
    assert verdict(view).startswith(told)
    assert view.solved == ((name,) if told.startswith("\u2713") else ())


def test_the_border_is_a_turn_5_percent_longer_which_is_still_enough():
    tensors = PRESETS[TENSORS].costs
    enough = [look(replace(tensors, num_workers=2, handover_ms=ms), 4).enough for ms in (0.9, 1.0, 1.1)]
    assert enough == [True, True, False]


@pytest.mark.parametrize("name", PRESETS)
def test_no_pipeline_is_solved_as_it_begins(name):
    assert seen(name).solved == ()


@pytest.mark.parametrize("name", PRESETS)
def test_to_say_that_no_number_does_it_is_right_where_none_does(name):
    costs, cores, lesson = PRESETS[name]
    view = look(costs, cores, denied=True, tried=frozenset({1, 2}))
    assert (view.solved == (name,)) is (ANSWERS[name] is None)
    assert verdict(view).startswith("\u2713 Right" if ANSWERS[name] is None else "\u25cb Some number")
    assert (lesson in verdict(view)) is (ANSWERS[name] is None)


@pytest.mark.parametrize("tried, early", [((), True), ((0, 2), True), ((2, 3), False), ((0, 1, 5), False)])
def test_a_denial_counts_once_two_numbers_of_workers_were_looked_at(tried, early):
    costs, cores, _ = PRESETS[TENSORS]
    view = look(costs, cores, denied=True, tried=frozenset(tried))
    assert view.too_early is early and view.solved == (() if early else (TENSORS,))
    assert verdict(view).startswith("\u25cb Look at 2 numbers of workers above 0 first" if early else "\u2713 Right")


def test_of_ones_own_numbers_a_denial_is_answered_at_once():
    view = look(Costs(7, 20, handover_ms=8), 4, denied=True)
    assert view.preset is None and verdict(view).startswith("\u2713 Right") and view.solved == ()


def test_a_pipeline_is_known_whatever_its_workers_and_by_its_cores_too():
    costs = PRESETS[CORES].costs
    assert preset_of(replace(costs, num_workers=7, prefetch_factor=5), 2) == CORES
    assert preset_of(costs, 4) is None and preset_of(replace(costs, step_ms=11), 2) is None
    changed = look(replace(costs, load_ms=5), 2)
    assert changed.preset is None and changed.solved == ()


def test_a_pipeline_is_counted_once():
    costs, cores, _ = PRESETS[MEMORY]
    assert look(costs, cores, solved=(MEMORY, DISK)).solved == (MEMORY, DISK)


def test_the_words_name_waiting_turn_and_a_step_that_is_slowed():
    assert words(seen(DISK, num_workers=2)) == (
        "the step waits 33.3% of the time \u00b7 a turn takes 15 ms, the step alone 10 \u00b7 66.7 batches a second"
    )
    assert "the step alone 10 (now 20)" in words(seen(CORES, num_workers=4))


# --- the picture ----------------------------------------------------------------------------------------------


def bars(svg, kind):
    return [rect for rect in ElementTree.fromstring(svg).iter() if rect.get("class") == kind]


def test_the_picture_has_a_bar_for_each_load_wait_and_step_and_says_what_it_shows():
    line = seen(DISK, num_workers=2).timeline
    svg = timeline_svg(line)
    waited = sum(one.end_ms > one.start_ms for one in line.waits)
    assert (len(bars(svg, "step")), len(bars(svg, "load")), len(bars(svg, "wait"))) == (24, 24, waited)
    tree = ElementTree.fromstring(svg)
    texts = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"worker 0", "worker 1", "trainer", "time (ms)", "0", "23"} <= set(texts)
    assert tree.get("aria-label").startswith("Timeline of 2 workers and the trainer, 24 batches in")
    assert "a turn takes 15 ms, 33% of it waiting" in tree.get("aria-label")


def test_without_workers_the_trainers_loads_are_its_waiting_and_stand_in_its_row():
    svg = timeline_svg(seen(DISK).timeline)
    assert bars(svg, "wait") == [] and {bar.get("y") for bar in bars(svg, "load")} == {
        bar.get("y") for bar in bars(svg, "step")
    }
    assert "the trainer alone, which loads and steps in turn" in svg


def test_bars_are_as_long_as_their_times_and_stay_in_the_picture():
    svg = timeline_svg(seen(TENSORS, num_workers=MOST_WORKERS).timeline, rows=MOST_WORKERS + 1)
    steps, handovers = bars(svg, "step"), bars(svg, "hand-over")
    lengths = [float(bar.get("width")) for bar in (steps[1], handovers[1])]
    assert lengths[0] / lengths[1] == pytest.approx(20 / 8, rel=0.15)
    assert all(
        float(bar.get("x")) + float(bar.get("width")) <= 640 for kind in ("load", "step") for bar in bars(svg, kind)
    )
    assert f'height="{height_for(MOST_WORKERS + 1)}"' in svg


def test_the_part_of_the_time_that_workers_load_is_between_none_and_all():
    assert load_share(seen(DISK, num_workers=2).timeline) > 0.9
    assert load_share(seen(NETWORK, num_workers=1).timeline) == pytest.approx(6 / 40, abs=0.05)


# --- what is measured -----------------------------------------------------------------------------------------


def test_a_batch_is_its_indices_in_order_and_every_tenth_is_slow(monkeypatch):
    spent = []
    monkeypatch.setattr("course_utils.synthetic_pipeline.spend", lambda ms, **how: spent.append((ms, how["computes"])))
    dataset = SyntheticBatches(Costs(4, 1, slow_every=3, slow_factor=5, startup_ms=7, load_computes=True), per_ms=1.0)
    loader = dataset.loader()
    batches = [batch for _, batch in zip(range(4), loader, strict=False)]
    assert [indices for indices, _ in batches] == [[4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3] for k in range(4)]
    assert spent == [(7, False), (4, True), (4, True), (20, True), (4, True)] and BATCH_SIZE == 4


@pytest.mark.parametrize("per_ms, how", [(2.0, (True, 2.0)), (None, (False, 0.0))])
def test_the_price_of_a_hand_over_is_paid_where_it_is_unpickled_and_a_copy_is_free(monkeypatch, per_ms, how):
    spent = []
    sent = pickle.dumps(copy.deepcopy(Priced(8.0, per_ms)))
    monkeypatch.setattr(
        "course_utils.synthetic_pipeline.spend", lambda ms, *, computes, per_ms: spent.append((ms, computes, per_ms))
    )
    got = pickle.loads(sent)
    assert (got.ms, got.per_ms) == (8.0, per_ms) and spent == [(8.0, *how)]


@pytest.mark.parametrize("computes", [True, False])
def test_a_hand_over_computes_unless_it_is_told_to_wait(computes):
    dataset = SyntheticBatches(Costs(0, 1, handover_ms=3, handover_computes=computes), per_ms=5.0)
    _, price = next(iter(dataset.loader()))
    assert (price.ms, price.per_ms) == (3, 5.0 if computes else None)


def test_computing_takes_processor_time_and_waiting_does_not():
    began = time.thread_time()
    spend(30, computes=False, per_ms=loops_per_ms())
    waited = time.thread_time() - began
    spend(30, computes=True, per_ms=loops_per_ms())
    assert waited < 0.005 < time.thread_time() - began - waited


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_loop_is_measured_in_slices_each_with_all_turns_until_then_and_no_worker_is_left(num_workers):
    found = list(MeasuredLoop(replace(QUICK, num_workers=num_workers), seconds=0.05))
    last = found[-1]
    assert last.num_turns % max(1, num_workers) == 0 and len(last.steps) == last.num_turns >= 3
    assert last.turn_ms == pytest.approx(last.wait_ms + sum(last.steps) / last.num_turns)
    assert last.first_ms > 0 and last.wait_share == last.wait_ms / last.turn_ms


def ticking(monkeypatch, loop, waits, step_ms=10):
    """A loop whose batches come after these waits, on a clock of its own."""
    now = [0.0]
    batches = iter(waits)

    def wait(_self=None):
        now[0] += next(batches) / 1e3
        return "batch"

    loop._clock = lambda: now[0]
    loop._batches.close()
    loop._batches = type("Scripted", (), {"__next__": wait, "close": lambda self: None})()
    monkeypatch.setattr(loop._dataset, "step", lambda batch: now.__setitem__(0, now[0] + step_ms / 1e3))
    return loop


def test_what_was_made_ahead_is_not_counted_and_means_are_over_whole_rounds(monkeypatch):
    costs = Costs(30, 10, num_workers=2, prefetch_factor=2)
    loop = ticking(monkeypatch, MeasuredLoop(costs, seconds=0.4), [100] + [0] * 4 + [30, 0] * 100)
    loop._began = 0.0
    (found,) = loop
    assert (found.turn_ms, found.wait_ms, found.first_ms) == pytest.approx((25, 15, 100))
    assert found.num_turns % 2 == 0 and found.waits[:4] == pytest.approx((30, 0, 30, 0))


def test_a_slice_ends_with_a_whole_round_of_workers_and_of_slow_batches(monkeypatch):
    costs = Costs(30, 10, num_workers=2, prefetch_factor=1, slow_every=3)
    loop = ticking(monkeypatch, MeasuredLoop(costs, seconds=0.055), [100, 0, 0] + [30, 0, 0, 0, 0, 0] * 20)
    (found,) = loop  # the third turn ends after 60 ms
    assert found.num_turns == 6 and found.turn_ms == pytest.approx(15)


def test_an_error_of_a_worker_ends_the_loop_and_closing_it_early_ends_the_workers(monkeypatch):
    loop = MeasuredLoop(QUICK, seconds=5)
    next(loop)
    loop.close()
    assert list(loop) == []
    broken = MeasuredLoop(QUICK, seconds=5)
    monkeypatch.setattr(broken._dataset, "step", lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(broken)
    assert list(broken) == []


def test_no_seconds_are_refused():
    with pytest.raises(ValueError, match="seconds > 0, got 0"):
        MeasuredLoop(QUICK, seconds=0)


def test_workers_are_started_by_the_caller_and_the_loop_draws_from_no_generator_there():
    before = torch.get_rng_state()
    batches = StartedBatches(SyntheticBatches(QUICK).loader(), 1)
    assert len(batches._iterator._workers) == 1
    assert next(batches)[0] == [0, 1, 2, 3] and torch.equal(torch.get_rng_state(), before)
    batches.close()
    batches.close()


def test_a_cell_that_runs_meanwhile_computes_the_same_bits():
    def cell(pause=lambda: None):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
        for _ in range(3):
            pause()
            model(torch.randn(32, 8)).square().mean().backward()
        return torch.cat([param.grad.flatten() for param in model.parameters()] + [torch.rand(3)])

    loops = []
    run = BackgroundRun(lambda: loops.append(MeasuredLoop(QUICK, seconds=60)) or loops[0])
    run.start()

    def pause():
        made = len(run.points)
        while len(run.points) == made and run.error is None:
            time.sleep(1e-3)

    beside = cell(pause)
    assert run.alive and run.error is None
    run.stop()
    loops[0].close()
    assert torch.equal(beside, cell())


def test_what_was_measured_stands_beside_the_model_and_says_what_it_is_of():
    far = Measured(30.0, 15.0, 100.0, (15.0,) * 8, (15.0,) * 8)
    near = far._replace(turn_ms=15.2, wait_ms=5.0)
    costs = Costs(30, 10, num_workers=2)
    told = html.unescape(told_of(costs, [near], "finished", 4))
    assert "Measured: 2 workers, prefetch_factor 2; a batch 30 ms (waits), hand-over 0 ms; a step 10 ms (waits)" in told
    assert "with this machine's 4 cores" in told and "measured here, 8 turns" in told
    assert "15.0\xa0ms</td><td style='padding-left:2em'>33%" in told and "15.2\xa0ms" in told
    assert "times the model" not in told
    assert "2.00 times the model's turn. The model leaves out" in html.unescape(told_of(costs, [far], "stopped", 1))
    assert told_of(costs, [], "ready", 2) == "" and "the workers start" in told_of(costs, [], "running", 2)


def test_a_setting_in_words_tells_rare_slow_batches_and_no_hand_over_without_workers():
    slow = Costs(4, 12, slow_every=10, slow_factor=20, load_computes=True)
    assert (
        in_words(slow) == "0 workers; a batch 4 ms (computes), one in 10 takes 20 times as long; a step 12 ms (waits)"
    )


# --- the page -------------------------------------------------------------------------------------------------


def test_every_knob_reaches_the_model_and_a_change_makes_it_a_pipeline_of_ones_own():
    lab = pipeline_lab()
    assert lab.result.costs == PRESETS[DISK].costs and lab.preset.value == DISK
    changes = {"num_workers": 3, "prefetch_factor": 4, "load_ms": 12.5, "step_ms": 7.5, "handover_ms": 1.5}
    changes |= {"slow_every": 5, "slow_factor": 3.0, "load_computes": True, "step_computes": True}
    for name, value in changes.items():
        lab.parts[name].value = value
    lab.parts["cores"].value = 8
    assert lab.result.costs == Costs(**changes) and lab.result.cores == 8
    assert lab.result.timeline == Costs(**changes).predicted(8, num_batches=24) and lab.preset.value == OWN


def test_what_a_browsers_slider_says_is_rounded_to_what_it_shows():
    lab = pipeline_lab()
    lab.parts["load_ms"].value = 30.000000000000004
    assert lab.preset.value == DISK and lab.result.preset == DISK


def test_the_goal_is_reached_when_all_six_pipelines_are_solved_by_knobs_and_button_and_reset_forgets():
    lab = pipeline_lab()
    for name, number in ANSWERS.items():
        lab.preset.value = name
        assert lab.result.costs == PRESETS[name].costs and lab.preset.value == name
        if number is None:
            lab.buttons[0].click()
            assert "Look at 2 numbers of workers above 0 first" in lab.figure.value
            lab.parts["num_workers"].value, lab.parts["num_workers"].value = 1, 4
            lab.buttons[0].click()
        else:
            lab.parts["prefetch_factor"].value, lab.parts["num_workers"].value = 8, number
        assert lab.result.solved == tuple(ANSWERS)[: list(ANSWERS).index(name) + 1] and lab.error is None
        assert lab.reached is (name == CORES)
    assert "Solved 6 of 6" in lab.figure.value and "\u2713 reached" in lab.note.value
    lab.buttons[-1].click()
    assert not lab.reached and lab.result.solved == () and lab.preset.value == DISK
    assert "Solved 0 of 6" in lab.figure.value and lab.parts["num_workers"].value == 0
    lab.preset.value = CORES
    lab.buttons[0].click()
    assert lab.result.too_early  # what was looked at before the Reset is forgotten too


def test_what_was_denied_of_one_setting_is_not_of_the_next():
    lab = pipeline_lab()
    lab.parts["num_workers"].value, lab.parts["num_workers"].value = 1, 2
    lab.buttons[0].click()
    assert verdict(lab.result) == "\u25cb Some number of workers does it here."
    lab.parts["num_workers"].value = 1
    assert verdict(lab.result).startswith("\u25cb A turn is 200% longer")


def test_the_goal_says_what_is_judged():
    assert "a turn is at most 5% longer than the step alone, with the fewest workers" in pipeline_lab().goal.text


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(lab_loaders, "SECONDS", 0.05)


def finish(lab):
    lab.run._thread.join(20)


def test_measure_here_runs_the_knobs_setting_in_the_background_and_leaves_no_worker(quick):
    lab = pipeline_lab()
    lab.parts["load_ms"].value, lab.parts["step_ms"].value, lab.parts["num_workers"].value = 0.5, 1.0, 1
    lab.go.click()
    started = lab._measured
    lab.parts["num_workers"].value = 2  # the result says what it is of
    finish(lab)
    assert started == Costs(0.5, 1.0, num_workers=1) and lab.run.state == "finished"
    assert "Measured: 1 worker, " in lab.told.value and "alert" not in lab.told.value
    assert (lab.go.disabled, lab.halt.disabled) == (False, True)


def test_stop_ends_the_workers_and_measuring_again_begins_anew():
    lab = pipeline_lab()
    lab.parts["num_workers"].value = 1
    lab.go.click()
    assert (lab.go.disabled, lab.halt.disabled) == (True, False)
    lab.halt.click()
    finish(lab)
    assert lab.run.state == "stopped" and list(lab.measurement) == []
    first = lab.measurement
    lab.go.click()
    assert lab.measurement is not first and lab.run.state == "running"
    lab.close()
    assert not lab.run.alive and list(lab.measurement) == []


def test_another_run_of_the_kernel_ends_the_measurement_and_its_workers():
    lab = pipeline_lab()
    lab.parts["num_workers"].value = 1
    lab.go.click()
    other = BackgroundRun(lambda: iter([]))
    other.start()
    assert lab.run.state == "stopped" and list(lab.measurement) == []
    other._thread.join(5)


def test_an_error_of_the_measurement_is_shown_and_the_next_one_works(quick, monkeypatch):
    lab = pipeline_lab()
    monkeypatch.setattr(lab_loaders, "MeasuredLoop", lambda *_, **how: (_ for _ in ()).throw(OSError("no <worker>")))
    lab.go.click()
    if lab.run._thread is not None:
        finish(lab)
    assert "no &lt;worker&gt;" in lab.told.value and lab.run.state == "failed"
    monkeypatch.undo()
    monkeypatch.setattr(lab_loaders, "SECONDS", 0.05)
    lab.go.click()
    finish(lab)
    assert lab.run.state == "finished" and "alert" not in lab.told.value


def test_running_the_cell_again_stops_the_measurement_of_the_former_panel():
    import ipywidgets

    former = pipeline_lab()
    count = len(ipywidgets.widgets.widget._instances)
    former.go.click()
    pipeline_lab()
    assert former.box is None and not former.run.alive
    assert len(ipywidgets.widgets.widget._instances) == count


def test_the_lab_disturbs_no_generator_and_its_still_twin_is_exact(outputs):
    before = torch.get_rng_state()
    lab = pipeline_lab()
    lab._ipython_display_()
    assert torch.equal(before, torch.get_rng_state())
    assert [out["text/plain"] for out in outputs][::2] == [
        "[live experiment loaders: controls in JupyterLab with ipywidgets; a still picture follows]",
        f"[figure] {still_pipeline().alt}",
    ]
    assert "a turn takes 15 ms; 33% of it is waiting" in still_pipeline().alt
    assert lab.run.state == "ready" and lab.run.points == []
