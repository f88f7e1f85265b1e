"""Chapter 03's experiment: what each sampler draws, counted by hand; the goal, reached by understanding alone."""

import html
import math
import re
from collections import Counter

import pytest
import torch

from course_utils.labs.sampling import (
    MOST_RATIO,
    MOST_UNSEEN,
    catalogue_labels,
    picture_of,
    reached,
    sampler_lab,
    words,
)
from course_utils.labs.sampling_draw import SAMPLERS, WORLD_SIZE, Draw, draw
from course_utils.sampling import EpochBatches

pytestmark = pytest.mark.usefixtures("no_run_is_left")

CLASSES = ("bag", "coat", "hat")
TARGETS = [0] * 6 + [1] * 4 + [2] * 2  # 12 examples, 6 : 4 : 2


def drawn(sampler, **how):
    return draw(TARGETS, CLASSES, sampler=sampler, **({"batch_size": 4} | how))


# --- what a draw is -------------------------------------------------------------------------------------------


def test_the_numbers_of_a_draw_are_those_counted_by_hand():
    made = Draw(TARGETS, CLASSES, [[[0, 1], [6, 6]], [[0, 10], [0]]], [0.0] * 3)
    assert made.drawn == [0, 1, 6, 6, 0, 10, 0] and made.counts == [4, 2, 1]
    assert (made.ratio, made.unseen, made.repeats) == (4.0, 12 - 4, 2)  # 6 twice in epoch 0, 0 twice in epoch 1


def test_a_class_that_was_not_drawn_makes_the_ratio_infinite_and_is_said():
    made = Draw(TARGETS, CLASSES, [[[0, 6]]], [0.0] * 3)
    assert made.ratio == math.inf and "infinite, a class is missing" in words(made)


@pytest.mark.parametrize(
    "sampler, alpha, expected",
    [
        ("sequential", 1.0, [6, 4, 2]),
        ("shuffle", 1.0, [6, 4, 2]),
        ("with replacement", 1.0, [6, 4, 2]),
        ("weighted", 0.0, [6, 4, 2]),
        ("weighted", 1.0, [4, 4, 4]),
        ("weighted", 2.0, [12 * 2 / 11, 12 * 3 / 11, 12 * 6 / 11]),  # shares 1/6 : 1/4 : 1/2
        ("undersampling", 1.0, [2, 2, 2]),
        (f"rank 0 of {WORLD_SIZE}", 1.0, [1.5, 1, 0.5]),
    ],
)
def test_the_expected_counts_are_those_worked_out_by_hand_and_the_mean_of_many_epochs(sampler, alpha, expected):
    assert drawn(sampler, alpha=alpha).expected == pytest.approx(expected)
    many = drawn(sampler, alpha=alpha, num_epochs=400)
    assert many.expected == pytest.approx([400 * count for count in expected])
    assert [count / 400 for count in many.counts] == pytest.approx(expected, abs=0.4)


def test_the_order_is_that_of_epoch_batches_with_the_same_arguments():
    made = drawn("shuffle", seed=3, num_epochs=2)
    oracle = EpochBatches(12, batch_size=4, seed=3)
    assert made.epochs == [[list(key.indices) for key in oracle.keys(epoch)] for epoch in (0, 1)]
    assert drawn("sequential").drawn == list(range(12))


@pytest.mark.parametrize("sampler", ["sequential", "shuffle"])
def test_without_replacement_an_epoch_has_everything_once(sampler):
    made = drawn(sampler, num_epochs=3)
    assert Counter(made.drawn) == dict.fromkeys(range(12), 3) and (made.unseen, made.repeats) == (0, 0)


def test_with_replacement_some_come_twice_and_some_never():
    made = drawn("with replacement")
    assert made.repeats == made.unseen > 0 and len(made.drawn) == 12


def test_undersampling_takes_two_of_each_class_and_others_in_the_next_epoch():
    made = drawn("undersampling", num_epochs=12)
    assert all(Draw(TARGETS, CLASSES, [batches], []).counts == [2, 2, 2] for batches in made.epochs)
    assert (made.ratio, made.repeats) == (1.0, 0) and drawn("undersampling").unseen == 6 > made.unseen


def test_a_rank_gets_a_quarter_of_every_global_batch():
    made = draw(TARGETS, CLASSES, sampler=f"rank 0 of {WORLD_SIZE}", batch_size=1)
    oracle = EpochBatches(12, batch_size=1, seed=0, rank=0, world_size=4)
    assert made.drawn == [index for key in oracle.keys(0) for index in key] and len(made.drawn) == 3


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sampler": "random"}, "one of sequential, shuffle, .*, got 'random'"),
        ({"classes": (*CLASSES, "shoe")}, r"every class needs an example.*\[6, 4, 2, 0\]"),
        ({"classes": CLASSES[:2]}, "every class needs an example"),
    ],
)
def test_a_draw_that_cannot_be_says_what_is_needed(changes, message):
    with pytest.raises(ValueError, match=message):
        draw(**({"targets": TARGETS, "classes": CLASSES, "sampler": "shuffle"} | changes))


def test_the_labels_are_those_of_the_catalogue_and_long_tailed():
    from course_utils.catalogue_plan import plan_photos

    targets, classes = catalogue_labels()
    assert targets == tuple(row["target"] for row, _ in plan_photos(200, 0)) and len(targets) == 391
    assert sorted(Counter(targets).values()) == [14, 14, 16, 18, 21, 25, 36, 47, 68, 132] and len(classes) == 10


# --- the goal -------------------------------------------------------------------------------------------------


def of_the_catalogue(sampler, **how):
    return [reached(draw(*catalogue_labels(), sampler=sampler, seed=seed, **how)) for seed in range(5)]


LENGTHS = (1, 2, 5, 10, 20, 50)


@pytest.mark.parametrize("num_epochs, yes", [(5, False), (20, True), (50, True)])
def test_weights_and_twenty_epochs_reach_the_goal_with_every_seed(num_epochs, yes):
    assert of_the_catalogue("weighted", alpha=1.0, num_epochs=num_epochs) == [yes] * 5


@pytest.mark.parametrize("num_epochs, yes", [(20, False), (50, True)])
def test_undersampling_is_balanced_at_once_and_has_seen_enough_after_fifty_epochs(num_epochs, yes):
    assert of_the_catalogue("undersampling", num_epochs=num_epochs) == [yes] * 5


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name not in ("weighted", "undersampling")])
def test_no_other_sampler_reaches_it_with_any_seed_or_length(sampler):
    for num_epochs in LENGTHS:
        assert not any(of_the_catalogue(sampler, num_epochs=num_epochs))


@pytest.mark.parametrize("alpha, num_epochs", [(1.0, 1), (1.0, 2), (0.75, 50), (1.25, 50), (0.0, 50)])
def test_weights_alone_or_another_exponent_do_not(alpha, num_epochs):
    assert not any(of_the_catalogue("weighted", alpha=alpha, num_epochs=num_epochs))


@pytest.mark.parametrize("most, unseen, yes", [(119, 2, True), (120, 2, False), (119, 3, False)])
def test_the_goal_is_a_ratio_below_1_2_and_at_most_one_in_a_hundred_unseen(most, unseen, yes):
    first = [*range(100), *[0] * (most - 100)]  # of 100 examples a class, in `most` and in 100 draws
    second = [*range(100, 200 - unseen), *[100] * unseen]
    made = Draw([0] * 100 + [1] * 100, ("a", "b"), [[first, second]], [])
    assert (made.counts, made.unseen) == ([most, 100], unseen)
    assert reached(made) is yes and (MOST_RATIO, MOST_UNSEEN) == (1.2, 0.01)


# --- the page -------------------------------------------------------------------------------------------------


def knob(lab, label):
    return next(knob for knob in lab.knobs if knob.description == label)


def test_each_knob_reaches_the_draw():
    lab = sampler_lab(TARGETS, classes=CLASSES)
    assert lab.result == draw(TARGETS, CLASSES, sampler="shuffle", alpha=0.0)
    for label, value in [("Sampler", "weighted"), ("Exponent (weighted)", 0.5), ("Epochs drawn", 5), ("Seed", 3)]:
        knob(lab, label).value = value
    knob(lab, "Batch size").value = 8
    assert lab.result == drawn("weighted", alpha=0.5, num_epochs=5, seed=3, batch_size=8)


def test_the_lab_begins_without_its_goal_and_reaches_it_by_its_knobs():
    lab = sampler_lab()
    assert not lab.reached and "max/min class count 9.43" in lab.status.value
    knob(lab, "Sampler").value, knob(lab, "Exponent (weighted)").value = "weighted", 1.0
    assert not lab.reached
    assert sorted(knob(lab, "Epochs drawn").options) == list(LENGTHS)
    knob(lab, "Epochs drawn").value = 20
    assert lab.reached and lab.error is None and "\u2713 reached" in lab.note.value


def test_the_picture_has_a_bar_a_class_and_ten_batches_and_says_its_counts():
    from xml.etree import ElementTree

    lab = sampler_lab()
    tree = ElementTree.fromstring(lab.figure.value)
    texts = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("sneaker") == 1 and "132" in texts and len(tree.findall("{*}path")) == 10
    assert len(tree.findall("{*}rect")) == 1 + 10 + 10 * 10
    assert "sneaker 132, t-shirt 68, trouser 25" in tree.get("aria-label")


def test_the_cells_of_a_batch_are_its_classes():
    made = drawn("sequential")
    cells = re.findall(r'text-anchor="middle" fill="#\w+" >(\d+)<', picture_of(made))
    assert cells == ["1", "4", "0", "0", "2", "2", "2", "0", "3", "0", "2", "2"]  # its number, then bag, coat, hat


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_can_be_drawn_also_a_single_example(sampler):
    picture = picture_of(draw([0], ["<hat>"], sampler=sampler))
    assert "<hat>" not in picture and "&lt;hat&gt;" in picture and "nan" not in picture


def test_the_words_name_draws_ratio_unseen_and_repeats():
    made = Draw(TARGETS, CLASSES, [[[0, 1, 6, 10, 10]]], [0.0] * 3)
    assert words(made) == (
        "5 draws in 1 epoch \u00b7 max/min class count 2.00 \u00b7 never seen: 8 of 12 (66.7%) "
        "\u00b7 repeats in an epoch: 1"
    )


def test_the_repeats_in_the_words_are_those_of_one_epoch():
    twice, four_times = [[0, 0, 0, 6, 10]], [[0, 0, 0, 0, 0]]
    made = Draw(TARGETS, CLASSES, [twice, four_times], [0.0] * 3)
    assert made.repeats == 6 and words(made).endswith("repeats in an epoch: 3")
    assert words(made).startswith("10 draws in 2 epochs")


def test_a_lab_disturbs_no_generator_and_its_still_twin_is_a_decided_fact(outputs):
    before = torch.get_rng_state()
    lab = sampler_lab()
    lab._ipython_display_()
    assert torch.equal(before, torch.get_rng_state())
    assert outputs[2]["text/plain"] == (
        "[figure] Draws of each of 10 classes in one epoch of 391 photos. "
        "The max/min class count of weighted draws is below a third of the shuffled one: True."
    )
    assert html.unescape(lab.note.value).startswith(
        "<div class='live-goal'><b>Goal:</b> over all epochs drawn, max/min"
    )


def test_targets_without_their_names_are_refused():
    with pytest.raises(ValueError, match="targets and classes, or neither"):
        sampler_lab(TARGETS)
