"""Batches of what does not stack: sequences of any lengths, photos with any number of boxes.

Functions for `collate_fn`: they know examples only, no dataset and no loader. Re-exported by `loaders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import default_collate


class Padded(NamedTuple):
    """Sequences of any lengths as one tensor.

    values  : (B, T) or (B, T, ...), padded at the end; T is the longest sequence's length
    lengths : int64 (B,), of each sequence before padding
    mask    : bool (B, T), True where a value is the sequence's own
    """

    values: torch.Tensor
    lengths: torch.Tensor
    mask: torch.Tensor


def pad_sequences(examples: Sequence[Any], *, padding_value: float = 0) -> Padded | tuple[Padded, Any]:
    """Pad to the longest: examples are sequences, or pairs (sequence, target).

    examples      : each sequence a tensor or array (T,) or (T, ...); equal but for T, and of one dtype
    padding_value : must be one that the dtype holds
    returns       : `Padded`; with pairs (`Padded`, targets as PyTorch's default makes them)
    raises        : ValueError that names the position in the batch; for an empty list too: a loader makes the empty
                    batch of a rank from an example

    A sequence of length 0 stays, with lengths 0 and no True in its mask: its mean over the mask is 0/0, so divide by
    `lengths.clamp(min=1)`. For another value: `collate_fn=partial(pad_sequences, padding_value=1)`.
    """
    _check_some(examples, "pad_sequences")
    paired = [isinstance(example, tuple) and len(example) == 2 for example in examples]
    if any(paired) and not all(paired):
        one, other = paired.index(True), paired.index(False)
        raise ValueError(f"example {one} is a pair (sequence, target) and example {other} is not: make them alike")
    padded = _pad([example[0] for example in examples] if paired[0] else examples, padding_value)
    return (padded, default_collate([target for _, target in examples])) if paired[0] else padded


def _pad(given: Sequence[Any], padding_value: float) -> Padded:
    sequences = [_checked_sequence(sequence, place) for place, sequence in enumerate(given)]
    first = sequences[0]
    for place, sequence in enumerate(sequences):
        if sequence.dtype != first.dtype:
            raise ValueError(
                f"sequence {place} of the batch is {sequence.dtype}, sequence 0 is {first.dtype}: give all one dtype"
            )
        if sequence.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"sequence {place} of the batch is {_form(sequence)}, sequence 0 is {_form(first)}: only T may differ"
            )
    _check_padding_value(padding_value, first.dtype)
    lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.int64)
    longest = int(lengths.max())
    values = first.new_full((len(sequences), longest, *first.shape[1:]), padding_value)
    for row, sequence in zip(values, sequences, strict=True):
        row[: len(sequence)] = sequence
    return Padded(values, lengths, torch.arange(longest) < lengths[:, None])


def _form(sequence: torch.Tensor) -> str:
    """(T, 3, 4) for anything whose dimensions after the first are 3 and 4."""
    return f"({', '.join(['T', *map(str, sequence.shape[1:])])})"


def _checked_sequence(sequence: Any, place: int) -> torch.Tensor:
    if isinstance(sequence, np.ndarray):
        sequence = torch.from_numpy(sequence)
    if not isinstance(sequence, torch.Tensor):
        raise ValueError(
            f"sequence {place} of the batch must be a tensor or an array, got {type(sequence).__name__}: make it one "
            "in the dataset, torch.tensor(values, dtype=torch.int64), so that an empty one has a dtype too"
        )
    if sequence.dim() == 0:
        raise ValueError(f"sequence {place} of the batch must be (T,) or (T, ...), got a single number, {sequence!r}")
    return sequence


def _check_padding_value(value: float, dtype: torch.dtype) -> None:
    """Integers would cut 0.5 to 0, and uint8 has no -1."""
    if dtype.is_floating_point or dtype.is_complex:
        return
    low, high = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    if value != value or not low <= value <= high or value != int(value):
        raise ValueError(f"padding_value={value!r} is no value of {dtype}: give a whole number in {low} .. {high}")


def collate_boxes(examples: Sequence[tuple[torch.Tensor, dict]]) -> tuple[torch.Tensor, list[dict]]:
    """Photos of one size as one tensor, their targets as a list: photos have different numbers of boxes.

    examples : (image, target); image (C, H, W), target a dict with "boxes" (N, 4) and "labels" (N,), and more if wanted
    returns  : images (B, C, H, W), targets the list of dicts as they came; tv_tensors stay what they are, (0, 4) too
    raises   : ValueError that names both positions where images do not stack, and the position of a target that does
               not fit; for an empty list too
    """
    _check_some(examples, "collate_boxes")
    images, targets = [example[0] for example in examples], [example[1] for example in examples]
    for place, (image, target) in enumerate(zip(images, targets, strict=True)):
        if image.shape != images[0].shape or image.dtype != images[0].dtype:
            raise ValueError(
                f"image {place} of the batch is {image.dtype} {tuple(image.shape)}, image 0 is {images[0].dtype} "
                f"{tuple(images[0].shape)}: bring them to one size in the dataset's transform (boxes with them), or "
                "keep a list with a collate_fn of your own"
            )
        _check_target(target, place)
    return _stack(images), targets


def _check_target(target: Any, place: int) -> None:
    if not isinstance(target, dict) or not {"boxes", "labels"} <= set(target):
        got = sorted(target) if isinstance(target, dict) else type(target).__name__
        raise ValueError(f"target {place} of the batch must be a dict with 'boxes' and 'labels', got {got}")
    boxes, labels = tuple(target["boxes"].shape), tuple(target["labels"].shape)
    if len(boxes) != 2 or boxes[1] != 4 or labels != boxes[:1]:
        raise ValueError(
            f"target {place} of the batch needs boxes (N, 4) and labels (N,), got {boxes} and {labels}; a photo "
            "without boxes has boxes (0, 4)"
        )


def _stack(images: list[torch.Tensor]) -> torch.Tensor:
    """One tensor; of tv_tensors one of their kind, which `torch.stack` alone would make a plain tensor."""
    stacked = torch.stack(images)
    if all(type(image) is torch.Tensor for image in images):
        return stacked
    from torchvision import tv_tensors

    alike = isinstance(images[0], tv_tensors.TVTensor) and len({type(image) for image in images}) == 1
    return tv_tensors.wrap(stacked, like=images[0]) if alike else stacked


def _check_some(examples: Sequence, name: str) -> None:
    if len(examples) == 0:
        raise ValueError(
            f"{name} needs at least one example, got none: ResumableLoader makes the empty batch of a rank from one"
        )
