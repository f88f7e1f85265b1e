"""The records `remedies` and `batch_throughput`: their counts, their stores, and that figures are of the same work."""

from __future__ import annotations

import pytest
import torch

from benchmarks import batch_throughput, costs, model_remedies, records, remedies
from benchmarks import data_remedies as data
from benchmarks import photo_stores as stores
from course_utils.catalogue import make_catalogue


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("photos") / "few", num_products=6, seed=0)


def test_the_peak_is_the_most_that_is_held_at_once():
    def three_of_which_two_at_once():
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        return second, torch.empty(250)

    assert costs.peak_bytes(three_of_which_two_at_once) == 6000
    assert costs.peak_bytes(lambda: None) == 0


def test_rows_are_compared_by_their_least_times():
    rows = {
        name: costs.milliseconds(seconds, per=2) for name, seconds in {"a": [4e-3, 2e-3], "b": [3e-3, 9e-3]}.items()
    }
    assert rows == {"a": {"ms": 1.0, "median_ms": 1.5}, "b": {"ms": 1.5, "median_ms": 3.0}}
    assert [row["over_first"] for row in costs.compared(rows).values()] == [1.0, 1.5]


def test_adamw_keeps_two_numbers_a_parameter_and_a_step():
    param = torch.nn.Parameter(torch.ones(10))
    param.grad = torch.ones(10)
    optimizer = torch.optim.AdamW([param])
    assert costs.state_bytes(optimizer) == 0
    optimizer.step()
    assert costs.state_bytes(optimizer) == 4 * (2 * 10 + 1)


@pytest.mark.parametrize(
    "name", [name for name, way in model_remedies.STEPS.items() if way.side == 64 and way.width == 16]
)
def test_each_way_of_the_same_model_gives_the_same_gradient(name):
    way, plain = (model_remedies.quick(model_remedies.STEPS[of]) for of in (name, "plain"))
    assert model_remedies.counted(way, plain)["gradient_error"] < 1e-5
    assert model_remedies.Training(way).way.words == model_remedies.STEPS[name].words


def test_16_bits_change_the_gradient_and_half_the_width_has_none_to_compare():
    plain, *others = (model_remedies.quick(way) for way in model_remedies.PRECISIONS.values())
    assert all(1e-5 < model_remedies.counted(way, plain)["gradient_error"] < 0.1 for way in others)
    narrow = model_remedies.quick(model_remedies.STEPS["half width"])
    assert model_remedies.counted(narrow, model_remedies.quick(model_remedies.STEPS["plain"]))["gradient_error"] is None


def test_the_models_have_the_sizes_that_the_record_names():
    sizes = {
        of: sum(param.numel() for param in of(16).parameters())
        for of in (model_remedies.photo_net, model_remedies.even_net)
    }
    assert sizes[model_remedies.photo_net] == 72_730 and "72,730" in remedies.setup()["photo_net"]
    kept = {
        layer(torch.ones(1, 3, 8, 8)).numel()
        for layer in [model_remedies.even_net(4)[: 2 * at + 2] for at in range(12)]
    }
    assert len(kept) == 1  # equally large


def test_every_store_gives_the_same_photos_and_classes(root, tmp_path):
    plain, targets = stores.decoded(stores.folder(root, 64))
    found = data.from_files(root, tmp_path) | data.from_one_place(root, tmp_path)
    for name, store in found.items():
        if store.is_tars:
            continue
        images, classes = stores.decoded(store.made)
        assert torch.equal(classes, targets) and images.dtype == torch.uint8
        if name == "small copies":  # compressed twice
            assert 0 < (images.float() - plain.float()).abs().mean() < 6
        elif "Pillow" in name:
            assert (images.int() - plain.int()).abs().max() <= 1
        else:
            assert torch.equal(images, plain), name


def test_archives_hold_every_photo_once_in_batches(root, tmp_path):
    plain, targets = stores.decoded(stores.folder(root, 8))
    batches = list(stores.tar_batches(stores.tars(stores.samples_of(root), tmp_path), 8, 4))
    assert [len(of) for _, of in batches[:-1]] == [4] * (len(batches) - 1)
    images = torch.cat([images for images, _ in batches])
    found = sorted(
        zip(map(str, images.flatten(1).tolist()), torch.cat([of for _, of in batches]).tolist(), strict=True)
    )
    assert found == sorted(zip(map(str, plain.flatten(1).tolist()), targets.tolist(), strict=True))


def test_every_reader_of_bytes_reads_all_of_them(root, tmp_path):
    total = sum(path.stat().st_size for path, _ in stores.samples_of(root))
    assert {read() for read, _, _ in stores.byte_readers(root, tmp_path).values()} == {total}


def test_draft_decodes_fewer_pixels_of_large_photos_only(root, tmp_path):
    large = stores.enlarged(stores.samples_of(root)[:2], tmp_path, factor=4)
    for photos, smaller in ((large, True), (root, False)):
        samples = stores.samples_of(photos)[:2]
        drafts, wholes = (stores.decoded(stores.PillowPhotos(samples, 64, draft=draft))[0] for draft in (True, False))
        assert torch.equal(drafts, wholes) != smaller


def test_the_transforms_that_are_compared_have_one_range_and_one_shape():
    images = torch.randint(0, 256, (4, 3, 64, 64)).byte()
    whole = data.ComposeBatch(data.crop_flip, data.ToFloat(data.MEAN, data.STD))
    made, _ = whole(images, torch.zeros(4), data.BatchKey(0, 0, 0, range(4)))
    each = torch.stack([data.v2_transform()(image) for image in images])
    assert made.shape == each.shape and made.dtype == each.dtype
    assert torch.allclose(made.amax((0, 2, 3)), each.amax((0, 2, 3)), atol=0.1)


def test_the_smallest_size_near_the_best_is_found():
    speeds = {"1": 10, "8": 91, "64": 96, "512": 100, "1024": 97}
    sizes = {
        size: {kind: {"examples_per_s": speed} for kind in ("train", "validation")} for size, speed in speeds.items()
    }
    found = batch_throughput.summary(sizes)
    assert found["best"]["train"] == 512
    assert found["within"] == {"5 %": {"train": 64, "validation": 64}, "10 %": {"train": 8, "validation": 8}}


def test_a_small_batch_does_not_keep_the_whole_data_set_it_was_cut_from():
    for task, a_photo in (("fashion", 12_596), ("photos", 163_892)):
        stored = records.load("batch_throughput")["tasks"][task]["sizes"]["1"]["train"]["kept_bytes"]
        assert stored == a_photo
    assert batch_throughput.memory("fashion", 1)["train"]["kept_bytes"] == 12_596


def test_a_first_step_makes_the_state_and_a_later_one_keeps_less_than_it():
    training = batch_throughput.Training("fashion", 2)
    before = [param.clone() for param in training.model.parameters()]
    training.step()
    assert costs.state_bytes(training.optimizer) >= 8 * 9226
    assert all(torch.equal(*pair) for pair in zip(before, training.model.parameters(), strict=True))


@pytest.fixture
def nothing_stored(tmp_path, monkeypatch):
    """Few photos; no record and no cache file afterwards."""
    monkeypatch.setattr(records, "RECORDS", tmp_path / "records")
    monkeypatch.setattr("benchmarks.trainings.tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(data, "FACTOR", 2)
    monkeypatch.setattr(batch_throughput, "NUM_PRODUCTS", 6)
    batch_throughput._photos.cache_clear()
    yield
    batch_throughput._photos.cache_clear()
    assert not [*tmp_path.glob("records*"), *tmp_path.glob("course-benchmarks*")]


@pytest.mark.parametrize("piece", ["large photos", "together", "undecoded", "precisions", "SGD, momentum 0.9"])
def test_a_quick_piece_gives_its_table(nothing_stored, capsys, piece):
    remedies.main(["--quick", "--piece", piece])
    assert f"['{piece}']" in capsys.readouterr().out


def test_a_quick_run_of_the_throughput_gives_both_tasks(nothing_stored, capsys):
    batch_throughput.main(["--quick"])
    assert "{'fashion': {'5 %': {'train': " in capsys.readouterr().out


def rows_of(tables):
    return [(name, way, row) for name, table in tables.items() for way, row in table.items()]


def test_the_remedies_record_holds_what_the_chapter_reads():
    record = records.load("remedies")
    assert set(record["data"]) | set(record["model"]) == set(remedies.ROUNDS) == set(record["setup"]["rounds"])
    for _, _, row in rows_of(record["data"]) + rows_of(record["model"]):
        assert 0 < row["ms"] <= row["median_ms"] and row["over_first"] > 0
    for _, way, row in rows_of({name: record["data"][name] for name in ("reading", "large photos")}):
        assert row["prepare_s"] >= 0 and (row["disk_bytes"] > 0) != (way == "in memory") == (row["ram_bytes"] > 0)
    for name, ways in remedies.STEPS.items():
        assert set(record["model"][name]) <= set(ways)
        assert all(row["kept_bytes"] > 0 < row["peak_bytes"] for row in record["model"][name].values())


def test_the_counts_of_the_remedies_record_can_be_counted_again():
    for name, way in (("steps", "4 micro-batches"), ("steps", "half width"), ("checkpoints", "checkpoint 4")):
        stored = records.load("remedies")["model"][name][way]
        training = model_remedies.Training(remedies.STEPS[name][way])
        assert model_remedies.bytes_for_backward(training.loss) == stored["kept_bytes"]


def test_the_throughput_record_holds_every_size_and_its_summary_follows_from_them():
    for task in records.load("batch_throughput")["tasks"].values():
        assert list(task["sizes"]) == [str(size) for size in batch_throughput.SIZES]
        assert batch_throughput.summary(task["sizes"]) == {"best": task["best"], "within": task["within"]}
        kept = [row["train"]["kept_bytes"] for row in task["sizes"].values()]
        assert kept == sorted(kept) and kept[-1] > 500 * kept[0]
        for size, row in task["sizes"].items():
            assert row["train"]["examples_per_s"] == pytest.approx(int(size) / row["train"]["ms"] * 1e3, rel=1e-3)
