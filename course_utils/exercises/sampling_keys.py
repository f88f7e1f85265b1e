"""The exercise of chapter 03 about draws that belong to an example and not to a stream of numbers."""

from __future__ import annotations

import random

import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import facts_differ
from course_utils.exercises.sampling_keys_facts import NO_COINS, coin_facts, sound_coins
from course_utils.randomness import derive_seed


@exercise(
    "sampling-5",
    title="A coin that belongs to the example",
    difficulty="medium",
    minutes=10,
    cases=[([17, 3, 17], 5, 2), ([], 5, 2)],
    expected=[sound_coins(3), NO_COINS],
    probe=coin_facts,
    difference=facts_differ,
    keep_arguments=True,
    describe=lambda indices, seed, epoch: (
        f"keyed_coins(indices={indices}, seed={seed}, epoch={epoch})" + ", and in other batches" * bool(indices)
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
    """One coin for each example of a batch: True where it is to be flipped, with one chance in two.

    indices : the dataset indices of the batch, of any size; perhaps none
    seed    : of the run, 0, 1, 2, ...
    epoch   : 0, 1, 2, ...; an example gets a new coin in each, as likely heads as tails
    returns : a list of bools. Each is a function of (seed, epoch, index) alone: whatever else is in
              the batch, what was drawn before and which process draws has no influence

    No coin follows from another one, of another example, epoch or seed. The global generators are
    left alone.
    """
    return [derive_seed(seed, "flip", epoch, index) % 2 == 1 for index in indices]


def _coin(*parts) -> bool:
    return derive_seed(*parts) % 2 == 1


@keyed_coins.wrong
def tosses_the_same_in_every_epoch(indices, seed, epoch):
    """The epoch has no influence: a photo that is flipped once is flipped in every epoch, and the model never sees it
    the other way round. It is missing, or lost on the way: torch's generator keeps the low 32 bits of a seed only, so
    epoch * 2**32 is nothing to it."""
    return [_coin(seed, index) for index in indices]


@keyed_coins.form_of("tosses_the_same_in_every_epoch")
def tosses_by_the_index_alone(indices, seed, epoch):
    return [_coin(index) for index in indices]


@keyed_coins.wrong
def tosses_the_same_for_every_seed(indices, seed, epoch):
    """The seed has no influence: runs with different seeds see the same flips, and their spread is smaller than it
    should be. It is missing, or lost on the way: torch's generator keeps the low 32 bits of a seed only."""
    return [_coin(epoch, index) for index in indices]


@keyed_coins.wrong
def makes_one_number_of_the_parts(indices, seed, epoch):
    """Two different keys have one coin: the coins of another epoch or seed come again, at the same examples or moved
    along. A sum is one number for example 18 of epoch 2 and example 17 of epoch 3; factors in it (epoch * 1000 + index,
    from 1,000 examples on), XOR, and digits glued together ("1" + "10" and "11" + "0") only meet elsewhere. derive_seed
    keeps the parts apart."""
    return [_coin(seed + epoch + index) for index in indices]


_MEETING = (
    lambda seed, epoch, index: (1000 * seed + 100 * epoch + index,),
    lambda seed, epoch, index: (100 * seed + 10 * epoch + index,),
    lambda seed, epoch, index: (10_000 * seed + 1000 * epoch + index,),
    lambda seed, epoch, index: (1_000_003 * seed + 1009 * epoch + index,),
    lambda seed, epoch, index: (seed ^ epoch ^ index,),
    lambda seed, epoch, index: (f"{seed}{epoch}{index}",),
    lambda seed, epoch, index: (seed, epoch + index),
    lambda seed, epoch, index: (seed, 1000 * epoch + index),
    lambda seed, epoch, index: (seed + epoch, index),
    lambda seed, epoch, index: (seed ^ epoch, index),
    lambda seed, epoch, index: (f"{seed}{epoch}", index),
    lambda seed, epoch, index: (seed, f"{epoch}{index}"),
    lambda seed, epoch, index: (epoch, seed + index),
)
for _key in _MEETING:
    keyed_coins.form_of("makes_one_number_of_the_parts")(
        lambda indices, seed, epoch, key=_key: [_coin(*key(seed, epoch, index)) for index in indices]
    )


@keyed_coins.wrong
def multiplies_the_parts(indices, seed, epoch):
    """A product is 0 as soon as one part is: in epoch 0 all examples have the same coin, whatever the seed, and example
    0 has it in every epoch. derive_seed keeps the parts apart."""
    return [_coin(seed * epoch * index) for index in indices]


@keyed_coins.form_of("multiplies_the_parts")
def multiplies_seed_and_epoch(indices, seed, epoch):
    return [_coin(seed * epoch, index) for index in indices]


@keyed_coins.wrong
def turns_the_coins_over(indices, seed, epoch):
    """The coins of one epoch follow from those of another: all are as they were, or all are turned over. So it is where
    epoch or seed only adds to the coin, with (coin + epoch) % 2, or with an XOR or a sum of several derived numbers.
    All three belong into one derive_seed."""
    return [_coin(seed, index) ^ (epoch % 2 == 1) for index in indices]


_TURNING = (
    lambda seed, epoch, index: (derive_seed(seed, index) ^ derive_seed(seed, epoch)) & 1,
    lambda seed, epoch, index: (derive_seed(index) ^ derive_seed(seed, epoch)) & 1,
    lambda seed, epoch, index: (derive_seed(index) ^ derive_seed(seed) ^ derive_seed(epoch)) & 1,
    lambda seed, epoch, index: (derive_seed(index) + derive_seed(seed) + derive_seed(epoch)) & 1,
    lambda seed, epoch, index: (derive_seed(epoch, index) ^ derive_seed(seed)) & 1,
    lambda seed, epoch, index: (derive_seed(index) + seed + epoch) & 1,
)
for _rule in _TURNING:
    keyed_coins.form_of("turns_the_coins_over")(
        lambda indices, seed, epoch, rule=_rule: [rule(seed, epoch, index) == 1 for index in indices]
    )


@keyed_coins.wrong
def alternates(indices, seed, epoch):
    """The parity of a sum is no chance: of two neighbours always one is flipped, and in the next epoch the other one.
    Half of them are heads, but each coin follows from the one before."""
    return [(seed + epoch + index) % 2 == 1 for index in indices]


@keyed_coins.wrong
def ties_the_coin_to_the_place(indices, seed, epoch):
    """A coin belongs to a place in the batch here, not to an example: one generator for the whole batch does this, and
    so does a place in the key, where the index should be. With another batch size, another number of ranks or after a
    resumption, example 17 stands elsewhere and gets another coin."""
    generator = random.Random(derive_seed(seed, epoch))
    return [generator.random() < 0.5 for _ in indices]


@keyed_coins.wrong
def flips_exactly_half(indices, seed, epoch):
    """Exactly half of the batch is flipped: who the others in the batch are decides about each example, and in a batch
    of one there is no half. Toss a coin for each example by itself; half of them are heads on average."""
    chosen = random.Random(derive_seed(seed, epoch)).sample(range(len(indices)), len(indices) // 2)
    return [place in chosen for place in range(len(indices))]


@keyed_coins.wrong
def gives_numbers_for_bools(indices, seed, epoch):
    """These are the numbers 0 and 1, not False and True: images[coins] picks images 0 and 1 with the first and those to
    be flipped with the second. A comparison gives a bool: derive_seed(...) % 2 == 1."""
    return [derive_seed(seed, epoch, index) % 2 for index in indices]


@keyed_coins.wrong
def leaves_the_comparison_out(indices, seed, epoch):
    """These are draws, numbers between 0 and 1 or whole ones, and each still has to become a coin: compare it, as with
    `draw < 0.5`. Every number but 0 counts as True."""
    return [random.Random(derive_seed(seed, epoch, index)).random() for index in indices]


@keyed_coins.wrong
def draws_from_the_global_generator(indices, seed, epoch):
    """The coins come from a global generator: they depend on whatever drew before, such as dropout or another
    transform, and no epoch can be repeated in another run, even where this one remembers what it drew."""
    return [random.random() < 0.5 for _ in indices]


@keyed_coins.form_of("draws_from_the_global_generator")
def draws_from_torchs_global_generator(indices, seed, epoch):
    return [torch.rand(()).item() < 0.5 for _ in indices]


@keyed_coins.wrong
def seeds_the_global_generator(indices, seed, epoch):
    """The global generator is seeded: whatever draws next, dropout or another transform, gets the numbers of the last
    key, and in torch each seeding costs many times the coin. Make a generator of your own, or use derive_seed alone."""
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


_REMEMBERED: dict[tuple, bool] = {}


@keyed_coins.form_of("draws_from_the_global_generator")
def draws_from_the_global_generator_and_remembers(indices, seed, epoch):
    return [_REMEMBERED.setdefault((seed, epoch, index), random.random() < 0.5) for index in indices]


@keyed_coins.form_of("draws_from_the_global_generator")
def draws_once_for_all_and_remembers(indices, seed, epoch):
    for key in [(seed, epoch, index) for index in indices]:
        if key not in _REMEMBERED:
            _REMEMBERED[key] = random.random() < 0.5
    return [_REMEMBERED[seed, epoch, index] for index in indices]


@keyed_coins.form_of("seeds_the_global_generator")
def seeds_the_global_generator_along_the_batch(indices, seed, epoch):
    random.seed(derive_seed(seed, epoch))
    return [random.random() < 0.5 for _ in indices]


@keyed_coins.form_of("seeds_the_global_generator")
def seeds_torchs_global_generator_along_the_batch(indices, seed, epoch):
    torch.default_generator.manual_seed(derive_seed(seed, epoch))
    return (torch.rand(len(indices)) < 0.5).tolist()
