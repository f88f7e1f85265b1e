"""Boxes that go through transforms with their photo: the catalogue as a detection dataset, and mosaics of it.

torchvision's v2 transforms move boxes that are `tv_tensors.BoundingBoxes`. Re-exported by `transforms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from course_utils.catalogue import read_index, read_manifest
from course_utils.images import load_rgb
from course_utils.randomness import BatchKey, keyed_uniform

Boxed = tuple[torch.Tensor, dict[str, torch.Tensor]]

GREY = 114  # of a mosaic where no photo is


def with_boxes(image: torch.Tensor, boxes: Any, labels: Any) -> Boxed:
    """The image and its boxes as v2 transforms know them.

    image   : uint8 or float (3, H, W)
    boxes   : (N, 4) numbers, [x0, y0, x1, y1] in pixels, ends excluded
    labels  : (N,) integers
    returns : `tv_tensors.Image`, and {"boxes": `tv_tensors.BoundingBoxes` float32 (N, 4), "labels": int64 (N,)}
    """
    from torchvision import tv_tensors

    values = torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    labels = torch.as_tensor(labels, dtype=torch.int64).reshape(-1)
    if len(values) != len(labels):
        raise ValueError(f"need one label a box, got {len(values)} boxes and {len(labels)} labels")
    boxed = tv_tensors.BoundingBoxes(values, format="XYXY", canvas_size=tuple(image.shape[-2:]))
    return tv_tensors.Image(image), {"boxes": boxed, "labels": labels}


class BoxedPhotos(Dataset):
    """The catalogue's photos with the box of their item: (image, {"boxes", "labels"}), as `with_boxes` makes them.

    root      : a catalogue, made by `make_catalogue`
    transform : (image, target) -> (image, target); v2 transforms take the pair as it is. It may cut a box away: then
                the target has none

    Photos have different sizes: a transform brings them to one, and `loaders.collate_boxes` makes the batch.
    """

    def __init__(self, root: str | Path, transform: Callable | None = None) -> None:
        self.root, self.rows, self.transform = Path(root), read_index(root), transform
        self.classes = tuple(read_manifest(root)["classes"])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Boxed:
        row = self.rows[index]
        example = with_boxes(load_rgb(self.root / row["path"]), [row["box"]], [row["target"]])
        return example if self.transform is None else self.transform(*example)


def mosaic(examples: Sequence[Boxed], size: int, *, key: BatchKey, min_visible: float = 0.25) -> Boxed:
    """Four photos around one point of a square canvas, with their boxes.

    examples    : four (image, target): top left, top right, bottom left, bottom right; not resized
    size        : height and width of the canvas, in pixels
    key         : of the examples; the point is a function of (seed, epoch, index, repeat) of the first. It lies in the
                  middle half of the canvas
    min_visible : a box stays, clipped, where at least this share of its area is on the canvas; else it goes, with its
                  label
    returns     : (image, target): image of the photos' dtype, grey where no photo is
    raises      : ValueError for another number of examples or keys

    Each photo has the corner that points inwards at the point, and what sticks out of the canvas is cut off.

    Source: Bochkovskiy et al., YOLOv4 (arXiv:2004.10934), section 3.3.
    """
    if len(examples) != 4 or len(key) != 4:
        raise ValueError(f"a mosaic needs 4 examples and their key, got {len(examples)} and {len(key)}")
    first = BatchKey(key.seed, key.epoch, key.start, key.indices[:1], None if key.repeats is None else key.repeats[:1])
    middle = (size // 4 + keyed_uniform(first, 2, stream="mosaic")[0] * (size // 2)).long().tolist()
    return join_at(examples, size, middle, min_visible)


def join_at(examples: Sequence[Boxed], size: int, middle: Sequence[int], min_visible: float) -> Boxed:
    """The mosaic around the point `middle` (x, y)."""
    dtype = examples[0][0].dtype
    canvas = torch.full((3, size, size), GREY if dtype == torch.uint8 else GREY / 255, dtype=dtype)
    boxes, labels = [], []
    for corner, (image, target) in enumerate(examples):
        height, width = image.shape[-2:]
        left = middle[0] - (width if corner % 2 == 0 else 0)
        top = middle[1] - (height if corner < 2 else 0)
        x0, y0, x1, y1 = max(left, 0), max(top, 0), min(left + width, size), min(top + height, size)
        canvas[:, y0:y1, x0:x1] = image.as_subclass(torch.Tensor)[:, y0 - top : y1 - top, x0 - left : x1 - left]
        moved = target["boxes"].as_subclass(torch.Tensor) + torch.tensor([left, top, left, top])
        inside = moved.clamp(0, size)
        kept = (_areas(inside) > 0) & (_areas(inside) >= min_visible * _areas(moved))
        boxes.append(inside[kept])
        labels.append(target["labels"][kept])
    return with_boxes(canvas, torch.cat(boxes), torch.cat(labels))


def _areas(boxes: torch.Tensor) -> torch.Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
