"""Chapter 04's experiment as a reader meets it: turn workers up, say that none will do, measure here."""

import re

from tests.browser.lab_page import write_notebook

CELLS = {"setup": "from course_utils.labs.loaders import pipeline_lab", "live": "pipeline_lab()"}


def press(lab, label, key, times):
    """Move the slider of this label by its keys."""
    handle = lab.outputs.locator(".widget-slider", has_text=label).locator(".noUi-handle")
    handle.focus()
    for _ in range(times):
        lab.page.keyboard.press(key)


def test_the_fewest_workers_are_found_none_is_said_rightly_and_the_loop_is_measured_here(
    lab_page, lab_server, screenshot
):
    from playwright.sync_api import expect

    lab = lab_page(write_notebook(lab_server[2], "loaders.ipynb", CELLS))
    assert lab.run_cells("setup", "live") == 2
    status, told = lab.outputs.locator(".live-status"), lab.outputs.locator(".pipeline-verdict")
    picture = lab.outputs.locator("svg[role=img]")
    expect(status).to_have_text(re.compile(r"^the step waits 75\.0% of the time"))
    expect(picture).to_have_attribute("aria-label", re.compile("^Timeline of the trainer alone"))

    press(lab, "Workers", "ArrowRight", 2)
    expect(told).to_have_text("\u25cb The step waits 33% of the time.")
    expect(picture).to_have_attribute("aria-label", re.compile("^Timeline of 2 workers and the trainer"))
    lab.button("Measure here").click()
    expect(lab.button("Stop")).to_be_enabled()
    expect(lab.outputs.get_by_text(re.compile("^measured here, [0-9]+ turns"))).to_be_visible()
    expect(lab.outputs.get_by_text(re.compile("^Measured: 2 workers"))).to_be_visible(timeout=20_000)
    screenshot(lab.outputs.locator(".live-lab"), "loaders.png")
    press(lab, "Workers", "ArrowRight", 1)
    expect(told).to_have_text(re.compile(r"^\u2713 .* the fewest workers: 3\."))
    expect(lab.outputs.locator(".pipeline-score")).to_contain_text("Solved 1 of 6")

    lab.outputs.get_by_label("Pipeline").select_option("two cores, both compute")
    expect(told).to_have_text("\u25cb The step waits 75% of the time.")
    press(lab, "Workers", "ArrowRight", 4)
    expect(told).to_have_text(re.compile("nothing is won"))
    lab.button("No number of workers does it").click()
    expect(told).to_have_text(re.compile("^\u2713 Right"))
    expect(lab.outputs.locator(".pipeline-score")).to_contain_text("Solved 2 of 6")

    lab.button("Measure here").click()
    lab.button("Stop").click()
    expect(lab.outputs.get_by_text(re.compile("^(Stopped|Measured)"))).to_be_visible()
    lab.button("Reset").click()
    expect(lab.outputs.locator(".pipeline-score")).to_contain_text("Solved 0 of 6")
    expect(status).to_have_text(re.compile(r"^the step waits 75\.0% of the time"))
    assert lab.trouble() == []
