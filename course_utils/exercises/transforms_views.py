"""The exercise of chapter 02 about two views of one dataset, each with a transform of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch.utils.data import Subset

from course_utils.datasets import ArrayDataset
from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import facts_differ
from course_utils.exercises.wording import kind


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
    if not isinstance(result, (list, tuple)) or len(result) != 2:
        return {_VIEWS: f"one result ({kind(result)}), and not (train, val)"}
    early = augment.calls + plain.calls
    examples = list(map(_read, result))
    if any(not isinstance(each, (list, tuple)) or len(each) != 2 for view in examples for each in view):
        return {_VIEWS: "an example is an image alone, and not (image, target)"}
    found = _found(*map(_plain, examples), "None" if dataset.transform is None else "set")
    found["the transforms have acted before an example is read"] = early > 0
    calls = augment.calls + plain.calls
    again = [_plain(_read(view)) for view in result]
    found["transforms act at each reading"] = augment.calls + plain.calls > calls
    if not found["transforms act at each reading"] or again != [found["train"], found["val"]]:
        return found
    dataset.images += 1
    brighter = [[(value + 1, target) for value, target in found[name]] for name in ("train", "val")]
    found["views share the dataset's images"] = [_plain(_read(view)) for view in result] == brighter
    return found


def _read(view) -> list:
    return [view[place] for place in range(len(view))]


_VIEWS = "what is returned"


def _plain(examples: list) -> list[tuple[int, int]]:
    return [(int(image), int(target)) for image, target in examples]


def _found(train: list, val: list, transform: str = "None") -> dict:
    return {
        _VIEWS: "(train, val) of (image, target)",
        "train": train,
        "val": val,
        "dataset.transform afterwards": transform,
        "the transforms have acted before an example is read": False,
        "transforms act at each reading": True,
        "views share the dataset's images": True,
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
    difference=facts_differ,
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
    returns       : (train, val), two datasets of (image, target) with an index and a length. They
                    share the dataset's images, which are large
    """
    train, val = copy.copy(dataset), copy.copy(dataset)  # the images in them are not copied
    train.transform, val.transform = augment, plain
    return Subset(train, train_indices), Subset(val, val_indices)


@two_views.wrong
def applies_no_transform(dataset, train_indices, val_indices, augment, plain):
    """Neither transform is ever applied. If you set `transform` on a Subset: it does not look at that attribute, and
    Python lets you set any, so nothing says so. The dataset inside applies its own."""
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
def has_images_of_its_own(dataset, train_indices, val_indices, augment, plain):
    """Both views are right, but each has images of its own: copy.deepcopy, and indexing with a list, copy them, and a
    dict of what was read before keeps them. A dataset of 10 GB takes 30. copy.copy makes a new object around the same
    images."""
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


class _View:
    """What readers write in place of a copy: a dataset around a dataset."""

    def __init__(self, dataset, indices, change) -> None:
        self.dataset, self.indices, self.change = dataset, list(indices), change

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int):
        return self.change(self.dataset[self.indices[place]])


def _both(make: Callable) -> Callable:
    """A wrong answer of two views, each made by `make(dataset, indices, transform)`."""
    return lambda dataset, train_indices, val_indices, augment, plain: (
        make(dataset, train_indices, augment),
        make(dataset, val_indices, plain),
    )


@two_views.wrong
def forgets_the_target(dataset, train_indices, val_indices, augment, plain):
    """The views give images without their targets: dataset[i] is a pair (image, target), and the loss needs both.
    Transform the first, and return the two."""
    only = lambda dataset, indices, transform: _View(dataset, indices, lambda pair: transform(pair[0]))  # noqa: E731
    return _both(only)(dataset, train_indices, val_indices, augment, plain)


@two_views.wrong
def transforms_the_pair(dataset, train_indices, val_indices, augment, plain):
    """The transform is called with the pair (image, target), and it takes an image: the addition inside it fails. Take
    the pair apart: image, target = dataset[i], then (transform(image), target)."""
    whole = lambda dataset, indices, transform: _View(dataset, indices, transform)  # noqa: E731
    return _both(whole)(dataset, train_indices, val_indices, augment, plain)


@two_views.wrong
def remembers_what_was_transformed(dataset, train_indices, val_indices, augment, plain):
    """An example is transformed when it is first read, and the result is kept: every later epoch sees the same crop and
    the same flip. Keep what was decoded, if anything, and transform at each reading."""

    def kept(dataset, indices, transform):
        known: dict = {}

        def change(pair):
            if pair[1] not in known:
                known[pair[1]] = (transform(pair[0]), pair[1])
            return known[pair[1]]

        return _View(dataset, indices, change)

    return _both(kept)(dataset, train_indices, val_indices, augment, plain)


@two_views.wrong
def transforms_one_view_only(dataset, train_indices, val_indices, augment, plain):
    """One view has no transform: usually that of validation, which then gets images of another range or size than the
    model was trained on. Each view has its own."""
    train = copy.copy(dataset)
    train.transform = augment
    return Subset(train, train_indices), Subset(dataset, val_indices)


@two_views.form_of("transforms_one_view_only")
def transforms_the_view_of_validation_only(dataset, train_indices, val_indices, augment, plain):
    val = copy.copy(dataset)
    val.transform = plain
    return Subset(dataset, train_indices), Subset(val, val_indices)


@two_views.wrong
def sorts_the_indices(dataset, train_indices, val_indices, augment, plain):
    """The examples are right and stand in another order than the indices: a stored split, and predictions kept by their
    place, then belong to other photos. Keep the order that was given."""
    return two_views.answer(dataset, sorted(train_indices), sorted(val_indices), augment, plain)
