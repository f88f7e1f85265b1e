"""The exercise of chapter 03 about a run that goes on in mid-epoch with another batch size."""

from __future__ import annotations

import math

from course_utils.exercises.declare import exercise


def _rotated(num_examples: int):
    """An order for each epoch that is easy to read: epoch 2 of 5 examples is 2, 3, 4, 0, 1."""
    return lambda epoch: [(epoch + place) % num_examples for place in range(num_examples)]


@exercise(
    "sampling-6",
    title="Go on in mid-epoch with another batch size",
    difficulty="hard",
    minutes=15,
    cases=[
        ("order", 4, 0, 2, 2),
        ("order", 6, 1, 2, 2),
        ("order", 6, 1, 2, 3),
        ("order", 8, 2, 3, 2),
        ("order", 8, 1, 3, 4),
        ("order", 4, 2, 2, 4),
        ("order", 5, 3, 2, 2),
        ("order", 5, 4, 2, 3),
        ("order", 5, 8, 2, 4),
    ],
    expected=[
        (0, [[0, 1], [2, 3]]),
        (0, [[2, 3], [4, 5]]),
        (0, [[2, 3, 4], [5]]),
        (0, [[6, 7]]),
        (0, [[3, 4, 5, 6], [7]]),
        (1, [[1, 2, 3, 0]]),
        (1, [[1, 2], [3, 4], [0]]),
        (1, [[3, 4, 0]]),
        (2, [[1]]),
    ],
    arrange=lambda order, num_examples, *counts: (_rotated(num_examples), num_examples, *counts),
    describe=lambda order, num_examples, batches_done, old_size, new_size: (
        f"resume_batches, num_examples={num_examples}, batches_done={batches_done}, old_size={old_size}, "
        f"new_size={new_size}, where epoch 0 has the order {_rotated(num_examples)(0)}, epoch 1 "
        f"{_rotated(num_examples)(1)}, and so on"
    ),
    parts=("the epoch", "the batches"),
    imports="import math",
    hints=[
        "Two questions. In which epoch was the run, and how many examples of that epoch had it read? Both are answered "
        "with the *old* batch size; the new one has no part in them.",
        "An epoch had ceil(num_examples / old_size) batches. divmod(batches_done, that) gives the epoch and what is "
        "done of it. All batches of an epoch but its last are full, so the examples read are batches * old_size.",
        "rest = order_of(epoch)[examples read:], and then batches of the new size from it, the last perhaps smaller.",
    ],
    lesson="A position counted in examples survives another batch size; one counted in batches or steps does not.",
)
def resume_batches(order_of, num_examples: int, batches_done: int, old_size: int, new_size: int):
    """Where a run goes on that has made `batches_done` batches since the start of its first epoch.

    order_of     : function of an epoch (0, 1, 2, ...) that gives the list of its indices in order
    num_examples : their number, not always a multiple of a batch size. The last batch of an epoch
                   is then smaller, and is used; the next epoch begins with a full one
    old_size     : batch size of all batches made so far
    new_size     : batch size of those to come
    returns      : (epoch, the batches that are left of it, as lists of indices). Each example that
                   the epoch has not had yet comes once, in the epoch's order. Where an epoch has
                   just ended, it is the next one, and all of it
    """
    per_epoch = math.ceil(num_examples / old_size)
    epoch, done = divmod(batches_done, per_epoch)
    rest = order_of(epoch)[done * old_size :]
    return epoch, [rest[i : i + new_size] for i in range(0, len(rest), new_size)]


def _place(num_examples: int, batches_done: int, size: int) -> tuple[int, int]:
    """(epoch, batches done in it) with batches of `size`."""
    return divmod(batches_done, math.ceil(num_examples / size))


def _from(order: list, offset: int, size: int) -> list[list]:
    rest = order[offset:]
    return [rest[i : i + size] for i in range(0, len(rest), size)]


@resume_batches.wrong
def counts_in_batches_of_the_new_size(order_of, num_examples, batches_done, old_size, new_size):
    """The batches done are multiplied by the *new* size: with a larger one, examples are passed over that nobody read;
    with a smaller one, some come a second time. What was read, was read in batches of the old size."""
    epoch, done = _place(num_examples, batches_done, old_size)
    return epoch, _from(order_of(epoch), done * new_size, new_size)


@resume_batches.form_of("counts_in_batches_of_the_new_size")
def counts_all_in_batches_of_the_new_size(order_of, num_examples, batches_done, old_size, new_size):
    epoch, done = _place(num_examples, batches_done, new_size)
    return epoch, _from(order_of(epoch), done * new_size, new_size)


@resume_batches.wrong
def begins_the_epoch_anew(order_of, num_examples, batches_done, old_size, new_size):
    """The epoch starts from its beginning: what was read before the stop is read twice in this epoch. After many stops
    a run has seen the first examples far more often than the last ones."""
    epoch, _ = _place(num_examples, batches_done, old_size)
    return epoch, _from(order_of(epoch), 0, new_size)


@resume_batches.wrong
def goes_on_with_the_next_epoch(order_of, num_examples, batches_done, old_size, new_size):
    """The rest of the epoch is left out and the next one begins: with a stop in every epoch, the examples at its end
    are never read."""
    epoch = math.ceil(batches_done / math.ceil(num_examples / old_size))
    return epoch, _from(order_of(epoch), 0, new_size)


@resume_batches.wrong
def replays_the_order_of_the_first_epoch(order_of, num_examples, batches_done, old_size, new_size):
    """The place in the epoch is right, but the order is that of epoch 0, as in a loader that was made anew and counts
    from there: some examples of the running epoch come twice and others never. A test in epoch 0 does not see it."""
    epoch, done = _place(num_examples, batches_done, old_size)
    return epoch, _from(order_of(0), done * old_size, new_size)


@resume_batches.form_of("replays_the_order_of_the_first_epoch")
def replays_the_first_epoch(order_of, num_examples, batches_done, old_size, new_size):
    _, done = _place(num_examples, batches_done, old_size)
    return 0, _from(order_of(0), done * old_size, new_size)


@resume_batches.wrong
def takes_every_batch_for_a_full_one(order_of, num_examples, batches_done, old_size, new_size):
    """batches_done * old_size takes the smaller last batch of each epoch for a full one: 3 batches of 2 are more
    than 5 examples, so the next epoch begins one example late, and each further epoch later still. Count batches by
    epochs first."""
    epoch, offset = divmod(batches_done * old_size, num_examples)
    return epoch, _from(order_of(epoch), offset, new_size)


@resume_batches.wrong
def forgets_the_smaller_batch(order_of, num_examples, batches_done, old_size, new_size):
    """`//` counts only the full batches of an epoch, but the smaller last one was made as well: after each epoch the
    count is one batch ahead, and the epoch is taken for the next one too early. Round up."""
    epoch, done = divmod(batches_done, num_examples // old_size)
    return epoch, _from(order_of(epoch), done * old_size, new_size)


@resume_batches.wrong
def drops_the_last_examples(order_of, num_examples, batches_done, old_size, new_size):
    """What does not fill a batch of the new size is left out, but those examples belong to the epoch as well. The last
    batch may be smaller."""
    epoch, batches = resume_batches.answer(order_of, num_examples, batches_done, old_size, new_size)
    return epoch, [batch for batch in batches if len(batch) == new_size]


@resume_batches.wrong
def goes_back_to_a_border_of_the_new_batches(order_of, num_examples, batches_done, old_size, new_size):
    """The epoch is cut anew from its beginning, and the run goes on at a border of these batches: examples between this
    border and the true place come twice (or, rounded up, never). Begin to cut where the run stopped."""
    epoch, done = _place(num_examples, batches_done, old_size)
    return epoch, _from(order_of(epoch), done * old_size // new_size * new_size, new_size)


@resume_batches.form_of("goes_back_to_a_border_of_the_new_batches")
def goes_on_to_a_border_of_the_new_batches(order_of, num_examples, batches_done, old_size, new_size):
    epoch, done = _place(num_examples, batches_done, old_size)
    border = -(-done * old_size // new_size) * new_size
    return epoch, _from(order_of(epoch), border, new_size)


@resume_batches.wrong
def repeats_the_last_batch(order_of, num_examples, batches_done, old_size, new_size):
    """The last batch before the stop is made once more: batches_done counts it as done, and the state was saved after
    its step. Those examples come twice."""
    epoch, done = _place(num_examples, batches_done, old_size)
    return epoch, _from(order_of(epoch), max(0, done - 1) * old_size, new_size)


@resume_batches.wrong
def stays_in_the_epoch_that_has_ended(order_of, num_examples, batches_done, old_size, new_size):
    """Where the stop was at the end of an epoch, that epoch is given once more, with no batch left: the run does
    nothing, or ends. After its last batch the next epoch begins."""
    epoch, done = _place(num_examples, batches_done, old_size)
    if epoch and not done:
        return epoch - 1, []
    return resume_batches.answer(order_of, num_examples, batches_done, old_size, new_size)


@resume_batches.wrong
def cuts_with_the_old_size(order_of, num_examples, batches_done, old_size, new_size):
    """The epoch and the place are right, and the batches still have the old size. It says how much was read; what is to
    come is cut with new_size."""
    epoch, done = _place(num_examples, batches_done, old_size)
    return epoch, _from(order_of(epoch), done * old_size, old_size)


@resume_batches.wrong
def passes_over_a_batch(order_of, num_examples, batches_done, old_size, new_size):
    """One batch too many is taken for done, so its examples are never read in this epoch: after 2 batches of 4 the
    examples 0 to 7 were read, and the run goes on with place 8."""
    epoch, done = _place(num_examples, batches_done, old_size)
    return epoch, _from(order_of(epoch), (done + 1) * old_size, new_size)


@resume_batches.wrong
def counts_a_batch_too_many(order_of, num_examples, batches_done, old_size, new_size):
    """num_examples // old_size + 1 counts a smaller last batch also where there is none: 8 examples are 4 batches of 2,
    not 5, and each such epoch makes the count lag by one. Round up: math.ceil(num_examples / old_size)."""
    epoch, done = divmod(batches_done, num_examples // old_size + 1)
    return epoch, _from(order_of(epoch), done * old_size, new_size)
