"""The exercise of chapter 03 about recall, the measure that a long tail needs."""

from __future__ import annotations

from course_utils.exercises.declare import exercise

_NAN = float("nan")


@exercise(
    "sampling-4",
    title="Recall of each class",
    difficulty="medium",
    minutes=8,
    cases=[
        ([0, 1], [0, 1], 2),
        ([0, 0, 0, 1], [0, 0, 0, 0], 2),
        ([0, 0, 1, 1], [0, 1, 1, 1], 2),
        ([0, 0, 0, 0, 1, 2], [0, 0, 0, 1, 1, 1], 3),
        ([0, 0, 2], [0, 2, 2], 3),
        ([1, 1], [1, 0], 3),
        ([0, 0, 0, 1], [0, 1, 1, 1], 2),
        ([], [], 2),
    ],
    expected=[
        [1.0, 1.0],
        [1.0, 0.0],
        [0.5, 1.0],
        [0.75, 1.0, 0.0],
        [0.5, _NAN, 1.0],
        [_NAN, 0.5, _NAN],
        [1 / 3, 1.0],
        [_NAN, _NAN],
    ],
    keep_arguments=True,
    hints=[
        "Of the examples that *are* cats, how many were called cats? Dogs that were called cats do not come in.",
        "For each class: the examples whose target it is, and among them those whose prediction is equal.",
        "A class without examples has nothing to divide by. 0.0 would say that all were missed; float('nan') says that "
        "it was not measured.",
    ],
    lesson="95 % accuracy and a recall of 0 go together where 95 % are one class: look at each class.",
)
def recall_per_class(targets: list, predictions: list, num_classes: int) -> list:
    """For each class the share of its examples that were recognised.

    targets     : the class of each example, a number from 0; perhaps there is no example
    predictions : the class that the model gave it, in the same order
    returns     : a number from 0 to 1 for each class 0 ... num_classes - 1, not rounded;
                  float("nan") for a class that no example has
    """
    recalls = []
    for name in range(num_classes):
        given = [p for t, p in zip(targets, predictions, strict=True) if t == name]
        recalls.append(given.count(name) / len(given) if given else float("nan"))
    return recalls


def _shares(targets, predictions, num_classes, whole, empty=_NAN, extra=lambda name, pairs: 0) -> list[float]:
    """Hits of each class divided by `whole(name, pairs)`; `empty` where there is nothing to divide by."""
    pairs = list(zip(targets, predictions, strict=True))
    shares = []
    for name in range(num_classes):
        hits, size = pairs.count((name, name)) + extra(name, pairs), whole(name, pairs)
        shares.append(hits / size if size else empty)
    return shares


def _accuracy(targets, predictions) -> float:
    hits = sum(t == p for t, p in zip(targets, predictions, strict=True))
    return hits / len(targets) if targets else _NAN


def _whole(name, pairs) -> int:
    return len(pairs)


def _of_class(name, pairs) -> int:
    return sum(target == name for target, _ in pairs)


def _others(name, pairs) -> int:
    return sum(t != name and p != name for t, p in pairs)


def _with_nan(targets, shares: list) -> list:
    return [share if name in targets else _NAN for name, share in enumerate(shares)]


@recall_per_class.wrong
def measures_precision(targets, predictions, num_classes):
    """This divides by how often the class was *predicted*: that is precision. A model that calls a rare class once, and
    rightly, has precision 1 in it, though it missed all others. Divide by the examples of the class."""
    return _shares(targets, predictions, num_classes, lambda name, pairs: sum(p == name for _, p in pairs))


@recall_per_class.form_of("measures_precision")
def measures_precision_and_says_zero(targets, predictions, num_classes):
    return _shares(targets, predictions, num_classes, lambda name, pairs: sum(p == name for _, p in pairs), 0.0)


@recall_per_class.wrong
def gives_the_accuracy_of_all(targets, predictions, num_classes):
    """Every class gets the accuracy of all examples together: three cats of four examples hide that every dog was
    missed. Look at the examples of one class at a time."""
    return [_accuracy(targets, predictions)] * num_classes


@recall_per_class.form_of("gives_the_accuracy_of_all")
def gives_the_accuracy_once(targets, predictions, num_classes):
    return _accuracy(targets, predictions)


@recall_per_class.form_of("gives_the_accuracy_of_all")
def gives_the_accuracy_of_all_and_fails_without_examples(targets, predictions, num_classes):
    return [sum(t == p for t, p in zip(targets, predictions, strict=True)) / len(targets)] * num_classes


@recall_per_class.form_of("gives_the_accuracy_of_all")
def gives_the_accuracy_once_and_fails_without_examples(targets, predictions, num_classes):
    return sum(t == p for t, p in zip(targets, predictions, strict=True)) / len(targets)


@recall_per_class.wrong
def divides_by_all_examples(targets, predictions, num_classes):
    """The hits are divided by the number of all examples, so a rare class can never get above its own share: these
    numbers add up to the accuracy. Divide by the examples of the class."""
    return _shares(targets, predictions, num_classes, _whole)


@recall_per_class.form_of("divides_by_all_examples")
def divides_by_all_examples_where_there_are_some(targets, predictions, num_classes):
    return _with_nan(targets, _shares(targets, predictions, num_classes, _whole))


@recall_per_class.form_of("divides_by_all_examples")
def divides_by_all_examples_and_fails_without(targets, predictions, num_classes):
    return [sum(t == p == name for t, p in zip(targets, predictions, strict=True)) / len(targets)
            for name in range(num_classes)]  # fmt: skip


@recall_per_class.wrong
def counts_the_other_classes_too(targets, predictions, num_classes):
    """What is rightly *not* called a dog counts as a hit for dogs: among many cats a model that never says dog gets
    nearly 1. Recall looks at the dogs only."""
    return _shares(targets, predictions, num_classes, _whole, extra=_others)


@recall_per_class.form_of("counts_the_other_classes_too")
def counts_the_other_classes_too_where_there_are_examples(targets, predictions, num_classes):
    return _with_nan(targets, _shares(targets, predictions, num_classes, _whole, extra=_others))


@recall_per_class.form_of("counts_the_other_classes_too")
def counts_the_other_classes_too_and_fails_without_examples(targets, predictions, num_classes):
    return [sum((t == name) == (p == name) for t, p in zip(targets, predictions, strict=True)) / len(targets)
            for name in range(num_classes)]  # fmt: skip


@recall_per_class.wrong
def calls_an_absent_class_missed(targets, predictions, num_classes):
    """A class without examples gets 0, as if all of them had been missed. The mean over classes falls, and by how much
    depends on the split. It was not measured: nan."""
    return _shares(targets, predictions, num_classes, _of_class, 0.0)


@recall_per_class.wrong
def calls_an_absent_class_perfect(targets, predictions, num_classes):
    """A class without examples gets 1, as if all of them had been found: the mean over classes rises with every class
    that the split lacks. It was not measured: nan."""
    return _shares(targets, predictions, num_classes, _of_class, 1.0)


@recall_per_class.wrong
def divides_by_zero(targets, predictions, num_classes):
    """A class without examples divides by zero: one class too rare for this split, and the whole evaluation stops. Give
    it float("nan")."""
    counts = [(sum(t == p == name for t, p in zip(targets, predictions, strict=True)), targets.count(name))
              for name in range(num_classes)]  # fmt: skip
    return [hits / size for hits, size in counts]


@recall_per_class.wrong
def leaves_absent_classes_out(targets, predictions, num_classes):
    """A class without examples is left out, so the list is shorter and all later classes move down: place 1 of it is
    no longer class 1. Keep the place, with nan in it."""
    return [recall for recall in recall_per_class.answer(targets, predictions, num_classes) if recall == recall]


@recall_per_class.wrong
def gives_percent(targets, predictions, num_classes):
    """The numbers are percents, 75 in place of 0.75. A share goes from 0 to 1; the sign % and its factor belong where
    it is printed, f"{recall:.0%}"."""
    return [100 * recall for recall in recall_per_class.answer(targets, predictions, num_classes)]


@recall_per_class.wrong
def gives_the_number_of_hits(targets, predictions, num_classes):
    """These are numbers of hits, not shares: 50 of 1,000 cats look better than 9 of 10 dogs. Divide by the examples of
    the class."""
    return [sum(t == p == name for t, p in zip(targets, predictions, strict=True)) for name in range(num_classes)]


@recall_per_class.form_of("gives_the_number_of_hits")
def gives_the_number_of_hits_where_there_are_examples(targets, predictions, num_classes):
    return _with_nan(targets, gives_the_number_of_hits(targets, predictions, num_classes))


@recall_per_class.wrong
def counts_the_classes_from_one(targets, predictions, num_classes):
    """The classes are counted from 1: place 0 holds the recall of class 1, and class 0 is left out. range(num_classes)
    begins with 0, as the targets of cross_entropy do."""
    return recall_per_class.answer(targets, predictions, num_classes + 1)[1:]


@recall_per_class.wrong
def rounds(targets, predictions, num_classes):
    """The numbers are rounded: a mean of them, or a difference between two runs, carries the error on. Round where they
    are printed, f"{recall:.2f}"."""
    return [round(recall, 2) for recall in recall_per_class.answer(targets, predictions, num_classes)]


@recall_per_class.form_of("rounds")
def rounds_to_three_places(targets, predictions, num_classes):
    return [round(recall, 3) for recall in recall_per_class.answer(targets, predictions, num_classes)]
