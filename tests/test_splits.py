"""`splits`: no group in two parts, sizes and classes near the fractions, copies found by content."""

import os
import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from course_utils.catalogue import make_catalogue, read_index, read_manifest
from course_utils.datasets import (
    ArrayDataset,
    ImageFolderDataset,
    assert_disjoint,
    exact_duplicates,
    group_split,
    hashed_part,
    load_fashion,
    merge_groups,
    scan_image_folder,
)
from course_utils.randomness import derive_seed

FRACTIONS = [(0.8, 0.2), (0.5, 0.5), (0.7, 0.15, 0.15), (0.25, 0.25, 0.25, 0.25), (1.0,)]


def assert_is_a_split(parts, groups, num_parts):
    assert len(parts) == num_parts and all(parts)
    assert sorted(position for part in parts for position in part) == list(range(len(groups)))
    assert_disjoint(parts, groups)


def imbalance(parts, fractions, targets):
    """Sum over parts and classes of the squared distance from the share, each class weighing the same."""
    totals = Counter(targets)
    counts = [Counter(targets[position] for position in part) for part in parts]
    shares = [(share * total - count[name]) ** 2 / total for count, share in zip(counts, fractions, strict=True)
              for name, total in totals.items()]  # fmt: skip
    return sum(shares)


def random_split(groups, fractions, seed):
    """Whole groups in an order drawn from the seed, a part filled before the next: what people write."""
    names = sorted(set(groups))
    random.Random(seed).shuffle(names)
    sizes, parts, part = Counter(groups), [[] for _ in fractions], 0
    filled, bound = 0, fractions[0] * len(groups)
    for name in names:
        if filled >= bound and part < len(parts) - 1:
            part, bound = part + 1, bound + fractions[part + 1] * len(groups)
        parts[part] += [position for position, group in enumerate(groups) if group == name]
        filled += sizes[name]
    return parts


def world(seed, num_groups=60):
    """Groups of 1 to 5 examples of one class each; classes fall as 1, 1/2, 1/3, ..."""
    rng = random.Random(seed)
    groups, targets = [], []
    for group in range(num_groups):
        target = rng.choices(range(5), weights=[1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])[0]
        for _ in range(rng.randint(1, 5)):
            groups.append(group)
            targets.append(target)
    return groups, targets


@settings(max_examples=150, deadline=None)
@given(
    groups=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    fractions=st.sampled_from(FRACTIONS),
    seed=st.integers(0, 2**40),
    with_targets=st.booleans(),
)
def test_parts_are_disjoint_complete_never_empty_and_hold_whole_groups(groups, fractions, seed, with_targets):
    targets = [position % 3 for position in range(len(groups))] if with_targets else None
    if len(set(groups)) < len(fractions):
        with pytest.raises(ValueError, match="as many groups at least"):
            group_split(groups, fractions=fractions, seed=seed, targets=targets)
        return
    parts = group_split(groups, fractions=fractions, seed=seed, targets=targets)
    assert_is_a_split(parts, groups, len(fractions))
    assert parts == [sorted(part) for part in parts]


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=30),
    fractions=st.sampled_from(FRACTIONS),
    seed=st.integers(0, 2**40),
)
def test_sizes_are_within_the_largest_group_of_the_fractions(sizes, fractions, seed):
    groups = [number for number, size in enumerate(sizes) for _ in range(size)]
    assume(len(sizes) >= 3 * len(fractions))
    parts = group_split(groups, fractions=fractions, seed=seed)
    off = [abs(len(part) - share * len(groups)) for part, share in zip(parts, fractions, strict=True)]
    assert max(off) <= max(sizes)


@settings(max_examples=50, deadline=None)
@given(num=st.integers(4, 80), fractions=st.sampled_from(FRACTIONS), seed=st.integers(0, 2**40))
def test_groups_of_one_example_give_the_fractions_to_within_one(num, fractions, seed):
    parts = group_split(range(num), fractions=fractions, seed=seed)
    off = [abs(len(part) - share * num) for part, share in zip(parts, fractions, strict=True)]
    assert max(off) <= 1


def test_without_groups_classes_are_divided_as_the_fractions_say():
    targets = [0] * 100 + [1] * 20 + [2] * 10
    parts = group_split(range(130), fractions=(0.8, 0.1, 0.1), seed=0, targets=targets)
    counts = [Counter(targets[position] for position in part) for part in parts]
    assert counts == [{0: 80, 1: 16, 2: 8}, {0: 10, 1: 2, 2: 1}, {0: 10, 1: 2, 2: 1}]


def test_classes_are_kept_better_than_by_every_one_of_20_random_splits_of_groups():
    fractions = (0.7, 0.15, 0.15)
    for seed in range(10):
        groups, targets = world(seed)
        ours = imbalance(group_split(groups, fractions=fractions, seed=seed, targets=targets), fractions, targets)
        others = [imbalance(random_split(groups, fractions, other), fractions, targets) for other in range(20)]
        assert ours < min(others)


def test_classes_of_one_example_each_do_not_all_go_to_one_part():
    parts = group_split(range(40), fractions=(0.5, 0.5), seed=0, targets=range(40))
    assert [len(part) for part in parts] == [20, 20]


def test_rare_classes_come_out_near_their_share_where_groups_mix_classes():
    """0.22 on average, over 40 worlds; 0.41 when an example of a rare class counts as little as a common one."""
    off, fractions = [], (0.7, 0.15, 0.15)
    for seed in range(40):
        rng = random.Random(seed)
        groups = [group for group in range(50) for _ in range(rng.randint(1, 8))]
        targets = rng.choices(range(4), weights=[1, 0.3, 0.1, 0.05], k=len(groups))
        parts = group_split(groups, fractions=fractions, seed=seed, targets=targets)
        off.append(imbalance(parts, fractions, targets))
    assert sum(off) / len(off) < 0.3


def test_a_part_misses_no_class_that_has_enough_groups():
    for seed in range(10):
        groups, targets = world(seed, num_groups=120)
        parts = group_split(groups, fractions=(0.8, 0.2), seed=seed, targets=targets)
        assert all({targets[position] for position in part} == set(range(5)) for part in parts)


def test_two_large_groups_do_not_leave_a_small_part_empty():
    parts = group_split([0] * 50 + [1] * 50, fractions=(0.9, 0.1), seed=0)
    assert sorted(map(len, parts)) == [50, 50]


def test_a_split_is_a_function_of_its_seed_also_in_a_new_process(fresh_python):
    call = "group_split(list('aabbccddeeffgg'), fractions=(0.5, 0.5), seed=7)"
    code = f"from course_utils.datasets import group_split; print({call})"
    here = group_split(list("aabbccddeeffgg"), fractions=(0.5, 0.5), seed=7)
    assert fresh_python.run(code).stdout.strip() == str(here)
    splits = {str(group_split(range(40), fractions=(0.5, 0.5), seed=seed)) for seed in range(20)}
    assert len(splits) == 20


def test_a_split_of_a_folder_does_not_depend_on_the_order_in_which_a_system_lists_it(tmp_path, monkeypatch):
    root = make_catalogue(tmp_path / "c", num_products=20, seed=1)
    listdir, found, listed = os.listdir, [], []
    for order in (sorted, lambda names: sorted(names, reverse=True)):
        monkeypatch.setattr(os, "listdir", lambda path, order=order: order(listdir(path)))
        scanned = [path for path, _ in scan_image_folder(root, decode=False).samples]
        by_hand = [f"{name}/{file}" for name in read_manifest(root)["classes"] for file in os.listdir(root / name)]
        for names, validation in ((scanned, found), (by_hand, listed)):
            groups = [name[:-6] for name in names]  # coat/00008 of coat/00008_1.jpg
            validation.append({names[i] for i in group_split(groups, fractions=(0.5, 0.5), seed=0)[1]})
    assert found[0] == found[1] and listed[0] != listed[1]


def test_a_split_draws_from_no_global_generator():
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist()
    group_split(range(40), fractions=(0.5, 0.5), seed=1)
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert np.random.get_state()[1].tolist() == before[2]


def test_tensors_arrays_and_lists_give_one_split():
    groups, targets = [0, 0, 1, 2, 2, 3, 4], [0, 0, 1, 1, 1, 0, 1]
    expected = group_split(groups, fractions=(0.5, 0.5), seed=3, targets=targets)
    for make in (torch.tensor, np.array, tuple):
        assert group_split(make(groups), fractions=(0.5, 0.5), seed=3, targets=make(targets)) == expected


@pytest.mark.parametrize("fractions", [(), (0.5, 0.6), (1.0, 0.0), (1.2, -0.2)])
def test_fractions_that_do_not_sum_to_1_are_refused(fractions):
    with pytest.raises(ValueError, match="more than 0 and sum to 1"):
        group_split(range(9), fractions=fractions, seed=0)


def test_a_number_of_targets_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="got 2 targets and 3 groups"):
        group_split([0, 1, 2], fractions=(0.5, 0.5), seed=0, targets=[0, 1])


def test_a_split_by_photo_of_the_catalogue_leaks_and_is_named(tmp_path):
    rows = read_index(make_catalogue(tmp_path / "c", num_products=20, seed=1))
    products = [row["product"] for row in rows]
    by_photo = group_split(range(len(rows)), fractions=(0.5, 0.5), seed=0)
    with pytest.raises(ValueError, match=r"group \d+ lies in parts 0 and 1"):
        assert_disjoint(by_photo, products)
    assert_disjoint(group_split(products, fractions=(0.5, 0.5), seed=0), products)


def test_a_position_in_two_parts_is_named():
    with pytest.raises(ValueError, match="group 'b' lies in parts 0 and 1"):
        assert_disjoint([[0, 1], [1]], ["a", "b"])


# --- copies ---


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    root = make_catalogue(tmp_path_factory.mktemp("messy") / "catalogue", num_products=14, seed=3, messy=True)
    return ImageFolderDataset(root, skip_problems=True, empty_classes="drop")


def test_the_planted_copies_are_found_and_nothing_else(messy):
    planted = {(row["of"], row["path"]) for row in read_manifest(messy.root)["planted"] if "of" in row}
    found = [[messy.path(index).relative_to(messy.root).as_posix() for index in alike]
             for alike in exact_duplicates(messy)]  # fmt: skip
    assert len(planted) == 2
    assert sorted(map(sorted, found)) == sorted(map(sorted, planted))


def test_with_its_copies_merged_a_split_of_the_messy_catalogue_shares_no_file(messy):
    products = [messy.path(index).stem.split("_")[0] for index in range(len(messy))]
    copies = exact_duplicates(messy)
    merged = merge_groups(products, copies)
    assert len(set(merged)) == len(set(products)) - 2
    for seed in range(10):
        parts = group_split(merged, fractions=(0.5, 0.5), seed=seed)
        assert_disjoint(parts, products)
        assert all(len({copy in part for copy in alike}) == 1 for alike in copies for part in parts)


def test_paths_as_strings_find_copies_across_two_folders(tmp_path):
    contents = {"train/a": b"1", "train/b": b"22", "test/c": b"1", "test/d": b"33", "test/e": b"1"}
    for name, content in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert exact_duplicates([str(tmp_path / name) for name in contents]) == [[0, 2, 4]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=30))
def test_copies_in_memory_are_those_with_equal_pixels(values):
    images = torch.tensor(values, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    dataset = ArrayDataset(images, torch.zeros(len(values), dtype=torch.int64), classes=["a"])
    expected = [[i for i, value in enumerate(values) if value == wanted] for wanted in dict.fromkeys(values)]
    assert exact_duplicates(dataset) == [alike for alike in expected if len(alike) > 1]


def test_equal_bytes_of_another_shape_or_dtype_are_no_copies():
    images = [torch.zeros(1, 2, 8), torch.zeros(1, 8, 2), torch.zeros(1, 2, 8, dtype=torch.int32), torch.zeros(1, 2, 8)]
    assert exact_duplicates([(image, 0) for image in images]) == [[0, 3]]


def test_the_embedded_part_holds_no_image_twice():
    assert exact_duplicates(load_fashion("test")) == []


@settings(max_examples=100, deadline=None)
@given(
    groups=st.lists(st.integers(0, 8), min_size=1, max_size=20),
    pairs=st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=8),
)
def test_merged_groups_are_the_connected_ones(groups, pairs):
    copies = [[a % len(groups), b % len(groups)] for a, b in pairs]
    label = list(range(len(groups)))  # the oracle: repeat until nothing changes
    for _ in groups:
        for a in range(len(groups)):
            for b in range(len(groups)):
                if groups[a] == groups[b] or [a, b] in copies or [b, a] in copies:
                    label[a] = label[b] = min(label[a], label[b])
    numbers = {name: number for number, name in enumerate(dict.fromkeys(label))}
    assert merge_groups(groups, copies) == [numbers[name] for name in label]


# --- a split by the name alone --------------------------------------------------------------------------------


def test_hashed_part_is_where_the_hash_of_the_name_falls():
    for name in ["bag", "coat", "", 7, -1, 10**30]:
        place = derive_seed("hashed_part", 3, name) / 2**63
        expected = 0 if place < 0.5 else 1 if place < 0.75 else 2
        assert hashed_part(name, fractions=(0.5, 0.25, 0.25), seed=3) == expected


def test_hashed_part_is_the_same_on_every_machine():
    found = [hashed_part(product, fractions=(0.5, 0.5), seed=0) for product in range(16)]
    assert found == [1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 1, 0]


def test_hashed_part_gives_each_part_about_its_share_of_many_groups():
    counts = Counter(hashed_part(name, fractions=(0.7, 0.2, 0.1), seed=1) for name in range(10_000))
    for part, share in enumerate((0.7, 0.2, 0.1)):
        assert abs(counts[part] / 10_000 - share) < 4 * (share * (1 - share) / 10_000) ** 0.5


def test_nothing_changes_sides_when_groups_come_by_hash_and_something_does_by_group_split():
    def by_hash(products):
        return {product: hashed_part(product, fractions=(0.75, 0.25), seed=0) for product in products}

    def whole(products):
        parts = group_split(products, fractions=(0.75, 0.25), seed=0)
        return {products[position]: number for number, part in enumerate(parts) for position in part}

    few, more = list(range(160)), list(range(161))
    assert all(by_hash(more)[product] == part for product, part in by_hash(few).items())
    assert any(whole(more)[product] != part for product, part in whole(few).items())


def test_hashed_part_depends_on_the_seed_and_on_the_type_of_the_name():
    def parts(names, seed):
        return [hashed_part(name, fractions=(0.5, 0.5), seed=seed) for name in names]

    assert parts(range(64), 0) != parts(range(64), 1)
    assert parts(range(64), 0) != parts(map(str, range(64)), 0)


def test_hashed_part_of_the_largest_hash_is_the_last_part_though_fractions_sum_to_less_by_rounding(monkeypatch):
    fractions = (0.1,) * 10
    assert sum(fractions) < 1
    monkeypatch.setattr("course_utils.splits.derive_seed", lambda *parts: 2**63 - 1)
    assert hashed_part("last", fractions=fractions, seed=0) == 9


@pytest.mark.parametrize("fractions", [(), (0.5, 0.4), (1.2, -0.2), (1.0, 0.0)])
def test_hashed_part_refuses_fractions_that_are_no_shares(fractions):
    with pytest.raises(ValueError, match="sum to 1"):
        hashed_part("bag", fractions=fractions, seed=0)


@pytest.mark.parametrize("name", [None, 1.5, True, np.int64(3), ("bag", 1)])
def test_hashed_part_refuses_a_name_that_is_neither_int_nor_str(name):
    with pytest.raises(TypeError, match="int or str"):
        hashed_part(name, fractions=(0.5, 0.5), seed=0)
