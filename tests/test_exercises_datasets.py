"""What readers of chapter 01 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import random
from itertools import islice

import pytest
import torch

from course_utils.exercises.machinery import exercises_of
from course_utils.exercises.wording import words_of_error
from tests.reader_answers import judged


def test_chapter_01_has_six_exercises_of_three_levels():
    levels = [e.difficulty for e in exercises_of("datasets").values()]
    assert sorted(levels) == ["easy", "easy", "hard", "medium", "medium", "medium"]


# datasets-1 and -2: the folder


def _unknown_is_minus_one(folders, class_to_idx=None):
    names = sorted(name for name in folders if name[0] != ".")
    numbers = class_to_idx or {name: number for number, name in enumerate(names)}
    return {name: numbers.get(name, -1) for name in [*numbers, *names]}


def test_an_unknown_class_without_an_error_is_told_with_what_came_instead():
    status, _, text = judged("datasets-1", _unknown_is_minus_one)
    assert status == "wrong" and "should raise ValueError, and returned" in text and "'owl': -1" in text


def test_an_assertion_where_a_value_error_is_due_names_both():
    def asserts(folders, class_to_idx=None):
        names = sorted(name for name in folders if name[0] != ".")
        if class_to_idx is None:
            return {name: number for number, name in enumerate(names)}
        assert all(name in class_to_idx for name in names)
        return class_to_idx

    status, mistake, text = judged("datasets-1", asserts)
    assert (status, mistake) == ("wrong", "asserts_where_an_error_is_asked_for")
    assert "should raise ValueError, and raised AssertionError" in text
    assert words_of_error(AssertionError()) == "AssertionError, without a text"


def test_sorting_the_callers_list_of_folders_is_told():
    def sorts(folders, class_to_idx=None):
        folders.sort()
        return exercises_of("datasets")["datasets-1"].answer(folders, class_to_idx)

    assert "changed its argument folders" in judged("datasets-1", sorts)[2]


def test_suffix_and_parts_of_paths_are_as_good_as_text():
    def by_paths(paths, root):
        below = [path.relative_to(root) for path in paths]
        shown = [p for p in below if not any(part.startswith(".") for part in p.parts)]
        return sorted(p.as_posix() for p in shown if p.suffix.lower() in {".jpg", ".jpeg", ".png"})

    assert judged("datasets-2", by_paths)[0] == "right"


def test_names_that_are_still_paths_are_told_by_their_kind():
    status, _, text = judged("datasets-2", lambda paths, root: sorted(p.relative_to(root) for p in paths))
    assert status == "wrong" and "expected a string, got a PurePosixPath" in text


def _kept(folders, class_to_idx, *, order=sorted, none=lambda numbers: numbers is None, hidden="."):
    names = order(name for name in folders if not name.startswith(hidden))
    if none(class_to_idx):
        return {name: number for number, name in enumerate(names)}
    for name in folders if hidden == "never" else names:
        if name not in class_to_idx:
            raise ValueError(name)
    return class_to_idx


def _checks_all_names(folders, class_to_idx=None):
    if class_to_idx is None:
        return _kept(folders, None)
    for name in folders:
        if name not in class_to_idx:
            raise ValueError(name)
    return class_to_idx


@pytest.mark.parametrize(
    "numbers, mistake",
    [
        (lambda f, c=None: _kept(f, c, none=lambda numbers: not numbers), "takes_no_numbers_for_a_training_split"),
        (lambda f, c=None: _kept(f, c, order=lambda n: sorted(n, key=str.lower)), "sorts_without_regard_to_capitals"),
        (lambda f, c=None: _kept(f, c, hidden=(".", "_")), None),
        (_checks_all_names, "refuses_hidden_folders_of_other_splits"),
    ],
    ids=["an empty dict", "str.lower", "names with an underscore", "hidden names checked"],
)
def test_class_numbers_that_are_nearly_right_are_refused(numbers, mistake):
    def number_classes(folders, class_to_idx=None):
        return numbers(folders, class_to_idx)

    assert judged("datasets-1", number_classes)[:2] == ("wrong", mistake)


_IMAGES = (".jpg", ".jpeg", ".png")


@pytest.mark.parametrize(
    "names, mistake",
    [
        (lambda ps, r: sorted(str(p) for p in ps if p.suffix.lower() in _IMAGES), "keeps_the_way_to_the_root"),
        (lambda ps, r: sorted(p for p in ps if p.suffix in _IMAGES), "keeps_the_way_to_the_root"),
        (lambda ps, r: sorted(p.name for p in ps if p.suffix.lower() in _IMAGES), "keeps_the_names_of_the_files_alone"),
        (lambda ps, r: [str(p) for p in ps if p.is_file()], "asks_the_disk"),
        (lambda ps, r: sorted(r.rglob("*.jpg")), "asks_the_disk"),
        (
            lambda ps, r: sorted(p.relative_to(r).as_posix() for p in ps if p.suffix in _IMAGES and p.name[0] != "."),
            "loses_endings_in_capitals",
        ),
        (
            lambda ps, r: sorted(p.relative_to(r).as_posix() for p in ps if p.suffix.lower() in _IMAGES),
            "keeps_hidden_files",
        ),
    ],
    ids=["str", "paths", "name", "is_file", "rglob", "capitals", "hidden"],
)
def test_names_of_images_that_are_nearly_right_are_recognised(names, mistake):
    assert judged("datasets-2", lambda paths, root: names(paths, root))[:2] == ("wrong", mistake)


def test_folders_with_other_signs_are_no_hidden_ones():
    def drops(paths, root):
        names = [
            p.relative_to(root).as_posix() for p in paths if not {".", "_"} & {n[0] for n in p.relative_to(root).parts}
        ]
        return sorted(name for name in names if name.lower().endswith(_IMAGES))

    status, mistake, text = judged("datasets-2", drops)
    assert (status, mistake) == ("wrong", None) and "__old/1.jpg" in text


# datasets-3: groups


@pytest.mark.parametrize("given, words", [(set, "expected a list, got a set"), (bool, "expected a list, got a bool")])
def test_leaking_groups_of_another_kind_are_told(given, words):
    answer = exercises_of("datasets")["datasets-3"].answer
    assert words in judged("datasets-3", lambda parts, groups: given(answer(parts, groups)))[2]


def _sets(parts, groups):
    return [{groups[p] for p in part} for part in parts]


@pytest.mark.parametrize(
    "leaking, mistake",
    [
        (lambda parts, groups: sorted(_sets(parts, groups)[0] & _sets(parts, groups)[1]),
         "compares_the_first_two_parts_only"),
        (lambda parts, groups: sorted(set.intersection(*map(set, parts))), "compares_positions"),
        (lambda parts, groups: sorted(set(parts[0]) & set(parts[1])), "compares_positions"),
        (lambda parts, groups: [g for g in sorted(set(groups)) for s in _sets(parts, groups) if g in s
                                and sum(g in other for other in _sets(parts, groups)) > 1],
         "names_a_group_more_than_once"),
        (lambda parts, groups: set(exercises_of("datasets")["datasets-3"].answer(parts, groups)),
         "leaves_them_in_any_order"),
        (lambda parts, groups: sorted(exercises_of("datasets")["datasets-3"].answer(parts, groups), key=str),
         "sorts_numbers_as_text"),
    ],
    ids=["first two parts", "positions in all", "positions in two", "once a part", "a set", "as text"],
)  # fmt: skip
def test_leaking_groups_that_are_nearly_right_are_recognised(leaking, mistake):
    assert judged("datasets-3", lambda parts, groups: leaking(parts, groups))[:2] == ("wrong", mistake)


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

    assert judged("datasets-4", worker_share)[0] == "right"


def test_records_that_nobody_reads_are_shown_by_their_places():
    def blocks(stream, rank, world_size, worker, num_workers):
        readers, number = world_size * num_workers, rank * num_workers + worker
        return [record for place, record in enumerate(stream) if place // readers == number]

    assert (
        "readers of the first record, the second, ...: [1, 0]; it should be: [1, 1]" in judged("datasets-4", blocks)[2]
    )


@pytest.mark.parametrize(
    "share, mistake",
    [
        (lambda s, r, R, w, W: [x for x in s if x % (R * W) == r * W + w], "chooses_by_what_the_record_is"),
        (lambda s, r, R, w, W: [x for x in s if hash(x) % (R * W) == w * R + r], "chooses_by_what_the_record_is"),
        (lambda s, r, R, w, W: list(islice(s, w * W + r, None, R * W)), "multiplies_by_the_wrong_size"),
        (
            lambda s, r, R, w, W: [x for i, x in enumerate(s) if i % (R * W) == w * W + r],
            "multiplies_by_the_wrong_size",
        ),
        (lambda s, r, R, w, W: list(islice(s, r * W + w + 1, None, R * W)), "starts_one_too_late"),
        (lambda s, r, R, w, W: list(islice(s, r * W + w, R * W)), "gives_islice_the_step_as_its_stop"),
    ],
    ids=[
        "the record divided",
        "its hash",
        "the wrong factor",
        "its remainder",
        "counted from one",
        "islice with a stop",
    ],
)
def test_divisions_of_a_stream_that_are_nearly_right_are_recognised(share, mistake):
    def worker_share(stream, rank, world_size, worker, num_workers):
        return share(stream, rank, world_size, worker, num_workers)

    assert judged("datasets-4", worker_share)[:2] == ("wrong", mistake)


def test_a_stream_has_no_length():
    def asks(stream, rank, world_size, worker, num_workers):
        return list(range(len(stream)))

    status, _, text = judged("datasets-4", asks)
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
    assert judged("datasets-5", buffer)[0] == "right"


def test_next_at_the_end_of_the_stream_is_told_injudged():
    def asks_for_one_more(records, buffer_size, seed):
        generator, buffer = random.Random(seed), list(islice(records, buffer_size))
        while buffer:
            yield buffer.pop(generator.randrange(len(buffer)))
            buffer.append(next(records))

    status, mistake, text = judged("datasets-5", asks_for_one_more)
    assert (status, mistake) == ("wrong", "asks_an_ended_stream_for_more")
    assert "each record comes: no, 4 of 4: then next(records) finds the stream at its end and fails" in text


def test_a_list_in_place_of_a_generator_has_read_the_whole_stream():
    status, mistake, text = judged("datasets-5", lambda records, buffer_size, seed: list(
        _exchanges(records, buffer_size, seed)))  # fmt: skip
    assert (status, mistake) == ("wrong", "returns_a_list") and "`yield` each one when it is drawn" in text


def _buffered(draw):
    """A buffer whose draw gets the generator and the number of records held."""

    def shuffle_buffer(records, buffer_size, seed):
        generator, buffer = random.Random(seed), []
        for record in records:
            buffer.append(record)
            if len(buffer) == buffer_size:
                yield buffer.pop(draw(generator, len(buffer)))
        generator.shuffle(buffer)
        yield from buffer

    return shuffle_buffer


@pytest.mark.parametrize(
    "draw",
    [
        lambda g, n: g.randrange(n - 1) if n > 1 else 0,
        lambda g, n: g.randint(1, n - 1) if n > 1 else 0,
        lambda g, n: min(g.randrange(n), g.randrange(n)),
        lambda g, n: round(g.random() * (n - 1)),
        lambda g, n: int(n * g.random() ** 2),
    ],
    ids=["never the newest", "never the oldest", "smaller of two", "rounded", "squared"],
)
def test_a_buffer_with_favourites_is_refused(draw):
    status, mistake, text = judged("datasets-5", _buffered(draw))
    assert (status, mistake) == ("wrong", "favours_some_places") and "times, with a buffer of 5; it should be" in text


@pytest.mark.parametrize("rest, mistake", [(0, "forgets_what_is_left"), (None, "leaves_what_is_left_in_its_order")])
def test_what_is_left_in_a_buffer_that_was_filled_first_is_known(rest, mistake):
    def shuffle_buffer(records, buffer_size, seed):
        generator, buffer = random.Random(seed), []
        for record in records:
            if len(buffer) < buffer_size:
                buffer.append(record)
                continue
            place = generator.randrange(buffer_size)
            yield buffer[place]
            buffer[place] = record
        yield from buffer[:rest]

    assert judged("datasets-5", shuffle_buffer)[:2] == ("wrong", mistake)


def test_a_draw_past_the_end_is_recognised():
    assert judged("datasets-5", _buffered(lambda g, n: g.randint(0, n)))[1] == "draws_a_place_past_the_end"


def test_holding_the_whole_stream_is_told_although_the_buffer_has_no_part_in_it():
    def holds_all(records, buffer_size, seed):
        everything = list(records)
        random.Random(seed).shuffle(everything)
        yield from everything

    assert judged("datasets-5", holds_all)[1] == "reads_the_whole_stream_first"


def test_a_rest_that_is_only_turned_is_not_shuffled():
    def turns(records, buffer_size, seed):
        generator, buffer = random.Random(seed), []
        for record in records:
            buffer.append(record)
            if len(buffer) == buffer_size:
                yield buffer.pop(generator.randrange(buffer_size))
        start = [int(generator.random() * len(buffer)) for _ in range(2)][1]
        yield from buffer[start:] + buffer[:start]

    status, mistake, text = judged("datasets-5", turns)
    assert (status, mistake) == ("wrong", None) and "4 of 24; it should be: all 24" in text


def test_a_buffer_that_always_gives_its_oldest_record_mixes_nothing():
    def oldest(records, buffer_size, seed):
        buffer = list(islice(records, buffer_size))
        for record in records:
            yield buffer.pop(0)
            buffer.append(record)
        yield from random.Random(seed).sample(buffer, len(buffer))

    assert "the first 10 to come: the first 10 of the stream" in judged("datasets-5", oldest)[2]


# datasets-6: records


def test_joining_all_chunks_first_is_right():
    def joined(chunks):
        return [line.removesuffix("\r") for line in b"".join(chunks).decode().split("\n") if line.strip("\r")]

    assert judged("datasets-6", joined)[0] == "right"


def test_a_rest_that_is_also_kept_as_a_record_is_shown():
    def keeps(chunks):
        records, rest = [], b""
        for chunk in chunks:
            lines = (rest + chunk).split(b"\n")
            records, rest = records + lines, lines[-1]
        return [line.decode().strip() for line in records if line]

    assert "expected ['cat', 'dog'], got ['cat', 'do', 'dog']" in judged("datasets-6", keeps)[2]


def _lines(chunks):
    return b"".join(chunks).split(b"\n")


@pytest.mark.parametrize(
    "records, mistake",
    [
        (lambda chunks: [x.decode().strip() for x in _lines(chunks) if x.strip()], "strips_the_records"),
        (lambda chunks: [x.rstrip(b"\r").decode() for x in _lines(chunks) if x.rstrip(b"\r")], "strips_the_records"),
        (lambda chunks: [x.removesuffix(b"\r").decode() for x in _lines(chunks) if x],
         "looks_for_empty_lines_too_early"),
        (lambda chunks: [x for c in chunks for x in c.decode().splitlines() if x], "splits_each_chunk_by_itself"),
        (lambda chunks: [x.decode().strip() for c in chunks for x in c.split(b"\n")], "splits_each_chunk_by_itself"),
        (lambda chunks: "".join(str(c) for c in chunks).split("\n"), "takes_bytes_for_text"),
        (lambda chunks: "".join(chunks).split("\n"), "takes_bytes_for_text"),
        (lambda chunks: b"".join(chunks).decode().splitlines(), "delivers_empty_lines"),
    ],
    ids=["strip", "rstrip", "empty too early", "text of a chunk", "bytes of a chunk", "str", "join", "splitlines"],
)  # fmt: skip
def test_records_that_are_nearly_right_are_refused(records, mistake):
    assert judged("datasets-6", lambda chunks: records(chunks))[:2] == ("wrong", mistake)


def test_the_answer_takes_a_sign_off_only_where_a_record_ends():
    assert exercises_of("datasets")["datasets-6"].answer([b"cat\r\ndog\r"]) == ["cat", "dog\r"]
