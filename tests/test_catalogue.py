"""`catalogue`: the same photos from the same seed, whole or absent, and faults that are what they are called."""

import hashlib
import json
import os
import time
from collections import Counter

import numpy as np
import pytest
from PIL import Image, ImageOps, UnidentifiedImageError

from course_utils import catalogue
from course_utils.catalogue import make_catalogue, read_index, read_manifest
from course_utils.catalogue_photos import TINTS, draw_photo
from course_utils.catalogue_plan import CLASSES, catalogue_items, class_counts, plan_photos
from course_utils.datasets import load_fashion

ARGUMENTS = {"num_products": 14, "seed": 3}


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("clean") / "catalogue", **ARGUMENTS)


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("messy") / "catalogue", **ARGUMENTS, messy=True)


def files(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def index_digest(root):
    lines = b"".join((root / name).read_bytes() for name in read_manifest(root)["index"])
    return hashlib.sha256(lines).hexdigest()[:16]


def test_paths_labels_sizes_boxes_and_captions_are_the_same_on_every_machine(clean):
    assert index_digest(clean) == "aae887c9b29d399d"


def test_the_files_are_those_of_the_index_and_the_shards_hold_each_photo_once(clean):
    rows, manifest = read_index(clean), read_manifest(clean)
    paths = [row["path"] for row in rows]
    assert manifest["num_photos"] == len(rows) > 14 and len(set(paths)) == len(paths)
    assert files(clean) == sorted([*paths, *manifest["index"], "manifest.json"])
    assert len(manifest["index"]) == 4 and all((clean / name).stat().st_size for name in manifest["index"])


def test_every_photo_is_an_rgb_jpeg_of_the_size_that_its_row_says(clean):
    for row in read_index(clean):
        with Image.open(clean / row["path"]) as image:
            image.load()
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (row["width"], row["height"]))


def test_label_target_and_item_agree_with_the_training_split(clean):
    labels = load_fashion("train").targets
    for row in read_index(clean):
        assert row["path"].startswith(row["label"] + "/") and sorted(CLASSES)[row["target"]] == row["label"]
        assert list(CLASSES)[labels[row["item"]]] == row["label"]


def test_a_product_has_one_to_three_photos_of_one_item_in_one_colour_on_different_grounds():
    photos: dict[int, list] = {}
    for row, drawing in plan_photos(60, 0):
        photos.setdefault(row["product"], []).append((row["item"], drawing["tint"], drawing["ground"]))
    assert sorted(photos) == list(range(60)) and {len(group) for group in photos.values()} == {1, 2, 3}
    for group in photos.values():
        assert len({(item, tint) for item, tint, _ in group}) == 1
        assert len({ground for _, _, ground in group}) == len(group)


@pytest.mark.parametrize("num_products", [1, 9, 10, 60, 2900])
def test_class_counts_fall_like_one_over_the_rank_and_add_up(num_products):
    counts = list(class_counts(num_products).values())
    assert sum(counts) == num_products and counts == sorted(counts, reverse=True) and max(counts) <= 1000
    assert min(counts) >= (1 if num_products >= 10 else 0)
    if num_products == 2900:
        assert counts[0] / counts[9] == pytest.approx(10, rel=0.05)


def test_the_box_is_tight_around_what_changes_with_the_tint():
    """Black against white: what differs is the item and nothing else."""
    drawings = list(plan_photos(30, 1))
    assert len(drawings) > 30
    for row, drawing in drawings:
        item = catalogue_items()[0][row["item"]]
        black, white = (np.asarray(draw_photo(item, **{**drawing, "tint": tint})) for tint in ("black", "white"))
        differs = (black.astype(int) - white).__abs__().max(2) > 12
        rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
        seen = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        assert np.abs(np.subtract(seen, row["box"])).max() <= 2, (row, seen)
        assert 0 < row["box"][0] < row["box"][2] < row["width"] and 0 < row["box"][1] < row["box"][3] < row["height"]


def test_captions_vary_in_length_and_name_colour_and_thing():
    captions = [(row["caption"], drawing["tint"], CLASSES[row["label"]]) for row, drawing in plan_photos(60, 0)]
    assert all(f"{tint} {thing}" in caption for caption, tint, thing in captions)
    lengths = {len(caption.split()) for caption, _, _ in captions}
    assert min(lengths) == 3 and max(lengths) >= 13 and len(lengths) >= 8


def test_another_seed_makes_other_photos_and_the_same_seed_the_same_bytes(clean, tmp_path):
    again = make_catalogue(tmp_path / "again", **ARGUMENTS)
    assert files(again) == files(clean) and len(files(clean)) > 14
    assert all((again / name).read_bytes() == (clean / name).read_bytes() for name in files(clean))
    other = [row["caption"] for row, _ in plan_photos(14, 4)]
    assert other != [row["caption"] for row in read_index(clean)]


def test_items_in_their_tints_can_be_told_from_the_ground():
    """Mean colour inside the item's core against the tint: nearer to its own tint than to most others."""
    hits, drawings = 0, list(plan_photos(40, 2))
    for row, drawing in drawings:
        image = np.asarray(draw_photo(catalogue_items()[0][row["item"]], **drawing), float)
        x0, y0, x1, y1 = row["box"]
        middle = image[(3 * y0 + y1) // 4 : (y0 + 3 * y1) // 4, (3 * x0 + x1) // 4 : (x0 + 3 * x1) // 4].reshape(-1, 3)
        distance = {tint: np.abs(np.median(middle, 0) - colour).sum() for tint, colour in TINTS.items()}
        hits += min(distance, key=distance.get) == drawing["tint"]
    assert hits >= 0.7 * len(drawings) > 20


def test_called_again_it_changes_nothing(clean):
    before = {name: (clean / name).stat().st_mtime_ns for name in files(clean)}
    assert make_catalogue(clean, **ARGUMENTS) == clean
    assert {name: (clean / name).stat().st_mtime_ns for name in files(clean)} == before


@pytest.mark.parametrize("change", [{"num_products": 15}, {"seed": 4}, {"messy": True}])
def test_other_arguments_in_the_same_folder_are_refused_and_both_named(clean, change):
    with pytest.raises(ValueError) as error:
        make_catalogue(clean, **{**ARGUMENTS, **change})
    for arguments in ({**ARGUMENTS, "messy": False}, {**ARGUMENTS, "messy": False, **change}):
        assert str(arguments) in str(error.value)


@pytest.mark.parametrize("name", ["photo.jpg", "manifest.json"])
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="no catalogue"):
        make_catalogue(tmp_path, **ARGUMENTS)
    assert (tmp_path / name).read_text() == "mine" and files(tmp_path) == [name]


@pytest.mark.parametrize("num_products", [0, -1, 2901])
def test_num_products_outside_its_range_is_refused(tmp_path, num_products):
    with pytest.raises(ValueError, match=f"1 to 2900, got {num_products}"):
        make_catalogue(tmp_path / "catalogue", num_products=num_products, seed=0)


def test_an_empty_folder_is_taken_and_a_relative_path_comes_back_absolute(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    root = make_catalogue("here", num_products=1, seed=0)
    assert root == tmp_path / "here" and read_manifest(root)["num_photos"] == len(read_index(root)) >= 1


def test_an_exception_while_it_is_made_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "_write_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_catalogue(tmp_path / "catalogue", **ARGUMENTS)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os
from course_utils import catalogue, catalogue_photos
draw, left = catalogue_photos.draw_photo, [5]
def draw_or_die(*args, **kwargs):
    left[0] -= 1
    if not left[0]:
        os._exit(9)
    return draw(*args, **kwargs)
catalogue_photos.draw_photo = draw_or_die
catalogue.make_catalogue(ROOT, num_products=14, seed=3)
"""


def test_killed_while_it_is_made_it_is_absent_then_made_whole_and_what_was_left_is_removed(
    tmp_path, clean, fresh_python
):
    root = tmp_path / "catalogue"
    assert fresh_python.run(KILLED.replace("ROOT", repr(str(root)))).returncode == 9
    assert not root.exists() and len(list(tmp_path.glob(".catalogue.*.unfinished"))) == 1
    assert files(make_catalogue(root, **ARGUMENTS)) == files(clean)
    (leftover,) = tmp_path.glob(".catalogue.*.unfinished")  # young: it may belong to a living process
    os.utime(leftover, (time.time() - 7200,) * 2)
    make_catalogue(tmp_path / "other", num_products=1, seed=0)
    assert leftover.exists()  # beside another catalogue: not ours
    catalogue._remove_leftovers(root)
    assert not leftover.exists()


AT_ONCE = """
import time
from pathlib import Path
from course_utils import catalogue
root, mine, theirs = map(Path, PATHS)
move = catalogue._move_into_place
def move_with_the_other(*args):
    mine.touch()
    while not theirs.exists():
        time.sleep(0.001)
    move(*args)
catalogue._move_into_place = move_with_the_other
print(catalogue.make_catalogue(root, num_products=14, seed=3))
"""


def test_two_processes_that_make_it_at_once_both_get_it(tmp_path, clean, fresh_python):
    root, marks = tmp_path / "catalogue", [tmp_path / "a", tmp_path / "b"]
    paths = [[str(path) for path in (root, *order)] for order in (marks, marks[::-1])]
    ends = [fresh_python.start(AT_ONCE.replace("PATHS", repr(each))) for each in paths]
    assert [(done.stdout.strip(), done.returncode) for done in (end() for end in ends)] == [(str(root), 0)] * 2
    assert files(root) == files(clean) and index_digest(root) == index_digest(clean)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "catalogue"]


def test_who_comes_second_with_other_arguments_is_told(tmp_path):
    root = make_catalogue(tmp_path / "catalogue", num_products=1, seed=0)
    (tmp_path / "unfinished").mkdir()
    with pytest.raises(ValueError, match="'seed': 0.*'seed': 1"):
        catalogue._move_into_place(tmp_path / "unfinished", root, {"num_products": 1, "seed": 1, "messy": False})


def planted(root) -> dict[str, dict]:
    faults = read_manifest(root)["planted"]
    assert len({fault["fault"] for fault in faults}) == len(faults) == 19
    return {fault["fault"]: fault for fault in faults}


def test_a_clean_catalogue_has_no_faults_and_a_messy_one_keeps_its_photos(clean, messy):
    assert read_manifest(clean)["planted"] == []
    assert read_index(messy) == read_index(clean)
    added = set(files(messy)) - set(files(clean))
    assert added == {fault["path"] for fault in planted(messy).values()} - {"hat"}


def test_broken_files_are_broken_in_the_way_that_is_recorded(messy):
    faults = planted(messy)
    with Image.open(messy / faults["truncated"]["path"]) as image, pytest.raises(OSError, match="truncated"):
        image.load()
    for fault in ("not an image", "empty file"):
        with pytest.raises(UnidentifiedImageError):
            Image.open(messy / faults[fault]["path"])
    assert list((messy / faults["empty class"]["path"]).iterdir()) == []


@pytest.mark.parametrize(
    "fault, mode", [("grey", "L"), ("alpha", "RGBA"), ("cmyk", "CMYK"), ("palette", "P"), ("16-bit", "I;16")]
)
def test_odd_images_have_the_mode_that_is_recorded(messy, fault, mode):
    with Image.open(messy / planted(messy)[fault]["path"]) as image:
        image.load()
        assert image.mode == mode and min(image.size) >= 88
        assert np.ptp(np.asarray(image)) > (10_000 if mode == "I;16" else 10)


def test_the_rotated_photo_lies_on_its_side_until_its_exif_tag_is_obeyed(messy):
    fault = planted(messy)["rotated"]
    with Image.open(messy / fault["path"]) as image:
        upright = np.asarray(ImageOps.exif_transpose(image).convert("L"), float)
        shapes = {image.size, image.size[::-1]}
    label = fault["path"].split("/")[0]
    sources = [row for row in read_index(messy) if row["label"] == label and (row["width"], row["height"]) in shapes]
    differences = [
        _difference(upright, np.asarray(Image.open(messy / row["path"]).convert("L"), float)) for row in sources
    ]
    assert min(differences) < 3


def _difference(one, two):
    return np.abs(one - two).mean() if one.shape == two.shape else np.inf


def test_duplicates_are_copies_under_another_product_and_another_class(messy):
    faults = planted(messy)
    for fault, same_class in (("duplicate product", True), ("duplicate in another class", False)):
        path, of = faults[fault]["path"], faults[fault]["of"]
        assert (messy / path).read_bytes() == (messy / of).read_bytes() and path != of
        assert (path.split("/")[0] == of.split("/")[0]) is same_class
    contents = Counter(path.read_bytes() for path in messy.glob("[!._]*/[!.]*.jpg"))
    assert sorted(contents.values())[-2:] in ([2, 2], [1, 3])


def test_messy_catalogues_of_any_size_can_be_made(tmp_path):
    for num_products in (1, 2, 5):
        root = make_catalogue(tmp_path / str(num_products), num_products=num_products, seed=num_products, messy=True)
        assert len(planted(root)) == 19 and json.loads((root / "manifest.json").read_text())["arguments"]["messy"]
