"""The exercise of chapter 01 about groups that lie in two parts of a split."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from course_utils.exercises.declare import exercise


@exercise(
    "datasets-3",
    title="Groups that leak",
    difficulty="easy",
    minutes=7,
    cases=[
        ([[0], [1]], ["a", "b"]),
        ([[0], [1]], ["a", "a"]),
        ([[0, 1], [2]], ["a", "a", "b"]),
        ([[0], [1]], ["a", "b", "a"]),
        ([[0], [1], [2]], ["a", "b", "a"]),
        ([[0], [1], [2]], ["b", "a", "a"]),
        ([[0], [1], [2]], ["a", "a", "a"]),
        ([[2, 0], [1, 3]], ["b", "b", "a", "a"]),
        ([[0, 1], [2, 3], [4, 5]], ["b", "a", "a", "c", "b", "c"]),
        ([[0], [0]], ["a"]),
        ([[], [0, 1]], ["a", "a"]),
        ([[0], [1], [0]], ["a", "b"]),
        ([[0, 1, 2], [3, 4, 5]], [9, 2, 16, 16, 2, 9]),
    ],
    expected=[[], ["a"], [], [], ["a"], ["a"], ["a"], ["a", "b"], ["a", "b", "c"], ["a"], [], ["a"], [2, 9, 16]],
    keep_arguments=True,
    hints=[
        "Two photos of one product are two positions and one group. Which groups does each part hold?",
        "{groups[position] for position in part} is the set of them. A group leaks if it is in two of these sets, "
        "whichever two: count the sets that hold it.",
        "sorted(group for group in set(groups) if sum(group in held for held in sets) > 1)",
    ],
    lesson="Disjoint positions prove nothing: the groups must be disjoint. assert_disjoint raises where they are not.",
)
def leaking_groups(parts: list, groups: list) -> list:
    """Groups that lie in two or more parts of a split.

    parts   : lists of positions: training, validation, test, or any other number of parts
    groups  : the group of each position: the product, patient or video that the example shows,
              as text or as a number. Some positions may be in no part
    returns : the groups as a list, sorted as they are, each once; empty for a split without a leak
    """
    sets = [{groups[position] for position in part} for part in parts]
    return sorted(group for group in set(groups) if sum(group in held for held in sets) > 1)


def _held(parts, groups) -> list[set]:
    return [{groups[position] for position in part} for part in parts]


def _pairwise(sets) -> set:
    return set().union(*(one & other for one, other in combinations(sets, 2)))


def _groups_of(groups, positions) -> list:
    return sorted({groups[position] for position in positions})


@leaking_groups.wrong
def compares_positions(parts, groups):
    """This asks whether a position is in two parts. random_split never does that, and leaks all the same: the second
    photo of a product has another position. Compare the groups."""
    return _groups_of(groups, _pairwise(map(set, parts)))


@leaking_groups.form_of("compares_positions")
def returns_positions_in_two_parts(parts, groups):
    return sorted(_pairwise(map(set, parts)))


@leaking_groups.form_of("compares_positions")
def compares_positions_of_all_parts(parts, groups):
    return _groups_of(groups, set.intersection(*map(set, parts)))


@leaking_groups.form_of("compares_positions")
def returns_positions_in_all_parts(parts, groups):
    return sorted(set.intersection(*map(set, parts)))


@leaking_groups.form_of("compares_positions")
def compares_positions_of_the_first_two_parts(parts, groups):
    return _groups_of(groups, set(parts[0]) & set(parts[1]))


@leaking_groups.form_of("compares_positions")
def returns_positions_in_the_first_two_parts(parts, groups):
    return sorted(set(parts[0]) & set(parts[1]))


@leaking_groups.wrong
def compares_the_first_two_parts_only(parts, groups):
    """Only the first two parts are compared. A third one, the test part, may share what it likes with them, and its
    figure is the one that is reported. Compare every two parts."""
    first, second = _held(parts, groups)[:2]
    return sorted(first & second)


@leaking_groups.wrong
def compares_neighbours_only(parts, groups):
    """Each part is compared with the next one: training with validation, validation with test. A group in training and
    test, the leak that flatters the final figure, is never seen."""
    held = _held(parts, groups)
    return sorted(set().union(*(one & other for one, other in zip(held, held[1:], strict=False))))


@leaking_groups.wrong
def compares_with_the_first_part_only(parts, groups):
    """Only the first part is compared with the others. A group in validation and test passes: what was chosen by the
    one is then confirmed by the other. Compare every two parts."""
    first, *others = _held(parts, groups)
    return sorted(set().union(*(first & other for other in others)))


@leaking_groups.wrong
def asks_for_groups_in_all_parts(parts, groups):
    """A group counts only if it is in *every* part. With three parts, one that is in two of them leaks as well, and is
    the common case."""
    return sorted(set.intersection(*_held(parts, groups)))


@leaking_groups.wrong
def counts_examples(parts, groups):
    """A group counts as soon as it has two examples. Two photos of one product in the *same* part are no leak: that is
    where they belong. Count parts, not examples."""
    counts = Counter(groups[position] for part in parts for position in part)
    return sorted(group for group, number in counts.items() if number > 1)


@leaking_groups.form_of("counts_examples")
def counts_all_examples(parts, groups):
    return sorted(group for group, number in Counter(groups).items() if number > 1)


@leaking_groups.wrong
def names_a_group_more_than_once(parts, groups):
    """A group in three parts is named two or three times, once for each time that it was met again: who counts the
    leaks counts too many. Collect them in a set."""
    return sorted(group for one, other in combinations(_held(parts, groups), 2) for group in one & other)


@leaking_groups.form_of("names_a_group_more_than_once")
def names_a_group_each_time_it_is_met_elsewhere(parts, groups):
    first: dict = {}
    pairs = [(groups[position], number) for number, part in enumerate(parts) for position in part]
    return sorted(group for group, number in pairs if first.setdefault(group, number) != number)


@leaking_groups.form_of("names_a_group_more_than_once")
def names_a_group_once_for_each_of_its_parts(parts, groups):
    leaking = leaking_groups.answer(parts, groups)
    return sorted(group for held in _held(parts, groups) for group in held if group in leaking)


@leaking_groups.form_of("names_a_group_more_than_once")
def names_a_group_for_each_of_its_examples(parts, groups):
    leaking = leaking_groups.answer(parts, groups)
    return sorted(groups[position] for part in parts for position in part if groups[position] in leaking)


@leaking_groups.wrong
def names_positions(parts, groups):
    """These are positions. Asked for are the groups, which tell whose photos lie on both sides; where a group has many
    examples, the positions are a long list of the same thing."""
    leaking = set(leaking_groups.answer(parts, groups))
    return sorted({position for part in parts for position in part if groups[position] in leaking})


@leaking_groups.wrong
def leaves_them_in_any_order(parts, groups):
    """The groups are right and not sorted: they stand as they were met, or as a set happens to hold them. Sort them
    into a list: the message of a failing test should be the same in every run, and the order of a set is not."""
    leaking = set(leaking_groups.answer(parts, groups))
    return list(dict.fromkeys(groups[p] for part in parts for p in part if groups[p] in leaking))


@leaking_groups.form_of("leaves_them_in_any_order")
def returns_a_set(parts, groups):
    return set(leaking_groups.answer(parts, groups))


@leaking_groups.form_of("leaves_them_in_any_order")
def returns_a_set_as_a_list(parts, groups):
    return list(_pairwise(_held(parts, groups)))


@leaking_groups.wrong
def sorts_numbers_as_text(parts, groups):
    """The groups are sorted as text, where 16 comes before 2. For names that is the order asked for; numbers are sorted
    as numbers. `sorted` without a key does both."""
    return sorted(leaking_groups.answer(parts, groups), key=str)
