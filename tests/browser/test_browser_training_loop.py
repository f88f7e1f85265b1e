"""Chapter 05's experiment as a reader meets it: predict an order, step through it by keyboard, write one's own."""

import re

from course_utils.labs.training_loop_orders import drawn, run_of
from tests.browser.lab_page import write_notebook

CELLS = {"setup": "from course_utils.labs.training_loop import update_lab", "live": "update_lab()"}


def test_eight_orders_are_predicted_one_is_stepped_through_by_keyboard_and_one_is_ones_own(
    lab_page, lab_server, screenshot
):
    from playwright.sync_api import expect

    lab = lab_page(write_notebook(lab_server[2], "training_loop.ipynb", CELLS))
    assert lab.run_cells("setup", "live") == 2
    status, told = lab.outputs.locator(".live-status"), lab.outputs.locator(".update-verdict")
    expect(status).to_have_text("predicted right: 0 of 0 · not run yet: 8")
    lab.button("Next action").click()
    expect(lab.outputs.get_by_text("Predict first: what does this order do?")).to_be_visible()

    for number, (letter, order) in enumerate(drawn(0).items(), start=1):
        lab.outputs.get_by_label("Order", exact=True).select_option(letter)
        verdict = run_of(order).verdict
        lab.button(verdict.capitalize()).click()
        expect(lab.outputs.locator(".update-said")).to_have_text(f"You predict: {verdict}.")
        if letter == "D":
            lab.button("Next action").focus()
            for made in range(1, 5):
                lab.page.keyboard.press("Enter")
                expect(lab.outputs.locator(".trace-made")).to_have_count(made)
        lab.button("Run to the end").click()
        expect(told).to_have_text(re.compile("^\u2713 Right: it " + verdict))
        expect(status).to_have_text(re.compile(f"^predicted right: {number} of {number}"))
        if letter == "H":
            screenshot(lab.outputs.locator(".live-lab"), "training_loop.png")
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()

    lab.outputs.get_by_label("1", exact=True).select_option("step")
    expect(lab.outputs.get_by_label("Order", exact=True)).to_have_value("your own")
    lab.button("Raises").click()
    lab.button("Run to the end").click()
    expect(told).to_have_text(re.compile("^\u2717 Not so, you said|^\u2713 Right"))
    lab.button("Reset").click()  # other orders: the answers of these were told
    expect(status).to_have_text("predicted right: 0 of 0 · not run yet: 8")
    expect(lab.outputs.get_by_label("Orders asked (seed)")).to_have_value("1")
    assert lab.trouble() == []
