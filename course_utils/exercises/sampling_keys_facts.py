"""What holds for every sound coin that belongs to an example, however it is made: the facts that decide sampling-5."""

from __future__ import annotations

from functools import lru_cache
from itertools import count

from course_utils.exercises.compare import as_number
from course_utils.exercises.facts import LEFT_ALONE, Said, facts_differ, use_of_generators, uses_hash

_KIND = "what the coins are"
NO_COINS = {_KIND: "bools", "coins": 0}
_NUM, _LENGTH = 400, 2200  # coins that are compared, and among how many examples they are looked for again
_STEPS = (10**4, 10_007, 2**14, 2**15, 2**16, 10**5, 100_003, 2**20, 10**6, 1_000_003, 10**9)  # popular factors
_SAME, _NEW, _MOVED = "the same coins", "new coins", "the same coins at other examples"
_FRESH = count(1000)  # seeds that were never asked for, so that nobody can have remembered their coins


def _rows(rows: list[tuple]) -> str:
    """Whether rows of coins are all new, or follow from one another: the same ones, or all turned over."""
    different = set(rows)
    up_to_turning = {tuple(coin ^ row[0] for coin in row) for row in different}
    if len(different) == 1:
        return _SAME
    if len(up_to_turning) == len(rows):
        return _NEW
    turned = len(up_to_turning) < len(different)
    return "some rows of coins are others, turned over" if turned else "some rows of coins come again"


def _moved(toss, before: tuple[int, int], after: tuple[int, int]) -> str:
    """Whether the coins of `after`, a seed and an epoch, are those of `before`, perhaps at other examples."""
    one, other = toss(range(_NUM), *before), toss(range(_NUM), *after)
    if one == other:
        return _SAME
    exchanged = any(all(other[i] == one[i ^ k] for i in range(256)) for k in range(1, 128))
    return _MOVED if exchanged or _shifted(toss, other, before) or _shifted(toss, one, after) else _NEW


def _shifted(toss, coins: list[bool], key: tuple[int, int]) -> bool:
    """Whether the first of `coins` are those of examples further on; 64 that agree are no chance."""
    wanted = bytes(coins[:64])
    return wanted in bytes(toss(range(1, _LENGTH), *key)) or any(
        wanted == bytes(toss(range(step, step + 64), *key)) for step in _STEPS
    )


def _kind_of_coins(coins: list) -> str | None:
    """What a reader's coins are, if they are not bools."""
    if any(isinstance(coin, (list, tuple)) or getattr(coin, "ndim", 0) for coin in coins):
        return "not single ones, but lists or arrays"
    plain = [as_number(coin) for coin in coins]
    if all(isinstance(coin, bool) for coin in plain):
        return None
    return "the numbers 0 and 1" if set(plain) <= {0, 1} else "numbers that are yet to be compared with 0.5"


def coin_facts(fn, result, indices: list, seed: int, epoch: int) -> dict:
    """What holds for any coins that are a function of (seed, epoch, index) alone; what is dear is asked last."""
    coins = list(result)
    if strange := _kind_of_coins(coins):
        return {_KIND: strange}
    if not indices:
        return NO_COINS | {"coins": len(coins)}

    def toss(indices, seed: int, epoch: int) -> list[bool]:
        return [bool(coin) for coin in fn(list(indices), seed, epoch)]

    fresh = next(_FRESH)
    generators = use_of_generators(lambda: fn(list(indices), fresh, epoch))
    facts = {_KIND: "bools", "coins": len(coins), "the global generators": generators}
    for more in (_batch_facts, _key_facts):
        if facts_differ({name: sound_coins(len(indices))[name] for name in facts}, facts):
            break
        facts |= more(fn, toss, seed, epoch)
    return facts


def _batch_facts(fn, toss, seed: int, epoch: int) -> dict:
    many = toss(range(_NUM), seed, epoch)
    alone = [toss([index], seed, epoch)[0] for index in range(40)]
    return {
        f"heads of {_NUM}": _heads(many, toss, seed),
        "neighbours that agree": _half(_agreeing(many[1:], many[:-1]), "nearly all or none"),
        "the same examples in other batches": _SAME if alone == many[:40] else "other coins",
        "in another process": "hash() may differ" if uses_hash(getattr(fn, "__code__", None)) else _SAME,
    }


def _key_facts(fn, toss, seed: int, epoch: int) -> dict:
    toss = lru_cache(maxsize=None)(toss)  # what the same key gives once more is known from the batches
    rows = {(s, e): tuple(toss(range(40), s, e)) for s in range(12) for e in range(30)}
    glued = toss(range(110, 200), seed, 1) == toss(range(10, 100), seed, 11)
    return {
        "30 epochs": _rows([row for (s, _), row in rows.items() if s == 3]),
        "12 seeds": _rows([row for (_, e), row in rows.items() if e == 3]),
        "12 seeds, in epoch 0": _rows([row for (_, e), row in rows.items() if e == 0]),
        "12 seeds in 30 epochs": _rows(list(rows.values())),
        "the next epoch": _moved(toss, (seed, epoch), (seed, epoch + 1)),
        "the next seed": _moved(toss, (seed, epoch), (seed + 1, epoch)),
        "example 110 of epoch 1, and 10 of epoch 11": "one coin" if glued else "two coins",
    }


def _half(share: float, otherwise: str) -> str:
    return "about half" if 0.38 < share < 0.62 else otherwise


def _heads(many: list[bool], toss, seed: int) -> str:
    """About half in each of 8 epochs, and not the same number in all."""
    numbers = [sum(many)] + [sum(toss(range(_NUM), seed, epoch)) for epoch in range(8)]
    if numbers == [_NUM // 2] * 9:
        return "exactly half, always"
    off = [number for number in numbers if not 0.38 < number / _NUM < 0.62]
    return Said("not about half", f"{off[0]}") if off else "about half"


def _agreeing(one: list[bool], other: list[bool]) -> float:
    return sum(a == b for a, b in zip(one, other, strict=True)) / len(one)


def sound_coins(num_coins: int) -> dict:
    return {
        _KIND: "bools",
        "coins": num_coins,
        "the global generators": LEFT_ALONE,
        f"heads of {_NUM}": "about half",
        "neighbours that agree": "about half",
        "the same examples in other batches": _SAME,
        "in another process": _SAME,
        "30 epochs": _NEW,
        "12 seeds": _NEW,
        "12 seeds, in epoch 0": _NEW,
        "12 seeds in 30 epochs": _NEW,
        "the next epoch": _NEW,
        "the next seed": _NEW,
        "example 110 of epoch 1, and 10 of epoch 11": "two coins",
    }
