"""Encoded photos in one file: every byte comes back, a file that is not whole or not ours is refused."""

import io
import multiprocessing
import os
import pickle
import struct
import threading
from functools import partial

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from course_utils import photo_file
from course_utils.catalogue import make_catalogue
from course_utils.datasets import ImageFolderDataset, PackedPhotos, load_rgb, pack_photos
from course_utils.loaders import ResumableLoader
from course_utils.transforms import resize

METHODS = sorted({"fork", "spawn"} & {*multiprocessing.get_all_start_methods()})


def png(*colour, size=(6, 4)):
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


PHOTOS = [(png(number, 2 * number, 3), number % 3) for number in range(7)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return ImageFolderDataset(make_catalogue(tmp_path_factory.mktemp("photos") / "catalogue", num_products=12, seed=3))


@pytest.fixture(scope="module")
def packed(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("packed") / "photos.bin"
    pack_photos(folder, path)
    return path


@pytest.fixture
def small(tmp_path):
    pack_photos(PHOTOS, tmp_path / "photos.bin")
    return tmp_path / "photos.bin"


# --- what is read is what was packed ---


def test_the_packed_folder_has_the_same_examples_targets_and_classes(folder, packed):
    photos = PackedPhotos(packed)
    assert len(photos) == len(folder) > 20 and photos.classes == folder.classes
    assert torch.equal(photos.targets, folder.targets) and photos.class_to_idx == folder.class_to_idx
    for index in range(len(folder)):
        (image, target), (expected, number) = photos[index], folder[index]
        assert torch.equal(image, expected) and target == number and type(target) is int


def test_every_photo_comes_back_byte_for_byte_with_its_name(folder, packed):
    photos = PackedPhotos(packed)
    for index in (0, 5, len(folder) - 1):
        assert photos.encoded(index) == folder.path(index).read_bytes()
        assert folder.root / photos.name(index) == folder.path(index) and "\\" not in photos.name(index)


def test_paths_and_bytes_can_be_packed_with_their_targets(tmp_path):
    (tmp_path / "red.png").write_bytes(png(200, 0, 0))
    pack_photos([(tmp_path / "red.png", torch.tensor(1)), (png(0, 0, 9), 0)], tmp_path / "p", classes=["dark", "red"])
    photos = PackedPhotos(tmp_path / "p")
    assert photos.classes == ("dark", "red") and photos.targets.tolist() == [1, 0]
    assert photos[0][0][:, 0, 0].tolist() == [200, 0, 0] and photos[1][0][:, 0, 0].tolist() == [0, 0, 9]
    assert (photos.name(0), photos.name(1)) == (str(tmp_path / "red.png"), "photo 1")


def test_without_names_the_classes_are_counted_up_to_the_largest_target(small):
    assert PackedPhotos(small).classes == ("0", "1", "2")


def test_the_transform_is_applied_and_says_whether_it_draws(packed):
    photos = PackedPhotos(packed, transform=partial(resize, size=16))
    assert photos[0][0].shape == (3, 16, 16) and photos.keyed
    assert not PackedPhotos(packed, transform=torch.rand_like).keyed and PackedPhotos(packed).keyed


@pytest.mark.parametrize("index", [-1, 7, 100])
def test_an_index_outside_is_an_index_error(small, index):
    photos = PackedPhotos(small)
    for look in (photos.__getitem__, photos.encoded, photos.name):
        with pytest.raises(IndexError, match=r"0 \.\. 6 \(7 examples\), got"):
            look(index)


# --- processes and threads ---


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_any_start_read_the_same_batches(folder, packed, method, nothing_is_left):
    photos = PackedPhotos(packed, transform=partial(resize, size=16))
    photos[0]  # open in the parent: a forked worker must not share its place in the file
    options = {"batch_size": 8, "seed": 5}
    alone = list(ResumableLoader(photos, **options))
    found = list(ResumableLoader(photos, num_workers=1, multiprocessing_context=method, **options))
    assert len(found) == len(alone) > 2
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(alone, found, strict=True))
    photos.close()


@pytest.mark.skipif("fork" not in METHODS, reason="no fork here")
def test_a_forked_worker_has_a_file_of_its_own(small, nothing_is_left):
    photos = PackedPhotos(small)
    place = photos._file().seek(3)
    list(DataLoader(photos, batch_size=None, num_workers=1, multiprocessing_context="fork"))
    assert photos._file().tell() == place


def test_threads_read_beside_each_other(small):
    photos, wrong = PackedPhotos(small), []

    def read():
        for turn in range(200):
            if photos.encoded(turn % 7) != PHOTOS[turn % 7][0]:
                wrong.append(turn)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_pickle_holds_no_open_file_and_reads_the_same(small):
    photos = PackedPhotos(small)
    photos[0]
    copy = pickle.loads(pickle.dumps(photos))
    assert copy.encoded(3) == PHOTOS[3][0] and copy.classes == photos.classes


def test_no_file_is_open_before_the_first_photo_and_none_after_close(small):
    photos = PackedPhotos(small)
    assert photos._opened.__dict__ == {}
    photos[0]
    file = photos._file()
    photos.close()
    assert file.closed and photos._opened.__dict__ == {}
    assert photos.encoded(1) == PHOTOS[1][0]  # opened again


def test_a_relative_path_is_found_from_another_folder(small, monkeypatch, tmp_path):
    monkeypatch.chdir(small.parent)
    photos = PackedPhotos(small.name)
    monkeypatch.chdir(tmp_path.parent)
    assert photos.encoded(0) == PHOTOS[0][0]


def test_memory_does_not_grow_with_the_photos_that_were_read(tmp_path):
    resource = pytest.importorskip("resource")  # Windows has none
    big = [os.urandom(1 << 20) for _ in range(4)]
    pack_photos([(big[number % 4], 0) for number in range(64)], tmp_path / "p")
    photos = PackedPhotos(tmp_path / "p")
    photos.encoded(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert all(photos.encoded(number) == big[number % 4] for number in range(64))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # KiB; the file has 64 MiB


# --- what is wrong is named ---


def test_a_photo_that_cannot_be_decoded_is_named_with_index_and_path(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no photo")
    pack_photos([PHOTOS[0], (tmp_path / "bad.jpg", 0)], tmp_path / "p")
    with pytest.raises(ValueError) as caught:
        PackedPhotos(tmp_path / "p")[1]
    reason = "cannot be read as an image: it is in no image format that Pillow knows"
    assert str(caught.value) == f"example 1: {tmp_path / 'bad.jpg'} in {tmp_path / 'p'} {reason}"
    with pytest.raises(ValueError, match=reason):
        load_rgb(tmp_path / "bad.jpg")  # as the file itself


def test_a_photo_that_is_not_there_is_named_and_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match=r"example 1: .*gone\.jpg cannot be read: No such file"):
        pack_photos([PHOTOS[0], (tmp_path / "gone.jpg", 0)], tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("targets, got", [([0, 2], "0 .. 1, got 2"), ([0, -1], "0 .. 1, got -1")])
def test_a_target_that_is_no_class_is_named(tmp_path, targets, got):
    samples = [(PHOTOS[0][0], target) for target in targets]
    with pytest.raises(ValueError) as caught:
        pack_photos(samples, tmp_path / "p", classes=["a", "b"])
    assert str(caught.value) == f"example 1: targets must lie in {got}" and list(tmp_path.iterdir()) == []


def test_nothing_to_pack_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nothing to pack"):
        pack_photos([], tmp_path / "p")


def test_an_interrupted_pack_leaves_the_old_file_as_it_was(small, monkeypatch):
    before = small.read_bytes()
    monkeypatch.setattr(photo_file, "_checked_target", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        pack_photos(PHOTOS[:2], small)
    assert small.read_bytes() == before and list(small.parent.iterdir()) == [small]


def test_until_the_end_the_new_file_has_another_name(small):
    before = small.read_bytes()
    with photo_file.whole_or_nothing(small) as file:
        file.write(b"part")
        assert small.read_bytes() == before
    assert small.read_bytes() == b"part" and list(small.parent.iterdir()) == [small]


@pytest.mark.parametrize("keep", [0, 5, 39, 40, 200, -1])
def test_a_file_that_is_cut_short_is_refused(small, keep):
    small.write_bytes(small.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"is no record file|bytes, its head says"):
        PackedPhotos(small)


def test_a_file_with_something_behind_it_is_refused(small):
    small.write_bytes(small.read_bytes() + b"\0")
    with pytest.raises(ValueError, match=r"bytes, its head says"):
        PackedPhotos(small)


@pytest.mark.parametrize("content", [png(1, 2, 3), b"", b"photos\n\n" + bytes(60)])
def test_a_foreign_file_is_refused(tmp_path, content):
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(ValueError, match=r"is no record file of photos: it begins with"):
        PackedPhotos(tmp_path / "p")


def test_another_version_is_named(small):
    content = bytearray(small.read_bytes())
    struct.pack_into("<I", content, 8, 2)
    small.write_bytes(content)
    with pytest.raises(ValueError, match="of version 2, this reads 1"):
        PackedPhotos(small)


def test_every_damaged_byte_of_head_and_index_is_noticed(small):
    content = small.read_bytes()
    begin = len(content) - struct.unpack_from("<Q", content, 32)[0]
    assert begin == 40 + sum(len(photo) for photo, _ in PHOTOS)
    for place in [*range(40), *range(begin, len(content), 7)]:
        small.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ValueError):
            PackedPhotos(small)


def test_a_damaged_photo_is_noticed_also_where_a_decoder_would_not_see_it(folder, packed, tmp_path):
    photos, content = PackedPhotos(packed), bytearray(packed.read_bytes())
    content[int(photos._rows[2]["offset"]) + 1500] ^= 1
    (tmp_path / "p").write_bytes(content)
    damaged = PackedPhotos(tmp_path / "p")
    with pytest.raises(ValueError, match=r"example 2: .* is damaged: \d+ bytes are not those that were packed"):
        damaged[2]
    assert torch.equal(damaged[1][0], folder[1][0])


def test_a_file_that_was_replaced_meanwhile_is_noticed_when_it_is_opened(small):
    photos = PackedPhotos(small)
    pack_photos(PHOTOS[:3], small)
    with pytest.raises(ValueError, match="no longer the file that was opened"):
        photos[0]


def test_no_such_file_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        PackedPhotos(tmp_path / "none")
