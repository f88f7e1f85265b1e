"""`transforms`: keyed augmentation of a batch, exact statistics, two views of one dataset."""

import pickle
from functools import partial

import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset
from torchvision.transforms import v2

from course_utils import channel_statistics
from course_utils.datasets import ArrayDataset, ImageFolderDataset
from course_utils.loaders import ResumableLoader
from course_utils.randomness import BatchKey
from course_utils.transforms import (
    ComposeBatch,
    ToFloat,
    channel_stats,
    crop_flip,
    eval_transform,
    resize,
    train_transform,
    with_transform,
)  # fmt: skip

IMAGES = torch.randint(0, 256, (40, 3, 10, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(40) % 4


def dataset(images: torch.Tensor = IMAGES, **transforms) -> ArrayDataset:
    return ArrayDataset(images, TARGETS[: len(images)], classes="abcd", **transforms)


class Pairs(Dataset):
    """A dataset that knows nothing of keys."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index % 4


def key(indices, repeats=None, epoch=0) -> BatchKey:
    return BatchKey(7, epoch, 0, list(indices), repeats)


def test_to_float_scales_uint8_and_normalises_each_channel():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
    assert ToFloat()(images, TARGETS)[0].flatten().tolist() == pytest.approx([0, 0.2, 1])
    result, _ = ToFloat([0.5, 0.1, 0.0], [0.5, 0.1, 2.0])(images, TARGETS)
    assert result.flatten().tolist() == pytest.approx([-1, 1, 0.5]) and result.dtype == torch.float32


def test_to_float_leaves_floats_unscaled_and_unchanged_in_place():
    images = torch.tensor([0.25, 1.0]).reshape(1, 1, 1, 2)
    assert ToFloat(0.25, 0.5)(images, TARGETS)[0].flatten().tolist() == [0, 1.5]
    assert images.flatten().tolist() == [0.25, 1.0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("mean, std", [(0.3, 0.7), ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6]), (0.5, [0.1, 0.2, 0.3])])
def test_to_float_gives_the_bits_of_the_formula_and_changes_no_input(dtype, mean, std):
    images = (IMAGES if dtype == torch.uint8 else IMAGES / 255).to(dtype)
    before, as_column = images.clone(), [torch.tensor(values).reshape(-1, 1, 1) for values in (mean, std)]
    unit = images.float() / 255 if dtype == torch.uint8 else images.float()
    for given, expected in ((images, unit), (images[0], unit[0])):
        assert torch.equal(ToFloat(mean, std)(given, TARGETS)[0], (expected - as_column[0]) / as_column[1])
        assert torch.equal(images, before)
    if isinstance(mean, float) and isinstance(std, float):  # a grey plane without a channel gets one
        assert torch.equal(ToFloat(mean, std)(images[0, 0], TARGETS)[0], (unit[0, :1] - mean) / std)


def test_to_float_refuses_what_it_cannot_scale():
    with pytest.raises(ValueError, match="int32"):
        ToFloat()(IMAGES.int(), TARGETS)
    with pytest.raises(ValueError, match="mean=0.5, std=None"):
        ToFloat(mean=0.5)
    with pytest.raises(ValueError, match="std must be above 0"):
        ToFloat([0.5, 0.5], [0.1, 0.0])


@pytest.mark.parametrize("value", [200.0, -0.5, float("inf")])
def test_floats_of_another_range_are_refused_before_they_are_normalised(value):
    images = torch.full((2, 1, 4, 4), 0.5)
    images[1, 0, 2, 3] = value
    with pytest.raises(ValueError, match=r"float in \[0, 1\]; got torch.float32 from .*once"):
        ToFloat(0.5, 0.25)(images, TARGETS)


@pytest.mark.parametrize("size", [6, 60])
def test_white_floats_that_resizing_rounds_above_one_are_no_error(size):
    white = v2.Resize(size)(torch.ones(3, 97, 88))
    assert torch.equal(ToFloat()(white[None], None)[0][0], white)
    channel_stats([(white, 0), (torch.zeros(3, 4, 4), 0)])
    eval_transform(4)(white)


def test_normalising_twice_is_an_error():
    once, _ = ToFloat(0.5, 0.25)(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), None)
    with pytest.raises(ValueError, match="from -2 to 2: .*normalise once"):
        ToFloat(0.5, 0.25)(once, None)


def test_batch_transforms_compose_in_order_survive_pickling_and_stay_keyed():
    both = ComposeBatch(partial(crop_flip, padding=2), ToFloat(0.5, 0.25))
    data = pickle.loads(pickle.dumps(dataset(batch_transform=both)))
    images, _ = data.take(key([3, 8]))
    augmented, _ = crop_flip(IMAGES[[3, 8]], TARGETS[[3, 8]], key([3, 8]), padding=2)
    assert torch.equal(images, (augmented.float() / 255 - 0.5) / 0.25)
    assert both.keyed and not ComposeBatch(ToFloat(), lambda images, targets, key: (images, targets)).keyed


def test_channel_stats_equal_float64_over_everything_at_once():
    pixels = IMAGES.double().div(255).transpose(0, 1).flatten(1)
    mean, std = channel_stats(dataset())
    torch.testing.assert_close(mean, pixels.mean(1), rtol=0, atol=1e-15)
    torch.testing.assert_close(std, pixels.std(1, correction=0), rtol=0, atol=1e-15)


def test_channel_stats_do_not_depend_on_how_the_images_come():
    floats = Pairs(list(IMAGES.double() / 255))
    mixed_sizes = Pairs([IMAGES[0, :, :4], *IMAGES[1:], IMAGES[0, :, 4:]])
    for other in (
        Pairs(IMAGES),
        floats,
        mixed_sizes,
        dataset(transform=lambda image: image),
        Subset(dataset(), range(40)),
    ):
        for one, two in zip(channel_stats(dataset()), channel_stats(other), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-14)


def test_channel_stats_of_photos_in_memory_take_few_large_ones_and_many_small_ones_at_once(monkeypatch):
    taken, check = [], channel_statistics._checked_pixels
    monkeypatch.setattr(channel_statistics, "_checked_pixels", lambda *one: taken.append(one[0].shape) or check(*one))
    for size in (3, 200):
        channel_stats(dataset(torch.randint(0, 256, (40, 3, size, size), dtype=torch.uint8)))
    assert taken == [(40, 3, 3, 3), *[(2, 3, 200, 200)] * 20]  # 2 x 120,000 values, of at most 2**18


@pytest.mark.parametrize("values", [1, 1100, 10**9])
def test_channel_stats_of_photos_in_memory_are_of_all_of_them_however_many_are_taken_at_once(monkeypatch, values):
    monkeypatch.setattr(channel_statistics, "_VALUES_AT_ONCE", values)  # 1, 3 or 40 of 360 values each
    for one, two in zip(channel_stats(dataset()), channel_stats(Pairs(IMAGES)), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-14)


def test_channel_stats_by_hand():
    images = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)  # one image, two channels of two pixels
    mean, std = channel_stats(dataset(images))
    assert mean.tolist() == pytest.approx([0.5, 0.3]) and std.tolist() == pytest.approx([0.5, 0.1])


def test_to_float_with_the_own_statistics_gives_mean_0_and_std_1():
    images, _ = dataset(batch_transform=ToFloat(*channel_stats(dataset()))).take(key(range(40)))
    pixels = images.transpose(0, 1).flatten(1).double()
    torch.testing.assert_close(pixels.mean(1), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-6)
    torch.testing.assert_close(pixels.std(1, correction=0), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("value", [7, 0.1], ids=["uint8", "float"])
def test_a_constant_channel_is_named_with_its_value(value):
    images = IMAGES.clone() if isinstance(value, int) else IMAGES.float() / 255
    images[:, 1] = value
    with pytest.raises(
        ValueError, match=rf"channels \[1\] are constant \(\[{value / 255 if value == 7 else value:.3f}"
    ):
        channel_stats(Pairs(images))


@pytest.mark.parametrize(
    "images, message",
    [
        ([], "at least one image"),
        ([IMAGES[0], IMAGES[1].float()], r"image 1: need uint8, or float in \[0, 1\]; got torch.float32 from"),
        ([IMAGES[0].int()], "image 0: .*int32"),
        ([IMAGES[0], torch.full((3, 2, 2), torch.nan)], "image 1: .*nan"),
        (["photo.jpg"], r"image 0: need a tensor \(C, H, W\), got str"),
        ([IMAGES[0, 0]], r"image 0: need a tensor \(C, H, W\), got \(10, 12\)"),
        ([IMAGES[0], IMAGES[1, :1]], "image 1: need 3 channels as before, got 1"),
        ([torch.full((3, 2, 2), -0.5)], r"image 0: .*float32 from -0\.5 to -0\.5"),
        ([torch.zeros(3, 0, 5, dtype=torch.uint8)], r"image 0: need a tensor \(C, H, W\), got \(3, 0, 5\)"),
    ],
)
def test_channel_stats_names_the_image_that_does_not_fit(images, message):
    with pytest.raises(ValueError, match=message):
        channel_stats(Pairs(images))


def negative(image: torch.Tensor) -> torch.Tensor:
    return 255 - image


def noisy(image: torch.Tensor) -> torch.Tensor:
    return image.float() / 256 + torch.rand(1) / 256


def test_two_views_share_their_images_and_not_their_transforms():
    base = dataset()
    train, val = with_transform(base, negative), with_transform(base)
    assert torch.equal(train[3][0], 255 - IMAGES[3]) and torch.equal(val[3][0], IMAGES[3]) and base.transform is None
    assert train.images.data_ptr() == base.images.data_ptr()


def test_a_view_of_an_array_dataset_replaces_its_transforms_and_keeps_take():
    view = with_transform(dataset(transform=noisy, batch_transform=crop_flip), negative, batch_transform=ToFloat())
    images, targets = view.take(key([3, 8]))
    assert torch.equal(images, (255 - IMAGES[[3, 8]]).float() / 255) and torch.equal(targets, TARGETS[[3, 8]])


def test_a_view_of_a_subset_is_a_subset_of_a_view():
    view = with_transform(Subset(Subset(dataset(), [30, 20, 10]), [2, 0]), negative)
    assert torch.equal(view[0][0], 255 - IMAGES[10]) and torch.equal(view[1][0], 255 - IMAGES[30])
    assert view.dataset.dataset.transform is negative and hasattr(view.dataset.dataset, "take")


def test_a_class_derived_from_subset_keeps_what_it_does_itself_under_a_view():
    class Inverted(Subset):
        def __getitem__(self, index):
            image, target = super().__getitem__(index)
            return 255 - image, target

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    view = with_transform(Inverted(dataset(), [7, 3]), lambda image: image // 2)
    assert len(view) == 2 and torch.equal(view[1][0], (255 - IMAGES[3]) // 2)


def test_the_trap_that_with_transform_repairs_a_transform_set_on_a_subset_does_nothing():
    subset = Subset(dataset(), [3])
    subset.transform = negative
    assert torch.equal(subset[0][0], IMAGES[3])
    assert torch.equal(with_transform(subset, negative)[0][0], 255 - IMAGES[3])


def test_a_foreign_dataset_gets_the_transform_and_take_only_with_a_batch_transform():
    plain = with_transform(Pairs(IMAGES), negative)
    assert torch.equal(plain[3][0], 255 - IMAGES[3]) and plain[3][1] == 3 and not hasattr(plain, "take")
    images, targets = with_transform(Pairs(IMAGES), negative, batch_transform=crop_flip).take(key([3, 8]))
    assert torch.equal(images, crop_flip(255 - IMAGES[[3, 8]], TARGETS, key([3, 8]))[0]) and targets.tolist() == [3, 0]


def test_a_foreign_dataset_makes_keyed_and_empty_batches_as_an_array_dataset_does():
    ours = with_transform(dataset(), noisy, batch_transform=ToFloat())
    theirs = with_transform(Pairs(IMAGES), noisy, batch_transform=ToFloat())
    for indices in ([3, 8], [8], []):
        for one, two in zip(ours.take(key(indices)), theirs.take(key(indices)), strict=True):
            assert torch.equal(one, two) and one.dtype == two.dtype and one.shape == two.shape


def test_train_and_eval_transforms_give_float_squares_of_one_range():
    for pipeline in (train_transform(8), eval_transform(8)):
        result = pickle.loads(pickle.dumps(pipeline))(IMAGES[0])
        assert type(result) is torch.Tensor and result.shape == (3, 8, 8) and result.dtype == torch.float32
        assert 0 <= result.min() and 0.3 < result.max() <= 1


def test_eval_transform_cuts_the_central_square_and_train_transform_is_keyed():
    wide = torch.zeros(3, 8, 16, dtype=torch.uint8)
    wide[:, :, 4:12] = 255
    assert eval_transform(8)(wide).eq(1).all()  # equal heights: no resize, a quarter cut off on each side
    data = dataset(transform=train_transform(8))
    whole, _ = data.take(key(range(6)))
    assert torch.equal(data.take(key([4]))[0][0], whole[4]) and not torch.equal(whole[0], whole[1])


def test_a_pipeline_with_statistics_normalises():
    plain, normal = eval_transform(10)(IMAGES[0]), eval_transform(10, mean=[0.5] * 3, std=[0.25] * 3)(IMAGES[0])
    torch.testing.assert_close(normal, (plain - 0.5) / 0.25)
    with pytest.raises(ValueError, match="std=None"):
        train_transform(10, mean=[0.5] * 3)


@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 100, 7), (3, 7, 100), (3, 33, 65), (1, 28, 28), (3, 1000, 3)])
@pytest.mark.parametrize("make", [train_transform, eval_transform])
def test_any_shape_of_image_comes_out_as_a_square(make, shape):
    image = torch.randint(0, 256, shape, dtype=torch.uint8)
    result = make(32)(image)
    assert result.shape == (shape[0], 32, 32) and 0 <= result.min() <= result.max() <= 1


@pytest.mark.parametrize("height, width, cut", [(8, 24, (0, 8)), (24, 8, (8, 0)), (8, 11, (0, 2)), (9, 8, (0, 0))])
def test_what_eval_transform_cuts_off_by_hand(height, width, cut):
    image = torch.arange(height * width, dtype=torch.uint8).reshape(1, height, width)
    part = image[:, cut[0] : cut[0] + 8, cut[1] : cut[1] + 8]  # the shorter side is 8 already: nothing is resized
    assert torch.equal((eval_transform(8)(image) * 255).round(), part.float())


@pytest.mark.parametrize("channels", [1, 4])
def test_images_without_the_channels_of_the_statistics_are_refused(channels):
    wrong = torch.zeros(2, channels, 9, 9, dtype=torch.uint8)
    naive = (wrong.float() - torch.full((3, 1, 1), 0.5)) if channels == 1 else wrong
    assert naive.shape[1] == (3 if channels == 1 else 4)  # the mistake: one channel came out as three
    for call in (lambda: ToFloat([0.5] * 3, [0.2] * 3)(wrong, None), lambda: eval_transform(8, **STATS)(wrong[0])):
        with pytest.raises(ValueError, match=rf"of 3 channels, the images .* have {channels}"):
            call()


@pytest.mark.parametrize("mean, std", [(0.5, [0.2] * 3), ([0.5] * 3, 0.2)])
def test_one_mean_and_three_standard_deviations_are_statistics_of_three_channels(mean, std):
    grey = torch.zeros(1, 9, 9, dtype=torch.uint8)
    for call in (lambda: ToFloat(mean, std)(grey[None], None), lambda: eval_transform(8, mean=mean, std=std)(grey)):
        with pytest.raises(ValueError, match="of 3 channels, the images .* have 1"):
            call()


def test_train_transform_shows_60_to_100_per_cent_of_the_area_mirrored_half_of_the_time():
    places = torch.stack(torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")).to(torch.uint8)
    seen = torch.stack([train_transform(64)(places) for _ in range(200)]) * 255  # where each pixel came from
    extent = seen.amax((2, 3)) - seen.amin((2, 3)) + 1
    areas, mirrored = extent.prod(1) / 64**2, seen[:, 1, 0, 0] > seen[:, 1, 0, -1]
    assert 0.55 < areas.min() < 0.7 and areas.max() > 0.9 and 60 < int(mirrored.sum()) < 140


STATS = {"mean": [0.5] * 3, "std": [0.25] * 3}


def test_one_number_serves_any_number_of_channels():
    for channels in (1, 3):
        images = torch.full((2, channels, 8, 8), 255, dtype=torch.uint8)
        assert ToFloat(0.5, 0.25)(images, None)[0].eq(2).all()
        assert eval_transform(8, mean=0.5, std=0.25)(images[0]).eq(2).all()


@pytest.mark.parametrize(
    "image, message",
    [
        (torch.full((3, 9, 9), 200.0), "float32 from 200 to 200"),
        (torch.full((3, 9, 9), -0.5), "float32 from -0.5 to -0.5"),
        (torch.full((3, 9, 9), 200, dtype=torch.int32), "int32 from 200 to 200"),
        (torch.full((3, 9, 9), torch.nan), "float32 from nan"),
        (Image.new("I;16", (9, 9)), "got I;16: decode with load_rgb"),
        (Image.new("P", (9, 9)), "got P"),
        (Image.new("RGBA", (9, 9)), "got RGBA"),
    ],
    ids=["0..255", "negative", "int32", "nan", "16 bits", "palette", "alpha"],
)
@pytest.mark.parametrize("make", [train_transform, eval_transform])
def test_an_image_whose_range_is_not_known_is_refused(make, image, message):
    with pytest.raises(ValueError, match=message):
        make(8)(image)


def test_floats_in_range_arrays_and_pil_images_give_the_same_as_uint8():
    expected = eval_transform(10)(IMAGES[0])
    array = IMAGES[0].permute(1, 2, 0).numpy()
    for image in (array, Image.fromarray(array)):
        assert torch.equal(eval_transform(10)(image), expected)
    torch.testing.assert_close(eval_transform(10)(IMAGES[0] / 255), expected)


@pytest.mark.parametrize("std", [[0.2, 0.0, 0.2], [0.2, -1.0, 0.2], [torch.nan] * 3])
def test_a_std_that_is_not_above_0_is_refused_before_the_first_image(std):
    for make in (ToFloat, lambda mean, std: eval_transform(8, mean=mean, std=std)):
        with pytest.raises(ValueError, match="std must be above 0"):
            make([0.5] * 3, std)


def test_channel_stats_of_values_close_together_keep_all_their_digits():
    """The textbook formula, mean of squares minus square of the mean, loses them all in float32."""
    near = 0.9999 + 1e-6 * torch.randn(50, 1, 20, 20, dtype=torch.float64).clamp(-3, 3)
    (mean,), (std,) = channel_stats(Pairs(near))
    torch.testing.assert_close(std, near.std(correction=0), rtol=1e-9, atol=0)
    torch.testing.assert_close(mean, near.mean(), rtol=1e-15, atol=0)
    single = near.float()
    textbook = single.square().mean() - single.mean().square()
    assert not 0.5e-12 < textbook < 2e-12  # the variance is 1e-12


@pytest.mark.parametrize("values", [(10, 20), (20, 10), (20, 10, 20)])
def test_a_channel_that_is_constant_in_every_image_and_differs_between_them_is_not_constant(values):
    images = torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 1, 4, 4)
    expected = (torch.tensor(values).double() / 255).std(correction=0)
    torch.testing.assert_close(channel_stats(Pairs(images)).std, expected[None], rtol=1e-12, atol=0)


def test_channel_stats_are_of_what_the_transform_makes():
    plain, changed = channel_stats(dataset()), channel_stats(dataset(transform=negative))
    torch.testing.assert_close(changed.mean, 1 - plain.mean)
    torch.testing.assert_close(changed.std, plain.std)


def test_channel_stats_draws_no_number_and_reads_each_image_once():
    asked = []

    class Noted(Pairs):
        def __getitem__(self, index):
            asked.append(index)
            torch.rand(3)
            return super().__getitem__(index)

    before = torch.get_rng_state()
    channel_stats(Subset(Noted(IMAGES), [5, 3, 9]))
    assert torch.equal(torch.get_rng_state(), before) and asked == [5, 3, 9]


def test_a_view_of_a_view_replaces_its_transforms_and_loses_no_batch_transform():
    first = with_transform(Pairs(IMAGES), negative, batch_transform=ToFloat())
    second = with_transform(first, batch_transform=crop_flip)
    assert torch.equal(second.take(key([3, 8]))[0], crop_flip(IMAGES[[3, 8]], TARGETS[[3, 8]], key([3, 8]))[0])
    assert torch.equal(with_transform(first)[3][0], IMAGES[3]) and torch.equal(first[3][0], 255 - IMAGES[3])


def test_a_foreign_dataset_that_makes_its_own_batches_is_refused():
    class OwnBatches(Pairs):
        def take(self, key):
            return self.images[list(key)], torch.zeros(len(key))

    with pytest.raises(ValueError, match=r"OwnBatches makes its own batches \(take\).*replace_transforms"):
        with_transform(OwnBatches(IMAGES), negative)


def test_a_view_of_a_subset_of_a_subset_keeps_take_in_the_loader():
    view = with_transform(Subset(Subset(dataset(), [30, 20, 10]), [2, 0]), noisy, batch_transform=crop_flip)
    (images, targets), *rest = ResumableLoader(view, batch_size=2, seed=7, shuffle=False)
    expected, _ = dataset(transform=noisy, batch_transform=crop_flip).take(BatchKey(7, 0, 0, [10, 30]))
    assert torch.equal(images, expected) and targets.tolist() == [10 % 4, 30 % 4] and rest == []


def test_a_collate_fn_beside_a_batch_transform_is_an_error():
    view = with_transform(Pairs(IMAGES), batch_transform=crop_flip)
    for data in (view, Subset(view, [1, 2]), dataset(batch_transform=crop_flip)):
        with pytest.raises(ValueError, match="batch_transform would be lost"):
            ResumableLoader(data, batch_size=2, seed=0, collate_fn=list)


def unchanged(image):
    return image


@pytest.mark.parametrize("num_workers", [0, 1])
def test_photos_that_draw_nothing_are_the_same_with_and_without_seeding(tmp_path, num_workers):
    photos = ImageFolderDataset(photo_folder(tmp_path), transform=partial(resize, size=8))
    views = [with_transform(photos, transform, batch_transform=crop_flip) for transform in (None, unchanged)]
    assert photos.keyed
    quiet, seeded = (list(ResumableLoader(view, batch_size=3, seed=2, num_workers=num_workers)) for view in views)
    assert len(quiet) == 2 and [targets.tolist() for _, targets in quiet] == [targets.tolist() for _, targets in seeded]
    assert torch.equal(torch.cat([images for images, _ in quiet]), torch.cat([images for images, _ in seeded]))


def photo_folder(root):
    for number in range(6):
        (root / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.new("RGB", (12, 9), (number * 40, 9, 200)).save(root / "ab"[number % 2] / f"{number}.jpg")
    return root


def test_no_generator_is_touched_for_photos_that_draw_nothing(tmp_path, monkeypatch):
    for name in ("datasets.seed_generators", "datasets.isolated_rng"):
        monkeypatch.setattr(f"course_utils.{name}", lambda *seed: pytest.fail("a generator was touched"))
    photos = ImageFolderDataset(photo_folder(tmp_path), transform=partial(resize, size=8))
    assert with_transform(photos, batch_transform=crop_flip).take(key([0, 3]))[0].shape == (2, 3, 8, 8)
    photos.transform = noisy  # also when it is set later
    with pytest.raises(BaseException, match="a generator was touched"):
        with_transform(photos, batch_transform=crop_flip).take(key([0, 3]))


def test_a_view_that_draws_is_keyed_also_over_photos_that_draw_nothing(tmp_path):
    photos = ImageFolderDataset(photo_folder(tmp_path), transform=partial(resize, size=8))
    view, before = with_transform(photos, noisy, batch_transform=crop_flip), torch.get_rng_state()
    first, again = (view.take(key([0, 3]))[0] for _ in range(2))
    assert torch.equal(first, again) and not torch.equal(first, first.round())
    assert torch.equal(torch.get_rng_state(), before)


class OwnNoise(ImageFolderDataset):
    def __getitem__(self, index):
        return super().__getitem__(index)[0] + torch.rand(1), index


class Wrapped(Dataset):
    """Noise around a dataset whose attributes it passes on."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)

    def __getitem__(self, index):
        return self.inner[index][0].float() / 256 + torch.rand(1) / 256, index


def test_what_is_built_on_an_image_folder_and_draws_is_keyed(tmp_path):
    root = photo_folder(tmp_path)
    late = ImageFolderDataset(root)
    loaders = [ResumableLoader(data, batch_size=6, seed=2) for data in (OwnNoise(root), Wrapped(late), late)]
    late.transform = lambda image: image + torch.rand(1)  # after the loader was made
    for loader in loaders:
        first = next(iter(loader))[0]
        torch.rand(1)  # else what is not keyed would draw the same twice: the loader puts the generators back
        assert torch.equal(loader.make(loader.key)[0], first) and not torch.equal(first, first.round())
    wrapped, quiet = Wrapped(ImageFolderDataset(root)), ImageFolderDataset(root)
    for view in (
        with_transform(wrapped, batch_transform=ToFloat()),
        with_transform(quiet, noisy, batch_transform=ToFloat()),
    ):
        assert torch.equal(view.take(key([4, 2]))[0], view.take(key([4, 2]))[0])
