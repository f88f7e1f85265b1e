"""The augmentation record: what its transforms do to photos, and that its gains are counted from its seeds."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import augmentation, records
from course_utils.randomness import BatchKey

KEY = BatchKey(0, 0, 0, range(64))


def test_upside_down_gives_four_pictures_of_one_and_the_same_for_the_same_key():
    images = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4).repeat(64, 1, 1, 1)
    found, _ = augmentation.upside_down(images, torch.zeros(64), KEY)
    image = images[0]
    possible = [image, image.flip(1), image.transpose(1, 2), image.flip(1).transpose(1, 2)]
    counts = [sum(torch.equal(of, each) for of in found) for each in possible]
    assert sum(counts) == 64 and min(counts) > 4
    assert torch.equal(found, augmentation.upside_down(images, torch.zeros(64), KEY)[0])


def test_brightness_multiplies_each_image_by_one_number_within_its_range():
    images = torch.full((64, 3, 2, 2), 100, dtype=torch.uint8)
    found, _ = augmentation.brightness(images, torch.zeros(64), KEY)
    assert all(len(of.unique()) == 1 for of in found) and found.dtype == torch.uint8
    assert 20 <= int(found.min()) < 40 and 120 < int(found.max()) <= 140
    assert torch.equal(augmentation.darken(torch.tensor([200, 101], dtype=torch.uint8), 1.4), torch.tensor([255, 141]))


@pytest.fixture
def few_photos(monkeypatch):
    values = torch.randint(0, 256, (40, 3, 32, 32), generator=torch.Generator().manual_seed(0)).float()
    monkeypatch.setattr(augmentation, "pixels", lambda part: values)
    monkeypatch.setattr(augmentation, "photos", lambda part: augmentation.Examples(values, torch.arange(40) % 10))
    augmentation.to_float.cache_clear()
    yield
    augmentation.to_float.cache_clear()


@pytest.mark.parametrize("name", list(augmentation.TRANSFORMS))
def test_only_mixup_and_cutmix_make_soft_targets_and_each_is_a_function_of_its_key(few_photos, name):
    images, targets = augmentation.images_of("train")[:32], augmentation.targets_of("train")[:32]
    transform, key = augmentation.batch_transform(name), BatchKey(0, 0, 0, range(32))
    torch.manual_seed(0)
    first, labels = transform(images, targets, key)
    torch.manual_seed(0)
    assert torch.equal(first, transform(images, targets, key)[0]) and first.dtype == torch.float32
    assert (labels.dim() == 2) == (name in ("mixup", "cutmix"))
    assert torch.equal(first, augmentation.seen_as("train").inputs[:32]) == (name == "none")


def test_a_quick_run_gives_every_transform_and_stores_nothing(few_photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    augmentation.main(["--quick"])
    found = json.loads(capsys.readouterr().out)
    assert set(found["results"]) == set(augmentation.TRANSFORMS) and not list(tmp_path.iterdir())


def test_the_augmentation_record_counts_its_gains_from_its_seeds():
    record = records.load("augmentation")
    assert set(record["results"]) == set(augmentation.TRANSFORMS)
    for name, gains in record["minus_none"].items():
        for step in map(str, augmentation.UPDATES):
            each = augmentation.gain(record["results"][name][step], record["results"]["none"][step])
            assert gains[step]["each"] == pytest.approx(each, abs=1e-4) and len(each) == len(augmentation.SEEDS)
            assert record["better_than_none"][name][step] == sum(value > 0 for value in each)
