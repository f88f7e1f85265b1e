"""`reference_model`: the shipped weights, photos that they have never seen, and what is left of a photo."""

import json
import random
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from course_utils.data import REFERENCE_MODEL
from course_utils.data.make_reference_model import SHIFT, _shifted, accuracy, make, save, train_reference_model
from course_utils.datasets import ArrayDataset, load_fashion
from course_utils.randomness import derive_seed
from course_utils.reference_model import (
    ReferenceCNN,
    draw_photos,
    load_reference_model,
    recognition_table,
    reference_photos,
    reference_recipe,
    split_items,
    still_recognised,
)
from course_utils.transforms import crop_flip, eval_transform

FLIP = v2.RandomHorizontalFlip(p=1.0)


@pytest.fixture(scope="module")
def photos():
    return reference_photos(200)


# --- what ships ---


def test_the_weights_are_plain_float_arrays_of_a_small_file():
    with np.load(REFERENCE_MODEL, allow_pickle=False) as arrays:
        kinds = {arrays[name].dtype.kind for name in arrays}
    assert kinds <= {"f", "i"} and REFERENCE_MODEL.stat().st_size < 150_000


def test_the_recipe_beside_the_weights_says_how_they_were_made_and_how_good_they_are():
    recipe = reference_recipe()
    assert recipe["parameters"] == sum(parameter.numel() for parameter in ReferenceCNN().parameters()) < 32_000
    assert recipe["torch"] and recipe["arguments"].keys() == {"num_epochs", "photos_per_item", "seed"}
    assert recipe["train_photos"] == 9000 * recipe["arguments"]["photos_per_item"] and recipe["held_out_items"] == 1000
    assert recipe["held_out_accuracy"] >= 0.76 and str(SHIFT) in recipe["augmentation"]


def test_the_model_names_the_class_of_photos_it_has_never_seen(photos):
    found = still_recognised(None, photos)
    assert found.share == found.baseline >= 0.72 and abs(found.share - reference_recipe()["held_out_accuracy"]) < 0.1
    assert min(found.per_class.values()) >= 0.2  # shirts are hard, nothing is hopeless


def test_loading_touches_no_generator_and_gives_a_model_that_does_not_learn():
    states = torch.get_rng_state(), random.getstate()
    model = load_reference_model()
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert not model.training and not any(parameter.requires_grad for parameter in model.parameters())


def test_uint8_and_float_photos_get_the_same_answers(photos):
    model = load_reference_model()
    assert torch.equal(model(photos.images[:20]), model(photos.images[:20].float() / 255))


def test_the_model_normalises_by_one_half_and_one_quarter():
    model, images = load_reference_model(), torch.full((1, 3, 64, 64), 51, dtype=torch.uint8)
    model.layers = torch.nn.Identity()
    assert model(images).unique().tolist() == pytest.approx([(0.2 - 0.5) / 0.25])


@pytest.mark.parametrize("value, taken", [(-0.5, False), (-0.005, True), (1.005, True), (1.5, False)])
def test_float_images_may_lie_beside_the_range_by_what_an_interpolation_adds(value, taken):
    images = torch.full((1, 3, 64, 64), 0.5)
    images[0, 0, 0, 0] = value
    with nullcontext() if taken else pytest.raises(ValueError, match="before Normalize"):
        assert load_reference_model()(images).shape == (1, 10)


def test_no_images_have_no_answers():
    for dtype in (torch.uint8, torch.float32):
        assert load_reference_model()(torch.zeros(0, 3, 64, 64, dtype=dtype)).shape == (0, 10)


@pytest.mark.parametrize(
    "images, message",
    [
        (torch.zeros(3, 64, 64), r"\(B, 3, 64, 64\), got \(3, 64, 64\)"),
        (torch.zeros(1, 3, 32, 32), r"got \(1, 3, 32, 32\)"),
        (torch.full((1, 3, 64, 64), -2.0), r"before Normalize: need .*; got torch.float32 from -2 to -2"),
        (torch.full((1, 3, 64, 64), torch.nan), "from nan to nan"),
        (torch.zeros(1, 3, 64, 64, dtype=torch.int64), "torch.int64"),
    ],
)
def test_the_model_says_what_it_needs(images, message):
    with pytest.raises(ValueError, match=message):
        load_reference_model()(images)


# --- photos ---


def test_items_are_held_out_whole_and_every_class_gives_a_tenth():
    train, held_out = split_items()
    assert not set(train) & set(held_out) and sorted(train + held_out) == list(range(10_000))
    assert torch.bincount(load_fashion("train").targets[list(held_out)]).tolist() == [100] * 10


def test_reference_photos_are_the_same_each_time_and_a_smaller_set_is_their_beginning(photos):
    again = reference_photos(30)
    assert torch.equal(again.images, photos.images[:30]) and torch.equal(again.targets, photos.targets[:30])
    assert not torch.equal(reference_photos(30, seed=1).images, again.images)
    assert photos.images.shape == (200, 3, 64, 64) and photos.images.dtype == torch.uint8


@pytest.mark.parametrize("num_photos, counts", [(10, {1}), (25, {2, 3}), (1, {0, 1})])
def test_classes_are_balanced_to_one_photo(num_photos, counts):
    assert set(torch.bincount(reference_photos(num_photos).targets, minlength=10).tolist()) == counts


@pytest.mark.parametrize("num_photos", [0, 1001])
def test_more_photos_than_items_held_out_are_refused(num_photos):
    with pytest.raises(ValueError, match=f"1 to 1000.*got {num_photos}"):
        reference_photos(num_photos)


def test_a_photo_is_a_function_of_seed_item_and_number_in_any_company():
    many = draw_photos([7, 8, 9], seed=3, photos_per_item=2)
    assert torch.equal(draw_photos([8], seed=3).images[0], many.images[2])
    assert not torch.equal(many.images[2], many.images[3]) and many.targets.tolist()[::2] == many.targets.tolist()[1::2]


def test_photos_are_cut_as_eval_transform_cuts_them():
    from course_utils.catalogue_photos import draw_photo
    from course_utils.catalogue_plan import CLASSES, catalogue_items, plan_product

    items, shapes = range(8), set()
    for item, image in zip(items, draw_photos(items, seed=3).images, strict=True):
        rng, name = random.Random(derive_seed("reference photo", 3, item, 0)), list(CLASSES)[catalogue_items()[1][item]]
        _, drawing = next(plan_product(0, name, item, rng))
        whole = draw_photo(catalogue_items()[0][item], **drawing)
        assert torch.equal((eval_transform(64)(whole) * 255).round(), image.float())
        shapes.add(whole.width - whole.height)
    assert min(shapes) < 0 < max(shapes)  # high photos and wide ones


# --- what is left of a photo ---


def random_noise(image: torch.Tensor) -> torch.Tensor:
    return (image + torch.randint(0, 120, image.shape)).clamp(0, 255).to(torch.uint8)


def test_a_result_is_a_function_of_the_seed_and_no_generator_moves(photos):
    before = torch.get_rng_state()
    first = still_recognised(random_noise, photos, seed=1, repeats=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    again = still_recognised(random_noise, photos, seed=1, repeats=2)
    assert torch.equal(first.predicted, again.predicted) and first.per_class == again.per_class
    assert not torch.equal(first.predicted, still_recognised(random_noise, photos, seed=2, repeats=2).predicted)
    assert not torch.equal(*first.predicted)  # a repeat draws anew


def test_each_photo_has_its_own_draws_whatever_the_others_are(photos):
    few = photos.replace_transforms(None, None)
    few.images, few.targets = photos.images[:20], photos.targets[:20]
    whole = still_recognised(random_noise, photos).predicted
    assert torch.equal(still_recognised(random_noise, few).predicted, whole[:, :20])


def test_shares_are_counts_of_what_the_model_named(photos):
    found = still_recognised(FLIP, photos, repeats=2)
    assert found.recognised.shape == found.predicted.shape == (2, 200)
    assert torch.equal(found.recognised, found.predicted == photos.targets)
    assert found.share == pytest.approx(found.recognised.double().mean().item())
    assert found.per_class.keys() == set(photos.classes)
    assert sum(found.per_class.values()) / 10 == pytest.approx(found.share)  # classes are balanced


def test_a_black_photo_is_not_recognised_and_the_table_keeps_names_and_order(photos):
    rows = recognition_table([("as they are", None), ("black", torch.zeros_like)], photos)
    assert [name for name, _ in rows] == ["as they are", "black"]
    assert rows[0][1] > 0.7 and rows[1][1] == 0.1  # one class for all: a tenth
    how = {"seed": 2, "repeats": 2}
    ((_, share),) = recognition_table([("noise", random_noise)], photos, **how)
    assert share == still_recognised(random_noise, photos, **how).share != still_recognised(random_noise, photos).share


def test_the_baseline_is_of_the_photos_as_they_are_and_a_class_counts_all_repeats(photos):
    found = still_recognised(random_noise, photos, repeats=3)
    assert found.baseline == still_recognised(None, photos).share != found.share
    for target, name in enumerate(photos.classes):
        assert found.per_class[name] == pytest.approx(found.recognised[:, photos.targets == target].double().mean())


def test_many_photos_are_asked_in_parts_and_all_are_answered(photos):
    twice = ArrayDataset(photos.images.repeat(2, 1, 1, 1), photos.targets.repeat(2), classes=photos.classes)
    answers = still_recognised(None, photos).predicted
    assert torch.equal(still_recognised(None, twice).predicted, answers.repeat(1, 2))  # 400 photos, in parts of 200


@pytest.mark.parametrize("num_photos, repeats", [(20, 0), (20, -1), (0, 1)])
def test_without_photos_or_repeats_there_is_nothing_to_ask(photos, num_photos, repeats):
    some = ArrayDataset(photos.images[:num_photos], photos.targets[:num_photos], classes=photos.classes)
    with pytest.raises(ValueError, match=f"got {num_photos} photos, repeats={repeats}"):
        still_recognised(None, some, repeats=repeats)


def test_batch_transforms_can_be_asked_too(photos):
    found = still_recognised(None, photos, batch_transform=crop_flip)
    assert found.predicted.shape == (1, 200) and not torch.equal(
        found.predicted, still_recognised(None, photos).predicted
    )


def test_a_class_without_photos_is_left_out():
    found = still_recognised(None, reference_photos(3))
    assert len(found.per_class) == 3 and all(0 <= share <= 1 for share in found.per_class.values())


# --- the script ---


def test_a_tiny_run_of_the_script_learns_its_photos_and_is_a_function_of_the_seed():
    tiny = draw_photos(split_items()[0][:64], seed=1)
    before = torch.get_rng_state()
    model = train_reference_model(tiny, num_epochs=20, batch_size=32)
    assert torch.equal(torch.get_rng_state(), before) and accuracy(model, tiny) > 0.6
    again = train_reference_model(tiny, num_epochs=20, batch_size=32)
    assert torch.equal(model(tiny.images), again(tiny.images))


def test_training_moves_photos_by_every_shift_of_up_to_4_pixels_and_mirrors_what_comes_in():
    rows, columns = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    places, shifts = torch.stack([rows, columns])[None].to(torch.uint8), set()
    for _ in range(1000):
        moved = (_shifted(places) * 255).round()[0]
        down, right = (moved[:, 32, 32] - 32).int().tolist()
        shifts.add((down, right))
        assert moved[:, 0, 0].tolist() == [abs(down), abs(right)] and moved[1, 0, 63] > moved[1, 0, 40]
    assert shifts == {(down, right) for down in range(-4, 5) for right in range(-4, 5)}


def test_another_seed_trains_another_model():
    tiny = draw_photos(range(20), seed=1)
    one, two = (train_reference_model(tiny, num_epochs=1, batch_size=20, seed=seed) for seed in (0, 1))
    assert not torch.equal(one(tiny.images), two(tiny.images)) and not one.training


def test_the_script_trains_on_its_items_and_measures_on_the_others_with_other_draws(tmp_path, monkeypatch):
    drawn, measured, place = [], [], "course_utils.data.make_reference_model."
    monkeypatch.setattr(place + "split_items", lambda: ([1, 2], [50]))
    monkeypatch.setattr(
        place + "draw_photos", lambda items, **how: drawn.append((items, how)) or draw_photos(items, **how)
    )
    monkeypatch.setattr(place + "train_reference_model", lambda photos, **how: ReferenceCNN())
    monkeypatch.setattr(place + "accuracy", lambda model, photos: measured.append(len(photos)) or 0.5)
    make(tmp_path / "weights.npz", photos_per_item=3, seed=6)
    assert drawn == [([1, 2], {"seed": 7, "photos_per_item": 3}), ([50], {"seed": 6})] and measured == [6, 1]
    assert b"\r" not in (tmp_path / "weights.json").read_bytes()


def test_what_the_script_saves_is_what_it_made(tmp_path, monkeypatch):
    monkeypatch.setattr("course_utils.data.make_reference_model.split_items", lambda: (list(range(40)), [50, 51]))
    monkeypatch.setattr(
        "course_utils.data.make_reference_model.train_reference_model",
        lambda photos, **how: train_reference_model(photos, num_epochs=1, batch_size=20),
    )
    recipe = make(tmp_path / "weights.npz", num_epochs=1, photos_per_item=1)
    assert json.loads((tmp_path / "weights.json").read_text(encoding="utf-8")) == recipe
    assert recipe.keys() == reference_recipe().keys() and recipe["train_photos"] == 40


def test_saved_weights_come_back_to_the_bit(tmp_path, monkeypatch):
    model = ReferenceCNN().to(memory_format=torch.channels_last)
    save(model, {}, tmp_path / "weights.npz")
    monkeypatch.setattr("course_utils.reference_model.REFERENCE_MODEL", tmp_path / "weights.npz")
    for one, two in zip(model.state_dict().values(), load_reference_model().state_dict().values(), strict=True):
        assert torch.equal(one, two)
