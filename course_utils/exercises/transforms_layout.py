"""The exercise of chapter 02 about the axes of an image."""

from __future__ import annotations

import numpy as np
import torch

from course_utils.exercises.declare import exercise


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


_MIRRORED_FAILS = torch.from_numpy  # it refuses an array that runs backwards; the copying ways do not


def _reshaped(array, *, tensor=_MIRRORED_FAILS, grey=True) -> torch.Tensor:
    pixels = tensor(array)
    if pixels.ndim == 2:
        return pixels[None] if grey else pixels.reshape(pixels.shape[2], *pixels.shape[:2])
    return pixels.reshape(pixels.shape[2], *pixels.shape[:2])


@to_chw.form_of("reshapes")
def reshapes_and_stops_at_mirrored_arrays(array):
    return _reshaped(array)


@to_chw.form_of("reshapes")
def reshapes_and_stops_at_mirrored_and_grey_arrays(array):
    height, width, channels = array.shape
    return torch.from_numpy(array).reshape(channels, height, width)


@to_chw.form_of("reshapes")
def reshapes_and_stops_at_grey_arrays(array):
    height, width, channels = array.shape
    return torch.from_numpy(array.copy()).reshape(channels, height, width)


@to_chw.wrong
def swaps_height_and_width(array):
    """The axes come out as (C, W, H): exchanging the first and the last one turns the image over its diagonal. In a
    square image only the content shows it. The order asked for is 2, 0, 1."""
    return _tensor(array).permute(2, 1, 0)


@to_chw.form_of("swaps_height_and_width")
def swaps_and_stops_at_mirrored_arrays(array):
    pixels = torch.from_numpy(array)
    return pixels.permute(2, 1, 0) if array.ndim == 3 else pixels[None]


@to_chw.form_of("swaps_height_and_width")
def swaps_and_stops_at_mirrored_and_grey_arrays(array):
    return torch.from_numpy(array).permute(2, 1, 0)


@to_chw.form_of("swaps_height_and_width")
def swaps_and_stops_at_grey_arrays(array):
    return torch.from_numpy(array.copy()).permute(2, 1, 0)


@to_chw.form_of("swaps_height_and_width")
def turns_all_axes_round(array):
    return torch.from_numpy(array.T.copy())


@to_chw.form_of("swaps_height_and_width")
def turns_all_axes_round_and_gives_grey_a_channel(array):
    return torch.from_numpy(array.T.copy() if array.ndim == 3 else array.T[None].copy())


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


@to_chw.wrong
def forgets_grey(array):
    """An array (H, W) has no third axis to be moved, so a grey image stops with an error: "number of dimensions in the
    tensor input does not match". Give it a channel first: array[:, :, None]."""
    return torch.from_numpy(np.ascontiguousarray(array)).permute(2, 0, 1)


@to_chw.form_of("forgets_grey")
def forgets_grey_and_stops_at_mirrored_arrays(array):
    return torch.from_numpy(array).permute(2, 0, 1)


@to_chw.form_of("forgets_grey")
def forgets_grey_in_numpy(array):
    return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))


@to_chw.form_of("forgets_grey")
def forgets_grey_in_numpy_and_stops_at_mirrored_arrays(array):
    return torch.from_numpy(array.transpose(2, 0, 1))
