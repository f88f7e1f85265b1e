"""Chapter 07's experiment: the race's plans, its points, its goal, its still twin, and that it disturbs no cell."""

import html
import math
import random
import re
import time

import numpy as np
import pytest
import torch
from torch import nn

from course_utils.labs import BackgroundRun, Point
from course_utils.labs import schedules as lab_schedules
from course_utils.labs.schedules import (
    GOAL,
    KINDS,
    SHARE,
    SLOW,
    YOURS,
    bound,
    lr_race_lab,
    race_points,
    standard_entries,
    still_race,
)
from course_utils.lr_race import Entry, Race, Runners, race
from course_utils.schedules import constant, lr_curve

STEPS = 12
SLIDES = (YOURS, SLOW, "exponential", "warm-up + cosine")


pytestmark = pytest.mark.usefixtures("no_run_is_left")


def entries(lr=0.01, factor_fn=constant):
    return {YOURS: Entry(factor_fn, lr), **standard_entries(STEPS)}


def generators():
    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


# --- the plans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, factors",  # at updates 0, 4, 5, 8, 11 of 12; a third of the run is 4 updates, the warm-up 3
    [
        ("constant", [1, 1, 1, 1, 1]),
        ("exponential", [1, 10 ** (-4 / 12), 10 ** (-5 / 12), 10 ** (-8 / 12), 10 ** (-11 / 12)]),
        ("step decay", [1, 0.1, 0.1, 0.01, 0.01]),
        ("warm-up + cosine", [1 / 3, *((1 + math.cos(math.pi * k / 9)) / 2 for k in (1, 2, 5, 8))]),
        ("warm restarts", [1, 1, (1 + math.cos(math.pi / 4)) / 2, 1, (1 + math.cos(math.pi * 3 / 4)) / 2]),
    ],
)
def test_each_kind_is_bound_to_the_length_of_the_run(kind, factors):
    plan = bound(kind, num_steps=12, warmup_share=0.25)
    assert [plan(step) for step in (0, 4, 5, 8, 11)] == pytest.approx(factors)


@pytest.mark.parametrize("kind, at_the_end", [("exponential", 0.1), ("warm-up + cosine", 0.0)])
def test_a_plan_that_falls_has_fallen_after_its_run_whatever_the_length(kind, at_the_end):
    for num_steps in (1, 12, 300):
        assert bound(kind, num_steps=num_steps)(num_steps) == pytest.approx(at_the_end)


def test_every_kind_on_the_dropdown_has_a_plan_for_any_run_and_warm_up():
    for kind in KINDS:
        for num_steps in (1, 2, STEPS):
            for share in (0.0, 0.5):
                plan = bound(kind, num_steps=num_steps, warmup_share=share)
                assert all(0 < factor <= 1 for factor in lr_curve(plan, num_steps, base_lr=1.0))


def test_an_unknown_kind_is_told_which_there_are():
    with pytest.raises(ValueError, match=r"one of constant, exponential, .*, warm restarts, got 'cosine'"):
        bound("cosine")


def test_three_entries_are_always_on_the_track_each_over_the_whole_run():
    found = standard_entries(STEPS)
    assert {name: entry.lr for name, entry in found.items()} == {
        "constant 3e-4": 3e-4,
        "exponential": 0.01,
        "warm-up + cosine": 0.01,
    }
    assert found["exponential"].factor_fn(STEPS) == pytest.approx(0.1)
    assert found["warm-up + cosine"].factor_fn(STEPS) == 0.0 and found[SLOW].factor_fn is constant


# --- the points of a race -------------------------------------------------------------------------------------


def test_each_point_has_the_mean_of_the_last_20_losses_of_each_and_the_readers_lr():
    points = list(race_points(entries(lr=0.02, factor_fn=bound("exponential", num_steps=24)), num_steps=24, seed=3))
    result = race(standard_entries(STEPS), num_steps=24, seeds=(3,), **lab_schedules._course_data())
    losses = result.losses[SLOW][3]
    assert [point.values[SLOW] for point in points] == [
        pytest.approx(np.mean(losses[max(0, k - 20) : k])) for k in range(1, 25)
    ]
    assert [(p.step, p.total, tuple(p.values)) for p in points] == [(k, 24, SLIDES) for k in range(1, 25)]
    assert [p.notes["your lr"] for p in points] == pytest.approx([0.02 * 0.1 ** (k / 24) for k in range(24)])
    assert points[-1].notes[SHARE] == points[-1].values[YOURS] / points[-1].values[SLOW]


def test_the_networks_are_built_at_once_and_nothing_touches_the_generators(monkeypatch):
    built, before = [], generators()
    data = lab_schedules._course_data()
    build = data["build"]
    monkeypatch.setattr(lab_schedules, "_course_data", lambda: data | {"build": lambda: built.append(1) or build()})
    points = race_points(entries(), num_steps=2)
    assert len(built) == 4 and generators() == before
    for _ in points:
        assert generators() == before
    assert len(built) == 4


def test_a_cell_that_runs_meanwhile_computes_the_same_bits():
    def cell(pause=lambda: None):
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
        for _ in range(4):
            pause()
            model(torch.randn(32, 8)).square().mean().backward()
        return torch.cat([param.grad.flatten() for param in model.parameters()] + [torch.rand(3)])

    run = BackgroundRun(lambda: race_points(entries(), num_steps=10_000))
    run.start()

    def pause():
        made = len(run.points)
        while len(run.points) < made + 2 and run.error is None:
            time.sleep(1e-3)

    beside = cell(pause)
    assert run.alive and run.error is None and len(run.points) >= 8
    run.stop()
    assert torch.equal(beside, cell())


def test_stopped_and_continued_it_is_the_straight_race_to_the_bit():
    straight = list(race_points(entries(), num_steps=STEPS, seed=1))

    def stopping_itself():  # a stop that arrives during step 2, and one during step 7
        points = race_points(entries(), num_steps=STEPS, seed=1)
        return (point for point in points if point.step not in (2, 7) or run.stop(wait=False) is None)

    run = BackgroundRun(stopping_itself)
    for made in (2, 7):
        run.start()
        run._thread.join()
        assert (run.state, len(run.points)) == ("stopped", made)
    run.advance()
    assert run.state == "finished" and run.points == straight


def test_a_schedule_that_diverges_ends_its_line_and_the_others_go_on():
    calm = list(race_points(standard_entries(STEPS), num_steps=STEPS))
    points = list(race_points(entries(lr=1e6), num_steps=STEPS))
    drawn = [YOURS in point.values for point in points]
    assert drawn[0] and not drawn[-1] and drawn == sorted(drawn, reverse=True)
    assert [{name: value for name, value in p.values.items() if name != YOURS} for p in points] == [
        dict(p.values) for p in calm
    ]
    assert points[-1].notes == {"your lr": 1e6, SHARE: math.inf} and not lab_schedules._reached(points[-1])


# --- the lab --------------------------------------------------------------------------------------------------


@pytest.fixture
def finished_race():
    falling = [2.0 - step / 10 for step in range(STEPS)]
    losses = {"flat": {0: [2.0] * STEPS, 1: [2.2] * STEPS}, "falling": {0: falling, 1: falling}}
    return Race(STEPS, losses)


def lab_with(result, num_steps=STEPS):
    return lr_race_lab(result=result, num_steps=num_steps)


def test_the_knobs_are_read_when_a_run_starts_and_not_while_it_runs(finished_race, monkeypatch):
    raced = []
    monkeypatch.setattr(lab_schedules, "race_points", lambda entries, **how: raced.append((entries, how)) or iter([]))
    lab = lab_with(finished_race)
    kind, peak, warmup, seed = lab.knobs
    lab.run.advance(1)
    kind.value, peak.value, warmup.value, seed.value = "warm-up + cosine", 0.03, 0.5, 4
    lab.run.reset()
    lab.run.advance(1)
    assert [(tuple(entries), entries[YOURS].lr, how) for entries, how in raced] == [
        (SLIDES, 1e-3, {"num_steps": STEPS, "seed": 0}),
        (SLIDES, 0.03, {"num_steps": STEPS, "seed": 4}),
    ]
    assert [entries[YOURS].factor_fn(0) for entries, _ in raced] == [1.0, pytest.approx(1 / 6)]


def test_a_knob_that_moves_meanwhile_changes_nothing_before_the_next_start(finished_race):
    lab = lab_with(finished_race)
    lab.run.advance(2)
    lab.knobs[1].value = 0.1
    lab.run.advance()
    assert [point.notes["your lr"] for point in lab.run.points] == [1e-3] * STEPS
    assert "setting has changed" in lab.note.value


@pytest.mark.parametrize(
    "step, yours, slow, reached",
    [
        (10, 0.6, 1.0, True),
        (10, 0.61, 1.0, False),
        (9, 0.1, 1.0, False),
        (10, None, 1.0, False),
        (10, 0.6, None, False),
    ],
)
def test_the_goal_is_reached_only_at_the_end_and_by_six_tenths_of_the_constants_loss(
    finished_race, monkeypatch, step, yours, slow, reached
):
    values = {name: value for name, value in ((YOURS, yours), (SLOW, slow)) if value is not None}
    monkeypatch.setattr(lab_schedules, "race_points", lambda *_, **how: iter([Point(step, 10, values)]))
    lab = lab_with(finished_race)
    lab.run.advance()
    assert lab.reached is reached and GOAL == 0.6
    assert ("\u2713 reached" if reached else "\u25cb not reached yet") in lab.note.value


def test_a_race_of_the_lab_is_told_in_one_line_with_the_share_that_the_goal_names(finished_race):
    lab = lab_with(finished_race)
    lab.run.advance()
    line = rf"finished: step {STEPS} of {STEPS} · your lr 0\.001 · share of the constant's loss \d\.\d{{3}}<"
    assert re.search(line, html.unescape(lab.status.value))
    words = re.search('aria-label="(.*?)"', lab.figure.value)[1]
    assert all(f"{name} " in words for name in SLIDES)
    assert lab.figure.value.count("<polyline") == 4
    assert repr(lab) == "[live experiment schedules: controls in JupyterLab with ipywidgets; a still picture follows]"


def test_a_lab_whose_schedule_diverges_finishes_without_an_error(finished_race, monkeypatch):
    monkeypatch.setattr(lab_schedules, "LRS", (1e-3, 1e6))
    lab = lab_with(finished_race)
    lab.knobs[1].value = 1e6
    lab.run.advance()
    assert (lab.run.state, lab.reached) == ("finished", False) and "live-error" not in lab.note.value
    assert "nan" not in lab.figure.value and "inf," not in lab.figure.value


def test_the_words_of_the_still_twin_are_decided_facts(finished_race):
    expected = "Training loss of 2 schedules over 12 steps, mean of 20 steps and of 2 seeds. Highest at the end: flat. "
    expected += "The axis is cut to where they end."
    assert still_race(finished_race).alt == expected
    lines = still_race(finished_race).fig.axes[0].lines
    assert [line.get_ydata()[-1] for line in lines] == pytest.approx([2.1, np.mean([2 - k / 10 for k in range(STEPS)])])


def test_a_lab_without_a_race_makes_one_of_the_standard_entries():
    alt = lr_race_lab(num_steps=STEPS).still.alt
    assert alt.startswith("Training loss of 3 schedules over 12 steps, mean of 20 steps and of 1 seed.")
    assert f"Highest at the end: {SLOW}." in alt


def test_the_race_of_the_lab_starts_alike_for_all():
    runners = Runners(entries(), num_steps=1, **lab_schedules._course_data())
    first = next(iter(runners))
    assert len({row["loss"] for row in first.values()}) == 1
