"""Values, their kinds and calls in a few words that are equal in every process: no addresses, no long dumps."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LONGEST = 90


def kind(value: Any) -> str:
    """What sort of thing this is, with its article: "a number", "a tensor of shape (2, 3)", "None"."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if value is None:
        return "None"
    if torch and isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}, dtype {value.dtype}"
    if numpy and isinstance(value, numpy.ndarray):
        return f"an array of shape {value.shape}, dtype {value.dtype}"
    if inspect.isgenerator(value):
        return "a generator"
    if inspect.iscoroutine(value):
        return "a coroutine"
    for types, words in _KINDS:
        if isinstance(value, types):
            return words
    if numpy and isinstance(value, numpy.number):
        return "a number"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


_KINDS = [
    (bool, "a bool"),
    ((int, float), "a number"),
    (str, "a string"),
    (list, "a list"),
    (tuple, "a tuple"),
    (Mapping, "a dict"),
    ((set, frozenset), "a set"),
    (type, "a class"),
    (Iterator, "an iterator"),
]


def short(value: Any) -> str:
    """One line, at most 90 characters."""
    text = _repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


def _repr(value: Any) -> str:
    torch = sys.modules.get("torch")
    if torch and isinstance(value, torch.Tensor):
        return _tensor(value)
    if torch and isinstance(value, (torch.nn.Module, torch.optim.Optimizer)):
        return type(value).__name__
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return _bracketed(value)
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__name__
    if inspect.isgenerator(value) or inspect.iscoroutine(value):
        return kind(value)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))


def _number(value: float) -> str:
    """Up to 9 digits: more would show the last bits, which differ from machine to machine."""
    if isinstance(value, int):
        return str(int(value))
    text = f"{value:.9g}"
    return text if any(c in text for c in ".en") else text + ".0"


def _bracketed(values: list | tuple) -> str:
    shown = [short(v) for v in values[:12]] + (["..."] if len(values) > 12 else [])
    inner = ", ".join(shown)
    if isinstance(values, list):
        return f"[{inner}]"
    return f"({inner},)" if len(values) == 1 else f"({inner})"


def _tensor(value: Any) -> str:
    if value.numel() > 8:
        return kind(value).removeprefix("a ")
    return f"tensor({short(value.detach().cpu().tolist())})"


def described_call(fn: Callable, name: str, args: tuple, kwargs: dict) -> str:
    """`warmup_factor(step=0, warmup_steps=4)`: every argument with the name that `fn` gives it."""
    bound = inspect.signature(fn).bind(*args, **kwargs).arguments
    return f"{name}({', '.join(f'{key}={short(value)}' for key, value in bound.items())})"


def words_of_error(error: BaseException) -> str:
    """`KeyError: 'lr'`; an `assert` without a text has none to show."""
    return f"{type(error).__name__}: {error}" if str(error) else f"{type(error).__name__}, without a text"
