"""Exercises of chapter 03: here the order of an epoch; the others come in by import.

Order of the numbers: the order, the weights, the ranks, the measure of a long tail, the draws, the resumed run.
"""

from __future__ import annotations

import random

import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import LEFT_ALONE, facts_differ, moved_generators
from course_utils.exercises.sampling_keys import keyed_coins
from course_utils.exercises.sampling_ranks import rank_batches
from course_utils.exercises.sampling_recall import recall_per_class
from course_utils.exercises.sampling_resume import resume_batches
from course_utils.exercises.sampling_weights import example_weights
from course_utils.randomness import derive_seed

__all__ = ["epoch_order", "example_weights", "keyed_coins", "rank_batches", "recall_per_class", "resume_batches"]


def _plain(order) -> list:
    return order.tolist() if isinstance(order, torch.Tensor) else list(order)


def _content(order: list, indices: list) -> str:
    if sorted(order) == sorted(indices):
        return "each once"
    if sorted(order) == list(range(len(indices))):
        return "positions 0, 1, 2, ..., not the indices"
    return "some never, others more than once" if set(order) <= set(indices) else "not the indices"


def _order_facts(fn, result, indices: list, seed: int, epoch: int) -> dict:
    """What holds for any order that is a function of (seed, epoch) and draws from a generator of its own."""
    order, given = _plain(result), sorted(indices)
    generators = moved_generators()
    again = _plain(fn(indices, seed, epoch))
    facts = {"the indices": _content(order, given), "the global generators": generators}
    if len(order) < 2:
        return facts

    def drawn(seed: int, epoch: int) -> list:
        return _plain(fn(list(given), seed, epoch))

    return facts | {
        "the same seed and epoch once more": "the same order" if again == order else "another order",
        "the next epoch": _compared(drawn(seed, epoch), drawn(seed, epoch + 1)),
        "another seed": _compared(drawn(seed, epoch), drawn(seed + 1, epoch)),
        "another seed, in epoch 0": _compared(drawn(seed, 0), drawn(seed + 1, 0)),
        "the next seed, and the next epoch of this seed": _compared(drawn(seed + 1, epoch), drawn(seed, epoch + 1)),
    }


def _compared(one: list, other: list) -> str:
    return "the same order" if one == other else "two orders"


_SOUND_ONE = {"the indices": "each once", "the global generators": LEFT_ALONE}
_SOUND = _SOUND_ONE | {
    "the same seed and epoch once more": "the same order",
    "the next epoch": "two orders",
    "another seed": "two orders",
    "another seed, in epoch 0": "two orders",
    "the next seed, and the next epoch of this seed": "two orders",
}
_SUBSET = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


@exercise(
    "sampling-1",
    title="The order of an epoch",
    difficulty="easy",
    minutes=8,
    cases=[([4], 5, 0), (list(range(12)), 5, 0), (_SUBSET, 5, 3)],
    expected=[_SOUND_ONE, _SOUND, _SOUND],
    probe=_order_facts,
    difference=facts_differ,
    keep_arguments=True,
    describe=lambda indices, seed, epoch: f"epoch_order of {len(indices)} indices, seed={seed}, epoch={epoch}",
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
    """The indices in the order in which an epoch reads them: a function of (seed, epoch).

    indices : indices of a dataset, all of them or a part; the list itself stays as it is
    seed    : of the run; two runs of different seeds have nothing in common
    epoch   : 0, 1, 2, ...; each has an order of its own
    returns : a new list with each of the indices once

    Whatever was drawn before has no influence, and the global generators are left alone.
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
    """seed + epoch is the same number for seed 5 in epoch 1 and seed 6 in epoch 0: "five seeds" are then one sequence
    of orders, begun at five places, and their spread says too little. derive_seed keeps the two apart."""
    return _mixed(indices, seed + epoch)


@epoch_order.wrong
def multiplies_seed_and_epoch(indices, seed, epoch):
    """seed * epoch is 0 in epoch 0, whatever the seed: all runs begin with the same order, and a run with seed 0 keeps
    it for ever."""
    return _mixed(indices, seed * epoch)


@epoch_order.wrong
def seeds_the_global_generator(indices, seed, epoch):
    """The order is a function of (seed, epoch), but it seeds the global generator: dropout and augmentation draw the
    same numbers again after every call, and whoever seeded it before gets other ones. Make a torch.Generator."""
    torch.manual_seed(derive_seed(seed, epoch))
    return [indices[place] for place in torch.randperm(len(indices)).tolist()]


@epoch_order.form_of("seeds_the_global_generator")
def seeds_pythons_global_generator(indices, seed, epoch):
    random.seed(derive_seed(seed, epoch))
    return random.sample(indices, len(indices))


@epoch_order.form_of("seeds_the_global_generator")
def seeds_the_global_generator_with_the_sum(indices, seed, epoch):
    torch.manual_seed(seed + epoch)
    return [indices[place] for place in torch.randperm(len(indices)).tolist()]


@epoch_order.form_of("seeds_the_global_generator")
def seeds_pythons_global_generator_with_the_sum(indices, seed, epoch):
    random.seed(seed + epoch)
    return random.sample(indices, len(indices))


@epoch_order.wrong
def draws_from_the_global_generator(indices, seed, epoch):
    """The order comes from a global generator as it happens to stand: whatever drew before changes it, the second call
    gives another one, and a resumed run reads some examples twice and others never."""
    return [indices[place] for place in torch.randperm(len(indices)).tolist()]


@epoch_order.form_of("draws_from_the_global_generator")
def draws_from_pythons_global_generator(indices, seed, epoch):
    return random.sample(indices, len(indices))


@epoch_order.wrong
def shuffles_the_callers_list(indices, seed, epoch):
    """The caller's list itself is shuffled: the next epoch shuffles what this one left, so its order depends on all
    epochs before, and a run that is resumed in epoch 3 has another one. Work on a copy."""
    random.Random(derive_seed(seed, epoch)).shuffle(indices)
    return indices


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
