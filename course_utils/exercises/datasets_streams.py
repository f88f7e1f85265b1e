"""The exercise of chapter 01 about the workers that share a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import facts_differ


class Stream:
    """The records 0, 1, 2, ... one after the other, once: it has no length and no index. It counts what was read.

    record : what comes at a place, if not its number
    """

    def __init__(self, num_records: int, record: Callable[[int], int] = int) -> None:
        self.num_records, self.num_read, self._record = num_records, 0, record

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.num_read == self.num_records:
            raise StopIteration
        self.num_read += 1
        return self._record(self.num_read - 1)


def _photo(place: int) -> int:
    """A number that says nothing about the place: 11, 48, 85, 21, 58, 95, 31, 68, 4."""
    return (11 + 37 * place) % 101


_READERS, _SHARES, _ORDER = (
    "readers of the first record, the second, ...",
    "records of each reader",
    "order within a share",
)


def _shares_of_all(fn, result, stream: Stream, rank, world_size: int, worker, num_workers: int) -> dict:
    """What all readers of all ranks get together, whoever gets the first record."""
    places = [(rank, worker) for rank in range(world_size) for worker in range(num_workers)]
    shares = [list(fn(Stream(stream.num_records, _photo), r, world_size, w, num_workers)) for r, w in places]
    records = [_photo(place) for place in range(stream.num_records)]
    counts = Counter(record for share in shares for record in share)
    if strange := [record for record in counts if record not in records]:
        return {_READERS: f"{strange[0]!r} is delivered, which is no record of the stream"}
    ordered = all(share == sorted(share, key=records.index) for share in shares)
    return {
        _READERS: [counts[record] for record in records],
        _SHARES: sorted(map(len, shares), reverse=True),
        _ORDER: "that of the stream" if ordered else "another one",
    }


def _shared(num_records: int, sizes: list[int]) -> dict:
    return {_READERS: [1] * num_records, _SHARES: sizes, _ORDER: "that of the stream"}


@exercise(
    "datasets-4",
    title="A worker's share of a stream",
    difficulty="medium",
    minutes=10,
    cases=[(2, 0, 1, 0, 1), (4, 0, 1, 0, 2), (4, 0, 2, 0, 1), (7, 0, 2, 0, 2), (9, 0, 2, 0, 3), (2, 0, 2, 0, 2)],
    expected=[
        _shared(2, [2]),
        _shared(4, [2, 2]),
        _shared(4, [2, 2]),
        _shared(7, [2, 2, 2, 1]),
        _shared(9, [2, 2, 2, 1, 1, 1]),
        _shared(2, [1, 1, 0, 0]),
    ],
    arrange=lambda num_records, *place: (Stream(num_records, _photo), *place),
    probe=_shares_of_all,
    difference=facts_differ,
    describe=lambda num_records, rank, world_size, worker, num_workers: (
        f"worker_share of a stream of {num_records} records, {[_photo(place) for place in range(num_records)]}, asked "
        f"for each reader, world_size={world_size}, num_workers={num_workers}"
    ),
    imports="from itertools import islice",
    hints=[
        "Two ranks with three workers each are six readers, and all six read the same stream. How does each know which "
        "records are its own, without asking the others and without a length?",
        "Number the readers: rank * num_workers + worker. Reader 0 takes records 0, 6, 12, ...; reader 1 takes 1, 7, "
        "13, ...",
        "islice(stream, number, None, num_readers) takes every num_readers-th record, beginning with that number.",
    ],
    lesson="Every reader reads the stream and keeps its own part: nothing is agreed upon, and nothing comes twice.",
)
def worker_share(stream, rank: int, world_size: int, worker: int, num_workers: int) -> list:
    """The records that one worker of one rank delivers.

    Every worker of every rank calls this with the whole stream and its own place. Together they
    must get each record once. Shares differ in size by one record at most, and each keeps the order
    of the stream. Which reader gets which record is up to you.

    stream  : an iterator over all records; it has no length and no index. A record may be anything,
              here it is the number of a photo, which says nothing about its place
    rank    : 0 ... world_size - 1, the process; each has num_workers workers
    worker  : 0 ... num_workers - 1, within its rank
    returns : a list, empty where there are fewer records than readers
    """
    number = rank * num_workers + worker
    return list(islice(stream, number, None, world_size * num_workers))


@worker_share.wrong
def reads_everything(stream, rank, world_size, worker, num_workers):
    """Every reader delivers the whole stream: with 2 ranks of 3 workers each record comes 6 times an epoch, and one
    "epoch" trains for six."""
    return list(stream)


@worker_share.wrong
def forgets_the_ranks(stream, rank, world_size, worker, num_workers):
    """The workers of a rank share the stream, but every rank reads all of it: with 2 ranks each record comes twice, and
    the second process adds nothing but cost."""
    return list(islice(stream, worker, None, num_workers))


@worker_share.wrong
def forgets_the_workers(stream, rank, world_size, worker, num_workers):
    """The ranks share the stream, but all workers of a rank deliver the same records: with 2 workers each record comes
    twice. With num_workers=0 or 1 all looks well."""
    return list(islice(stream, rank, None, world_size))


@worker_share.wrong
def steps_by_the_workers_of_one_rank(stream, rank, world_size, worker, num_workers):
    """The readers start at the right records, but step by num_workers: those of rank 0 already take all of the stream,
    and each further rank takes most of it again. The step is the number of all readers."""
    return list(islice(stream, rank * num_workers + worker, None, num_workers))


@worker_share.form_of("steps_by_the_workers_of_one_rank")
def steps_by_the_ranks(stream, rank, world_size, worker, num_workers):
    return list(islice(stream, rank * num_workers + worker, None, world_size))


@worker_share.wrong
def adds_rank_and_worker(stream, rank, world_size, worker, num_workers):
    """rank + worker is no number of its own: worker 1 of rank 0 and worker 0 of rank 1 have the same, so their records
    come twice and others never. Count num_workers readers for each rank before: rank * num_workers + worker."""
    return list(islice(stream, rank + worker, None, world_size * num_workers))


@worker_share.wrong
def multiplies_by_the_wrong_size(stream, rank, world_size, worker, num_workers):
    """The factor is the wrong one: rank * world_size + worker, or worker * num_workers + rank, works where there are as
    many ranks as workers, and only there; with 2 ranks of 3 workers two readers have the same number. Each rank before
    this one has num_workers readers: rank * num_workers + worker."""
    return list(islice(stream, rank * world_size + worker, None, world_size * num_workers))


@worker_share.form_of("multiplies_by_the_wrong_size")
def multiplies_the_worker_by_the_workers(stream, rank, world_size, worker, num_workers):
    return list(islice(stream, worker * num_workers + rank, None, world_size * num_workers))


def _by_remainder(stream, number: int, readers: int) -> list:
    return [record for place, record in enumerate(stream) if place % readers == number]


@worker_share.form_of("multiplies_by_the_wrong_size")
def multiplies_the_worker_by_the_workers_and_looks_for_the_remainder(stream, rank, world_size, worker, num_workers):
    return _by_remainder(stream, worker * num_workers + rank, world_size * num_workers)


@worker_share.form_of("multiplies_by_the_wrong_size")
def multiplies_the_rank_by_the_ranks_and_looks_for_the_remainder(stream, rank, world_size, worker, num_workers):
    return _by_remainder(stream, rank * world_size + worker, world_size * num_workers)


@worker_share.wrong
def loses_what_is_left(stream, rank, world_size, worker, num_workers):
    """The stream is cut into equal pieces with `//`: what is left over is read by nobody, in every epoch the same
    records. And to know the size of a piece, the whole stream had to be read first."""
    records, number = list(stream), rank * num_workers + worker
    size = len(records) // (world_size * num_workers)
    return records[number * size : (number + 1) * size]


@worker_share.wrong
def cuts_uneven_pieces(stream, rank, world_size, worker, num_workers):
    """Pieces one after the other, of a size rounded up or with the rest in the last one: nothing is lost, but some
    readers get much less than others, and the ranks wait for the longest. Deal the records out in turn."""
    records, readers = list(stream), world_size * num_workers
    size = -(-len(records) // readers)
    return records[(rank * num_workers + worker) * size :][:size]


@worker_share.form_of("cuts_uneven_pieces")
def gives_the_rest_to_the_last(stream, rank, world_size, worker, num_workers):
    records, readers, number = list(stream), world_size * num_workers, rank * num_workers + worker
    size = len(records) // readers
    return records[number * size : (number + 1) * size if number < readers - 1 else None]


@worker_share.wrong
def shares_twice(stream, rank, world_size, worker, num_workers):
    """A record is delivered where its number fits the rank *and* the worker, both counted on the whole stream: most
    numbers fit no such pair and are read by nobody. Share among all readers at once, or each rank's share further."""
    numbered = enumerate(stream)
    return [record for number, record in numbered if number % world_size == rank and number % num_workers == worker]


@worker_share.wrong
def chooses_by_what_the_record_is(stream, rank, world_size, worker, num_workers):
    """The record itself is divided, `record % readers` or `hash(record) % readers`, and not its place: photo numbers
    are not even, so some readers get more than others, and records that are no numbers cannot be divided at all. Count
    the places: enumerate(stream)."""
    number, readers = rank * num_workers + worker, world_size * num_workers
    return [record for record in stream if record % readers == number]


@worker_share.wrong
def starts_one_too_late(stream, rank, world_size, worker, num_workers):
    """The readers are counted from 1 and the records from 0: the first reader begins with the second record, and the
    first one is read by nobody. Count both from 0."""
    return list(islice(stream, rank * num_workers + worker + 1, None, world_size * num_workers))


@worker_share.form_of("starts_one_too_late")
def looks_for_a_remainder_that_never_comes(stream, rank, world_size, worker, num_workers):
    number, readers = rank * num_workers + worker + 1, world_size * num_workers
    return [record for place, record in enumerate(stream) if place % readers == number]


@worker_share.wrong
def gives_islice_the_step_as_its_stop(stream, rank, world_size, worker, num_workers):
    """islice(stream, a, b) ends at place b: what was meant as the step is taken for the stop, so everything after the
    first round is lost. The step comes third: islice(stream, number, None, num_readers)."""
    return list(islice(stream, rank * num_workers + worker, world_size * num_workers))


@worker_share.form_of("gives_islice_the_step_as_its_stop")
def takes_one_record_each(stream, rank, world_size, worker, num_workers):
    return list(islice(stream, rank * num_workers + worker, rank * num_workers + worker + 1))
