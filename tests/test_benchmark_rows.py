"""The rows on photos, augmentation and paths: their pure parts, and that both sides do the same work."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.rows import paths, photos
from benchmarks.timing import memory
from course_utils.catalogue import make_catalogue, read_index
from course_utils.loaders import ResumableLoader


def test_a_row_of_memory_is_a_ratio_of_minima():
    row = memory("subject", "name", {"mine": [3.0, 2.0, 4.0], "theirs": [8.0, 4.0, 10.0]}, "mine", "theirs", bar=0.4)
    assert (row.value, row.median, row.unit, row.candidate_unit) == (0.5, 0.375, "x", "MiB")
    assert row.passed is False and row.runs == 3


def test_both_pipelines_give_batches_of_one_kind_and_all_labels(tmp_path):
    root = make_catalogue(tmp_path / "photos", num_products=20, seed=0)
    plain, course = photos.PlainPhotos(root), photos.course_photos(root)
    assert len(plain) == len(course) == len(read_index(root))
    images, targets = next(iter(ResumableLoader(course, batch_size=8)))
    assert images.shape[1:] == plain[0][0].shape == (3, photos.SIDE, photos.SIDE)
    assert images.dtype == plain[0][0].dtype == torch.float32 and targets.dtype == torch.int64
    assert abs(float(images.mean()) - float(torch.stack([plain[at][0] for at in range(8)]).mean())) < 1


def test_both_pipelines_decode_and_resize_to_the_same_pixels_within_one(tmp_path):
    root = make_catalogue(tmp_path / "photos", num_products=20, seed=0)
    course = photos.course_photos(root).dataset
    by_path = {str(course.path(index)): course[index][0] for index in range(len(course))}
    plain_resize = photos.PlainPhotos(root).transform.transforms[0]
    assert len(by_path) == len(read_index(root)) > 20
    for path, image in by_path.items():
        plain = torch.from_numpy(np.array(plain_resize(Image.open(path).convert("RGB")))).permute(2, 0, 1)
        assert image.shape == plain.shape == (3, photos.SIDE, photos.SIDE)
        assert (image.int() - plain.int()).abs().max() <= 1


def test_packed_names_are_counted_by_their_arrays_and_a_list_by_its_strings():
    given = paths.names(100)
    packed = paths.kept("PackedNames", given)
    assert list(packed) == given == paths.kept("list", given)
    assert paths.size_mib(packed) * 2**20 == sum(map(len, given)) + 8 * 101
    assert paths.size_mib(given) > 2 * paths.size_mib(packed)


@pytest.mark.skipif(not paths.SMAPS.exists(), reason="memory of a process's own is read from /proc")
def test_a_worker_copies_most_of_a_list_and_little_of_packed_names():
    copied = paths.worker_mib(100_000)
    assert copied["PackedNames"][0] < copied["list"][0] / 3
