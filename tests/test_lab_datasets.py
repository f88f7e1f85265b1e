"""Chapter 01's experiment: what each tool shows of a folder with planted faults, what a mark is worth, and the page."""

import html
import io
import random
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.catalogue import make_catalogue, read_index
from course_utils.labs import datasets as lab_datasets
from course_utils.labs.datasets import SWITCHES, inspect_lab
from course_utils.labs.datasets_folder import TOOLS, Header, MessyFolder, read_header, thumbnail
from course_utils.labs.datasets_inspection import (
    ACCEPTED,
    BROKEN,
    CLUTTER,
    COPY,
    COPY_ELSEWHERE,
    EVERYTHING,
    KINDS,
    NOT_RGB,
    TOP,
    TURNED,
    Inspection,
    findable,
    most_findable,
    score,
)

pytestmark = pytest.mark.usefixtures("no_run_is_left")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("inspect") / "photos", num_products=20, seed=0, messy=True)


@pytest.fixture(scope="module")
def folder(root):
    """Read once for all tests; none changes a file of it."""
    return MessyFolder(root)


def paths(folder, *faults):
    return {fault["path"] for fault in folder.planted if fault["fault"] in faults}


# --- what the tools show --------------------------------------------------------------------------------------


def test_the_entries_are_all_files_and_folders_but_the_catalogues_own(folder, root):
    found = {entry.path for entry in folder.entries}
    oracle = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    assert oracle - found == {"manifest.json", *(f"index-{shard}-of-4.jsonl" for shard in range(4))}
    assert found <= oracle and [entry.path for entry in folder.entries] == sorted(found)


@pytest.mark.parametrize(
    "tool, faults",
    [
        ("file list", ["archive folder", "thumbnail database", "empty class", "empty file"]),
        ("hidden names", ["checkpoint folder", "checkpoint folder in a class", "hidden folder", "archive folder",
                          "hidden file", "resource fork"]),
        ("headers", ["resource fork", "not an image", "empty file", "grey", "alpha", "cmyk", "palette", "16-bit",
                     "rotated"]),
        ("decoding", ["resource fork", "truncated", "not an image", "empty file"]),
        ("contents", ["checkpoint folder", "checkpoint folder in a class", "hidden folder", "archive folder",
                      "resource fork", "duplicate product", "duplicate in another class"]),
    ],
)  # fmt: skip
def test_each_tool_shows_its_faults_and_no_good_photo(folder, tool, faults):
    copied = {fault["of"] for fault in folder.planted if "of" in fault}
    copied |= {path for path in folder.twins if path in {row["path"] for row in read_index(folder.root)}}
    shown = folder.shown_by(tool) - (copied if tool == "contents" else set())
    assert shown >= paths(folder, *faults)
    planted = {fault["path"] for fault in folder.planted}
    assert shown & planted == paths(folder, *faults)
    assert not shown & {row["path"] for row in read_index(folder.root)}


def test_every_planted_fault_is_shown_by_some_tool_and_has_its_kinds(folder):
    assert len(folder.planted) == 19
    assert all(folder.tools_for(fault["path"]) for fault in folder.planted)
    assert {fault["fault"] for fault in folder.planted} == set(ACCEPTED)
    assert {kind for kinds in ACCEPTED.values() for kind in kinds} == set(KINDS)


ALONE = [
    ({"file list"}, 4), ({"hidden names"}, 6), ({"headers"}, 8), ({"decoding"}, 3), ({"contents"}, 2), (set(), 0),
    ({"file list", "hidden names", "headers", "decoding"}, 17),
    ({"file list", "hidden names", "headers", "contents"}, 18), (set(TOOLS), 19),
]  # fmt: skip


@pytest.mark.parametrize("tools, number", ALONE)
def test_what_tools_tell_counts_only_lines_that_are_listed(folder, tools, number):
    assert len(findable(folder, tools)) == number


def test_the_best_three_tools_are_one_choice_and_miss_the_photo_that_was_cut_off(folder):
    assert [most_findable(folder, number) for number in (0, 1, 2, 3, 4)] == [4, 11, 16, 18, 19]
    choices = [set(TOOLS) - {left_out} for left_out in TOOLS[1:]]
    best = [tools for tools in choices if len(findable(folder, tools)) == 18]
    assert best == [set(TOOLS) - {"decoding"}]
    told = [fault["fault"] for fault in findable(folder, best[0])]
    assert {fault["fault"] for fault in folder.planted} - set(told) == {"truncated"}


def test_a_reader_with_the_tools_finds_what_findable_says_in_the_lines_alone(folder):
    for tools in [{"hidden names"}, {"headers"}, {"decoding"}, {"contents"}, {"hidden names", "contents"}]:
        plain, now = Inspection(folder), Inspection(folder)
        now.turn_on(tools)
        plain.place = now.place = EVERYTHING
        before = {plain.line(entry).split()[-1] for entry in plain.entries()}
        listed = {entry.path: now.line(entry).replace("\u00a0", " ") for entry in now.entries()}
        odd = ("no image header", "EXIF", " L ", " P ", "RGBA", "CMYK", "I;16", "FAILS", " = ")
        told = {path for path, line in listed.items() if path not in before or any(word in line for word in odd)}
        told = {path for path in told if "hidden names" in tools or not path.startswith(".")}
        assert folder.seen_with(tools) <= told


def test_originals_are_photos_in_place_whose_copies_are_hidden(folder):
    index = {row["path"] for row in read_index(folder.root)}
    assert folder.originals and folder.originals <= index
    assert not folder.originals & {fault.get("of") for fault in folder.planted}
    assert all(any("/." in f"/{twin}" for twin in folder.twins[path]) for path in folder.originals)


def test_headers_are_read_without_pixels(folder):
    headers = {fault["fault"]: folder.headers.get(fault["path"]) for fault in folder.planted}
    modes = {fault: headers[fault].mode for fault in ("grey", "alpha", "cmyk", "palette", "16-bit", "truncated")}
    assert modes == {
        "grey": "L", "alpha": "RGBA", "cmyk": "CMYK", "palette": "P", "16-bit": "I;16", "truncated": "RGB"
    }  # fmt: skip
    assert headers["rotated"].orientation == 6 and headers["grey"].orientation == 1
    assert headers["not an image"] is headers["empty file"] is None


def test_a_header_is_size_mode_and_orientation(tmp_path):
    Image.new("L", (5, 3)).save(tmp_path / "a.png")
    assert read_header(tmp_path / "a.png") == Header(5, 3, "L", 1)


def test_twins_are_the_files_with_the_same_bytes(folder):
    copy = next(fault for fault in folder.planted if fault["fault"] == "duplicate in another class")
    assert folder.twins[copy["path"]] == [copy["of"]] and folder.twins[copy["of"]] == [copy["path"]]
    assert all(len({(folder.root / path).read_bytes() for path in [one, *others]}) == 1
               for one, others in folder.twins.items())  # fmt: skip


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16", "1"])
def test_every_mode_has_a_thumbnail(tmp_path, mode):
    name = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.new(mode, (100, 50)).save(name)
    made = Image.open(io.BytesIO(thumbnail(name)))
    assert (made.format, made.mode, made.size) == ("JPEG", "RGB", (64, 32))


def test_a_thumbnail_of_16_bits_is_scaled_and_transparent_pixels_are_white(tmp_path):
    Image.fromarray(np.full((8, 8), 65535, dtype=np.uint16)).save(tmp_path / "deep.png")
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    grey, white = (np.asarray(Image.open(io.BytesIO(thumbnail(tmp_path / n)))) for n in ("deep.png", "clear.png"))
    assert (grey >= 253).all() and (white >= 253).all()


def test_a_photo_on_its_side_lies_in_its_thumbnail_and_a_broken_one_has_none(folder):
    (rotated,) = paths(folder, "rotated")
    header, made = folder.headers[rotated], Image.open(io.BytesIO(folder.thumbnails[rotated]))
    assert (made.width < made.height) is (header.width < header.height)
    broken = paths(folder, "truncated", "not an image", "empty file")
    assert len(broken) == 3 and not broken & set(folder.thumbnails)


def test_a_catalogue_without_faults_is_refused(tmp_path):
    with pytest.raises(ValueError, match="messy=True"):
        inspect_lab(make_catalogue(tmp_path / "clean", num_products=10, seed=0))


# --- what a mark is worth -------------------------------------------------------------------------------------

PLANTED = [
    {"fault": "grey", "path": "bag/1.jpg"},
    {"fault": "hidden folder", "path": ".thumbnails/2.jpg"},
    {"fault": "duplicate product", "path": "bag/3.jpg", "of": "bag/0.jpg"},
]


@pytest.mark.parametrize(
    "marks, found, other, alarms",
    [
        ({}, 0, 0, 0),
        ({"bag/1.jpg": NOT_RGB}, 1, 0, 0),
        ({"bag/1.jpg": BROKEN}, 0, 1, 0),
        ({".thumbnails": CLUTTER}, 1, 0, 0),
        ({".thumbnails": CLUTTER, ".thumbnails/2.jpg": CLUTTER}, 1, 0, 0),
        ({".thumbnails": COPY}, 1, 0, 0),
        ({".thumbnails/2.jpg": COPY_ELSEWHERE}, 1, 0, 0),
        ({".thumbnails/2.jpg": TURNED}, 0, 1, 0),
        ({"bag/3.jpg": COPY}, 1, 0, 0),
        ({"bag/0.jpg": COPY, "bag/3.jpg": COPY}, 1, 0, 0),
        ({"bag/0.jpg": COPY}, 1, 0, 0),
        ({"bag/0.jpg": NOT_RGB}, 0, 0, 1),
        ({"bag/3.jpg": COPY_ELSEWHERE}, 0, 1, 0),
        ({"bag": CLUTTER, "bag/9.jpg": TURNED}, 0, 0, 2),
        ({"bag/1.jpg": NOT_RGB, ".thumbnails": CLUTTER, "bag/3.jpg": COPY, "bag/9.jpg": COPY}, 3, 0, 1),
    ],
)
def test_marks_are_worth_what_was_worked_out_by_hand(marks, found, other, alarms):
    got = score(marks, PLANTED)
    assert (len(got.found), len(got.other_kind), len(got.false_alarms)) == (found, other, alarms)
    assert len(got.missing) == 3 - found


def test_an_original_marked_as_a_copy_is_no_false_alarm_and_with_another_kind_it_is():
    original = "bag/2.jpg"
    for kind, alarms in ((COPY, []), (COPY_ELSEWHERE, []), (BROKEN, [original])):
        got = score({original: kind}, PLANTED, originals={original})
        assert (got.found, got.other_kind, got.false_alarms) == ([], [], alarms)
        assert got.originals == ([] if alarms else [original])


@pytest.mark.parametrize("fault", ["not an image", "empty file"])
def test_a_file_without_an_image_may_be_called_broken_or_clutter(fault):
    planted = [{"fault": fault, "path": "bag/1.jpg"}]
    for kind in KINDS:
        assert bool(score({"bag/1.jpg": kind}, planted).found) is (kind in (BROKEN, CLUTTER))


def test_marking_everything_as_anything_is_no_way_to_the_goal(folder):
    for kind in KINDS:
        got = score(dict.fromkeys((entry.path for entry in folder.entries), kind), folder.planted)
        assert len(got.false_alarms) > 30 and got.missing


# --- the page -------------------------------------------------------------------------------------------------


def right_marks(folder):
    return {fault["path"]: ACCEPTED[fault["fault"]][0] for fault in folder.planted}


def choose(lab, *chosen, without=()):
    lab.place.value = EVERYTHING
    for tool, knob in lab.tools.items():
        knob.value = tool not in without
    lab.files.value = chosen


def button(lab, words):
    return next(button for button in lab.buttons if button.description == words)


def mark(lab, kind, *chosen, without=()):
    choose(lab, *chosen, without=without)
    lab.kind.value = kind
    button(lab, "Mark").click()


def test_the_goal_is_reached_with_three_tools_at_the_eighteenth_fault(root):
    lab = inspect_lab(root)
    assert not lab.reached and "found 0 of 19 \u00b7 tools paid 0 of 3 \u00b7 0 false alarms" in lab.status.value
    assert "18 of 19 faults found with 3 tools, and at most 2 false alarms" in lab.note.value
    told = {fault["path"] for fault in findable(lab.now.folder, set(TOOLS) - {"decoding"})}
    marks = [(path, kind) for path, kind in right_marks(lab.now.folder).items() if path in told]
    for number, (path, kind) in enumerate(marks, start=1):
        assert not lab.reached
        mark(lab, kind, path, without=["decoding"])
        assert f"found {number} of 19 \u00b7 tools paid 3 of 3 \u00b7 0 false alarms" in lab.status.value
    assert lab.reached and lab.error is None and "\u2713 reached" in lab.note.value


def test_a_tool_that_was_on_once_stays_paid_until_reset(root):
    lab = inspect_lab(root)
    for path, kind in right_marks(lab.now.folder).items():
        mark(lab, kind, path)
    lab.tools["decoding"].value = False
    assert "found 19 of 19 \u00b7 tools paid 4 of 3" in lab.status.value and not lab.reached
    lab.reset()
    assert lab.now.paid == set() and "found 0 of 19 \u00b7 tools paid 0 of 3" in lab.status.value


def test_fewer_faults_with_three_tools_are_not_enough(root):
    lab = inspect_lab(root)
    for fault in findable(lab.now.folder, set(TOOLS) - {"contents"}):
        mark(lab, ACCEPTED[fault["fault"]][0], fault["path"], without=["contents"])
    assert "found 17 of 19 \u00b7 tools paid 3 of 3" in lab.status.value and not lab.reached


@pytest.mark.parametrize("alarms, reached", [(2, True), (3, False)])
def test_two_false_alarms_are_forgiven_and_the_third_is_not(root, alarms, reached):
    lab = inspect_lab(root)
    good = [row["path"] for row in read_index(root) if row["path"] not in lab.now.folder.twins]
    mark(lab, TURNED, *good[:alarms], without=["decoding"])
    for path, kind in right_marks(lab.now.folder).items():
        mark(lab, kind, path, without=["decoding"])
    assert lab.reached is reached and f"{alarms} false alarms" in lab.status.value
    choose(lab, good[0], without=["decoding"])
    button(lab, "Remove mark").click()
    assert lab.reached


def test_an_original_is_told_as_one_when_it_is_marked_as_a_copy(root):
    lab = inspect_lab(root)
    original = min(lab.now.folder.originals)
    choose(lab, original)
    assert "it lies in its place" not in lab.figure.value
    mark(lab, COPY, original)
    assert "0 false alarms \u00b7 marked, but an original: 1" in lab.status.value
    assert "it lies in its place" in lab.figure.value


def test_what_is_missing_is_shown_on_request_only_and_ends_the_search(root):
    lab = inspect_lab(root)
    (grey,) = paths(lab.now.folder, "grey")
    mark(lab, NOT_RGB, grey)
    lab.place.value = TOP
    assert "inspect-missing" not in lab.figure.value
    button(lab, "Show what is missing").click()
    listed = lab.figure.value.split("inspect-missing")[1]
    assert listed.count("<li>") == 18 and grey not in listed and "shown by" in listed
    for path, kind in right_marks(lab.now.folder).items():
        mark(lab, kind, path)
    assert "Nothing is missing" in lab.figure.value and not lab.reached
    lab.reset()
    assert (lab.now.marks, lab.now.revealed, lab.place.value) == ({}, False, TOP)


def test_a_mark_without_a_chosen_line_says_what_to_do(root):
    lab = inspect_lab(root)
    button(lab, "Mark").click()
    assert "no line is chosen: click one in the list" in lab.note.value and lab.now.marks == {}


def texts(lab):
    return [line.replace("\u00a0", " ") for line, _ in lab.files.options]


def test_each_switch_adds_what_its_tool_shows_and_nothing_before(root):
    lab = inspect_lab(root)
    assert not any(name.startswith(".") for name in lab.place.options)
    lab.place.value = "sneaker"
    assert texts(lab)[0] == "   3,280 bytes    00004_0.jpg" and len(texts(lab)) == 18
    lab.tools["headers"].value = True
    assert any("EXIF 6" in line for line in texts(lab)) and any("no image header" in line for line in texts(lab))
    lab.tools["decoding"].value = True
    assert sum("FAILS" in line for line in texts(lab)) == 2
    lab.place.value = "t-shirt"
    lab.tools["contents"].value = True
    assert [line.split(" = ")[1] for line in texts(lab) if " = " in line] == [
        "t-shirt/00029_0.jpg",
        "t-shirt/00018_0.jpg",
    ]
    lab.tools["hidden names"].value = True
    assert {".ipynb_checkpoints", ".thumbnails"} < set(lab.place.options)


def test_equal_contents_do_not_tell_a_hidden_name_before_its_switch(root):
    lab = inspect_lab(root)
    lab.place.value, lab.tools["contents"].value = "bag", True
    assert not any(" = " in line for line in texts(lab))
    lab.tools["hidden names"].value = True
    assert any(" = .ipynb_checkpoints/" in line for line in texts(lab))


def test_hiding_hidden_names_leaves_a_place_that_is_gone(root):
    lab = inspect_lab(root)
    lab.tools["hidden names"].value = True
    lab.place.value = ".thumbnails"
    lab.tools["hidden names"].value = False
    assert lab.place.value == TOP and lab.error is None
    assert texts(lab)[-1].split() == ["4", "entries", "trouser/"] and "hat/" in " ".join(texts(lab))


def test_the_chosen_line_is_told_in_full_and_its_photo_is_outlined(root):
    lab = inspect_lab(root)
    (truncated,) = paths(lab.now.folder, "truncated")
    mark(lab, BROKEN, truncated)
    lab.files.value = (truncated,)
    assert "marked: cannot be decoded" in lab.figure.value and "no picture" in lab.figure.value
    assert html.escape(lab.now.folder.unreadable[truncated]) in lab.figure.value
    lab.place.value = truncated.split("/")[0]
    lab.files.value = (truncated,)
    assert lab.figure.value.count("outline:") == 1 and texts(lab)[-4].startswith("\u25cf")


def test_there_are_pictures_only_where_files_are_decoded(root):
    lab = inspect_lab(root)
    lab.place.value = "sneaker"
    for tool in ("hidden names", "headers", "contents"):
        lab.tools[tool].value = True
    assert "<img" not in lab.figure.value and "no picture<" not in lab.figure.value
    assert "no file is decoded" in lab.figure.value
    lab.tools["decoding"].value = True
    assert lab.figure.value.count("<img") == 16 and lab.figure.value.count("no picture<") == 2


def test_names_on_the_page_are_escaped(root, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    (copy / "bag" / "a&b'\u00e9.jpg").write_bytes(b"no image")
    now = Inspection(MessyFolder(copy))
    now.place, now.chosen = "bag", ("bag/a&b'\u00e9.jpg",)
    now.turn_on(["decoding"])
    assert "a&b" not in lab_datasets.picture_of(now) and "a&amp;b&#x27;\u00e9.jpg" in lab_datasets.picture_of(now)


def test_the_switches_are_the_tools_beside_the_plain_list():
    assert tuple(SWITCHES) == TOOLS[1:]


def test_a_lab_without_a_folder_makes_its_own_and_removes_it_with_itself(outputs):
    lab = inspect_lab()
    made = lab.now.folder.root
    lab._ipython_display_()
    assert made.is_dir() and outputs[2]["text/plain"] == (
        "[figure] Of 19 planted faults each tool alone shows: file list 4, hidden names 6, headers 8, decoding 3, "
        "contents 2. Together: 19."
    )
    lab.close()
    lab._finalizer()
    assert not made.parent.exists()


def test_it_disturbs_no_generator_and_changes_no_file(root):
    def state():
        files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state()), files

    before, lab = state(), inspect_lab(root)
    mark(lab, COPY, lab.now.folder.images[0])
    assert state() == before


def test_without_ipywidgets_the_still_twin_stands_alone(root, fresh_python):
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "from course_utils.labs.datasets import inspect_lab\n"
        f"lab = inspect_lab({str(root)!r}); lab._ipython_display_(); lab.refresh()\n"
        "assert lab.box is None and lab.error is None and len(lab.files.options) == 12, lab.error"
    )
    done = fresh_python.run(code)
    assert done.stderr == "" and [line[:20] for line in done.stdout.splitlines()] == [
        "[live experiment dat",
        "[figure] Of 19 plant",
    ]
