"""Exercises of chapter 04: here the photos with any number of boxes; the others come in by import.

Order of the numbers: the captions, the boxes, the position, the number of workers, the bytes ahead, the streams.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.utils.data import default_collate

from course_utils.exercises.declare import exercise
from course_utils.exercises.loaders_bytes import bytes_ahead
from course_utils.exercises.loaders_captions import part_differs
from course_utils.exercises.loaders_captions_forms import pad_captions
from course_utils.exercises.loaders_position import hand_over
from course_utils.exercises.loaders_streams import own_streams
from course_utils.exercises.loaders_workers import decide_workers

__all__ = ["bytes_ahead", "collate_photos", "decide_workers", "hand_over", "own_streams", "pad_captions"]


def _example(photo: int, num_boxes: int) -> tuple[torch.Tensor, dict]:
    """A photo of 2 x 2 pixels and its target; all of its numbers begin with the number of the photo."""
    boxes = torch.arange(4.0).repeat(num_boxes, 1) + 10 * (photo + 1) + torch.arange(num_boxes)[:, None]
    image = torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2) + 20 * photo
    return image, {"boxes": boxes, "labels": torch.arange(num_boxes) + photo}


def _examples(*nums_boxes: int) -> tuple[list]:
    return ([_example(photo, num_boxes) for photo, num_boxes in enumerate(nums_boxes)],)


def _by_hand(*nums_boxes: int) -> tuple:
    """The images one below the other, made pixel by pixel, and each target as it is written down."""
    images = [[[[20 * p + 4 * c + 2 * y + x for x in (0, 1)] for y in (0, 1)] for c in (0, 1, 2)]
              for p in range(len(nums_boxes))]  # fmt: skip
    return torch.tensor(images, dtype=torch.uint8), [_example(p, n)[1] for p, n in enumerate(nums_boxes)]


_NUMBERS = [(1, 2), (1, 1), (2, 0, 1), (0, 0), (3,), (0,)]


@exercise(
    "loaders-2",
    title="Photos with any number of boxes",
    difficulty="easy",
    minutes=6,
    cases=_NUMBERS,
    expected=[_by_hand(*numbers) for numbers in _NUMBERS],
    arrange=_examples,
    difference=partial(part_differs, ("the images", "the targets")),
    describe=lambda *nums_boxes: (
        f"collate_photos(examples), {len(nums_boxes)} photo{'s' * (len(nums_boxes) > 1)} with "
        f"{', '.join(map(str, nums_boxes))} boxes"
    ),
    keep_arguments=True,
    imports="import torch",
    hints=[
        "A tensor has one size in each dimension. Which of the two, images or boxes, have the same shape in every "
        "example? Only these can become one tensor.",
        "The boxes need no tensor of the whole batch: a model that finds objects takes a list, one target a photo. "
        "A photo without boxes keeps its place in that list, and its target stays as it is.",
        "torch.stack makes one tensor of a list of equal shapes: [image for image, target in examples]. The targets "
        "are a list made in the same way.",
    ],
    lesson="A collate function decides what a batch is; only what has one shape has to become one tensor.",
)
def collate_photos(examples: list) -> tuple:
    """A batch of photos that show different numbers of things.

    examples : the batch, 1 or more pairs (image, target). All images are (3, H, W) of one size and
               dtype. A target is a dict: "boxes" (N, 4), "labels" (N,). N differs from photo to
               photo and may be 0, also in all photos of the batch
    returns  : (images, targets): images (B, 3, H, W) of the same dtype, targets a list with the
               dict of each photo, as it came

    Two photos of 64 x 64 with 1 and 2 boxes give images (2, 3, 64, 64) and a list of two dicts,
    the first with boxes (1, 4), the second with boxes (2, 4).
    """
    images = torch.stack([image for image, _ in examples])
    return images, [target for _, target in examples]


def _images(examples) -> torch.Tensor:
    return torch.stack([image for image, _ in examples])


def _targets(examples) -> list[dict]:
    return [target for _, target in examples]


def _all(examples, join: Callable[[list], object]) -> dict:
    """One dict for the whole batch, each of its entries joined."""
    return {name: join([target[name] for target in _targets(examples)]) for name in ("boxes", "labels")}


def _each(examples, change: Callable[[torch.Tensor], torch.Tensor]) -> list[dict]:
    return [{name: change(value) for name, value in target.items()} for target in _targets(examples)]


@collate_photos.wrong
def stacks_the_boxes(examples):
    """The boxes of all photos go into one tensor, as default_collate does it. While every photo shows one thing this
    works; the first batch with 1 and 2 boxes ends the run, in the middle of an epoch."""
    return _images(examples), _all(examples, torch.stack)


@collate_photos.form_of("stacks_the_boxes")
def collates_by_default(examples):
    return default_collate(examples)


@collate_photos.form_of("stacks_the_boxes")
def stacks_the_boxes_alone(examples):
    return _images(examples), torch.stack([target["boxes"] for target in _targets(examples)])


@collate_photos.wrong
def cuts_to_the_fewest_boxes(examples):
    """Every photo is cut to the fewest boxes of the batch. Nothing fails, and a model is taught that the other things
    are background; one photo without boxes takes all boxes from the whole batch."""
    fewest = min(len(target["boxes"]) for target in _targets(examples))
    return _images(examples), _all(examples, lambda values: torch.stack([value[:fewest] for value in values]))


@collate_photos.form_of("cuts_to_the_fewest_boxes")
def cuts_each_to_the_fewest_boxes(examples):
    fewest = min(len(target["boxes"]) for target in _targets(examples))
    return _images(examples), _each(examples, lambda value: value[:fewest])


@collate_photos.wrong
def pads_the_boxes(examples):
    """Boxes are filled up to the most of the batch, with zeros. Such a row is a box of no size in the upper left corner
    and label 0 is a class: a photo of nothing now shows as many things of class 0 as the fullest photo has."""
    return _images(examples), _all(examples, partial(torch.nn.utils.rnn.pad_sequence, batch_first=True))


@collate_photos.form_of("pads_the_boxes")
def pads_the_boxes_of_each(examples):
    images, padded = pads_the_boxes(examples)
    return images, [{name: padded[name][place] for name in padded} for place in range(len(examples))]


@collate_photos.form_of("pads_the_boxes")
def pads_the_boxes_and_loses_the_labels(examples):
    images, padded = pads_the_boxes(examples)
    return images, padded["boxes"]


@collate_photos.wrong
def drops_photos_without_boxes(examples):
    """Photos without boxes are left out: the batch is smaller than asked for, or empty, which fails in torch.stack; and
    a model that never sees an empty photo finds things in every one. Keep them, with boxes (0, 4)."""
    kept = [example for example in examples if len(example[1]["boxes"])]
    return _images(kept), _targets(kept)


@collate_photos.form_of("drops_photos_without_boxes")
def drops_targets_without_boxes(examples):
    return _images(examples), [target for target in _targets(examples) if len(target["boxes"])]


@collate_photos.wrong
def joins_the_boxes_of_all_photos(examples):
    """All boxes stand in one long tensor, and nothing says any more to which photo a box belongs: 1 and 2 boxes are
    the same 3 as 2 and 1. Keep one target a photo."""
    return _images(examples), _all(examples, torch.cat)


@collate_photos.form_of("joins_the_boxes_of_all_photos")
def joins_the_boxes_alone(examples):
    return _images(examples), torch.cat([target["boxes"] for target in _targets(examples)])


@collate_photos.wrong
def joins_the_images(examples):
    """torch.cat joins along a dimension that is there already: 2 photos of 3 channels become one of 6, (6, H, W). A new
    first dimension, one place a photo, comes from torch.stack."""
    return torch.cat([image for image, _ in examples]), _targets(examples)


@collate_photos.wrong
def leaves_the_images_in_a_list(examples):
    """The images are a list (or a tuple) of B tensors: a convolution takes one tensor, and the copy to a device, the
    normalisation and everything else would have to loop. Photos of one size are stacked."""
    return [image for image, _ in examples], _targets(examples)


@collate_photos.form_of("leaves_the_images_in_a_list")
def leaves_the_images_in_a_tuple(examples):
    return tuple(zip(*examples, strict=True))


@collate_photos.wrong
def returns_the_examples(examples):
    """These are the examples as they came, a list of pairs. `images, targets = batch` then unpacks the first two photos
    if there are two, and fails if there are more. Take the pairs apart."""
    return list(examples)


@collate_photos.wrong
def loses_the_labels(examples):
    """Only the boxes are left: where a thing is, and no longer what it is. A target is the whole dict of its photo."""
    return _images(examples), [target["boxes"] for target in _targets(examples)]


@collate_photos.wrong
def makes_one_dict_of_lists(examples):
    """One dict with a list for each name: `zip(images, targets)` pairs photo 0 with the word "boxes", and targets[0]
    does not exist. Models and transforms for boxes take one dict a photo."""
    return _images(examples), _all(examples, list)


@collate_photos.wrong
def keeps_the_first_box(examples):
    """Only the first box of each photo is kept, so that they stack: the other things in the photo count as background,
    and [0] fails for a photo without boxes."""
    return _images(examples), _each(examples, lambda value: value[0])


@collate_photos.form_of("keeps_the_first_box")
def keeps_one_box_at_most(examples):
    return _images(examples), _each(examples, lambda value: value[:1])


@collate_photos.form_of("keeps_the_first_box")
def stacks_the_first_boxes(examples):
    return _images(examples), _all(examples, lambda values: torch.stack([value[0] for value in values]))


@collate_photos.wrong
def gives_none_for_no_boxes(examples):
    """A photo without boxes gets None (or an empty dict) for its target: the loss asks for target["boxes"] and fails
    in the first batch with such a photo. Boxes (0, 4) and labels (0,) say the same and need no special case."""
    return _images(examples), [target if len(target["boxes"]) else None for target in _targets(examples)]


@collate_photos.form_of("gives_none_for_no_boxes")
def gives_an_empty_dict_for_no_boxes(examples):
    return _images(examples), [target if len(target["boxes"]) else {} for target in _targets(examples)]
