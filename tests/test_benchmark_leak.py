"""The leak's record: its splits, its photos, and that its figures are counted from its seeds."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import leak, records
from benchmarks.catalogue_tasks import Examples


def photos(num_products: int = 40) -> leak.Photos:
    products = [product for product in range(num_products) for _ in range(3)]
    targets = torch.tensor([product % 2 for product in products])
    return leak.Photos(Examples(torch.zeros(len(products), 3, 4, 4), targets), products)


def test_by_product_no_product_is_in_two_parts_and_per_photo_almost_all_are():
    shared = {}
    for split in leak.SPLITS:
        found = photos()
        train, val, new = leak.divide(split, found, 0)
        assert sorted(train + val + new) == list(range(120)) and len(train) == 4 * len(val) - 2 * (len(val) % 2)
        of_part = [{found.products[at] for at in part} for part in (train, val, new)]
        assert not of_part[2] & (of_part[0] | of_part[1])
        shared[split] = len(of_part[0] & of_part[1])
    assert shared["by product"] == 0 and shared["per photo"] > 10


def test_the_new_products_are_the_same_for_both_splits_and_others_for_another_seed():
    new = {(split, seed): leak.divide(split, photos(), seed)[2] for split in leak.SPLITS for seed in (0, 1)}
    assert new["per photo", 0] == new["by product", 0] != new["by product", 1]


def test_a_burst_is_three_times_each_photo_moved_by_two_pixels_at_most():
    image = torch.zeros(1, 3, 9, 9)
    image[0, :, 4, 4] = 1
    found = leak.burst(torch.cat([image, image * 2]))
    assert found.shape == (6, 3, 9, 9)
    brightest = [divmod(int(of[0].argmax()), 9) for of in found]
    assert all(2 <= row <= 6 and 2 <= column <= 6 for row, column in brightest) and len(set(brightest)) > 1
    assert [round(float(of.max() - of.min())) for of in found] == [1, 2] * 3


def test_the_leak_record_compares_both_splits_on_as_many_photos():
    results = records.load("leak")["results"]
    assert set(results) == set(leak.CASES)
    for case in results.values():
        assert set(case) == set(leak.SPLITS) and case["by product"]["num_shared"] == 0
        assert abs(case["per photo"]["num_val"] - case["by product"]["num_val"]) <= 2
        for found in case.values():
            for epoch in map(str, leak.EPOCHS):
                val, new, excess = (found[name][epoch] for name in ("val_accuracy", "new_accuracy", "excess"))
                assert len(val["each"]) == 5
                assert excess["each"] == pytest.approx(
                    [a - b for a, b in zip(val["each"], new["each"], strict=True)], abs=2e-4
                )


def test_where_a_product_has_one_photo_both_splits_are_the_same():
    one = records.load("leak")["results"]["1 photo"]
    assert one["per photo"] == one["by product"]


def test_a_quick_run_gives_every_case_and_stores_nothing(tmp_path, monkeypatch, capsys):
    groups = [at // 3 for at in range(60)]
    data = Examples(torch.rand(60, 3, 32, 32), torch.tensor([group % 2 for group in groups]))
    monkeypatch.setattr(leak, "photos_of", lambda case: leak.Photos(data, groups))
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    leak.main(["--quick"])
    assert set(json.loads(capsys.readouterr().out)) == set(leak.CASES) and not list(tmp_path.iterdir())
