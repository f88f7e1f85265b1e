"""Chapter 00 and the live machinery as a reader meets them: in JupyterLab, in a browser, with a kernel."""

import re

import pytest

from tests.browser.lab_page import absent, find_chromium, write_notebook

CHAPTER = "notebooks/00_start_here.ipynb"
STEP = re.compile(r"step (\d+) of \d+")


def step_shown(lab):
    return int(STEP.search(lab.outputs.locator(".live-status").inner_text())[1])


def places(lab):
    """Where the controls, the curve and the line below them are, from the panel's top; and the panel's height."""
    panel = lab.outputs.locator(".live-lab").bounding_box()
    parts = [
        lab.outputs.locator(name).first.bounding_box() for name in (".live-lab button", "svg[role=img]", ".live-goal")
    ]
    return [round(part["y"] - panel["y"], 1) for part in parts], panel["height"]


def wait_for_step(lab, more_than):
    """Wait until the progress text tells a later step; returns it."""
    shown = "Number((document.querySelector('.live-status')?.innerText.match(/step (\\d+)/) ?? [0, 0])[1])"
    lab.page.wait_for_function(f"least => {shown} > least", arg=more_than, timeout=20_000)
    return step_shown(lab)


def test_the_first_experiment_trains_stops_goes_on_and_leaves_its_picture(lab_page, screenshot):
    from playwright.sync_api import expect

    lab = lab_page(CHAPTER)
    assert lab.run_cells("setup", "live") >= 2
    curve, line = lab.outputs.locator("svg[role=img]"), lab.outputs.locator("svg[role=img] polyline")
    expect(curve).to_be_visible()
    expect(line).to_have_count(0)
    at_first = places(lab)

    lab.button("Train").click()
    first = wait_for_step(lab, 20)
    picture = line.get_attribute("points")
    wait_for_step(lab, first)
    assert line.get_attribute("points") != picture and places(lab) == at_first
    lab.button("Stop").click()
    expect(lab.outputs.get_by_text(re.compile("^stopped: step"))).to_be_visible()
    stopped = step_shown(lab)

    screenshot(lab.outputs.locator(".live-lab"), "start_here.png")
    lab.button("Go on").click()
    expect(lab.outputs.get_by_text(re.compile("^finished: step"))).to_be_visible(timeout=30_000)
    assert step_shown(lab) > stopped
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()
    assert places(lab) == at_first and lab.trouble() == []

    assert "widgets" not in lab.save()["metadata"]
    again = lab_page(lab.copy_saved("notebooks/saved.ipynb"), alone=True)
    again.scroll_to_live()
    expect(again.outputs.locator("img[src^='data:image/png']").first).to_be_visible()
    expect(again.outputs.get_by_text("is over 85 %: True")).to_be_visible()


SETUP = """
from course_utils import figures
from course_utils.labs import Goal, LiveRun, Point, Still, choice, number
"""
LIVE = """
height, shape = number("height", 1, low=1, high=9, step=1), choice("shape", ["rising", "falling"], "rising")

def run():
    top, sign = height.value, 1 if shape.value == "rising" else -1
    return iter([Point(x, 5, {"rising": top * x} if sign > 0 else {"falling": top * (5 - x)}) for x in range(6)])

still = Still(figures.axes(title="t", xlabel="step", ylabel="y")[0], "a line")
goal = Goal("a height of 3 or more", lambda point: max(point.values.values()) >= 15)
LiveRun("knobs", run, title="A line", ylabel="y", still=still, knobs=[height, shape], goal=goal)
"""


def test_a_slider_and_a_dropdown_reach_the_next_run_and_the_goal(lab_page, lab_server):
    from playwright.sync_api import expect

    lab = lab_page(write_notebook(lab_server[2], "knobs.ipynb", {"setup": SETUP, "live": LIVE}))
    assert lab.run_cells("setup", "live") == 2
    lab.button("Train").click()
    curve = lab.outputs.locator("svg[role=img]")
    expect(curve.get_by_text("rising")).to_be_visible()
    expect(lab.outputs.get_by_text("\u25cb not reached yet")).to_be_visible()
    lab.outputs.locator(".widget-slider .noUi-handle").focus()
    for _ in range(2):
        lab.page.keyboard.press("ArrowRight")
    expect(lab.outputs.locator(".widget-readout")).to_have_text("3")
    lab.outputs.locator(".widget-dropdown select").select_option("falling")
    expect(lab.outputs.get_by_text("A setting has changed")).to_be_visible()
    lab.button("From the start").click()
    expect(curve.get_by_text("falling")).to_be_visible()
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()
    assert lab.trouble() == []


BROKEN = """
def broken(change):
    raise ValueError("planted in a callback")

def run():
    def points():
        yield Point(1, 2, {"loss": 1.0})
        raise ValueError("planted in a step")
    return points()

knob = number("lr", 1, low=1, high=9, step=1)
knob.observe(broken, "value")
still = Still(figures.axes(title="t", xlabel="step", ylabel="y")[0], "a line")
LiveRun("broken", run, title="t", ylabel="y", still=still, knobs=[knob])
"""


def test_the_control_a_callback_or_a_step_that_raises_is_noticed(lab_page, lab_server):
    from playwright.sync_api import expect

    lab = lab_page(write_notebook(lab_server[2], "broken.ipynb", {"setup": SETUP, "live": BROKEN}))
    lab.run_cells("setup", "live")
    assert lab.trouble() == []
    lab.outputs.locator(".widget-slider .noUi-handle").focus()
    lab.page.keyboard.press("ArrowRight")
    lab.page.wait_for_function("() => window.trouble.length > 0", timeout=10_000)
    assert "ValueError: planted in a callback" in lab.trouble()
    lab.button("Train").click()
    expect(lab.outputs.get_by_role("alert")).to_contain_text("ValueError: planted in a step")
    assert any(words.startswith("shown: ") for words in lab.trouble())


@pytest.mark.parametrize("name, value", [("CI", "true"), ("COURSE_BROWSER", "required")])
def test_without_a_browser_the_tests_skip_but_fail_where_they_must_run(monkeypatch, name, value):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("COURSE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser"):
        absent("no browser")
    monkeypatch.setenv(name, value)
    with pytest.raises(pytest.fail.Exception, match="must run here, but no browser"):
        absent("no browser")


def test_a_browser_is_found_on_the_path_or_where_playwright_keeps_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert find_chromium(str(tmp_path / "chrome")) is None
    (tmp_path / "chrome").touch()
    assert find_chromium(str(tmp_path / "chrome")) == str(tmp_path / "chrome")
    monkeypatch.setattr("shutil.which", lambda name: __file__ if name == "google-chrome" else None)
    assert find_chromium(str(tmp_path / "chrome")) == __file__
