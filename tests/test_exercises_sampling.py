"""What readers of chapter 03 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from course_utils.exercises import answer, check
from course_utils.exercises.machinery import exercises_of
from course_utils.randomness import derive_seed
from course_utils.sampling import EpochBatches, class_balanced_weights


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    """No test writes to a reader's file."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))


def _words(id, given):
    report = check(id, given)
    return report.status, report.mistake, " ".join(report.lines)


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
    assert _words("sampling-1", order)[0] == "right"


def test_the_answer_gives_the_order_of_epoch_batches():
    batches = EpochBatches(50, batch_size=8, seed=5, indices=[3, 1, 4, 15, 9, 2, 6])
    assert answer("sampling-1")([3, 1, 4, 15, 9, 2, 6], 5, 2) == batches.order(2)


def test_an_order_that_is_never_shuffled_is_told():
    assert "the next epoch: the same order" in _words("sampling-1", lambda indices, seed, epoch: list(indices))[2]


def test_the_global_generators_are_as_they_were_after_a_check():
    before = torch.get_rng_state(), random.getstate()
    _words("sampling-1", lambda indices, seed, epoch: torch.randperm(len(indices)))
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

    assert _words("sampling-2", example_weights)[0] == "right"


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
    assert _words("sampling-2", weights)[1] == "gives_one_weight_a_class"


# sampling-3: any division of a global batch


def _as_distributed_sampler(drop_last):
    def rank_batches(order, batch_size, world_size, rank):
        settings = {"num_replicas": world_size, "rank": rank, "shuffle": False, "drop_last": drop_last}
        mine = [order[place] for place in DistributedSampler(order, **settings)] if order else []
        return [mine[i : i + batch_size] for i in range(0, len(mine), batch_size)]

    return rank_batches


@pytest.mark.parametrize("drop_last, mistake", [(False, "pads_the_end"), (True, "drops_what_is_left")])
def test_distributed_sampler_pads_or_drops(drop_last, mistake):
    assert _words("sampling-3", _as_distributed_sampler(drop_last))[1] == mistake


def test_pieces_of_about_one_size_are_as_good_as_strides():
    def pieces(order, batch_size, world_size, rank):
        groups = [order[i : i + batch_size * world_size] for i in range(0, len(order), batch_size * world_size)]
        return [torch.tensor_split(torch.tensor(group), world_size)[rank] for group in groups]

    assert _words("sampling-3", pieces)[0] == "right"


def test_the_batches_of_epoch_batches_are_right():
    def tested(order, batch_size, world_size, rank):
        batches = EpochBatches(
            100, batch_size=batch_size, seed=0, shuffle=False, indices=order, rank=rank, world_size=world_size
        )
        return [list(key) for key in batches]

    assert _words("sampling-3", tested)[0] == "right"


def test_whole_batches_dealt_to_the_ranks_leave_one_without():
    def dealt(order, batch_size, world_size, rank):
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)][rank::world_size]

    assert _words("sampling-3", dealt)[1] == "makes_fewer_batches_on_some_ranks"


def test_a_flat_list_of_indices_is_told():
    text = _words("sampling-3", lambda order, batch_size, world_size, rank: order[rank::world_size])[2]
    assert "a rank gets: a list of indices, not of batches; it should be: a list of batches" in text


# sampling-4


def test_recall_as_a_mean_of_booleans_is_right():
    def by_torch(targets, predictions, num_classes):
        targets, predictions = torch.tensor(targets), torch.tensor(predictions)
        return torch.stack([(predictions[targets == c] == c).float().mean() for c in range(num_classes)])

    assert _words("sampling-4", by_torch)[0] == "right"


def test_one_number_for_all_classes_is_recognised_as_accuracy():
    def accuracy(targets, predictions, num_classes):
        return sum(t == p for t, p in zip(targets, predictions, strict=True)) / len(targets)

    assert _words("sampling-4", accuracy)[1] == "gives_the_accuracy_of_all"


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
    assert _words("sampling-5", lambda indices, seed, epoch: [coin(seed, epoch, i) for i in indices])[0] == "right"


def test_a_table_of_draws_for_all_indices_is_right():
    def table(indices, seed, epoch):
        draws = torch.rand(1000, generator=torch.Generator().manual_seed(derive_seed(seed, epoch)))
        return (draws[torch.tensor(list(indices), dtype=torch.long)] < 0.5).tolist()

    assert _words("sampling-5", table)[0] == "right"


@pytest.mark.parametrize(
    "key",
    [
        lambda seed, epoch, index: seed + epoch + index,
        lambda seed, epoch, index: 37 * seed + 11 * epoch + index,
        lambda seed, epoch, index: seed ^ epoch ^ index,
        lambda seed, epoch, index: f"{seed}{epoch}{index}",
    ],
    ids=["sum", "multiples", "xor", "digits"],
)
def test_parts_that_meet_in_one_number_are_not_right(key):
    def keyed_coins(indices, seed, epoch):
        return [derive_seed(key(seed, epoch, i)) % 2 == 1 for i in indices]

    assert _words("sampling-5", keyed_coins)[1] == "makes_one_number_of_the_parts"


def test_draws_that_are_no_coins_yet_are_told():
    draws = lambda indices, seed, epoch: [derive_seed(seed, epoch, i) / 2**63 for i in indices]  # noqa: E731
    assert "numbers, which are to be compared with 0.5" in _words("sampling-5", draws)[2]


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

    status, _, text = _words("sampling-6", stays)
    assert status == "wrong" and "at [0]: expected 1, got 0" in text
