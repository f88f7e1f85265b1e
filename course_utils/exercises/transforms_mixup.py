"""The exercise of chapter 02 about MixUp: images and targets are mixed by one share and with one partner."""

from __future__ import annotations

import torch
from torch.nn.functional import one_hot

from course_utils.exercises.declare import exercise


def _batch(values: list[float], targets: list[int], share: float, num_classes: int) -> tuple:
    """Images of one channel, 1 x 2 pixels; the second pixel is the first plus 1."""
    images = torch.tensor([[[[value, value + 1]]] for value in values])
    return images, torch.tensor(targets), share, num_classes


def _mixed(*values: float) -> torch.Tensor:
    return torch.tensor([[[[value, value + 1]]] for value in values])


@exercise(
    "transforms-6",
    title="MixUp: the targets are mixed as the images are",
    difficulty="medium",
    minutes=12,
    cases=[
        ([0.0, 4.0], [0, 1], 0.75, 2),
        ([0.0, 4.0, 8.0], [0, 2, 1], 0.75, 3),
        ([0.0, 4.0, 8.0], [0, 2, 1], 0.25, 4),
        ([0.0, 4.0, 8.0], [1, 1, 0], 0.75, 2),
        ([0.0, 4.0, 8.0], [0, 2, 1], 1.0, 3),
    ],
    expected=[
        (_mixed(1.0, 3.0), torch.tensor([[0.75, 0.25], [0.25, 0.75]])),
        (_mixed(2.0, 3.0, 7.0), torch.tensor([[0.75, 0.25, 0.0], [0.25, 0.0, 0.75], [0.0, 0.75, 0.25]])),
        (
            _mixed(6.0, 1.0, 5.0),
            torch.tensor([[0.25, 0.75, 0.0, 0.0], [0.75, 0.0, 0.25, 0.0], [0.0, 0.25, 0.75, 0.0]]),
        ),
        (_mixed(2.0, 3.0, 7.0), torch.tensor([[0.25, 0.75], [0.0, 1.0], [0.75, 0.25]])),
        (_mixed(0.0, 4.0, 8.0), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])),
    ],
    arrange=_batch,
    describe=lambda values, targets, share, num_classes: (
        f"mix_pairs(images, {targets}, share={share}, num_classes={num_classes}), first pixels of the images {values}"
    ),
    keep_arguments=True,
    parts=("the images", "the targets"),
    imports="import torch\nfrom torch.nn.functional import one_hot",
    hints=[
        "With share 0.75 an image shows 75 % of itself and 25 % of its partner. What should its target say about the "
        "two classes?",
        "images.roll(1, 0) puts the last example first and moves all others on by one: at place i stands the partner "
        "of i. The 0 names the axis; without it torch rolls the single numbers.",
        "one_hot(targets, num_classes).float() has a row for each example. Mix the rows by the formula that mixes the "
        "images: share * rows + (1 - share) * rows.roll(1, 0).",
    ],
    lesson="Every row of the soft targets sums to 1, and cross_entropy takes them as they are.",
)
def mix_pairs(images, targets, share: float, num_classes: int):
    """MixUp of a batch: each example is mixed with the one before it, the first with the last.

    images      : float32 (B, C, H, W)
    targets     : int64 (B,), the class of each example
    share       : the weight of the example itself, 0 .. 1; its partner gets 1 - share
    num_classes : columns of the soft targets
    returns     : a tuple: the mixed images float32 (B, C, H, W), and soft targets float32
                  (B, num_classes), how much of each class the mixed image shows. A class that no
                  example has keeps its column. The arguments do not change

    Source: Zhang et al., mixup (arXiv:1710.09412).
    """
    rows = one_hot(targets, num_classes).float()
    mixed = share * images + (1 - share) * images.roll(1, 0)
    return mixed, share * rows + (1 - share) * rows.roll(1, 0)


def _mix(values: torch.Tensor, partners: torch.Tensor, share: float) -> torch.Tensor:
    return share * values + (1 - share) * partners


def _rows(targets: torch.Tensor, num_classes: int) -> torch.Tensor:
    return one_hot(targets, num_classes).float()


@mix_pairs.wrong
def mixes_the_images_only(images, targets, share, num_classes):
    """The targets still name one class each: an image that shows a quarter of a coat is to be called shirt with full
    certainty. That is noise laid over the images, not MixUp."""
    return mix_pairs.answer(images, targets, share, num_classes)[0], _rows(targets, num_classes)


@mix_pairs.form_of("mixes_the_images_only")
def mixes_the_images_only_and_keeps_the_class_numbers(images, targets, share, num_classes):
    return mix_pairs.answer(images, targets, share, num_classes)[0], targets


@mix_pairs.wrong
def forgets_the_number_of_classes(images, targets, share, num_classes):
    """one_hot(targets) without num_classes makes as many columns as the largest class *in this batch* needs: the width
    changes from batch to batch, and the loss stops where the model has more outputs. one_hot(targets, num_classes)."""
    rows = one_hot(targets).float()
    return mix_pairs.answer(images, targets, share, num_classes)[0], _mix(rows, rows.roll(1, 0), share)


@mix_pairs.wrong
def keeps_the_larger_class(images, targets, share, num_classes):
    """The target is the class with the larger share, with full certainty: what the image shows of the other class is
    called an error, and at one half a small step turns the target over."""
    larger = targets if share >= 0.5 else targets.roll(1, 0)
    return mix_pairs.answer(images, targets, share, num_classes)[0], _rows(larger, num_classes)


@mix_pairs.wrong
def exchanges_the_shares(images, targets, share, num_classes):
    """share and 1 - share have changed places in the targets: they say 75 % of what is 25 % of the image. The loss
    falls, the accuracy does not rise."""
    rows = _rows(targets, num_classes)
    return mix_pairs.answer(images, targets, share, num_classes)[0], _mix(rows, rows.roll(1, 0), 1 - share)


@mix_pairs.wrong
def gives_the_partner_the_share(images, targets, share, num_classes):
    """Images and targets agree with each other, but the partner has got the weight that belongs to the example itself:
    with share 1.0, no mixing, each example is exchanged for another."""
    return mix_pairs.answer(images, targets, 1 - share, num_classes)


@mix_pairs.form_of("exchanges_the_shares")
def exchanges_the_shares_in_the_images(images, targets, share, num_classes):
    mixed = _mix(images, images.roll(1, 0), 1 - share)
    return mixed, mix_pairs.answer(images, targets, share, num_classes)[1]


@mix_pairs.wrong
def mixes_with_other_partners(images, targets, share, num_classes):
    """Not the example before is the partner, in the images, the targets or both. Where the two differ, a target names a
    class of which its image shows nothing. In a batch of two all ways agree, so a test with two does not see it."""
    return _mix(images, images.flip(0), share), mix_pairs.answer(images, targets, share, num_classes)[1]


@mix_pairs.form_of("mixes_with_other_partners")
def rolls_the_images_the_other_way(images, targets, share, num_classes):
    return _mix(images, images.roll(-1, 0), share), mix_pairs.answer(images, targets, share, num_classes)[1]


@mix_pairs.form_of("mixes_with_other_partners")
def flips_the_targets(images, targets, share, num_classes):
    rows = _rows(targets, num_classes)
    return mix_pairs.answer(images, targets, share, num_classes)[0], _mix(rows, rows.flip(0), share)


@mix_pairs.form_of("mixes_with_other_partners")
def rolls_the_targets_the_other_way(images, targets, share, num_classes):
    rows = _rows(targets, num_classes)
    return mix_pairs.answer(images, targets, share, num_classes)[0], _mix(rows, rows.roll(-1, 0), share)


@mix_pairs.form_of("mixes_with_other_partners")
def flips_both(images, targets, share, num_classes):
    rows = _rows(targets, num_classes)
    return _mix(images, images.flip(0), share), _mix(rows, rows.flip(0), share)


@mix_pairs.form_of("mixes_with_other_partners")
def rolls_both_the_other_way(images, targets, share, num_classes):
    rows = _rows(targets, num_classes)
    return _mix(images, images.roll(-1, 0), share), _mix(rows, rows.roll(-1, 0), share)


@mix_pairs.wrong
def rolls_single_numbers(images, targets, share, num_classes):
    """roll without an axis moves the single numbers of the whole batch on by one: the image is mixed with itself, moved
    by a pixel, and not with its partner. Name the axis: roll(1, 0)."""
    return _mix(images, images.roll(1), share), mix_pairs.answer(images, targets, share, num_classes)[1]


@mix_pairs.form_of("rolls_single_numbers")
def rolls_single_numbers_in_both(images, targets, share, num_classes):
    rows = _rows(targets, num_classes)
    return _mix(images, images.roll(1), share), _mix(rows, rows.roll(1), share)


@mix_pairs.wrong
def mixes_the_class_numbers(images, targets, share, num_classes):
    """The numbers of the classes are mixed: half of class 0 and half of class 4 becomes class 2, which has nothing to
    do with either. Classes are names; mix their one-hot rows."""
    mixed = mix_pairs.answer(images, targets, share, num_classes)[0]
    return mixed, _mix(targets, targets.roll(1, 0), share)


@mix_pairs.wrong
def overwrites_an_equal_class(images, targets, share, num_classes):
    """Written into the row one after the other, the partner's share replaces the first where both are of one class:
    that row sums to 0.25 and not to 1. The two shares must be added."""
    soft, places = torch.zeros(len(targets), num_classes), torch.arange(len(targets))
    soft[places, targets] = share
    soft[places, targets.roll(1, 0)] = 1 - share
    return mix_pairs.answer(images, targets, share, num_classes)[0], soft


@mix_pairs.wrong
def mixes_in_place(images, targets, share, num_classes):
    """The images are scaled in place before their partners are read: the partner has been scaled too, so the mixture
    is too dark, and the caller's images are changed. Make new tensors."""
    soft = mix_pairs.answer(images, targets, share, num_classes)[1]
    images *= share
    images += (1 - share) * images.roll(1, 0)
    return images, soft


@mix_pairs.form_of("mixes_in_place")
def mixes_rightly_but_in_place(images, targets, share, num_classes):
    mixed, soft = mix_pairs.answer(images, targets, share, num_classes)
    return images.copy_(mixed), soft


@mix_pairs.wrong
def mixes_with_what_was_mixed(images, targets, share, num_classes):
    """A loop writes each mixture over its image, and the next one takes it for its partner: what it mixes is a mixture,
    of all images before. Write into a new tensor, or mix all at once with roll."""
    mixed = images.clone()
    for place in range(len(images)):
        mixed[place] = share * mixed[place] + (1 - share) * mixed[place - 1]
    return mixed, mix_pairs.answer(images, targets, share, num_classes)[1]


@mix_pairs.form_of("mixes_with_what_was_mixed")
def mixes_both_with_what_was_mixed(images, targets, share, num_classes):
    mixed, rows = images.clone(), _rows(targets, num_classes)
    for place in range(len(images)):
        mixed[place] = share * mixed[place] + (1 - share) * mixed[place - 1]
        rows[place] = share * rows[place] + (1 - share) * rows[place - 1]
    return mixed, rows


@mix_pairs.wrong
def draws_the_partners(images, targets, share, num_classes):
    """The partners are drawn, with randperm, and some examples become their own. Here the partner is settled, the
    example before, so that the result can be compared; torchvision's v2.MixUp takes it too, and draws the share."""
    order = torch.randperm(len(images))
    rows = _rows(targets, num_classes)
    return _mix(images, images[order], share), _mix(rows, rows[order], share)
