"""The exercise of chapter 03 about weights for a long tail."""

from __future__ import annotations

import math
from collections import Counter

from course_utils.exercises.declare import exercise


def _chances(weights, targets: list) -> list[float] | dict:
    """The chance of each example to be drawn: weights count by their proportions alone."""
    if isinstance(weights, dict):
        return weights
    weights = [float(weight) for weight in weights]
    total = sum(weights)
    return [weight / total for weight in weights] if 0 < total < math.inf else weights


@exercise(
    "sampling-2",
    title="Weights that balance the classes",
    difficulty="easy",
    minutes=6,
    cases=[([0, 1],), ([0, 0, 0, 1],), ([1, 0, 0],), ([0, 0, 2],), ([3, 3],), ([0, 0, 0, 0, 1, 1, 2, 2],)],
    expected=[
        [1 / 2, 1 / 2],
        [1 / 6, 1 / 6, 1 / 6, 1 / 2],
        [1 / 2, 1 / 4, 1 / 4],
        [1 / 4, 1 / 4, 1 / 2],
        [1 / 2, 1 / 2],
        [1 / 12, 1 / 12, 1 / 12, 1 / 12, 1 / 6, 1 / 6, 1 / 6, 1 / 6],
    ],
    observe=_chances,
    keep_arguments=True,
    describe=lambda targets: f"example_weights(targets={targets}), as the chance of each example to be drawn",
    hints=[
        "Of three cats and one dog, a cat and a dog are to be drawn equally often. How much more often than each "
        "single cat must the dog be drawn?",
        "An example's weight is 1 / (number of examples of its class): the weights of a class then add up to 1, "
        "whatever its size.",
        "counts = Counter(targets), and one weight for each target, in the order of the targets.",
    ],
    lesson="Equally often holds on average, with replacement: the photos of a rare class come again and again.",
)
def example_weights(targets: list) -> list:
    """Weights for WeightedRandomSampler with which every class is drawn equally often.

    targets : the class of each example, at least one; a number may be missing, as 1 in [0, 0, 2]
    returns : a weight for each *example*, in the order of the targets. Only their proportions
              matter. Examples of one class have the same weight
    """
    counts = {target: targets.count(target) for target in targets}
    return [1 / counts[target] for target in targets]


@example_weights.wrong
def gives_one_weight_a_class(targets):
    """One weight for each class: WeightedRandomSampler accepts the list, takes it for the weights of the first
    examples, and never draws any other. With 10 classes an "epoch" is made of 10 photos."""
    counts = Counter(targets)
    return [1 / counts[name] for name in sorted(counts)]


@example_weights.form_of("gives_one_weight_a_class")
def gives_one_weight_a_class_and_none_to_absent_ones(targets):
    counts = Counter(targets)
    return [1 / counts[name] if counts[name] else 0.0 for name in range(max(targets) + 1)]


@example_weights.form_of("gives_one_weight_a_class")
def gives_one_weight_a_class_and_inf_to_absent_ones(targets):
    counts = Counter(targets)
    return [1 / counts[name] if counts[name] else math.inf for name in range(max(targets) + 1)]


@example_weights.form_of("gives_one_weight_a_class")
def gives_a_dict_of_classes(targets):
    return {target: 1 / targets.count(target) for target in targets}


@example_weights.wrong
def weighs_all_alike(targets):
    """All weights are equal: that is drawing with replacement, and the classes come as often as they are in the data.
    Nothing is balanced."""
    return [1 / len(targets) for _ in targets]


@example_weights.wrong
def weighs_by_the_size_of_the_class(targets):
    """The weight is the number, or the share, of examples of the class: the common class is drawn more often still, by
    the square of its size. It has to be one divided by it."""
    return [targets.count(target) / len(targets) for target in targets]


@example_weights.wrong
def subtracts_the_share(targets):
    """1 - share favours rare classes, but balances two at most: of 4, 2 and 2 examples, the classes are drawn as
    4 * 0.5 to 2 * 0.75 to 2 * 0.75, the common one still most often. Divide by the count."""
    return [1 - targets.count(target) / len(targets) for target in targets]


@example_weights.wrong
def weakens_the_balance(targets):
    """The square root (or the logarithm) of the count makes the classes more alike, not equally frequent. That is a way
    between the two, used on very long tails; here full balance is asked for."""
    return [targets.count(target) ** -0.5 for target in targets]


@example_weights.wrong
def stumbles_over_an_absent_class(targets):
    """Every number up to the largest is taken for a class with examples. One that has none divides by zero, and the run
    ends before it began: a split of a long tail often lacks a rare class."""
    counts = [targets.count(name) for name in range(max(targets) + 1)]
    weights = [1 / count for count in counts]
    return [weights[target] for target in targets]


@example_weights.wrong
def sorts_the_weights_by_class(targets):
    """The weights stand in the order of the classes, not of the examples: they are right only where the targets are
    sorted, and elsewhere a dog's weight goes to a cat. Write one for each target, in its place."""
    return [1 / targets.count(target) for target in sorted(targets)]


@example_weights.wrong
def divides_without_a_rest(targets):
    """`//` cuts what is after the point: 4 // 3 is 1, as 4 // 4 is, and 1 // 3 is 0, an example that is never drawn.
    A weight is a fraction: divide with `/`."""
    return [len(targets) // targets.count(target) for target in targets]


@example_weights.form_of("divides_without_a_rest")
def divides_one_without_a_rest(targets):
    return [1 // targets.count(target) for target in targets]


@example_weights.form_of("divides_without_a_rest")
def divides_by_the_classes_without_a_rest(targets):
    return [len(targets) // (len(set(targets)) * targets.count(target)) for target in targets]
