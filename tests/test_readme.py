"""The README says what is there: its links, its table of chapters, its code."""

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert targets or page != "README.md"
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_a_link_within_the_readme_names_a_heading():
    headings = [line.lower() for line in re.findall(r"^#+ (.*)$", README, re.M)]
    headings = {re.sub(r"[^a-z0-9 -]", "", line).replace(" ", "-") for line in headings}
    anchors = re.findall(r"\]\(#([^)]+)\)", README)
    assert anchors and set(anchors) <= headings


def test_the_table_of_chapters_says_which_are_there_and_how_long_each_takes():
    rows = re.findall(r"^\| (\d\d) \| (.*?) \| .* \| (.*?) \|$", README, re.M)
    shipped = {path.name[:2]: path for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    assert shipped and [number for number, _, _ in rows] == [f"{number:02d}" for number in range(14)]
    for number, chapter, state in rows:
        if number not in shipped:
            assert (state, "](" in chapter) == ("planned", False)
            continue
        assert f"(notebooks/{shipped[number].name})" in chapter
        first_cell = "".join(json.loads(shipped[number].read_text(encoding="utf-8"))["cells"][0]["source"])
        assert state == f"here, {re.search(r'[0-9]+ minutes', first_cell)[0]}"


def test_the_code_for_ones_own_images_runs(tmp_path, monkeypatch):
    for name, mode in (("cat/a.jpg", "RGB"), ("cat/b.jpg", "L"), ("dog/a.jpg", "CMYK")):
        path = tmp_path / "my_images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, (120, 80)).save(path)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(re.search(r"```python\n(.*?)```", README, re.S)[1], names)  # noqa: S102
    dataset = names["dataset"]
    assert dataset.classes == ("cat", "dog") and dataset.targets.tolist() == [0, 0, 1]
    assert dataset[1][0].shape == (3, 96, 96) and dataset[1][0].dtype == torch.uint8
