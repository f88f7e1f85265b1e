"""What readers of chapter 06 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import copy
import math
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm

from course_utils.exercises import answer, facts, hint
from course_utils.exercises.machinery import exercises_of
from course_utils.exercises.optimizer_step_facts import close_facts_differ, up_to_the_first_fault
from course_utils.exercises.optimizer_step_window_facts import CountingSGD, Watched, whole_batch
from course_utils.optimizer_step import EMA, depth_groups, freeze, update
from tests.reader_answers import judged, lines_in_hints

ALL = list(exercises_of("optimizer_step").values())
each_exercise = pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)


# What holds for every exercise of the chapter


def test_chapter_06_has_six_exercises_of_three_levels():
    assert [e.id for e in ALL] == [f"optimizer_step-{number}" for number in range(1, 7)]
    assert sorted(e.difficulty for e in ALL) == ["easy", "hard", "hard", "medium", "medium", "medium"]


@each_exercise
def test_the_hints_are_layered_and_hold_no_line_of_the_answer(exercise):
    texts = hint(exercise.id).texts
    assert len(set(texts)) == len(texts) == 3 and list(texts) == list(exercise.hints)
    assert lines_in_hints(exercise, longer_than=24) == []
    assert any(words in exercise.stub for words in ("give", "have the norm 5"))  # an example worked out by hand


@each_exercise
def test_messages_say_in_one_to_five_lines_what_the_mistake_does(exercise):
    messages = [exercise.message(name) for name in exercise.wrong_answers]
    assert 12 <= len(messages) <= 16
    assert [message for message in messages if not 100 <= len(message) <= 420 or message[-1] not in '.)"'] == []


@each_exercise
def test_every_case_was_worked_out(exercise):
    assert exercise.expected is not None and len(exercise.expected) == len(exercise.case_list) >= 4
    assert exercise.minutes in range(5, 21) and exercise.lesson


# The facts


def test_facts_end_with_the_first_fault_and_so_two_mistakes_with_one_first_fault_are_alike():
    sound = {"steps": "once", "weight": 0.5, "loss": 1.0}
    one = up_to_the_first_fault({"steps": "once", "weight": 0.7, "loss": 3.0}, sound)
    other = up_to_the_first_fault({"steps": "once", "weight": 0.7 + 1e-7, "loss": 1.0}, sound)
    assert one == {"steps": "once", "weight": 0.7} and close_facts_differ(one, other) is None
    assert close_facts_differ(sound, one) == "weight: expected 0.5, got 0.7"


def test_numbers_of_an_update_may_differ_by_more_than_others():
    expected, got = {"a": [1.0, 0.0]}, {"a": [1.0 + 5e-5, 5e-7]}
    assert close_facts_differ(expected, got) is None and facts.close_facts_differ(expected, got)


# optimizer_step-1


def _by_update(model, optimizer, micro_batches):
    return update(model, optimizer, cross_entropy, micro_batches).loss


def _by_means_times_counts(model, optimizer, micro_batches):
    counts = [(targets != -100).sum() for _, targets in micro_batches]
    model.zero_grad()
    losses = []
    for (inputs, targets), count in zip(micro_batches, counts, strict=True):
        if count > 0:
            loss = cross_entropy(model(inputs), targets) * count / sum(counts)
            loss.backward()
            losses.append(loss.detach())
    optimizer.step()
    optimizer.zero_grad()
    return torch.stack(losses).sum()


def _divides_the_gradients_at_the_end(model, optimizer, micro_batches):
    optimizer.zero_grad(set_to_none=False)
    total, count = 0.0, 0
    for inputs, targets in micro_batches:
        loss = nn.CrossEntropyLoss(reduction="none")(model(inputs), targets).sum()
        loss.backward()
        total, count = total + float(loss), count + int(targets.ne(-100).sum())
    for param in model.parameters():
        param.grad /= count
    optimizer.step()
    return total / count


def _by_autograd_grad_and_passing_over_nan(model, optimizer, micro_batches):
    count = sum((targets != -100).sum().item() for _, targets in micro_batches)
    params, total = list(model.parameters()), 0.0
    for param in params:
        param.grad = torch.zeros_like(param)
    for inputs, targets in micro_batches:
        loss = cross_entropy(model(inputs), targets)
        if loss.isnan():
            continue
        share = (targets != -100).sum().item() / count
        for param, gradient in zip(params, torch.autograd.grad(loss * share, params), strict=True):
            param.grad += gradient
        total += loss.item() * share
    optimizer.step()
    return total


@pytest.mark.parametrize(
    "fn",
    [_by_update, _by_means_times_counts, _divides_the_gradients_at_the_end, _by_autograd_grad_and_passing_over_nan],
)
def test_every_sound_update_from_a_window_is_right(fn):
    assert judged("optimizer_step-1", fn)[0] == "right"


def test_the_answer_is_what_the_whole_batch_gives():
    window = [([1.0, -2.0], [0, 2]), ([], []), ([0.5, 3.0, 1.5], [1, -100, 2])]
    model = Watched([0.5, -1.0, 0.2])
    tensors = [(torch.tensor(xs).reshape(-1, 1), torch.tensor(ts, dtype=torch.int64)) for xs, ts in window]
    loss = answer("optimizer_step-1")(model, CountingSGD(model.parameters(), lr=1.0), tensors)
    inputs, targets = (torch.cat(parts) for parts in zip(*tensors, strict=True))
    other = Watched([0.5, -1.0, 0.2])
    other.zero_grad()
    whole = cross_entropy(other(inputs), targets)
    whole.backward()
    weights = other.linear.weight - other.linear.weight.grad
    torch.testing.assert_close(model.linear.weight, weights)
    assert loss == pytest.approx(whole.item()) == pytest.approx(whole_batch([0.5, -1.0, 0.2], window)[1])


def _sums(scale_of, *, clear=True, every=None, give=lambda total, losses: total):
    """A loop over the micro-batches whose loss is a sum times scale_of(micro_batches, number)."""

    def fn(model, optimizer, micro_batches):
        if clear:
            optimizer.zero_grad()
        losses = []
        for number, (inputs, targets) in enumerate(micro_batches):
            loss = cross_entropy(model(inputs), targets, reduction="sum") * scale_of(micro_batches, number)
            loss.backward()
            losses.append(loss.item())
            if every and every(number, len(micro_batches)):
                optimizer.step()
                optimizer.zero_grad()
        if not every:
            optimizer.step()
        return give(sum(losses), losses)

    return fn


def _one_over_all(micro_batches, number):
    return 1 / sum(int((targets != -100).sum()) for _, targets in micro_batches)


def _means_without_empties_divided_at_the_end(model, optimizer, micro_batches):
    optimizer.zero_grad()
    total, number = 0.0, 0
    for inputs, targets in micro_batches:
        if len(targets) == 0:
            continue
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        total, number = total + loss.item(), number + 1
    for param in model.parameters():
        param.grad /= number
    optimizer.step()
    return total / number


def _passes_over_empty_ones_only(model, optimizer, micro_batches):
    count = 1 / _one_over_all(micro_batches, 0)
    optimizer.zero_grad()
    total = 0.0
    for inputs, targets in micro_batches:
        if len(targets):
            loss = cross_entropy(model(inputs), targets) * (targets != -100).sum() / count
            loss.backward()
            total += loss.item()
    optimizer.step()
    return total


def _through_the_running_sum(model, optimizer, micro_batches):
    optimizer.zero_grad()
    total = 0
    for inputs, targets in micro_batches:
        total = total + cross_entropy(model(inputs), targets, reduction="sum") * _one_over_all(micro_batches, 0)
        total.backward(retain_graph=True)
    optimizer.step()
    return total.item()


def _divides_all_and_clears_at_the_end(model, optimizer, micro_batches):
    loss = _sums(lambda b, n: 1.0, clear=False, every=lambda number, k: False)(model, optimizer, micro_batches)
    for param in model.parameters():
        param.grad *= _one_over_all(micro_batches, 0)
    optimizer.step()
    optimizer.zero_grad()
    return loss * _one_over_all(micro_batches, 0)


def _joined_and_kept(model, optimizer, micro_batches):
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_means_without_empties_divided_at_the_end, "averages_the_means", "2 times as long as it should be and points"),
        (_sums(_one_over_all, every=lambda number, k: number % k == 0), "steps_on_the_first_micro_batch", "or leak"),
        (_sums(_one_over_all, clear=False), "keeps_old_gradients", "at [0]: expected 0.25, got -6.75"),
        (_sums(lambda b, n: 1.0), "adds_up_the_means", "the step is 4 times as long"),
        (_sums(lambda b, n: 1 / sum(len(t) for _, t in b)), "divides_by_another_count", "Count targets != -100"),
        (_sums(lambda b, n: 1 / max(1, sum(int((t != -100).sum()) for _, t in b[: n + 1]))), "divides_by_another_count",
         "those that came so far"),
        (_sums(lambda b, n: 1 / max(1, sum(len(t) for _, t in b[: n + 1]))), "divides_by_another_count", "so far"),
        (_sums(_one_over_all, give=lambda total, losses: losses[-1]), "returns_another_mean", "loss that is returned"),
        (_passes_over_empty_ones_only, "lets_a_mean_of_nothing_in", "expected 0.663701408, got nan"),
        (_through_the_running_sum, "goes_through_earlier_graphs_again", "once more, and adds their gradients again"),
        (_divides_all_and_clears_at_the_end, "keeps_old_gradients", "behind the step is too late for this one"),
        (_joined_and_kept, "runs_the_whole_window_at_once", "4 examples at once; the largest micro-batch has 3"),
    ],
)  # fmt: skip
def test_windows_that_people_add_up_first_are_recognised(fn, mistake, words):
    status, found, text = judged("optimizer_step-1", fn)
    assert (status, found) == ("wrong", mistake) and words in text


def _divides_the_lr_for_one_step(model, optimizer, micro_batches):
    optimizer.param_groups[0]["lr"] = _one_over_all(micro_batches, 0)
    loss = _sums(lambda b, n: 1.0)(model, optimizer, micro_batches)
    optimizer.param_groups[0]["lr"] = 1.0
    return loss * _one_over_all(micro_batches, 0)


def _clips_to_1(model, optimizer, micro_batches):
    optimizer.register_step_pre_hook(lambda *_: clip_grad_norm_(model.parameters(), 1.0) and None)
    return _sums(_one_over_all)(model, optimizer, micro_batches)


def _lets_the_lr_do_it(model, optimizer, micro_batches):
    optimizer.param_groups[0]["lr"] /= len(micro_batches)
    return _sums(lambda b, n: 1.0)(model, optimizer, micro_batches)


@pytest.mark.parametrize(
    "fn, words",
    [
        (lambda m, o, b: _by_update(m, o, b) and None, "returned None. Is the `return` missing"),
        (lambda m, o, b: (_by_update(m, o, b), len(b)), "the loss that is returned: expected a number, got a tuple"),
        (lambda m, o, b: _by_update(m, o, b[:-1]), "the weights afterwards"),
        (_lets_the_lr_do_it, "the step is 2 times as long as it should be"),
        (lambda m, o, b: [_by_update(m, o, [part]) for part in b if len(part[1])][-1], "optimizer.step() is called"),
        (lambda m, o, b: _by_update(m, o, [part for part in b if (part[1] != -100).all()]), "points the other way"),
        (_divides_the_lr_for_one_step, "the gradient at the step: at [0][0]: expected -0.25, got -1.0"),
        (_clips_to_1, "the weights afterwards: at [0]: expected 1.33333337, got 0.7071"),
        (lambda m, o, b: _by_update(m.eval(), o, b), "the mode of the model afterwards: evaluation"),
        (lambda m, o, b: -_by_update(m, o, b), "expected 0.693147182, got -0.693147182"),
    ],
    ids=[
        "no return",
        "two results",
        "without the last",
        "by the lr",
        "a step each",
        "without those with -100",
        "by an lr that is put back",
        "clipped",
        "evaluates",
        "the sign",
    ],
)
def test_updates_that_are_nearly_right_are_told_what_differs(fn, words):
    status, _, text = judged("optimizer_step-1", fn)
    assert status == "wrong" and words in text


def test_an_update_without_a_graph_shows_the_readers_line():
    def fn(model, optimizer, micro_batches):
        with torch.no_grad():
            return _by_update(model, optimizer, micro_batches)

    status, _, text = judged("optimizer_step-1", fn)
    assert status == "raised" and "does not require grad" in text and "of your code" in text


# optimizer_step-2


def _by_a_list(loader, accumulate, num_epochs):
    step = 0
    for _ in range(num_epochs):
        window = []
        for batch in loader:
            window.append(batch)
            if len(window) == accumulate:
                yield step, window
                step, window = step + 1, []
        if window:
            yield step, window
            step += 1


def _by_next(loader, accumulate, num_epochs):
    step = 0
    for _ in range(num_epochs):
        batches, over = iter(loader), False
        while not over:
            window = []
            while len(window) < accumulate and not over:
                try:
                    window.append(next(batches))
                except StopIteration:
                    over = True
            if window:
                yield step, tuple(window)
                step += 1


def _by_enumerate(loader, accumulate, num_epochs):
    def windows():
        for _ in range(num_epochs):
            batches = iter(loader)
            yield from iter(lambda: list(islice(batches, accumulate)), [])  # noqa: B023

    return enumerate(windows())


class _Iterator:
    def __init__(self, *given):
        self.windows = _by_a_list(*given)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.windows)


@pytest.mark.parametrize("fn", [_by_a_list, _by_next, _by_enumerate, lambda loader, accumulate, num_epochs: _Iterator(
    loader, accumulate, num_epochs)], ids=["a list", "next", "enumerate", "an iterator"])  # fmt: skip
def test_every_sound_cut_into_windows_is_right(fn):
    assert judged("optimizer_step-2", fn)[0] == "right"


def _by_the_remainder(loader, accumulate, num_epochs):
    step, window = 0, []
    for _ in range(num_epochs):
        for number, batch in enumerate(loader):
            window.append(batch)
            if (number + 1) % accumulate == 0:
                yield step, window
                step, window = step + 1, []


def _by_zip(loader, accumulate, num_epochs):
    step = 0
    for _ in range(num_epochs):
        for window in zip(*[iter(loader)] * accumulate, strict=False):
            yield step, list(window)
            step += 1


def _with_what_is_left(loader, accumulate, num_epochs):
    step = 0
    for _ in range(num_epochs):
        window = []
        for batch in loader:
            window.append(batch)
            if len(window) == accumulate:
                yield step, window
                step, window = step + 1, []
        yield step, window
        step += 1


def _cleared(loader, accumulate, num_epochs):
    window = []
    for step, found in _by_a_list(loader, accumulate, num_epochs):
        window.extend(found)
        yield step, window
        window.clear()


def _by_the_length(loader, accumulate, num_epochs):
    for step in range(num_epochs * math.ceil(len(loader) / accumulate)):
        yield step, []


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_by_the_remainder, "leaks_into_the_next_epoch", "['0.4', '1.0', '1.1']"),
        (_by_zip, "drops_the_last_window", "expected length 6, got length 4"),
        (_with_what_is_left, "hands_over_an_empty_window", "Its mean loss is 0 / 0"),
        (_cleared, "hands_over_one_list", "the first one now holds []"),
        (lambda lo, a, e: list(_by_a_list(lo, a, e)), "loads_the_epoch_first", "`yield` one after the other"),
        (lambda lo, a, e: _by_a_list(iter(lo), a, e), "reads_one_epoch_only", "expected length 6, got length 3"),
        (_by_the_length, "asks_for_the_length", "has no len()"),
    ],
)
def test_windows_that_people_cut_first_are_recognised(fn, mistake, words):
    status, found, text = judged("optimizer_step-2", lambda loader, accumulate, num_epochs: fn(
        loader, accumulate, num_epochs))  # fmt: skip
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda step, window: window, "as ['0.0', '0.1'], not as a pair (step, window)"),
        (lambda step, window: (window, step), "not in the order (step, window)"),
        (lambda step, window: (step, iter(window)), "with an iterator for a window, not a list"),
        (lambda step, window: (0, window), "the numbers of the updates: at [1]: expected 1, got 0"),
        (lambda step, window: (step, window[::-1]), "at [0]: the same in another order"),
        (lambda step, window: (step, window, len(window)), "not as a pair"),
    ],
    ids=["windows alone", "turned round", "iterators", "no count", "backwards", "three"],
)
def test_windows_that_are_nearly_right_are_told_what_differs(change, words):
    def fn(loader, accumulate, num_epochs):
        for step, window in _by_a_list(loader, accumulate, num_epochs):
            yield change(step, window)

    status, found, text = judged("optimizer_step-2", fn)
    assert (status, found) == ("wrong", None) and words in text


def test_an_epoch_that_is_kept_and_given_again_is_told():
    def fn(loader, accumulate, num_epochs):
        return _by_a_list(list(loader), accumulate, num_epochs)

    assert "the windows: at [3][0]: expected '1.0', got '0.0'" in judged("optimizer_step-2", fn)[2]


def test_iterators_of_later_epochs_that_are_made_at_the_start_are_told():
    def fn(loader, accumulate, num_epochs):
        step = 0
        for batches in [iter(loader) for _ in range(num_epochs)]:  # a loader with workers starts them all now
            while window := list(islice(batches, accumulate)):
                yield step, window
                step += 1

    status, _, text = judged("optimizer_step-2", fn)
    assert status == "wrong" and "when each window comes and at the end: at [0]: expected 1" in text


def test_an_epoch_more_than_asked_for_is_not_even_begun():
    def fn(loader, accumulate, num_epochs):
        yield from answer("optimizer_step-2")(loader, accumulate, num_epochs)
        iter(loader)

    status, _, text = judged("optimizer_step-2", fn)
    assert status == "wrong" and "and at the end: at [6]: expected 2, got 3" in text


def test_a_first_micro_batch_that_every_epoch_is_believed_to_have_fails_at_an_empty_epoch():
    def fn(loader, accumulate, num_epochs):
        step = 0
        for _ in range(num_epochs):
            batches = iter(loader)
            window = [next(batches), *islice(batches, accumulate - 1)]
            while window:
                yield step, window
                step, window = step + 1, list(islice(batches, accumulate))

    status, _, text = judged("optimizer_step-2", fn)
    assert status == "wrong" and "epochs of 0, 3 micro-batches" in text and "until next() finds nothing" in text


def test_windows_that_are_only_printed_or_without_an_end_are_told():
    def prints(loader, accumulate, num_epochs):
        for step, window in _by_a_list(loader, accumulate, num_epochs):
            print(step, window)

    def goes_on(loader, accumulate, num_epochs):
        while True:
            yield from _by_a_list(loader, accumulate, 1)
            yield 0, []

    assert "it prints its result" in judged("optimizer_step-2", prints)[2].lower()
    assert judged("optimizer_step-2", goes_on)[0] == "wrong"


# optimizer_step-3


def _by_the_scale(loss, model, optimizer, scaler, scheduler, max_norm):
    before = scaler.get_scale()
    model.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() < before:
        return True
    scheduler.step()
    return False


def _by_looking_at_all_gradients(loss, model, optimizer, scaler, scheduler, max_norm):
    optimizer.zero_grad(set_to_none=False)
    (loss * scaler.get_scale()).backward()
    scaler.unscale_(optimizer)
    bad = not all(param.grad.isfinite().all() for param in model.parameters())
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    if not bad:
        scheduler.step()
    return torch.tensor(bad)


def _by_a_hook_of_the_optimizer(loss, model, optimizer, scaler, scheduler, max_norm):
    steps = []
    hook = optimizer.register_step_post_hook(lambda *given: steps.append(1))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(list(model.parameters()), max_norm)
    scaler.step(optimizer)
    scaler.update()
    hook.remove()
    for _ in steps:
        scheduler.step()
    return not steps


def _with_a_bound_that_carries_the_scale(loss, model, optimizer, scaler, scheduler, max_norm):
    scale = scaler.get_scale()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), max_norm * scale)
    scaler.step(optimizer)
    scaler.update()
    skipped = scaler.get_scale() < scale
    if not skipped:
        scheduler.step()
    return skipped


@pytest.mark.parametrize(
    "fn",
    [_by_the_scale, _by_looking_at_all_gradients, _by_a_hook_of_the_optimizer, _with_a_bound_that_carries_the_scale],
)
def test_every_sound_scaled_step_is_right(fn):
    assert judged("optimizer_step-3", fn)[0] == "right"


def _steps(order, tell, *, moves=None):
    """One step from a list of actions; `tell(norm, before, now, came)` is returned, and the schedule moves by it."""

    def fn(loss, model, optimizer, scaler, scheduler, max_norm):
        seen = {"before": scaler.get_scale(), "norm": torch.zeros(()), "came": None}
        actions = {
            "zero": optimizer.zero_grad,
            "backward": lambda: scaler.scale(loss).backward(),
            "plain": loss.backward,
            "unscale": lambda: scaler.unscale_(optimizer),
            "clip": lambda: seen.update(norm=clip_grad_norm_(model.parameters(), max_norm)),
            "step": lambda: seen.update(came=scaler.step(optimizer)),
            "each": lambda: [clip_grad_norm_([param], max_norm) for param in model.parameters()],
            "bare": optimizer.step,
            "update": scaler.update,
            "schedule": scheduler.step,
        }
        for action in order.split():
            actions[action]()
        told = tell(seen["norm"], seen["before"], scaler.get_scale(), seen["came"])
        if moves is None and not told:
            scheduler.step()
        return told

    return fn


def _norm(norm, before, now, came):
    return not math.isfinite(norm)


def _looks_whether_a_weight_moved(loss, model, optimizer, scaler, scheduler, max_norm):
    before = copy.deepcopy(model.state_dict())
    _steps("zero backward unscale clip step update", _norm, moves=1)(
        loss, model, optimizer, scaler, scheduler, max_norm
    )
    skipped = all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    if not skipped:
        scheduler.step()
    return skipped


RIGHT = "zero backward unscale clip step update"


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_steps("zero backward clip step update schedule", lambda *a: False, moves=1), "clips_before_unscaling",
         "got -9.155"),
        (_steps("zero backward clip unscale step update", lambda n, before, now, c: now < before),
         "clips_before_unscaling", "learns nothing"),
        (_steps("zero backward unscale clip unscale step update", _norm), "unscales_twice", "has already been called"),
        (_steps("zero backward unscale clip step", _norm), "never_updates_the_scale", "overflows for ever"),
        (_steps(RIGHT + " schedule", lambda n, before, now, c: now < before, moves=1),
         "moves_the_schedule_on_a_skipped_step", "the number of the scheduler's steps: expected 0, got 1"),
        (_steps(RIGHT, lambda n, before, now, c: now != before), "takes_any_change_for_a_skip", "False, got True"),
        (_steps(RIGHT, lambda n, before, now, c: now == before), "takes_an_unchanged_scale_for_a_skip", "after step 1"),
        (_steps(RIGHT, lambda n, before, now, came: came is None), "believes_what_step_returns", "None in either case"),
        (_steps("zero backward unscale clip bare update", _norm), "steps_without_the_scaler", "inf and NaN reach"),
        (_steps("backward unscale clip step update", _norm), "keeps_old_gradients", "got -0.832"),
        (_steps("backward unscale clip zero step update", _norm), "clears_before_the_step", "no weight ever moves"),
        (_steps("zero backward unscale step update clip", _norm), "never_clips", "Between unscale_ and scaler.step"),
        (_steps(RIGHT.replace("zero ", "") + " zero", _norm), "keeps_old_gradients", "behind the step is too late"),
        (_steps("zero backward unscale clip update step", _norm), "unscales_twice", "and divides again"),
        (_steps("zero plain clip bare", _norm), "steps_without_the_scaler", "the scale: expected 512.0, got 1024.0"),
        (_steps(RIGHT, lambda n, before, now, c: now <= before), "takes_an_unchanged_scale_for_a_skip", "stays after"),
        (_steps(RIGHT.replace("clip", "each"), lambda n, before, now, c: now < before), "never_clips", "for itself"),
        (ALL[2].forms("keeps_a_bad_step_from_the_scaler")[1], "keeps_a_bad_step_from_the_scaler",
         "after step 3, the scale: expected 256.0, got"),
        (_looks_whether_a_weight_moved, "asks_the_loss_or_the_weights", "after step 3, what is returned: expected"),
    ],
)  # fmt: skip
def test_scaled_steps_that_people_write_first_are_recognised(fn, mistake, words):
    status, found, text = judged("optimizer_step-3", fn)
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize(
    "fn, status, words",
    [
        (_steps(RIGHT, lambda *a: None), "wrong", "returned None"),
        (_steps(RIGHT, lambda n, *a: "" if math.isfinite(n) else "overflow"), "wrong", "is returned: ''; it should"),
        (_steps("zero backward unscale clip schedule step update", _norm, moves=1), "wrong", "got -0.299999952"),
        (_steps("zero backward unscale clip step bare update", _norm), "wrong", "-0.599999905, got -1.19999981"),
        (_steps(RIGHT, lambda n, *a: bool(n.isnan())), "wrong", "what is returned: expected True, got False"),
        (_steps(RIGHT + " update", _norm), "raised", "No inf checks were recorded"),
    ],
    ids=["no return", "text", "schedule first", "two steps", "NaN only", "two updates"],
)  # fmt: skip
def test_scaled_steps_that_are_nearly_right_are_told_what_differs(fn, status, words):
    found, _, text = judged("optimizer_step-3", fn)
    assert found == status and words in text


# optimizer_step-4


def _root(gradients):
    return math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))


def _by_norms_of_norms(parameters, max_norm):
    gradients = [param.grad for param in parameters if param.grad is not None]
    if not gradients:
        return 0.0
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    if not torch.isfinite(norm):
        raise FloatingPointError("a gradient is not finite")
    for gradient in gradients:
        gradient *= torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    return norm


def _by_one_vector(parameters, max_norm):
    held = [param for param in parameters if param.grad is not None]
    norm = torch.cat([torch.zeros(1), *(param.grad.flatten() for param in held)]).norm().item()
    if math.isnan(norm) or math.isinf(norm):
        raise FloatingPointError
    if norm > max_norm:
        for param in held:
            param.grad = param.grad * max_norm / norm
    return norm


class _OwnError(FloatingPointError):
    pass


def _by_numpy(parameters, max_norm):
    gradients = [param.grad for param in list(parameters) if param.grad is not None]
    norm = np.sqrt(sum((gradient.numpy().astype(float) ** 2).sum() for gradient in gradients))
    if not np.isfinite(norm):
        raise _OwnError(f"{norm}")
    for gradient in gradients:
        gradient.div_(max(1.0, norm / max_norm))
    return norm


def _by_the_librarys_parts(parameters, max_norm):
    held = list(parameters)
    norm = float(get_total_norm([param.grad for param in held if param.grad is not None]))
    if not math.isfinite(norm):
        raise FloatingPointError
    clip_grads_with_norm_(held, max_norm, torch.tensor(norm))
    return norm


@pytest.mark.parametrize("fn", [_by_norms_of_norms, _by_one_vector, _by_numpy, _by_the_librarys_parts])
def test_every_sound_clipping_is_right(fn):
    assert judged("optimizer_step-4", fn)[0] == "right"


def _clips(norm_of=_root, factor=lambda norm, most: most / norm if norm > most else 1.0, refuse=FloatingPointError):
    def fn(parameters, max_norm):
        gradients = [param.grad for param in parameters if param.grad is not None]
        norm = norm_of(gradients)
        if refuse and not math.isfinite(norm):
            raise refuse("not finite")
        for gradient in gradients:
            gradient.mul_(factor(norm, max_norm))
        return norm

    return fn


def _each_in_one_loop(parameters, max_norm):
    squares = 0.0
    for param in parameters:
        if param.grad is not None:
            norm = param.grad.norm().item()
            squares += norm**2
            if norm > max_norm:
                param.grad.mul_(max_norm / norm)
    return math.sqrt(squares)


def _in_a_copy(parameters, max_norm):
    gradients = [param.grad for param in parameters if param.grad is not None]
    norm = _root(gradients)
    if not math.isfinite(norm):
        raise FloatingPointError
    for gradient in gradients:
        gradient = gradient * min(1.0, max_norm / (norm + 1e-6))
    return norm


def _each_with_the_last_norm(check):
    def fn(parameters, max_norm):
        last = 0.0
        gradients = [param.grad for param in parameters if param.grad is not None]
        if check and not math.isfinite(_root(gradients)):
            raise FloatingPointError
        for gradient in gradients:
            last = gradient.norm().item()
            if last > max_norm:
                gradient.mul_(max_norm / last)
        return last

    return fn


def _by_the_norm_of_the_weights(parameters, max_norm):
    held = list(parameters)
    norm = _root([param.detach() for param in held])
    for param in held:
        if param.grad is not None and norm > max_norm:
            param.grad.mul_(max_norm / norm)
    return norm


def _in_two_loops(parameters, max_norm):
    norm = _root([param.grad for param in parameters if param.grad is not None])
    for param in parameters:
        if param.grad is not None and norm > max_norm:
            param.grad *= max_norm / norm
    return norm


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_each_in_one_loop, "clips_each_parameter", "All gradients are one vector"),
        (_in_a_copy, "changes_a_copy", "Multiply in place"),
        (_in_two_loops, "uses_the_parameters_up", "the second time nothing comes: make a list"),
        (lambda ps, most: float(clip_grad_norm_(ps, most)), "lets_nan_through", "nothing is raised: nan is returned"),
        (_clips(lambda gradients: _root(gradients) ** 2), "forgets_the_root", "expected 5.0, got 25.0"),
        (_clips(factor=lambda norm, most: most / (norm + 1e-6)), "scales_small_gradients_up", "factor is at most 1"),
        (_clips(factor=lambda norm, most: min(1, most / norm)), "divides_by_a_norm_of_0", "division by zero"),
        (_clips(lambda gradients: sum(g.norm().item() for g in gradients)), "adds_the_norms", "expected 5.0, got 7.0"),
        (_clips(lambda gradients: sum(g.norm().item() for g in gradients), refuse=None), "adds_the_norms", "got 7.0"),
        (_each_with_the_last_norm(True), "clips_each_parameter", "returned: expected 5.0, got 4.0"),
        (_each_with_the_last_norm(False), "clips_each_parameter", "returned: expected 5.0, got 4.0"),
        (_by_the_norm_of_the_weights, "clips_the_weights", "expected 5.0, got 1.414"),
        (_clips(factor=lambda norm, most: 1 / norm if norm > most else 1.0), "divides_by_the_norm_alone", "norm 1."),
        (_clips(lambda gradients: math.sqrt(sum(float(g.square().sum()) for g in gradients if g.isfinite().all()))),
         None, "nothing is raised: 12.36"),
        (lambda ps, most: sum(float(p.grad.norm()) ** 2 for p in ps) ** 0.5, None, "the gradients afterwards"),
    ],
)  # fmt: skip
def test_clippings_that_people_write_first_are_recognised(fn, mistake, words):
    status, found, text = judged("optimizer_step-4", lambda parameters, max_norm: fn(parameters, max_norm))
    assert (status, found) == ("wrong", mistake) and words in text


def _forgets_them_and_raises(parameters, max_norm):
    held = list(parameters)
    norm = _root([param.grad for param in held if param.grad is not None])
    if not math.isfinite(norm):
        for param in held:
            param.grad = None
        raise FloatingPointError
    return _clips()(held, max_norm)


@pytest.mark.parametrize(
    "fn, status, words",
    [
        (lambda ps, most: _by_one_vector(ps, most) and None, "wrong", "returned None"),
        (_clips(refuse=ValueError), "wrong", "where one gradient is NaN: ValueError is raised (not finite)"),
        (lambda ps, most: clip_grad_norm_(ps, most, error_if_nonfinite=True), "wrong", "RuntimeError is raised"),
        (_clips(factor=lambda norm, most: min(1.0, norm / most)), "wrong", "expected 0.600000024, got 3.0"),
        (_clips(factor=lambda norm, most: most / norm if norm < most and norm else 1.0), "wrong", "got 3.0"),
        (_clips(lambda gs: math.sqrt(sum(float(g.square().mean()) for g in gs))), "wrong", "got 0.452769271"),
        (_forgets_them_and_raises, "wrong", "the gradients are [None, None, None] already"),
        (_clips(lambda gs: torch.stack([g.norm() for g in gs]).norm().item()), "raised", "a non-empty TensorList"),
    ],
    ids=["no return", "ValueError", "the library's error", "the other way", "only small ones", "means", "None",
         "nothing to stack"],
)  # fmt: skip
def test_clippings_that_are_nearly_right_are_told_what_differs(fn, status, words):
    found, _, text = judged("optimizer_step-4", fn)
    assert found == status and words in text


# optimizer_step-5


def _decay(decay, updates):
    return min(decay, (1 + updates) / (10 + updates))


def _with_new_tensors(ema, model, decay, skipped):
    if not ema:
        ema["num_updates"], ema["average"] = 0, copy.deepcopy(model.state_dict())
    elif not skipped:
        share = _decay(decay, ema["num_updates"])
        for name, value in model.state_dict().items():
            old = ema["average"][name]
            ema["average"][name] = share * old + (1 - share) * value if value.dtype.is_floating_point else value.clone()
        ema["num_updates"] += 1


def _with_a_new_dict_each_time(ema, model, decay, skipped):
    tensors = {**{name: param.detach() for name, param in model.named_parameters()}, **dict(model.named_buffers())}
    if ema == {}:
        ema.update({"num_updates": 0, "average": {name: tensor.clone() for name, tensor in tensors.items()}})
    elif not skipped:
        share, old = _decay(decay, ema["num_updates"]), ema["average"]
        ema["average"] = {
            name: torch.lerp(tensor, old[name], share) if tensor.is_floating_point() else tensor.clone()
            for name, tensor in tensors.items()
        }
        ema["num_updates"] += 1


def _by_mul_and_add(ema, model, decay, skipped):
    if "average" not in ema:
        ema.update(average={n: v.detach().clone() for n, v in model.state_dict().items()}, num_updates=0)
        return
    if skipped:
        return
    share = _decay(decay, ema["num_updates"])
    for name, value in model.state_dict().items():
        old = ema["average"][name]
        old.mul_(share).add_(value, alpha=1 - share) if old.is_floating_point() else old.copy_(value)
    ema["num_updates"] += 1


def _by_the_package(ema, model, decay, skipped):
    average = EMA(model, decay=decay)
    if ema:
        average.load_state_dict({"decay": decay, "warmup": True, **ema})
        if not skipped:
            average.update(model)
    ema.update(num_updates=average.num_updates, average=average.average)


@pytest.mark.parametrize("fn", [_with_new_tensors, _with_a_new_dict_each_time, _by_mul_and_add, _by_the_package])
def test_every_sound_average_is_right(fn):
    assert judged("optimizer_step-5", fn)[0] == "right"


def _takes(take, *, start=lambda model: copy.deepcopy(model.state_dict()), of=lambda model: model.state_dict(), n=0):
    """An average by `take(average, value, d)` for each tensor, which begins as `start(model)`."""

    def fn(ema, model, decay, skipped):
        if not ema:
            ema.update(num_updates=n, average=start(model))
        elif not skipped:
            for name, value in of(model).items():
                take(ema["average"][name], value, _decay(decay, ema["num_updates"]))
            ema["num_updates"] += 1

    return fn


def _mul_add(average, value, share):
    average.mul_(share).add_(value.detach(), alpha=1 - share) if average.is_floating_point() else average.copy_(value)


def _in_a_dict_of_its_own(ema, model, decay, skipped):
    if not ema:
        ema = {"num_updates": 0, "average": copy.deepcopy(model.state_dict())}
    else:
        _by_mul_and_add(ema, model, decay, skipped)


def _counted_at_the_model(ema, model, decay, skipped):
    if not ema:
        model.count = 0
    elif not skipped:
        ema["num_updates"], model.count = model.count, model.count + 1
    _by_mul_and_add(ema, model, decay, skipped)


def _takes_what_is_new(ema, model, decay, skipped, *, fills=True, is_float=torch.is_floating_point, copy=torch.clone):
    """New tensors; the decisions that readers take otherwise are arguments."""
    now = model.state_dict()
    if not ema:
        ema.update(num_updates=0, average={name: value.clone() for name, value in now.items()})
        if fills:
            return
    if not skipped:
        d = _decay(decay, ema["num_updates"])
        for name, value in now.items():
            averaged = is_float(value) if name != "num_batches" else value.is_floating_point()
            ema["average"][name] = d * ema["average"][name] + (1 - d) * value if averaged else copy(value)
        ema["num_updates"] += 1


def _new(**how):
    return lambda ema, model, decay, skipped: _takes_what_is_new(ema, model, decay, skipped, **how)


def _counts_a_skip(ema, model, decay, skipped):
    _by_mul_and_add(ema, model, decay, skipped)
    ema["num_updates"] += skipped


def _parameters(model):
    return {name: param.detach().clone() for name, param in model.named_parameters()}


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_takes(lambda a, v, d: a.mul_(d).add_(v, alpha=1 - d)), "averages_whole_numbers", "result type Float can't"),
        (_takes(lambda a, v, d: a.lerp_(v, 1 - d)), "averages_whole_numbers", "not implemented for 'Long'"),
        (_takes(lambda a, v, d: a.lerp_(v, d) if a.is_floating_point() else a.copy_(v)), "swaps_the_decay", "1 - d"),
        (_takes(_mul_add, start=lambda model: model.state_dict()), "shares_the_weights",
         "weight is the model's own tensor"),
        (_takes(_mul_add, start=_parameters, of=_parameters), "leaves_the_buffers_out", "the average of running_mean"),
        (_takes(_mul_add, n=1), "counts_before_it_averages", "num_updates: expected 0, got 1"),
        (_in_a_dict_of_its_own, "fills_a_dict_of_its_own", "was `ema` itself filled"),
        (_counted_at_the_model, "keeps_the_counter_elsewhere", "loaded beside another run: an error, AttributeError"),
        (_new(fills=False), "counts_before_it_averages", "averages too, where it is to fill `ema` only"),
        (_new(is_float=lambda value: True), "averages_whole_numbers", "the average of num_examples: 0.89"),
        (_new(is_float=lambda value: value.dtype == torch.float32), "copies_the_buffers", "expected 1.9, got 2.0"),
        (_new(copy=lambda value: value), "shares_the_weights", "num_batches is the model's own tensor"),
        (_counts_a_skip, "counts_skipped_steps", "after step 1, num_updates: expected 0, got 1"),
    ],
)  # fmt: skip
def test_averages_that_people_keep_first_are_recognised(fn, mistake, words):
    status, found, text = judged("optimizer_step-5", fn)
    assert (status, found) == ("wrong", mistake) and words in text


def _weighs(decay_of):
    def fn(ema, model, decay, skipped):
        if not ema or skipped:
            return _by_mul_and_add(ema, model, decay, skipped)
        for name, value in model.state_dict().items():
            _mul_add(ema["average"][name], value, decay_of(decay, ema["num_updates"]))
        ema["num_updates"] += 1
        return None

    return fn


@pytest.mark.parametrize(
    "fn, words",
    [
        (_weighs(lambda decay, n: min(decay, n / (n + 1))), "after step 1, the average of weight"),
        (lambda e, m, d, s: _by_mul_and_add(e, m.eval(), d, s), "the model: in evaluation mode, and was in training"),
        (_weighs(lambda decay, n: decay * (1 + n) / (10 + n)), "expected 0.899999976, got 0.910000"),
        (_weighs(lambda decay, n: 1 - decay), "the average of weight: at [0]: expected"),
        (lambda e, m, d, s: e.update(num_updates=0, average=list(m.state_dict().values())), "not of the kind"),
        (lambda e, m, d, s: e.update(num_updates=0, average=copy.deepcopy(m)), "not of the kind"),
        (lambda e, m, d, s: e.update(num_updates=0, average=copy.deepcopy(m.state_dict())), "after step 1"),
        (lambda e, m, d, s: e.update(average=copy.deepcopy(m.state_dict())), "before training, num_updates: missing"),
    ],
    ids=["a mean", "evaluates", "the product", "1 - decay", "a list", "a model", "the present weights", "no counter"],
)
def test_averages_that_are_nearly_right_are_told_what_differs(fn, words):
    status, _, text = judged("optimizer_step-5", fn)
    assert status == "wrong" and words in text


# optimizer_step-6


def _with_a_running_lr(model, num_frozen, lr, factor):
    for place, child in enumerate(model):
        if place < num_frozen:
            for param in child.parameters():
                param.requires_grad = False
            child.train(False)
    placed, lists = set(), []
    for child in model:
        params = [param for param in child.parameters() if param.requires_grad and param not in placed]
        placed |= set(params)
        lists += [params] if params else []
    groups = []
    for params in lists[::-1]:
        groups.insert(0, {"params": params, "lr": lr})
        lr *= factor
    return groups


def _by_the_packages_tools(model, num_frozen, lr, factor):
    if num_frozen:
        freeze(model, *[name for name, _ in model.named_children()][:num_frozen])
    return depth_groups(model, lr=lr, factor=factor)


def _with_only_norms_and_dropout_asleep(model, num_frozen, lr, factor):
    children, placed, lists = list(model.children()), [], []
    for child in children[:num_frozen]:
        child.requires_grad_(False)
        for module in child.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.Dropout)):
                module.eval()
    for child in children:
        params = [p for p in child.parameters() if p.requires_grad and not any(p is other for other in placed)]
        placed += params
        lists += [params] if params else []
    last = len(lists) - 1
    return tuple({"params": ps, "lr": lr * factor ** (last - n), "name": str(n)} for n, ps in enumerate(lists))


@pytest.mark.parametrize("fn", [_with_a_running_lr, _by_the_packages_tools, _with_only_norms_and_dropout_asleep])
def test_all_sound_groups_are_right(fn):
    assert judged("optimizer_step-6", fn)[0] == "right"


def _naive(model, num_frozen, lr, factor):
    children = list(model)
    for child in children[:num_frozen]:
        for param in child.parameters():
            param.requires_grad = False
    last = len(children) - 1
    return [
        {"params": list(child.parameters()), "lr": lr * factor ** (last - place)}
        for place, child in enumerate(children)
        if place >= num_frozen
    ]


def _then(change):
    """The sound groups, and then `change(model, num_frozen, groups)`, whose result counts if there is one."""

    def fn(model, num_frozen, lr, factor):
        groups = _with_a_running_lr(model, num_frozen, lr, factor)
        changed = change(model, num_frozen, groups)
        return groups if changed is None else changed

    return fn


def _wakes_dropout(model, num_frozen, groups):
    for child in list(model)[:num_frozen]:
        for module in child.modules():
            module.training = isinstance(module, nn.Dropout)


def _thaws(model, num_frozen, groups):
    for child in list(model)[num_frozen:]:
        child.requires_grad_(True)


def _momentum_of_0(model, num_frozen, lr, factor):
    for child in list(model)[:num_frozen]:
        child.requires_grad_(False)
        for module in child.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.momentum = 0.0
    return _with_a_running_lr(model, 0, lr, factor)


@pytest.mark.parametrize(
    "fn, mistake, words",
    [
        (_naive, "stops_the_gradients_only", "frozen parts in training mode: ['stem.1', 'stem.2']; it should be: none"),
        (_momentum_of_0, "stops_the_gradients_only", "their dropout is on"),
        (_then(lambda m, n, groups: m.train(True) and None), "stops_the_gradients_only", "They need eval() as well"),
        (_then(lambda m, n, groups: m.train(False) and None), "evaluates_the_whole_model", "other parts in evaluation"),
        (_then(_wakes_dropout), "leaves_dropout_on", "frozen parts in training mode: ['stem.2']"),
        (_then(lambda m, n, gs: [g | {"lr": o["lr"]} for g, o in zip(gs, gs[::-1], strict=True)]), "reverses_the_lrs",
         "at [0]: expected 0.05, got 0.1"),
        (_then(lambda m, n, groups: groups[:-1]), "leaves_the_head_out", "no group: ['head.weight', 'head.bias']"),
        (_then(lambda m, n, gs: [g | {"lr": gs[-1]["lr"]} for g in gs]), "gives_all_one_lr", "the groups' lrs: at [0]"),
        (lambda model, n, lr, factor: _with_a_running_lr(model, n + 1, lr, factor), "freezes_one_too_many", "[: num_"),
    ],
)  # fmt: skip
def test_groups_that_people_make_first_are_recognised(fn, mistake, words):
    status, found, text = judged("optimizer_step-6", fn)
    assert (status, found) == ("wrong", mistake) and words in text


@pytest.mark.parametrize("first", ["groups", "children", "the frozen"])
def test_lrs_that_are_counted_from_the_input_are_recognised(first):
    def fn(model, num_frozen, lr, factor):
        groups = _with_a_running_lr(model, num_frozen, lr, factor)
        held = [{id(p) for p in child.parameters()} for child in model]
        for number, group in enumerate(groups):
            place = next(n for n, ids in enumerate(held) if id(group["params"][0]) in ids)
            group["lr"] = lr * factor ** {"groups": number, "children": place, "the frozen": place - num_frozen}[first]
        return groups

    assert judged("optimizer_step-6", fn)[:2] == ("wrong", "reverses_the_lrs")


def _drops_the_statistics(model, num_frozen, groups):
    for child in list(model)[:num_frozen]:
        for module in child.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean = module.running_var = None


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda m, n, groups: dict(enumerate(groups)), "what is returned: a dict, not a list of groups"),
        (lambda m, n, groups: torch.optim.SGD(groups, lr=1.0), "what is returned: a SGD, not a list of groups"),
        (lambda m, n, groups: [group["params"] for group in groups], 'a list with a list, not dicts with "params"'),
        (lambda m, n, groups: [{"params": [p for g in groups for p in g["params"]], "lr": 0.1}], "the groups: exp"),
        (lambda m, n, groups: [{"params": group["params"]} for group in groups], "the groups' lrs: at [0]: "),
        (lambda m, n, groups: groups[::-1], "the groups: at [0]"),
        (_thaws, "parameters to be frozen that require gradients: ['body.0.bias']"),
        (_drops_the_statistics, "the model's tensors: changed: stem.1.running_mean"),
        (lambda m, n, groups: [g | {"params": [str(p.shape) for p in g["params"]]} for g in groups], "in no group"),
    ],
    ids=["a dict", "an optimizer", "lists", "one group", "no lr", "the head first", "thawed", "no statistics", "names"],
)  # fmt: skip
def test_groups_that_are_nearly_right_are_told_what_differs(change, words):
    status, _, text = judged("optimizer_step-6", _then(change))
    assert status == "wrong" and words in text


def test_the_groups_of_the_answer_go_into_an_optimizer_and_leave_the_frozen_part_as_it_is():
    torch.manual_seed(0)
    block = lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))  # noqa: E731
    model = nn.Sequential(block(), block(), nn.Linear(2, 2)).train()
    frozen = copy.deepcopy(model[0].state_dict())
    optimizer = torch.optim.SGD(answer("optimizer_step-6")(model, 1, 0.1, 0.5), momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 2)).square().sum().backward()
        optimizer.step()
    assert all(torch.equal(value, frozen[name]) for name, value in model[0].state_dict().items())
    assert [group["lr"] for group in optimizer.param_groups] == [0.05, 0.1]
