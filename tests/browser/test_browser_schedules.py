"""Chapter 07's lr race as a reader meets it: choose a schedule, train, stop, go on, reach the goal."""

import re

CHAPTER = "notebooks/07_schedules.ipynb"
# What the cells between the imports and the race would leave, made in a second: the picture below the controls.
SHORT_RACE = """
from course_utils.labs.schedules import standard_entries
result = race(standard_entries(20), num_steps=20, build=small_cnn, dataset=train_set)
"""
NAMES = ["yours", "constant 3e-4", "exponential", "warm-up + cosine"]


def lines(lab):
    """The points of each line, as the picture has them now."""
    return [line.get_attribute("points").split() for line in lab.outputs.locator("svg[role=img] polyline").all()]


def state(lab, word):
    return lab.outputs.locator(".live-status").get_by_text(re.compile(f"^{word}: step"))


def choose(lab, label, option):
    lab.outputs.get_by_label(label).select_option(option)


def test_the_readers_schedule_is_chosen_races_three_others_and_reaches_the_goal(lab_page, screenshot):
    from playwright.sync_api import expect

    lab = lab_page(CHAPTER)
    assert lab.run_cells("setup") == 2
    lab.run_code(SHORT_RACE)
    assert lab.run_cells("live") == 1
    assert lines(lab) == []

    choose(lab, "Your schedule", "warm-up + cosine")
    choose(lab, "Peak lr", "0.01")
    lab.outputs.locator(".widget-slider .noUi-handle").focus()
    lab.page.keyboard.press("ArrowLeft")
    expect(lab.outputs.locator(".widget-readout")).to_have_text("0.05")

    lab.button("Train").click()
    expect(lab.outputs.locator("svg[role=img] polyline")).to_have_count(4)
    lab.button("Stop").click()
    expect(state(lab, "stopped")).to_be_visible()
    stopped = lines(lab)
    for name in NAMES:
        expect(lab.outputs.locator("svg[role=img]").get_by_text(name)).to_be_visible()
    expect(lab.outputs.get_by_text("\u25cb not reached yet")).to_be_visible()

    lab.button("Go on").click()
    expect(state(lab, "finished")).to_be_visible(timeout=30_000)
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()
    finished = lines(lab)
    assert [len(after) > len(before) for before, after in zip(stopped, finished, strict=True)] == [True] * 4
    screenshot(lab.outputs.locator(".live-lab"), "schedules.png")

    lab.button("From the start").click()
    expect(lab.outputs.get_by_text("\u25cb not reached yet")).to_be_visible()
    expect(state(lab, "finished")).to_be_visible(timeout=30_000)
    assert lines(lab) == finished and lab.trouble() == []
