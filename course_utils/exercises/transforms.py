"""Exercises of chapter 02: here the range of an image; the others come in by import.

Order of the numbers: range, layout, statistics, two views of one dataset, then what must change with the image.
"""

from __future__ import annotations

import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.transforms_boxes import flip_with_box
from course_utils.exercises.transforms_layout import to_chw
from course_utils.exercises.transforms_mixup import mix_pairs
from course_utils.exercises.transforms_statistics import channel_mean_std
from course_utils.exercises.transforms_views import two_views

__all__ = ["channel_mean_std", "flip_with_box", "mix_pairs", "to_chw", "to_unit_float", "two_views"]


def _image(values: list, dtype: torch.dtype) -> tuple[torch.Tensor]:
    return (torch.tensor([[values]], dtype=dtype),)


def _unit(*values: float) -> torch.Tensor:
    return torch.tensor([[values]])


@exercise(
    "transforms-1",
    title="To float, by the range of the dtype",
    difficulty="easy",
    minutes=8,
    cases=[
        ([0, 51, 255], torch.uint8),
        ([0, 1, 1], torch.uint8),
        ([0, 13107, 65535], torch.uint16),
        ([0, 51, 255], torch.uint16),
        ([0.0, 0.25, 1.0], torch.float32),
        ([0.0, 0.25, 0.5], torch.float64),
        ([0.0, 51.0, 255.0], torch.float32),
        ([-1.0, 0.0, 1.0], torch.float32),
        ([0.0, float("nan"), 1.0], torch.float32),
        ([0, 51, 255], torch.int64),
        ([0.0, 0.25, 1.0], torch.float16),
        ([0.0, 0.5, 1.0005], torch.float32),
        ([0.0, 0.5, 1.0 + 1e-12], torch.float64),
        ([-1e-9, 0.5, 1.0], torch.float32),
    ],
    expected=[
        _unit(0.0, 0.2, 1.0),
        _unit(0.0, 1 / 255, 1 / 255),
        _unit(0.0, 0.2, 1.0),
        _unit(0.0, 51 / 65535, 255 / 65535),
        _unit(0.0, 0.25, 1.0),
        _unit(0.0, 0.25, 0.5),
        *[ValueError] * 4,
        _unit(0.0, 0.25, 1.0),
        *[ValueError] * 3,
    ],
    arrange=_image,
    describe=lambda values, dtype: f"to_unit_float(image), image {dtype} with the pixels {values}",
    imports="import torch",
    hints=[
        "The dtype says which range is meant, the values do not: a dark uint8 image may hold nothing above 1. So begin "
        "with image.dtype.",
        "torch.uint8 is divided by 255, torch.uint16 by 65535, after .float(). image.is_floating_point() finds floats "
        "of any width. What is left has no known range: raise ValueError.",
        "Floats: ((image >= 0) & (image <= 1)).all() must be true. Asked this way round, NaN fails too, because every "
        "comparison with NaN is False.",
    ],
    lesson="An image of unknown range stops here with a word, and not after a night of training on white pixels.",
)
def to_unit_float(image):
    """The image as float32 in [0, 1], by the range that its dtype stands for.

    image   : tensor (C, H, W). uint8 means 0 .. 255, uint16 means 0 .. 65535, floats of any
              width (16, 32 or 64 bits) are in [0, 1] already
    returns : float32 (C, H, W)
    raises  : ValueError for a float below 0, above 1 (by however little, as it was given) or NaN,
              and for every other dtype
    """
    if image.dtype == torch.uint8:
        return image.float() / 255
    if image.dtype == torch.uint16:
        return image.float() / 65535
    if image.is_floating_point() and ((image >= 0) & (image <= 1)).all():
        return image.float()
    raise ValueError(f"need uint8, uint16 or floats in [0, 1], got {image.dtype}: scale it first")


def _by_dtype(image, *, floats, others) -> torch.Tensor:
    """Right for uint8 and uint16; `floats` and `others` decide on the rest."""
    if image.dtype in (torch.uint8, torch.uint16):
        return to_unit_float.answer(image)
    return (floats if image.is_floating_point() else others)(image)


def _refused(image) -> torch.Tensor:
    raise ValueError("range unknown")


@to_unit_float.wrong
def divides_everything_by_255(image):
    """Everything is divided by 255, whatever it was: 16-bit images reach 257, and floats that were in [0, 1] end below
    0.004, which a model sees as black."""
    return image.float() / 255


@to_unit_float.wrong
def guesses_from_the_values(image):
    """The largest value decides whether to divide. A dark uint8 image with values 0 and 1 stays as it is, 255 times
    brighter than its neighbours, and a 16-bit image reaches 257. The dtype says what the range is."""
    image = image.float()
    return image / 255 if image.max() > 1 else image


@to_unit_float.form_of("guesses_from_the_values")
def guesses_from_the_values_of_integers(image):
    if image.is_floating_point():
        return to_unit_float.answer(image)
    return guesses_from_the_values(image)


for _refused_dtypes in ((torch.int64,), (torch.uint16, torch.int64)):
    for _floats in (to_unit_float.answer, lambda image: image.float()):
        to_unit_float.form_of("guesses_from_the_values")(
            lambda image, refused=_refused_dtypes, floats=_floats: (
                floats(image)
                if image.is_floating_point()
                else _refused(image)
                if image.dtype in refused
                else guesses_from_the_values(image)
            )
        )


@to_unit_float.form_of("guesses_from_the_values")
def guesses_from_the_values_without_a_change_of_type(image):
    return image / 255 if image.max() > 1 else image


@to_unit_float.form_of("guesses_from_the_values")
def guesses_from_the_values_as_they_are(image):
    """torch has no max() of uint16, so a 16-bit image stops with an error in this form."""
    return image.float() / 255 if image.max() > 1 else image.float()


@to_unit_float.form_of("guesses_from_the_values")
def guesses_from_the_values_and_refuses_the_rest(image):
    image = image.float()
    if image.max() > 1:
        image = image / 255
    if not ((image >= 0) & (image <= 1)).all():
        raise ValueError("outside of 0 .. 1")
    return image


@to_unit_float.wrong
def scales_by_its_own_values(image):
    """Each image is divided by its own largest value, or stretched from its smallest to its largest: a night photo
    becomes as bright as a day photo, and what brightness told is gone. The divisor belongs to the dtype."""
    image = image.float()
    return image / image.max()


@to_unit_float.form_of("scales_by_its_own_values")
def stretches_from_minimum_to_maximum(image):
    image = image.float()
    return (image - image.min()) / (image.max() - image.min())


@to_unit_float.wrong
def changes_the_dtype_only(image):
    """`.float()` changes the dtype and keeps the values: pixels of 0 .. 255 go into a model that was made for
    0 .. 1."""
    return image.float()


@to_unit_float.wrong
def divides_by_256(image):
    """Divided by 256 and 65536, white is never quite 1: the largest value of uint8 is 255, of uint16 it is 65535. The
    number of values is one more."""
    if image.dtype in (torch.uint8, torch.uint16):
        return image.float() / (256 if image.dtype == torch.uint8 else 65536)
    return to_unit_float.answer(image)


@to_unit_float.wrong
def clips_what_is_outside(image):
    """Floats outside [0, 1] are clipped: an image in 0 .. 255 becomes white but for its black pixels, one in -1 .. 1
    loses half of its range, and nobody is told."""
    return _by_dtype(image, floats=lambda x: x.float().clamp(0, 1), others=_refused)


@to_unit_float.wrong
def passes_floats_unchecked(image):
    """Floats are taken for scaled without a look: one file that was loaded as 0 .. 255 goes through, and the model gets
    pixels 255 times too large."""
    return _by_dtype(image, floats=lambda x: x.float(), others=_refused)


@to_unit_float.form_of("passes_floats_unchecked")
def passes_all_else_unchecked(image):
    return _by_dtype(image, floats=lambda x: x.float(), others=lambda x: x.float())


@to_unit_float.wrong
def lets_nan_pass(image):
    """NaN is neither below 0 nor above 1, so asking for what is wrong finds nothing. Ask whether all pixels are right:
    a comparison with NaN is False."""
    if image.is_floating_point() and not (image.min() < 0 or image.max() > 1):
        return image.float()
    return to_unit_float.answer(image)


@to_unit_float.wrong
def takes_every_integer_for_8_bits(image):
    """int64 is divided by 255, though its range is not known: depth in millimetres or a mask of class numbers comes
    out as an image that looks like any other."""
    return _by_dtype(image, floats=to_unit_float.answer, others=lambda x: x.float() / 255)


@to_unit_float.form_of("takes_every_integer_for_8_bits")
def takes_every_integer_for_its_own_width(image):
    """As torchvision's to_dtype(scale=True) does: by the largest number that the dtype can hold."""
    return _by_dtype(
        image,
        floats=to_unit_float.answer,
        others=lambda x: x.float() / torch.iinfo(x.dtype).max,
    )


@to_unit_float.form_of("passes_floats_unchecked")
def passes_floats_unchecked_and_takes_integers_for_their_width(image):
    return image.float() if image.is_floating_point() else image.float() / torch.iinfo(image.dtype).max


@to_unit_float.wrong
def allows_a_little_more(image):
    """Floats a little outside [0, 1] pass. That may be wise for rounding errors, but the task sets a hard limit: where
    each function allows its own little, nobody can say what a pixel may be."""
    inside = ((image >= -1e-3) & (image <= 1 + 1e-3)).all() if image.is_floating_point() else False
    return image.float() if inside else to_unit_float.answer(image)


for _little in (1e-2, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
    to_unit_float.form_of("allows_a_little_more")(
        lambda image, little=_little: (
            image.float()
            if image.is_floating_point() and ((image >= -little) & (image <= 1 + little)).all()
            else to_unit_float.answer(image)
        )
    )


@to_unit_float.wrong
def looks_after_rounding(image):
    """The range is asked for after `.float()`: in float32 a float64 just above 1 has become 1, and passes. Look at what
    was given, then convert."""
    return to_unit_float.answer(image.float() if image.is_floating_point() else image)


@to_unit_float.wrong
def knows_two_widths_of_floats(image):
    """Only float32 and float64 are taken for floats: an image in float16 or bfloat16, as mixed precision leaves it, is
    refused. image.is_floating_point() is true for every width."""
    if image.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(image.dtype)
    return to_unit_float.answer(image)


@to_unit_float.form_of("knows_two_widths_of_floats")
def knows_one_width_of_floats(image):
    if image.is_floating_point() and image.dtype != torch.float32:
        raise ValueError(image.dtype)
    return to_unit_float.answer(image)
