"""The one exercise of the first chapter: it shows how exercises work."""

from __future__ import annotations

import math

from course_utils.exercises.declare import exercise


@exercise(
    "start_here-1",
    title="How many optimizer steps a run makes",
    difficulty="easy",
    minutes=3,
    cases=[(10, 5, 1), (10, 4, 1), (11, 4, 1), (10, 4, 3), (3, 8, 2)],
    expected=[2, 3, 3, 9, 2],
    imports="import math",
    hints=[
        "Work one case out on paper: 10 examples in batches of 4 are batches of 4, 4 and 2.",
        "A last batch that is not full is a batch, so round up: math.ceil(num_examples / batch_size) steps an epoch.",
    ],
    lesson="Each batch, also a smaller last one, is one update of the weights.",
)
def count_steps(num_examples: int, batch_size: int, num_epochs: int) -> int:
    """Number of optimizer steps of a run that makes one step for each batch.

    The last batch of an epoch may be smaller than the others; it is used as well.
    """
    return num_epochs * math.ceil(num_examples / batch_size)


@count_steps.wrong
def drops_the_last_batch(num_examples, batch_size, num_epochs):
    """`//` rounds down, so the smaller last batch of each epoch is lost: 10 examples in batches of 4 give 2 steps, and
    3 examples in batches of 8 give none."""
    return num_epochs * (num_examples // batch_size)


@count_steps.wrong
def adds_one_to_every_epoch(num_examples, batch_size, num_epochs):
    """`// ... + 1` counts one batch too many whenever the examples fill the last batch: 10 examples in batches of 5
    are 2 batches, not 3."""
    return num_epochs * (num_examples // batch_size + 1)


@count_steps.wrong
def makes_parts_of_a_step(num_examples, batch_size, num_epochs):
    """`/` gives 2.5 steps for 10 examples in batches of 4. A count is a whole number: the smaller last batch is one
    step, so round up."""
    return num_epochs * num_examples / batch_size


@count_steps.wrong
def counts_one_epoch(num_examples, batch_size, num_epochs):
    """This is the number of steps of one epoch; a schedule planned for it ends after the first epoch of the run."""
    return math.ceil(num_examples / batch_size)


@count_steps.wrong
def rounds_once_for_the_run(num_examples, batch_size, num_epochs):
    """All epochs' examples are divided together, as if a batch went on into the next epoch. Each epoch ends with its
    own smaller batch, so round up before you multiply."""
    return math.ceil(num_epochs * num_examples / batch_size)
