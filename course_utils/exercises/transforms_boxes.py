"""The exercise of chapter 02 about a box that is mirrored together with its image."""

from __future__ import annotations

import torch

from course_utils.exercises.declare import exercise


def _numbered(height: int, width: int, box: list[int]) -> tuple[torch.Tensor, list[int]]:
    """An image of one channel whose pixels count up, and a box in it."""
    return torch.arange(height * width).reshape(1, height, width), box


@exercise(
    "transforms-5",
    title="A box is mirrored with its image",
    difficulty="medium",
    minutes=8,
    cases=[
        (1, 2, [0, 0, 1, 1]),
        (2, 3, [0, 0, 1, 2]),
        (2, 5, [1, 0, 3, 1]),
        (3, 5, [1, 0, 5, 2]),
        (2, 3, [0, 0, 3, 2]),
    ],
    expected=[
        (torch.tensor([[[1, 0]]]), [1, 0, 2, 1]),
        (torch.tensor([[[2, 1, 0], [5, 4, 3]]]), [2, 0, 3, 2]),
        (torch.tensor([[[4, 3, 2, 1, 0], [9, 8, 7, 6, 5]]]), [2, 0, 4, 1]),
        (torch.tensor([[[4, 3, 2, 1, 0], [9, 8, 7, 6, 5], [14, 13, 12, 11, 10]]]), [0, 0, 4, 2]),
        (torch.tensor([[[2, 1, 0], [5, 4, 3]]]), [0, 0, 3, 2]),
    ],
    arrange=_numbered,
    describe=lambda height, width, box: f"flip_with_box(image, {box}), image of height {height} and width {width}",
    keep_arguments=True,
    parts=("the image", "the box"),
    hints=[
        "Draw an image 5 pixels wide with a box from x0 = 1 to x1 = 3: it covers the pixels 1 and 2. Where are these "
        "after mirroring, and where does the box begin then?",
        "A position x is an edge between pixels, from 0 to the width W. Mirrored it is W - x. No 1 is subtracted.",
        "Left and right change places, so the new left edge comes from the old right one: W - x1, then W - x0. y0 and "
        "y1 stay. The image: image.flip(-1).",
    ],
    lesson="An image and what is said about its places go through one function; torchvision's v2 does it for "
    "tv_tensors.",
)
def flip_with_box(image, box):
    """Mirror an image left to right, and the box in it.

    image   : tensor (C, H, W)
    box     : [x0, y0, x1, y1], the left, upper, right and lower edge in pixels: the box covers
              the pixels x0 .. x1 - 1 of the rows y0 .. y1 - 1, and x1 may be as large as W
    returns : a tuple: the mirrored image, and the box around the same thing as a list
              [x0, y0, x1, y1] with x0 < x1. Image and box as they were given do not change
    """
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - x1, y0, width - x0, y1]


@flip_with_box.wrong
def leaves_the_box(image, box):
    """The image is mirrored, the box stays where it was: it now frames whatever is on the other side. The loss goes
    down all the same, because half of the images are not mirrored."""
    return image.flip(-1), box


@flip_with_box.wrong
def does_not_exchange_left_and_right(image, box):
    """Both edges are mirrored, each in its old place: x0 is now greater than x1, so the box has a negative width, and
    its overlap with any other box is counted as nothing."""
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - x0, y0, width - x1, y1]


@flip_with_box.wrong
def mirrors_pixels_and_not_edges(image, box):
    """W - 1 - x is where the *pixel* x goes; a box is made of edges, which lie between pixels. The box comes out one
    pixel too far left, and a box at the right border gets an edge of -1."""
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - 1 - x1, y0, width - 1 - x0, y1]


@flip_with_box.form_of("mirrors_pixels_and_not_edges")
def mirrors_pixels_and_does_not_exchange_them(image, box):
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - 1 - x0, y0, width - 1 - x1, y1]


@flip_with_box.wrong
def corrects_one_edge_by_a_pixel(image, box):
    """One edge is mirrored as an edge, W - x, and the other as a pixel, W - 1 - x: the box is a pixel too wide or too
    narrow. Both are edges, which lie between pixels, and no 1 is needed."""
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - 1 - x1, y0, width - x0, y1]


@flip_with_box.form_of("corrects_one_edge_by_a_pixel")
def corrects_the_other_edge_by_a_pixel(image, box):
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - x1, y0, width - 1 - x0, y1]


@flip_with_box.wrong
def adds_a_pixel(image, box):
    """W - x + 1 lies one pixel too far right: a box at the left border leaves the image at the right. Edges are counted
    from 0 to W, so that W - x is the mirrored edge."""
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - x1 + 1, y0, width - x0 + 1, y1]


@flip_with_box.form_of("adds_a_pixel")
def adds_a_pixel_at_one_edge(image, box):
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - x1, y0, width - x0 + 1, y1]


@flip_with_box.form_of("adds_a_pixel")
def adds_a_pixel_at_the_left_edge(image, box):
    width = image.shape[2]
    x0, y0, x1, y1 = box
    return image.flip(-1), [width - x1 + 1, y0, width - x0, y1]


@flip_with_box.wrong
def steps_backwards_through_a_tensor(image, box):
    """image[:, :, ::-1] mirrors an array of NumPy; a tensor has no negative steps and raises "step must be greater than
    zero". image.flip(-1) does it."""
    return image[:, :, ::-1], flip_with_box.answer(image, box)[1]


@flip_with_box.wrong
def turns_the_box_upside_down(image, box):
    """The box is mirrored from top to bottom, the image from left to right. Left and right is the x axis, the last one
    of the image; y0 and y1 stay."""
    height = image.shape[1]
    x0, y0, x1, y1 = box
    return image.flip(-1), [x0, height - y1, x1, height - y0]


@flip_with_box.wrong
def turns_the_image_upside_down(image, box):
    """The image is mirrored from top to bottom, the box from left to right: in (C, H, W) the width is the last axis,
    and dimension 1 is the height. Flip dimension -1."""
    return image.flip(1), flip_with_box.answer(image, box)[1]


@flip_with_box.wrong
def turns_both_upside_down(image, box):
    """Image and box agree, but both are mirrored from top to bottom: in (C, H, W) dimension 1 is the height. Left and
    right is the last one, dimension -1, and x0 and x1."""
    height = image.shape[1]
    x0, y0, x1, y1 = box
    return image.flip(1), [x0, height - y1, x1, height - y0]


@flip_with_box.wrong
def takes_the_height_for_the_width(image, box):
    """The edges are mirrored in the height of the image: image.shape is (C, H, W), so the width is shape[2] or
    shape[-1]. In square images nothing shows it; in others boxes lie outside."""
    height = image.shape[1]
    x0, y0, x1, y1 = box
    return image.flip(-1), [height - x1, y0, height - x0, y1]


@flip_with_box.wrong
def takes_the_box_for_width_and_height(image, box):
    """The last two numbers are taken for the box's width and height, as COCO's files have them: mirrored like that a
    box leaves the image. Here they are its right and lower edge."""
    width = image.shape[2]
    x0, y0, box_width, box_height = box
    return image.flip(-1), [width - x0 - box_width, y0, box_width, box_height]


@flip_with_box.wrong
def writes_into_the_box_that_was_given(image, box):
    """The result is right, but it was written into the caller's list: the dataset's own box is mirrored, and the next
    epoch mirrors it back while the image on disk stays as it is. Make a new list."""
    box[:] = flip_with_box.answer(image, box)[1]
    return image.flip(-1), box


@flip_with_box.wrong
def mirrors_the_box_alone(image, box):
    """The box is mirrored, the image is as it was: flip returns a new tensor and changes nothing, so its result has to
    be returned."""
    image.flip(-1)
    return image, flip_with_box.answer(image, box)[1]
