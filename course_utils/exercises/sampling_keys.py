"""The exercise of chapter 03 about draws that belong to an example and not to a stream of numbers."""

from __future__ import annotations

import random
from types import CodeType

import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import LEFT_ALONE, facts_differ, moved_generators
from course_utils.randomness import derive_seed

_NUM, _FARTHEST = 400, 300


def _uses_hash(code: CodeType | None) -> bool:
    """True where a function, or one inside it, calls hash()."""
    if code is None:
        return False
    return "hash" in code.co_names or any(_uses_hash(c) for c in code.co_consts if isinstance(c, CodeType))


def _moved(before: list[bool], after: list[bool]) -> str:
    """Whether `after` is `before` with the examples moved along, or exchanged as XOR does; 100 that agree are no
    chance."""
    if after == before:
        return "the same coins"
    moved = any(after[: _NUM - places] == before[places:] for places in range(1, _FARTHEST))
    exchanged = any(all(after[i] == before[i ^ k] for i in range(256)) for k in range(1, 128))
    return "the same coins at other examples" if moved or exchanged else "new coins"


def _coin_facts(fn, result, indices: list, seed: int, epoch: int) -> dict:
    """What holds for any coins that are a function of (seed, epoch, index) alone."""
    coins, generators = list(result), moved_generators()
    if any(coin not in (False, True) for coin in coins):
        return {"coins": "numbers, which are to be compared with 0.5"}
    if not indices:
        return {"coins": len(coins)}

    def toss(indices, seed: int, epoch: int) -> list[bool]:
        return [bool(coin) for coin in fn(list(indices), seed, epoch)]

    many = toss(range(_NUM), seed, epoch)
    next_epoch, next_seed = toss(range(_NUM), seed, epoch + 1), toss(range(_NUM), seed + 1, epoch)
    first, second = toss(range(_NUM), seed, 0), toss(range(_NUM), seed + 1, 0)
    glued = toss(range(110, 200), seed, 1) == toss(range(10, 100), seed, 11)
    alone = [toss([index], seed, epoch)[0] for index in range(40)]
    return {
        "coins": len(coins),
        "the global generators": generators,
        f"heads of {_NUM}": "about half" if 0.38 < sum(many) / _NUM < 0.62 else sum(many),
        "neighbours that agree": "about half" if 0.38 < _agreeing(many[1:], many) < 0.62 else "nearly all or none",
        "the same examples in other batches": "the same coins" if alone == many[:40] else "other coins",
        "the next epoch": _moved(many, next_epoch),
        "the next seed": _moved(many, next_seed),
        "the next seed, and the next epoch of this seed": _moved(next_epoch, next_seed),
        "example 110 of epoch 1, and 10 of epoch 11": "one coin" if glued else "two coins",
        "epoch 0": "about half heads" if 0.38 < sum(first) / _NUM < 0.62 else f"{sum(first)} heads of {_NUM}",
        "the next seed, in epoch 0": _moved(first, second),
        "in another process": "hash() may differ" if _uses_hash(getattr(fn, "__code__", None)) else "the same coins",
    }


def _agreeing(one: list[bool], other: list[bool]) -> float:
    return sum(a == b for a, b in zip(one, other, strict=False)) / len(one)


def _sound(num_coins: int) -> dict:
    return {
        "coins": num_coins,
        "the global generators": LEFT_ALONE,
        f"heads of {_NUM}": "about half",
        "neighbours that agree": "about half",
        "the same examples in other batches": "the same coins",
        "the next epoch": "new coins",
        "the next seed": "new coins",
        "the next seed, and the next epoch of this seed": "new coins",
        "example 110 of epoch 1, and 10 of epoch 11": "two coins",
        "epoch 0": "about half heads",
        "the next seed, in epoch 0": "new coins",
        "in another process": "the same coins",
    }


@exercise(
    "sampling-5",
    title="A coin that belongs to the example",
    difficulty="medium",
    minutes=10,
    cases=[([17, 3, 17], 5, 2), ([], 5, 2)],
    expected=[_sound(3), {"coins": 0}],
    probe=_coin_facts,
    difference=facts_differ,
    keep_arguments=True,
    describe=lambda indices, seed, epoch: (
        f"keyed_coins(indices={indices}, seed={seed}, epoch={epoch}), and the same for {_NUM} examples"
    ),
    imports="from course_utils.randomness import derive_seed",
    hints=[
        "Example 17 must get the same coin in a batch of 3 and in a batch of 300, first or last in it. So what may its "
        "coin depend on, and what not?",
        "Three numbers, and each must count for itself: in a sum, example 18 of this epoch and example 17 of the next "
        "have the same key. derive_seed(seed, 'flip', epoch, index) keeps them apart.",
        "The result of derive_seed is mixed well: its last bit, derive_seed(...) % 2, is a coin. random.Random with it "
        "as a seed does as well.",
    ],
    lesson="Batch size, ranks and workers may change: example 17 of epoch 2 is flipped, or not, as before.",
)
def keyed_coins(indices: list, seed: int, epoch: int) -> list:
    """One coin for each example of a batch: True where it is to be flipped, for half of them.

    indices : the dataset indices of the batch
    seed    : of the run
    epoch   : 0, 1, 2, ...; an example gets another coin in each, as likely heads as tails
    returns : a list of bools. Each is a function of (seed, epoch, index) alone: whatever else is in
              the batch, what was drawn before and which process draws has no influence

    Examples, epochs and seeds have nothing to do with each other. The global generators are left
    alone.
    """
    return [derive_seed(seed, "flip", epoch, index) % 2 == 1 for index in indices]


def _coin(*parts) -> bool:
    return derive_seed(*parts) % 2 == 1


@keyed_coins.wrong
def tosses_the_same_in_every_epoch(indices, seed, epoch):
    """The epoch has no influence: a photo that is flipped once is flipped in every epoch, and the model never sees it
    the other way round. Nothing is augmented, half of the data is mirrored."""
    return [_coin(seed, index) for index in indices]


@keyed_coins.form_of("tosses_the_same_in_every_epoch")
def tosses_by_the_index_alone(indices, seed, epoch):
    return [_coin(index) for index in indices]


@keyed_coins.wrong
def tosses_the_same_for_every_seed(indices, seed, epoch):
    """The seed has no influence: runs with different seeds see the same flips, and their spread is smaller than it
    should be."""
    return [_coin(epoch, index) for index in indices]


@keyed_coins.wrong
def makes_one_number_of_the_parts(indices, seed, epoch):
    """A sum is the same for example 18 of epoch 2 and example 17 of epoch 3: the next epoch has the coins of this one,
    moved along. Factors in the sum, XOR, or digits glued together ("1" + "10" and "11" + "0") only meet elsewhere.
    derive_seed keeps the parts apart."""
    return [_coin(seed + epoch + index) for index in indices]


@keyed_coins.form_of("makes_one_number_of_the_parts")
def adds_multiples_of_the_parts(indices, seed, epoch):
    return [_coin(1000 * seed + 100 * epoch + index) for index in indices]


@keyed_coins.form_of("makes_one_number_of_the_parts")
def adds_small_multiples_of_the_parts(indices, seed, epoch):
    return [_coin(100 * seed + 10 * epoch + index) for index in indices]


@keyed_coins.form_of("makes_one_number_of_the_parts")
def combines_the_parts_with_xor(indices, seed, epoch):
    return [_coin(seed ^ epoch ^ index) for index in indices]


@keyed_coins.form_of("makes_one_number_of_the_parts")
def glues_the_digits_together(indices, seed, epoch):
    return [_coin(f"{seed}{epoch}{index}") for index in indices]


@keyed_coins.wrong
def multiplies_the_parts(indices, seed, epoch):
    """A product is 0 as soon as one part is: in epoch 0 all examples have the same coin, whatever the seed, and example
    0 has it in every epoch. derive_seed keeps the parts apart."""
    return [_coin(seed * epoch * index) for index in indices]


@keyed_coins.form_of("multiplies_the_parts")
def multiplies_seed_and_epoch(indices, seed, epoch):
    return [_coin(seed * epoch, index) for index in indices]


@keyed_coins.form_of("makes_one_number_of_the_parts")
def adds_seed_and_epoch(indices, seed, epoch):
    return [_coin(seed + epoch, index) for index in indices]


@keyed_coins.wrong
def alternates(indices, seed, epoch):
    """The parity of a sum is no chance: of two neighbours always one is flipped, and in the next epoch the other one.
    Half of them are heads, but each coin follows from the one before."""
    return [(seed + epoch + index) % 2 == 1 for index in indices]


@keyed_coins.wrong
def draws_along_the_batch(indices, seed, epoch):
    """One generator for the whole batch: a coin belongs to a place in it, not to an example. With another batch size,
    another number of ranks or after a resumption, example 17 stands elsewhere and gets another coin."""
    generator = random.Random(derive_seed(seed, epoch))
    return [generator.random() < 0.5 for _ in indices]


@keyed_coins.wrong
def draws_from_the_global_generator(indices, seed, epoch):
    """The coins come from a global generator: they depend on whatever drew before, such as dropout or another
    transform, and no epoch can be repeated."""
    return [random.random() < 0.5 for _ in indices]


@keyed_coins.form_of("draws_from_the_global_generator")
def draws_from_torchs_global_generator(indices, seed, epoch):
    return [torch.rand(()).item() < 0.5 for _ in indices]


@keyed_coins.wrong
def seeds_the_global_generator(indices, seed, epoch):
    """The coins are right, but the global generator is seeded for each example: whatever draws next, dropout or another
    transform, gets the numbers of the last example's key, and in torch each seeding costs many times the coin."""
    return [random.seed(derive_seed(seed, epoch, index)) or random.random() < 0.5 for index in indices]


@keyed_coins.form_of("seeds_the_global_generator")
def seeds_torchs_global_generator(indices, seed, epoch):
    generator = torch.default_generator  # torch.manual_seed does this, and visits every device's generator as well
    return [generator.manual_seed(derive_seed(seed, epoch, index)) and torch.rand(()).item() < 0.5 for index in indices]


@keyed_coins.wrong
def asks_hash(indices, seed, epoch):
    """hash() is made for dicts, not for keys that last: of text it is another number in every process, so workers and a
    resumed run get other coins, and for numbers no Python version promises it. derive_seed is equal everywhere."""
    return [hash(f"{seed} {epoch} {index}") % 2 == 1 for index in indices]


@keyed_coins.form_of("asks_hash")
def asks_hash_of_a_tuple(indices, seed, epoch):
    return [hash((seed, epoch, index)) % 2 == 1 for index in indices]
