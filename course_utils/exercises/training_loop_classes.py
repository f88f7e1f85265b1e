"""The exercise of chapter 05 about the figures of each class, out of the confusion matrices of batches."""

from __future__ import annotations

import math

import torch

from course_utils.exercises.declare import exercise

_ONE = [[[3, 1], [2, 4]]]
_CASES = [
    _ONE,
    [[[2, 0], [0, 0]], [[1, 1], [2, 4]]],
    [[[2, 1, 0], [0, 3, 0], [1, 1, 0]]],
    [[[2, 0, 1], [0, 0, 0], [0, 0, 5]]],
    [[[1, 0, 1], [0, 0, 0], [0, 0, 0]], [[0, 2, 0], [0, 0, 0], [0, 0, 5]], [[3, 0, 0], [0, 0, 0], [0, 0, 0]]],
    [[[0, 4], [0, 0]], [[0, 1], [0, 0]]],
    [[[0, 2], [1, 3]]],
]


def _matrices(*confusions: list) -> tuple:
    return ([torch.tensor(confusion) for confusion in confusions],)


@exercise(
    "training_loop-3",
    title="Every class by itself",
    difficulty="easy",
    minutes=10,
    cases=[tuple(confusions) for confusions in _CASES],
    expected=[
        ([3 / 4, 4 / 6], [3 / 5, 4 / 5], 7 / 10),
        ([3 / 4, 4 / 6], [3 / 5, 4 / 5], 7 / 10),
        ([2 / 3, 1.0, 0.0], [2 / 3, 3 / 5, None], 5 / 8),
        ([2 / 3, None, 1.0], [1.0, None, 5 / 6], 7 / 8),
        ([4 / 7, None, 1.0], [1.0, 0.0, 5 / 6], 9 / 12),
        ([0.0, None], [None, 0.0], 0.0),
        ([0.0, 3 / 4], [0.0, 3 / 5], 3 / 6),
    ],
    arrange=_matrices,
    parts=("the recalls", "the precisions", "the accuracy"),
    keep_arguments=True,
    describe=lambda *confusions: f"class_measures({list(confusions)})",
    hints=[
        "A share of shares is not the share of the whole: two of two in one batch and one of eight in the next are not "
        "0.56, but 3 of 10. What can be added over the batches?",
        "Add the matrices (into a new one). In the sum, confusion.sum(1) are the examples of each class, "
        "confusion.sum(0) the predictions of each class, confusion.diagonal() the right ones.",
        "Three lists of whole numbers, .tolist(), and zip: right / count if count else None. It is the divisor that "
        "decides: a class of which nothing was right has recall 0.",
    ],
    lesson="evaluate(...).per_class() gives the same. None says that nothing was asked, 0 that all answers were wrong.",
)
def class_measures(confusions: list) -> tuple:
    """Recall and precision of each class, and the accuracy, over a whole validation set.

    confusions : one confusion matrix a batch, 1 or more int64 tensors (C, C); the entry in row r
                 and column c counts the examples of class r that were predicted as class c
    returns    : (recalls, precisions, accuracy), over the examples of all batches together: two
                 lists with one entry a class, and a number
    recall     : which part of the examples of this class was predicted as it; None for a class
                 without an example
    precision  : which part of the predictions of this class was right; None for a class that was
                 never predicted
    accuracy   : which part of all examples was predicted right; there is at least one

    [[3, 1], [2, 4]]: class 0 has 3 + 1 examples and 3 + 2 predictions, 3 of them right, so that
    the result is ([3/4, 4/6], [3/5, 4/5], 7/10).
    """
    confusion = sum(confusions)
    right = confusion.diagonal().tolist()
    counts, predicted = confusion.sum(1).tolist(), confusion.sum(0).tolist()
    recalls = [r / n if n else None for r, n in zip(right, counts, strict=True)]
    precisions = [r / n if n else None for r, n in zip(right, predicted, strict=True)]
    return recalls, precisions, sum(right) / sum(counts)


def _shares(parts: list, wholes: list, nothing=None) -> list:
    return [part / whole if whole else nothing for part, whole in zip(parts, wholes, strict=True)]


def _sums(confusion) -> tuple[list, list, list]:
    """The right ones, the examples and the predictions of each class."""
    return confusion.diagonal().tolist(), confusion.sum(1).tolist(), confusion.sum(0).tolist()


def _measures(confusion, *, no_example=None, no_prediction=None) -> tuple[list, list, float]:
    right, counts, predicted = _sums(confusion)
    return (
        _shares(right, counts, no_example),
        _shares(right, predicted, no_prediction),
        sum(right) / max(sum(counts), 1),
    )


def _mean(values: list, nothing=None):
    """Of those that are there."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else nothing


def _over_batches(confusions, nothing=None) -> tuple[list, list, float]:
    each = [_measures(confusion, no_example=nothing, no_prediction=nothing) for confusion in confusions]
    recalls, precisions, accuracies = zip(*each, strict=True)
    means = ([_mean(column) for column in zip(*rows, strict=True)] for rows in (recalls, precisions))
    return *means, _mean(accuracies)


@class_measures.wrong
def averages_over_the_batches(confusions):
    """Shares of the batches are averaged: a batch with one example of a class weighs as much as one with fifty, so the
    figure moves with the batch size and the order. Add the counts first, and divide once."""
    return _over_batches(confusions)


@class_measures.form_of("averages_over_the_batches")
def averages_over_the_batches_with_zeros(confusions):
    return _over_batches(confusions, 0.0)


@class_measures.form_of("averages_over_the_batches")
def averages_over_the_batches_with_nan(confusions):
    return _over_batches(confusions, math.nan)


@class_measures.form_of("averages_over_the_batches")
def averages_the_accuracy_over_the_batches(confusions):
    recalls, precisions, _ = _measures(sum(confusions))
    return recalls, precisions, _over_batches(confusions)[2]


@class_measures.wrong
def reads_the_matrix_transposed(confusions):
    """Rows and columns are exchanged (or the two results): what is called recall is the precision. A model that calls
    everything a cat then seems to miss cats, and not to see them everywhere. Rows are what the examples are."""
    return _measures(sum(confusions).T)


@class_measures.form_of("reads_the_matrix_transposed")
def reads_the_matrix_transposed_and_gives_zeros(confusions):
    return _measures(sum(confusions).T, no_example=0.0, no_prediction=0.0)


@class_measures.form_of("reads_the_matrix_transposed")
def reads_the_matrix_transposed_and_gives_nan(confusions):
    return _measures(sum(confusions).T, no_example=math.nan, no_prediction=math.nan)


@class_measures.wrong
def gives_nan(confusions):
    """0 / 0 is NaN for a tensor, and one NaN makes every mean and every maximum over the classes NaN or nonsense, long
    after this line; JSON has no NaN at all. Nothing was asked here: None says so."""
    return _measures(sum(confusions), no_example=math.nan, no_prediction=math.nan)


@class_measures.wrong
def gives_zero_for_absent_classes(confusions):
    """A class without an example, or one that was never predicted, gets 0 (also by clamp(min=1) or a small number in
    the divisor): it looks like the worst class of all, though nothing was measured, and a mean over classes falls."""
    return _measures(sum(confusions), no_example=0.0, no_prediction=0.0)


@class_measures.form_of("gives_zero_for_absent_classes")
def gives_zero_for_classes_without_an_example(confusions):
    return _measures(sum(confusions), no_example=0.0)


@class_measures.form_of("gives_zero_for_absent_classes")
def gives_zero_for_classes_never_predicted(confusions):
    return _measures(sum(confusions), no_prediction=0.0)


@class_measures.wrong
def gives_one_for_absent_classes(confusions):
    """A class of which nothing was asked gets 1: it looks perfect, and a mean over classes rises with every class that
    the data lacks. None says that nothing was measured."""
    return _measures(sum(confusions), no_example=1.0, no_prediction=1.0)


@class_measures.wrong
def gives_none_where_nothing_was_right(confusions):
    """Where nothing was right there is None, the sign for "not measured". A class whose examples were *all* missed has
    recall 0: it is the one to look at, and here it is hidden. Ask whether the divisor is 0."""
    right, counts, predicted = _sums(sum(confusions))
    recalls, precisions = ([r / n if r else None for r, n in zip(right, ns, strict=True)] for ns in (counts, predicted))
    return recalls, precisions, sum(right) / sum(counts)


@class_measures.wrong
def gives_none_for_both(confusions):
    """Where one of the two is missing, both are None. A class that has examples and was never predicted has recall 0
    and no precision: the worst result there is, and here it is hidden. Each has a divisor of its own."""
    recalls, precisions, accuracy = _measures(sum(confusions))
    there = [None not in pair for pair in zip(recalls, precisions, strict=True)]
    return *([v if t else None for v, t in zip(vs, there, strict=True)] for vs in (recalls, precisions)), accuracy


@class_measures.wrong
def drops_absent_classes(confusions):
    """Classes of which nothing was asked are left out: the lists are shorter, and behind the gap each value stands for
    the class before it. Keep one entry a class."""
    recalls, precisions, accuracy = _measures(sum(confusions))
    return *([value for value in values if value is not None] for values in (recalls, precisions)), accuracy


@class_measures.form_of("drops_absent_classes")
def drops_classes_without_an_example(confusions):
    right, counts, predicted = _sums(sum(confusions))
    rows = [row for row in zip(right, counts, predicted, strict=True) if row[1]]
    recalls, precisions = [r / n for r, n, _ in rows], [r / p if p else None for r, _, p in rows]
    return recalls, precisions, sum(right) / sum(counts)


@class_measures.wrong
def fails_for_absent_classes(confusions):
    """Plain numbers divided by 0 are an error: the run ends in the evaluation of the first set that lacks a class, or
    of the first model that never predicts one. Say what is due there, None."""
    right, counts, predicted = _sums(sum(confusions))
    pairs = [(right, counts), (right, predicted)]
    return *([r / n for r, n in zip(*pair, strict=True)] for pair in pairs), sum(right) / sum(counts)


@class_measures.wrong
def takes_the_mean_recall_for_the_accuracy(confusions):
    """The accuracy is the mean of the classes' figures, where each class weighs the same: a fair measure of another
    thing, the balanced accuracy. Asked for is the part of the examples that was right."""
    recalls, precisions, _ = _measures(sum(confusions))
    return recalls, precisions, _mean(recalls)


@class_measures.form_of("takes_the_mean_recall_for_the_accuracy")
def takes_the_mean_precision_for_the_accuracy(confusions):
    recalls, precisions, _ = _measures(sum(confusions))
    return recalls, precisions, _mean(precisions)


@class_measures.wrong
def divides_by_all_examples(confusions):
    """Every class is divided by all examples: a class of which all ten were found, among a thousand others, seems to be
    found one time in a hundred. The recall's divisor is the row's sum, the precision's that of the column."""
    right, counts, _ = _sums(sum(confusions))
    shares = [r / sum(counts) for r in right]
    return shares, shares, sum(right) / sum(counts)


@class_measures.wrong
def looks_at_one_batch(confusions):
    """Only the last batch counts (or the first): what came before it is forgotten, as where the matrix is made anew
    inside the loop. Add them up."""
    return _measures(confusions[-1])


@class_measures.form_of("looks_at_one_batch")
def looks_at_the_first_batch(confusions):
    return _measures(confusions[0])


@class_measures.wrong
def adds_into_the_first_batch(confusions):
    """The sum is made inside the first matrix: `total = confusions[0]` is no copy, and `total += ...` changes it.
    Whoever asks a second time, or looks at the batch, finds the whole epoch in it. Begin with zeros, or a clone."""
    total = confusions[0]
    for confusion in confusions[1:]:
        total += confusion
    return _measures(total)


@class_measures.wrong
def divides_whole_numbers(confusions):
    """`//` divides whole numbers: all shares below 1 are 0. The model seems to be perfect or useless."""
    right, counts, predicted = _sums(sum(confusions))
    recalls, precisions = (
        [r // n if n else None for r, n in zip(right, ns, strict=True)] for ns in (counts, predicted)
    )
    return recalls, precisions, sum(right) // sum(counts)


@class_measures.wrong
def gives_percent(confusions):
    """These are percent, 75 for 0.75. Shares are asked for; who multiplies by 100 for a table once more has 7500 %."""
    recalls, precisions, accuracy = _measures(sum(confusions))
    percent = ([None if v is None else 100 * v for v in values] for values in (recalls, precisions))
    return *percent, 100 * accuracy
