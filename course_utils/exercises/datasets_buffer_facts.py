"""What holds for every sound shuffle buffer, however it is written: the facts by which datasets-5 is decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from course_utils.exercises.datasets_streams import Stream
from course_utils.exercises.facts import LEFT_ALONE, Said, facts_differ, moved_generators, times_each
from course_utils.exercises.wording import short

_COMES, _FIRST = "each record comes", "the first record of all, over 3,000 seeds"
_FOUR = "orders of 4 records that a buffer of 5 holds, over 300 seeds"
_SEEDS, _PLACES = 3000, 5  # 600 each, give or take 22; at half the chance it is 375, give or take 18


def buffer_facts(fn, result: Iterator, records: Stream, buffer_size: int, seed: int) -> dict:
    """What holds for any sound shuffle buffer, of one that holds `buffer_size` records at most."""
    if isinstance(result, (list, tuple)):
        return {_COMES: Said("in a list", "in a list, after all have been read: `yield` each one when it is drawn")}
    order, num_held = [], 0
    try:
        for given, record in enumerate(result):
            num_held = max(num_held, records.num_read - given)
            order.append(record)
    except RuntimeError as error:
        if isinstance(error.__cause__, StopIteration):
            words = (
                f"no, {len(order)} of {records.num_records}: then next(records) finds the stream at its end and fails"
            )
            return {_COMES: Said("not to the end", words)}
        raise
    facts = {_COMES: _times(records.num_records, order), "the global generators": _moved()}
    if buffer_size == 1:
        same = order == sorted(order)
        return facts | {"order with a buffer of 1": "as it is" if same else Said("another", f"{short(order)}")}
    again, other = (list(fn(Stream(records.num_records), buffer_size, s)) for s in (seed, seed + 1))
    facts |= {
        "order": "that of the stream" if order == sorted(order) else "mixed",
        "the same seed once more": "the same order" if again == order else "another order",
        "another seed": "the same order" if other == order else "another order",
    }
    if records.num_records <= buffer_size:
        return facts
    facts |= _long_facts(order, num_held, buffer_size)
    if facts_differ({name: SOUND_LONG[name] for name in facts}, facts):
        return facts  # how often each record goes first takes thousands of calls
    return facts | {_FIRST: _first_records(fn), _FOUR: _orders_of_four(fn)}


def _times(num_records: int, order: list[int]) -> str:
    words = times_each(range(num_records), order)
    if words == "once":
        return words
    return Said("some twice" if len(order) > len(set(order)) else "some never", words)


def _moved() -> str:
    words = moved_generators()
    return words if words == LEFT_ALONE else Said("moved", words)


def _long_facts(order: list[int], num_held: int, buffer_size: int) -> dict:
    """What only a stream longer than the buffer shows. One record in hand besides the buffer is allowed."""
    early = max((record - place for place, record in enumerate(order)), default=0)
    late = max((place - record for place, record in enumerate(order)), default=0)
    runs = sum(after == before + 1 for before, after in zip(order, order[1:], strict=False))
    in_windows = sorted(order[:buffer_size]) == list(range(buffer_size))
    return {
        "records held": "as many as allowed" if num_held <= buffer_size + 1 else Said("more", f"{num_held} at once"),
        "a record comes early by": "less than a buffer" if early < buffer_size else Said("more", f"{early} places"),
        f"the first {buffer_size} to come": f"the first {buffer_size} of the stream" if in_windows else "others too",
        "a record may wait longer than a buffer": late >= buffer_size,
        "records that follow their neighbour": "few" if runs < len(order) / 2 else "most",
    }


def _first_records(fn) -> str:
    """Whether each record of a full buffer is as likely to go first as the others."""
    counts = Counter(next(iter(fn(Stream(2 * _PLACES), _PLACES, seed)), None) for seed in range(_SEEDS))
    likely = range(_SEEDS // _PLACES - 110, _SEEDS // _PLACES + 110)
    if all(counts[record] in likely for record in range(_PLACES)):
        return "each of the buffer as often as the others"
    words = ", ".join(f"{record} {counts[record]} times" for record in range(_PLACES))
    return Said("not each as often", f"{words}, with a buffer of {_PLACES}")


def _orders_of_four(fn) -> str:
    found = len({tuple(fn(Stream(4), 5, seed)) for seed in range(300)})
    return "all 24" if found == 24 else Said("fewer", f"{found} of 24")


SOUND = {_COMES: "once", "the global generators": LEFT_ALONE}
SOUND_SHORT = SOUND | {
    "order": "mixed",
    "the same seed once more": "the same order",
    "another seed": "another order",
}
SOUND_LONG = SOUND_SHORT | {
    "records held": "as many as allowed",
    "a record comes early by": "less than a buffer",
    "the first 10 to come": "others too",
    "a record may wait longer than a buffer": True,
    "records that follow their neighbour": "few",
    _FIRST: "each of the buffer as often as the others",
    _FOUR: "all 24",
}
