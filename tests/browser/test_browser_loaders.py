"""Chapter 04's experiment as a reader meets it: turn workers up, say that none will do, measure here."""

import re

CHAPTER = "notebooks/04_loaders.ipynb"


def test_the_fewest_workers_are_found_none_is_said_rightly_and_the_loop_is_measured_here(lab_page, screenshot):
    from playwright.sync_api import expect

    lab = lab_page(CHAPTER)
    assert lab.run_cells("setup") and lab.run_cells("live") == 1
    status, told = lab.outputs.locator(".live-status"), lab.outputs.locator(".pipeline-verdict")
    picture = lab.outputs.locator("svg[role=img]")
    expect(status).to_have_text(re.compile(r"^the step waits 75\.0% of the time"))
    expect(picture).to_have_attribute("aria-label", re.compile("^Timeline of the trainer alone"))

    lab.move_slider("Workers", "ArrowRight", 2)
    expect(told).to_have_text("\u25cb A turn is 50% longer than the step alone: the step waits 33% of the time.")
    expect(picture).to_have_attribute("aria-label", re.compile("^Timeline of 2 workers and the trainer"))
    lab.button("Measure here").click()
    expect(lab.button("Stop")).to_be_enabled()
    expect(lab.outputs.get_by_text(re.compile("^measured here, [0-9]+ turns"))).to_be_visible()
    expect(lab.outputs.get_by_text(re.compile("^Measured: 2 workers"))).to_be_visible(timeout=20_000)
    screenshot(lab.outputs.locator(".live-lab"), "loaders.png")
    lab.move_slider("Workers", "ArrowRight", 1)
    expect(told).to_have_text(re.compile(r"^\u2713 .* the fewest workers: 3\."))
    expect(lab.outputs.locator(".pipeline-score")).to_contain_text("Solved 1 of 6")

    lab.outputs.get_by_label("Pipeline").select_option("two cores, both compute")
    expect(told).to_have_text(re.compile("^\u25cb A turn is 300% longer"))
    lab.button("No number of workers does it").click()
    expect(told).to_have_text(re.compile("^\u25cb Look at 2 numbers of workers"))
    lab.move_slider("Workers", "ArrowRight", 4)
    expect(told).to_have_text(re.compile("it takes 20 ms instead of 10"))
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
