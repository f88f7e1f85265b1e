"""Chapter 01's experiment as a reader meets it: switch tools on, mark lines, find what three tools tell."""

from course_utils.catalogue import make_catalogue, read_manifest
from course_utils.labs.datasets import NUM_PRODUCTS, SEED
from course_utils.labs.datasets_inspection import ACCEPTED, KINDS
from tests.browser.lab_page import write_notebook

CELLS = {"setup": "from course_utils.labs.datasets import inspect_lab", "live": "inspect_lab()"}


def lines_with(files, paths):
    """Numbers of the list's lines that tell one of `paths`."""
    names = [
        text.replace("\xa0", " ").split("  = ")[0].split()[-1] for text in files.locator("option").all_inner_texts()
    ]
    return [number for number, name in enumerate(names) if name.rstrip("/") in paths]


def test_all_that_three_tools_tell_is_found_and_the_goal_is_reached(lab_page, lab_server, screenshot, tmp_path):
    from playwright.sync_api import expect

    planted = read_manifest(make_catalogue(tmp_path / "c", num_products=NUM_PRODUCTS, seed=SEED, messy=True))["planted"]
    lab = lab_page(write_notebook(lab_server[2], "datasets.ipynb", CELLS))
    assert lab.run_cells("setup", "live") == 2
    status, files = lab.outputs.locator(".live-status"), lab.outputs.locator(".inspect-files select")
    expect(status).to_have_text("found 0 of 19 · tools paid 0 of 3 · 0 false alarms")
    lab.button("Mark").first.click()
    expect(lab.outputs.get_by_role("alert")).to_contain_text("no line is chosen")

    lab.outputs.get_by_label("Look into").select_option("sneaker")
    expect(files.locator("option")).to_have_count(18)
    files.select_option(index=[0])
    lab.button("Mark").first.click()
    expect(status).to_have_text("found 0 of 19 · tools paid 0 of 3 · 1 false alarm")
    lab.button("Remove mark").click()
    expect(status).to_have_text("found 0 of 19 · tools paid 0 of 3 · 0 false alarms")
    expect(lab.outputs.get_by_alt_text("photo 00004_0.jpg")).to_have_count(0)
    for label in ("Read headers", "Decode every file"):
        lab.outputs.get_by_text(label, exact=True).click()
    expect(files.locator("option").first).to_contain_text("RGB")
    expect(lab.outputs.get_by_alt_text("photo 00004_0.jpg")).to_be_visible()
    files.select_option(index=lines_with(files, ["00028_0.jpg"]))
    lab.outputs.get_by_label("Mark as").select_option("stored on its side")
    lab.button("Mark").first.click()
    expect(status).to_have_text("found 1 of 19 · tools paid 2 of 3 · 0 false alarms")
    screenshot(lab.outputs.locator(".live-lab"), "datasets.png")
    lab.button("Reset").click()
    expect(status).to_have_text("found 0 of 19 · tools paid 0 of 3 · 0 false alarms")

    for label in ("Show hidden names", "Read headers", "Compare contents"):
        lab.outputs.get_by_text(label, exact=True).click()
    lab.outputs.get_by_label("Look into").select_option("every folder")
    expect(files.locator("option")).to_have_count(77)
    told = [fault for fault in planted if fault["fault"] != "truncated"]  # decoding alone tells that one
    for number, kind in enumerate(KINDS):
        paths = [fault["path"] for fault in told if ACCEPTED[fault["fault"]][0] == kind]
        files.select_option(index=lines_with(files, paths))
        lab.outputs.get_by_label("Mark as").select_option(kind)
        lab.button("Mark").first.click()
        done = sum(KINDS.index(ACCEPTED[fault["fault"]][0]) <= number for fault in told)
        expect(status).to_have_text(f"found {done} of 19 · tools paid 3 of 3 · 0 false alarms")
    expect(lab.outputs.get_by_text("\u2713 reached")).to_be_visible()
    lab.outputs.get_by_text("Decode every file", exact=True).click()
    expect(status).to_contain_text("tools paid 4 of 3")
    assert lab.trouble() == []
