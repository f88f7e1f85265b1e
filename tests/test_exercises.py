"""Every exercise keeps its promises, and a defective exercise does not pass for a sound one."""

import json
import math
import os
import random
import stat
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from course_utils.exercises import answer, check, hint, progress, wrong_answers
from course_utils.exercises.compare import difference
from course_utils.exercises.declare import Exercise, exercise, value_exercise
from course_utils.exercises.judging import judge
from course_utils.exercises.machinery import CHAPTERS, UnknownExercise, chapters, exercises_of
from course_utils.exercises.verify import verify

ROOT = Path(__file__).parents[1]
ALL = [e for chapter in chapters() for e in exercises_of(chapter).values()]


# Every exercise of every chapter


def test_there_are_exercises_and_chapter_07_has_five_or_more():
    assert "start_here" in chapters() and len(exercises_of("schedules")) >= 5


@pytest.fixture(scope="module")
def known_verdicts():
    return {}


@pytest.fixture
def judged_once(known_verdicts, monkeypatch):
    """`verify` and `check` share what `judge` says of a named wrong answer, which then runs once less."""

    def judge_once(exercise, given, **how):
        if not any(given is wrong for wrong in exercise.wrong_answers.values()):
            return judge(exercise, given, **how)
        if given not in known_verdicts:
            known_verdicts[given] = judge(exercise, given, **how)
        return known_verdicts[given]

    for module in ("machinery", "verify"):
        monkeypatch.setattr(f"course_utils.exercises.{module}.judge", judge_once)


@pytest.mark.parametrize("sound", ALL, ids=lambda e: e.id)
def test_an_exercise_keeps_its_promises(sound, judged_once):
    assert verify(sound) == []


@pytest.mark.parametrize("sound", ALL, ids=lambda e: e.id)
def test_check_knows_the_answer_and_names_each_wrong_answer(sound, judged_once):
    assert check(sound.id, answer(sound.id)).status == "right"
    assert check(sound.id).status == check(sound.id, ...).status == "not attempted"
    found = {name: check(sound.id, fn) for name, fn in wrong_answers(sound.id).items()}
    assert found and {name: report.mistake for name, report in found.items()} == {name: name for name in found}


def test_ids_are_the_chapters_stem_and_numbers_without_gaps():
    for chapter in chapters():
        ids = list(exercises_of(chapter))
        assert ids and ids == [f"{chapter}-{n}" for n in range(1, len(ids) + 1)]


def test_every_module_that_declares_exercises_belongs_to_a_chapter():
    package = ROOT / "course_utils" / "exercises"
    declaring = [p.stem for p in package.glob("*.py") if "\n@exercise(" in p.read_text(encoding="utf-8")]
    assert declaring and all(stem.startswith(CHAPTERS) for stem in declaring)


def test_the_cells_of_a_chapter_hold_the_stubs_and_call_check():
    cells = _exercise_cells()
    for e in ALL:
        if e.id in cells:
            assert cells[e.id] == e.stub, f"the stub of {e.id} in its chapter is not the one of the exercise"
    assert set(cells) <= {e.id for e in ALL}


def _exercise_cells() -> dict[str, str]:
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    cells = [c for path in notebooks for c in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    return {c["id"][3:]: "".join(c["source"]) for c in cells if c.get("id", "").startswith("ex-")}


# A defective exercise is noticed


def _toy(**changed) -> Exercise:
    """A sound exercise (`verify` finds nothing), or one with something changed."""
    declared = {"title": "Twice", "difficulty": "easy", "minutes": 1, "cases": [(1,), (3,)], "hints": ["a", "b"]}

    @exercise("toy-1", **{**declared, **changed})
    def twice(number: int) -> int:
        """Twice the number."""
        return 2 * number

    @twice.wrong
    def adds_two(number):
        """This adds two, which is the same for 2 alone and too little for larger numbers."""
        return number + 2

    @twice.wrong
    def squares(number):
        """This multiplies the number with itself, which grows faster than doubling does."""
        return number * number

    return twice


def _problems(toy: Exercise, *words: str) -> bool:
    found = verify(toy)
    return any(all(word in problem for word in words) for problem in found)


def test_the_sound_toy_has_no_problems():
    assert verify(_toy()) == []


def test_a_checker_that_accepts_everything_is_a_defect():
    assert _problems(_toy(difference=lambda expected, got: None), "accepts")
    assert _problems(
        _toy(difference=lambda expected, got: None), "no case tells the wrong answer adds_two from the right"
    )


def test_a_checker_that_accepts_broadcast_shapes_is_a_defect():
    loose = _toy(difference=lambda expected, got: None if np.all(np.asarray(got) == expected) else "differs")
    assert _problems(loose, "accepts results with one more dimension")


def test_a_checker_that_rejects_a_right_form_is_a_defect():
    strict = _toy(difference=lambda expected, got: None if type(got) is int and got == expected else "differs")
    assert _problems(strict, "rejects the right results as floats")
    assert _problems(strict, "rejects the right results as 0-d tensors")


def test_a_checker_that_rejects_its_own_answer_is_a_defect():
    assert _problems(_toy(difference=lambda expected, got: "differs"), "its answer is judged wrong")


def test_two_wrong_answers_that_cannot_be_told_apart_are_a_defect():
    toy = _toy()

    @toy.wrong
    def adds_one_twice(number):
        """This adds one and then one more, which is what adding two does, only more slowly."""
        return number + 1 + 1

    assert _problems(toy, "no case tells the wrong answers adds_two and adds_one_twice apart")


def test_a_wrong_answer_that_no_case_tells_from_the_right_one_is_a_defect():
    assert _problems(_toy(cases=[(2,)], expected=[4]), "no case tells the wrong answer squares from the right one")


def test_an_answer_that_differs_from_the_hand_worked_result_is_a_defect():
    assert _problems(_toy(expected=[2, 7]), "by hand it is 7")
    assert _problems(_toy(expected=[2]), "2 cases and 1 expected")


def test_too_few_hints_or_wrong_answers_are_a_defect():
    assert _problems(_toy(hints=["a"]), "hints")
    toy = _toy()
    del toy.wrong_answers["squares"]
    assert _problems(toy, "named wrong answers, has 1")


def test_a_message_that_says_only_wrong_is_a_defect():
    toy = _toy()
    toy.wrong_answers["squares"].__doc__ = "This is wrong."
    assert _problems(toy, "the message of squares does not say")


def test_a_message_that_is_not_shown_is_a_defect(monkeypatch):
    monkeypatch.setattr("course_utils.exercises.judging._mistake_lines", lambda exercise, mistake: [])
    assert _problems(_toy(), "the message of adds_two is not shown")


def test_source_that_lacks_an_import_is_a_defect():
    @exercise("toy-2", title="t", difficulty="easy", minutes=1, cases=[(1,)], hints=["a", "b"])
    def root(number):
        """The root."""
        return np.sqrt(number)

    assert _problems(root, "its source in a cell is judged raised")


def test_a_second_wrong_answer_of_the_same_name_is_refused():
    toy = _toy()
    with pytest.raises(ValueError, match="two wrong answers named squares"):
        toy.wrong(toy.wrong_answers["squares"])


# What a reader hears


def _words(given, toy: Exercise | None = None, **kwargs) -> tuple[str, str]:
    verdict = judge(toy or _toy(), given, **kwargs)
    return verdict.status, "\n".join(verdict.lines)


def _stub_pass(number):
    pass


def _stub_ellipsis(number):
    """With a docstring."""
    ...


def _stub_raises(number):
    raise NotImplementedError


@pytest.mark.parametrize("given", [None, ..., _stub_pass, _stub_ellipsis, _stub_raises, lambda number: None])
def test_what_is_not_begun_is_not_attempted(given):
    assert _words(given)[0] == "not attempted"


def test_an_error_shows_the_arguments_and_the_readers_own_line():
    def divides(number):
        return sum(1 / d for d in [number - 1])

    status, text = _words(divides)
    assert status == "raised" and "twice(number=1) raised ZeroDivisionError" in text
    assert "of your code: return sum(1 / d for d in [number - 1])" in text


def test_an_error_inside_a_library_shows_the_line_that_called_it():
    status, text = _words(lambda number: json.loads("{"))
    assert status == "raised" and "JSONDecodeError" in text and 'json.loads("{")' in text


def test_torchs_not_implemented_error_is_an_error_and_not_an_empty_stub():
    class Silent(torch.nn.Module):
        pass

    assert _words(lambda number: Silent()(number))[0] == "raised"


def test_a_not_implemented_error_out_of_c_is_an_error_and_one_raised_under_a_with_is_a_stub():
    def averages_whole_numbers(number):
        return torch.zeros(1, dtype=torch.int64).lerp_(torch.ones(1, dtype=torch.int64), 0.5)

    def raises_under_a_with(number):
        with torch.no_grad():
            try:
                raise NotImplementedError("later")
            finally:
                number += 1

    status, text = _words(averages_whole_numbers)
    assert status == "raised" and "not implemented for 'Long'" in text
    assert _words(raises_under_a_with)[0] == "not attempted"


def test_a_branch_still_to_be_written_is_raised_with_its_case():
    def half(number):
        if number > 2:
            raise NotImplementedError
        return 2 * number

    status, text = _words(half)
    assert status == "raised" and "twice(number=3)" in text


def test_leaving_python_is_raised_and_leaves_nothing():
    assert "SystemExit" in _words(lambda number: sys.exit(1))[1]


def test_an_interrupt_by_the_reader_passes_through():
    def interrupted(number):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(_toy(), interrupted)


def test_printing_instead_of_returning_has_its_own_words_and_shows_what_was_printed(capsys):
    status, text = _words(lambda number: print("twice is", 2 * number))
    assert status == "wrong" and "return it" in text and "Printed meanwhile: twice is 2" in text
    assert capsys.readouterr().out == ""


def test_a_comparison_of_the_exercises_own_never_meets_a_none():
    near = _toy(difference=lambda expected, got: None if abs(expected - got) < 0.1 else "far off")
    assert "returned None" in _words(lambda number: print(2 * number), near)[1]


def test_an_error_of_the_same_type_as_a_mistakes_is_not_that_mistake():
    toy = _toy()

    @toy.wrong
    def looks_up(number):
        """This looks the number up in a table that was never filled, so there is nothing to find."""
        return {}["table"]

    assert judge(toy, toy.wrong_answers["looks_up"]).mistake == "looks_up"
    assert judge(toy, lambda number: {}["typo"]).mistake is None


def test_a_missing_return_has_its_own_words():
    def forgets(number):
        number = 2 * number

    assert "Is the `return` missing" in _words(forgets)[1]


def test_a_generator_an_iterator_and_a_coroutine_have_their_own_words():
    def generates(number):
        yield 2 * number

    async def waits(number):
        return 2 * number

    assert "a generator, which can be read only once" in _words(generates)[1]
    assert "an iterator" in _words(lambda number: map(int, [number]))[1]
    assert "`def`, not `async def`" in _words(waits)[1]


def test_an_iterator_is_told_only_where_no_generator_is_asked_for():
    @exercise("toy-2", title="Count", difficulty="easy", minutes=1, cases=[(2,)], hints=["a", "b"],
              observe=lambda result, number: list(result))  # fmt: skip
    def count(number):
        """Yield 0, 1, ... up to the number: a generator function."""
        yield from range(number)

    assert judge(count, lambda number: iter(range(number))).status == "right"
    assert (
        judge(count, lambda number: iter(range(1)))
        .lines[0]
        .endswith("expected length 2, got length 1: expected [0, 1], got [0]")
    )


def test_a_wrong_type_is_named():
    assert "expected a number, got a string: expected 2, got '2'" in _words(lambda number: str(2 * number))[1]


@pytest.mark.parametrize("given, words", [(4, "Pass its name without parentheses"), ("twice", "a string ('twice')")])
def test_a_value_where_the_function_is_asked_for_has_its_own_words(given, words):
    status, text = _words(given)
    assert status == "wrong" and words in text


def test_missing_and_renamed_parameters_are_told_without_a_call():
    assert "takes (); it is called with (number)" in _words(lambda: 2)[1]
    keyword = _keyword_toy()
    status, text = _words(lambda a, *, step: a, keyword)
    assert status == "wrong" and "takes (a, step)" in text and "Keep the stub's parameters" in text
    assert _words(lambda a, *, num: a + num, keyword)[0] == "right"


def _keyword_toy() -> Exercise:
    @exercise("toy-3", title="t", difficulty="easy", minutes=1, cases=[(1, 2)], hints=["a", "b"])
    def add(a, *, num):
        """Sum."""
        return a + num

    return add


@pytest.mark.parametrize("body", ["while True: pass", "for i in iter(int, 1): pass"])
def test_an_endless_loop_is_ended_after_the_stated_time(body):
    cell = {}
    exec(f"def endless(number):\n    {body}", cell)
    status, text = _words(cell["endless"], seconds=0.1)
    assert status == "wrong" and "still running after 0.1 s" in text


def test_the_time_holds_for_all_cases_together():
    def slow(number):
        end = time.monotonic() + 0.15
        while time.monotonic() < end:
            pass
        return 2 * number

    assert "still running" in _words(slow, _toy(cases=[(n,) for n in range(9)]), seconds=0.3)[1]


def test_wrong_results_that_are_no_named_mistake_show_the_smallest_failing_case():
    verdict = judge(_toy(), lambda number: 2 if number == 1 else 5)
    assert verdict.lines == ("twice(number=3): expected 6, got 5",) and verdict.mistake is None


def test_an_error_that_is_asked_for_is_right_and_its_absence_is_told():
    @exercise("toy-4", title="t", difficulty="easy", minutes=1, cases=[(1,), (-1,)], hints=["a", "b"])
    def root(number):
        """Root."""
        if number < 0:
            raise ValueError("negative")
        return number**0.5

    def own_text(number):
        if number < 0:
            raise ValueError("another text")
        return number**0.5

    assert _words(own_text, root)[0] == "right"
    assert "should raise ValueError, and returned 7" in _words(lambda number: 1 if number > 0 else 7, root)[1]


# Arguments and the kernel stay as they were


def _list_toy(keep_arguments: bool) -> Exercise:
    @exercise(
        "toy-5",
        title="t",
        difficulty="easy",
        minutes=1,
        cases=[([3, 1],)],
        hints=["a", "b"],
        keep_arguments=keep_arguments,
    )
    def ordered(values):
        """Sorted."""
        return sorted(values)

    return ordered


def _sorts_in_place(values):
    values.sort()
    return values


def test_arguments_are_copies_and_a_forbidden_change_is_told():
    toy = _list_toy(keep_arguments=False)
    assert _words(_sorts_in_place, toy)[0] == "right" and toy.case_list == [([3, 1],)]
    status, text = _words(_sorts_in_place, _list_toy(keep_arguments=True))
    assert status == "wrong" and "changed its argument values" in text


def test_the_readers_generators_grad_mode_dtype_and_filters_are_untouched():
    def disturbs(number):
        torch.manual_seed(number), random.seed(number), np.random.seed(number)
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        torch.rand(3), random.random(), np.random.rand()
        return 2 * number

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_default_dtype()
    assert _words(disturbs)[0] == "right" and torch.is_grad_enabled()
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_default_dtype()
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]


def test_a_random_answer_draws_the_same_numbers_as_the_oracle():
    @exercise("toy-6", title="t", difficulty="easy", minutes=1, cases=[(3,)], hints=["a", "b"])
    def draw(number):
        """Draw."""
        return torch.rand(number)

    assert _words(lambda number: torch.rand(number), draw)[0] == "right"


def test_the_oracle_of_an_earlier_check_still_holds_after_the_reader_drew_numbers():
    @exercise("toy-10", title="t", difficulty="easy", minutes=1, cases=[(3,)], hints=["a", "b"])
    def draw(number):
        """Draw."""
        return torch.rand(number)

    for _ in range(2):
        assert _words(lambda number: torch.rand(number), draw)[0] == "right"
        torch.rand(1)


def test_grad_mode_is_on_inside_although_the_reader_switched_it_off():
    def needs_grad(number):
        weight = torch.ones(1, requires_grad=True)
        (weight * 2 * number).sum().backward()
        return weight.grad.item()

    with torch.no_grad():
        assert _words(needs_grad)[0] == "right" and not torch.is_grad_enabled()


def test_fresh_arguments_are_arranged_for_each_call_and_what_they_became_is_observed():
    @exercise(
        "toy-7", title="t", difficulty="easy", minutes=1, cases=[(2,), (3,)], hints=["a", "b"],
        arrange=lambda num: (iter(range(num)), []), observe=lambda result, numbers, out: out,
    )  # fmt: skip
    def collect(numbers, out):
        """Collect."""
        out.extend(numbers)

    assert _words(lambda numbers, out: out.extend(numbers), collect)[0] == "right"
    assert "expected length 2, got length 0" in _words(lambda numbers, out: out.clear(), collect)[1]


def test_a_result_that_cannot_be_observed_is_told_with_its_reason():
    @exercise(
        "toy-8", title="t", difficulty="easy", minutes=1, cases=[(2,)], hints=["a", "b"],
        observe=lambda result, num: result["lr"],
    )  # fmt: skip
    def groups(num):
        """A dict."""
        return {"lr": num}

    status, text = _words(lambda num: {"rate": num}, groups)
    assert (
        status == "wrong"
        and "the result {'rate': 2} is not of the kind that the task asks for (KeyError: 'lr')" in text
    )
    assert "returned None" in _words(lambda num: print(num), groups)[1]


# A value instead of a function


def _predict() -> Exercise:
    @value_exercise("toy-9", title="Predict", difficulty="easy", minutes=1, hints=["a", "b"])
    def prediction():
        """Which lr does update 3 use?"""
        return 0.25

    @prediction.wrong
    def starts_anew():
        """This is the lr of a schedule that starts again from the top, which this one does not do."""
        return 1.0

    @prediction.wrong
    def has_ended():
        """This is the lr of a schedule that is at its end, which this one has not reached by then."""
        return 0.0

    return prediction


def test_a_value_is_checked_in_several_forms_and_its_mistakes_are_named():
    assert verify(_predict()) == []
    for form in (0.25, 1 / 4, torch.tensor(0.25), np.float32(0.25), Fraction(1, 4)):
        assert judge(_predict(), form).status == "right"
    assert judge(_predict(), 1).mistake == "starts_anew"
    assert judge(_predict(), 0.3).lines == ("prediction = 0.3 is not right.",)  # the right one would be the answer
    assert judge(_predict(), "0.25").lines[0].endswith("is not right: a number is asked for, not a string.")
    for given, words in ((lambda: 0.25, "a function"), (float, "a class")):
        status, text = _words(given, _predict())
        assert status == "wrong" and text.endswith(f"is not right: a number is asked for, not {words}.")
    assert _predict().stub == "# Which lr does update 3 use?\nprediction = ...  # your code here"


# Comparing

T = torch.tensor


@pytest.mark.parametrize(
    "expected, got",
    [
        (0.5, T(0.5)), (0.5, np.float32(0.5)), (2, 2.0), (2.0, 2), (float("nan"), float("nan")), (True, np.bool_(True)),
        ([1, 2], (1, 2)), ([0.1, 0.2], T([0.1, 0.2])), ({"a": 1}, {"a": 1.0}), (T(0.3), 0.3), (None, None),
        (T([0.1, 0.2]), T([0.1, 0.2 * (1 + 1e-7)])), (T([1e6, 0.0]), T([1e6, 0.05])), ("a", "a"),
        ({1, 2}, frozenset({2, 1})),
        (np.array([1.0, 2.0]), np.array([1.0, 2.0])), (T([float("nan"), 1.0]), T([float("nan"), 1.0])),
    ],
)  # fmt: skip
def test_equal_by_what_matters(expected, got):
    assert difference(expected, got) is None


@pytest.mark.parametrize(
    "expected, got, words",
    [
        (T([1.0, 2.0]), T([[1.0, 2.0]]), "expected shape (2,), got shape (1, 2)"),
        (T([1.0, 1.0]), T([1.0]), "expected shape (2,), got shape (1,)"),
        (T([1.0]), T([1.0], dtype=torch.float64), "expected dtype torch.float32, got dtype torch.float64"),
        (T([1, 2]), T([1, 3]), "at [1]: expected 2, got 3"),
        (T([1.0]), [1.0], "expected a tensor of shape (1,), dtype torch.float32, got a list"),
        (1.0, T([1.0]), "expected a number, got a tensor of shape (1,)"),
        (1, True, "expected a number, got a bool"),
        (True, 1, "expected a bool, got a number"),
        (3, 3.000001, "expected 3, got 3.000001"),
        ([1, [2, 3]], [1, [2, 4]], "at [1][1]: expected 3, got 4"),
        ([1], [1, 2], "expected length 1, got length 2"),
        ({"a": 1}, {"b": 1}, "no entry for 'a'"),
        ({"a": 1}, {"a": 1, "b": 2}, "an entry for 'b' that does not belong there"),
        (0.5, float("nan"), "expected 0.5, got nan"),
        (0.5, None, "expected a number, got None"),
        ([1], iter([1]), "got an iterator"),
        ("a", "b", "expected 'a', got 'b'"),
        ([0.001], [0.00101], "at [0]: expected 0.001, got 0.00101"),
    ],
)
def test_a_difference_is_told_with_kind_shape_and_dtype_first(expected, got, words):
    assert words in difference(expected, got)


def test_names_in_another_order_are_told_as_the_same_names():
    assert difference(["a", "b"], ["b", "a"]).startswith(
        "the same in another order: expected ['a', 'b'], got ['b', 'a']"
    )
    assert "another order" not in difference(["a", "b"], ["b", "b"])
    assert "another order" not in difference([0.5, 1.0], [1.0, 0.5])


@pytest.mark.parametrize(
    "got, words",
    [
        ((1, [0]), "the epoch: expected 2, got 1"),
        ((2, [1]), "the batches: at [0]: expected 0, got 1"),
        ([[0], [1]], "expected a tuple (the epoch, the batches), got a list: [[0], [1]]"),
        (2, "expected a tuple (the epoch, the batches), got a number: 2"),
        (("2", [0]), "the epoch: expected a number, got a string: expected 2, got '2'"),
        (([0], 2), "expected a tuple (the epoch, the batches) in this order, got a tuple: ([0], 2)"),
        ((2, [0], 1), "expected a tuple (the epoch, the batches), got 3 results: (2, [0], 1)"),
    ],
)
def test_the_places_of_a_tuple_have_names(got, words):
    assert difference((2, [0]), got, parts=("the epoch", "the batches")) == words


def test_two_numbers_the_wrong_way_round_are_told_as_such():
    words = difference((24, 0.5), (0.5, 24), parts=("the operations", "the share"))
    assert words == "expected a tuple (the operations, the share) in this order, got a tuple: (0.5, 24)"


def test_parts_that_agree_do_not_differ():
    assert difference((2, [0]), [2, (0,)], parts=("the epoch", "the batches")) is None


# The ids, the hints, the reports


def test_an_unknown_id_raises_nothing_in_check_and_names_the_known_ones():
    assert "Known: start_here-1" in repr(check("start_here-99", 1))
    assert check("nowhere-1", 1).status == check(None, 1).status == "not attempted"
    for ask in (hint, answer, wrong_answers):
        with pytest.raises(UnknownExercise, match="start_here"):
            ask("nowhere-1")


def test_a_failure_of_the_checker_itself_is_a_report():
    class Hostile:
        def __call__(self, *args):
            return self

        def __repr__(self):
            raise RuntimeError("no repr")

    report = check("start_here-1", Hostile())
    assert report.status == "raised" and "checker itself failed: RuntimeError" in repr(report)


def test_a_report_says_its_status_as_a_word_in_text_and_html():
    for given in (None, answer("start_here-1"), lambda *args: 0):
        report = check("start_here-1", given)
        html = report._repr_html_()
        assert report.status in repr(report).splitlines()[0] and f"<b>{report.status}</b>" in html
        assert 'role="status"' in html and "color:" in html and "background:#" not in html


def test_a_report_escapes_what_the_reader_returned():
    html = check("start_here-1", lambda *args: "<script>alert(1)</script>")._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_hints_are_one_line_of_text_details_in_html_and_buttons_where_widgets_run():
    hints = hint("start_here-1")
    bundle = hints._repr_mimebundle_()
    assert bundle["text/plain"] == "2 hints and the answer to start_here-1"
    assert bundle["text/html"].count("<details>") == 3 and any("widget-view" in mime for mime in bundle)


def test_hints_need_no_widgets(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert set(hint("start_here-1")._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_the_buttons_open_one_hint_after_the_other_and_then_the_answer():
    import ipywidgets

    from course_utils.exercises.hints import _buttons

    box = _buttons(hint("start_here-1"), ipywidgets)
    (more, show), shown = box.children[0].children, box.children[1]
    more.click()
    assert shown.value.count("<li>") == 1 and not more.disabled and "<pre" not in shown.value
    more.click(), show.click()
    assert shown.value.count("<li>") == 2 and more.disabled and "math.ceil" in shown.value


def test_the_answer_is_a_function_that_shows_its_code():
    steps = answer("start_here-1")
    assert steps(10, 4, 1) == 3 and steps.__name__ == "count_steps"
    assert repr(steps) == steps.source and steps.source.startswith("import math\n\n\ndef count_steps(")


def test_the_package_imports_neither_torch_nor_widgets():
    code = (
        "import sys, course_utils.exercises as e; e.check('start_here-1', 3)\n"
        "print(sorted({'torch', 'ipywidgets'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, env={**os.environ}, check=True
    )
    assert done.stdout.strip() == "[]"


# Progress


def test_what_is_right_stays_right_and_nothing_is_kept_of_what_is_not_attempted(progress_file):
    check("start_here-1")
    assert not progress_file.exists()
    check("start_here-1", answer("start_here-1"))
    check("start_here-1", lambda *args: 0)
    assert json.loads(progress_file.read_text()) == {"exercises": {"start_here-1": "right"}}
    assert progress().num_right == 1 and "✔ start_here-1  right" in repr(progress())


def test_reset_forgets(progress_file):
    check("start_here-1", answer("start_here-1"))
    assert progress(reset=True).num_right == progress().num_right == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps no permission bits for others")
def test_the_file_is_private(progress_file):
    check("start_here-1", answer("start_here-1"))
    assert stat.S_IMODE(progress_file.stat().st_mode) == 0o600


def test_without_the_variable_the_file_lies_where_the_kernel_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")
    monkeypatch.chdir(tmp_path)
    check("start_here-1", answer("start_here-1"))
    assert (tmp_path / "progress.json").is_file() and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", [b"{", b"[]", b'{"exercises": {"start_here-1": "perhaps"}}', b"\xff\xfe\x00"])
def test_a_damaged_file_is_kept_aside_and_said(progress_file, damage):
    progress_file.write_bytes(damage)
    report = check("start_here-1", answer("start_here-1"))
    assert "progress.json was damaged; it is kept as progress.damaged-1.json" in repr(report)
    assert progress_file.with_name("progress.damaged-1.json").read_bytes() == damage and progress().num_right == 1


def test_where_nothing_can_be_written_one_sentence_says_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.json"))
    report = check("start_here-1", answer("start_here-1"))
    assert report.status == "right" and report.lines[-1].startswith(
        "Progress is not kept: progress.json cannot be written ("
    )


def test_a_write_that_fails_half_way_leaves_the_old_file(progress_file, monkeypatch):
    check("start_here-1", lambda *args: 0)
    before = progress_file.read_text()
    monkeypatch.setattr("course_utils.exercises.progress_file.json.dump", _disk_full)
    assert "cannot be written (No space left)" in repr(check("start_here-1", answer("start_here-1")))
    assert progress_file.read_text() == before and len(list(progress_file.parent.iterdir())) == 1


def _disk_full(held, file, **kwargs):
    file.write('{"exer')
    raise OSError(28, "No space left")


# Chapter 07, held against PyTorch itself


def test_the_plateau_answer_cuts_where_reduce_lr_on_plateau_does():
    plateau = exercises_of("schedules")["schedules-7"]
    finite = [case for case in plateau.case_list if all(m == m for m in case[0])]
    assert len(finite) > 3
    for metrics, patience in finite:
        assert plateau.answer(metrics, patience) == _cuts_by_torch(metrics, patience)


def _cuts_by_torch(metrics, patience, threshold=0.0, **settings) -> list[int]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, patience=patience, threshold=threshold, **settings
    )
    lrs = [1.0]
    for metric in metrics:
        scheduler.step(metric)
        lrs.append(optimizer.param_groups[0]["lr"])
    return [i for i in range(len(metrics)) if lrs[i + 1] < lrs[i]]


def test_the_prediction_is_what_cosine_annealing_gives():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    for _ in range(8):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(answer("schedules-10")())


def test_the_packages_own_function_is_a_right_answer():
    from course_utils import schedules

    assert check("schedules-4", schedules.decay_groups).status == "right"


# What readers have tried: the words name what they did


def _no_nan_check_and_early(metrics, patience):
    best, bad, cuts = 9.0, 0, []
    for i, m in enumerate(metrics):
        best, bad = (m, 0) if m < best else (best, bad + 1)
        if bad >= patience:
            cuts, bad = [*cuts, i], 0
    return cuts


def _early_with_a_text_of_its_own(metrics, patience):
    if any(m != m for m in metrics):
        raise ValueError("NaN in metrics")
    return _no_nan_check_and_early(metrics, patience)


def _preview_of_two_copies(optimizer, scheduler, num_steps):
    import copy

    optimizer, scheduler, lrs = copy.deepcopy(optimizer), copy.deepcopy(scheduler), []
    for _ in range(num_steps):
        lrs.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    return lrs


def _sets_an_attribute(optimizer, base_lrs, factor):
    optimizer.lr = base_lrs[0] * factor


def _scales_the_list(optimizer, base_lrs, factor):
    for i in range(len(base_lrs)):
        base_lrs[i] *= factor
    return base_lrs


def _sets_initial_lr(optimizer, base_lrs, factor):
    for group, base_lr in zip(optimizer.param_groups, base_lrs, strict=True):
        group["initial_lr"] = base_lr * factor


def _returns_a_new_optimizer(optimizer, base_lrs, factor):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return torch.optim.AdamW(parameters, lr=base_lrs[0] * factor)


def _asks_for_initial_lr(optimizer, base_lrs, factor):
    for group in optimizer.param_groups:
        group["lr"] = group.get("initial_lr", group["lr"]) * factor


def _asks_torch(**settings):
    def plateau_cuts(metrics, patience):
        if any(m != m for m in metrics):
            raise ValueError("NaN")
        return _cuts_by_torch(metrics, patience, **settings)

    return plateau_cuts


def _uncovered(same):
    """schedules-8 with another notion of "the same parameter"."""

    def uncovered_parameters(model, optimizer):
        held = [p for group in optimizer.param_groups for p in group["params"]]
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        return sorted(name for name, p in named if not any(same(p, q) for q in held))

    return uncovered_parameters


def _not_in_any_group(model, optimizer):
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [name for name, p in named if not any(p in group["params"] for group in optimizer.param_groups)]


def _jumps(first):
    """schedules-6 with scheduler.step(i // accumulate), i counted from `first`."""

    def train_epoch(model, optimizer, scheduler, micro_batches, accumulate):
        for i, (inputs, targets) in enumerate(micro_batches):
            (torch.nn.functional.mse_loss(model(inputs), targets) / accumulate).backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                scheduler.step((i + first) // accumulate)
                optimizer.zero_grad()

    return train_epoch


def _count(steps):
    """schedules-3 with `steps(micro_batches, accumulate)` for the steps of an epoch; micro_batches is a fraction."""

    def count_steps(num_examples, batch_size, accumulate, num_epochs):
        return num_epochs * steps(num_examples / batch_size, accumulate)

    return count_steps


def _previews_by_the_function(optimizer, scheduler, num_steps):
    return [scheduler.base_lrs[0] * scheduler.lr_lambdas[0](step) for step in range(num_steps)]


def _previews_and_begins_anew(optimizer, scheduler, num_steps):
    lrs = []
    for _ in range(num_steps):
        lrs.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    scheduler.last_epoch = 0
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"]
    return lrs


def _groups_of_the_tensors(tensors):
    def decay_groups(model, *, weight_decay):
        decays, others = ([t for t in tensors(model) if (t.ndim >= 2) is matrix] for matrix in (True, False))
        return [{"params": decays, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]

    return decay_groups


@pytest.mark.parametrize(
    "id, given, mistake",
    [
        ("schedules-1", lambda step, warmup_steps: step / (warmup_steps - 1) if step < warmup_steps else 1.0,
         "rises_from_zero_to_one"),
        ("schedules-1", lambda step, warmup_steps: min(Fraction(1), Fraction(step + 1, warmup_steps)), None),
        ("schedules-3", _count(lambda n, a: math.ceil(n) // a), "drops_the_incomplete_window"),
        ("schedules-3", _count(lambda n, a: round(n / a)), "rounds_to_the_nearest"),
        ("schedules-3", _count(lambda n, a: round(round(n) / a)), "rounds_to_the_nearest"),
        ("schedules-3", _count(lambda n, a: round(math.ceil(n) / a)), "rounds_to_the_nearest"),
        ("schedules-3", _count(lambda n, a: int(n / a)), "drops_what_is_left"),
        ("schedules-4", _groups_of_the_tensors(lambda model: model.state_dict().values()), "takes_detached_tensors"),
        ("schedules-4", _groups_of_the_tensors(lambda model: [p.data for p in model.parameters()]),
         "takes_detached_tensors"),
        ("schedules-5", _sets_initial_lr, "sets_the_initial_lr"),
        ("schedules-5", _returns_a_new_optimizer, "returns_another_optimizer"),
        ("schedules-5", _asks_for_initial_lr, None),
        ("schedules-6", _jumps(0), "passes_a_number_to_step"),
        ("schedules-6", _jumps(1), "passes_a_number_to_step"),
        ("schedules-7", _asks_torch(threshold=0.0), None),
        ("schedules-7", _asks_torch(threshold=1e-4), "needs_a_clear_improvement"),
        ("schedules-7", _asks_torch(threshold=1e-4, threshold_mode="abs"), "needs_a_clear_improvement"),
        ("schedules-7", _asks_torch(threshold=1e-6, threshold_mode="abs"), "needs_a_clear_improvement"),
        ("schedules-8", _uncovered(lambda p, q: p is q), None),
        ("schedules-8", _uncovered(torch.equal), "compares_values"),
        ("schedules-8", _uncovered(torch.allclose), "compares_values"),
        ("schedules-8", _uncovered(lambda p, q: p.shape == q.shape and (p == q).all()), "compares_values"),
        ("schedules-8", _uncovered(lambda p, q: p == q), "compares_with_in"),
        ("schedules-8", _not_in_any_group, "compares_with_in"),
        ("schedules-9", _previews_by_the_function, "previews_from_the_start"),
        ("schedules-9", _previews_and_begins_anew, "goes_back_to_the_start"),
        ("schedules-7", _no_nan_check_and_early, "cuts_one_epoch_early"),
        ("schedules-7", _early_with_a_text_of_its_own, "cuts_one_epoch_early"),
        ("schedules-9", _preview_of_two_copies, "steps_a_copy_that_drives_another_optimizer"),
        ("schedules-5", _sets_an_attribute, "changes_nothing"),
        ("schedules-5", _scales_the_list, "changes_nothing"),
        ("start_here-1", lambda num_examples, batch_size, num_epochs: num_examples / batch_size * num_epochs,
         "makes_parts_of_a_step"),
        ("schedules-10", 0.2534, None),
    ],
)  # fmt: skip
def test_what_readers_tried_is_recognised(id, given, mistake):
    report = check(id, given)
    assert report.mistake == mistake and report.status == ("wrong" if mistake else "right")


def test_a_copy_is_told_from_a_detached_tensor_of_the_same_values():
    detached = _groups_of_the_tensors(lambda model: [p.detach() for p in model.parameters()])
    copied = _groups_of_the_tensors(lambda model: [p.detach().clone() for p in model.parameters()])
    assert "weight is in no group, only a detached tensor with its values" in repr(check("schedules-4", detached))
    report = check("schedules-4", copied)
    assert (report.status, report.mistake) == ("wrong", None) and report.lines[-1].endswith("weight is in no group")


def test_mistakes_are_told_apart_by_the_failing_case_and_the_other_cases_never_run():
    toy, calls = _toy(cases=[(1,), (2,), (3,), (4,)]), []

    @toy.wrong
    def counts_its_calls(number):
        """This notes each call and then adds a hundred, which no other mistake does."""
        calls.append(number)
        return number + 100

    assert judge(toy, lambda number: 2 * number if number < 4 else 0).mistake is None
    assert calls == [4]
    assert judge(toy, lambda number: number + 100).mistake == "counts_its_calls" and calls == [4, 1, 2, 3]


def test_another_error_type_where_an_error_is_due_is_no_named_mistake():
    def keeps_key_error(metrics, patience):
        if any(m != m for m in metrics):
            raise KeyError("NaN")
        return exercises_of("schedules")["schedules-7"].answer(metrics, patience)

    report = check("schedules-7", keeps_key_error)
    assert (report.status, report.mistake) == ("raised", None)


def test_another_form_of_a_mistake_has_its_name_and_needs_it_declared():
    toy = _toy()

    @toy.form_of("adds_two")
    def adds_two_and_a_half(number):
        return number + 2.5

    assert verify(toy) == [] and judge(toy, lambda number: number + 2.5).mistake == "adds_two"
    with pytest.raises(ValueError, match="no wrong answer named halves"):
        toy.form_of("halves")


def test_two_wrong_answers_that_differ_only_in_the_text_of_a_due_error_are_a_defect():
    @exercise("toy-12", title="t", difficulty="easy", minutes=1, cases=[(1,), (-1,)], hints=["a", "b"])
    def positive(number):
        """Positive."""
        if number < 0:
            raise ValueError("negative")
        return number

    def fails_with(text):
        def fails(number):
            if number < 0:
                raise ValueError(text)
            return number + 1

        return fails

    for text in ("one", "two"):
        positive.wrong_answers[text] = fails_with(text)
    assert _problems(positive, "apart")


def test_a_form_that_is_right_and_a_long_line_are_defects():
    toy = _toy()
    toy.form_of("adds_two")(lambda number: number + number)
    assert _problems(toy, "from the right one")

    @exercise("toy-11", title="t", difficulty="easy", minutes=1, cases=[(1,)], hints=["a", "b"])
    def one(number):
        """A line that is far longer than what fits into the cell of a notebook on a laptop with a side bar."""
        return number

    assert _problems(one, "more than 100 characters")
