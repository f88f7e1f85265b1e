"""What clipping does to a gradient: its length, and its direction.

It knows gradients as tensors; `optimizer_step` clips with PyTorch's own functions and re-exports `clip_effect`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch.nn.utils import clip_grad_value_, clip_grads_with_norm_, get_total_norm


class ClipEffect(NamedTuple):
    """A gradient's 2-norm before and after clipping, and the cosine of the angle between them (1: same direction)."""

    norm: float
    clipped_norm: float
    cosine: float


def clip_effect(
    gradients: Iterable[torch.Tensor],
    *,
    max_norm: float | None = None,
    max_value: float | None = None,
    norm_type: float = 2.0,
) -> ClipEffect:
    """Clip copies of the gradients as `update` would, by norm and then by value, and compare.

    gradients : one tensor a parameter; they are not changed
    norm_type : of the norm that `max_norm` bounds; the reported norms are 2-norms
    returns   : a `ClipEffect`; its cosine is NaN where one of the two is 0 or not finite
    """
    before = [gradient.detach() for gradient in gradients]
    after = [torch.nn.Parameter(torch.empty_like(gradient)) for gradient in before]
    for param, gradient in zip(after, before, strict=True):
        param.grad = gradient.clone()
    if max_norm is not None:
        clip_grads_with_norm_(after, max_norm, get_total_norm(before, norm_type))
    if max_value is not None:
        clip_grad_value_(after, max_value)
    old, new = (torch.cat([part.flatten().double() for part in parts]) for parts in (before, [p.grad for p in after]))
    cosine = old @ new / (old.norm() * new.norm())
    return ClipEffect(float(old.norm()), float(new.norm()), float(cosine))
