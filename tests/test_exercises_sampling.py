"""What readers of chapter 03 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from course_utils.exercises import answer
from course_utils.exercises.machinery import exercises_of
from course_utils.randomness import derive_seed
from course_utils.sampling import EpochBatches, class_balanced_weights
from tests.reader_answers import judged


def test_chapter_03_has_six_exercises_of_three_levels():
    levels = [e.difficulty for e in exercises_of("sampling").values()]
    assert sorted(levels) == ["easy", "easy", "hard", "medium", "medium", "medium"]


# sampling-1: any order that is a function of (seed, epoch)


def _by_numpy(indices, seed, epoch):
    return np.random.default_rng([seed, epoch]).permutation(indices)


def _by_text(indices, seed, epoch):
    order = list(indices)
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def _by_the_nth_draw(indices, seed, epoch):
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(indices), generator=generator) for _ in range(epoch + 1)]
    return torch.tensor(indices)[orders[-1]]


@pytest.mark.parametrize("order", [_by_numpy, _by_text, _by_the_nth_draw], ids=lambda fn: fn.__name__)
def test_every_sound_order_is_right(order):
    assert judged("sampling-1", order)[0] == "right"


def test_the_answer_gives_the_order_of_epoch_batches():
    batches = EpochBatches(50, batch_size=8, seed=5, indices=[3, 1, 4, 15, 9, 2, 6])
    assert answer("sampling-1")([3, 1, 4, 15, 9, 2, 6], 5, 2) == batches.order(2)


def test_an_order_that_is_never_shuffled_is_told():
    assert "the next epoch: the same order" in judged("sampling-1", lambda indices, seed, epoch: list(indices))[2]


def _shuffled_by(key):
    def epoch_order(indices, seed, epoch):
        order = list(indices)
        random.Random(key(seed, epoch)).shuffle(order)
        return order

    return epoch_order


@pytest.mark.parametrize(
    "key, mistake",
    [
        (lambda seed, epoch: seed + epoch, "adds_seed_and_epoch"),
        (lambda seed, epoch: seed ^ epoch, "makes_one_number_of_seed_and_epoch"),
        (lambda seed, epoch: seed * 10 + epoch, "makes_one_number_of_seed_and_epoch"),
        (lambda seed, epoch: seed * 31 + epoch, "makes_one_number_of_seed_and_epoch"),
        (lambda seed, epoch: seed * 1000 + epoch, "makes_one_number_of_seed_and_epoch"),
        (lambda seed, epoch: (seed + 1) * (epoch + 1), "makes_one_number_of_seed_and_epoch"),
        (lambda seed, epoch: f"{seed}{epoch}", "makes_one_number_of_seed_and_epoch"),
        (lambda seed, epoch: derive_seed(seed) + derive_seed(epoch), "makes_one_number_of_seed_and_epoch"),
        (lambda seed, epoch: hash((seed, epoch)), None),  # hash stands in this lambda, where it is not looked for
        (lambda seed, epoch: derive_seed(seed, epoch % 10), None),
    ],
    ids=["sum", "xor", "tens", "thirty-one", "thousands", "product", "digits", "derived sum", "hash", "ten epochs"],
)
def test_keys_that_meet_in_one_order_are_recognised(key, mistake):
    status, found, _ = judged("sampling-1", _shuffled_by(key))
    assert (status, found) == ("wrong", mistake) or key.__code__.co_names == ("hash",)


def _turned(indices, seed, epoch):
    start = derive_seed(seed, epoch) % len(indices)
    return indices[start:] + indices[:start]


def _reversed_or_not(indices, seed, epoch):
    return indices[::-1] if derive_seed(seed, epoch) % 2 else list(indices)


def _two_exchanged(indices, seed, epoch):
    order, generator = list(indices), random.Random(derive_seed(seed, epoch))
    one, other = generator.randrange(len(order)), generator.randrange(len(order))
    order[one], order[other] = order[other], order[one]
    return order


def _one_order_turned(indices, seed, epoch):
    return _turned(_by_text(indices, seed, 0), seed, epoch)


@pytest.mark.parametrize("order", [_turned, _reversed_or_not, _two_exchanged, _one_order_turned])
def test_orders_that_are_hardly_mixed_are_refused_and_not_taken_for_a_sum(order):
    status, mistake, _ = judged("sampling-1", order)
    assert status == "wrong" and mistake in (None, "moves_the_list_instead_of_mixing_it")


def _global_and_in_place(indices, seed, epoch):
    random.seed(seed + epoch)
    random.shuffle(indices)
    return indices


def _numpys_global(indices, seed, epoch):
    np.random.seed(seed + epoch)
    return np.random.permutation(indices)


def _hashes(indices, seed, epoch):
    return random.Random(hash((seed, epoch))).sample(indices, len(indices))


@pytest.mark.parametrize(
    "order, mistake",
    [
        (_global_and_in_place, "seeds_the_global_generator"),
        (_numpys_global, "seeds_the_global_generator"),
        (_hashes, "asks_hash"),
    ],
)
def test_orders_of_the_wrong_generator_are_recognised(order, mistake):
    assert judged("sampling-1", order)[:2] == ("wrong", mistake)


def test_the_global_generators_are_as_they_were_after_a_check():
    before = torch.get_rng_state(), random.getstate()
    judged("sampling-1", lambda indices, seed, epoch: torch.randperm(len(indices)))
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


# sampling-2: any scale


@pytest.mark.parametrize(
    "weights",
    [
        lambda targets: class_balanced_weights(targets),
        lambda targets: (1 / torch.bincount(torch.tensor(targets)).float())[torch.tensor(targets)],
        lambda targets: [len(targets) / (len(set(targets)) * targets.count(t)) for t in targets],
    ],
    ids=["the tested version", "by bincount", "scikit-learn's scale"],
)
def test_balanced_weights_are_right_at_any_scale(weights):
    def example_weights(targets):
        return weights(targets)

    assert judged("sampling-2", example_weights)[0] == "right"


@pytest.mark.parametrize(
    "weights",
    [
        lambda targets: {t: 1 / targets.count(t) for t in targets},
        lambda targets: 1 / torch.bincount(torch.tensor(targets)),
        lambda targets: [1 / targets.count(t) for t in sorted(set(targets))],
    ],
    ids=["a dict", "a tensor", "a list"],
)
def test_one_weight_a_class_is_recognised_in_any_form(weights):
    assert judged("sampling-2", weights)[1] == "gives_one_weight_a_class"


def test_weights_divided_without_a_rest_are_recognised():
    weights = lambda targets: [len(targets) // targets.count(t) for t in targets]  # noqa: E731
    assert judged("sampling-2", weights)[1] == "divides_without_a_rest"


# sampling-3: any division of a global batch


def _as_distributed_sampler(drop_last):
    def rank_batches(order, batch_size, world_size, rank):
        settings = {"num_replicas": world_size, "rank": rank, "shuffle": False, "drop_last": drop_last}
        mine = [order[place] for place in DistributedSampler(order, **settings)] if order else []
        return [mine[i : i + batch_size] for i in range(0, len(mine), batch_size)]

    return rank_batches


@pytest.mark.parametrize("drop_last, mistake", [(False, "pads_the_end"), (True, "drops_what_is_left")])
def test_distributed_sampler_pads_or_drops(drop_last, mistake):
    assert judged("sampling-3", _as_distributed_sampler(drop_last))[1] == mistake


def test_pieces_of_about_one_size_are_as_good_as_strides():
    def pieces(order, batch_size, world_size, rank):
        groups = [order[i : i + batch_size * world_size] for i in range(0, len(order), batch_size * world_size)]
        return [torch.tensor_split(torch.tensor(group), world_size)[rank] for group in groups]

    assert judged("sampling-3", pieces)[0] == "right"


def test_the_batches_of_epoch_batches_are_right():
    def tested(order, batch_size, world_size, rank):
        batches = EpochBatches(
            100, batch_size=batch_size, seed=0, shuffle=False, indices=order, rank=rank, world_size=world_size
        )
        return [list(key) for key in batches]

    assert judged("sampling-3", tested)[0] == "right"


def test_whole_batches_dealt_to_the_ranks_leave_one_without():
    def dealt(order, batch_size, world_size, rank):
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)][rank::world_size]

    assert judged("sampling-3", dealt)[1] == "makes_fewer_batches_on_some_ranks"


def test_a_flat_list_of_indices_is_told():
    text = judged("sampling-3", lambda order, batch_size, world_size, rank: order[rank::world_size])[2]
    assert "a rank gets: a list of indices, not of batches; it should be: a list of batches" in text


def _parts_of(order, size, world_size):
    return [[order[i : i + size][r::world_size] for r in range(world_size)] for i in range(0, len(order), size)]


@pytest.mark.parametrize(
    "batches, mistake",
    [
        (lambda o, b, w, r: _parts_of(o, b * w, w), "returns_the_batches_of_all_ranks"),
        (lambda o, b, w, r: [p[r] for p in _parts_of(o, b * w, w) if p[r]], "makes_fewer_batches_on_some_ranks"),
        (lambda o, b, w, r: [p[r] for p in _parts_of(o, b * w, w) if len(p[r]) == b], "drops_what_is_left"),
        (lambda o, b, w, r: [list(x) for x in np.array_split(np.array_split(o, w)[r], range(b, len(o), b)) if len(x)],
         "cuts_the_epoch_into_blocks"),
    ],
    ids=["all ranks", "no empty ones", "only full ones", "blocks"],
)  # fmt: skip
def test_batches_that_are_nearly_right_are_recognised(batches, mistake):
    assert judged("sampling-3", lambda order, batch_size, world_size, rank: batches(
        order, batch_size, world_size, rank))[:2] == ("wrong", mistake)  # fmt: skip


# sampling-4


def _hits(targets, predictions, name):
    return sum(t == p == name for t, p in zip(targets, predictions, strict=True))


@pytest.mark.parametrize(
    "share, mistake",
    [
        (lambda t, p, c: round(_hits(t, p, c) / t.count(c), 2), "rounds"),
        (lambda t, p, c: 100 * _hits(t, p, c) / t.count(c), "gives_percent"),
        (lambda t, p, c: _hits(t, p, c), "gives_the_number_of_hits"),
        (lambda t, p, c: _hits(t, p, c) / len(t), "divides_by_all_examples"),
        (lambda t, p, c: sum((a == c) == (b == c) for a, b in zip(t, p, strict=True)) / len(t),
         "counts_the_other_classes_too"),
    ],
    ids=["rounded", "percent", "hits", "of all", "one against the rest"],
)  # fmt: skip
def test_recalls_that_are_nearly_right_are_recognised(share, mistake):
    def recall(targets, predictions, num_classes):
        return [share(targets, predictions, c) if c in targets else float("nan") for c in range(num_classes)]

    assert judged("sampling-4", recall)[:2] == ("wrong", mistake)


def test_recall_as_a_mean_of_booleans_is_right():
    def by_torch(targets, predictions, num_classes):
        targets, predictions = torch.tensor(targets), torch.tensor(predictions)
        return torch.stack([(predictions[targets == c] == c).float().mean() for c in range(num_classes)])

    assert judged("sampling-4", by_torch)[0] == "right"


def test_one_number_for_all_classes_is_recognised_as_accuracy():
    def accuracy(targets, predictions, num_classes):
        return sum(t == p for t, p in zip(targets, predictions, strict=True)) / len(targets)

    assert judged("sampling-4", accuracy)[1] == "gives_the_accuracy_of_all"


# sampling-5: any coin that belongs to (seed, epoch, index)


@pytest.mark.parametrize(
    "coin",
    [
        lambda seed, epoch, index: random.Random(f"{seed} {epoch} {index}").random() < 0.5,
        lambda seed, epoch, index: bool(np.random.default_rng((seed, epoch, index)).random() < 0.5),
        lambda seed, epoch, index: derive_seed(epoch, seed, index) / 2**63 < 0.5,
    ],
    ids=["text", "NumPy", "another order of the parts"],
)
def test_every_sound_coin_is_right(coin):
    assert judged("sampling-5", lambda indices, seed, epoch: [coin(seed, epoch, i) for i in indices])[0] == "right"


def test_a_table_of_draws_serves_the_examples_that_it_has_and_no_others():
    def table(indices, seed, epoch):
        draws = torch.rand(1000, generator=torch.Generator().manual_seed(derive_seed(seed, epoch)))
        return (draws[torch.tensor(list(indices), dtype=torch.long)] < 0.5).tolist()

    status, _, text = judged("sampling-5", table)
    assert status == "raised" and "out of bounds" in text


@pytest.mark.parametrize(
    "key",
    [
        lambda seed, epoch, index: seed + epoch + index,
        lambda seed, epoch, index: 37 * seed + 11 * epoch + index,
        lambda seed, epoch, index: seed ^ epoch ^ index,
        lambda seed, epoch, index: f"{seed}{epoch}{index}",
        lambda seed, epoch, index: derive_seed(seed, epoch * 1000 + index),
        lambda seed, epoch, index: seed * 1000003 + epoch * 1009 + index,
        lambda seed, epoch, index: seed * 1000003 + epoch * 10007 + index,
    ],
    ids=["sum", "multiples", "xor", "digits", "thousands", "primes", "larger primes"],
)
def test_parts_that_meet_in_one_number_are_not_right(key):
    def keyed_coins(indices, seed, epoch):
        return [derive_seed(key(seed, epoch, i)) % 2 == 1 for i in indices]

    assert judged("sampling-5", keyed_coins)[1] == "makes_one_number_of_the_parts"


@pytest.mark.parametrize(
    "coin",
    [
        lambda s, e, i: bool(derive_seed(s, i) % 2) ^ (e % 2 == 1),
        lambda s, e, i: (derive_seed(s, i) + e) % 2 == 0,
        lambda s, e, i: bool((derive_seed(s, i) ^ derive_seed(s, e)) & 1),
        lambda s, e, i: bool((derive_seed(s) ^ derive_seed(e) ^ derive_seed(i)) & 1),
    ],
    ids=["turned in odd epochs", "epoch added", "two numbers", "three numbers"],
)
def test_coins_that_follow_from_one_another_are_recognised(coin):
    keyed_coins = lambda indices, seed, epoch: [coin(seed, epoch, i) for i in indices]  # noqa: E731
    assert judged("sampling-5", keyed_coins)[:2] == ("wrong", "turns_the_coins_over")


def _remembers(indices, seed, epoch, known={}):  # noqa: B006
    for i in indices:
        if (seed, epoch, i) not in known:
            known[seed, epoch, i] = random.random() < 0.5
    return [known[seed, epoch, i] for i in indices]


def _exactly_half(indices, seed, epoch):
    chosen = set(random.Random(derive_seed(seed, epoch)).sample(range(len(indices)), len(indices) // 2))
    return [place in chosen for place in range(len(indices))]


def _by_place(indices, seed, epoch):
    return [derive_seed(seed, epoch, place) % 2 == 1 for place, _ in enumerate(indices)]


def _lost_bits(indices, seed, epoch):
    keys = [i + epoch * 2**32 + seed * 2**48 for i in indices]
    return [torch.rand((), generator=torch.Generator().manual_seed(derive_seed(k % 2**32))).item() < 0.5 for k in keys]


@pytest.mark.parametrize(
    "coins, mistake",
    [
        (_remembers, "draws_from_the_global_generator"),
        (_exactly_half, "flips_exactly_half"),
        (_by_place, "ties_the_coin_to_the_place"),
        (_lost_bits, "tosses_the_same_in_every_epoch"),
        (lambda indices, seed, epoch: [derive_seed(seed, epoch, i) % 2 for i in indices], "gives_numbers_for_bools"),
    ],
    ids=["remembered", "exactly half", "by place", "lost bits", "numbers"],
)
def test_coins_of_other_mistakes_are_recognised(coins, mistake):
    def keyed_coins(indices, seed, epoch):
        return coins(indices, seed, epoch)

    assert [judged("sampling-5", keyed_coins)[:2] for _ in range(2)] == [("wrong", mistake)] * 2


def test_coins_in_a_column_are_no_list_of_bools():
    def column(indices, seed, epoch):
        return torch.tensor([derive_seed(seed, epoch, i) % 2 == 1 for i in indices])[:, None]

    assert "what the coins are: not single ones, but lists or arrays; it should be: bools" in judged(
        "sampling-5", column)[2]  # fmt: skip


def test_draws_that_are_no_coins_yet_are_told():
    draws = lambda indices, seed, epoch: [derive_seed(seed, epoch, i) / 2**63 for i in indices]  # noqa: E731
    status, mistake, text = judged("sampling-5", draws)
    assert mistake == "leaves_the_comparison_out" and "numbers that are yet to be compared with 0.5" in text


# sampling-6


def test_the_answer_goes_on_where_epoch_batches_does():
    batches = EpochBatches(10, batch_size=3, seed=1)
    for done in range(12):
        epoch, number = divmod(done, 3)  # batches of 4 before: 3 an epoch, the last of 2
        expected = (epoch, [list(key) for key in batches.keys(epoch, 4 * number)])
        assert answer("sampling-6")(batches.order, 10, done, 4, 3) == expected


def test_the_end_of_an_epoch_taken_for_an_empty_rest_is_told():
    def stays(order_of, num_examples, batches_done, old_size, new_size):
        per_epoch = -(-num_examples // old_size)
        epoch = max(0, batches_done - 1) // per_epoch
        rest = order_of(epoch)[(batches_done - epoch * per_epoch) * old_size :]
        return epoch, [rest[i : i + new_size] for i in range(0, len(rest), new_size)]

    status, mistake, text = judged("sampling-6", stays)
    assert mistake == "stays_in_the_epoch_that_has_ended" and "the epoch: expected 1, got 0" in text


def _resumed(per_epoch=lambda n, old: -(-n // old), skip=lambda done, old: done * old, cut=lambda old, new: new):
    def resume_batches(order_of, num_examples, batches_done, old_size, new_size):
        epoch, done = divmod(batches_done, per_epoch(num_examples, old_size))
        rest, size = order_of(epoch)[skip(done, old_size) :], cut(old_size, new_size)
        return epoch, [rest[i : i + size] for i in range(0, len(rest), size)]

    return resume_batches


@pytest.mark.parametrize(
    "changed, mistake",
    [
        ({"per_epoch": lambda n, old: n // old + 1}, "counts_a_batch_too_many"),
        ({"skip": lambda done, old: (done + 1) * old}, "passes_over_a_batch"),
        ({"cut": lambda old, new: old}, "cuts_with_the_old_size"),
    ],
    ids=["one batch more", "one batch passed over", "the old size"],
)
def test_resumptions_that_are_nearly_right_are_recognised(changed, mistake):
    assert judged("sampling-6", _resumed())[0] == "right"
    assert judged("sampling-6", _resumed(**changed))[:2] == ("wrong", mistake)


def test_batches_without_their_epoch_are_told():
    batches = lambda *args: _resumed()(*args)[1]  # noqa: E731
    text = judged("sampling-6", lambda order_of, num_examples, batches_done, old_size, new_size: batches(
        order_of, num_examples, batches_done, old_size, new_size))[2]  # fmt: skip
    assert "expected a tuple (the epoch, the batches), got a list: [[0, 1], [2, 3]]" in text
