"""The exercise of chapter 02 about two views of one dataset, each with a transform of its own."""

from __future__ import annotations

import copy

import torch
from torch.utils.data import Subset

from course_utils.datasets import ArrayDataset
from course_utils.exercises.declare import exercise


class _Adds:
    """A transform that leaves a mark and counts its calls."""

    def __init__(self, amount: int) -> None:
        self.amount, self.calls = amount, 0

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return image + self.amount


def _photos(num_photos: int, train_indices: list[int], val_indices: list[int]) -> tuple:
    """A dataset whose image i is one pixel of value i and whose target is i, and two transforms."""
    images = torch.arange(num_photos, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    photos = ArrayDataset(images, list(range(num_photos)), classes=[str(i) for i in range(num_photos)])
    return photos, train_indices, val_indices, _Adds(100), _Adds(10)


def _views(result, dataset, train_indices, val_indices, augment, plain) -> dict:
    """What the two views give, how often the transforms act, and whose images they show when these are changed."""
    found = _found(*map(_examples, result), "None" if dataset.transform is None else "set")
    calls = augment.calls + plain.calls
    dataset.images += 1
    brighter = [[(value + 1, target) for value, target in found[name]] for name in ("train", "val")]
    found["views share the dataset's images"] = list(map(_examples, result)) == brighter
    found["transforms act at each reading"] = augment.calls + plain.calls > calls
    return found


def _examples(view) -> list[tuple[int, int]]:
    pairs = [view[place] for place in range(len(view))]
    return [(int(image), int(target)) for image, target in pairs]


def _found(train: list, val: list, transform: str = "None") -> dict:
    return {
        "train": train,
        "val": val,
        "dataset.transform afterwards": transform,
        "views share the dataset's images": True,
        "transforms act at each reading": True,
    }


@exercise(
    "transforms-4",
    title="Two views of one dataset",
    difficulty="medium",
    minutes=12,
    cases=[(2, [0], [1]), (4, [3, 1], [2, 0]), (5, [4, 0, 2], [3])],
    expected=[
        _found([(100, 0)], [(11, 1)]),
        _found([(103, 3), (101, 1)], [(12, 2), (10, 0)]),
        _found([(104, 4), (100, 0), (102, 2)], [(13, 3)]),
    ],
    arrange=_photos,
    observe=_views,
    describe=lambda num_photos, train_indices, val_indices: (
        f"two_views(dataset, {train_indices}, {val_indices}, augment, plain), {num_photos} images whose value and "
        "target is their index; augment adds 100, plain adds 10"
    ),
    imports="import copy\n\nfrom torch.utils.data import Subset",
    hints=[
        "Which object applies the transform: the Subset, or the dataset inside it? How many datasets do two transforms "
        "need, then?",
        "copy.copy(dataset) makes a second dataset object that holds the same images; copy.deepcopy would copy the "
        "images too. A small wrapping class of your own does as well.",
        "One copy for each view: set its transform, then choose the examples with Subset(copied, indices). The given "
        "dataset keeps its transform.",
    ],
    lesson="`with_transform` of course_utils.transforms does this for datasets of any kind and for Subsets.",
)
def two_views(dataset, train_indices: list[int], val_indices: list[int], augment, plain):
    """The training and the validation part of one dataset, each with its own transform.

    dataset       : of (image, target); it applies dataset.transform to each image that it
                    gives, which is None here and stays so: others use the dataset too
    train_indices, val_indices : which examples the parts hold, in this order
    augment, plain : image -> image, for the training and for the validation part; applied anew
                    each time that an example is read
    returns       : (train, val), two datasets. They share the dataset's images, which are large
    """
    train, val = copy.copy(dataset), copy.copy(dataset)  # the images in them are not copied
    train.transform, val.transform = augment, plain
    return Subset(train, train_indices), Subset(val, val_indices)


@two_views.wrong
def sets_the_transform_of_the_subsets(dataset, train_indices, val_indices, augment, plain):
    """A Subset does not look at an attribute named transform, and Python lets you set any: neither transform is ever
    applied, and nothing says so."""
    train, val = Subset(dataset, train_indices), Subset(dataset, val_indices)
    train.transform, val.transform = augment, plain
    return train, val


@two_views.wrong
def gives_both_views_one_dataset(dataset, train_indices, val_indices, augment, plain):
    """Both parts have one dataset inside, and it has one transform: the last one that was set acts in both. Either the
    training is not augmented, or the validation is."""
    dataset.transform = augment
    dataset.transform = plain
    return Subset(dataset, train_indices), Subset(dataset, val_indices)


@two_views.form_of("gives_both_views_one_dataset")
def augments_both_views(dataset, train_indices, val_indices, augment, plain):
    dataset.transform = augment
    return Subset(dataset, train_indices), Subset(dataset, val_indices)


@two_views.form_of("gives_both_views_one_dataset")
def gives_both_views_one_copy(dataset, train_indices, val_indices, augment, plain):
    copied = copy.copy(dataset)
    copied.transform = plain
    return Subset(copied, train_indices), Subset(copied, val_indices)


@two_views.form_of("gives_both_views_one_dataset")
def augments_both_views_of_one_copy(dataset, train_indices, val_indices, augment, plain):
    copied = copy.copy(dataset)
    copied.transform = augment
    return Subset(copied, train_indices), Subset(copied, val_indices)


@two_views.wrong
def changes_the_given_dataset(dataset, train_indices, val_indices, augment, plain):
    """Both views are right, but one of them is the given dataset, which has a transform now: whoever else reads it gets
    images changed. Make a copy for each view."""
    val = copy.copy(dataset)
    dataset.transform, val.transform = augment, plain
    return Subset(dataset, train_indices), Subset(val, val_indices)


@two_views.wrong
def copies_the_images(dataset, train_indices, val_indices, augment, plain):
    """Both views are right, but each has images of its own: copy.deepcopy, and indexing with a list, copy them. A
    dataset of 10 GB takes 30. copy.copy makes a new object around the same images."""
    train, val = copy.deepcopy(dataset), copy.deepcopy(dataset)
    train.transform, val.transform = augment, plain
    return Subset(train, train_indices), Subset(val, val_indices)


@two_views.wrong
def transforms_once(dataset, train_indices, val_indices, augment, plain):
    """The transforms acted once, when the views were made, and the results are kept: each epoch sees the same crops and
    flips, and all images lie in memory a second time. Transform an example when it is read."""
    parts = ((augment, train_indices), (plain, val_indices))
    return tuple([(transform(dataset[i][0]), dataset[i][1]) for i in indices] for transform, indices in parts)


@two_views.wrong
def takes_the_first_examples(dataset, train_indices, val_indices, augment, plain):
    """The indices are counted from 0 in each part: validation reads examples that belong to training, and its accuracy
    is that of examples seen before. Each view needs the indices that it was given."""
    train, val = copy.copy(dataset), copy.copy(dataset)
    train.transform, val.transform = augment, plain
    return Subset(train, range(len(train_indices))), Subset(val, range(len(val_indices)))


@two_views.wrong
def returns_whole_datasets(dataset, train_indices, val_indices, augment, plain):
    """Each view holds all examples: the transforms are right, and the split is lost. Training has then seen every
    validation example. Choose the examples with Subset."""
    train, val = copy.copy(dataset), copy.copy(dataset)
    train.transform, val.transform = augment, plain
    return train, val


@two_views.wrong
def exchanges_the_transforms(dataset, train_indices, val_indices, augment, plain):
    """The transforms have changed places: validation is augmented, so its accuracy varies by chance, and training is
    not."""
    return two_views.answer(dataset, train_indices, val_indices, plain, augment)
