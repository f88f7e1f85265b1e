"""What a position that counts batches at hand-over is asked: the loader it gets, and the facts that are gathered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from course_utils.exercises.facts import Said

_AHEAD = 2
_BEFORE, _BATCHES = "the position before the first batch is asked for", "the batches, as (epoch, number)"
_HELD, _AFTER = "the position with each batch in hand, as (epoch, batch)", "the position after the last batch"
_BROKEN, _RESUMED = "after a `break` at the first batch, the position", "and the next call then yields"
_NEXT = "called again after the last batch, it yields"
_ASKED, _TAKEN = "the numbers that each call of load was given", "batches taken from load, with the first one in hand"
_FAILED = "where making the first batch raises, the position"


class MakingFailed(Exception):
    """What a load raises whose first batch cannot be made."""


class Load:
    """A loader that remembers what it was asked for; like one with workers it reads numbers ahead.

    asked  : for each call the numbers that were read
    taken  : batches handed to the generator so far
    broken : raises in place of the first batch
    """

    def __init__(self, *, broken: bool = False) -> None:
        self.broken, self.asked, self.taken = broken, [], 0

    def __call__(self, epoch: int, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
        read: list = []
        self.asked.append(read)
        return self._batches(load_ahead(epoch, _noted(numbers, read)))

    def _batches(self, batches: Iterator) -> Iterator[tuple[int, int]]:
        for batch in batches:
            if self.broken:
                raise MakingFailed("this batch cannot be made")
            self.taken += 1
            yield batch


def _noted(numbers: Iterable[int], read: list) -> Iterator[int]:
    for number in numbers:
        read.append(number)
        yield number


def load_ahead(epoch: int, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Batches as (epoch, number), in order; two numbers are read ahead of the batch that is yielded, as workers do."""
    waiting: deque = deque()
    for number in numbers:
        waiting.append((epoch, number))
        if len(waiting) > _AHEAD:
            yield waiting.popleft()
    yield from waiting


def _place(position: dict) -> tuple:
    """(epoch, batch); what is no plain whole number, as json needs it, is named with its type."""
    found = position.get("epoch"), position.get("batch")
    return tuple(n if type(n) in (int, bool) or n is None else f"{n} as {type(n).__name__}" for n in found)


def position_facts(fn: Callable, result: Iterator, load: Load, num_batches: int, position: dict) -> dict:
    """Positions before, in and after the loop, and what a run gets that goes on from there."""
    if isinstance(result, (list, tuple)):
        words = "in a list, all loaded before the loop makes its first step: `yield` each one"
        return {_BEFORE: _place(position), _BATCHES: Said("in a list", words)}
    most = num_batches + 2  # one that never ends is cut here
    start, before = dict(position), _place(position)
    taken = [(batch, _place(position), load.taken) for batch in islice(result, most)]
    facts = {_BEFORE: before, _BATCHES: [batch for batch, *_ in taken], _HELD: [place for _, place, _ in taken]}
    facts |= {_AFTER: _place(position), _ASKED: load.asked[:4], _TAKEN: taken[0][2] if taken else 0}
    facts[_NEXT] = list(islice(fn(Load(), num_batches, position), most))
    broken = dict(start)
    for _ in (loop := fn(Load(), num_batches, broken)):
        break
    getattr(loop, "close", int)()
    facts[_BROKEN] = _place(broken)
    facts[_RESUMED] = list(islice(fn(Load(), num_batches, broken), most))
    return facts | {_FAILED: _after_a_failure(fn, num_batches, dict(start))}


def _after_a_failure(fn: Callable, num_batches: int, position: dict) -> tuple:
    try:
        next(iter(fn(Load(broken=True), num_batches, position)), None)
    except MakingFailed:
        return _place(position)
    return "not reached: the error of load did not come out", _place(position)


def sound_position(num_batches: int, epoch: int, batch: int) -> dict:
    """By counting on: what is due from batch `batch` of `epoch` on."""
    rest = [(epoch, number) for number in range(batch, num_batches)]
    counted = [(epoch, number + 1) for _, number in rest[:-1]] + [(epoch + 1, 0)]
    following = [(epoch + 1, number) for number in range(num_batches)]
    facts = {_BEFORE: (epoch, batch), _BATCHES: rest, _HELD: counted, _AFTER: (epoch + 1, 0), _NEXT: following}
    facts |= {_BROKEN: counted[0], _RESUMED: rest[1:] or following, _FAILED: (epoch, batch)}
    return facts | {_ASKED: [list(range(batch, num_batches))], _TAKEN: 1}
