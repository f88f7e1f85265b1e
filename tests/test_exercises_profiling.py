"""What readers of chapter 11 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import random
import statistics
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from course_utils.exercises import answer, hint
from course_utils.exercises.machinery import exercises_of
from course_utils.exercises.profiling_device import ScriptedDevice
from course_utils.profiling import LoopTimes, StepTimer, bytes_for_backward, decide, flops_of, tensors_for_backward
from tests.reader_answers import judged, lines_in_hints

ALL = list(exercises_of("profiling").values())
each_exercise = pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.id)


# What holds for every exercise of the chapter


@each_exercise
def test_the_hints_are_layered_and_hold_no_line_of_the_answer(exercise):
    texts = hint(exercise.id).texts
    assert 2 <= len(texts) <= 3 and len(set(texts)) == len(texts) and list(texts) == list(exercise.hints)
    assert lines_in_hints(exercise, longer_than=12) == []


@each_exercise
def test_messages_are_of_one_to_five_lines_and_name_no_function_of_the_checker(exercise):
    messages = [exercise.message(name) for name in exercise.wrong_answers]
    assert 6 <= len(messages) <= 16
    assert all(60 <= len(message) <= 420 and message[-1] in '."' for message in messages)


@each_exercise
def test_every_case_was_worked_out_by_hand(exercise):
    assert exercise.expected is not None and len(exercise.expected) == len(exercise.case_list) >= 5
    assert exercise.minutes in range(5, 21) and exercise.lesson


def _scripted(*script):
    """(step, device, clock, repeats) of a device with this script, the number of repetitions last."""
    device = ScriptedDevice(*script[:-1])
    return device.step, device, device.clock, script[-1]


def _row(*times):
    return dict(zip(("asked", "there", "done", "load_ms"), times, strict=True))


EXAMPLES = {
    "profiling-1": (([900, 50, 20, 21, 22], [0], 2), 21),
    "profiling-2": (([_row(0, 400, 430, 40), _row(440, 450, 480, 40), _row(500, 510, 540, 40)],), 0.2),
    "profiling-3": ((20, 50, 4, 100, 10), ("data-bound", 26)),
    "profiling-4": ((1, [2, 3], 1.0, 1.0), (24, pytest.approx(2.4e-5))),
    "profiling-5": (_scripted(1, 9, 0, 10), pytest.approx(9.1)),
    "profiling-6": (([("linear", 3, 5), ("relu",), ("linear", 5, 2)], 2), 64),
}


@each_exercise
def test_the_example_in_the_task_is_what_the_answer_gives(exercise):
    arguments, result = EXAMPLES[exercise.id]
    assert answer(exercise.id)(*arguments) == result


# profiling-1: the steady time of a step


def _by_masks(times_ms, epoch_starts, warmup):
    counted = np.ones(len(times_ms), dtype=bool)
    counted[:warmup] = counted[epoch_starts] = False
    if not counted.any():
        raise ValueError("no step counts")
    return np.median(np.array(times_ms)[counted])


def _by_a_set(times_ms, epoch_starts, warmup):
    counted = set(range(warmup, len(times_ms))) - set(epoch_starts)
    if not counted:
        raise ValueError(f"none of {len(times_ms)} steps counts")
    times = sorted(times_ms[position] for position in counted)
    return (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2


def _by_deleting(times_ms, epoch_starts, warmup):
    times = list(times_ms)
    for position in sorted({*epoch_starts, *range(min(warmup, len(times)))}, reverse=True):
        del times[position]
    return statistics.median(times)


def _by_quantile(times_ms, epoch_starts, warmup):
    times = [t for p, t in enumerate(times_ms[warmup:], start=warmup) if p not in epoch_starts]
    if len(times) == 0:
        raise ValueError
    return torch.tensor(times).quantile(0.5)


@pytest.mark.parametrize("given", [_by_masks, _by_a_set, _by_deleting, _by_quantile], ids=lambda fn: fn.__name__)
def test_every_sound_steady_time_is_right(given):
    assert judged("profiling-1", given)[0] == "right"


class _Clock:
    """Of a StepTimer: a script says how long each step takes."""

    def __init__(self):
        self.now = 0.0

    def mark(self):
        return self.now

    def ms(self, begin, end):
        return end - begin


def test_the_answer_gives_the_median_that_step_timer_gives():
    timer, clock = StepTimer(warmup=2, device="cpu"), _Clock()
    timer._clock, epochs = clock, ([900.0, 50.0, 20.0, 26.0, 95.0], [400.0, 22.0, 31.0, 24.0])
    for epoch in epochs:
        for ms in timer.watch(epoch):
            clock.now += ms
    whole = answer("profiling-1")(sum(epochs, []), [0, 5], 2)
    assert timer.summary().step.median_ms == whole == 25.0


def _out_by_value(times_ms, epoch_starts, warmup):
    starts = {times_ms[position] for position in epoch_starts}
    return statistics.median([time for time in times_ms[warmup:] if time not in starts])


def _warm_in_each_epoch(times_ms, epoch_starts, warmup):
    steady = [time for p, time in enumerate(times_ms) if p - max(s for s in epoch_starts if s <= p) > warmup]
    if not steady:
        raise ValueError("no step counts")
    return statistics.median(steady)


@pytest.mark.parametrize(
    "given, mistake, words",
    [
        (lambda t, s, w: np.mean(t), "averages_all_steps", "the start of the workers and the warm-up are shared out"),
        (lambda t, s, w: torch.tensor(t).mean().item() if t else 0.0, "averages_all_steps", "two runs of different"),
        (lambda t, s, w: statistics.fmean(t[w:]), "lets_a_slow_step_count_in_full", "The median does not move"),
        (lambda t, s, w: float(np.min(t or [0])), "takes_the_fastest", "waited for nothing"),
        (lambda t, s, w: statistics.median(t[w:]), "keeps_the_start_ups", "Every epoch starts workers again"),
        (lambda t, s, w: np.median([x for i, x in enumerate(t) if i not in s]), "keeps_the_warm_up", "short run"),
        (lambda t, s, w: statistics.median([x for i, x in enumerate(t) if i > w and i not in s]),
         "cuts_the_warm_up_one_step_off", "Positions begin with 0"),
        (lambda t, s, w: np.median(np.delete(t[w:], [p for p in s if p < len(t[w:])])),
         "looks_for_the_starts_in_the_shortened_list", "places earlier"),
        (lambda t, s, w: torch.tensor([x for i, x in enumerate(t) if i >= w and i not in s]).median(),
         "takes_one_of_the_middle_two", "torch.median takes the faster"),
        (lambda t, s, w: np.median([x for i, x in enumerate(t) if i >= w and i not in s]),
         "gives_a_number_where_no_step_counts", "raise ValueError"),
        (_out_by_value, "leaves_out_equal_times_as_well", "Times repeat; positions do not"),
        (lambda t, s, w: round(_by_deleting(t, s, w), 1), "rounds_the_median", "Round where it is printed"),
        (_warm_in_each_epoch, "warms_up_in_every_epoch", "Memory and algorithms stay warm"),
        (lambda t, s, w: _warm_in_each_epoch(t, s, max(w, 1) - 1), "warms_up_in_every_epoch", "short epochs"),
    ],
    ids=["mean", "mean or 0", "mean after warm-up", "min", "starts kept", "warm-up kept", "i > warmup",
         "np.delete", "torch.median", "nan of np.median", "by value", "rounded",
         "each epoch", "each epoch, start inside"],
)  # fmt: skip
def test_steady_times_that_are_nearly_right_are_recognised(given, mistake, words):
    def steady_step_ms(times_ms, epoch_starts, warmup):
        return given(times_ms, epoch_starts, warmup)

    status, found, text = judged("profiling-1", steady_step_ms)
    assert status == "wrong" and found == mistake and words in text


def test_sorting_the_callers_times_is_told():
    def sorts(times_ms, epoch_starts, warmup):
        result = answer("profiling-1")(times_ms, epoch_starts, warmup)
        times_ms.sort()
        return result

    assert "changed its argument times_ms" in judged("profiling-1", sorts)[2]


# profiling-2: the share of waiting


def _by_arrays(rows):
    if len(rows) < 2:
        raise ValueError("two rows are needed")
    asked, there, done = (np.array([row[name] for row in rows], dtype=float) for name in ("asked", "there", "done"))
    return (there - asked)[1:].sum() / (done[-1] - asked[1])


def _by_turns(rows):
    if len(rows) in (0, 1):
        raise ValueError
    spans = [following["asked"] - row["asked"] for row, following in pairwise(rows[1:])]
    spans.append(rows[-1]["done"] - rows[-1]["asked"])
    return sum(row["there"] - row["asked"] for row in rows[1:]) / sum(spans)


def _by_what_is_left(rows):
    _, second, *_ = rows  # ValueError: not enough values to unpack
    busy = sum(row["done"] - row["there"] for row in rows[1:])
    between = sum(after["asked"] - row["done"] for row, after in pairwise(rows[1:]))
    return 1 - (busy + between) / (rows[-1]["done"] - second["asked"])


@pytest.mark.parametrize("given", [_by_arrays, _by_turns, _by_what_is_left], ids=lambda fn: fn.__name__)
def test_every_sound_share_of_waiting_is_right(given):
    assert judged("profiling-2", given)[0] == "right"


def _waits(rows):
    return [row["there"] - row["asked"] for row in rows]


def _steps(rows):
    return [row["done"] - row["there"] for row in rows]


def _loads(rows):
    return [row["load_ms"] for row in rows]


@pytest.mark.parametrize(
    "given, mistake, words",
    [
        (lambda r: np.mean(_loads(r)) / (np.mean(_loads(r)) + np.mean(_steps(r))), "measures_the_loading",
         "Workers load while the loop makes its step"),
        (lambda r: sum(_waits(r[1:])) / (sum(_loads(r[1:])) + sum(_steps(r[1:]))),
         "measures_against_the_sum_of_the_parts", "longer than the time that passed"),
        (lambda r: sum(_waits(r)) / (r[-1]["done"] - r[0]["asked"]), "counts_the_start_up", "how long you measured"),
        (lambda r: sum(_waits(r[1:])) / (r[-1]["done"] - r[0]["asked"]), "drops_the_first_wait_but_not_its_time",
         "Begin with the second `asked`"),
        (lambda r: np.sum(_waits(r[1:])) / (np.sum(_waits(r[1:])) + np.sum(_steps(r[1:]))),
         "forgets_what_the_loop_does_between", "logging or copying"),
        (lambda r: np.median(_waits(r[1:])) / np.median([x["done"] - x["asked"] for x in r[1:]]),
         "takes_the_median_wait", "deliver in bursts"),
        (lambda r: sum(w > 0 for w in _waits(r[1:])) / (len(r) - 1), "counts_the_turns_that_waited",
         "how many turns had to wait at all"),
        (lambda r: sum(_waits(r[1:])) / sum(_steps(r[1:])), "divides_by_the_steps", "this says 2"),
        (lambda r: (sum(_waits(r)) - _waits(r)[0]) / (r[-1]["done"] - r[0]["there"]),
         "drops_the_first_wait_but_not_its_time", "the shorter the measurement"),
        (lambda r: 1 - sum(_steps(r[1:])) / (r[-1]["done"] - r[1]["asked"]), "counts_other_work_as_waiting",
         "which a faster loader does not shorten"),
        (lambda r: sum(b["there"] - a["done"] for a, b in pairwise(r)) / (r[-1]["done"] - r[1]["asked"]),
         "counts_other_work_as_waiting", "The wait begins when the loop asks"),
        (lambda r: sum(_waits(r[1:])) / (r[-1]["done"] - r[0]["done"]), "begins_where_the_first_step_ended",
         "before it asked for the second batch"),
        (lambda r: sum(_waits(r[1:])) / (r[-1]["there"] - r[1]["asked"]), "leaves_out_the_last_turn",
         "ends before the last step does"),
    ],
    ids=["loading", "sum", "start-up", "start-up's time", "between", "median", "how often", "steps", "first step",
         "all but steps", "since the step before", "first done", "last there"],
)  # fmt: skip
def test_shares_that_are_nearly_right_are_recognised(given, mistake, words):
    def wait_share(rows):
        return given(rows)

    status, found, text = judged("profiling-2", wait_share)
    assert status == "wrong" and found == mistake and words in text


def test_a_share_without_a_measurement_is_asked_to_raise():
    def wait_share(rows):
        return _by_turns(rows) if len(rows) > 1 else 0

    status, mistake, text = judged("profiling-2", wait_share)
    assert mistake == "gives_a_number_where_nothing_was_measured" and "should raise ValueError, and returned 0" in text


def test_a_share_that_divides_by_zero_is_shown_the_rows_and_the_line():
    def wait_share(rows):
        return sum(_waits(rows[1:])) / (rows[-1]["done"] - rows[min(1, len(rows) - 1)]["asked"])

    text = judged("profiling-2", wait_share)[2]
    assert "of the rows [(0, 400, 430, 40)] should raise ValueError, and returned 0" in text


# profiling-3: the verdict


def _by_comparisons(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    above = turn_ms - step_ms if turn_ms > step_ms else 0
    if handover_ms > above:
        handover_ms = above
    data, startup = above - handover_ms, startup_ms / num_batches
    most = max(data, handover_ms, startup)
    if most * 10 <= step_ms:
        return ("compute-bound", step_ms)
    if most == data:
        return ("data-bound", data)
    return ("hand-over-bound", handover_ms) if most == handover_ms else ("start-up-bound", startup)


def _by_sorting(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    above = max(0.0, turn_ms - step_ms)
    sent = min(above, handover_ms)
    parts = [("data", above - sent), ("hand-over", sent), ("start-up", startup_ms / num_batches)]
    name, ms = sorted(parts, key=lambda part: -part[1])[0]
    return [name + "-bound", ms] if ms / step_ms > 0.1 else ["compute-bound", step_ms]


def _by_numpy(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    sent = np.clip(turn_ms - step_ms, 0, handover_ms)
    ms = np.array([max(turn_ms - step_ms, 0) - sent, sent, startup_ms / num_batches])
    if (ms <= step_ms / 10).all():
        return "compute-bound", step_ms
    return f"{['data', 'hand-over', 'start-up'][ms.argmax()]}-bound", ms.max()


@pytest.mark.parametrize("given", [_by_comparisons, _by_sorting, _by_numpy], ids=lambda fn: fn.__name__)
def test_every_sound_verdict_is_right(given):
    assert judged("profiling-3", given)[0] == "right"


@pytest.mark.parametrize("case", exercises_of("profiling")["profiling-3"].case_list)
def test_the_answer_decides_as_the_tested_module_does(case):
    step, turn, handover, startup, num_batches = case
    found = decide(LoopTimes(step, max(turn, step), 0, 0, startup, handover, 2, num_batches))
    assert answer("profiling-3")(*case) == (found.verdict, pytest.approx(found.ms))


def _verdict(largest=None, data=None, handover=None, startup=None, least=lambda step, turn: step / 10):
    """The answer with one of its decisions made otherwise."""

    def bottleneck(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
        above = max(0, turn_ms - step_ms)
        sent = handover(handover_ms, above) if handover else min(handover_ms, above)
        loading = data(step_ms, turn_ms, handover_ms) if data else above - sent
        begun = startup(startup_ms, num_batches) if startup else startup_ms / num_batches
        parts = {"data-bound": loading, "hand-over-bound": sent, "start-up-bound": begun}
        parts = {"compute-bound": step_ms, **parts} if largest else parts
        name = max(parts, key=parts.get)
        return (name, parts[name]) if parts[name] > least(step_ms, turn_ms) else ("compute-bound", step_ms)

    return bottleneck


def _ms(change):
    """The right verdict; `change(verdict, milliseconds, all above the step)` makes the milliseconds."""

    def bottleneck(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
        verdict, ms = _verdict()(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
        return verdict, change(verdict, ms, turn_ms - step_ms)

    return bottleneck


@pytest.mark.parametrize(
    "given, mistake, words",
    [
        (_verdict(largest=True), "takes_the_largest_of_all_four", "ask what could be won"),
        (_verdict(data=lambda step, turn, sent: max(0, turn - step)), "does_not_subtract_the_hand_over",
         "can never be the verdict"),
        (_verdict(data=lambda step, turn, sent: turn), "takes_the_turn_for_the_data", "A turn holds the step"),
        (_verdict(handover=lambda sent, above: sent, data=lambda step, turn, sent: turn - step - sent),
         "believes_the_whole_hand_over", "costs 1 and not 6"),
        (_verdict(startup=lambda ms, batches: ms), "does_not_share_the_start_up_out", "Divide it by num_batches"),
        (_verdict(least=lambda step, turn: turn / 10), "takes_a_tenth_of_the_turn", "Take a tenth of step_ms"),
        (_verdict(least=lambda step, turn: 0), "always_finds_a_bottleneck_in_the_loader", "There is no limit"),
        (_verdict(least=lambda step, turn: step / 10 - 1e-9), "names_what_takes_just_a_tenth", "it must be more"),
        (_verdict(startup=lambda ms, batches: ms // batches), "rounds_the_milliseconds", "12.5 each"),
        (_verdict(startup=lambda ms, batches: ms / (batches - 1)), "shares_the_start_up_among_the_others", "by zero"),
        (_ms(lambda verdict, ms, above: round(ms)), "rounds_the_milliseconds", "Round where it is printed"),
        (_ms(lambda verdict, ms, above: above if verdict[0] in "dh" else ms),
         "gives_all_that_could_be_won", "26 ms of 30"),
        (_ms(lambda verdict, ms, above: 0 if verdict[0] == "c" else ms),
         "gives_the_largest_part_of_a_loop_that_computes", 'With "compute-bound" goes step_ms'),
    ],
    ids=["all four", "hand-over inside", "turn", "not capped", "not shared", "tenth of turn", "no limit", "just 10 %",
         "whole ms of start-up", "batches - 1", "rounded", "all above the step", "0 of a step"],
)  # fmt: skip
def test_verdicts_that_are_nearly_right_are_recognised(given, mistake, words):
    status, found, text = judged("profiling-3", given)
    assert status == "wrong" and found == mistake and words in text


def test_a_tie_that_is_broken_by_sorting_pairs_is_recognised():
    def bottleneck(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
        above = max(0, turn_ms - step_ms)
        sent = min(handover_ms, above)
        ms, name = max((above - sent, "data"), (sent, "hand-over"), (startup_ms / num_batches, "start-up"))
        return (name + "-bound", ms) if ms > step_ms / 10 else ("compute-bound", step_ms)

    assert judged("profiling-3", bottleneck)[1] == "takes_another_of_equal_parts"


def test_a_verdict_without_its_milliseconds_is_told():
    text = judged("profiling-3", lambda step_ms, turn_ms, handover_ms, startup_ms, num_batches: "data-bound")[2]
    assert "expected a tuple (the verdict, the milliseconds), got a string" in text


def test_a_verdict_behind_its_milliseconds_is_told():
    given = lambda *numbers: answer("profiling-3")(*numbers)[::-1]  # noqa: E731
    assert "(the verdict, the milliseconds) in this order, got a tuple" in judged("profiling-3", given)[2]


def test_the_first_wrong_verdict_is_shown_with_its_numbers():
    status, _, text = judged("profiling-3", _verdict(startup=lambda ms, batches: 0.5))
    assert status == "wrong" and "startup_ms=400, num_batches=50): the verdict: expected 'start-up-bound'" in text


# profiling-4: operations, and the share of the peak


def _by_a_loop(batch_size, widths, step_ms, peak_gflops):
    forward = sum(2 * batch_size * widths[i] * widths[i + 1] for i in range(len(widths) - 1))
    operations = 3 * forward - 2 * batch_size * widths[0] * widths[1]
    return operations, operations / (peak_gflops * 1e6 * step_ms)


def _by_matrices(batch_size, widths, step_ms, peak_gflops):
    wide = np.array(widths, dtype=float)
    products = (wide[:-1] * wide[1:]).sum() * 3 - wide[0] * wide[1]
    flops = int(2 * batch_size * products)
    return [flops, np.float64(flops / 1e9 / (step_ms / 1000) / peak_gflops)]


def _by_the_best_time(batch_size, widths, step_ms, peak_gflops):
    weights = sum(a * b for a, b in pairwise(widths))
    total = 2.0 * batch_size * (2 * weights + sum(a * b for a, b in pairwise(widths[1:])))
    best_ms = total / (peak_gflops * 1e9) * 1000
    return total, best_ms / step_ms


def _by_the_counter(batch_size, widths, step_ms, peak_gflops):
    operations = _counted(batch_size, widths)
    return operations, operations / step_ms / peak_gflops / 1e6


def _counted(batch_size, widths):
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    model, inputs = nn.Sequential(*layers[:-1]), torch.ones(batch_size, widths[0])
    return flops_of(lambda: model(inputs).sum().backward())


@pytest.mark.parametrize(
    "given", [_by_a_loop, _by_matrices, _by_the_best_time, _by_the_counter], ids=lambda fn: fn.__name__
)
def test_every_sound_count_of_operations_is_right(given):
    assert judged("profiling-4", given)[0] == "right"


@pytest.mark.parametrize("widths", [[3, 4], [7, 5, 3], [2, 9, 9, 9, 1]])
def test_the_answer_counts_what_torchs_counter_counts(widths):
    assert answer("profiling-4")(6, widths, 1.0, 1.0)[0] == _counted(6, widths)


def _share(products=lambda layer, last: 3 if layer else 2, per_product=2, rate=lambda ops, ms: ops / ms / 1e6, add=0,
           of=lambda rate, peak: rate / peak, batch=lambda size: size):  # fmt: skip
    """The answer with one of its decisions made otherwise."""

    def share_of_peak(batch_size, widths, step_ms, peak_gflops):
        pairs = list(pairwise(widths))
        operations = sum(
            products(layer, layer == len(pairs) - 1) * per_product * batch(batch_size) * a * b + add * batch_size * b
            for layer, (a, b) in enumerate(pairs)
        )
        return operations, of(rate(operations, step_ms), peak_gflops)

    return share_of_peak


def _one_row_of_gradients(batch_size, widths, step_ms, peak_gflops):
    forward = [2 * batch_size * a * b for a, b in pairwise(widths)]
    operations = sum(forward) + sum(forward[1:]) + sum(2 * a * b for a, b in pairwise(widths))
    return operations, operations / step_ms / peak_gflops / 1e6


def _sums_of_k_minus_1(batch_size, widths, step_ms, peak_gflops):
    forward = sum(batch_size * b * (2 * a - 1) for a, b in pairwise(widths))
    weights = sum(a * b * (2 * batch_size - 1) for a, b in pairwise(widths))
    operations = forward + weights + sum(batch_size * a * (2 * b - 1) for a, b in pairwise(widths[1:]))
    return operations, operations / step_ms / peak_gflops / 1e6


@pytest.mark.parametrize(
    "given, mistake, words",
    [
        (_share(per_product=1), "counts_macs", "half of the FLOPs"),
        (_share(lambda layer, last: 3, per_product=1), "counts_macs", "these are MACs"),
        (_share(lambda layer, last: 1), "counts_the_forward_pass_alone", "the time is that of both"),
        (_share(lambda layer, last: 2), "takes_backward_for_as_dear_as_forward", "it makes two"),
        (_share(lambda layer, last: 3), "gives_the_data_a_gradient", "which nobody asks for"),
        (_share(lambda layer, last: 2 if last else 3), "spares_the_last_layer", "the first one, whose inputs"),
        (_share(add=1), "counts_the_biases", "leaves them out as the task does"),
        (_share(lambda layer, last: 3, add=1), "counts_the_biases", "the two never agree"),
        (_share(batch=lambda size: 1), "forgets_the_batch", "for one example"),
        (_one_row_of_gradients, "forgets_the_batch_in_the_weights_gradient", "is a sum over the batch"),
        (_sums_of_k_minus_1, "counts_one_addition_less", "no counter is counted like that"),
        (_share(of=lambda rate, peak: peak / rate), "turns_the_share_over", "never above 1"),
        (_share(rate=lambda ops, ms: ops / ms / 1e9), "takes_milliseconds_for_seconds", "Divide step_ms by 1000"),
        (_share(rate=lambda ops, ms: ops / ms * 1e3), "compares_operations_with_giga_operations", "a unit is wrong"),
        (_share(of=lambda rate, peak: rate), "gives_the_rate", "not yet its share"),
        (_share(of=lambda rate, peak: round(100 * rate / peak, 9)), "gives_percent", "a percentage"),
    ],
    ids=["MACs", "MACs in all", "forward", "backward as forward", "data's gradient", "last spared", "bias",
         "bias and data's gradient", "one example", "weights", "2 k - 1", "inverted", "ms", "giga", "rate", "percent"],
)  # fmt: skip
def test_shares_of_the_peak_that_are_nearly_right_are_recognised(given, mistake, words):
    status, found, text = judged("profiling-4", given)
    assert status == "wrong" and found == mistake and words in text


def test_the_share_alone_is_told_to_be_half_of_the_result():
    text = judged("profiling-4", lambda batch_size, widths, step_ms, peak_gflops: 0.5)[2]
    assert "expected a tuple (the operations, the share), got a number: 0.5" in text


def test_a_wrong_share_is_told_beside_operations_that_are_right():
    text = judged("profiling-4", _share(of=lambda rate, peak: 0.5))[2]
    assert "the share: expected 2.4e-05, got 0.5" in text and "the operations" not in text


# profiling-5: work that a device does later


def _on(*, before=True, inside=(), after=True, warmups=1, per=lambda seconds, repeats: seconds / repeats * 1e3):
    """The answer with its decisions as arguments."""

    def mean_step_ms(step, device, clock, repeats):
        for _ in range(warmups):
            step()
        if before:
            device.synchronize()
        began = clock()
        for _ in range(repeats):
            step()
            [device.synchronize() for _ in inside]
        if after:
            device.synchronize()
        return per(clock() - began, repeats)

    return mean_step_ms


def _two_readings(step, device, clock, repeats):
    def now_ms():
        device.synchronize()
        return 1000 * clock()

    step()
    times = [now_ms()]
    [step() for _ in range(repeats)]
    times.append(now_ms())
    return np.diff(times).item() / repeats


def _waits_more_often_than_needed(step, device, clock, repeats):
    device.synchronize()
    step(), device.synchronize(), device.synchronize()
    start = clock()
    number = 0
    while number < repeats:
        step()
        number += 1
    device.synchronize()
    end = clock()
    return torch.tensor((end - start) * 1000 / number)


@pytest.mark.parametrize(
    "given",
    [_two_readings, _waits_more_often_than_needed, _on(warmups=3)],
    ids=["readings", "more", "3 warm-ups"],
)
def test_every_sound_timing_of_a_device_is_right(given):
    assert judged("profiling-5", given)[0] == "right"


def test_the_device_works_while_the_processor_goes_on():
    device = ScriptedDevice(1, 9, 0)
    device.step(), device.synchronize()
    began = device.clock()
    device.step(), device.step()
    asked = device.clock()
    device.synchronize()
    assert (asked - began, device.clock() - began) == (pytest.approx(0.002), pytest.approx(0.019))


def _waits_before_the_warm_up(step, device, clock, repeats):
    device.synchronize()
    return _on(before=False)(step, device, clock, repeats)


def _one_step_less(step, device, clock, repeats):
    timed = _on(per=lambda seconds, counted: seconds / (counted + 1) * 1e3)
    return timed(step, device, clock, repeats - 1)


@pytest.mark.parametrize(
    "given, mistake, words",
    [
        (_on(before=False, after=False), "never_waits", "the time to *ask* for the steps"),
        (_on(before=False, after=False, warmups=0), "never_waits", "it looks"),
        (_on(after=False), "waits_at_the_beginning_only", "when they are done"),
        (_on(before=False), "waits_at_the_end_only", "all older work"),
        (_waits_before_the_warm_up, "waits_at_the_end_only", "Wait between the step that does not count and"),
        (_on(inside=[1]), "waits_in_every_repetition", "it asks ahead while the device works"),
        (_on(inside=[1], after=False), "waits_in_every_repetition", "stands idle"),
        (_on(warmups=0), "counts_the_first_call", "kernels are compiled"),
        (_on(per=lambda seconds, repeats: seconds * 1e3), "gives_the_time_of_all", "twice as slow"),
        (_on(per=lambda seconds, repeats: seconds / repeats), "gives_seconds", "These are seconds"),
        (_on(per=lambda seconds, repeats: seconds / (repeats + 1) * 1e3), "divides_by_one_step_too_many",
         "it was not measured"),
        (_one_step_less, "measures_one_step_less", "expected 10.0, got 0.0"),
    ],
    ids=["no wait", "no wait at all", "begin", "end", "too early", "inside", "inside, none after", "no warm-up", "all",
         "seconds", "one more", "one less"],
)  # fmt: skip
def test_timings_that_are_nearly_right_are_recognised(given, mistake, words):
    status, found, text = judged("profiling-5", given)
    assert status == "wrong" and found == mistake and words in text


@pytest.mark.parametrize("waits", [True, False])
def test_a_clock_of_the_readers_own_is_told(waits):
    def mean_step_ms(step, device, clock, repeats):
        began = time.perf_counter()
        step()
        if waits:
            device.synchronize()
        return (time.perf_counter() - began) * 1e3 / repeats

    status, mistake, text = judged("profiling-5", mean_step_ms)
    assert (status, mistake) == ("wrong", "reads_another_clock")
    assert "the clock that was handed in was never read" in text


def test_a_timing_of_a_single_step_shows_the_script():
    status, _, text = judged("profiling-5", lambda step, device, clock, repeats: (step(), clock())[1])
    assert status == "wrong" and "1 ms to ask for a step, the device 9 ms to do it: expected 10.0, got 5.081" in text


def test_waiting_for_a_gpu_that_is_not_the_device_is_told_with_its_line():
    def mean_step_ms(step, device, clock, repeats):
        return device.wait()

    assert "AttributeError" in judged("profiling-5", mean_step_ms)[2]


# profiling-6: bytes for backward


def _model(layers):
    kinds = {"linear": nn.Linear, "relu": nn.ReLU, "gelu": nn.GELU}
    return nn.Sequential(*(kinds[kind](*shape) for kind, *shape in layers))


def _by_the_module(layers, batch_size):
    model, inputs = _model(layers), torch.ones(batch_size, layers[0][1])
    return bytes_for_backward(lambda: model(inputs).sum())


def _by_names(layers, batch_size):
    kept, name, width = {"x": layers[0][1]}, "x", layers[0][1]
    for number, layer in enumerate(layers):
        if layer[0] != "relu":
            kept[name] = width
        name, width = f"out {number}", layer[2] if layer[0] == "linear" else width
        if layer[0] == "relu":
            kept[name] = width
    return sum(kept.values()) * batch_size * torch.float32.itemsize


def _by_neighbours(layers, batch_size):
    numbers, width = 0, layers[0][1]
    for (kind, *shape), before in zip(layers, [(None,), *layers], strict=False):
        width = width if kind != "linear" else shape[0]
        shared = before[0] == "relu" and kind != "relu"  # the ReLU before counted it
        numbers += 0 if shared else batch_size * width
        width = shape[1] if kind == "linear" else width
    return numbers * 4


def _by_real_tensors(layers, batch_size):
    x, kept = torch.ones(batch_size, layers[0][1]), {}
    for kind, layer in zip((layer[0] for layer in layers), _model(layers), strict=True):
        out = layer(x)
        tensor = out if kind == "relu" else x
        kept[id(tensor)] = tensor
        x = out
    return sum(tensor.numel() * tensor.element_size() for tensor in kept.values())


SOUND_BYTES = [_by_the_module, _by_names, _by_neighbours, _by_real_tensors]


@pytest.mark.parametrize("given", SOUND_BYTES, ids=lambda fn: fn.__name__)
def test_every_sound_count_of_bytes_is_right(given):
    assert judged("profiling-6", given)[0] == "right"


@pytest.mark.parametrize("seed", range(12))
def test_the_answer_counts_what_autograd_keeps_in_any_of_these_networks(seed):
    generator = random.Random(seed)
    layers, width = [("linear", 3, 4)], 4
    for kind in generator.choices(["linear", "relu", "gelu"], k=seed):
        wider = generator.randrange(1, 9)
        layers.append((kind, width, wider) if kind == "linear" else (kind,))
        width = wider if kind == "linear" else width
    assert answer("profiling-6")(layers, 5) == _by_the_module(layers, 5)


def _bytes(keeps, size=4, once=True, weights=False, batch=lambda rows: rows):
    """Bytes of the tensors that `keeps(place, kind)` names; tensor 0 is the input."""

    def kept_bytes(layers, batch_size):
        widths, named = [layers[0][1]], []
        for place, (kind, *shape) in enumerate(layers):
            widths.append(shape[1] if kind == "linear" else widths[-1])
            named += keeps(place, kind)
        more = sum(p.numel() for p in _model(layers).parameters()) if weights else 0
        return size * (batch(batch_size) * sum(widths[place] for place in (set(named) if once else named)) + more)

    return kept_bytes


def _right(place, kind):
    return [place + 1] if kind == "relu" else [place]


def _with_the_output(layers, batch_size):
    widths = [layer[2] for layer in layers if layer[0] == "linear"]
    return answer("profiling-6")(layers, batch_size) + 4 * batch_size * widths[-1]


def _widths_named(layers, keeps=_right):
    widths = [layers[0][1]]
    for kind, *shape in layers:
        widths.append(shape[1] if kind == "linear" else widths[-1])
    return [widths[tensor] for place, (kind, *_) in enumerate(layers) for tensor in keeps(place, kind)]


def _a_set_of_widths(layers, batch_size):
    return 4 * batch_size * sum(set(_widths_named(layers)))


def _by_the_layer_behind(layers, batch_size):
    ends = lambda place, kind: [place + 1] if place == len(layers) - 1 else []  # noqa: E731
    return 4 * batch_size * sum(_widths_named(layers, lambda p, kind: ends(p, kind) if kind == "relu" else [p]))


def _input_and_activations(layers, batch_size):
    behind = _widths_named(layers, lambda place, kind: [] if kind == "linear" else [place])
    return 4 * batch_size * (layers[0][1] + sum(behind))


def _masks(layers, batch_size):
    relus = _widths_named(layers, lambda place, kind: [place] if kind == "relu" else [])
    others = _widths_named(layers, lambda place, kind: [] if kind == "relu" else [place])
    return batch_size * (sum(relus) + 4 * sum(others))


@pytest.mark.parametrize(
    "given, mistake, words",
    [
        (_bytes(_right, once=False), "counts_a_shared_tensor_twice", "its memory is there once"),
        (_bytes(lambda place, kind: [place]), "counts_a_shared_tensor_twice", "thought to keep its input"),
        (_bytes(_right, weights=True), "counts_the_weights", "do not grow with the batch"),
        (_bytes(lambda place, kind: [] if kind == "relu" else [place]), "forgets_what_a_relu_keeps", "for free"),
        (_bytes(lambda place, kind: [place] * (kind == "linear")), "forgets_what_a_relu_keeps", "it keeps that output"),
        (_bytes(lambda place, kind: [place + 1]), "counts_what_every_layer_returns", "needed by nobody"),
        (_bytes(lambda place, kind: [place, place + 1]), "counts_what_every_layer_returns", "is not needed at all"),
        (_bytes(lambda place, kind: [place] if kind == "linear" else [place + 1]), "lets_a_gelu_keep_its_output",
         "same output for two inputs"),
        (_bytes(lambda place, kind: [t for t in _right(place, kind) if t]), "forgets_the_input", "the largest piece"),
        (_bytes(_right, size=8), "takes_eight_bytes_a_number", "float64"),
        (_bytes(_right, size=1), "counts_numbers_for_bytes", "takes 4 bytes"),
        (_bytes(_right, batch=lambda rows: 1), "forgets_the_batch", "for one example"),
        (_with_the_output, "counts_what_the_network_returns", "Backward begins there"),
        (_a_set_of_widths, "tells_tensors_apart_by_their_width", "Number the tensors"),
        (_by_the_layer_behind, "leaves_a_relus_output_to_the_next_layer", "both keep theirs"),
        (_input_and_activations, "counts_one_tensor_for_each_activation", "keeps its input for itself"),
        (_masks, "takes_a_relus_output_for_a_mask", "4 bytes a number"),
    ],
    ids=["twice", "inputs", "weights", "no ReLU", "linear only", "outputs", "all", "GELU's output", "no input",
         "float64", "numbers", "one example", "output", "widths", "the layer behind", "activations", "masks"],
)  # fmt: skip
def test_bytes_that_are_nearly_right_are_recognised(given, mistake, words):
    status, found, text = judged("profiling-6", given)
    assert status == "wrong" and found == mistake and words in text


def test_wrong_bytes_show_the_layers_and_both_numbers():
    text = judged("profiling-6", _bytes(_right, size=8))[2]
    assert "kept_bytes([('linear', 3, 5)], batch_size=2): expected 24, got 48" in text


def test_autograd_keeps_what_the_task_says():
    model, inputs = _model([("linear", 3, 5), ("relu",), ("gelu",), ("linear", 5, 2)]), torch.ones(4, 3)
    assert [kept.shape for kept in tensors_for_backward(lambda: model(inputs).sum())] == [(4, 3), (4, 5), (4, 5)]
