"""What readers of chapter 04 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import multiprocessing
import random
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, get_worker_info

from course_utils.collate import collate_boxes, pad_sequences
from course_utils.exercises import answer
from course_utils.exercises.loaders_position_facts import load_ahead
from course_utils.exercises.loaders_streams import Augmented, Worker
from course_utils.exercises.machinery import exercises_of, find
from course_utils.loader_memory import batch_bytes, loader_memory_mib
from course_utils.randomness import derive_seed
from course_utils.worker_choice import WorkerTimes, choose_workers
from tests.reader_answers import judged, lines_in_hints

IDS = [f"loaders-{number}" for number in range(1, 7)]


def test_chapter_04_has_six_exercises_of_three_levels():
    levels = [e.difficulty for e in exercises_of("loaders").values()]
    assert list(exercises_of("loaders")) == IDS
    assert sorted(levels) == ["easy", "easy", "hard", "medium", "medium", "medium"]


@pytest.mark.parametrize("id", IDS)
def test_hints_do_not_hold_the_answer_and_the_stub_shows_an_example(id):
    exercise = find(id)
    assert lines_in_hints(exercise, longer_than=30) == []
    assert "return" not in " ".join(exercise.hints) and any(
        mark in exercise.stub for mark in ("give", "are yielded", "are\n    170")
    )


# loaders-1


def _by_pad_sequence(captions, padding_value):
    values = pad_sequence(captions, batch_first=True, padding_value=padding_value)
    mask = torch.zeros_like(values, dtype=torch.bool)
    for row, caption in zip(mask, captions, strict=True):
        row[: len(caption)] = True
    return values, [len(caption) for caption in captions], mask


def _by_lists(captions, padding_value):
    width = max(len(caption) for caption in captions)
    rows = [caption.tolist() + [padding_value] * (width - len(caption)) for caption in captions]
    lengths = torch.tensor([len(caption) for caption in captions], dtype=torch.int32)
    return torch.tensor(rows, dtype=captions[0].dtype), lengths, torch.arange(width) < lengths[:, None]


def _by_numpy(captions, padding_value):
    lengths = np.array([caption.numel() for caption in captions])
    width = int(lengths.max())
    pads = [torch.nn.functional.pad(c, (0, width - len(c)), value=padding_value) for c in captions]
    return [torch.stack(pads), lengths, torch.from_numpy(np.arange(width) < lengths[:, None])]


def _by_the_module(captions, padding_value):
    return pad_sequences(captions, padding_value=padding_value)


@pytest.mark.parametrize("pads", [_by_pad_sequence, _by_lists, _by_numpy, _by_the_module])
def test_every_sound_padding_is_right(pads):
    assert judged("loaders-1", pads)[0] == "right"


def _zeros_and_a_float_mask(captions, padding_value):
    width = max(len(caption) for caption in captions)
    values, mask = torch.zeros(len(captions), width), torch.zeros(len(captions), width)
    for place, caption in enumerate(captions):
        values[place, : len(caption)], mask[place, : len(caption)] = caption, 1
    return values, torch.tensor([len(caption) for caption in captions]), mask


def _everything_off_the_values(captions, padding_value):
    values = torch.full((len(captions), max(len(caption) for caption in captions)), padding_value)
    for place, caption in enumerate(captions):
        values[place, : len(caption)] = caption
    mask = values != padding_value
    return values, mask.sum(1), mask


def _tokens_first(captions, padding_value):
    values, lengths = pad_sequence(captions, padding_value=padding_value), torch.tensor([len(c) for c in captions])
    return values, lengths, torch.arange(values.shape[1]) < lengths[:, None]


def _to_16(captions, padding_value):
    rows = [torch.nn.functional.pad(c, (0, 16 - len(c)), value=padding_value) for c in captions]
    lengths = torch.tensor([len(c) for c in captions])
    return torch.stack(rows), lengths, torch.arange(16) < lengths[:, None]


def _lengths_off_the_values(captions, padding_value):
    values = pad_sequence(captions, batch_first=True, padding_value=padding_value)
    lengths = (values != padding_value).sum(1)
    return values, lengths, torch.arange(values.shape[1]) < lengths.unsqueeze(1)


def _by_lists_without_a_dtype(captions, padding_value):
    values, lengths, mask = _by_lists(captions, padding_value)
    return torch.tensor(values.tolist()), lengths, mask


def _float_lengths(captions, padding_value):
    values, _, mask = _by_lists(captions, padding_value)
    return values, mask.float().sum(dim=1), mask


def _stacked(captions, padding_value):
    return torch.stack(captions), [len(c) for c in captions], torch.ones(len(captions), len(captions[0]), dtype=bool)


@pytest.mark.parametrize(
    "pads, mistake, words",
    [
        (_zeros_and_a_float_mask, "makes_another_dtype", "expected dtype torch.int64, got dtype torch.float32"),
        (_everything_off_the_values, "reads_the_mask_off_the_values", "of [0, 3, 0], padded with 0, one token"),
        (_tokens_first, "puts_the_tokens_first", "unless it is told batch_first=True"),
        (_stacked, "stacks_the_captions", "got [2] at entry 0 and [1] at entry 1"),
        (lambda c, p: _by_lists(sorted(c, key=len), p), "sorts_the_captions", "no longer stand in the same row"),
        (lambda c, p: _by_lists([x for x in c if len(x)], p), "drops_empty_captions", "a row of padding"),
        (lambda c, p: _to_16(c, p), "pads_to_a_fixed_length", "the longest caption of the batch"),
        (_lengths_off_the_values, "reads_the_mask_off_the_values", "Lengths come from the captions"),
        (_by_lists_without_a_dtype, "makes_another_dtype", "float32 where all are empty"),
        (_float_lengths, "gives_float_lengths", "expected whole numbers, got floats: [2.0, 1.0]"),
    ],
)
def test_captions_padded_otherwise_or_with_two_mistakes_are_told_one(pads, mistake, words):
    status, found, text = judged("loaders-1", lambda captions, padding_value: pads(captions, padding_value))
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda v, n, m: (v.numpy(), n, m), "the values: expected a tensor of shape (2, 2)"),
        (lambda v, n, m: (v.tolist(), n, m), "the values: expected a tensor of shape (2, 2)"),
        (lambda v, n, m: (v, m, n), "the lengths: at [0]: expected a number, got a list"),
        (lambda v, n, m: (v, n, torch.arange(v.shape[1]) <= n[:, None]), "the mask: at [1, 1]: expected False, got"),
        (lambda v, n, m: (v, [float(length) for length in n], m), "the lengths: expected whole numbers, got floats"),
        (lambda v, n, m: v, "expected a tuple (the values, the lengths, the mask), got a tensor"),
        (lambda v, n, m: (v, len(n), m), "the lengths: expected a list, got a number"),
    ],
    ids=["NumPy", "lists", "another order", "one too many", "float lengths", "values alone", "one length"],
)
def test_padding_that_is_nearly_right_is_told_what_differs(change, words):
    status, _, text = judged("loaders-1", lambda captions, padding_value: change(*_by_lists(captions, padding_value)))
    assert status == "wrong" and words in text


def test_captions_that_are_lengthened_in_the_list_itself_are_told():
    def lengthens(captions, padding_value):
        padded = _by_lists(captions, padding_value)
        captions[:] = list(padded[0])
        return padded

    assert "changed its argument captions" in judged("loaders-1", lengthens)[2]


# loaders-2


@pytest.mark.parametrize(
    "collate",
    [
        collate_boxes,
        lambda examples: (torch.stack([image for image, _ in examples]), tuple(t for _, t in examples)),
        lambda examples: (torch.cat([image[None] for image, _ in examples]), [dict(t) for _, t in examples]),
        lambda examples: [torch.from_numpy(np.stack([i.numpy() for i, _ in examples])), [t for _, t in examples]],
    ],
    ids=["the tested version", "a tuple of targets", "cat of one-photo batches", "by NumPy"],
)
def test_every_sound_batch_of_photos_is_right(collate):
    assert judged("loaders-2", lambda examples: collate(examples))[0] == "right"


def _filled_by_hand(examples):
    most = max(len(target["boxes"]) for _, target in examples)
    boxes = torch.zeros(len(examples), most, 4)
    for place, (_, target) in enumerate(examples):
        boxes[place, : len(target["boxes"])] = target["boxes"]
    return torch.stack([image for image, _ in examples]), boxes


@pytest.mark.parametrize(
    "collate, mistake, words",
    [
        (torch.utils.data.default_collate, "stacks_the_boxes", "ends the run, in the middle of an epoch"),
        (_filled_by_hand, "pads_the_boxes", "label 0 is a class"),
        (lambda examples: list(zip(*examples, strict=True)), "leaves_the_images_in_a_list", "a convolution takes one"),
        (lambda examples: examples, "returns_the_examples", "unpacks the first two photos"),
        (lambda e: (torch.stack([i for i, _ in e]), torch.cat([t["boxes"] for _, t in e])),
         "joins_the_boxes_of_all_photos", "to which photo a box belongs"),
    ],
)  # fmt: skip
def test_batches_that_people_make_first_are_recognised(collate, mistake, words):
    status, found, text = judged("loaders-2", lambda examples: collate(examples))
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda images, targets: (images.float(), targets), "expected dtype torch.uint8, got dtype torch.float32"),
        (lambda images, targets: {"images": images, "targets": targets}, "(the images, the targets), got a dict"),
        (lambda images, targets: (images.flip(0), targets[::-1]), "the images: at [0, 0, 0, 0]: expected 0, got 20"),
        (lambda images, targets: (images.numpy(), targets), "the images: expected a tensor of shape (2, 3, 2, 2)"),
        (lambda images, targets: (targets, images), "the images: expected a tensor of shape (2, 3, 2, 2)"),
        (lambda images, targets: images, "expected a tuple (the images, the targets), got a tensor"),
    ],
    ids=["floats", "a dict", "turned round", "NumPy", "exchanged", "images alone"],
)
def test_batches_that_are_nearly_right_are_told_what_differs(change, words):
    status, _, text = judged("loaders-2", lambda examples: change(*collate_boxes(examples)))
    assert status == "wrong" and words in text


def test_boxes_that_are_cut_in_the_examples_themselves_are_told():
    def cuts(examples):
        for _, target in examples:
            target["boxes"] = target["boxes"][:1]
        return collate_boxes([(i, {"boxes": t["boxes"], "labels": t["labels"][:1]}) for i, t in examples])

    assert "changed its argument examples" in judged("loaders-2", cuts)[2]


# loaders-3


def _with_enumerate(load, num_batches, position):
    epoch, first = position["epoch"], position["batch"]
    for number, batch in enumerate(load(epoch, range(first, num_batches)), first):
        position["batch"] = number + 1
        if position["batch"] == num_batches:
            position["epoch"], position["batch"] = epoch + 1, 0
        yield batch


def _with_next(load, num_batches, position):
    left = num_batches - position["batch"]
    batches = iter(load(position["epoch"], list(range(position["batch"], num_batches))))
    while left:
        batch, left = next(batches), left - 1
        position["batch"] = (position["batch"] + 1) % num_batches
        position["epoch"] += left == 0
        yield batch


def _one_number_at_a_time(load, num_batches, position):
    epoch = position["epoch"]
    for number in range(position["batch"], num_batches):
        (batch,) = load(epoch, [number])
        position["epoch"], position["batch"] = divmod(epoch * num_batches + number + 1, num_batches)
        yield batch


def _through_an_inner_generator(load, num_batches, position):
    def inner():
        yield from _with_enumerate(load, num_batches, position)

    return inner()


@pytest.mark.parametrize("fn", [_with_enumerate, _with_next, _through_an_inner_generator])
def test_every_position_that_counts_at_hand_over_is_right(fn):
    assert judged("loaders-3", fn)[0] == "right"


class _Iterator:
    def __init__(self, load, num_batches, position):
        self.load, self.num_batches, self.position, self.batches = load, num_batches, position, None

    def __iter__(self):
        return self

    def __next__(self):
        if self.batches is None:
            self.batches = self.load(self.position["epoch"], range(self.position["batch"], self.num_batches))
        batch = next(self.batches)
        more, self.position["batch"] = divmod(self.position["batch"] + 1, self.num_batches)
        self.position["epoch"] += more
        return batch


def test_an_iterator_of_ones_own_is_as_good_as_a_generator_and_its_mistakes_are_told():
    assert judged("loaders-3", lambda load, num_batches, position: _Iterator(load, num_batches, position))[0] == "right"
    lagging = lambda load, num_batches, position: _Iterator(load, num_batches, dict(position))  # noqa: E731
    assert judged("loaders-3", lagging)[1] == "never_moves_the_position"


def test_the_loader_of_the_exercise_reads_two_numbers_ahead():
    numbers = iter(range(5))
    assert next(load_ahead(0, numbers)) == (0, 0) and next(numbers) == 3


def _in_a_finally(load, num_batches, position):
    for batch in load(position["epoch"], range(position["batch"], num_batches)):
        try:
            yield batch
        finally:
            more, position["batch"] = divmod(position["batch"] + 1, num_batches)
            position["epoch"] += more


def _a_new_dict(load, num_batches, position):
    for batch in load(position["epoch"], range(position["batch"], num_batches)):
        position = {"epoch": position["epoch"], "batch": position["batch"] + 1}
        yield batch


def _wrapped_behind_its_yield(load, num_batches, position):
    for batch in load(position["epoch"], range(position["batch"], num_batches)):
        position["batch"] += 1
        yield batch
        if position["batch"] == num_batches:
            position.update(epoch=position["epoch"] + 1, batch=0)


def _greater_than(load, num_batches, position):
    for batch in load(position["epoch"], range(position["batch"], num_batches)):
        position["batch"] += 1
        if position["batch"] > num_batches:
            position.update(epoch=position["epoch"] + 1, batch=0)
        yield batch


def _counted_by_the_sampler(load, num_batches, position):
    class Numbers:
        def __iter__(self):
            for number in range(position["batch"], num_batches):
                position["batch"] = number + 1
                yield number

    yield from load(position["epoch"], Numbers())
    position.update(epoch=position["epoch"] + 1, batch=0)


def _skips_what_was_handed_over(load, num_batches, position):
    epoch, first = position["epoch"], position["batch"]
    for number, batch in enumerate(load(epoch, range(num_batches))):
        if number < first:
            continue
        position["epoch"], position["batch"] = divmod(epoch * num_batches + number + 1, num_batches)
        yield batch


def _moves_and_then_takes(load, num_batches, position):
    batches = load(position["epoch"], range(position["batch"], num_batches))
    for number in range(position["batch"], num_batches):
        position["batch"] = number + 1
        if position["batch"] == num_batches:
            position.update(epoch=position["epoch"] + 1, batch=0)
        yield next(batches)


def _counted_before_the_call(load, num_batches, position):
    position["epoch"] += 1
    return load(position["epoch"] - 1, range(position["batch"], num_batches))


def _one_more_than_needed(load, num_batches, position):
    pairs = pairwise([*load(position["epoch"], range(position["batch"], num_batches)), None])
    for batch, following in pairs:
        position["batch"] += 1
        if following is None:
            position.update(epoch=position["epoch"] + 1, batch=0)
        yield batch


def _epoch_behind_the_loop(load, num_batches, position):
    for batch in load(position["epoch"], range(position["batch"], num_batches)):
        position["batch"] = 0 if position["batch"] + 1 == num_batches else position["batch"] + 1
        yield batch
    position["epoch"] += 1


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_in_a_finally, "counts_after_the_yield", "the resumed run trains on it a second time"),
        (_a_new_dict, "never_moves_the_position", "[(0, 0), (0, 0), (0, 0)]"),
        (_wrapped_behind_its_yield, "wraps_after_the_last_step", "an epoch without a batch"),
        (_greater_than, "never_wraps", "a loop over 10 epochs trains for one"),
        (_counted_by_the_sampler, "counts_the_numbers_that_were_read", "three are counted"),
        (_one_number_at_a_time, "starts_a_loader_for_each_batch", "nothing is made ahead"),
        (_skips_what_was_handed_over, "makes_the_old_batches_again", "made once more"),
        (_moves_and_then_takes, "counts_before_the_batch_is_there", "where making the first batch raises"),
        (_counted_before_the_call, "counts_before_the_batch_is_there", "at the call, or before `next`"),
        (_one_more_than_needed, "fetches_a_batch_ahead", "batches taken from load, with the first one in hand: 3"),
        (_epoch_behind_the_loop, "wraps_after_the_last_step", "an epoch without a batch"),
    ],
)
def test_positions_that_people_keep_first_are_recognised(fn, mistake, words):
    status, found, text = judged("loaders-3", fn)
    assert (status, found) == ("wrong", mistake) and words in text


def _into_the_next_epochs(load, num_batches, position):
    while True:
        yield from _with_enumerate(load, num_batches, position)


def _numbers_too(load, num_batches, position):
    yield from enumerate(_with_enumerate(load, num_batches, position))


def _tensors(load, num_batches, position):
    for batch in load(position["epoch"], range(position["batch"], num_batches)):
        position["epoch"], position["batch"] = map(torch.as_tensor, (position["epoch"], position["batch"] + 1))
        if position["batch"] == num_batches:
            position.update(epoch=position["epoch"] + 1, batch=torch.tensor(0))
        yield batch


def _swallows_the_error(load, num_batches, position):
    try:
        yield from _with_enumerate(load, num_batches, position)
    except Exception:
        return


def _one_iterator_for_ever(load, num_batches, position):
    batches = position.setdefault("batches", load(position["epoch"], range(position["batch"], num_batches)))
    for batch in batches:
        more, position["batch"] = divmod(position["batch"] + 1, num_batches)
        position["epoch"] += more
        yield batch


def _taken_back_at_a_break(load, num_batches, position):
    before = dict(position)
    for batch in _with_enumerate(load, num_batches, position):
        try:
            yield batch
        except GeneratorExit:
            position.update(before)
            raise


def _another_key(load, num_batches, position):
    for batch in load(position["epoch"], range(position["batch"], num_batches)):
        position["count"] += 1
        yield batch


@pytest.mark.parametrize(
    "fn, status, words",
    [
        (_into_the_next_epochs, "wrong", "the batches, as (epoch, number): [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]"),
        (_numbers_too, "wrong", "the batches, as (epoch, number): [(0, (0, 0))"),
        (_tensors, "wrong", "('0 as Tensor', '1 as Tensor')"),
        (_swallows_the_error, "wrong", "the error of load did not come out"),
        (_one_iterator_for_ever, "wrong", "called again after the last batch, it yields: []"),
        (_taken_back_at_a_break, "wrong", "after a `break` at the first batch, the position: (0, 0)"),
        (_another_key, "raised", 'KeyError: \'count\' line'),
    ],
)  # fmt: skip
def test_positions_that_are_nearly_right_are_told_what_differs(fn, status, words):
    found, _, text = judged("loaders-3", fn)
    assert found == status and words in text


# loaders-4


def _by_a_loop(turn_ms, floor_ms):
    for number in sorted(turn_ms):
        if turn_ms[number] / min(turn_ms.values()) <= 1.05:
            return [number, "compute-bound" if turn_ms[number] / floor_ms - 1 <= 0.1 else "data-bound"]


def _by_arrays(turn_ms, floor_ms):
    numbers, turns = np.array(list(turn_ms)), np.array(list(turn_ms.values()))
    number = numbers[turns <= 1.05 * turns.min()].min()
    return number, ["compute-bound", "data-bound"][int(turn_ms[int(number)] > 1.1 * floor_ms)]


def _by_choose_workers(turn_ms, floor_ms):
    choice = choose_workers([WorkerTimes(number, turn) for number, turn in turn_ms.items()], floor_ms)
    return choice.num_workers, choice.verdict


@pytest.mark.parametrize("decide", [_by_a_loop, _by_arrays, _by_choose_workers])
def test_every_sound_choice_is_right(decide):
    assert judged("loaders-4", decide)[0] == "right"


def _argmin_by_the_table(turn_ms, floor_ms):
    number = min(turn_ms, key=turn_ms.get)
    return number, "compute-bound" if number == 0 else "data-bound"


def _from_zero_upwards(turn_ms, floor_ms):
    number, best = 0, turn_ms[0]
    for other in sorted(turn_ms):
        if turn_ms[other] <= 0.95 * best:
            number, best = other, turn_ms[other]
    return number, "compute-bound" if best <= 1.1 * floor_ms else "data-bound"


def _without_workers(turn_ms, floor_ms):
    return _by_a_loop(turn_ms, floor_ms)[0], "compute-bound" if turn_ms[0] <= 1.1 * floor_ms else "data-bound"


def _as_many_as_there_are(turn_ms, floor_ms):
    return max(turn_ms), "compute-bound" if turn_ms[max(turn_ms)] <= floor_ms else "data-bound"


@pytest.mark.parametrize(
    "decide, mistake, words",
    [
        (_argmin_by_the_table, "takes_the_shortest_turn", "4 workers at 20.2 ms instead of 1 at 21.0"),
        (_from_zero_upwards, "compares_with_the_number_before", "and not with the shortest turn"),
        (_without_workers, "judges_the_turn_of_another_number", "14 % above its step of 10.0"),
        (_as_many_as_there_are, "takes_the_most_workers", "the number of workers: expected 2, got 4"),
    ],
)
def test_choices_with_two_mistakes_are_told_that_of_the_number(decide, mistake, words):
    status, found, text = judged("loaders-4", decide)
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda number, verdict: (number, verdict.replace("-", " ")), "expected 'compute-bound', got 'compute bound'"),
        (lambda number, verdict: (number, verdict == "compute-bound"), "the verdict: expected a string, got a bool"),
        (lambda number, verdict: (verdict, number), "(the number of workers, the verdict) in this order, got a tuple"),
        (lambda number, verdict: (str(number), verdict), "the number of workers: expected a number, got a string"),
        (lambda number, verdict: (number, verdict, "x"), "got 3 results: (2, 'compute-bound', 'x')"),
        (lambda number, verdict: number, "(the number of workers, the verdict), got a number: 2"),
    ],
    ids=["spelling", "a bool", "exchanged", "text", "three", "the number alone"],
)
def test_choices_that_are_nearly_right_are_told_what_differs(change, words):
    status, _, text = judged("loaders-4", lambda turn_ms, floor_ms: change(*_by_a_loop(turn_ms, floor_ms)))
    assert status == "wrong" and words in text


def test_a_number_that_must_win_over_the_shortest_turn_fails_with_its_line():
    def decide(turn_ms, floor_ms):
        return min(number for number, turn in turn_ms.items() if turn < 0.95 * min(turn_ms.values())), "data-bound"

    status, _, text = judged("loaders-4", decide)
    assert status == "raised" and "of your code: return min(number for number" in text


# loaders-5


@pytest.mark.parametrize(
    "count",
    [
        lambda each, ahead, pinned: each + ahead * each + (each if pinned and ahead else 0),
        lambda each, ahead, pinned: np.int64(each) * (1 + ahead + [0, 1][pinned and ahead > 0]),
        lambda each, ahead, pinned: float(each * (ahead + 1 + pinned)) if ahead else each,
    ],
    ids=["sums", "NumPy", "a float that is whole"],
)
def test_every_sound_count_of_bytes_is_right(count):
    def bytes_ahead(batch, num_workers, prefetch_factor, pin_memory):
        return count(sum(tensor.nbytes for tensor in batch), num_workers * (prefetch_factor or 0), pin_memory)

    assert judged("loaders-5", bytes_ahead)[0] == "right"


@pytest.mark.parametrize("settings", [(2, 2, False), (3, 1, True), (0, 1, True)])
def test_the_answer_is_what_the_module_counts_and_the_batch_in_hand(settings):
    batch = (torch.zeros(8, 3, 16, 16, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64))
    num_workers, prefetch_factor, pin_memory = settings
    ahead = loader_memory_mib(batch, num_workers=num_workers, prefetch_factor=prefetch_factor, pin_memory=pin_memory)
    assert answer("loaders-5")(batch, *settings) == ahead * 2**20 + batch_bytes(batch)


def _bytes_of(tensors):
    return sum(tensor.nbytes for tensor in tensors)


@pytest.mark.parametrize(
    "count, mistake, words",
    [
        (lambda b, w, p, pin: w * p * sum(t.nbytes for t in b), "forgets_the_batch_in_hand", "expected 170, got 136"),
        (lambda b, w, p, pin: _bytes_of(b) * (w * p + 1 + bool(pin and w)), "stumbles_over_no_workers", "None"),
        (lambda b, w, p, pin: _bytes_of(t[0] for t in b) * w * (p or 0) + _bytes_of(b) * (1 + (pin and w > 0)),
         "takes_prefetch_factor_for_examples", "Workers hold whole batches"),
        (lambda b, w, p, pin: 0 if w == 0 else sum(t.nbytes for t in b) * (w * p + 1 + pin),
         "forgets_the_batch_in_hand", "expected 34, got 0"),
        (lambda b, w, p, pin: sum(t.nbytes for t in b) * (w * (p or 0) * (1 + pin) + 1),
         "counts_every_batch_twice_if_pinned", "expected 204, got 306"),
        (lambda b, w, p, pin: sum(t.nbytes for t in b) * (w * (p or 0) + 1 + pin),
         "counts_a_pinned_copy_without_workers", "expected 264, got 528"),
        (lambda b, w, p, pin: sum(t.numel() for t in b) * w * (p or 0), "counts_numbers", "not bytes"),
        (lambda b, w, p, pin: b[0].nbytes * (w * (p or 0) + 1), "counts_the_first_tensor_only", "48 of 264 bytes"),
    ],
    ids=["the first try", "None", "examples", "nothing without workers", "pinned twice", "pinned without workers",
         "numbers ahead", "images ahead"],
)  # fmt: skip
def test_bytes_that_people_count_first_are_recognised(count, mistake, words):
    def bytes_ahead(batch, num_workers, prefetch_factor, pin_memory):
        return count(batch, num_workers, prefetch_factor, pin_memory)

    status, found, text = judged("loaders-5", bytes_ahead)
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "count, status, words",
    [
        (lambda each, w, p, pin: each * (w * 2 + 1 + pin), "wrong", "prefetch_factor=5"),
        (lambda each, w, p, pin: each * (w * p + 1 + 2 * pin) if w else each, "wrong", "expected 204, got 238"),
        (lambda each, w, p, pin: each * (w + 1) * (p or 1) + pin * each, "wrong", "expected 170, got 204"),
        (lambda each, w, p, pin: f"{each * (w * (p or 0) + 1)} bytes", "wrong", "expected a number, got a string"),
        (lambda each, w, p, pin: each * (w * (p or 0) + 1) // (not pin), "raised", "ZeroDivisionError"),
    ],
    ids=["always 2", "two pinned", "the loop as a worker", "text", "an error"],
)
def test_bytes_that_are_nearly_right_are_told_what_differs(count, status, words):
    def bytes_ahead(batch, num_workers, prefetch_factor, pin_memory):
        return count(sum(tensor.nbytes for tensor in batch), num_workers, prefetch_factor, pin_memory)

    found, _, text = judged("loaders-5", bytes_ahead)
    assert found == status and words in text


def test_a_batch_that_is_changed_while_it_is_counted_is_told():
    def adds_up_in_place(batch, *settings):
        batch[0].add_(1)
        return answer("loaders-5")(batch, *settings)

    given = lambda batch, num_workers, prefetch_factor, pin_memory: adds_up_in_place(  # noqa: E731
        batch, num_workers, prefetch_factor, pin_memory
    )
    assert "changed its argument batch" in judged("loaders-5", given)[2]


# loaders-6


def _replaces(info):
    info.dataset.torch_rng = torch.Generator().manual_seed(info.seed)
    info.dataset.numpy_rng = np.random.RandomState(info.seed & 0xFFFFFFFF)


def _by_a_seed_sequence(info):
    first, second = np.random.SeedSequence([info.seed, info.id]).generate_state(2)
    info.dataset.torch_rng.manual_seed(int(first))
    info.dataset.numpy_rng.seed(second)


def _by_derived_seeds(info):
    info.dataset.torch_rng.manual_seed(derive_seed(info.seed, "torch"))
    info.dataset.numpy_rng.seed(derive_seed(info.seed, "numpy") % 2**32)


def _by_the_initial_seed(info):
    info.dataset.torch_rng.manual_seed(torch.initial_seed())
    info.dataset.numpy_rng.seed(torch.initial_seed() % 2**32)


def _adds_the_id_once_more(info):  # needless, and no mistake: the sums differ as the seeds do
    info.dataset.torch_rng.manual_seed(torch.initial_seed() + info.id)
    info.dataset.numpy_rng.seed((torch.initial_seed() + info.id) % 2**32)


@pytest.mark.parametrize(
    "fn", [_replaces, _by_a_seed_sequence, _by_derived_seeds, _by_the_initial_seed, _adds_the_id_once_more]
)
def test_every_sound_stream_is_right(fn):
    assert judged("loaders-6", fn)[0] == "right"


def _in_local_variables(info):
    rng = torch.Generator().manual_seed(info.seed)
    numpys = np.random.RandomState(info.seed % 2**32)
    return None if rng and numpys else None


def _seconds(info):
    info.dataset.torch_rng.manual_seed(int(time.time()) // 1000)
    info.dataset.numpy_rng.seed(int(time.time()) // 1000)


def _nanoseconds(info):
    info.dataset.torch_rng.manual_seed(time.time_ns())
    info.dataset.numpy_rng.seed(time.time_ns() % 2**32)


def _initial_seed_for_numpy(info):
    info.dataset.numpy_rng = np.random.RandomState(torch.initial_seed() + info.id)


def _all_but_worker_0(info):
    if info.id:
        _replaces(info)


def _numpy_by_the_id(info):
    info.dataset.torch_rng.manual_seed(info.seed)
    info.dataset.numpy_rng.seed(info.id)


def _drawn(info):
    info.dataset.torch_rng.manual_seed(random.getrandbits(60))
    info.dataset.numpy_rng.seed(random.getrandbits(32))


def _a_thousand_seeds(info):
    info.dataset.torch_rng.manual_seed(info.seed % 1000)
    info.dataset.numpy_rng.seed(info.seed % 1000)


def _at_most_the_largest(info):
    info.dataset.torch_rng.manual_seed(min(info.seed, 2**32 - 1))
    info.dataset.numpy_rng.seed(min(info.seed, 2**32 - 1))


def _outside_a_worker(info):
    get_worker_info().dataset.torch_rng.manual_seed(0)


def _sixteen_bits(info):
    info.dataset.torch_rng.manual_seed(info.seed % 65536)
    info.dataset.numpy_rng.seed(info.seed % 65536)


def _a_number_is_awaited(worker_id):
    np.random.seed((torch.initial_seed() + worker_id) % 2**32)


def _under_another_name(info):
    info.dataset.own = np.random.RandomState(info.seed % 2**32)


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_in_local_variables, "leaves_the_copies_alike", "1 of 4 different; it should be: all different"),
        (_seconds, "leaves_the_copies_alike", "All workers draw the same numbers"),
        (_nanoseconds, "seeds_from_the_clock", "no run can be repeated"),
        (
            _initial_seed_for_numpy,
            "leaves_the_range_of_numpy_seeds",
            "the worker dies with a ValueError before its first batch",
        ),
        (_all_but_worker_0, "leaves_worker_0_alike", "1 of 10 different"),
        (_numpy_by_the_id, "seeds_with_the_id_alone", "numpy_rng, the streams of worker 0 in 10 epochs"),
        (_a_thousand_seeds, "keeps_too_few_seeds", "of 10 different; it should be: all different"),
        (_sixteen_bits, "keeps_too_few_seeds", "repeats a stream of another epoch"),
        (_at_most_the_largest, "keeps_too_few_seeds", "streams of worker 0 in 10 epochs: 3 of 10 different"),
        (_outside_a_worker, "asks_for_the_info_itself", "The info is handed to you"),
        (_a_number_is_awaited, "takes_the_info_for_a_number", "of which info.id is the number"),
        (_under_another_name, "gives_the_dataset_something_new", "the dataset got: a new own"),
        (_drawn, "takes_seeds_from_a_global_generator", "Python's is drawn from"),
    ],
)
def test_streams_that_people_give_first_are_recognised(fn, mistake, words):
    status, found, text = judged("loaders-6", fn)
    assert (status, found) == ("wrong", mistake) and words in text


def _the_global_ones_in_their_place(info):
    info.dataset.torch_rng, info.dataset.numpy_rng = torch.default_generator, np.random


def _calls_what_is_no_function(info):
    info.dataset.torch_rng.manual_seed(info.seed())


@pytest.mark.parametrize(
    "fn, status, words",
    [
        (_the_global_ones_in_their_place, "wrong", "Generator and module; it should be: Generator and RandomState"),
        (_calls_what_is_no_function, "raised", "'int' object is not callable line"),
    ],
)
def test_streams_that_are_nearly_right_are_told_what_differs(fn, status, words):
    found, mistake, text = judged("loaders-6", fn)
    assert (found, mistake) == (status, None) and words in text


def test_the_remainder_taken_too_early_fails_only_near_the_border():
    def early(info):
        info.dataset.torch_rng.manual_seed(info.seed)
        info.dataset.numpy_rng.seed(info.seed % 2**32 + info.id)

    assert early(Worker(3, 4, 103, Augmented())) is None
    assert judged("loaders-6", early)[1] == "takes_the_remainder_too_early"


def test_the_global_generators_are_as_they_were_after_a_check_of_streams():
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()
    judged("loaders-6", _drawn)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), np.random.get_state()[1].tobytes()) == before[1:]


class _Draws(Augmented):
    """Each example is a draw from the dataset's own generators."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        drawn = torch.randint(2**31, (), generator=self.torch_rng)
        return torch.stack([drawn, torch.tensor(self.numpy_rng.randint(2**31 - 1))])


def _started_by_a_real_worker(worker_id):
    answer("loaders-6")(get_worker_info())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.parametrize("init, num_streams", [(None, 2), (_started_by_a_real_worker, 4)], ids=["copies", "answer"])
def test_in_real_workers_the_copies_are_alike_and_the_answer_parts_them(init, num_streams, nothing_is_left):
    """2 workers make 2 batches of 2: as copies, both have the same 2 draws."""
    loader = DataLoader(_Draws(), batch_size=2, num_workers=2, worker_init_fn=init, multiprocessing_context="fork")
    draws = torch.cat(list(loader))
    assert len(draws[:, 0].unique()) == len(draws[:, 1].unique()) == num_streams
