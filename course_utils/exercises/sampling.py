"""Exercises of chapter 03: here the order of an epoch; the others come in by import.

Order of the numbers: the order, the weights, the ranks, the measure of a long tail, the draws, the resumed run.
"""

from __future__ import annotations

import functools
import random

import numpy
import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import facts_differ
from course_utils.exercises.sampling_keys import keyed_coins
from course_utils.exercises.sampling_order_facts import SOUND, SOUND_GRID, SOUND_ONE, order_facts
from course_utils.exercises.sampling_ranks import rank_batches
from course_utils.exercises.sampling_recall import recall_per_class
from course_utils.exercises.sampling_resume import resume_batches
from course_utils.exercises.sampling_weights import example_weights
from course_utils.randomness import derive_seed

__all__ = ["epoch_order", "example_weights", "keyed_coins", "rank_batches", "recall_per_class", "resume_batches"]


_SUBSET = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


@exercise(
    "sampling-1",
    title="The order of an epoch",
    difficulty="easy",
    minutes=8,
    cases=[([4], 5, 0), (list(range(12)), 5, 0), (_SUBSET, 5, 3)],
    expected=[SOUND_ONE, SOUND_GRID, SOUND],
    probe=order_facts,
    difference=facts_differ,
    keep_arguments=True,
    describe=lambda indices, seed, epoch: (
        f"epoch_order of {len(indices)} indices, seed={seed}, epoch={epoch}" + ", and others" * (len(indices) > 1)
    ),
    imports="import torch\n\nfrom course_utils.randomness import derive_seed",
    hints=[
        "What must a resumed run know to make the same order again? Only that may go into the seed of the generator, "
        "and the generator must be new in each call.",
        "seed + epoch gives the same number for (5, 1) and (6, 0). derive_seed(seed, 'order', epoch) keeps them apart.",
        "generator = torch.Generator().manual_seed(...); torch.randperm(len(indices), generator=generator) gives "
        "places, and the indices at these places are the order.",
    ],
    lesson="Nothing has to be saved but (seed, epoch): the order can be made again at any time, on any rank.",
)
def epoch_order(indices: list, seed: int, epoch: int) -> list:
    """The indices in the order in which an epoch reads them: random, of (seed, epoch) alone.

    indices : indices of a dataset, all of them or a part; the list itself stays as it is
    seed    : of the run, 0, 1, 2, ...
    epoch   : 0, 1, 2, ...
    returns : a new list with each of the indices once, in a random order. Any two pairs
              (seed, epoch) have orders that have nothing to do with each other

    It is the same order in every process, whatever was drawn before, and the global generators
    are left alone.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "order", epoch))
    places = torch.randperm(len(indices), generator=generator)
    return [indices[place] for place in places.tolist()]


def _mixed(indices, *parts) -> list:
    return random.Random(derive_seed(*parts)).sample(indices, len(indices))


@epoch_order.wrong
def repeats_the_order_in_every_epoch(indices, seed, epoch):
    """Every epoch has the same order, as a DistributedSampler has whose set_epoch nobody calls: the model sees the same
    batches again and again. The epoch belongs into the seed, mixed: torch's generator keeps its low 32 bits only."""
    return _mixed(indices, seed)


@epoch_order.wrong
def forgets_the_seed(indices, seed, epoch):
    """The seed of the run has no influence: all runs read the same order in the same epoch, and repeating one with
    another seed does not show how much the order matters. Mix it in: torch's generator keeps the low 32 bits only."""
    return _mixed(indices, epoch)


@epoch_order.wrong
def adds_seed_and_epoch(indices, seed, epoch):
    """The next seed has the order of the next epoch, as with seed + epoch: that is one number for seed 5 in epoch 1 and
    for seed 6 in epoch 0. "Five seeds" are then one sequence of orders, begun at five places, and their spread says too
    little. derive_seed keeps the two apart."""
    return _mixed(indices, seed + epoch)


@epoch_order.wrong
def makes_one_number_of_seed_and_epoch(indices, seed, epoch):
    """Two pairs of seed and epoch meet in one order. XOR, a product, a factor (seed * 1000 + epoch, from epoch
    1000 on), digits glued together and a sum of two derived seeds each make one number of two pairs.
    derive_seed(seed, epoch) keeps them apart."""
    return _mixed(indices, seed ^ epoch)


for _number in (
    lambda seed, epoch: 10 * seed + epoch,
    lambda seed, epoch: (seed + 1) * (epoch + 1),
    lambda seed, epoch: derive_seed(seed) + derive_seed(epoch),
):
    epoch_order.form_of("makes_one_number_of_seed_and_epoch")(
        lambda indices, seed, epoch, number=_number: _mixed(indices, number(seed, epoch))
    )


@epoch_order.wrong
def multiplies_seed_and_epoch(indices, seed, epoch):
    """All runs begin with the same order, as with seed * epoch, which is 0 in epoch 0 whatever the seed; and a run with
    seed 0 keeps it for ever."""
    return _mixed(indices, seed * epoch)


@epoch_order.wrong
def moves_the_list_instead_of_mixing_it(indices, seed, epoch):
    """The order is hardly mixed: turning the list to another start, reversing it, or exchanging a few indices leaves
    most examples beside their old neighbours, and a file that is sorted by class stays sorted. Draw a permutation of
    all: torch.randperm."""
    start = derive_seed(seed, epoch) % len(indices)
    return indices[start:] + indices[:start]


@epoch_order.form_of("moves_the_list_instead_of_mixing_it")
def reverses_the_list_or_not(indices, seed, epoch):
    return indices[::-1] if derive_seed(seed, epoch) % 2 else list(indices)


@epoch_order.form_of("moves_the_list_instead_of_mixing_it")
def exchanges_two_indices(indices, seed, epoch):
    order, (one, other) = list(indices), (derive_seed(seed, epoch, side) % len(indices) for side in range(2))
    order[one], order[other] = order[other], order[one]
    return order


def _shuffles(key, generator, *, copy: bool, names):
    """Shuffle with a global generator, or one's own, after seeding it with `key`."""

    def shuffled(indices, seed, epoch):
        order = list(indices) if copy else indices
        generator(key(seed, epoch)).shuffle(order)
        return order

    names(shuffled)


_KEYS = (
    lambda seed, epoch: derive_seed(seed, epoch) % 2**32,
    lambda seed, epoch: seed + epoch,
    lambda seed, epoch: seed,
    lambda seed, epoch: epoch,
    lambda seed, epoch: 1000 * seed + epoch,
)


def _seeded(library, seed):
    library.seed(seed)
    return library


@epoch_order.wrong
def seeds_the_global_generator(indices, seed, epoch):
    """The global generator is seeded: dropout and augmentation draw the same numbers again after every call, and
    whoever seeded it before gets other ones. Make a generator of your own: torch.Generator().manual_seed(...),
    random.Random(...) or numpy.random.default_rng(...)."""
    torch.manual_seed(derive_seed(seed, epoch))
    return [indices[place] for place in torch.randperm(len(indices)).tolist()]


for _key in _KEYS:
    for _library in (random, numpy.random):
        for _copy in (True, False):
            _shuffles(
                _key, functools.partial(_seeded, _library), copy=_copy,
                names=epoch_order.form_of("seeds_the_global_generator"),
            )  # fmt: skip


@epoch_order.wrong
def draws_from_the_global_generator(indices, seed, epoch):
    """The order comes from a global generator as it happens to stand: whatever drew before changes it, and a resumed
    run reads some examples twice and others never. Make a generator of your own, of (seed, epoch)."""
    return [indices[place] for place in torch.randperm(len(indices)).tolist()]


@epoch_order.form_of("draws_from_the_global_generator")
def draws_from_pythons_global_generator(indices, seed, epoch):
    return random.sample(indices, len(indices))


@epoch_order.form_of("draws_from_the_global_generator")
def shuffles_the_list_with_the_global_generator(indices, seed, epoch):
    random.shuffle(indices)
    return indices


@epoch_order.wrong
def shuffles_the_list_that_was_given(indices, seed, epoch):
    """The caller's list itself is shuffled: the next epoch shuffles what this one left, so its order depends on all
    epochs before, and a run that is resumed in epoch 3 has another one. Work on a copy."""
    random.Random(derive_seed(seed, epoch)).shuffle(indices)
    return indices


for _key in _KEYS:
    _shuffles(_key, random.Random, copy=False, names=epoch_order.form_of("shuffles_the_list_that_was_given"))


@epoch_order.wrong
def asks_hash(indices, seed, epoch):
    """hash() is made for dicts, not for seeds that last: of text it is another number in every process, so ranks and a
    resumed run get other orders, and for numbers no Python version promises it. derive_seed is equal everywhere."""
    return _mixed(indices, hash((seed, epoch)))


@epoch_order.wrong
def draws_with_replacement(indices, seed, epoch):
    """Each place is drawn anew from all: about a third of the examples do not come in an epoch, and others come twice
    or more. An order is a permutation: torch.randperm."""
    return random.Random(derive_seed(seed, epoch)).choices(indices, k=len(indices))


@epoch_order.wrong
def returns_places(indices, seed, epoch):
    """randperm gives places in the list, 0 to len(indices) - 1, not the indices. For a part of a dataset they name
    other examples: the training set reads what was kept for validation. Take indices[place]."""
    return _mixed(list(range(len(indices))), seed, epoch)
