"""Decoded images in a mapped file: equal to the dataset's, read by others, copied by nobody, whole or not there."""

import multiprocessing
import pickle
import sys

import numpy as np
import pytest
import torch

from course_utils.catalogue import make_catalogue
from course_utils.datasets import ArrayDataset, ImageFolderDataset, MappedImages, load_fashion, map_images
from course_utils.images import resize
from course_utils.loaders import ResumableLoader
from course_utils.randomness import BatchKey
from course_utils.transforms import with_transform

METHODS = sorted({"fork", "spawn"} & {*multiprocessing.get_all_start_methods()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return ImageFolderDataset(make_catalogue(tmp_path_factory.mktemp("photos") / "catalogue", num_products=12, seed=3))


@pytest.fixture(scope="module")
def path(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "images.npy"
    map_images(folder, path, size=24)
    return path


def few(num=5, value=0):
    images = torch.arange(num * 3 * 8 * 6, dtype=torch.int64).add(value).remainder(251).to(torch.uint8)
    return ArrayDataset(images.view(num, 3, 8, 6), [number % 2 for number in range(num)], classes=["a", "b"])


def test_the_mapped_images_are_those_of_the_dataset_at_one_size(folder, path):
    mapped = map_images(folder, path, size=24)
    assert mapped.images.shape == (len(folder), 3, 24, 24) and mapped.images.dtype == torch.uint8
    assert torch.equal(mapped.targets, folder.targets) and mapped.classes == folder.classes
    assert all(torch.equal(mapped[i][0], resize(folder[i][0], 24)) for i in range(len(folder)))


def test_height_and_width_may_differ_and_any_number_of_channels_is_kept(tmp_path):
    fashion = load_fashion("test")
    part = ArrayDataset(fashion.images[:6], fashion.targets[:6], classes=fashion.classes)
    mapped = map_images(part, tmp_path / "f.npy", size=(28, 20))
    assert mapped.images.shape == (6, 1, 28, 20)
    assert torch.equal(map_images(part, tmp_path / "same.npy", size=28).images, part.images)


def test_any_program_reads_the_file_as_an_array(path):
    array = np.load(path, mmap_mode="r")
    assert array.dtype == np.uint8 and np.array_equal(array, MappedImages(path).images.numpy())


def test_a_batch_is_taken_as_an_array_dataset_takes_it(path):
    mapped = MappedImages(path)
    plain = ArrayDataset(mapped.images.clone(), mapped.targets, classes=mapped.classes)
    key = BatchKey(seed=0, epoch=0, start=0, indices=[5, 0, 5])
    assert isinstance(mapped, ArrayDataset)
    assert all(torch.equal(a, b) for a, b in zip(mapped.take(key), plain.take(key), strict=True))


def test_other_transforms_read_the_same_file(path):
    view = with_transform(MappedImages(path), lambda image: image.float())
    assert type(view) is MappedImages and view[0][0].dtype == torch.float32
    assert view.replace_transforms(None, view.transform).transform is None


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_any_start_read_the_same_batches(path, method, nothing_is_left):
    options = {"batch_size": 8, "seed": 2}
    alone = list(ResumableLoader(MappedImages(path), **options))
    found = list(ResumableLoader(MappedImages(path), num_workers=1, multiprocessing_context=method, **options))
    assert len(found) == len(alone) > 2
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(alone, found, strict=True))


def test_a_pickle_holds_the_path_and_no_image(path):
    content = pickle.dumps(MappedImages(path, transform=torch.neg))
    copy = pickle.loads(content)
    assert len(content) < 1000 and torch.equal(copy.images, MappedImages(path).images) and copy.transform is torch.neg


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_images_are_mapped_from_the_file_and_writing_does_not_reach_it(path):
    mapped, before = MappedImages(path), path.read_bytes()
    with open("/proc/self/maps") as file:
        assert any(str(path) in line for line in file)
    mapped.images[0] = 7
    assert mapped.images[0].eq(7).all() and path.read_bytes() == before


# --- whole, and of this dataset ---


def test_the_file_is_made_once(tmp_path, monkeypatch):
    first = map_images(few(), tmp_path / "f.npy", size=4)
    monkeypatch.setattr("course_utils.datasets.write_images", lambda *_, **__: pytest.fail("made again"))
    assert torch.equal(map_images(few(), tmp_path / "f.npy", size=4).images, first.images)


@pytest.mark.parametrize(
    "other, size",
    [
        (few(6), 4),
        (few(value=1), 4),
        (few(), 5),
        (few(), (4, 5)),
        (ArrayDataset(few().images, [1, 0, 0, 1, 0], classes=["a", "b"]), 4),
        (ArrayDataset(few().images, few().targets, classes=["a", "c"]), 4),
    ],
    ids=["number", "images", "size", "width", "targets", "classes"],
)
def test_a_file_of_another_dataset_or_size_is_refused(tmp_path, other, size):
    map_images(few(), tmp_path / "f.npy", size=4)
    with pytest.raises(ValueError, match="holds the images of another dataset or size: remove it"):
        map_images(other, tmp_path / "f.npy", size=size)


@pytest.mark.parametrize("place", [0, 2, 4])
def test_the_first_middle_and_last_image_are_compared(tmp_path, place):
    map_images(few(), tmp_path / "f.npy", size=4)
    other = few()
    other.images = other.images.clone()
    other.images[place] += 3
    with pytest.raises(ValueError, match="another dataset"):
        map_images(other, tmp_path / "f.npy", size=4)


class Interrupted(ArrayDataset):
    def __getitem__(self, index):
        if index == 3:
            raise KeyboardInterrupt
        return super().__getitem__(index)


def test_interrupted_writing_leaves_no_file(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        map_images(Interrupted(few().images, few().targets, classes=["a", "b"]), tmp_path / "f.npy", size=4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [0, 5, 100, 128, 200, -1, -20])
def test_a_file_that_is_cut_short_is_refused(tmp_path, keep):
    map_images(few(), tmp_path / "f.npy", size=4)
    (tmp_path / "f.npy").write_bytes((tmp_path / "f.npy").read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"is no file of mapped images|is not whole"):
        map_images(few(), tmp_path / "f.npy", size=4)


def test_an_array_file_that_map_images_did_not_write_is_refused(tmp_path):
    np.save(tmp_path / "f.npy", few().images.numpy())
    with pytest.raises(ValueError, match="is not whole, or none that `map_images` wrote"):
        MappedImages(tmp_path / "f.npy")
    np.save(tmp_path / "g.npy", np.zeros((5, 3)))
    with pytest.raises(ValueError, match=r"it holds float64 \(5, 3\), needed uint8"):
        MappedImages(tmp_path / "g.npy")


def test_lost_pixels_and_damaged_targets_are_noticed(tmp_path):
    map_images(few(), tmp_path / "f.npy", size=4)
    content = (tmp_path / "f.npy").read_bytes()
    (tmp_path / "less.npy").write_bytes(content[:150] + content[160:])
    with pytest.raises(ValueError, match=r"holds 230 bytes of images, its header \(5, 3, 4, 4\) needs 240"):
        MappedImages(tmp_path / "less.npy")
    (tmp_path / "targets.npy").write_bytes(content.replace(b"[0, 1, 0", b"[0, 1, 1"))
    with pytest.raises(ValueError, match=r"the targets of .* are damaged"):
        MappedImages(tmp_path / "targets.npy")


def test_images_of_another_kind_are_named(tmp_path):
    floats = with_transform(few(), lambda image: image.float())
    with pytest.raises(ValueError, match=r"image 0: need uint8 \(C, H, W\) to keep, got torch.float32 \(3, 8, 6\)"):
        map_images(floats, tmp_path / "f.npy", size=4)
    grey = few()
    grey.transform = lambda image: image[:1] if image[0, 0, 0] == few().images[2][0, 0, 0] else image
    with pytest.raises(ValueError, match="image 2 has 1 channels, image 0 has 3: need the same"):
        map_images(grey, tmp_path / "f.npy", size=4)
    with pytest.raises(ValueError, match="nothing to map"):
        map_images(ArrayDataset(torch.zeros(0, 3, 4, 4), [], classes=["a"]), tmp_path / "f.npy", size=4)
    assert list(tmp_path.iterdir()) == []


def test_no_such_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        MappedImages(tmp_path / "none.npy")
