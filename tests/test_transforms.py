"""`transforms`: keyed augmentation of a batch, exact statistics, two views of one dataset."""

import pickle
from functools import partial

import pytest
import torch
from torch.utils.data import Dataset, Subset

from course_utils.datasets import ArrayDataset
from course_utils.randomness import BatchKey
from course_utils.transforms import (
    ComposeBatch,
    ToFloat,
    channel_stats,
    crop_flip,
    eval_transform,
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


def test_to_float_refuses_what_it_cannot_scale():
    with pytest.raises(ValueError, match="int32"):
        ToFloat()(IMAGES.int(), TARGETS)
    with pytest.raises(ValueError, match="mean=0.5, std=None"):
        ToFloat(mean=0.5)
    with pytest.raises(ValueError, match="std must be above 0"):
        ToFloat([0.5, 0.5], [0.1, 0.0])


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
    ],
)
def test_channel_stats_names_the_image_that_does_not_fit(images, message):
    with pytest.raises(ValueError, match=message):
        channel_stats(Pairs(images))


def negative(image: torch.Tensor) -> torch.Tensor:
    return 255 - image


def noisy(image: torch.Tensor) -> torch.Tensor:
    return image + torch.rand(1)


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
