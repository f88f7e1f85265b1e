"""Chapter 11's experiment as a reader meets it: look at a loop, name the bottleneck, ask the tool."""

import re

from course_utils.labs.profiling_pipelines import CASES, order

CHAPTER = "notebooks/11_profiling.ipynb"


def test_all_five_are_named_one_is_measured_here_and_the_goal_is_reached(lab_page, screenshot):
    from playwright.sync_api import expect

    lab = lab_page(CHAPTER)
    assert lab.run_cells("setup") and lab.run_cells("live") == 1
    status, told = lab.outputs.locator(".live-status"), lab.outputs.locator(".pipeline-told")
    expect(status).to_have_text("named right before the tool did: 0 of 0 · not asked about yet: 5")
    lab.button("Ask the tool").click()
    expect(lab.outputs.get_by_text("Name the bottleneck of pipeline A first.")).to_be_visible()

    lab.button("Loader and step alone").click()
    expect(lab.outputs.locator(".pipeline-alone")).to_contain_text("The loader alone")
    for number, (letter, name) in enumerate(order(0).items()):
        lab.outputs.get_by_label("Pipeline").select_option(letter)
        expect(lab.outputs.locator(".pipeline-head")).to_contain_text(f"Pipeline {letter}")
        verdict = CASES[name].verdict
        lab.button(verdict.capitalize()).click()
        expect(lab.outputs.locator(".pipeline-named")).to_have_text(f"You say: {verdict}")
        lab.button("Ask the tool").click()
        if number == 0:
            expect(lab.outputs.get_by_text(re.compile("^Measuring pipeline A: "))).to_be_visible()
        expect(told).to_contain_text("\u2713 Right", timeout=30_000)
        expect(status).to_contain_text(f"{number + 1} of {number + 1}")
        if number == 0:
            lab.outputs.get_by_label("The tool's times").select_option("stored")
        if name == "dear hand-over":
            screenshot(lab.outputs.locator(".live-lab"), "profiling.png")
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()

    lab.button("Reset").click()
    expect(status).to_have_text("named right before the tool did: 0 of 0 · not asked about yet: 5")
    assert lab.trouble() == []
