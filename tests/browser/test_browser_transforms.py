"""Chapter 02's experiment as a reader meets it: sliders by keyboard, photos and numbers that follow, the goal."""

import re

from tests.browser.lab_page import write_notebook

CELLS = {"setup": "from course_utils.labs.transforms import augmentation_lab", "live": "augmentation_lab()"}


def test_sliders_change_photos_numbers_and_code_and_reach_the_goal(lab_page, lab_server, screenshot):
    from playwright.sync_api import expect

    lab = lab_page(write_notebook(lab_server[2], "transforms.ipynb", CELLS))
    assert lab.run_cells("setup", "live") == 2
    status, code = lab.outputs.locator(".live-status"), lab.outputs.locator(".studio-code")
    expect(status).to_have_text(re.compile(r"recognises 100% .* mean pixel change 0\.0 of 255"), timeout=30_000)
    expect(code).to_have_text("v2.Identity()")
    photo = lab.outputs.get_by_alt_text(re.compile("after the transforms")).first
    before = photo.get_attribute("src")

    lab.outputs.locator(".widget-slider .noUi-handle").nth(3).focus()
    lab.page.keyboard.press("ArrowRight")
    expect(code).to_contain_text("v2.ColorJitter(brightness=0.1, contrast=0.1)")
    expect(status).not_to_have_text(re.compile("change 0.0 of 255"))
    assert photo.get_attribute("src") != before
    expect(lab.outputs.get_by_text("\u25cb not reached yet")).to_be_visible()

    for slider, key in ((1, "ArrowLeft"), (2, "ArrowRight"), *[(4, "ArrowRight")] * 3):
        lab.outputs.locator(".widget-slider .noUi-handle").nth(slider).focus()
        lab.page.keyboard.press(key)
    expect(code).to_contain_text("v2.RandomResizedCrop(size=64, scale=(0.9, 1.0))")
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible(timeout=20_000)
    expect(status).to_have_text(re.compile("kinds that change 5 or more: 4$"))
    expect(lab.outputs.locator(".studio-alone")).to_have_text(re.compile("turn: change .*, .* recognised"))
    screenshot(lab.outputs.locator(".live-lab"), "transforms.png")

    lab.button("Reset").click()
    expect(code).to_have_text("v2.Identity()")
    assert photo.get_attribute("src") == before and lab.trouble() == []
