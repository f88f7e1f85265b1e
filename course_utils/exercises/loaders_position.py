"""The exercise of chapter 04 about a position that counts a batch when it is handed over."""

from __future__ import annotations

from collections.abc import Iterator

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import facts_differ
from course_utils.exercises.loaders_position_facts import Load, position_facts, sound_position

_CASES = [(3, 0, 0), (3, 4, 1), (4, 0, 3), (1, 2, 0)]


@exercise(
    "loaders-3",
    title="A position that counts what was handed over",
    difficulty="medium",
    minutes=12,
    cases=_CASES,
    expected=[sound_position(*case) for case in _CASES],
    arrange=lambda num_batches, epoch, batch: (Load(), num_batches, {"epoch": epoch, "batch": batch}),
    probe=position_facts,
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
                  order. Like a loader with workers it reads numbers ahead of what it yields, and
                  each call starts workers: call it once, with the batches that are still due
    num_batches : of an epoch, 1 or more
    position    : {"epoch": 0, "batch": 1}, where to begin: batch 0 was handed over, 1 comes next.
                  It is changed in place, and always names the batch that comes next, in plain
                  whole numbers. If making a batch raises, it still names that batch
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
def fetches_a_batch_ahead(load, num_batches, position):
    """A batch is fetched for the next turn before this one is handed over: the step waits for a batch that it does not
    need yet. If it is counted with this one, a `break` there loses it. Count what goes out, not what came in."""
    batches = _rest(load, num_batches, position)
    held = next(batches)
    _count(position, num_batches)
    for fetched in batches:
        _count(position, num_batches)
        yield held
        held = fetched
    yield held


@hand_over.form_of("fetches_a_batch_ahead")
def fetches_a_batch_ahead_and_counts_right(load, num_batches, position):
    batches = _rest(load, num_batches, position)
    held = next(batches)
    for fetched in batches:
        _count(position, num_batches)
        yield held
        held = fetched
    _count(position, num_batches)
    yield held


@hand_over.form_of("fetches_a_batch_ahead")
def fetches_all_and_counts_right(load, num_batches, position):
    for batch in list(_rest(load, num_batches, position)):
        _count(position, num_batches)
        yield batch


@hand_over.wrong
def wraps_after_the_last_step(load, num_batches, position):
    """The next epoch is set behind the loop, when the loop asks once more. A state saved with the last batch in hand
    names a batch that the epoch does not have, and the run that goes on from it has an epoch without a batch."""
    epoch = position["epoch"]
    for batch in _rest(load, num_batches, position):
        position["batch"] += 1
        yield batch
    position.update(epoch=epoch + 1, batch=0)


@hand_over.form_of("wraps_after_the_last_step")
def counts_the_epoch_after_the_last_step(load, num_batches, position):
    for batch in _rest(load, num_batches, position):
        position["batch"] = (position["batch"] + 1) % num_batches
        yield batch
    position["epoch"] += 1


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
    """After the last batch the position stays at the end of the epoch (or the new one went into a new dict of the same
    name): every further call yields nothing, and a loop over 10 epochs trains for one, without an error. After the last
    batch comes batch 0 of the next epoch, in the dict itself."""
    for batch in _rest(load, num_batches, position):
        position["batch"] += 1
        yield batch


@hand_over.wrong
def moves_one_of_the_two(load, num_batches, position):
    """With the last batch only one of the two moves. If the epoch stays, it is read again in the same order, with the
    same augmentations; if the batch stays at the end, the next call yields nothing. Both have to move."""
    for batch in _rest(load, num_batches, position):
        position["batch"] = (position["batch"] + 1) % num_batches
        yield batch


@hand_over.form_of("moves_one_of_the_two")
def counts_the_epoch_and_keeps_the_batch(load, num_batches, position):
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
def makes_the_old_batches_again(load, num_batches, position):
    """`load` is asked for the whole epoch, and what was handed over before is thrown away: the batches are right, and
    each of the old ones is made once more. A resume in the last tenth of an epoch takes as long as nine tenths of it.
    Ask for range(position["batch"], num_batches)."""
    first = position["batch"]
    for number, batch in enumerate(load(position["epoch"], range(num_batches))):
        if number >= first:
            _count(position, num_batches)
            yield batch


@hand_over.wrong
def starts_a_loader_for_each_batch(load, num_batches, position):
    """`load` is called again for every batch: workers are started each time, and nothing is made ahead, so that each
    step waits for a whole batch. Call it once, and take the batches one by one from what it returns."""
    epoch = position["epoch"]
    for number in range(position["batch"], num_batches):
        batch = next(load(epoch, range(number, num_batches)))
        _count(position, num_batches)
        yield batch


@hand_over.form_of("starts_a_loader_for_each_batch")
def starts_a_loader_for_each_number(load, num_batches, position):
    epoch = position["epoch"]
    for number in range(position["batch"], num_batches):
        batch = next(load(epoch, [number]))
        _count(position, num_batches)
        yield batch


@hand_over.wrong
def counts_before_the_batch_is_there(load, num_batches, position):
    """The position moves before the batch is there: at the call, or before `next`. If making the batch raises, or
    nobody asks for it, it counts as handed over, and no step ever sees it. Take the batch, count it, `yield` it."""
    batches = _rest(load, num_batches, position)
    for _ in range(position["batch"], num_batches):
        _count(position, num_batches)
        yield next(batches)


@hand_over.form_of("counts_before_the_batch_is_there")
def counts_the_epoch_at_the_call(load, num_batches, position):
    position["epoch"] += 1
    return load(position["epoch"] - 1, range(position["batch"], num_batches))


@hand_over.form_of("counts_before_the_batch_is_there")
def counts_a_batch_at_the_call(load, num_batches, position):
    batches = _rest(load, num_batches, position)
    _count(position, num_batches)
    return batches


@hand_over.form_of("counts_before_the_batch_is_there")
def counts_the_epoch_at_the_call_and_loads_later(load, num_batches, position):
    batches = _rest(load, num_batches, dict(position))
    position.update(epoch=position["epoch"] + 1, batch=0)
    return batches


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
