"""Exercises of chapter 02: here the range and the layout of an image; the others come in by import.

Order of the numbers: range, layout, statistics, two views of one dataset, then what must change with the image.
"""

from __future__ import annotations

import numpy as np
import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.transforms_boxes import flip_with_box
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
    ],
    expected=[
        _unit(0.0, 0.2, 1.0),
        _unit(0.0, 1 / 255, 1 / 255),
        _unit(0.0, 0.2, 1.0),
        _unit(0.0, 51 / 65535, 255 / 65535),
        _unit(0.0, 0.25, 1.0),
        _unit(0.0, 0.25, 0.5),
        *[ValueError] * 4,
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
              width are in [0, 1] already
    returns : float32 (C, H, W)
    raises  : ValueError for a float below 0, above 1 or NaN, and for every other dtype
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


@to_unit_float.wrong
def scales_by_its_own_maximum(image):
    """Each image is divided by its own largest value: a night photo becomes as bright as a day photo, and what
    brightness told is gone. The divisor belongs to the dtype."""
    image = image.float()
    return image / image.max()


@to_unit_float.form_of("scales_by_its_own_maximum")
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


def _array(kind: str, shape: tuple[int, ...]) -> tuple[np.ndarray]:
    """Numbers counted up in the order of the memory; "mirrored" is a view that runs backwards through it."""
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    return (array[:, ::-1] if kind == "mirrored" else array,)


def _bytes(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


@exercise(
    "transforms-2",
    title="Channels first",
    difficulty="easy",
    minutes=8,
    cases=[
        ("colour", (1, 2, 3)),
        ("colour", (2, 3, 3)),
        ("grey", (2, 3)),
        ("transparent", (2, 2, 4)),
        ("mirrored", (1, 2, 3)),
    ],
    expected=[
        _bytes([[[0, 3]], [[1, 4]], [[2, 5]]]),
        _bytes([[[first + 3 * x + 9 * y for x in range(3)] for y in range(2)] for first in range(3)]),
        _bytes([[[0, 1, 2], [3, 4, 5]]]),
        _bytes([[[0, 4], [8, 12]], [[1, 5], [9, 13]], [[2, 6], [10, 14]], [[3, 7], [11, 15]]]),
        _bytes([[[3, 0]], [[4, 1]], [[5, 2]]]),
    ],
    arrange=_array,
    describe=lambda kind, shape: f"to_chw(array), a {kind} array of shape {shape} with the values 0, 1, 2, ...",
    imports="import numpy as np\nimport torch",
    hints=[
        "Take an array (1, 2, 3): two pixels, (0, 1, 2) and (3, 4, 5). What are its first channel's two values? They "
        "stand 3 apart in memory.",
        "Axes are renamed, not refilled: array.transpose(2, 0, 1), or torch's permute(2, 0, 1). The result may be not "
        "contiguous; that is fine. A grey array has two axes: give it a third first, array[:, :, None].",
        "torch.from_numpy refuses an array that runs backwards through its memory, as array[:, ::-1] does: "
        "np.ascontiguousarray(array) copies it where need be.",
    ],
    lesson="reshape keeps the order of the numbers in memory; transpose and permute keep what each axis means.",
)
def to_chw(array):
    """The image as a tensor with the channels first; values and dtype as they are.

    array   : NumPy array (H, W, C) of colour with or without alpha, or (H, W) of grey; perhaps a
              view that runs backwards through memory (array[:, ::-1] mirrors an image)
    returns : tensor (C, H, W) of the same dtype, with C = 1 for grey
    """
    array = np.ascontiguousarray(array)
    if array.ndim == 2:
        array = array[:, :, None]
    return torch.from_numpy(array).permute(2, 0, 1)


def _tensor(array) -> torch.Tensor:
    """(H, W, C), also of grey."""
    return torch.from_numpy(np.ascontiguousarray(array if array.ndim == 3 else array[:, :, None]))


@to_chw.wrong
def reshapes(array):
    """The shape is right and the pixels are not: reshape and view fill the new axes in the order of the memory, so each
    channel gets a third of the image with red, green and blue side by side."""
    pixels = _tensor(array)
    return pixels.reshape(pixels.shape[2], *pixels.shape[:2])


@to_chw.wrong
def swaps_height_and_width(array):
    """The axes come out as (C, W, H): exchanging the first and the last one turns the image over its diagonal. In a
    square image only the content shows it. The order asked for is 2, 0, 1."""
    return _tensor(array).permute(2, 1, 0)


@to_chw.wrong
def leaves_the_channels_last(array):
    """The axes are still (H, W, C): a convolution takes the height for the number of channels, and either stops or,
    with 3 rows, does not."""
    return _tensor(array)


@to_chw.wrong
def leaves_grey_without_a_channel(array):
    """A grey image comes out as (H, W): it cannot be stacked with the others, and a convolution takes its rows for a
    batch or for channels."""
    return _tensor(array)[:, :, 0] if array.ndim == 2 else to_chw.answer(array)


@to_chw.wrong
def puts_the_grey_channel_last(array):
    """A grey image comes out as (H, W, 1): its channel was added at the end and stayed there. Add it first, then move
    the axes as for colour."""
    return _tensor(array) if array.ndim == 2 else to_chw.answer(array)


@to_chw.wrong
def repeats_grey_three_times(array):
    """A grey image comes out with three equal channels. A model for colour needs that, but it is another decision:
    here the channels are those that the array has."""
    return to_chw.answer(array).repeat(3, 1, 1) if array.ndim == 2 else to_chw.answer(array)


@to_chw.wrong
def scales_as_well(array):
    """The values are divided by 255 as well, as torchvision's old ToTensor did. Layout and range are two things: who
    scales after this scales twice, and the image is black."""
    return to_chw.answer(array).float() / 255


@to_chw.wrong
def stops_at_mirrored_arrays(array):
    """An array that runs backwards through its memory, as array[:, ::-1] does, cannot share it with a tensor. Mirroring
    is a common step before this one: copy such an array, np.ascontiguousarray does."""
    array = array if array.ndim == 3 else array[:, :, None]
    return torch.from_numpy(array).permute(2, 0, 1)
