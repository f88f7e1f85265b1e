"""Other forms of the mistakes with captions (`loaders_captions`), and two of them at once."""

from __future__ import annotations

import torch
from torch.nn.utils.rnn import pad_sequence

from course_utils.exercises.loaders_captions import lengths_of, mask_of, pad_captions, values_of

# Two of these at once, as they come: the one that shows in the earlier case is named.


def _three(values, mask, lengths=lambda captions, values, mask: lengths_of(captions)):
    def pads(captions, padding_value):
        made = values(captions, padding_value)
        marked = mask(made, lengths_of(captions), padding_value)
        return made, lengths(captions, made, marked), marked

    return pads


def _of_the_width(values, lengths, padding_value):
    return mask_of(lengths, values.shape[1])


def _of_the_height(values, lengths, padding_value):
    return mask_of(lengths, len(values))


def _unlike_padding(values, lengths, padding_value):
    return values != padding_value


def _unlike_zero(values, lengths, padding_value):
    return values != 0


def _as(dtype, mask=_of_the_width):
    return lambda *given: mask(*given).to(dtype)


def _not(mask=_of_the_width):
    return lambda *given: ~mask(*given)


def _sums(captions, values, mask):
    return mask.sum(dim=1)


def _zeros(captions, padding_value):
    return values_of(captions, 0).float()


def _floats(captions, padding_value):
    return values_of(captions, padding_value).float()


def _int64(captions, padding_value):
    return values_of(captions, padding_value).long()


_TWO_AT_ONCE = {
    "makes_another_dtype": [
        *(_three(_zeros, mask) for mask in (_of_the_width, _as(torch.float32), _as(torch.int64), _unlike_zero, _not())),
        *(_three(_floats, mask) for mask in (_as(torch.float32), _as(torch.int64), _unlike_padding, _not())),
        _three(_zeros, _unlike_zero, _sums),
    ],
    "puts_the_tokens_first": [
        _three(lambda captions, value: pad_sequence(captions, padding_value=value), _of_the_width),
        _three(lambda captions, value: pad_sequence(captions), _of_the_height),
        _three(lambda captions, value: pad_sequence(captions), _of_the_width),
    ],
    "makes_the_mask_of_numbers": [
        *(_three(values_of, _as(dtype)) for dtype in (torch.float32, torch.int32, torch.uint8)),
        *(_three(values_of, _as(dtype, _unlike_padding)) for dtype in (torch.float32, torch.int64)),
        _three(_int64, _as(torch.int64)),
    ],
    "inverts_the_mask": [_three(values_of, _not(_unlike_padding)), _three(_int64, _not())],
    "measures_the_lengths_after_padding": [
        _three(values_of, _unlike_padding, lambda captions, values, mask: [values.shape[1]] * len(captions))
    ],
    "reads_the_mask_off_the_values": [_three(_int64, _unlike_padding), _three(_int64, _unlike_padding, _sums)],
}
for _mistake, _forms in _TWO_AT_ONCE.items():
    for _form in _forms:
        pad_captions.form_of(_mistake)(_form)


# Captions that were sorted, dropped, or padded to another length


def _sorted(captions, padding_value, descending: bool):
    return pad_captions.answer(sorted(captions, key=len, reverse=descending), padding_value)


def _all_of_the_kept(captions, padding_value, values, lengths=None):
    """Without the empty captions; `values(kept)` decides how it ends where none is left."""
    kept = [caption for caption in captions if len(caption)]
    made = values(kept, padding_value)
    lengths = lengths_of(captions if lengths == "of all" else kept)
    return made, lengths, torch.arange(made.shape[1]) < lengths[:, None]


def _by_the_longest(kept, padding_value):
    values = kept[0].new_full((len(kept), max(len(caption) for caption in kept)), padding_value)
    for row, caption in zip(values, kept, strict=True):
        row[: len(caption)] = caption
    return values


def _width_first(kept, padding_value):
    width = max(len(caption) for caption in kept)
    rows = [torch.nn.functional.pad(caption, (0, width - len(caption)), value=padding_value) for caption in kept]
    return torch.stack(rows)


def _width_of_the_lengths(kept, padding_value):
    width = int(lengths_of(kept).max())
    return kept[0].new_full((len(kept), width), padding_value)


for _order in (True, False):
    pad_captions.form_of("sorts_the_captions")(lambda captions, value, order=_order: _sorted(captions, value, order))
for _make in (values_of, _by_the_longest, _width_first, _width_of_the_lengths):
    for _whose in (None, "of all"):
        pad_captions.form_of("drops_empty_captions")(
            lambda captions, value, make=_make, whose=_whose: _all_of_the_kept(captions, value, make, whose)
        )


@pad_captions.form_of("makes_another_dtype")
def makes_a_tensor_of_lists(captions, padding_value):
    values, lengths, mask = pad_captions.answer(captions, padding_value)
    return torch.tensor(values.tolist()), lengths, mask


@pad_captions.form_of("reads_the_mask_off_the_values")
def reads_the_lengths_off_the_values(captions, padding_value):
    values, _, mask = pad_captions.answer(captions, padding_value)
    return values, (values != padding_value).sum(dim=1), mask


@pad_captions.form_of("reads_the_mask_off_the_values")
def reads_the_lengths_off_and_makes_the_mask_of_them(captions, padding_value):
    values = values_of(captions, padding_value)
    lengths = (values != padding_value).sum(dim=1)
    return values, lengths, mask_of(lengths, values.shape[1])


for _width in (10, 16, 20, 32, 64):

    @pad_captions.form_of("pads_to_a_fixed_length")
    def pads_to_another_fixed_length(captions, padding_value, width=_width):
        values = captions[0].new_full((len(captions), width), padding_value)
        for row, caption in zip(values, captions, strict=True):
            row[: len(caption)] = caption
        return values, lengths_of(captions), mask_of(lengths_of(captions), width)
