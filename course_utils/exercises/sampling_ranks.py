"""The exercise of chapter 03 about the batches of several ranks."""

from __future__ import annotations

from collections import Counter

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import facts_differ

_TIMES, _BATCHES, _FIRST = (
    "times that each index is given",
    "batches of each rank",
    "first batches of all ranks together",
)
_SIZES, _ROOM = "sizes of the last batches", "largest batch"
_KIND, _LIST_OF_LISTS = "a rank gets", "a list of batches"


def _plain(values) -> list:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _holds_lists(batch) -> bool:
    return any(isinstance(index, (list, tuple)) or getattr(index, "ndim", 0) for index in batch)


def _facts_of_all(fn, result, order: list, batch_size: int, world_size: int, rank) -> dict:
    """What all ranks get together; which rank gets which example of a global batch is free."""
    given = [_plain(fn(list(order), batch_size, world_size, r)) for r in range(world_size)]
    if any(isinstance(batch, int) for batches in given for batch in batches):
        return {_KIND: "a list of indices, not of batches"}
    if any(_holds_lists(batch) for batches in given for batch in batches):
        return {_KIND: "lists of batches"}
    ranks = [[_plain(batch) for batch in batches] for batches in given]
    counts = Counter(index for batches in ranks for batch in batches for index in batch)
    largest = max((len(batch) for batches in ranks for batch in batches), default=0)
    firsts = {index for batches in ranks for batch in batches[:1] for index in batch}
    return {
        _KIND: _LIST_OF_LISTS,
        _TIMES: [counts[index] for index in order],
        _BATCHES: [len(batches) for batches in ranks],
        _ROOM: "within batch_size" if largest <= batch_size else f"{largest} examples",
        _FIRST: sorted(firsts, key=order.index),
        _SIZES: sorted((len(batch) for batches in ranks for batch in batches[-1:]), reverse=True),
    }


def _sound(num_examples: int, num_batches: list[int], first: list[int], sizes: list[int]) -> dict:
    return {
        _KIND: _LIST_OF_LISTS,
        _TIMES: [1] * num_examples,
        _BATCHES: num_batches,
        _ROOM: "within batch_size",
        _FIRST: first,
        _SIZES: sizes,
    }


@exercise(
    "sampling-3",
    title="The batches of one rank, without padding",
    difficulty="medium",
    minutes=12,
    cases=[
        ([0, 1, 2, 3], 2, 1, 0),
        ([7, 3, 5, 1], 1, 2, 0),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 2, 3, 0),
        ([4, 2, 0, 3, 1], 2, 2, 0),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 4, 2, 0),
        ([5, 6], 2, 4, 0),
        ([], 2, 2, 0),
    ],
    expected=[
        _sound(4, [2], [0, 1], [2]),
        _sound(4, [2, 2], [7, 3], [1, 1]),
        _sound(10, [2, 2, 2], [0, 1, 2, 3, 4, 5], [2, 1, 1]),
        _sound(5, [2, 2], [4, 2, 0, 3], [1, 0]),
        _sound(10, [2, 2], [0, 1, 2, 3, 4, 5, 6, 7], [1, 1]),
        _sound(2, [1, 1, 1, 1], [5, 6], [1, 1, 0, 0]),
        _sound(0, [0, 0], [], []),
    ],
    probe=_facts_of_all,
    difference=facts_differ,
    keep_arguments=True,
    describe=lambda order, batch_size, world_size, rank: (
        f"rank_batches of all ranks, order={order}, batch_size={batch_size}, world_size={world_size}"
    ),
    hints=[
        "First cut the order into global batches of batch_size * world_size examples. All ranks together work on "
        "one of them at a time. Which ranks get nothing if the last has 2 examples and there are 4 ranks?",
        "A rank's part of a global batch: group[rank::world_size]. It is never longer than batch_size, and the parts "
        "differ by one at most.",
        "for start in range(0, len(order), batch_size * world_size): one batch for each, the empty ones too.",
    ],
    lesson="No example is counted twice: sums and counts over ranks are exact. A rank with an empty batch still takes "
    "part, with sum 0 and count 0; a mean of nothing would be nan.",
)
def rank_batches(order: list, batch_size: int, world_size: int, rank: int) -> list:
    """The batches of one rank in an epoch: nothing is repeated, nothing is lost.

    The ranks take `order` together, batch_size * world_size examples at a time: their first batches
    hold the first of them, and so on. Every rank makes the same number of batches, because each
    waits for the others. What is left for the last batches is shared out so that their sizes
    differ by one at most. Where it is less than one for each rank, some get an empty batch, an
    empty list. Who gets which of them is up to you.

    order      : the indices of the epoch, equal on all ranks; perhaps none
    batch_size : examples of one rank in one batch, at most
    returns    : the batches of `rank`, lists of indices
    """
    batches = []
    for start in range(0, len(order), batch_size * world_size):
        group = order[start : start + batch_size * world_size]
        batches.append(group[rank::world_size])
    return batches


def _groups(order, size: int) -> list[list]:
    return [order[start : start + size] for start in range(0, len(order), size)]


@rank_batches.wrong
def pads_the_end(order, batch_size, world_size, rank):
    """The order is filled up with its first examples so that it divides, as DistributedSampler does: those are trained
    on twice, and an evaluation counts them twice. The metric depends on the number of GPUs."""
    missing = -len(order) % world_size
    padded = order + (order * world_size)[:missing]
    return _groups(padded[rank::world_size], batch_size)


@rank_batches.form_of("pads_the_end")
def pads_the_last_global_batch(order, batch_size, world_size, rank):
    size = batch_size * world_size
    padded = order + (order * size)[: -len(order) % size]
    return [group[rank::world_size] for group in _groups(padded, size)]


@rank_batches.wrong
def drops_what_is_left(order, batch_size, world_size, rank):
    """What does not fill a whole global batch, or does not divide among the ranks, is dropped. Without a new order each
    epoch those are always the same examples, and an evaluation never sees them."""
    size = batch_size * world_size
    return [group[rank::world_size] for group in _groups(order, size) if len(group) == size]


@rank_batches.form_of("drops_what_is_left")
def drops_what_does_not_divide(order, batch_size, world_size, rank):
    kept = order[: len(order) // world_size * world_size]
    return _groups(kept[rank::world_size], batch_size)


@rank_batches.form_of("drops_what_is_left")
def drops_the_smaller_batches_of_a_rank(order, batch_size, world_size, rank):
    return [batch for batch in _groups(order[rank::world_size], batch_size) if len(batch) == batch_size]


@rank_batches.form_of("drops_what_is_left")
def drops_the_smaller_parts_of_global_batches(order, batch_size, world_size, rank):
    parts = [group[rank::world_size] for group in _groups(order, batch_size * world_size)]
    return [part for part in parts if len(part) == batch_size]


@rank_batches.wrong
def makes_fewer_batches_on_some_ranks(order, batch_size, world_size, rank):
    """A rank that gets nothing of the last global batch makes no batch for it: the others call backward once more and
    wait there for its gradients, for ever. Each rank needs a batch for every global batch, if need be an empty one."""
    return _groups(order[rank::world_size], batch_size)


@rank_batches.form_of("makes_fewer_batches_on_some_ranks")
def deals_out_whole_batches(order, batch_size, world_size, rank):
    return _groups(order, batch_size)[rank::world_size]


@rank_batches.wrong
def fills_the_first_ranks(order, batch_size, world_size, rank):
    """The last global batch is cut into pieces of batch_size, so the first ranks get full batches and the last ones
    nothing, where all could have had some: the step takes as long as a full one. Deal the examples out in turn."""
    first = rank * batch_size
    return [group[first : first + batch_size] for group in _groups(order, batch_size * world_size)]


@rank_batches.wrong
def cuts_the_epoch_into_blocks(order, batch_size, world_size, rank):
    """Each rank works through a block of its own, the first half of the order and the second: the examples seen after
    some batches are then no beginning of the order, and a run cannot go on from there with another number of ranks."""
    size = -(-len(order) // world_size)
    return _groups(order[rank * size :][:size], batch_size)


@rank_batches.form_of("cuts_the_epoch_into_blocks")
def cuts_the_epoch_into_blocks_and_drops_the_rest(order, batch_size, world_size, rank):
    size = len(order) // world_size
    return _groups(order[rank * size :][:size], batch_size)


@rank_batches.form_of("cuts_the_epoch_into_blocks")
def cuts_the_epoch_into_blocks_and_the_last_takes_the_rest(order, batch_size, world_size, rank):
    size = len(order) // world_size
    return _groups(order[rank * size : None if rank == world_size - 1 else (rank + 1) * size], batch_size)


@rank_batches.form_of("cuts_the_epoch_into_blocks")
def cuts_the_epoch_into_blocks_of_about_one_size(order, batch_size, world_size, rank):
    borders = [len(order) * number // world_size for number in (rank, rank + 1)]
    return _groups(order[borders[0] : borders[1]], batch_size)


@rank_batches.form_of("cuts_the_epoch_into_blocks")
def cuts_the_epoch_into_blocks_the_first_ones_larger(order, batch_size, world_size, rank):
    size, rest = divmod(len(order), world_size)
    first = rank * size + min(rank, rest)
    return _groups(order[first : first + size + (rank < rest)], batch_size)


@rank_batches.wrong
def returns_the_batches_of_all_ranks(order, batch_size, world_size, rank):
    """The batches of all ranks are returned together. Every rank calls this with its own `rank`, and takes what it gets
    for its own batches: return those of `rank` only."""
    return [
        [group[each::world_size] for each in range(world_size)] for group in _groups(order, batch_size * world_size)
    ]


@rank_batches.form_of("returns_the_batches_of_all_ranks")
def returns_the_batches_rank_by_rank(order, batch_size, world_size, rank):
    return [rank_batches.answer(order, batch_size, world_size, each) for each in range(world_size)]


@rank_batches.wrong
def takes_batch_size_for_all_ranks_together(order, batch_size, world_size, rank):
    """batch_size is divided among the ranks: each gets batches of batch_size / world_size, and the epoch has world_size
    times as many steps. Here it is the size on one rank, as in a DataLoader."""
    return [group[rank::world_size] for group in _groups(order, batch_size)]


@rank_batches.wrong
def ignores_the_rank(order, batch_size, world_size, rank):
    """Every rank gets all of the order: with 2 ranks each example is trained on twice an epoch, and the second GPU
    only repeats what the first does."""
    return _groups(order, batch_size)
