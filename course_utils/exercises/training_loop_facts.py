"""Facts of chapter 05's exercises: some are numbers, whose last bits are free, and some are words."""

from __future__ import annotations

import torch
from torch import nn

from course_utils.exercises.compare import difference
from course_utils.exercises.facts import facts_differ
from course_utils.exercises.wording import short


def facts_or_numbers_differ(expected: dict, got: dict) -> str | None:
    """The first fact that is not as it should be, in words; None where all are.

    A fact is a word, compared as it is, or anything that `compare.difference` compares: numbers, lists, None.
    """
    if not isinstance(expected, dict) or not isinstance(got, dict):
        same = not isinstance(expected, dict) and type(expected) is type(got)
        return None if same else f"the facts cannot be read from {short(got)}"
    return next((text for name, wanted in expected.items() if (text := _differs(name, wanted, got))), None)


def _differs(name: str, wanted: object, got: dict) -> str | None:
    if name not in got or isinstance(wanted, str) or isinstance(got[name], str):
        return facts_differ({name: wanted}, got)
    text = difference(wanted, got[name])
    return f"{name}: {text}" if text else None


def linear(num_inputs: int, num_outputs: int, *, bias: bool = True) -> nn.Linear:
    """A layer with the same weights each time, and without a draw from the reader's generator."""
    before = torch.get_rng_state()
    layer = nn.Linear(num_inputs, num_outputs, bias=bias)
    torch.set_rng_state(before)
    with torch.no_grad():
        layer.weight.copy_(0.5 + torch.arange(num_inputs * num_outputs).reshape(num_outputs, num_inputs) / 8)
        if bias:
            layer.bias.fill_(0.5)
    return layer
