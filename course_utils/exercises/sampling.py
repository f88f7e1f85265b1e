"""Exercises of chapter 03: here the order of an epoch; the others come in by import.

Order of the numbers: the order, the weights, the ranks, the measure of a long tail, the draws, the resumed run.
"""

from __future__ import annotations

import functools
import random
from collections import Counter

import numpy
import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import LEFT_ALONE, Said, facts_differ, use_of_generators, uses_hash
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


_SEEDS, _EPOCHS = range(12), range(120)
_LATE = (200, 250, 256, 500, 512, 1000, 1009, 1024, 10_000)  # factors that people give to the seed
_MANY = list(range(100, 124))  # 24 indices have so many orders that 1,500 of them differ


def _order_facts(fn, result, indices: list, seed: int, epoch: int) -> dict:
    """What holds for any order that is a function of (seed, epoch) and draws from a generator of its own."""
    order, given = _plain(result), sorted(indices)
    generators = use_of_generators(lambda: fn(list(given), seed + 7, epoch + 3))
    again = _plain(fn(indices, seed, epoch))
    facts = {"the indices": _content(order, given), "the global generators": generators}
    if len(order) < 2:
        return facts

    def drawn(seed: int, epoch: int) -> list:
        return _plain(fn(list(_MANY), seed, epoch))

    facts |= {
        "the same seed and epoch once more": "the same order" if again == order else "another order",
        "the next epoch": _compared(drawn, lambda k: ((seed, epoch + k), (seed, epoch + k + 1))),
        "another seed": _compared(drawn, lambda k: ((seed + k, epoch), (seed + k + 1, epoch))),
        "another seed, in epoch 0": _compared(drawn, lambda k: ((seed + k, 0), (seed + k + 1, 0))),
        "the next seed, and the next epoch of this seed": _compared(
            drawn, lambda k: ((seed + 1, epoch + k), (seed, epoch + k + 1))
        ),
        "in another process": "hash() may differ" if uses_hash(getattr(fn, "__code__", None)) else "the same order",
    }
    return facts | _grid_facts(drawn) if _sound_so_far(facts) else facts


def _sound_so_far(facts: dict) -> bool:
    return facts_differ({name: _SOUND[name] for name in facts}, facts) is None


def _grid_facts(drawn) -> dict:
    """What 12 seeds and 120 epochs show together: that all their orders differ, and that each is a chance order."""
    orders: dict[tuple, list] = {(s, e): drawn(s, e) for s in _SEEDS for e in _EPOCHS}
    one_seed, one_epoch = ([tuple(o) for key, o in orders.items() if key[axis] == 3] for axis in (0, 1))
    orders |= {(0, epoch): drawn(0, epoch) for epoch in _LATE}
    kept = [_neighbours(orders[key]) & _neighbours(orders[key[0], key[1] + 1]) for key in orders if key[1] < 119]
    kept_by_seed = [_neighbours(orders[s, e]) & _neighbours(orders[s + 1, e]) for s in range(11) for e in _EPOCHS]
    from_list = [_neighbours(orders[s, e]) & _neighbours(_MANY) for s in _SEEDS for e in _EPOCHS]
    return {
        "orders of 120 epochs": _different(one_seed),
        "orders of 12 seeds": _different(one_epoch),
        "neighbours in the list": _torn_apart(from_list),
        "neighbours in one epoch, in the next one": _torn_apart(kept),
        "neighbours under one seed, under the next one": _torn_apart(kept_by_seed),
        "which index is first": _evenly([order[0] for order in orders.values()]),
        "two pairs of seed and epoch": _meeting(orders),
    }


def _neighbours(order: list) -> set[frozenset]:
    """Pairs that stand side by side; the first and the last do as well, so that turning the list parts none."""
    return {frozenset(pair) for pair in zip(order, order[1:] + order[:1], strict=True)}


def _torn_apart(kept: list[set]) -> str:
    """By chance 2 of 24 pairs stay together."""
    mean = sum(map(len, kept)) / len(kept)
    return "torn apart" if mean < 4 else Said("together", f"{mean:.0f} of {len(_MANY)} stay together")


def _different(orders: list[tuple]) -> str:
    number = len(set(orders))
    return "all different" if number == len(orders) else Said("some the same", f"{number} different ones")


def _evenly(firsts: list[int]) -> str:
    """1,449 orders of 24: 60 each, give or take 8."""
    counts = Counter(firsts)
    often, seldom = (pick(_MANY, key=lambda index: counts[index]) for pick in (max, min))
    if counts[seldom] > 20 and counts[often] < 110:
        return "each about as often as the others"
    words = f"{often} {counts[often]} times and {seldom} {counts[seldom]} times of {len(firsts)}"
    return Said("some more often", words)


def _meeting(orders: dict[tuple, list]) -> str:
    known: dict[tuple, tuple] = {}
    for (seed, epoch), order in orders.items():
        other = known.setdefault(tuple(order), (seed, epoch))
        if other != (seed, epoch):
            words = f"seed {other[0]} in epoch {other[1]} and seed {seed} in epoch {epoch} have one order"
            return Said("meet in one order", words)
    return "have two orders"


def _compared(drawn, pair) -> str:
    """Six pairs of orders; who has few orders has the same one now and then."""
    same = sum(drawn(*one) == drawn(*other) for one, other in map(pair, range(6)))
    return {0: "two orders", 6: "the same order"}.get(same, "sometimes the same order")


_SOUND_ONE = {"the indices": "each once", "the global generators": LEFT_ALONE}
_SOUND = _SOUND_ONE | {
    "the same seed and epoch once more": "the same order",
    "the next epoch": "two orders",
    "another seed": "two orders",
    "another seed, in epoch 0": "two orders",
    "the next seed, and the next epoch of this seed": "two orders",
    "in another process": "the same order",
}
_SOUND_GRID = _SOUND | {
    "orders of 120 epochs": "all different",
    "orders of 12 seeds": "all different",
    "neighbours in the list": "torn apart",
    "neighbours in one epoch, in the next one": "torn apart",
    "neighbours under one seed, under the next one": "torn apart",
    "which index is first": "each about as often as the others",
    "two pairs of seed and epoch": "have two orders",
}
_SUBSET = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26]


@exercise(
    "sampling-1",
    title="The order of an epoch",
    difficulty="easy",
    minutes=8,
    cases=[([4], 5, 0), (list(range(12)), 5, 0), (_SUBSET, 5, 3)],
    expected=[_SOUND_ONE, _SOUND_GRID, _SOUND_GRID],
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
