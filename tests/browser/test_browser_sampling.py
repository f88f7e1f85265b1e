"""Chapter 03's experiment as a reader meets it: choose a sampler, an exponent and a length, reach the goal."""

import re

from tests.browser.lab_page import write_notebook

CELLS = {"setup": "from course_utils.labs.sampling import sampler_lab", "live": "sampler_lab()"}


def test_weights_and_enough_draws_reach_the_goal_by_dropdown_and_keyboard(lab_page, lab_server, screenshot):
    from playwright.sync_api import expect

    lab = lab_page(write_notebook(lab_server[2], "sampling.ipynb", CELLS))
    assert lab.run_cells("setup", "live") == 2
    status, bars = lab.outputs.locator(".live-status"), lab.outputs.locator("svg[role=img]")
    expect(status).to_have_text(re.compile(r"^391 draws in 1 epoch · max/min class count 9\.43 · never seen: 0 of 391"))
    expect(bars).to_have_attribute("aria-label", re.compile("sneaker 132"))

    lab.outputs.get_by_label("Sampler").select_option("weighted")
    lab.outputs.locator(".widget-slider .noUi-handle").focus()
    for _ in range(4):
        lab.page.keyboard.press("ArrowRight")
    expect(lab.outputs.locator(".widget-readout")).to_have_text("1.00")
    expect(bars).not_to_have_attribute("aria-label", re.compile("sneaker 132"))
    expect(status).to_have_text(
        re.compile(r"^391 draws in 1 epoch · max/min class count 1\.\d\d · never seen: 1\d\d of 391")
    )
    expect(lab.outputs.get_by_text("\u25cb not reached yet")).to_be_visible()

    lab.outputs.get_by_label("Epochs drawn").select_option("20")
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()
    expect(status).to_have_text(re.compile(r"^7,820 draws in 20 epochs · max/min class count 1\.1"))
    screenshot(lab.outputs.locator(".live-lab"), "sampling.png")

    lab.button("Reset").click()
    expect(lab.outputs.get_by_text("\u25cb not reached yet")).to_be_visible()
    expect(status).to_have_text(re.compile(r"^391 draws in 1 epoch · max/min class count 9\.43"))

    lab.outputs.get_by_label("Sampler").select_option("undersampling")
    lab.outputs.get_by_label("Epochs drawn").select_option("20")
    expect(status).to_have_text(re.compile(r"max/min class count 1\.00 · never seen: 11 of 391"))
    expect(lab.outputs.get_by_text("\u25cb not reached yet")).to_be_visible()
    lab.outputs.get_by_label("Epochs drawn").select_option("50")
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()
    assert lab.trouble() == []
