"""Splits without leaks: groups stay together, copies are found by their content.

It knows positions, groups and targets; no image and no class folder.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course_utils.randomness import derive_seed


def group_split(
    groups: Sequence[Hashable] | torch.Tensor | np.ndarray,
    *,
    fractions: Sequence[float],
    seed: int,
    targets: Sequence[int] | torch.Tensor | np.ndarray | None = None,
) -> list[list[int]]:
    """Divide positions into parts so that no group lies in two.

    groups    : the group of each example: its product, patient, video
    fractions : the share of examples that each part is to get, more than 0, sum 1
    targets   : the class of each example; each part then gets its share of each class too
    returns   : a list of positions for each part, ascending; each position in one part, no part empty
    raises    : ValueError where lengths, fractions or the number of groups do not fit

    A function of the arguments, the same on every machine. Large groups go first, those of about one size in an order
    drawn from the seed. Each goes to the part that lacks most of what it holds, a rare class weighing as much as a
    common one. Without targets a part misses its share by less than the largest group, where groups are many.
    """
    groups = _plain(groups)
    classes = [0] * len(groups) if targets is None else _plain(targets)
    members = defaultdict(list)
    for position, group in enumerate(groups):
        members[group].append(position)
    _check_split(groups, classes, fractions, len(members))
    lacking = _Lacking(classes, fractions)
    parts: list[list[int]] = [[] for _ in fractions]
    pending = _in_order(list(members.values()), seed)
    for placed, positions in enumerate(pending):
        held = Counter(classes[position] for position in positions)
        empty = [part for part, chosen in enumerate(parts) if not chosen]
        must_fill = len(pending) - placed <= len(empty)
        part = lacking.most(held, empty if must_fill else range(len(parts)))
        parts[part] += positions
    return [sorted(part) for part in parts]


class _Lacking:
    """How many examples each part still lacks, of each class."""

    def __init__(self, classes: Sequence[Hashable], fractions: Sequence[float]) -> None:
        self.totals = Counter(classes)
        self.lacks = [{name: share * total for name, total in self.totals.items()} for share in fractions]

    def most(self, held: Counter, parts: Iterable[int]) -> int:
        """The part that lacks most of what a group holds; it is counted as given."""

        def need(part: int) -> float:
            lacks = self.lacks[part]
            by_class = sum(number * lacks[name] / self.totals[name] for name, number in held.items())
            return by_class + held.total() * sum(lacks.values()) / self.totals.total()

        chosen = max(parts, key=need)
        for name, number in held.items():
            self.lacks[chosen][name] -= number
        return chosen


def _in_order(groups: list[list[int]], seed: int) -> list[list[int]]:
    """Large groups first; sizes up to twice as large count as one, so that the seed has a say."""
    random.Random(derive_seed("group_split", seed)).shuffle(groups)
    return sorted(groups, key=lambda positions: -len(positions).bit_length())


def _check_split(groups: list, classes: list, fractions: Sequence[float], num_groups: int) -> None:
    if len(classes) != len(groups):
        raise ValueError(f"need one target an example; got {len(classes)} targets and {len(groups)} groups")
    _check_fractions(fractions)
    if num_groups < len(fractions):
        raise ValueError(f"{len(fractions)} parts need as many groups at least, got {num_groups}; none is divided")


def _check_fractions(fractions: Sequence[float]) -> None:
    if not fractions or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(f"fractions must be more than 0 and sum to 1, got {list(fractions)}")


def hashed_part(group: int | str, *, fractions: Sequence[float], seed: int) -> int:
    """The part of a group, decided by its name alone: a split for streams, and for data that grow.

    group     : its name; 12 and "12" are two names
    fractions : the share of groups that each part is to get, more than 0, sum 1
    returns   : 0 .. len(fractions) - 1, the same in every process and on every machine
    raises    : ValueError where the fractions do not fit; TypeError for a name that is neither int nor str

    A hash makes a number in [0, 1) of the name, and the parts lie on this line one after the other. No other group has
    a say, so none changes sides when others come. The price: sizes are near the fractions only where groups are many
    (of n groups, a share p misses by about sqrt(p (1 - p) / n)), and no class is looked at.
    """
    _check_fractions(fractions)
    if isinstance(group, bool) or not isinstance(group, (int, str)):
        raise TypeError(f"a group's name must be int or str, got {group!r} ({type(group).__name__}): convert it")
    place = derive_seed("hashed_part", seed, group) / 2**63
    bounds = list(accumulate(fractions))[:-1]  # the last part takes the rest, whatever the sum was rounded to
    return sum(place >= bound for bound in bounds)


def assert_disjoint(parts: Sequence[Iterable[int]], groups: Sequence[Hashable] | torch.Tensor | np.ndarray) -> None:
    """ValueError where a group, and so a position, lies in two of the parts; it names the group and the parts."""
    groups, part_of = _plain(groups), {}
    for number, part in enumerate(parts):
        for position in part:
            first = part_of.setdefault(groups[position], number)
            if first != number:
                raise ValueError(
                    f"group {groups[position]!r} lies in parts {first} and {number}: what is learned from one leaks "
                    "into the other; split by group (`group_split`)"
                )


def merge_groups(
    groups: Sequence[Hashable] | torch.Tensor | np.ndarray, duplicates: Iterable[Sequence[int]]
) -> list[int]:
    """Groups that share a copy become one: numbers from 0, in order of first sight, for `group_split`.

    duplicates : lists of positions that belong together, as `exact_duplicates` returns them
    """
    groups = _plain(groups)
    parent = {group: group for group in groups}

    def root(group: Hashable) -> Hashable:
        while parent[group] != group:
            parent[group] = group = parent[parent[group]]
        return group

    for positions in duplicates:
        for position in positions[1:]:
            parent[root(groups[position])] = root(groups[positions[0]])
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(root(group), len(numbers)) for group in groups]


def exact_duplicates(source: Any) -> list[list[int]]:
    """Positions that hold the same content, byte by byte: each list has two or more, ascending.

    source : paths of files; or a dataset: one with `path(index)` (`ImageFolderDataset`) is compared by its files, any
             other by the image of each example: dtype, shape and values. Random transforms hide copies
    raises : OSError for a file that cannot be read

    For copies across two splits give the paths of both in one list. A photo that was saved anew has other bytes.
    """
    if hasattr(source, "path"):
        source = [source.path(index) for index in range(len(source))]
    if len(source) and isinstance(source[0], (str, os.PathLike)):
        same_size = _alike(range(len(source)), lambda index: os.path.getsize(source[index]))  # the others are not read
        return sorted(chain(*(_alike(positions, lambda index: _file_digest(source[index])) for positions in same_size)))
    return _alike(range(len(source)), lambda index: _content_digest(source[index][0]))


def _alike(positions: Iterable[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    """Positions with one key, where there are two or more, in order of first sight."""
    by_key = defaultdict(list)
    for position in positions:
        by_key[key(position)].append(position)
    return [alike for alike in by_key.values() if len(alike) > 1]


def _file_digest(path: str | os.PathLike) -> bytes:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _content_digest(image: Any) -> bytes:
    values = np.ascontiguousarray(image)
    return hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).digest()


def _plain(values: Sequence | torch.Tensor | np.ndarray) -> list:
    """A list of Python values: two tensors of one number are not one group."""
    return values.tolist() if hasattr(values, "tolist") else list(values)
