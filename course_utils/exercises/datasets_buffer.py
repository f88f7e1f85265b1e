"""The exercise of chapter 01 about an order drawn with a buffer."""

from __future__ import annotations

import functools
import random
from itertools import islice

import torch

from course_utils.exercises.datasets_buffer_facts import SOUND, SOUND_LONG, SOUND_SHORT, buffer_facts
from course_utils.exercises.datasets_streams import Stream
from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import facts_differ


@exercise(
    "datasets-5",
    title="A shuffle buffer with a seed",
    difficulty="hard",
    minutes=15,
    cases=[(4, 1, 3), (12, 20, 3), (200, 10, 3)],
    expected=[SOUND | {"order with a buffer of 1": "as it is"}, SOUND_SHORT, SOUND_LONG],
    arrange=lambda num_records, buffer_size, seed: (Stream(num_records), buffer_size, seed),
    probe=buffer_facts,
    difference=facts_differ,
    describe=lambda num_records, buffer_size, seed: (
        f"shuffle_buffer(stream of the records 0 ... {num_records - 1}, buffer_size={buffer_size}, seed={seed})"
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
    takes the next of the stream. What it holds at the end comes shuffled as well. The order is a
    function of the arguments: the same seed gives the same one again, another seed another one.

    records     : an iterator over a stream that may be too long to be held, or shorter than the
                  buffer, which is then shuffled as a whole
    buffer_size : records held at once, at least 1; 1 leaves the order as it is
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


@shuffle_buffer.form_of("forgets_what_is_left")
def forgets_what_is_left_of_a_buffer_filled_first(records, buffer_size, seed):
    generator, buffer = random.Random(seed), list(islice(records, buffer_size))
    for record in records:
        place = generator.randrange(buffer_size)
        yield buffer[place]
        buffer[place] = record


@shuffle_buffer.wrong
def leaves_what_is_left_in_its_order(records, buffer_size, seed):
    """What is left at the end comes out unshuffled: a stream shorter than the buffer, or the last shard of a class,
    keeps its order. Shuffle the rest as well."""
    return _through(records, buffer_size, random.Random(seed).randrange, lambda buffer: buffer)


@shuffle_buffer.form_of("leaves_what_is_left_in_its_order")
def leaves_what_is_left_of_a_buffer_filled_first(records, buffer_size, seed):
    generator, buffer = random.Random(seed), list(islice(records, buffer_size))
    for record in records:
        place = generator.randrange(buffer_size)
        yield buffer[place]
        buffer[place] = record
    yield from buffer


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


@shuffle_buffer.form_of("draws_a_record_and_takes_out_another")
def draws_a_record_and_leaves_it_in(records, buffer_size, seed):
    generator, buffer = random.Random(seed), []
    for record in records:
        buffer.append(record)
        if len(buffer) >= buffer_size:
            yield generator.choice(buffer)
    yield from _shuffled(generator)(buffer)


@shuffle_buffer.wrong
def returns_a_list(records, buffer_size, seed):
    """A list is there when the last record has been read: all of them are in memory, and training waits for the end of
    the stream. With `yield` the function becomes a generator, and each record leaves when it is drawn."""
    return list(shuffle_buffer.answer(records, buffer_size, seed))


@shuffle_buffer.wrong
def asks_an_ended_stream_for_more(records, buffer_size, seed):
    """next(records) raises StopIteration when the stream has ended, as it does when the stream is shorter than the
    buffer; inside a generator this becomes a RuntimeError. A for loop ends by itself, and so does islice(records, n);
    next(records, None) gives None."""
    generator, buffer = random.Random(seed), list(islice(records, buffer_size))
    while buffer:
        yield buffer.pop(generator.randrange(len(buffer)))
        buffer.append(next(records))


@shuffle_buffer.form_of("asks_an_ended_stream_for_more")
def fills_the_buffer_with_next(records, buffer_size, seed):
    generator, buffer = random.Random(seed), [next(records) for _ in range(buffer_size)]
    for record in records:
        place = generator.randrange(buffer_size)
        yield buffer[place]
        buffer[place] = record
    yield from _shuffled(generator)(buffer)


@shuffle_buffer.form_of("asks_an_ended_stream_for_more")
def fills_the_buffer_with_next_in_a_loop(records, buffer_size, seed):
    generator, buffer = random.Random(seed), []
    for _ in range(buffer_size):
        buffer.append(next(records))
    yield from _through(iter([*buffer, *records]), buffer_size, generator.randrange, _shuffled(generator))


@shuffle_buffer.wrong
def draws_a_place_past_the_end(records, buffer_size, seed):
    """The place is drawn from 0 to the length *included*, as randint does, and the last one does not exist: after some
    draws the generator stops with an IndexError. randrange(len(buffer)) ends one earlier."""
    generator = random.Random(seed)
    return _through(records, buffer_size, lambda size: generator.randint(0, size), _shuffled(generator))


@shuffle_buffer.form_of("draws_a_place_past_the_end")
def reads_a_place_past_the_end(records, buffer_size, seed):
    generator, buffer = random.Random(seed), list(islice(records, buffer_size))
    for record in records:
        place = generator.randint(0, buffer_size)
        yield buffer[place]
        buffer[place] = record
    yield from _shuffled(generator)(buffer)


@shuffle_buffer.form_of("draws_a_place_past_the_end")
def reads_a_place_past_the_end_and_takes_it_out(records, buffer_size, seed):
    generator, buffer = random.Random(seed), []
    for record in records:
        buffer.append(record)
        if len(buffer) == buffer_size:
            place = generator.randint(0, len(buffer))
            yield buffer[place]
            del buffer[place]
    yield from _shuffled(generator)(buffer)


@shuffle_buffer.wrong
def favours_some_places(records, buffer_size, seed):
    """The records of a full buffer do not all have one chance: a range that ends one too early never gives the newest
    (or, begun at 1, the oldest), rounding gives the two ends half the chance, and the smaller of two draws prefers the
    old ones. randrange(len(buffer)) is even."""
    generator = random.Random(seed)
    return _through(records, buffer_size, lambda size: generator.randrange(max(size - 1, 1)), _shuffled(generator))


_UNEVEN = [
    lambda generator, size: generator.randrange(min(1, size - 1), size),
    lambda generator, size: round(generator.random() * (size - 1)),
    lambda generator, size: min(generator.randrange(size), generator.randrange(size)),
    lambda generator, size: max(generator.randrange(size), generator.randrange(size)),
]


def _drawn_unevenly(records, buffer_size, seed, draw):
    generator = random.Random(seed)
    return _through(records, buffer_size, lambda size: draw(generator, size), _shuffled(generator))


for _draw in _UNEVEN:
    shuffle_buffer.form_of("favours_some_places")(functools.partial(_drawn_unevenly, draw=_draw))
