"""The decision about workers, on tables of times written by hand."""

import pytest

from course_utils.figures import png_bytes
from course_utils.loaders import Tuning, WorkerTimes, choose_workers
from course_utils.worker_choice import why_stop


def table(*turns, wait=0.0, startup=0.0):
    """Times of 0, 1, 2, ... workers, in ms a turn."""
    return [WorkerTimes(n, turn, wait, startup if n else 0.0) for n, turn in enumerate(turns)]


@pytest.mark.parametrize(
    "turns, chosen",
    [
        ([42.3, 31.9, 15.8, 12.1, 12.3], 3),  # a loader of 30 ms and a step of 10 ms: three make ends meet
        ([10.0, 10.0, 10.0], 0),  # a tie costs nothing to win: the fewest
        ([10.0, 9.6, 9.9], 0),  # 4 % is noise
        ([21.0, 20.0], 0),  # 5 % longer than the shortest, to the digit
        ([21.03, 20.0], 1),  # 0.95 * 21.03 is less than 20: the other rule of 5 %
        ([10.0, 9.5, 9.5], 1),  # 5 % is a win, and a tie at the end goes to the fewer
        ([10.0, 9.53, 9.9], 0),
        ([10.0, 12.0, 15.0], 0),  # slower with more
        ([20.0, 25.0, 11.0, 10.9], 2),  # one worker is worse than none, two are better
        ([20.0, 11.0, 16.0, 10.8], 1),  # noise in the middle: three do not beat one by enough
        ([100.0, 96.0, 92.0], 1),  # the fewest that are at most 5 % longer: 96 <= 92 * 1.05
        ([40.0], 0),  # only 0 measured
        ([40.0, 40.0, 40.0, 8.0], 3),  # a late win counts where it was measured
    ],
    ids=str,
)
def test_the_fewest_workers_are_chosen_whose_turn_is_at_most_5_percent_longer_than_the_shortest(turns, chosen):
    assert choose_workers(table(*turns), 8.0).num_workers == chosen
    assert choose_workers(table(*turns)[::-1], 8.0).num_workers == chosen  # in any order


@pytest.mark.parametrize(
    "turns", [[9.0, 8.7, 8.4, 8.1, 7.8, 7.5], [50, 30, 20, 19.5, 19, 18.5], [5, 9, 7, 4.9]], ids=str
)
def test_the_choice_costs_at_most_5_percent_more_than_the_best(turns):
    chosen = choose_workers(table(*turns), 1.0).num_workers
    assert turns[chosen] <= min(turns) * 1.05 and all(turn > min(turns) * 1.05 for turn in turns[:chosen])


@pytest.mark.parametrize(
    "turns, floor, stop",
    [
        ([10.5], 10.0, "within 5 % of the step alone"),
        ([10.6], 10.0, None),
        ([42.3, 31.9, 15.8, 10.4], 10.0, "a turn of 10.4 ms is within 5 %"),
        ([20.0, 19.5], 10.0, None),  # one in vain may be noise
        ([20.0, 19.5, 19.4], 10.0, "1 and 2 workers won at most 5 %"),
        ([20.0, 19.2, 18.9], 10.0, None),  # small steps add up to 5 %
        ([20.0, 19.0, 18.9], 10.0, None),  # 5 % to the digit is a win
        ([20.0, 25.0, 15.0, 16.0], 10.0, None),  # a win begins the count anew
        ([20.0, 25.0, 15.0, 16.0, 14.5], 10.0, "3 and 4 workers won at most 5 %"),
        ([9.0], 10.0, "within 5 %"),  # a floor measured in a busy moment
        ([12.0, 13.0, 14.0], 10.0, "1 and 2 workers"),
    ],
    ids=str,
)
def test_measuring_ends_at_the_floor_or_after_two_in_vain(turns, floor, stop):
    found = why_stop(table(*turns), floor)
    assert found is None if stop is None else stop in found


@pytest.mark.parametrize(
    "turns, reason",
    [
        (
            [42.3, 12.1, 12.3],
            "1 worker: a turn takes 12.1 ms, with 0 workers 42.3 ms; at most 5 % longer than the shortest of 0 to 2",
        ),
        ([42.3, 12.1], "with 0 workers 42.3 ms; larger numbers were not measured"),  # the time was over
        ([42.3], "0 workers: a turn takes 42.3 ms; no other number was measured"),
        ([10.2], "0 workers: a turn takes 10.2 ms; a turn of 10.2 ms is within 5 % of the step alone (10 ms)"),
        ([30.0, 31.0, 32.0], "0 workers: a turn takes 30 ms; at most 5 % longer than the shortest of 0 to 2 workers"),
        (
            [30.0, 10.2],
            "a turn takes 10.2 ms, with 0 workers 30 ms; at most 5 % longer than the shortest of 0 to 1 worker",
        ),
    ],
    ids=str,
)
def test_the_reason_says_what_was_compared_and_what_was_not(turns, reason):
    assert reason in choose_workers(table(*turns), 10.0).reason


@pytest.mark.parametrize(
    "turn, wait, verdict, share",
    [(11.0, 0.5, "compute-bound", 1 / 22), (11.1, 2.22, "data-bound", 0.2), (40.0, 30.0, "data-bound", 0.75)],
)
def test_the_verdict_compares_the_turn_with_the_step_alone(turn, wait, verdict, share):
    choice = choose_workers(table(turn, wait=wait), 10.0)
    assert choice.verdict == verdict and choice.wait_share == pytest.approx(share)
    assert choice.slowdown == pytest.approx(turn / 10)


@pytest.mark.parametrize(
    "handover, verdict",
    [(0.0, "data-bound"), (5.0, "data-bound"), (6.0, "hand-over-bound"), (7.7, "hand-over-bound")],  # 16 * 1.1 = 17.6
)
def test_getting_a_ready_batch_over_is_no_lack_of_data(handover, verdict):
    times = [WorkerTimes(0, 40.0), WorkerTimes(1, 17.6, 7.7, handover_ms=handover)]
    assert choose_workers(times, 10.0).verdict == verdict


@pytest.mark.parametrize(
    "turns, startup, batches",
    [([30.0, 10.0], 0.1, 5), ([30.0, 10.0], 0.101, 6), ([30.0, 20.0], 3.0, 300), ([10.0, 10.0], 3.0, None)],
)
def test_start_up_is_earned_back_after_as_many_batches(turns, startup, batches):
    assert choose_workers(table(*turns, startup=startup), 5.0).pays_after == batches


def test_without_a_measurement_of_0_workers_nothing_is_said_about_earning_back():
    choice = choose_workers([WorkerTimes(1, 30.0, 1.0, 2.0), WorkerTimes(2, 10.0, 1.0, 2.0)], 5.0)
    assert (choice.num_workers, choice.pays_after) == (2, None) and "with 1 worker 30 ms" in choice.reason


@pytest.mark.parametrize(
    "times, floor, said",
    [
        ([], 1.0, r"at least one number of workers.* got \[\]"),
        ([WorkerTimes(1, 2.0), WorkerTimes(1, 3.0)], 1.0, r"each number once; got \[1, 1\]"),
        (table(0.0), 1.0, "turn_ms of 0 workers must be a time above 0, got 0.0"),
        (table(1.0, float("nan")), 1.0, "turn_ms of 1 worker must be"),
        (table(1.0, float("inf")), 1.0, "turn_ms of 1 worker must be"),
        (table(1.0), 0.0, "floor_ms must be a time above 0"),
    ],
    ids=str,
)
def test_tables_that_say_nothing_are_refused(times, floor, said):
    for decide in (choose_workers, why_stop):
        with pytest.raises(ValueError, match=said):
            decide(times, floor)


def tuning():
    times = (WorkerTimes(0, 40.0, 30.0), WorkerTimes(1, 31.0, 20.5, 0.05), WorkerTimes(2, 15.0, 5.0, 0.06, 9, 1.5))
    return Tuning(choose_workers(times, 10.0), times, 10.0, "the 3 seconds would not have lasted for 3", 2.5)


def test_a_tuning_prints_as_a_table_with_its_verdict():
    assert str(tuning()).splitlines() == [
        "workers  turn ms  wait ms  wait share  hand-over ms  start-up s",
        "      0    40.00    30.00         75%          0.00        0.00",
        "      1    31.00    20.50         66%          0.00        0.05",
        "      2    15.00     5.00         33%          1.50        0.06  <- chosen",
        "   none    10.00     step alone, the floor",
        "",
        "2 workers: a turn takes 15 ms, with 0 workers 40 ms; larger numbers were not measured.",
        "data-bound: a turn takes 1.50 x the step alone, waiting is 33% of it; 3 batches of an",
        "    iteration win back the start of the workers.",
        "Ended since the 3 seconds would not have lasted for 3.",
    ]
    assert tuning().num_workers == 2


def test_a_turn_that_more_workers_do_not_shorten_is_told_so():
    times = tuple(table(20.0, 19.5, 19.6, wait=8.0))
    found = " ".join(str(Tuning(choose_workers(times, 10.0), times, 10.0, "of a test", 1.0)).split())
    assert "data-bound: a turn takes 2.00 x the step alone, waiting is 40% of it; more workers do not shorten" in found
    assert "more workers do not" not in str(tuning())


def test_a_tuning_draws_its_table():
    fig = tuning().figure()
    (ax,) = fig.axes
    turn, wait, chosen, floor = ax.lines
    assert turn.get_xydata().tolist() == [[0, 40], [1, 31], [2, 15]]
    assert wait.get_xydata().tolist() == [[0, 30], [1, 20.5], [2, 5]]
    assert chosen.get_xydata().tolist() == [[2, 15]] and list(floor.get_ydata()) == [10, 10]
    assert ax.get_title(loc="left") == "2 workers: a turn takes 15 ms, with 0 workers 40 ms"
    assert png_bytes(fig) and not any(character.isdigit() for character in Tuning.words)
