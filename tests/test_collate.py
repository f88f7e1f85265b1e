"""Sequences padded and boxes kept: against tables worked out by hand, alone and through a loader."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate

from course_utils.loaders import Padded, ResumableLoader, collate_boxes, pad_sequences

tv_tensors = pytest.importorskip("torchvision.tv_tensors")


def ints(*values):
    return torch.tensor(values, dtype=torch.int64)


def test_sequences_are_padded_to_the_longest_with_lengths_and_mask():
    values, lengths, mask = pad_sequences([ints(7, 8), ints(9), ints(4, 5, 6)])
    assert values.tolist() == [[7, 8, 0], [9, 0, 0], [4, 5, 6]]
    assert lengths.tolist() == [2, 1, 3] and lengths.dtype == torch.int64
    assert mask.tolist() == [[True, True, False], [True, False, False], [True, True, True]]


def test_pairs_give_targets_beside_the_sequences():
    padded, targets = pad_sequences([(ints(7, 8), 3), (ints(9), 1)])
    assert isinstance(padded, Padded) and padded.values.tolist() == [[7, 8], [9, 0]]
    assert torch.equal(targets, ints(3, 1))


def test_two_numbers_in_a_tensor_are_a_sequence_and_not_a_pair():
    assert pad_sequences([ints(1, 2), ints(3, 4)]).values.tolist() == [[1, 2], [3, 4]]


def test_steps_may_have_dimensions_of_their_own():
    padded = pad_sequences([torch.ones(1, 2, 3), torch.ones(3, 2, 3)], padding_value=-1)
    assert padded.values.shape == (2, 3, 2, 3) and padded.mask.shape == (2, 3)
    assert (padded.values[0, 1:] == -1).all() and (padded.values[padded.mask] == 1).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32, torch.uint8, torch.bool])
def test_the_dtype_stays(dtype):
    padded = pad_sequences([torch.ones(2, dtype=dtype), torch.ones(1, dtype=dtype)])
    assert padded.values.dtype == dtype and padded.values.tolist() == [[1, 1], [1, 0]]


def test_arrays_are_taken_as_tensors_and_nobodys_memory_is_shared():
    array = np.array([1, 2])
    padded = pad_sequences([array, np.array([3])])
    array[0] = 99
    assert padded.values.tolist() == [[1, 2], [3, 0]]


def test_an_empty_sequence_stays_with_length_0_and_no_true_in_its_mask():
    padded = pad_sequences([ints(), ints(5, 6)])
    assert padded.values.tolist() == [[0, 0], [5, 6]] and padded.lengths.tolist() == [0, 2]
    assert padded.mask.tolist() == [[False, False], [True, True]]
    means = (padded.values * padded.mask).sum(1) / padded.lengths.clamp(min=1)
    assert means.tolist() == [0.0, 5.5]


def test_only_empty_sequences_give_a_batch_of_no_columns():
    padded = pad_sequences([torch.ones(0, 3), torch.ones(0, 3)])
    assert padded.values.shape == (2, 0, 3) and padded.mask.shape == (2, 0) and padded.lengths.tolist() == [0, 0]


@pytest.mark.parametrize("value", [1, -100, 3.0])
def test_the_padding_value_is_what_was_asked_for(value):
    assert pad_sequences([ints(5), ints(5, 5)], padding_value=value).values[0, 1] == value


@pytest.mark.parametrize(
    "dtype, value",
    [(torch.int64, 0.5), (torch.uint8, -1), (torch.uint8, 256), (torch.bool, 2), (torch.int64, float("nan"))],
)
def test_a_padding_value_that_the_dtype_does_not_hold_is_refused(dtype, value):
    with pytest.raises(ValueError, match=f"padding_value={value!r} is no value of {dtype}"):
        pad_sequences([torch.ones(2, dtype=dtype)], padding_value=value)


def test_a_float_may_be_padded_with_nan_or_infinity():
    assert pad_sequences([torch.ones(1), torch.ones(2)], padding_value=float("nan")).values[0, 1].isnan()


@pytest.mark.parametrize(
    "examples, said",
    [
        ([ints(1), ints(2), torch.ones(1)], "sequence 2 of the batch is torch.float32, sequence 0 is torch.int64"),
        ([ints(1), torch.ones(0)], "sequence 1 of the batch is torch.float32"),  # an empty one of no chosen dtype
        ([torch.ones(2, 3), torch.ones(2, 4)], r"sequence 1 of the batch is \(T, 4\), sequence 0 is \(T, 3\)"),
        ([torch.ones(2, 3), torch.ones(2)], r"sequence 1 of the batch is \(T\), sequence 0 is \(T, 3\)"),
        ([ints(1), torch.tensor(2)], "sequence 1 of the batch must be .* got a single number"),
        ([[1, 2], [3]], "sequence 0 of the batch must be a tensor or an array, got list"),
        ([ints(1), None], "sequence 1 of the batch must be a tensor or an array, got NoneType"),
        ([ints(1), (ints(1), 0)], "example 1 is a pair .* and example 0 is not"),
        ([], "pad_sequences needs at least one example, got none"),
    ],
    ids=str,
)
def test_sequences_that_do_not_fit_are_refused_with_their_position(examples, said):
    with pytest.raises(ValueError, match=said):
        pad_sequences(examples)


class Captions(Dataset):
    """Caption i has i words, the first none."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return torch.full((index,), index), index


def test_pytorchs_default_does_not_pad():
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        default_collate([Captions()[1], Captions()[2]])


def flat(batch):
    """The tensors of a batch, with what they are."""
    if isinstance(batch, torch.Tensor):
        return [(type(batch), getattr(batch, "canvas_size", None), batch.dtype, batch.tolist())]
    parts = batch.values() if isinstance(batch, dict) else batch
    return [leaf for part in parts for leaf in flat(part)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_sequences_come_through_a_loader_and_a_rank_without_examples_gets_none(num_workers):
    how = {"batch_size": 2, "shuffle": False, "collate_fn": partial(pad_sequences, padding_value=9)}
    batches = list(ResumableLoader(Captions(), num_workers=num_workers, **how))
    assert [padded.values.tolist() for padded, _ in batches] == [[[9], [1]], [[2, 2, 9], [3, 3, 3]], [[4] * 4]]
    ((padded, targets),) = ResumableLoader(Captions(), num_workers=num_workers, rank=5, world_size=6, **how)
    assert isinstance(padded, Padded) and len(padded.values) == len(padded.lengths) == len(padded.mask) == 0
    assert (padded.values.dtype, padded.mask.dtype, targets.shape) == (torch.int64, torch.bool, (0,))


# --- boxes


def boxed(num_boxes, side=8, kind=tv_tensors.Image):
    boxes = torch.arange(4.0).repeat(num_boxes, 1)
    boxes = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(side, side))
    return kind(torch.full((3, side, side), num_boxes)), {"boxes": boxes, "labels": torch.arange(num_boxes)}


def test_images_of_one_size_are_stacked_and_targets_stay_a_list():
    examples = [boxed(2), boxed(0), boxed(1)]
    images, targets = collate_boxes(examples)
    assert images.shape == (3, 3, 8, 8) and images[:, 0, 0, 0].tolist() == [2, 0, 1]
    assert all(got is target for got, (_, target) in zip(targets, examples, strict=True))
    assert [tuple(target["boxes"].shape) for target in targets] == [(2, 4), (0, 4), (1, 4)]


def test_tv_tensors_stay_what_they_are():
    images, targets = collate_boxes([boxed(0), boxed(2)])
    assert type(images) is tv_tensors.Image
    for target in targets:
        assert type(target["boxes"]) is tv_tensors.BoundingBoxes and target["boxes"].canvas_size == (8, 8)
    assert type(torch.stack([boxed(0)[0]])) is torch.Tensor  # what stacking alone would leave


def test_plain_tensors_stay_plain_and_a_mixture_becomes_plain():
    plain, image = boxed(1, kind=torch.as_tensor), boxed(1)
    assert type(collate_boxes([plain, plain])[0]) is torch.Tensor
    assert type(collate_boxes([image, plain])[0]) is torch.Tensor


def target_of(boxes, labels):
    return torch.ones(3, 8, 8), {"boxes": torch.ones(boxes), "labels": torch.ones(labels)}


@pytest.mark.parametrize(
    "examples, said",
    [
        ([boxed(1), boxed(1), boxed(1, side=9)], r"image 2 of the batch is torch.int64 \(3, 9, 9\), image 0 is .*8, 8"),
        ([target_of((0, 4), 0), boxed(1)], "image 1 of the batch is torch.int64 .* image 0 is torch.float32"),
        ([boxed(1), (boxed(1)[0], {"boxes": torch.ones(1, 4)})], r"target 1 .* 'labels', got \['boxes'\]"),
        ([(boxed(1)[0], 3)], "target 0 of the batch must be a dict .* got int"),
        ([target_of((0, 4), 0), target_of(0, 0)], r"target 1 .* got \(0,\) and \(0,\); .* has boxes \(0, 4\)"),
        ([target_of((2, 4), 1)], r"target 0 of the batch needs .* got \(2, 4\) and \(1,\)"),
        ([target_of((2, 5), 2)], r"target 0 of the batch needs"),
        ([], "collate_boxes needs at least one example, got none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_boxes_that_do_not_fit_are_refused_with_their_position(examples, said):
    with pytest.raises(ValueError, match=said):
        collate_boxes(examples)


class Boxed(Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return boxed(index)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_boxes_come_through_a_loader_and_a_rank_without_examples_gets_none(num_workers):
    how = {"batch_size": 2, "shuffle": False, "collate_fn": collate_boxes, "num_workers": num_workers}
    expected = [collate_boxes([boxed(index) for index in part]) for part in ((0, 1), (2, 3), (4,))]
    batches = list(ResumableLoader(Boxed(), **how))
    assert [flat(batch) for batch in batches] == [flat(batch) for batch in expected]
    ((images, targets),) = ResumableLoader(Boxed(), rank=5, world_size=6, **how)
    assert images.shape == (0, 3, 8, 8) and images.dtype == torch.int64 and targets == []
