"""Properties of orders and positions, for many sizes: of `EpochBatches` and `ShardedRecords`. Drawn, but fixed."""

import json
import random
from collections import Counter
from itertools import zip_longest
from types import SimpleNamespace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from course_utils import streams
from course_utils.datasets import ShardedRecords
from course_utils.sampling import EpochBatches

fixed = settings(max_examples=60, derandomize=True, deadline=None, database=None)


@st.composite
def plans(draw, **given_):
    """Arguments of an `EpochBatches`: of all sizes from 0 on, over a part of the data or all, weighted or not."""
    num_examples = draw(st.integers(0, 24))
    kinds = st.integers(0, max(0, num_examples - 1))
    indices = draw(st.none() | st.lists(kinds, max_size=24 if num_examples else 0, unique=draw(st.booleans())))
    pool_size = num_examples if indices is None else len(indices)
    weights = None
    if pool_size and draw(st.booleans()):
        weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 9.0]), min_size=pool_size, max_size=pool_size))
        weights[draw(st.integers(0, pool_size - 1))] = 1.0
    return {
        "num_examples": num_examples,
        "indices": indices,
        "weights": weights,
        "shuffle": weights is not None or draw(st.booleans()),
        "batch_size": draw(st.integers(1, 7)),
        "seed": draw(st.integers(0, 2**63)),
    } | given_


epochs = st.integers(0, 3)
worlds = st.integers(1, 9)  # often more ranks than examples are left


def of(plan, **changed):
    return EpochBatches(**(plan | changed))


def global_batches(plan, world_size, epoch, offset=0, **changed):
    """The batches of all ranks put together again, [(start, [(index, repeat), ...])], as one rank would make them."""
    every = [of(plan, rank=rank, world_size=world_size, **changed) for rank in range(world_size)]
    ranks = [list(batches.keys(epoch, offset)) for batches in every]
    assert len({len(keys) for keys in ranks}) == 1, "ranks make different numbers of batches"
    together = []
    for keys in zip(*ranks, strict=True):
        assert len({key.start for key in keys}) == 1, "ranks disagree about the position"
        shares = [list(key.examples()) for key in keys]
        together.append((keys[0].start, [pair for turn in zip_longest(*shares) for pair in turn if pair is not None]))
    return together


def pairs_of(batches):
    return [pair for _, pairs in batches for pair in pairs]


# --- EpochBatches


@fixed
@given(plan=plans(), world_size=worlds, epoch=epochs)
@example(plan={"num_examples": 0, "batch_size": 3, "seed": 1}, world_size=4, epoch=0)
@example(plan={"num_examples": 1, "batch_size": 1, "seed": 1}, world_size=9, epoch=0)
def test_the_ranks_together_make_the_order_of_the_epoch_whatever_their_number(plan, world_size, epoch):
    batches = global_batches(plan, world_size, epoch)
    assert [index for index, _ in pairs_of(batches)] == of(plan).order(epoch)
    assert [len(pairs) for _, pairs in batches[:-1]] == [plan["batch_size"] * world_size] * (len(batches) - 1)


@fixed
@given(plan=plans(weights=None, shuffle=True), world_size=worlds, epoch=epochs)
def test_without_weights_an_epoch_holds_each_of_the_indices_as_often_as_they_name_it(plan, world_size, epoch):
    seen = Counter(index for index, _ in pairs_of(global_batches(plan, world_size, epoch)))
    indices = range(plan["num_examples"]) if plan["indices"] is None else plan["indices"]
    assert seen == Counter(indices)


@fixed
@given(plan=plans(), epoch=epochs)
def test_with_weights_only_what_has_weight_is_drawn_and_the_epoch_keeps_its_length(plan, epoch):
    batches = of(plan)
    order = batches.order(epoch)
    assert len(order) == batches.pool_size
    if plan["weights"] is not None:
        indices = range(plan["num_examples"]) if plan["indices"] is None else plan["indices"]
        assert {*order} <= {index for index, weight in zip(indices, plan["weights"], strict=True) if weight > 0}


@fixed
@given(plan=plans(), world_size=worlds, epoch=epochs)
def test_no_two_examples_of_an_epoch_have_the_same_name(plan, world_size, epoch):
    pairs = pairs_of(global_batches(plan, world_size, epoch))
    assert len({*pairs}) == len(pairs)
    drawn = Counter(index for index, _ in pairs)
    assert {*pairs} == {(index, repeat) for index, times in drawn.items() for repeat in range(times)}


@fixed
@given(plan=plans(), world_size=worlds, epoch=epochs, drop_last=st.booleans())
def test_what_follows_any_batch_is_the_tail_of_the_epoch(plan, world_size, epoch, drop_last):
    whole = global_batches(plan, world_size, epoch, drop_last=drop_last)
    for done in range(len(whole) + 1):
        at = done * plan["batch_size"] * world_size
        assert global_batches(plan, world_size, epoch, at, drop_last=drop_last) == whole[done:]


@fixed
@given(plan=plans(), before=worlds, after=worlds, batch_size=st.integers(1, 7), epoch=epochs, data=st.data())
def test_going_on_with_other_ranks_and_another_batch_size_loses_and_repeats_nothing(
    plan, before, after, batch_size, epoch, data
):
    whole = global_batches(plan, before, epoch)
    done = data.draw(st.integers(0, len(whole)))
    at = min(done * plan["batch_size"] * before, of(plan).pool_size)
    rest = global_batches(plan, after, epoch, at, batch_size=batch_size)
    assert pairs_of(whole[:done]) + pairs_of(rest) == pairs_of(whole)


@fixed
@given(plan=plans(), world_size=worlds, epoch=epochs, data=st.data())
def test_drop_last_leaves_out_less_than_a_global_batch_at_the_end_and_nothing_else(plan, world_size, epoch, data):
    offset = data.draw(st.integers(0, of(plan).pool_size))
    whole = global_batches(plan, world_size, epoch, offset)
    kept = global_batches(plan, world_size, epoch, offset, drop_last=True)
    assert kept == [batch for batch in whole if len(batch[1]) == plan["batch_size"] * world_size]
    assert len(whole) - len(kept) <= 1


@fixed
@given(plan=plans(), world_size=worlds, epoch=epochs, drop_last=st.booleans())
def test_a_set_position_is_the_place_asked_for_or_the_start_of_the_next_epoch(plan, world_size, epoch, drop_last):
    batches = of(plan, world_size=world_size, drop_last=drop_last)
    assert len(batches) == len(list(batches.keys(epoch)))
    for offset in range(batches.pool_size + 1):
        batches.set_position(epoch, offset)
        left = list(batches.keys(epoch, offset))
        expected = (epoch, offset) if left or offset == 0 else (epoch + 1, 0)
        assert (batches.epoch, batches.offset) == expected and list(batches) == list(batches.keys(*expected))


@fixed
@given(seed=st.integers(0, 2**63), epoch=epochs, weighted=st.booleans())
def test_another_epoch_and_another_seed_have_another_order(seed, epoch, weighted):
    how = {"num_examples": 24, "batch_size": 5, "weights": [1.0] * 24 if weighted else None}
    orders = [of(how, seed=seed + s).order(epoch + e) for s in (0, 1, 2**32) for e in (0, 1)]
    assert len({*map(tuple, orders)}) == 6


@fixed
@given(plan=plans(), epoch=epochs, state=st.integers(0, 2**31))
def test_the_order_knows_neither_the_global_generators_nor_what_was_asked_before(plan, epoch, state):
    expected = of(plan).order(epoch)
    torch.manual_seed(state)
    used = of(plan)
    used.set_position(1)
    list(used), used.order(epoch + 1)
    assert used.order(epoch) == expected


# --- ShardedRecords


@pytest.fixture(scope="module")
def shard_sets(tmp_path_factory):
    """(sizes of the shards) -> their paths; records are numbered through, each set is written once."""
    made = {}

    def make(sizes):
        if sizes not in made:
            folder, numbers = tmp_path_factory.mktemp("shards"), iter(range(sum(sizes)))
            made[sizes] = [folder / f"{place}.jsonl" for place in range(len(sizes))]
            for path, size in zip(made[sizes], sizes, strict=True):
                path.write_text("".join(json.dumps(next(numbers)) + "\n" for _ in range(size)))
        return made[sizes]

    return make


def worker_share(records, worker, num_workers, epoch, offset=0):
    """What one worker makes, [(key, records, whether the epoch ends)], in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "get_worker_info", lambda: SimpleNamespace(id=worker, num_workers=num_workers))
        state = random.getstate()
        share = list(records.keyed_batches(epoch, offset))
        random.setstate(state)
    return share


sizes = st.lists(st.sampled_from([0, 1, 2, 5, 9]), min_size=1, max_size=4).map(tuple).filter(sum)
streams_of = {
    "sizes": sizes,
    "batch_size": st.integers(1, 4),
    "shuffle_buffer": st.sampled_from([0, 1, 3, 50]),
    "epoch": epochs,
}
SOME = settings(fixed, max_examples=30)


def rank_of(paths, batch_size, shuffle_buffer, rank=0, world_size=1):
    how = {"batch_size": batch_size, "shuffle_buffer": shuffle_buffer, "rank": rank, "world_size": world_size}
    return ShardedRecords(paths, seed=7, collate_fn=list, **how)


@SOME
@given(**streams_of, world_size=st.integers(1, 5), num_workers=st.integers(1, 4))
def test_workers_and_ranks_together_make_each_record_of_a_stream_once(
    shard_sets, sizes, batch_size, shuffle_buffer, epoch, world_size, num_workers
):
    alone = [key.indices for key, _, _ in rank_of(shard_sets(sizes), 1, shuffle_buffer).keyed_batches(epoch)]
    assert len(alone) == sum(sizes)
    ranks = []
    for rank in range(world_size):
        records = rank_of(shard_sets(sizes), batch_size, shuffle_buffer, rank, world_size)
        shares = [worker_share(records, worker, num_workers, epoch) for worker in range(num_workers)]
        ranks.append([item for turn in zip_longest(*shares) for item in turn if item is not None])
        assert [ended for _, _, ended in ranks[-1]] == [False] * (len(ranks[-1]) - 1) + [True]
    together = [
        index
        for step in zip(*ranks, strict=True)
        for turn in zip_longest(*(key.indices for key, _, _ in step))
        for index in turn
        if index is not None
    ]
    assert together == [index for (index,) in alone]
    assert sorted(number for rank in ranks for _, batch, _ in rank for number in batch) == [*range(sum(sizes))]


@SOME
@given(**streams_of, world_size=st.integers(1, 5), num_workers=st.integers(1, 3))
def test_what_follows_any_batch_of_a_stream_is_its_tail_with_any_number_of_workers(
    shard_sets, sizes, batch_size, shuffle_buffer, epoch, world_size, num_workers
):
    records = rank_of(shard_sets(sizes), batch_size, shuffle_buffer, world_size - 1, world_size)
    whole = list(records.keyed_batches(epoch))
    for done in range(len(whole) + 1):
        offset = done * records.global_batch
        shares = [worker_share(records, worker, num_workers, epoch, offset) for worker in range(num_workers)]
        assert [item for turn in zip_longest(*shares) for item in turn if item is not None] == whole[done:]


@SOME
@given(**streams_of, before=st.integers(1, 5), after=st.integers(1, 5))
def test_a_stream_goes_on_with_another_number_of_ranks_and_loses_nothing(
    shard_sets, sizes, batch_size, shuffle_buffer, epoch, before, after
):
    def read(world_size, offset, steps=None):
        ranks = [rank_of(shard_sets(sizes), batch_size, shuffle_buffer, r, world_size) for r in range(world_size)]
        return [n for rank in ranks for _, batch, _ in [*rank.keyed_batches(epoch, offset)][:steps] for n in batch]

    assert sorted(read(before, 0, 1) + read(after, batch_size * before)) == [*range(sum(sizes))]
