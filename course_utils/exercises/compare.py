"""What differs between an expected value and a given one, in words: kinds first, then shapes and dtypes, then values.

It knows no exercise and no reader. Several forms of one value are equal (0.5, a 0-d tensor, a NumPy scalar; a list, a
tuple), bits need not be (the order of a sum is free), and nothing passes by broadcasting.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from fractions import Fraction
from itertools import chain
from typing import Any

from course_utils.exercises.wording import kind, short

REL, ABS = 1e-5, 1e-7


def difference(
    expected: Any, got: Any, *, rel: float = REL, abs_: float = ABS, parts: Sequence[str] = ()
) -> str | None:
    """`None` if the two agree, else the first difference in words.

    rel, abs_ : tolerances of inexact numbers; widened to four units in the last place of a coarser dtype. Integers,
                booleans and strings must be equal.
    parts     : names of the places of an expected tuple, which are told in place of "at [0]"
    """
    if parts and isinstance(expected, tuple):
        return _parts_differ(expected, got, rel, abs_, parts)
    return _difference(expected, got, rel, abs_, "")


def _parts_differ(expected: tuple, got: Any, rel: float, abs_: float, parts: Sequence[str]) -> str | None:
    """Several results in one tuple: "the epoch: expected 1, got 0", or that one of them is all that came."""
    asked = f"expected a tuple ({', '.join(parts)})"
    if not isinstance(got, (list, tuple)) or len(got) != len(parts):
        came = f"{len(got)} results" if isinstance(got, tuple) else kind(got)
        return f"{asked}, got {came}: {short(got)}"
    if _word(got[0]) != _word(expected[0]):
        turned = [_word(value) for value in got] == [_word(value) for value in expected[::-1]]
        if turned or isinstance(got, list):  # a list may be one of the results, by chance of this length
            return f"{asked}{' in this order' * turned}, got {kind(got)}: {short(got)}"
    found = [_difference(e, g, rel, abs_, "") for e, g in zip(expected, got, strict=True)]
    if any(found) and not any(_difference(e, g, rel, abs_, "") for e, g in zip(expected, got[::-1], strict=True)):
        return f"{asked} in this order, got {kind(got)}: {short(got)}"
    return _first(f"{part}: {text}" if text else None for part, text in zip(parts, found, strict=True))


def _word(value: Any) -> str:
    return kind(as_number(value)).split(" of ")[0]


def _difference(expected: Any, got: Any, rel: float, abs_: float, where: str) -> str | None:
    expected = as_number(expected)
    if not _is_iterator(expected) and _is_iterator(got):
        return f"{_at(where)}expected {kind(expected)}, got {kind(got)}"
    if expected is None or isinstance(expected, (bool, str)):
        return _exact(expected, got, where)
    if isinstance(expected, (int, float)):
        return _number(expected, got, rel, abs_, where)
    if is_array(expected):
        return _array(expected, got, rel, abs_, where)
    if isinstance(expected, Mapping):
        return _mapping(expected, got, rel, abs_, where)
    if isinstance(expected, (list, tuple)):
        return _sequence(expected, got, rel, abs_, where)
    return _exact(expected, got, where)


def as_number(value: Any) -> Any:
    """The plain number in a NumPy scalar, a 0-d array, a 0-d tensor or a Fraction; anything else unchanged."""
    if isinstance(value, Fraction):
        return float(value)
    return value.item() if is_array(value) and tuple(value.shape) == () else value


def is_array(value: Any) -> bool:
    """A torch tensor, a NumPy array or a NumPy scalar; loads neither library."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    return bool(torch and isinstance(value, torch.Tensor)) or bool(
        numpy and isinstance(value, (numpy.ndarray, numpy.generic))
    )


def _is_iterator(value: Any) -> bool:
    return isinstance(value, Iterator) or inspect.iscoroutine(value)


def _exact(expected: Any, got: Any, where: str) -> str | None:
    plain = as_number(got)
    same_kind = type(plain) is type(expected) or (isinstance(expected, Set) and isinstance(plain, Set))
    if not same_kind:
        return _kinds_differ(expected, got, where)
    return None if plain == expected else _values_differ(expected, plain, where)


def _number(expected: float, got: Any, rel: float, abs_: float, where: str) -> str | None:
    plain = as_number(got)
    if isinstance(plain, bool) or not isinstance(plain, (int, float)):
        return _kinds_differ(expected, got, where)
    if isinstance(expected, int):
        return None if plain == expected else _values_differ(expected, plain, where)
    rel = max(rel, 4 * _unit(got))
    close = math.isclose(plain, expected, rel_tol=rel, abs_tol=abs_) or (math.isnan(plain) and math.isnan(expected))
    return None if close else _values_differ(expected, plain, where)


def _array(expected: Any, got: Any, rel: float, abs_: float, where: str) -> str | None:
    if not is_array(got) or kind(got).split()[1] != kind(expected).split()[1]:
        return _kinds_differ(expected, got, where)
    if tuple(got.shape) != tuple(expected.shape):
        return f"{_at(where)}expected shape {tuple(expected.shape)}, got shape {tuple(got.shape)}"
    if got.dtype != expected.dtype:
        return f"{_at(where)}expected dtype {expected.dtype}, got dtype {got.dtype}"
    return _elements(expected, got, max(rel, 4 * _unit(expected)), abs_, where)


def _elements(expected: Any, got: Any, rel: float, abs_: float, where: str) -> str | None:
    """Sums of large terms leave larger errors near zero, so the absolute tolerance grows with the largest element."""
    import torch

    wanted, given = (torch.as_tensor(value).detach().cpu() for value in (expected, got))
    if not (wanted.is_floating_point() or wanted.is_complex()):
        close = wanted == given
    else:
        largest = wanted[wanted.isfinite()].abs().max().item() if wanted.isfinite().any() else 0.0
        close = torch.isclose(given, wanted, rtol=rel, atol=max(abs_, 2 * _unit(expected) * largest), equal_nan=True)
    if bool(close.all()):
        return None
    index = tuple((~close).nonzero()[0].tolist())
    place = f"{where}[{', '.join(map(str, index))}]"
    return _values_differ(wanted[index].item(), given[index].item(), place)


def _unit(value: Any) -> float:
    """The spacing of a floating-point array's numbers at 1; 0 for anything else."""
    name = str(getattr(value, "dtype", "")).removeprefix("torch.")
    return {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(name, 0.0)


def _sequence(expected: Any, got: Any, rel: float, abs_: float, where: str) -> str | None:
    if is_array(got) and got.ndim > 0:
        rel, got = max(rel, 4 * _unit(got)), got.tolist()
    if not isinstance(got, (list, tuple)):
        return _kinds_differ(expected, got, where)
    if len(got) != len(expected):
        lengths = f"{_at(where)}expected length {len(expected)}, got length {len(got)}"
        return f"{lengths}: {_values_differ(expected, got, '')}"
    pairs = enumerate(zip(expected, got, strict=True))
    found = _first(_difference(e, g, rel, abs_, f"{where}[{i}]") for i, (e, g) in pairs)
    if found and _same_in_another_order(expected, got):
        return f"{_at(where)}the same in another order: {_values_differ(expected, got, '')}"
    return found


def _same_in_another_order(expected: list | tuple, got: list | tuple) -> bool:
    """Of names and whole numbers only, where being equal needs no tolerance."""
    plain = all(isinstance(value, (str, int)) for value in chain(expected, got))
    return plain and Counter(expected) == Counter(got)


def _mapping(expected: Mapping, got: Any, rel: float, abs_: float, where: str) -> str | None:
    if not isinstance(got, Mapping):
        return _kinds_differ(expected, got, where)
    missing, extra = [k for k in expected if k not in got], [k for k in got if k not in expected]
    lacking = (f"{_at(where)}no entry for {short(k)}" for k in missing)
    surplus = (f"{_at(where)}an entry for {short(k)} that does not belong there" for k in extra)
    common = (_difference(expected[k], got[k], rel, abs_, f"{where}[{short(k)}]") for k in expected if k in got)
    return _first(chain(lacking, surplus, common))


def _first(differences) -> str | None:
    return next((text for text in differences if text is not None), None)


def _at(where: str) -> str:
    """The path into a nested value: "['lr'][0]: "."""
    return f"at {where}: " if where else ""


def _kinds_differ(expected: Any, got: Any, where: str) -> str:
    return f"{_at(where)}expected {kind(expected)}, got {kind(got)}: expected {short(expected)}, got {short(got)}"


def _values_differ(expected: Any, got: Any, where: str) -> str:
    return f"{_at(where)}expected {short(expected)}, got {short(got)}"
