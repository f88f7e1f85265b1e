"""What holds for every sound order of an epoch, however it is drawn: the facts that decide sampling-1."""

from __future__ import annotations

from collections import Counter

import torch

from course_utils.exercises.facts import LEFT_ALONE, Said, facts_differ, use_of_generators, uses_hash


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


def order_facts(fn, result, indices: list, seed: int, epoch: int) -> dict:
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
    whole = given == list(range(len(given)))  # the grid takes thousands of calls: in one case, and if all else is sound
    return facts | _grid_facts(drawn) if whole and _sound_so_far(facts) else facts


def _sound_so_far(facts: dict) -> bool:
    return facts_differ({name: SOUND[name] for name in facts}, facts) is None


def _grid_facts(drawn) -> dict:
    """What 12 seeds and 120 epochs show together: that all their orders differ, and that each is a chance order."""
    orders: dict[tuple, list] = {(s, e): drawn(s, e) for s in _SEEDS for e in _EPOCHS}
    one_seed, one_epoch = ([tuple(o) for key, o in orders.items() if key[axis] == 3] for axis in (0, 1))
    orders |= {(0, epoch): drawn(0, epoch) for epoch in _LATE}
    pairs, listed = {key: _neighbours(order) for key, order in orders.items()}, _neighbours(_MANY)
    kept = [pairs[key] & pairs[key[0], key[1] + 1] for key in orders if key[1] < 119]
    kept_by_seed = [pairs[s, e] & pairs[s + 1, e] for s in range(11) for e in _EPOCHS]
    from_list = [pairs[s, e] & listed for s in _SEEDS for e in _EPOCHS]
    return {
        "orders of 120 epochs": _different(one_seed),
        "orders of 12 seeds": _different(one_epoch),
        "neighbours in the list": _torn_apart(from_list),
        "neighbours in one epoch, in the next one": _torn_apart(kept),
        "neighbours under one seed, under the next one": _torn_apart(kept_by_seed),
        "which index is first": _evenly(set(map(tuple, orders.values()))),
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


def _evenly(orders: set[tuple]) -> str:
    """1,449 different orders of 24: 60 each, give or take 8."""
    counts = Counter(order[0] for order in orders)
    usual = len(orders) / len(_MANY)
    often, seldom = (pick(_MANY, key=lambda index: counts[index]) for pick in (max, min))
    if max(counts[often] - usual, usual - counts[seldom]) < 6 * usual**0.5:
        return "each about as often as the others"
    words = f"{often} {counts[often]} times and {seldom} {counts[seldom]} times of {len(orders)}"
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
    """The same in six pairs of orders; what is the same now and then is left to the grid."""
    return "the same order" if all(drawn(*one) == drawn(*other) for one, other in map(pair, range(6))) else "two orders"


SOUND_ONE = {"the indices": "each once", "the global generators": LEFT_ALONE}
SOUND = SOUND_ONE | {
    "the same seed and epoch once more": "the same order",
    "the next epoch": "two orders",
    "another seed": "two orders",
    "another seed, in epoch 0": "two orders",
    "the next seed, and the next epoch of this seed": "two orders",
    "in another process": "the same order",
}
SOUND_GRID = SOUND | {
    "orders of 120 epochs": "all different",
    "orders of 12 seeds": "all different",
    "neighbours in the list": "torn apart",
    "neighbours in one epoch, in the next one": "torn apart",
    "neighbours under one seed, under the next one": "torn apart",
    "which index is first": "each about as often as the others",
    "two pairs of seed and epoch": "have two orders",
}
