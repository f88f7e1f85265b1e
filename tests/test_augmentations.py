"""`augmentations`: keyed crop and flip of a batch, and v2's batch transforms."""

import pickle

import pytest
import torch
from torchvision.transforms import v2

from course_utils.augmentations import V2Batch, crop_flip
from course_utils.datasets import ArrayDataset
from course_utils.loaders import ResumableLoader
from course_utils.randomness import BatchKey, keyed_uniform
from course_utils.transforms import ComposeBatch, ToFloat

IMAGES = torch.randint(0, 256, (40, 3, 10, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(40) % 4


def key(indices, repeats=None, epoch=0, start=0) -> BatchKey:
    return BatchKey(7, epoch, start, list(indices), repeats)


def augmented(indices, repeats=None, *, padding=4, images=IMAGES) -> torch.Tensor:
    indices = list(indices)
    return crop_flip(images[indices], TARGETS[indices], key(indices, repeats), padding=padding)[0]


def by_hand(image: torch.Tensor, down: int, right: int, mirror: bool, padding: int) -> torch.Tensor:
    """The same with slices, one image."""
    _, height, width = image.shape
    big = torch.zeros(image.shape[0], height + 2 * padding, width + 2 * padding, dtype=image.dtype)
    big[:, padding : padding + height, padding : padding + width] = image
    part = big[:, down : down + height, right : right + width]
    return part.flip(-1) if mirror else part


def test_crop_flip_equals_slices_of_a_padded_image():
    result, indices = augmented(range(40)), range(40)
    shifts = (keyed_uniform(key(indices), 2, stream="crop") * 9).long().tolist()
    mirrors = (keyed_uniform(key(indices), 1, stream="flip") < 0.5).flatten().tolist()
    assert 5 < sum(mirrors) < 35 and len({tuple(shift) for shift in shifts}) > 20
    for index in indices:
        assert torch.equal(result[index], by_hand(IMAGES[index], *shifts[index], mirrors[index], 4))


@pytest.mark.parametrize("batch_size", [1, 7, 40])
def test_the_pixels_do_not_depend_on_the_batch_size(batch_size):
    whole = augmented(range(40))
    batches = [augmented(range(start, min(start + batch_size, 40))) for start in range(0, 40, batch_size)]
    assert torch.equal(torch.cat(batches), whole)


def test_order_in_the_batch_does_not_matter_and_a_repeat_and_an_epoch_give_other_pixels():
    assert torch.equal(augmented([5, 9]), augmented([9, 5]).flip(0))
    first, second = augmented([5] * 2, repeats=[0, 1])
    assert torch.equal(first, augmented([5])[0]) and not torch.equal(first, second)
    later, _ = crop_flip(IMAGES, TARGETS, key(range(40), epoch=1))
    assert not torch.equal(later, augmented(range(40)))


def test_every_shift_comes_and_crop_and_flip_are_independent():
    num_examples = 20_000
    marked = torch.zeros(num_examples, 1, 5, 5, dtype=torch.uint8)
    marked[:, :, 2, 2], marked[:, :, 2, 3] = 1, 2  # a pixel, and one to the right of it
    result, _ = crop_flip(marked, torch.zeros(num_examples), key(range(num_examples)), padding=1)
    place = (result == 1).flatten(1).float().argmax(1)
    mirrored = (result == 2).flatten(1).float().argmax(1) < place
    counts = torch.zeros(25, 2)
    counts.index_put_((place, mirrored.long()), torch.ones(num_examples), accumulate=True)
    cells = counts[counts > 0]
    assert len(cells) == 18  # 3 x 3 shifts, each mirrored or not
    expected = num_examples / 18
    assert ((cells - expected).square() / expected).sum() < 40.8  # chi-square, 17 degrees of freedom, 1 in 1,000


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
def test_the_dtype_stays_and_the_input_is_not_changed(dtype):
    images = IMAGES.to(dtype)
    before = images.clone()
    result, targets = crop_flip(images, TARGETS, key(range(40)))
    assert result.dtype == dtype and torch.equal(images, before) and targets is TARGETS
    assert torch.equal(result, augmented(range(40)).to(dtype))


def test_padding_zero_only_flips():
    result = augmented(range(40), padding=0)
    flipped = torch.tensor([torch.equal(a, b.flip(-1)) for a, b in zip(result, IMAGES, strict=True)])
    same = torch.tensor([torch.equal(a, b) for a, b in zip(result, IMAGES, strict=True)])
    assert (flipped ^ same).all() and 5 < int(flipped.sum()) < 35


def test_crop_flip_takes_an_empty_batch():
    assert augmented([]).shape == (0, 3, 10, 12)


@pytest.mark.parametrize(
    "images, num_keys, padding", [(IMAGES[0], 3, 4), (IMAGES, 39, 4), (IMAGES, 40, -1)], ids=["shape", "key", "padding"]
)
def test_crop_flip_says_what_it_needs(images, num_keys, padding):
    with pytest.raises(ValueError, match=rf"\(B, C, H, W\).*{num_keys} examples, padding={padding}"):
        crop_flip(images, TARGETS, key(range(num_keys)), padding=padding)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 96, 96), (2, 1, 1), (1, 5, 31)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_crop_flip_equals_slices_for_other_sizes_than_square(shape, dtype):
    images = torch.randint(1, 256, (12, *shape), generator=torch.Generator().manual_seed(1)).to(dtype)
    result, indices = crop_flip(images, TARGETS[:12], key(range(12)), padding=3)[0], range(12)
    shifts = (keyed_uniform(key(indices), 2, stream="crop") * 7).long().tolist()
    mirrors = (keyed_uniform(key(indices), 1, stream="flip") < 0.5).flatten().tolist()
    for index in indices:
        assert torch.equal(result[index], by_hand(images[index], *shifts[index], mirrors[index], 3))


@pytest.mark.parametrize("padding", [0, 4])
def test_crop_flip_takes_images_in_any_memory_layout_and_gives_new_memory(padding):
    expected = augmented(range(40), padding=padding)
    for images in (IMAGES.contiguous(memory_format=torch.channels_last), IMAGES.repeat_interleave(2, 0)[::2]):
        result, _ = crop_flip(images, TARGETS, key(range(40)), padding=padding)
        assert torch.equal(result, expected) and result.data_ptr() != images.data_ptr()


def mixed(transform=None) -> ArrayDataset:
    batch_transform = ComposeBatch(ToFloat(), V2Batch(transform or v2.MixUp(num_classes=4)))
    return ArrayDataset(IMAGES, TARGETS, classes="abcd", batch_transform=batch_transform)


def test_mixup_behind_a_key_is_its_formula():
    images, targets = mixed().take(key(range(8)))
    share = targets[1].max()  # example 1 is mixed with example 0, of another class
    share = share if targets[1].argmax() == 1 else 1 - share
    plain = IMAGES[:8].float() / 255
    torch.testing.assert_close(images, share * plain + (1 - share) * plain.roll(1, 0), rtol=0, atol=1e-6)
    hot = torch.nn.functional.one_hot(TARGETS[:8], 4)
    torch.testing.assert_close(targets, share * hot + (1 - share) * hot.roll(1, 0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("transform", [v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)], ids=["mixup", "cutmix"])
def test_soft_targets_sum_to_1_and_the_batch_is_a_function_of_seed_epoch_and_start(transform):
    data = mixed(transform)
    images, targets = data.take(key(range(8)))
    assert targets.shape == (8, 4) and targets.dtype == torch.float32 and not torch.equal(images, IMAGES[:8] / 255)
    torch.testing.assert_close(targets.sum(1), torch.ones(8))
    torch.manual_seed(99)
    assert torch.equal(data.take(key(range(8)))[0], images)
    for other in (key(range(8), epoch=1), key(range(8), start=8)):
        assert not torch.equal(data.take(other)[0], images)


def test_the_callers_generators_stand_as_before():
    before = torch.get_rng_state()
    mixed().take(key(range(8)))
    assert torch.equal(torch.get_rng_state(), before) and not mixed().batch_transform.keyed


@pytest.mark.parametrize("transform", [v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)], ids=["mixup", "cutmix"])
def test_an_empty_batch_has_soft_targets_of_length_0(transform):
    for images, targets in (mixed(transform).take(key([])), V2Batch(transform)(IMAGES[:0].float(), TARGETS[:0])):
        assert images.shape == (0, 3, 10, 12) and images.dtype == torch.float32
        assert targets.shape == (0, 4) and targets.dtype == torch.float32


def batches(batch_size: int, num_workers: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    loader = ResumableLoader(mixed(), batch_size=batch_size, seed=5, num_workers=num_workers)
    return [*loader, *loader]  # two epochs


def test_mixup_through_the_loader_gives_equal_bits_for_0_and_2_workers():
    alone, with_workers = batches(16), batches(16, num_workers=2)
    assert len(alone) == len(with_workers) == 6
    for one, two in zip(alone, with_workers, strict=True):
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


def test_mixup_changes_with_the_batch_size_as_a_per_example_transform_does_not():
    sixteen, eights = batches(16)[0][0], torch.cat([images for images, _ in batches(8)[:2]])
    differs = (sixteen != eights).flatten(1).any(1)
    assert differs.tolist() == [True] + [False] * 7 + [True] * 8  # another partner for the first, another share later


def test_an_image_transform_in_v2_batch_decides_once_for_the_whole_batch():
    images, targets = V2Batch(v2.RandomHorizontalFlip(p=0.5))(IMAGES, TARGETS)
    assert torch.equal(images, IMAGES) or torch.equal(images, IMAGES.flip(-1))
    assert torch.equal(targets, TARGETS)


@pytest.mark.parametrize(
    "transform, images, message",
    [
        (v2.MixUp(num_classes=4), IMAGES, r"MixUp refused images torch.uint8 \(40, 3, 10, 12\).*ToFloat\(\) before it"),
        (v2.MixUp(), IMAGES.float(), r"torch.int64 \(40,\).*num_classes"),
        (v2.CutMix(num_classes=3), IMAGES, "CutMix refused"),
        (v2.CutMix(num_classes=4), IMAGES[:39], "39 != 40"),
    ],
)
def test_what_v2_refuses_is_told_with_what_came_and_the_fix(transform, images, message):
    with pytest.raises(ValueError, match=message):
        V2Batch(transform)(images, TARGETS)


def test_v2_batch_survives_pickling():
    again = pickle.loads(pickle.dumps(mixed()))
    assert torch.equal(again.take(key(range(8)))[0], mixed().take(key(range(8)))[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_crop_flip_on_a_gpu_gives_the_bits_of_the_cpu():
    images, _ = crop_flip(IMAGES.cuda(), TARGETS, key(range(40)))
    assert images.is_cuda and torch.equal(images.cpu(), augmented(range(40)))
