"""What readers of chapter 01 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import random
from itertools import islice

import pytest
import torch

from course_utils.exercises import check
from course_utils.exercises.machinery import exercises_of


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    """No test writes to a reader's file."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.json"))


def _words(id, given):
    report = check(id, given)
    return report.status, report.mistake, " ".join(report.lines)


def test_chapter_01_has_six_exercises_of_three_levels():
    levels = [e.difficulty for e in exercises_of("datasets").values()]
    assert sorted(levels) == ["easy", "easy", "hard", "medium", "medium", "medium"]


# datasets-1 and -2: the folder


def _unknown_is_minus_one(folders, class_to_idx=None):
    names = sorted(name for name in folders if name[0] != ".")
    numbers = class_to_idx or {name: number for number, name in enumerate(names)}
    return {name: numbers.get(name, -1) for name in [*numbers, *names]}


def test_an_unknown_class_without_an_error_is_told_with_what_came_instead():
    status, _, text = _words("datasets-1", _unknown_is_minus_one)
    assert status == "wrong" and "should raise ValueError, and returned" in text and "'owl': -1" in text


def test_an_assertion_where_a_value_error_is_due_names_both():
    def asserts(folders, class_to_idx=None):
        names = sorted(name for name in folders if name[0] != ".")
        if class_to_idx is None:
            return {name: number for number, name in enumerate(names)}
        assert all(name in class_to_idx for name in names)
        return class_to_idx

    status, mistake, text = _words("datasets-1", asserts)
    assert (status, mistake) == ("raised", None) and "should raise ValueError, and raised AssertionError" in text


def test_sorting_the_callers_list_of_folders_is_told():
    def sorts(folders, class_to_idx=None):
        folders.sort()
        return exercises_of("datasets")["datasets-1"].answer(folders, class_to_idx)

    assert "changed its argument folders" in _words("datasets-1", sorts)[2]


def test_suffix_and_parts_of_paths_are_as_good_as_text():
    def by_paths(paths, root):
        below = [path.relative_to(root) for path in paths]
        shown = [p for p in below if not any(part.startswith(".") for part in p.parts)]
        return sorted(p.as_posix() for p in shown if p.suffix.lower() in {".jpg", ".jpeg", ".png"})

    assert _words("datasets-2", by_paths)[0] == "right"


def test_names_that_are_still_paths_are_told_by_their_kind():
    status, _, text = _words("datasets-2", lambda paths, root: sorted(p.relative_to(root) for p in paths))
    assert status == "wrong" and "expected a string, got a PurePosixPath" in text


# datasets-3: groups


@pytest.mark.parametrize("given, words", [(set, "expected a list, got a set"), (bool, "expected a list, got a bool")])
def test_leaking_groups_of_another_kind_are_told(given, words):
    answer = exercises_of("datasets")["datasets-3"].answer
    assert words in _words("datasets-3", lambda parts, groups: given(answer(parts, groups)))[2]


# datasets-4: any division in which nothing comes twice and nothing is lost is right


@pytest.mark.parametrize(
    "share",
    [
        lambda stream, r, R, w, W: list(islice(stream, w * R + r, None, R * W)),
        lambda stream, r, R, w, W: list(islice(islice(stream, r, None, R), w, None, W)),
        lambda stream, r, R, w, W: [x for i, x in enumerate(stream, 1) if i % (R * W) == r * W + w],
    ],
    ids=["ranks first", "a share of a share", "counted from one"],
)
def test_every_sound_division_of_a_stream_is_right(share):
    def worker_share(stream, rank, world_size, worker, num_workers):
        return share(stream, rank, world_size, worker, num_workers)

    assert _words("datasets-4", worker_share)[0] == "right"


def test_records_that_nobody_reads_are_shown_by_their_places():
    def blocks(stream, rank, world_size, worker, num_workers):
        readers, number = world_size * num_workers, rank * num_workers + worker
        return [record for place, record in enumerate(stream) if place // readers == number]

    assert "readers of record 0, 1, 2, ...: [1, 0]; it should be: [1, 1]" in _words("datasets-4", blocks)[2]


def test_a_stream_has_no_length():
    def asks(stream, rank, world_size, worker, num_workers):
        return list(range(len(stream)))

    status, _, text = _words("datasets-4", asks)
    assert status == "raised" and "object of type 'Stream' has no len()" in text


# datasets-5: any sound buffer is right


def _exchanges(records, buffer_size, seed):
    generator, buffer = random.Random(seed), list(islice(records, buffer_size))
    for record in records:
        place = int(generator.random() * len(buffer))
        record, buffer[place] = buffer[place], record
        yield record
    yield from sorted(buffer, key=lambda _: generator.random())


def _shrinks(records, buffer_size, seed):
    generator, buffer = random.Random(seed), list(islice(records, buffer_size))
    while buffer:
        yield buffer.pop(generator.randrange(len(buffer)))
        buffer += islice(records, 1)


def _draws_with_torch(records, buffer_size, seed):
    generator, buffer = torch.Generator().manual_seed(seed), list(islice(records, buffer_size))
    while buffer:
        yield buffer.pop(torch.randint(len(buffer), (), generator=generator).item())
        buffer += islice(records, 1)


@pytest.mark.parametrize("buffer", [_exchanges, _shrinks, _draws_with_torch], ids=lambda fn: fn.__name__)
def test_every_sound_shuffle_buffer_is_right(buffer):
    assert _words("datasets-5", buffer)[0] == "right"


def test_next_at_the_end_of_the_stream_is_told_in_words():
    def asks_for_one_more(records, buffer_size, seed):
        generator, buffer = random.Random(seed), list(islice(records, buffer_size))
        while buffer:
            yield buffer.pop(generator.randrange(len(buffer)))
            buffer.append(next(records))

    status, mistake, text = _words("datasets-5", asks_for_one_more)
    assert status == "wrong" and "each record comes: 4 of 4, then next(records) finds none and fails" in text


def test_a_list_in_place_of_a_generator_has_read_the_whole_stream():
    status, mistake, text = _words("datasets-5", lambda records, buffer_size, seed: list(
        _exchanges(records, buffer_size, seed)))  # fmt: skip
    assert status == "wrong" and "records held: 200 at once" in text


def test_a_buffer_that_always_gives_its_oldest_record_mixes_nothing():
    def oldest(records, buffer_size, seed):
        buffer = list(islice(records, buffer_size))
        for record in records:
            yield buffer.pop(0)
            buffer.append(record)
        yield from random.Random(seed).sample(buffer, len(buffer))

    assert "a record may wait longer than a buffer: False" in _words("datasets-5", oldest)[2]


# datasets-6: records


def test_joining_all_chunks_first_is_right():
    def joined(chunks):
        return [line.removesuffix("\r") for line in b"".join(chunks).decode().split("\n") if line.strip("\r")]

    assert _words("datasets-6", joined)[0] == "right"


def test_a_rest_that_is_also_kept_as_a_record_is_shown():
    def keeps(chunks):
        records, rest = [], b""
        for chunk in chunks:
            lines = (rest + chunk).split(b"\n")
            records, rest = records + lines, lines[-1]
        return [line.decode().strip() for line in records if line]

    assert "expected ['cat', 'dog'], got ['cat', 'do', 'dog']" in _words("datasets-6", keeps)[2]
