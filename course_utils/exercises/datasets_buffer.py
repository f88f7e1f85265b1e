"""The exercise of chapter 01 about an order drawn with a buffer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

import torch

from course_utils.exercises.datasets_streams import Stream
from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import LEFT_ALONE, facts_differ, moved_generators, times_each


def _facts(fn, result: Iterator, records: Stream, buffer_size: int, seed: int) -> dict:
    """What holds for any sound shuffle buffer, of one that holds `buffer_size` records at most."""
    order, num_held = [], 0
    try:
        for given, record in enumerate(result):
            num_held = max(num_held, records.num_read - given)
            order.append(record)
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):
            return {
                "each record comes": f"{len(order)} of {records.num_records}, then next(records) finds none and fails"
            }
        raise
    facts = {
        "each record comes": times_each(range(records.num_records), order),
        "the global generators": moved_generators(),
    }
    if buffer_size == 1:
        return facts | {"order with a buffer of 1": order}
    again, other = (list(fn(Stream(records.num_records), buffer_size, s)) for s in (seed, seed + 1))
    facts |= {
        "order": "that of the stream" if order == sorted(order) else "mixed",
        "the same seed once more": "the same order" if again == order else "another order",
        "another seed": "the same order" if other == order else "another order",
    }
    return facts | _long_facts(order, num_held, buffer_size) if records.num_records > buffer_size else facts


def _long_facts(order: list[int], num_held: int, buffer_size: int) -> dict:
    """What only a stream longer than the buffer shows. One record in hand besides the buffer is allowed."""
    early = max((record - place for place, record in enumerate(order)), default=0)
    late = max((place - record for place, record in enumerate(order)), default=0)
    runs = sum(after == before + 1 for before, after in zip(order, order[1:], strict=False))
    return {
        "records held": "as many as allowed" if num_held <= buffer_size + 1 else f"{num_held} at once",
        "a record comes early by": "less than a buffer" if early < buffer_size else f"{early} places",
        "a record may wait longer than a buffer": late >= buffer_size,
        "records that follow their neighbour": "few" if runs < len(order) / 2 else "most",
    }


_SOUND = {"each record comes": "once", "the global generators": LEFT_ALONE}
_SOUND_SHORT = _SOUND | {
    "order": "mixed",
    "the same seed once more": "the same order",
    "another seed": "another order",
}
_SOUND_LONG = _SOUND_SHORT | {
    "records held": "as many as allowed",
    "a record comes early by": "less than a buffer",
    "a record may wait longer than a buffer": True,
    "records that follow their neighbour": "few",
}


@exercise(
    "datasets-5",
    title="A shuffle buffer with a seed",
    difficulty="hard",
    minutes=15,
    cases=[(4, 1, 3), (12, 20, 3), (200, 10, 3)],
    expected=[_SOUND | {"order with a buffer of 1": [0, 1, 2, 3]}, _SOUND_SHORT, _SOUND_LONG],
    arrange=lambda num_records, buffer_size, seed: (Stream(num_records), buffer_size, seed),
    probe=_facts,
    difference=facts_differ,
    describe=lambda num_records, buffer_size, seed: (
        f"shuffle_buffer(stream of {num_records} records, buffer_size={buffer_size}, seed={seed})"
    ),
    imports="import random",
    hints=[
        "Keep a list of at most buffer_size records. Each time it is full, one of them leaves and makes room for the "
        "next. Which one is decided by a generator of your own, random.Random(seed), made once.",
        "for record in records: buffer.append(record); if it is full now: yield buffer.pop(place), with a place from "
        "generator.randrange(len(buffer)).",
        "When the stream has ended, the buffer still holds records: shuffle them with the same generator, and `yield "
        "from` them.",
    ],
    lesson="A buffer mixes only as far as it reaches: a small one leaves a stream sorted by class nearly sorted.",
)
def shuffle_buffer(records, buffer_size: int, seed: int):
    """Yield each record once, in an order drawn with a buffer: a generator function.

    A full buffer gives away one of its records, drawn at random, each as likely as the others, and
    takes the next of the stream. The order is a function of the arguments: the same seed gives the
    same one again, another seed another one.

    records     : an iterator over a stream that may be too long to be held
    buffer_size : records held at once, at least 1; 1 leaves the order as it is. A stream that is
                  shorter than the buffer is shuffled too
    seed        : of a generator of your own; the global ones are left alone
    """
    generator, buffer = random.Random(seed), []
    for record in records:
        buffer.append(record)
        if len(buffer) == buffer_size:
            yield buffer.pop(generator.randrange(buffer_size))
    generator.shuffle(buffer)
    yield from buffer


def _through(records, buffer_size, draw=None, finish=None, *, more=0):
    """The answer with its decisions as arguments: which place of the full buffer, and what becomes of the rest."""
    buffer = []
    for record in records:
        buffer.append(record)
        if len(buffer) == buffer_size + more:
            yield buffer.pop(draw(len(buffer)))
    yield from finish(buffer)


def _shuffled(generator):
    return lambda buffer: generator.sample(buffer, len(buffer))


@shuffle_buffer.wrong
def forgets_what_is_left(records, buffer_size, seed):
    """When the stream ends, the records still in the buffer are never given out: each epoch loses up to buffer_size of
    them, and a stream shorter than the buffer gives nothing at all."""
    return _through(records, buffer_size, random.Random(seed).randrange, lambda buffer: [])


@shuffle_buffer.wrong
def leaves_what_is_left_in_its_order(records, buffer_size, seed):
    """What is left at the end comes out unshuffled: a stream shorter than the buffer, or the last shard of a class,
    keeps its order. Shuffle the rest as well."""
    return _through(records, buffer_size, random.Random(seed).randrange, lambda buffer: buffer)


@shuffle_buffer.wrong
def shuffles_window_by_window(records, buffer_size, seed):
    """The stream is cut into windows, and each is shuffled by itself: a record never leaves its window. Let one record
    go at a time and take one in, so that some wait much longer."""
    generator = random.Random(seed)
    while window := list(islice(records, buffer_size)):
        yield from _shuffled(generator)(window)


@shuffle_buffer.wrong
def reads_the_whole_stream_first(records, buffer_size, seed):
    """The whole stream is read into a list before the first record comes out: the order is the best there is, and the
    memory is that of the data. A stream is used where that does not fit."""
    everything = list(records)
    yield from everything if buffer_size == 1 else _shuffled(random.Random(seed))(everything)


@shuffle_buffer.form_of("reads_the_whole_stream_first")
def reads_the_whole_stream_and_ignores_the_size(records, buffer_size, seed):
    yield from _shuffled(random.Random(seed))(list(records))


@shuffle_buffer.wrong
def holds_one_record_too_many(records, buffer_size, seed):
    """With `> buffer_size` one record goes only after one too many has come in: a buffer of 1 draws from 2 records and
    changes the order, where it must leave it as it is."""
    generator = random.Random(seed)
    return _through(records, buffer_size, generator.randrange, _shuffled(generator), more=1)


@shuffle_buffer.wrong
def draws_from_the_global_generator(records, buffer_size, seed):
    """The order comes from a global generator and moves it: whoever else draws from it changes the order, and this
    changes what they draw. Make a generator of your own, random.Random(seed)."""
    return _through(records, buffer_size, random.randrange, _shuffled(random))


@shuffle_buffer.form_of("draws_from_the_global_generator")
def seeds_the_global_generator(records, buffer_size, seed):
    random.seed(seed)
    return _through(records, buffer_size, random.randrange, _shuffled(random))


def _through_torch(records, buffer_size):
    place = lambda size: torch.randint(size, ()).item()  # noqa: E731
    rest = lambda buffer: (buffer[place] for place in torch.randperm(len(buffer)).tolist())  # noqa: E731
    return _through(records, buffer_size, place, rest)


@shuffle_buffer.form_of("draws_from_the_global_generator")
def draws_from_torchs_global_generator(records, buffer_size, seed):
    return _through_torch(records, buffer_size)


@shuffle_buffer.form_of("draws_from_the_global_generator")
def seeds_torchs_global_generator(records, buffer_size, seed):
    torch.manual_seed(seed)
    return _through_torch(records, buffer_size)


@shuffle_buffer.wrong
def makes_a_generator_without_the_seed(records, buffer_size, seed):
    """The generator does not get the seed. random.Random() gives another order in every run, which cannot be repeated;
    random.Random(0) gives the same one for every seed, so every epoch reads alike."""
    generator = random.Random()
    return _through(records, buffer_size, generator.randrange, _shuffled(generator))


@shuffle_buffer.form_of("makes_a_generator_without_the_seed")
def makes_a_generator_with_a_seed_of_its_own(records, buffer_size, seed):
    generator = random.Random(0)
    return _through(records, buffer_size, generator.randrange, _shuffled(generator))


@shuffle_buffer.wrong
def makes_the_generator_anew_for_each_draw(records, buffer_size, seed):
    """random.Random(seed) is made inside the loop: each draw is its first, so the same place is taken every time, and
    the stream comes out nearly as it went in. Make the generator once, before the loop."""
    fresh = lambda size: random.Random(seed).randrange(size)  # noqa: E731
    return _through(records, buffer_size, fresh, _shuffled(random.Random(seed)))


@shuffle_buffer.wrong
def draws_a_record_and_takes_out_another(records, buffer_size, seed):
    """The record that is given out stays in the buffer, and another one is taken out: some come twice or more, and
    others never. What is drawn must leave: buffer.pop(place)."""
    generator, buffer = random.Random(seed), []
    for record in records:
        buffer.append(record)
        if len(buffer) == buffer_size:
            yield generator.choice(buffer)
            buffer.pop(0)
    yield from _shuffled(generator)(buffer)
