"""The exercise of chapter 04 about captions of any length."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from course_utils.exercises.compare import as_number, difference, is_array
from course_utils.exercises.declare import exercise
from course_utils.exercises.wording import short


def _captions(tokens: list[list[int]], padding_value: int, dtype: str = "int64") -> tuple[list, int]:
    return [torch.tensor(caption, dtype=getattr(torch, dtype)) for caption in tokens], padding_value


def _described(tokens: list[list[int]], padding_value: int, dtype: str = "int64") -> str:
    return f"pad_captions({tokens}, padding_value={padding_value})" + f", captions of {dtype}" * (dtype != "int64")


def _lengths_as_list(result: Any, *_) -> Any:
    """Lengths may be a tensor, an array or a list: the same whole numbers are the same lengths."""
    if not isinstance(result, (tuple, list)) or len(result) != 3:
        return result
    values, lengths, mask = result
    return values, lengths.tolist() if is_array(lengths) and lengths.ndim == 1 else lengths, mask


def _padding_differs(expected: tuple, got: Any) -> str | None:
    """As `part_differs`; lengths that are floats are told, although 2.0 equals 2: nothing can be cut at 2.0."""
    found = part_differs(("the values", "the lengths", "the mask"), expected, got)
    if found or _has_floats(expected[1]) or not _has_floats(got[1]):
        return found
    return f"the lengths: expected whole numbers, got floats: {short(got[1])}"


def _has_floats(lengths: list) -> bool:
    return any(isinstance(as_number(length), float) for length in lengths)


def part_differs(parts: tuple[str, ...], expected: tuple, got: Any) -> str | None:
    """The first of the results that differs; that an array stands where a tensor should is told of this part alone."""
    if not isinstance(got, (tuple, list)) or len(got) != len(parts):
        return difference(expected, got, parts=parts)
    found = ((part, difference(*pair)) for part, *pair in zip(parts, expected, got, strict=True))
    return next((f"{part}: {words}" for part, words in found if words), None)


def _padded(values: list, lengths: list[int], dtype: torch.dtype = torch.int64) -> tuple:
    """By hand: rows of tokens, the lengths, and a mask with that many True in each row."""
    mask = [[place < length for place in range(len(values[0]))] for length in lengths]
    return torch.tensor(values, dtype=dtype), lengths, torch.tensor(mask, dtype=torch.bool)


@exercise(
    "loaders-1",
    title="Captions of any length",
    difficulty="easy",
    minutes=8,
    cases=[
        ([[5, 2], [7]], 0),
        ([[4], [0, 3, 0]], 0),
        ([[6], [], [8, 9]], -1),
        ([[1, 2, 3]], 9),
        ([[], []], 0),
        ([[3], [1, 2]], 7, "int32"),
    ],
    expected=[
        _padded([[5, 2], [7, 0]], [2, 1]),
        _padded([[4, 0, 0], [0, 3, 0]], [1, 3]),
        _padded([[6, -1], [-1, -1], [8, 9]], [1, 0, 2]),
        _padded([[1, 2, 3]], [3]),
        _padded([[], []], [0, 0]),
        _padded([[3, 7], [1, 2]], [1, 2], torch.int32),
    ],
    arrange=_captions,
    observe=_lengths_as_list,
    describe=_described,
    difference=_padding_differs,
    keep_arguments=True,
    imports="import torch",
    hints=[
        "Which of the three results can be read off the padded values, and which only off the captions as they came? "
        "Think of a caption that holds the padding value itself.",
        "Lengths first. Then a tensor full of padding_value, one row a caption and as wide as the longest "
        "(captions[0].new_full keeps the dtype), and each caption written over the begin of its row.",
        "The mask compares places with lengths: torch.arange(width) is (T,), lengths[:, None] is (B, 1), and `<` "
        "between them is (B, T).",
    ],
    lesson="Only the lengths know what is padding: a loss, a mean and attention all need the mask made of them.",
)
def pad_captions(captions: list, padding_value: int) -> tuple:
    """Captions of different lengths as one tensor, and what in it is their own.

    captions      : the batch, 1 or more tensors (length,) of whole numbers, all of one dtype. Some
                    or all may be empty, and a caption may hold the padding value as a token
    padding_value : what stands behind the end of a shorter caption
    returns       : (values, lengths, mask), T being the length of the longest:
                    values (B, T) of the captions' dtype, lengths (B,) of whole numbers,
                    mask (B, T) of bools, True where a token is the caption's own

    The captions [5, 2] and [7], with padding value 0, give the values [[5, 2], [7, 0]], the
    lengths [2, 1] and the mask [[True, True], [True, False]].
    """
    lengths = torch.tensor([len(caption) for caption in captions])
    values = captions[0].new_full((len(captions), int(lengths.max())), padding_value)
    for row, caption in zip(values, captions, strict=True):
        row[: len(caption)] = caption
    return values, lengths, torch.arange(values.shape[1]) < lengths[:, None]


def lengths_of(captions) -> torch.Tensor:
    return torch.tensor([len(caption) for caption in captions])


def values_of(captions, padding_value) -> torch.Tensor:
    return pad_sequence(captions, batch_first=True, padding_value=padding_value)


def mask_of(lengths: torch.Tensor, width: int) -> torch.Tensor:
    return torch.arange(width) < lengths[:, None]


def _right(captions, padding_value) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return pad_captions.answer(captions, padding_value)


@pad_captions.wrong
def stacks_the_captions(captions, padding_value):
    """torch.stack takes tensors of one shape only. This fails at the first batch with two different lengths, and until
    then it looks right: a batch of one always passes."""
    lengths = lengths_of(captions)
    values = torch.stack(captions)
    return values, lengths, mask_of(lengths, values.shape[1])


@pad_captions.form_of("stacks_the_captions")
def makes_a_tensor_of_the_captions(captions, padding_value):
    lengths = lengths_of(captions)
    values = torch.tensor([caption.tolist() for caption in captions])
    return values, lengths, mask_of(lengths, values.shape[1])


@pad_captions.wrong
def inverts_the_mask(captions, padding_value):
    """The mask is True at the padding: a mean over values[mask] is then a mean of padding, and the captions have no
    influence. True marks the caption's own tokens. (torch's key_padding_mask is the other way round: hand it ~mask.)"""
    values, lengths, mask = _right(captions, padding_value)
    return values, lengths, ~mask


@pad_captions.wrong
def measures_the_lengths_after_padding(captions, padding_value):
    """The lengths were taken of the padded rows, which are all equally long: beside [5, 2], the mean of [7] becomes
    7 / 2, and an LSTM reads the padding as text. Measure the captions as they came."""
    values, lengths, mask = _right(captions, padding_value)
    return values, torch.full_like(lengths, values.shape[1]), mask


@pad_captions.form_of("measures_the_lengths_after_padding")
def measures_lengths_and_mask_after_padding(captions, padding_value):
    values, lengths, mask = _right(captions, padding_value)
    return values, torch.full_like(lengths, values.shape[1]), torch.ones_like(mask)


@pad_captions.wrong
def reads_the_mask_off_the_values(captions, padding_value):
    """The mask, or the lengths, ask which values differ from the padding value. A caption that holds this value as a
    token loses it: of [0, 3, 0], padded with 0, one token of three is left. Lengths come from the captions, the mask
    from the lengths."""
    values, lengths, _ = _right(captions, padding_value)
    return values, lengths, values != padding_value


@pad_captions.form_of("reads_the_mask_off_the_values")
def reads_mask_and_lengths_off_the_values(captions, padding_value):
    values, _, _ = _right(captions, padding_value)
    mask = values != padding_value
    return values, mask.sum(dim=1), mask


@pad_captions.wrong
def pads_with_zero_always(captions, padding_value):
    """The padding is 0 whatever was asked for: where 0 is a word, every short caption now ends in that word, and an
    ignore_index that equals padding_value leaves it in the loss. Pass padding_value on."""
    _, lengths, mask = _right(captions, padding_value)
    return values_of(captions, 0), lengths, mask


@pad_captions.form_of("pads_with_zero_always")
def pads_with_zero_and_reads_the_mask_off(captions, padding_value):
    values = values_of(captions, 0)
    return values, lengths_of(captions), values != 0


@pad_captions.wrong
def pads_in_front(captions, padding_value):
    """The padding stands before the caption: `values[i, :lengths[i]]`, and whatever else counts from the front, reads
    padding in its place. It belongs behind the end."""
    values, lengths, mask = _right(captions, padding_value)
    for row, caption in zip(values, captions, strict=True):
        row[:] = padding_value
        row[values.shape[1] - len(caption) :] = caption
    return values, lengths, mask


@pad_captions.form_of("pads_in_front")
def pads_in_front_with_the_mask(captions, padding_value):
    values, lengths, mask = pads_in_front(captions, padding_value)
    return values, lengths, mask.flip(1)


@pad_captions.wrong
def cuts_to_the_shortest(captions, padding_value):
    """All captions are cut to the shortest one: the ends are lost, and one empty caption in the batch leaves nothing of
    all the others. Pad to the longest."""
    values, lengths, mask = _right(captions, padding_value)
    shortest = int(lengths.min())
    return values[:, :shortest], lengths, mask[:, :shortest]


@pad_captions.form_of("cuts_to_the_shortest")
def cuts_to_the_shortest_and_says_so(captions, padding_value):
    values, lengths, mask = cuts_to_the_shortest(captions, padding_value)
    return values, lengths.clamp(max=values.shape[1]), mask


@pad_captions.wrong
def drops_empty_captions(captions, padding_value):
    """Empty captions are left out, so the batch has fewer rows than photos: from there on each photo has the caption of
    the next one, or the sizes no longer fit. An empty caption is a row of padding, with length 0."""
    kept = [caption for caption in captions if len(caption)]
    if not kept:
        return captions[0].new_zeros(0, 0), lengths_of([]), torch.zeros(0, 0, dtype=torch.bool)
    return _right(kept, padding_value)


@pad_captions.wrong
def puts_the_tokens_first(captions, padding_value):
    """The values are (T, B): pad_sequence does that unless it is told batch_first=True. Row 0 holds the first token of
    every caption, so `values[0]` is no caption, and a mask of (B, T) does not fit it."""
    values, lengths, mask = _right(captions, padding_value)
    return values.T, lengths, mask


@pad_captions.form_of("puts_the_tokens_first")
def puts_the_tokens_first_in_the_mask_too(captions, padding_value):
    values, lengths, mask = _right(captions, padding_value)
    return values.T, lengths, mask.T


@pad_captions.wrong
def makes_another_dtype(captions, padding_value):
    """The values no longer have the captions' dtype: torch.zeros makes floats, with which no embedding can be indexed,
    torch.full int64, and torch.tensor of lists int64, but float32 where all are empty. captions[0].new_full(shape,
    value) keeps it."""
    values, lengths, mask = _right(captions, padding_value)
    return values.float(), lengths, mask


@pad_captions.form_of("makes_another_dtype")
def makes_int64_always(captions, padding_value):
    values, lengths, mask = _right(captions, padding_value)
    return values.long(), lengths, mask


@pad_captions.wrong
def makes_the_mask_of_numbers(captions, padding_value):
    """A mask of 0 and 1 is an index, not a mask: values[mask] picks rows 0 and 1 again and again instead of the places
    that are True (with floats it raises). Make it of bools: a comparison does."""
    values, lengths, mask = _right(captions, padding_value)
    return values, lengths, mask.long()


@pad_captions.wrong
def loses_a_batch_of_one(captions, padding_value):
    """squeeze() takes the first dimension of a batch of one away: the last batch of an epoch, if a single example is
    left for it, has shape (T,) and ends the epoch with an error, after all the others went well."""
    values, lengths, mask = _right(captions, padding_value)
    return values.squeeze(), lengths, mask.squeeze()


@pad_captions.form_of("loses_a_batch_of_one")
def loses_the_values_of_a_batch_of_one(captions, padding_value):
    values, lengths, mask = _right(captions, padding_value)
    return values.squeeze(), lengths, mask


@pad_captions.wrong
def sorts_the_captions(captions, padding_value):
    """The captions are sorted by their length: caption and photo, or label, no longer stand in the same row. Where a
    recurrent network wants them sorted, pack_padded_sequence(..., enforce_sorted=False) does it and undoes it."""
    return _right(sorted(captions, key=len, reverse=True), padding_value)


@pad_captions.wrong
def pads_to_a_fixed_length(captions, padding_value):
    """The rows have a fixed length: short batches are mostly padding, which costs memory and time in every layer, and a
    longer caption does not fit. T is the length of the longest caption of the batch."""
    values = captions[0].new_full((len(captions), 5), padding_value)
    for row, caption in zip(values, captions, strict=True):
        row[: len(caption)] = caption
    return values, lengths_of(captions), mask_of(lengths_of(captions), 5)


@pad_captions.wrong
def marks_one_place_too_many(captions, padding_value):
    """The mask is True at one place too many in each row, the first of the padding: here stands `<=`. Places count from
    0, so a caption of length 2 has the places 0 and 1."""
    values, lengths, _ = _right(captions, padding_value)
    return values, lengths, torch.arange(values.shape[1]) <= lengths[:, None]


@pad_captions.wrong
def gives_float_lengths(captions, padding_value):
    """The lengths are floats: `row[:length]` and pack_padded_sequence take whole numbers only. A sum over a mask of
    floats, or a tensor made with a float dtype, gives them; len(caption) does not."""
    values, lengths, mask = _right(captions, padding_value)
    return values, lengths.float(), mask
