"""Exercises with many right results: the facts that decide them, and answers that are called more than once."""

import math
import random

import numpy as np
import pytest
import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import (
    LEFT_ALONE,
    Said,
    close_facts_differ,
    facts_differ,
    moved_generators,
    times_each,
    use_of_generators,
    uses_hash,
)
from course_utils.exercises.isolation import isolated
from course_utils.exercises.judging import judge
from course_utils.exercises.verify import verify


def test_the_first_wrong_fact_is_told_with_what_it_should_be():
    assert facts_differ({"a": 1, "b": "once"}, {"a": 1, "b": "once", "c": 3}) is None
    assert facts_differ({"a": 1, "b": "once"}, {"a": 1, "b": "3 never"}) == "b: 3 never; it should be: once"
    assert facts_differ({"a": [1]}, {}) == "a: None; it should be: [1]"
    assert facts_differ({"a": [1]}, None) == "the facts cannot be read from None"


@pytest.mark.parametrize(
    "expected, got, words",
    [
        ({"a": 0.3, "b": "x"}, {"a": 0.1 + 0.2, "b": Said("x", "y")}, None),
        ({"a": 0.5}, {"a": 0.75}, "a: expected 0.5, got 0.75"),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-6]}, None),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-4]}, "a: at [1]: expected 2.0, got 2.0001"),
        ({"a": math.nan}, {"a": math.nan}, None),
        ({"a": []}, {"a": ["w"]}, "a: ['w']; it should be: none"),
        ({"a": False}, {"a": ""}, "a: ''; it should be: False"),
        ({"a": "once"}, {"a": 1}, "a: 1; it should be: once"),
        ({"a": 1.0, "b": 2.0}, {"a": 1.0}, "b: not reached; it should be: 2.0"),
        ({"a": 1.0}, {"a": 1.0, "b": 2.0}, "b: 2.0; it should be: not reached"),
        ({"a": 1}, 7, "the facts cannot be read from 7"),
        (None, None, None),
        (iter([1]), iter([2]), None),
        (iter([1]), {"a": 1}, "expected an iterator, got a dict: expected <list_iterator object>, got {'a': 1}"),
        (1.0, 2.0, "expected 1.0, got 2.0"),
    ],
)
def test_close_facts_are_told_apart_with_the_tolerance_of_numbers(expected, got, words):
    assert close_facts_differ(expected, got) == words


@pytest.mark.parametrize(
    "given, words",
    [
        ([2, 0, 1], "once"),
        ([0, 1], "2 never"),
        ([0, 1, 1, 1, 2], "1 3 times"),
        ([0, 1, 2, 7], "7, which is none of them"),
        ([0, 0, 7], "0 2 times, 1 never, 2 never, 7, which is none of them"),
    ],
)
def test_what_comes_not_once_is_named(given, words):
    assert times_each(range(3), given) == words


def test_many_that_are_lost_are_counted():
    assert times_each(range(6), []) == "0 never, 1 never, 2 never and 3 more"


@pytest.mark.parametrize(
    "draw, words",
    [
        (lambda: None, LEFT_ALONE),
        (lambda: random.Random(1).random() + torch.rand(1, generator=torch.Generator()).item(), LEFT_ALONE),
        (random.random, "Python's moved"),
        (lambda: torch.manual_seed(5), "torch's moved"),
        (lambda: (np.random.rand(), random.random()), "Python's and NumPy's moved"),
    ],
)
def test_a_global_generator_that_moved_is_named(draw, words):
    with isolated():
        draw()
        assert moved_generators() == words


def test_a_fact_with_details_is_compared_by_its_words_and_shown_with_its_details():
    one, other = Said("some never", "7 never"), Said("some never", "3 never")
    assert facts_differ({"each": one}, {"each": other}) is None
    assert facts_differ({"each": "once"}, {"each": other}) == "each: 3 never; it should be: once"


def _draws_and_remembers(known={}):  # noqa: B006
    return known.setdefault("draw", random.random()) if not known else known["draw"]


@pytest.mark.parametrize(
    "call, words, details",
    [
        (lambda: random.Random(1).random(), LEFT_ALONE, ""),
        (lambda: random.seed(5), "seeded", "Python's is seeded"),
        (lambda: (torch.default_generator.manual_seed(5), torch.rand(1)), "seeded", "torch's is seeded"),
        (lambda: (np.random.rand(), random.random()), "drawn from", "Python's and NumPy's are drawn from"),
        (_draws_and_remembers, "drawn from", "Python's is drawn from"),
    ],
    ids=["own", "seeds", "seeds torch's", "draws from two", "remembers"],
)
def test_seeding_a_global_generator_is_told_from_drawing(call, words, details):
    with isolated():
        found = use_of_generators(call)
    assert found == words and getattr(found, "details", "") == details


def _by_hash(text):
    return [hash(each) for each in text]


def test_a_call_of_hash_is_found_inside_a_function():
    assert uses_hash(_by_hash.__code__) and not uses_hash(_draws_and_remembers.__code__) and not uses_hash(None)


def _toy():
    @exercise(
        "toy-1", title="t", difficulty="easy", minutes=1, cases=[(1,), (4,)], hints=["a", "b"], imports="import random",
        probe=lambda fn, result, seed: {"again": result == fn(seed), "other": result == fn(seed + 1)},
        expected=[{"again": True, "other": False}] * 2, difference=facts_differ,
    )  # fmt: skip
    def draw(seed):
        """A number that belongs to the seed."""
        return random.Random(seed).random()

    @draw.wrong
    def ignores_the_seed(seed):
        """The generator is seeded with a constant, so that every seed gives the same number."""
        return random.Random(3).random()

    @draw.wrong
    def draws_anew(seed):
        """The number comes from the global generator, so that the same seed gives another one each time."""
        return random.random()

    return draw


def test_a_probe_calls_the_answer_again_and_accepts_every_sound_one():
    toy = _toy()
    assert verify(toy) == []
    assert judge(toy, lambda seed: seed * 7 % 5).status == "right"
    assert judge(toy, lambda seed: 3).mistake == "ignores_the_seed"


def test_an_error_in_a_further_call_shows_the_readers_line():
    def fails_later(seed):
        return {1: 0.5, 4: 0.25}[seed]

    verdict = judge(_toy(), fails_later)
    assert verdict.status == "raised" and "KeyError: 2" in verdict.lines[0] and "[seed]" in verdict.lines[1]


def test_none_is_no_result_for_a_probe():
    verdict = judge(_toy(), lambda seed: print(seed))
    assert verdict.status == "wrong" and "returned None" in verdict.lines[0]
