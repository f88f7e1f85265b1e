"""The exercise of chapter 04 about a position that counts a batch when it is handed over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import Said, facts_differ

_AHEAD = 2


def load_ahead(epoch: int, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Batches as (epoch, number), in order; two numbers are read ahead of the batch that is yielded, as workers do."""
    waiting: deque = deque()
    for number in numbers:
        waiting.append((epoch, number))
        if len(waiting) > _AHEAD:
            yield waiting.popleft()
    yield from waiting


_BEFORE, _BATCHES = "the position before the first batch is asked for", "the batches, as (epoch, number)"
_HELD, _AFTER = "the position with each batch in hand, as (epoch, batch)", "the position after the last batch"
_BROKEN, _RESUMED = "after a `break` at the first batch, the position", "and the next call then yields"
_NEXT = "called again after the last batch, it yields"


def _place(position: dict) -> tuple:
    return position.get("epoch"), position.get("batch")


def _position_facts(fn: Callable, result: Iterator, load: Callable, num_batches: int, position: dict) -> dict:
    """Positions before, in and after the loop, and what a run gets that goes on from there."""
    if isinstance(result, (list, tuple)):
        words = "in a list, all loaded before the loop makes its first step: `yield` each one"
        return {_BEFORE: _place(position), _BATCHES: Said("in a list", words)}
    most = num_batches + 2  # one that never ends is cut here
    start, before = dict(position), _place(position)
    taken = [(batch, _place(position)) for batch in islice(result, most)]
    facts = {_BEFORE: before, _BATCHES: [batch for batch, _ in taken], _HELD: [place for _, place in taken]}
    facts |= {_AFTER: _place(position), _NEXT: list(islice(fn(load, num_batches, position), most))}
    broken = dict(start)
    for _ in (loop := fn(load, num_batches, broken)):
        break
    getattr(loop, "close", int)()
    facts[_BROKEN] = _place(broken)
    return facts | {_RESUMED: list(islice(fn(load, num_batches, broken), most))}


def _sound(num_batches: int, epoch: int, batch: int) -> dict:
    """By counting on: what is due from batch `batch` of `epoch` on."""
    rest = [(epoch, number) for number in range(batch, num_batches)]
    counted = [(epoch, number + 1) for _, number in rest[:-1]] + [(epoch + 1, 0)]
    following = [(epoch + 1, number) for number in range(num_batches)]
    facts = {_BEFORE: (epoch, batch), _BATCHES: rest, _HELD: counted, _AFTER: (epoch + 1, 0), _NEXT: following}
    return facts | {_BROKEN: counted[0], _RESUMED: rest[1:] or following}


@exercise(
    "loaders-3",
    title="A position that counts what was handed over",
    difficulty="medium",
    minutes=12,
    cases=[(3, 0, 0), (3, 4, 1), (4, 0, 3), (1, 2, 0)],
    expected=[_sound(3, 0, 0), _sound(3, 4, 1), _sound(4, 0, 3), _sound(1, 2, 0)],
    arrange=lambda num_batches, epoch, batch: (load_ahead, num_batches, {"epoch": epoch, "batch": batch}),
    probe=_position_facts,
    difference=facts_differ,
    describe=lambda num_batches, epoch, batch: (
        f'hand_over(load, num_batches={num_batches}, position={{"epoch": {epoch}, "batch": {batch}}})'
    ),
    hints=[
        "A run saves its position inside the loop, after the step of a batch, and stops. Where is your generator at "
        "that moment: before its `yield`, in it, or behind it? Only what was done before the `yield` is in the file.",
        "numbers = range(first, num_batches) are the batches that are left; zip(numbers, load(epoch, numbers)) gives "
        "each batch with its number. The numbers themselves may not count: load reads them ahead of the loop.",
        "In the loop over these pairs, before the `yield`: the batch to come is number + 1; and if that is "
        "num_batches, it is batch 0 of the next epoch.",
    ],
    lesson="The batches that workers had ready at a stop are made again after it; none is lost and none comes twice.",
)
def hand_over(load, num_batches: int, position: dict):
    """Yield the rest of an epoch; a batch counts when it is handed over: a generator function.

    load        : load(epoch, numbers) gives an iterator over the batches of these numbers, in
                  order. Like a loader with workers it reads numbers ahead of what it yields
    num_batches : of an epoch, 1 or more
    position    : {"epoch": 0, "batch": 1}, where to begin: batch 0 was handed over, 1 comes next.
                  It is changed in place, and always names the batch that comes next
    yields      : the batches from there to the end of that epoch, and no further

    With 3 batches an epoch and the position above, two are yielded. While the loop has batch 1 in
    hand the position is {"epoch": 0, "batch": 2}, with batch 2 {"epoch": 1, "batch": 0}, where
    the next call begins. The same holds after a `break`. Before the first batch nothing moves.
    """
    epoch = position["epoch"]
    numbers = range(position["batch"], num_batches)
    for number, batch in zip(numbers, load(epoch, numbers), strict=True):
        if number + 1 < num_batches:
            position["batch"] = number + 1
        else:
            position.update(epoch=epoch + 1, batch=0)
        yield batch


def _count(position: dict, num_batches: int) -> None:
    """One batch more, the end of an epoch included."""
    more, position["batch"] = divmod(position["batch"] + 1, num_batches)
    position["epoch"] += more


def _rest(load, num_batches, position) -> Iterator:
    return load(position["epoch"], range(position["batch"], num_batches))


@hand_over.wrong
def counts_after_the_yield(load, num_batches, position):
    """What stands behind the `yield` runs only when the loop asks for the next batch, or never.
    A position saved inside the loop does not count the batch in hand: the resumed run trains on it a second time."""
    for batch in _rest(load, num_batches, position):
        yield batch
        _count(position, num_batches)


@hand_over.form_of("counts_after_the_yield")
def counts_after_the_yield_and_wraps_behind_the_loop(load, num_batches, position):
    for batch in _rest(load, num_batches, position):
        yield batch
        position["batch"] += 1
    position.update(epoch=position["epoch"] + 1, batch=0)


@hand_over.form_of("counts_after_the_yield")
def counts_after_the_yield_and_never_wraps(load, num_batches, position):
    for batch in _rest(load, num_batches, position):
        yield batch
        position["batch"] += 1


@hand_over.form_of("counts_after_the_yield")
def counts_in_a_finally_behind_the_yield(load, num_batches, position):
    for batch in _rest(load, num_batches, position):
        try:
            yield batch
        finally:
            _count(position, num_batches)


@hand_over.wrong
def names_the_batch_in_hand(load, num_batches, position):
    """The position names the batch in hand, not the one that comes next: the resumed run trains on it a second time,
    and since the end of the epoch is never written down, the next epoch never begins."""
    epoch, numbers = position["epoch"], range(position["batch"], num_batches)
    for number, batch in zip(numbers, load(epoch, numbers), strict=True):
        position["batch"] = number
        yield batch


@hand_over.wrong
def counts_the_numbers_that_were_read(load, num_batches, position):
    """The count is taken where numbers go into `load`, at the sampler. It reads ahead: with the first batch in hand
    three are counted, so a run that stops there passes over two that no step has seen."""
    epoch, numbers = position["epoch"], range(position["batch"], num_batches)

    def counted():
        for number in numbers:
            _count(position, num_batches)
            yield number

    yield from load(epoch, counted())


@hand_over.form_of("counts_the_numbers_that_were_read")
def counts_the_numbers_that_were_read_and_wraps_behind(load, num_batches, position):
    epoch, numbers = position["epoch"], range(position["batch"], num_batches)

    def counted():
        for number in numbers:
            position["batch"] = number + 1
            yield number

    yield from load(epoch, counted())
    position.update(epoch=epoch + 1, batch=0)


@hand_over.wrong
def counts_the_batch_read_ahead(load, num_batches, position):
    """A batch is fetched for the next turn and counted with this one. With the first in hand two are counted: after a
    `break`, or a stop there, the one that was fetched is lost. Count what goes out, not what came in."""
    batches = _rest(load, num_batches, position)
    held = next(batches)
    _count(position, num_batches)
    for fetched in batches:
        _count(position, num_batches)
        yield held
        held = fetched
    yield held


@hand_over.wrong
def wraps_after_the_last_step(load, num_batches, position):
    """The next epoch is set behind the loop, when the loop asks once more. A state saved with the last batch in hand
    names a batch that the epoch does not have, and the run that goes on from it has an epoch without a batch."""
    epoch = position["epoch"]
    for batch in _rest(load, num_batches, position):
        position["batch"] += 1
        yield batch
    position.update(epoch=epoch + 1, batch=0)


@hand_over.wrong
def wraps_at_the_next_call(load, num_batches, position):
    """The next epoch is set when the next call begins. Until then the state says batch 3 of 3: resumed with half the
    batch size, that is batch 3 of 6, and the second half of the epoch is read again."""
    if position["batch"] == num_batches:
        position.update(epoch=position["epoch"] + 1, batch=0)
    for batch in _rest(load, num_batches, position):
        position["batch"] += 1
        yield batch


@hand_over.wrong
def never_wraps(load, num_batches, position):
    """After the last batch the position stays at the end of the epoch: every further call yields nothing, and a loop
    over 10 epochs trains for one, without an error. After the last batch comes batch 0 of the next epoch."""
    for batch in _rest(load, num_batches, position):
        position["batch"] += 1
        yield batch


@hand_over.wrong
def stays_in_the_epoch(load, num_batches, position):
    """The batch goes back to 0 and the epoch stays: the next call reads the same epoch in the same order again, and the
    keys of its augmentations repeat as well. The epoch is one further too."""
    for batch in _rest(load, num_batches, position):
        position["batch"] = (position["batch"] + 1) % num_batches
        yield batch


@hand_over.wrong
def counts_the_epoch_and_keeps_the_batch(load, num_batches, position):
    """The epoch is one further and the batch stays at the end: the next call looks for batches behind the last one and
    yields nothing. Set the batch to 0 as well."""
    epoch = position["epoch"]
    for batch in _rest(load, num_batches, position):
        position["batch"] += 1
        position["epoch"] = epoch + (position["batch"] == num_batches)
        yield batch


@hand_over.wrong
def begins_the_epoch_anew(load, num_batches, position):
    """It begins with batch 0 whatever the position says: a run that was resumed in the middle of an epoch reads the
    first half of it a second time. range(position["batch"], num_batches) are the batches that are left."""
    for number, batch in enumerate(load(position["epoch"], range(num_batches))):
        position["batch"] = number
        _count(position, num_batches)
        yield batch


@hand_over.form_of("begins_the_epoch_anew")
def begins_the_epoch_anew_and_counts_on(load, num_batches, position):
    for batch in load(position["epoch"], range(num_batches)):
        _count(position, num_batches)
        yield batch


@hand_over.wrong
def counts_from_zero(load, num_batches, position):
    """`enumerate` counts the batches of this call from 0. After a resume at batch 1 that is one too few, so the next
    resume goes back, and the end of the epoch is never reached. Count on from where the position stood."""
    for number, batch in enumerate(_rest(load, num_batches, position)):
        position["batch"] = number
        _count(position, num_batches)
        yield batch


@hand_over.wrong
def passes_over_a_batch(load, num_batches, position):
    """It begins one batch too late: position["batch"] names the batch that comes next, not the last one that was had.
    Each stop costs the run a batch that no step ever sees."""
    epoch = position["epoch"]
    for number, batch in enumerate(load(epoch, range(position["batch"] + 1, num_batches)), position["batch"] + 1):
        position["batch"] = number
        _count(position, num_batches)
        yield batch


@hand_over.wrong
def loads_all_before_the_first_step(load, num_batches, position):
    """All batches of the epoch are in one list before the loop makes its first step: nothing overlaps, the memory is
    that of the epoch, and the position stands at the end while the first batch is in hand. `yield` each one."""
    batches = list(_rest(load, num_batches, position))
    for _ in batches:
        _count(position, num_batches)
    return batches


@hand_over.wrong
def never_moves_the_position(load, num_batches, position):
    """The position that the caller holds never moves: nothing is counted, or in a copy, or in a new dict of the same
    name. What is saved is the start of the run. Change the dict itself: position["batch"] = ..."""
    position = dict(position)
    yield from hand_over.answer(load, num_batches, position)
