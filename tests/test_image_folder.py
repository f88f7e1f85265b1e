"""`image_folder`: classes fixed by the training split, clutter ignored and reported, every bad file named."""

import io
import os
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils import folder_scan
from course_utils.catalogue import make_catalogue, read_index, read_manifest
from course_utils.datasets import ImageFolderDataset, load_rgb, scan_image_folder
from course_utils.image_folder import PackedNames
from course_utils.loaders import ResumableLoader
from course_utils.transforms import eval_transform, with_transform


def write_photo(path, colour=(200, 30, 30), size=(8, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def make_folder(root, *names):
    """A photo for each name; a name that ends in / is an empty folder."""
    root.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        if name.endswith("/"):
            (root / name).mkdir(parents=True)
        else:
            write_photo(root / name, (number, 2 * number, 3))
    return root


def paths_of(findings):
    return [path for path, _ in findings]


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("messy") / "catalogue", num_products=14, seed=3, messy=True)


@pytest.fixture(scope="module")
def scan(messy):
    return scan_image_folder(messy)


def planted(root, *faults):
    found = [row["path"] for row in read_manifest(root)["planted"] if row["fault"] in faults]
    assert len(found) == len(faults)
    return found


# --- the catalogue's planted faults ---

CLUTTER = (
    "checkpoint folder", "checkpoint folder in a class", "hidden folder", "archive folder", "hidden file",
    "resource fork", "thumbnail database",
)  # fmt: skip
BAD = ("truncated", "not an image", "empty file")
ODD = ("grey", "alpha", "cmyk", "palette", "16-bit", "rotated")
COPIES = ("duplicate product", "duplicate in another class")


def test_the_four_kinds_are_all_that_the_catalogue_plants(messy):
    assert sorted(row["fault"] for row in read_manifest(messy)["planted"]) == sorted(
        [*CLUTTER, *BAD, *ODD, *COPIES, "empty class"]
    )


def test_planted_clutter_is_ignored_and_reported(messy, scan):
    names = planted(messy, *CLUTTER)
    ignored = paths_of(scan.ignored)
    assert [name for name in names if not any(f"{name}/".startswith(f"{path}/") for path in ignored)] == []
    assert not {path for path, _ in scan.samples} & set(names)
    assert [name for name in scan.classes if name.startswith((".", "__"))] == []


def test_planted_bad_files_are_the_problems_each_with_its_reason(messy, scan):
    reasons = dict(scan.problems)
    assert sorted(reasons) == sorted(planted(messy, *BAD))
    expected = zip(planted(messy, *BAD), ("truncated", "no image format", "empty"), strict=True)
    assert [word in reasons[path] for path, word in expected] == [True] * 3


def test_every_other_photo_is_a_sample_also_in_odd_modes(messy, scan):
    wanted = [row["path"] for row in read_index(messy)] + planted(messy, *ODD, *COPIES)
    assert [path for path, _ in scan.samples] == sorted(wanted)
    assert all(load_rgb(messy / path).shape[0] == 3 for path in planted(messy, *ODD))


def test_the_planted_empty_class_is_reported_and_an_error_unless_told(messy, scan):
    assert scan.empty_classes == ("hat",) and scan.counts()["hat"] == 0
    with pytest.raises(ValueError, match="3 problems"):
        ImageFolderDataset(scan)
    with pytest.raises(ValueError, match="without an image: hat"):
        ImageFolderDataset(scan, skip_problems=True)
    dataset = ImageFolderDataset(scan, skip_problems=True, empty_classes="drop")
    assert "hat" not in dataset.classes and len(dataset) == len(scan.samples)
    assert (dataset.problems, dataset.ignored) == (scan.problems, scan.ignored) and dataset.root == messy


def test_samples_have_the_class_of_their_folder(scan):
    assert len(scan.samples) > 20
    assert all(scan.classes[target] == path.split("/")[0] for path, target in scan.samples)


# --- classes ---


@pytest.mark.parametrize("content", [[], ["x.png"]])
def test_a_checkpoint_folder_shifts_no_label(tmp_path, content):
    inside = [f".ipynb_checkpoints/{name}" for name in content]
    make_folder(tmp_path, "a/1.png", "b/1.png", ".ipynb_checkpoints/", *inside)
    scan = scan_image_folder(tmp_path)
    assert scan.class_to_idx == {"a": 0, "b": 1} and paths_of(scan.ignored) == [".ipynb_checkpoints"]


def test_a_split_without_a_class_keeps_the_training_splits_numbers(tmp_path):
    make_folder(tmp_path, "train/a/1.png", "train/b/1.png", "train/c/1.png", "val/b/1.png", "val/c/1.png")
    train = ImageFolderDataset(tmp_path / "train")
    val = ImageFolderDataset(tmp_path / "val", class_to_idx=train.class_to_idx)
    assert val.targets.tolist() == [1, 2] and val.classes == train.classes == ("a", "b", "c")
    assert ImageFolderDataset(tmp_path / "val").targets.tolist() == [0, 1]  # the mistake: numbered by itself


def test_an_unknown_class_is_a_problem_that_names_it(tmp_path):
    make_folder(tmp_path, "b/1.png", "d/1.png")
    known = {"a": 0, "b": 1, "c": 2}
    assert scan_image_folder(tmp_path, class_to_idx=known).problems == [
        ("d", "class 'd' is unknown; class_to_idx has a, b, c")
    ]
    with pytest.raises(ValueError, match="class 'd' is unknown"):
        ImageFolderDataset(tmp_path, class_to_idx=known)
    assert ImageFolderDataset(tmp_path, class_to_idx=known, skip_problems=True).targets.tolist() == [1]


@pytest.mark.parametrize("numbering", [{"a": 1}, {"a": 0, "b": 0}, {"a": 0, "b": 2}])
def test_a_numbering_with_gaps_or_twins_is_refused(tmp_path, numbering):
    make_folder(tmp_path, "a/1.png")
    with pytest.raises(ValueError, match="must number its classes 0, 1, 2"):
        scan_image_folder(tmp_path, class_to_idx=numbering)


@pytest.mark.parametrize("policy, classes, targets", [("keep", ("a", "b", "c"), [0, 2]), ("drop", ("a", "c"), [0, 1])])
def test_empty_classes_are_kept_or_dropped_as_told(tmp_path, policy, classes, targets):
    make_folder(tmp_path, "a/1.png", "b/", "c/1.png")
    dataset = ImageFolderDataset(tmp_path, empty_classes=policy)
    assert (dataset.classes, dataset.targets.tolist()) == (classes, targets)
    assert dataset.class_to_idx == {name: number for number, name in enumerate(classes)}


def test_a_class_of_bad_files_only_is_empty(tmp_path):
    make_folder(tmp_path, "a/1.png", "b/")
    (tmp_path / "b" / "1.png").write_bytes(b"")
    assert scan_image_folder(tmp_path).empty_classes == ("b",)
    with pytest.raises(ValueError, match="without an image: b"):
        ImageFolderDataset(tmp_path, skip_problems=True)


def test_dropping_an_empty_class_does_not_change_numbers_that_are_given(tmp_path):
    make_folder(tmp_path, "a/", "b/1.png")
    dataset = ImageFolderDataset(tmp_path, class_to_idx={"a": 0, "b": 1}, empty_classes="drop")
    assert dataset.targets.tolist() == [1]


def test_another_policy_and_a_root_without_classes_are_refused(tmp_path):
    make_folder(tmp_path, "1.png")
    with pytest.raises(ValueError, match="no class folders"):
        ImageFolderDataset(tmp_path)
    make_folder(tmp_path, "a/1.png")
    with pytest.raises(ValueError, match='must be "error", "keep" or "drop", got \'skip\''):
        ImageFolderDataset(tmp_path, empty_classes="skip")


# --- the scan ---


def test_a_missing_root_and_a_file_as_root_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("gone", "file"):
        with pytest.raises(ValueError, match=f"{name} is none"):
            scan_image_folder(tmp_path / name)


def test_each_ignored_file_has_its_reason(tmp_path):
    make_folder(tmp_path, "a/1.png", "a/.hidden.png", "a/._1.png", "photo.png", "__MACOSX/a/1.png")
    for name in ("a/Thumbs.db", "a/notes.txt", "a/desktop.ini", "list.csv", "a/noending"):
        (tmp_path / name).write_text("")
    assert scan_image_folder(tmp_path).ignored == [
        ("__MACOSX", "systems and archives leave it behind"),
        ("a/._1.png", "macOS keeps attributes in such files"),
        ("a/.hidden.png", "its name begins with a dot"),
        ("a/Thumbs.db", "systems and archives leave it behind"),
        ("a/desktop.ini", "systems and archives leave it behind"),
        ("a/noending", "its name does not end as an image's"),
        ("a/notes.txt", "its name does not end as an image's"),
        ("list.csv", "it lies in no class folder"),
        ("photo.png", "it lies in no class folder"),
    ]


def test_paths_are_sorted_with_slashes_whatever_order_the_system_lists(tmp_path, monkeypatch):
    make_folder(tmp_path, "b/2.PNG", "b/10.png", "a-b/1.png", "a/z/1.jpeg", "a/1.png")
    expected = ["a-b/1.png", "a/1.png", "a/z/1.jpeg", "b/10.png", "b/2.PNG"]
    listdir = os.listdir
    for order in (sorted, lambda names: sorted(names, reverse=True)):
        monkeypatch.setattr(folder_scan.os, "listdir", lambda path, order=order: order(listdir(path)))
        scan = scan_image_folder(tmp_path)
        assert ([path for path, _ in scan.samples], scan.classes) == (expected, ("a", "a-b", "b"))


def test_links_are_followed_but_not_in_a_circle(tmp_path):
    make_folder(tmp_path, "data/a/1.png", "elsewhere/2.png")
    try:
        (tmp_path / "data/b").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
        (tmp_path / "data/a/again").symlink_to(tmp_path / "data", target_is_directory=True)
        (tmp_path / "data/a/gone.png").symlink_to(tmp_path / "nowhere.png")
    except OSError:
        pytest.skip("this system lets no user make links")
    scan = scan_image_folder(tmp_path / "data")
    assert scan.samples == [("a/1.png", 0), ("b/2.png", 1)]
    assert paths_of(scan.problems) == ["a/again", "a/gone.png"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name are POSIX")
def test_a_pipe_among_the_images_does_not_make_the_scan_wait(tmp_path):
    make_folder(tmp_path, "a/1.png")
    os.mkfifo(tmp_path / "a" / "pipe.png")
    assert scan_image_folder(tmp_path).problems == [("a/pipe.png", "it is no regular file, or a link to nothing")]


def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path, monkeypatch):
    make_folder(tmp_path, "a/1.png", "b/1.png")
    listdir = os.listdir

    def refuse_b(path):
        if str(path).endswith("b"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(folder_scan.os, "listdir", refuse_b)
    assert scan_image_folder(tmp_path).problems == [("b", "the folder cannot be read: Permission denied")]


def test_threads_and_the_bar_change_nothing(messy, scan, capsys):
    again = scan_image_folder(messy, num_threads=3, progress=True)
    assert again == scan
    assert "decoding" in capsys.readouterr().err
    ImageFolderDataset(messy, skip_problems=True, empty_classes="keep", progress=True)
    assert "decoding" in capsys.readouterr().err
    ImageFolderDataset(messy, skip_problems=True, empty_classes="keep")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("mean_bytes, threads", [(4_000, 1), (400_000, 2)])
def test_one_thread_decodes_small_files_and_one_a_core_large_ones(tmp_path, monkeypatch, mean_bytes, threads):
    used = []
    pool = folder_scan.ThreadPoolExecutor
    monkeypatch.setattr(folder_scan, "ThreadPoolExecutor", lambda number: used.append(number) or pool(number))
    monkeypatch.setattr(folder_scan, "usable_cpus", lambda: 2)
    monkeypatch.setattr(folder_scan, "_mean_bytes", lambda paths: mean_bytes)
    scan_image_folder(make_folder(tmp_path, "a/1.png"))
    assert used == [threads]


@pytest.mark.filterwarnings("ignore")  # Pillow warns of damage that it can read past
def test_300_damaged_images_are_each_reported_or_read(tmp_path):
    rng, whole = random.Random(0), io.BytesIO()
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8))
    photo.save(whole, "JPEG")
    (tmp_path / "a").mkdir()
    for number in range(300):
        content = bytearray(whole.getvalue())
        for _ in range(8):
            content[rng.randrange(len(content))] = rng.randrange(256)
        (tmp_path / "a" / f"{number:03d}.jpg").write_bytes(content)
    scan = scan_image_folder(tmp_path, num_threads=2)
    found = [path for path, _ in scan.samples] + paths_of(scan.problems)
    assert sorted(found) == [f"a/{number:03d}.jpg" for number in range(300)]
    dataset = ImageFolderDataset(scan, skip_problems=True)
    assert len(dataset) > 30 and len(scan.problems) > 30
    assert all(dataset[index][0].dtype == torch.uint8 for index in range(len(dataset)))


# --- the dataset ---


def test_an_example_is_the_image_after_the_transform_and_an_int(tmp_path):
    make_folder(tmp_path, "a/1.png", "b/1.png")
    dataset = ImageFolderDataset(tmp_path)
    image, target = dataset[1]
    assert dataset.path(1) == tmp_path / "b/1.png" and dataset.targets.dtype == torch.int64
    assert torch.equal(image, load_rgb(tmp_path / "b/1.png")) and type(target) is int and target == 1
    assert ImageFolderDataset(tmp_path, transform=torch.Tensor.float)[0][0].dtype == torch.float32


def test_a_file_that_turned_bad_is_named_with_its_index(tmp_path):
    make_folder(tmp_path, "a/1.png", "a/2.png")
    dataset = ImageFolderDataset(tmp_path)
    (tmp_path / "a/2.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"example 1: .*a.2\.png cannot be read as an image: it is in no image format"):
        dataset[1]


def test_without_decoding_a_bad_file_is_met_when_it_is_read(tmp_path):
    make_folder(tmp_path, "a/1.png")
    (tmp_path / "a/2.png").write_bytes(b"")
    dataset = ImageFolderDataset(tmp_path, decode=False)
    assert len(dataset) == 2
    with pytest.raises(ValueError, match=r"example 1: .*2\.png .*empty"):
        dataset[1]


def test_half_an_index_is_a_type_error_and_any_integer_is_taken(tmp_path):
    dataset = ImageFolderDataset(make_folder(tmp_path, "a/1.png", "b/2.png"))
    with pytest.raises(TypeError):
        dataset[0.5]
    assert [dataset[index][1] for index in (torch.tensor(1), np.int64(1))] == [1, 1]


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_outside_is_an_index_error(tmp_path, index):
    with pytest.raises(IndexError, match=r"0 \.\. 1 \(2 examples\)"):
        ImageFolderDataset(make_folder(tmp_path, "a/1.png", "a/2.png"))[index]


def test_a_scan_can_be_given_but_not_with_other_classes(tmp_path):
    scan = scan_image_folder(make_folder(tmp_path, "a/1.png"))
    assert ImageFolderDataset(scan, class_to_idx={"a": 0}).targets.tolist() == [0]
    for other in ({"b": 0, "a": 1}, {"b": 0}):
        with pytest.raises(ValueError, match="scan anew"):
            ImageFolderDataset(scan, class_to_idx=other)


def test_only_the_first_problems_are_spelled_out(tmp_path, scan):
    many = replace(scan, problems=scan.problems * 5)
    with pytest.raises(ValueError, match="15 problems: .*; and 10 more. Mend") as caught:
        ImageFolderDataset(many)
    assert len(str(caught.value).split("; ")) == 5 + 1


def test_a_pickled_dataset_gives_the_same_examples(tmp_path):
    dataset = ImageFolderDataset(make_folder(tmp_path, "a/1.png", "b/é ü.png", "b/2.png"))
    copy = pickle.loads(pickle.dumps(dataset))
    assert [copy.path(index) for index in range(3)] == [dataset.path(index) for index in range(3)]
    assert all(torch.equal(copy[index][0], dataset[index][0]) for index in range(3))
    assert torch.equal(copy.targets, dataset.targets)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_loader_gives_its_batches(tmp_path, num_workers):
    dataset = ImageFolderDataset(make_folder(tmp_path, "a/1.png", "b/1.png", "b/2.png"))
    loader = ResumableLoader(dataset, batch_size=2, shuffle=False, num_workers=num_workers)
    batches = list(loader)
    assert [inputs.shape for inputs, _ in batches] == [(2, 3, 6, 8), (1, 3, 6, 8)]
    assert torch.equal(torch.cat([targets for _, targets in batches]), dataset.targets)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_through_a_loader_a_bad_file_is_still_named_with_its_index(tmp_path, num_workers):
    dataset = ImageFolderDataset(make_folder(tmp_path, "a/1.png", "a/2.png"))
    (tmp_path / "a/2.png").write_bytes(b"")
    loader = ResumableLoader(dataset, batch_size=2, shuffle=False, num_workers=num_workers)
    with pytest.raises(ValueError, match=r"example 1: .*2\.png cannot be read as an image: the file is empty"):
        list(loader)


def test_two_views_of_one_folder_share_nothing_but_the_files(tmp_path):
    dataset = ImageFolderDataset(make_folder(tmp_path, "a/1.png", "b/1.png"))
    view = with_transform(dataset, eval_transform(4))
    assert view[1][0].shape == (3, 4, 4) and view[1][0].dtype == torch.float32 and view[1][1] == 1
    assert dataset[1][0].shape == (3, 6, 8) and not hasattr(dataset, "take")


def test_packed_names_come_back_as_they_were():
    names = ["a/1.png", "", "ü/日本.png", "\udcff.png", "\ud800.png", "\ud83d\ude00", "x" * 300]
    packed = PackedNames(names)
    assert list(packed) == names and len(packed) == 7
    assert list(pickle.loads(pickle.dumps(packed))) == names and list(PackedNames([])) == []


@pytest.mark.parametrize("index", [-1, 3])
def test_packed_names_have_no_index_below_zero_or_beyond_their_end(index):
    with pytest.raises(IndexError, match=rf"must lie in 0 \.\. 2, got {index}"):
        PackedNames(["a", "b", "c"])[index]


def test_packed_names_reach_beyond_65536_bytes():
    names = [f"{number:0300d}" for number in range(300)]
    assert list(PackedNames(names)) == names


def test_packed_names_take_half_of_a_lists_memory_at_most():
    names = [f"class_{number % 100:03d}/photo_{number:06d}.jpg" for number in range(1000)]
    as_list = sum(name.__sizeof__() + 8 for name in names)
    assert len(pickle.dumps(PackedNames(names))) < 0.5 * as_list
