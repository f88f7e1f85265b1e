"""Chapter 06's experiment as a reader meets it: cut a window, move a cut, choose a rule, say that none does it."""

import re

from tests.browser.lab_page import write_notebook

CELLS = {"setup": "from course_utils.labs.optimizer_step import micro_batch_lab", "live": "micro_batch_lab()"}


def test_a_window_is_cut_by_keyboard_a_rule_is_found_and_batchnorm_has_none(lab_page, lab_server, screenshot):
    from playwright.sync_api import expect

    lab = lab_page(write_notebook(lab_server[2], "optimizer_step.ipynb", CELLS))
    assert lab.run_cells("setup", "live") == 2
    status, told = lab.outputs.locator(".live-status"), lab.outputs.locator(".window-verdict")
    score, rule = lab.outputs.locator(".window-score"), lab.outputs.get_by_label("Rule", exact=True)
    expect(told).to_have_text(re.compile("^\u25cb It keeps 4.0 times the memory limit: raise Micro-batches"))

    lab.outputs.get_by_label("Situation").select_option("short captions first")
    expect(status).to_have_text(re.compile("captions: not cut$"))
    lab.move_slider("Micro-batches", "ArrowRight", 4)
    expect(status).to_have_text(re.compile(r"captions: 7 \+ 7 \+ 7 \+ 7 \+ 3$"))
    expect(told).to_have_text(re.compile("move the cuts: only the largest part counts"))
    for number, steps in ((4, -1), (3, 2), (2, 4), (1, 5)):
        lab.move_slider(f"Cut {number}", "ArrowRight" if steps > 0 else "ArrowLeft", abs(steps))
    expect(status).to_have_text(re.compile(r"captions: 12 \+ 6 \+ 5 \+ 4 \+ 4$"))
    rule.select_option("by examples")
    expect(told).to_have_text(re.compile("^\u25cb The gradient is off by .*: another direction"))
    rule.select_option("by targets")
    expect(told).to_have_text(
        re.compile("^\u2713 The whole batch's gradient, and it fits. A micro-batch is as long as")
    )
    expect(score).to_contain_text("Solved 1 of 7")
    screenshot(lab.outputs.locator(".live-lab"), "optimizer_step.png")
    lab.button("No rule does it").click()
    expect(told).to_have_text(re.compile("^\u2713 The rule in view does it"))

    lab.outputs.get_by_label("Situation").select_option("BatchNorm")
    expect(status).to_have_text(re.compile("captions: not cut$"))
    lab.move_slider("Micro-batches", "ArrowRight", 3)
    expect(status).to_have_text(re.compile(r"captions: 8 \+ 8 \+ 8 \+ 8$"))
    lab.button("No rule does it").click()
    expect(told).to_have_text(re.compile("^\u25cb Try 3 rules on this cut first"))
    for name in ("mean of means", "by targets"):
        rule.select_option(name)
        expect(told).to_have_text(re.compile("^\u25cb The gradient is off by"))
    lab.button("No rule does it").click()
    expect(told).to_have_text(re.compile("^\u2713 Right: with this cut no rule"))
    expect(score).to_contain_text("Solved 2 of 7")

    lab.move_slider("Planned parts", "ArrowRight", 1)
    expect(lab.outputs.get_by_label("Situation")).to_have_value("your own window")
    lab.button("Reset").click()
    expect(score).to_contain_text("Solved 0 of 7")
    expect(lab.outputs.get_by_label("Situation")).to_have_value("equal parts")
    assert lab.trouble() == []
