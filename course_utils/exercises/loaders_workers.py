"""The exercise of chapter 04 about the number of workers that a table of times speaks for."""

from __future__ import annotations

from collections.abc import Callable

from course_utils.exercises.declare import exercise

COMPUTE, DATA = "compute-bound", "data-bound"


@exercise(
    "loaders-4",
    title="How many workers, and is that enough",
    difficulty="medium",
    minutes=10,
    cases=[
        ({0: 30.0, 1: 20.0, 2: 12.0, 4: 12.2}, 11.5),
        ({0: 30.0, 1: 21.0, 2: 20.4, 4: 20.2}, 10.0),
        ({0: 10.3, 1: 10.1, 2: 10.7}, 10.0),
        ({0: 40.0, 1: 39.0, 2: 22.0, 4: 21.5}, 8.0),
        ({4: 15.0, 2: 15.3, 0: 40.0}, 9.0),
        ({1: 9.8, 0: 25.0}, 10.0),
        ({0: 12.0, 1: 14.0, 2: 19.0}, 4.0),
        ({1: 20.0, 2: 19.2, 3: 18.5, 4: 17.8}, 17.5),
        ({0: 11.4, 2: 10.9}, 10.0),
        ({0: 20.0, 1: 18.9, 2: 18.0, 3: 17.9}, 15.0),
        ({0: 26.0, 1: 13.0}, 12.5),
        ({0: 5.0}, 5.0),
        # near the borders, not on them, where rounding decides: 5.15 %, 4.85 %, 10.5 %, 9.5 %
        ({0: 21.03, 1: 20.0}, 19.5),
        ({0: 20.97, 1: 20.0}, 19.5),
        ({0: 11.05, 1: 11.0}, 10.0),
        ({0: 10.95}, 10.0),
    ],
    expected=[
        (2, COMPUTE), (1, DATA), (0, COMPUTE), (2, DATA), (2, DATA),
        (1, COMPUTE), (0, DATA), (3, COMPUTE), (0, DATA), (2, DATA), (1, COMPUTE), (0, COMPUTE),
        (1, COMPUTE), (0, COMPUTE), (0, DATA), (0, COMPUTE),
    ],
    parts=("the number of workers", "the verdict"),
    keep_arguments=True,
    hints=[
        "Two questions, with two yardsticks. How many workers: compare the turns with each other. Is that enough: "
        "compare the chosen turn with the step alone, which no loader can make shorter.",
        "The shortest turn is min(turn_ms.values()). Every number whose turn is at most 1.05 times that is as good, "
        "so take the smallest of these numbers; the table may stand in any order.",
        "min(n for n, ms in turn_ms.items() if ms <= ...) is the number; its own turn, turn_ms[number], over floor_ms "
        "decides the verdict, with 1.10 as the border.",
    ],
    lesson="Workers that win less than the noise still cost memory and start-up; and where even the best number is "
    "data-bound, the loading itself has to become cheaper.",
)  # fmt: skip
def decide_workers(turn_ms: dict, floor_ms: float) -> tuple:
    """The fewest workers that are as good as the best number, and what the loop then waits for.

    turn_ms  : {number of workers: measured ms of one turn of the loop, loading and step}. One
               entry or more, in any order; some numbers may be missing, and 0 too
    floor_ms : measured ms of the step alone, on a batch that is there already
    returns  : (num_workers, verdict). num_workers is the smallest number whose turn is at most
               5 % longer than the shortest turn in the table. The verdict is "compute-bound" if
               the turn with that number is at most 10 % longer than the step alone, and
               "data-bound" if it is longer

    {0: 30.0, 1: 20.0, 2: 12.0, 4: 12.2} and 11.5 give (2, "compute-bound"): 12.0 is the shortest,
    20.0 is 67 % longer, and 12.0 is 4 % longer than the step.
    """
    shortest = min(turn_ms.values())
    num_workers = min(number for number, turn in turn_ms.items() if turn <= 1.05 * shortest)
    enough = turn_ms[num_workers] <= 1.10 * floor_ms
    return num_workers, "compute-bound" if enough else "data-bound"


def _nearest(times: dict, share: float = 1.05) -> list[int]:
    return [number for number, turn in times.items() if turn <= share * min(times.values())]


def _verdict(turn: float, floor: float) -> str:
    return COMPUTE if turn <= 1.1 * floor else DATA


def _with_right_verdict(choose: Callable[[dict, float], int]) -> Callable:
    def chosen(turn_ms, floor_ms):
        number = choose(turn_ms, floor_ms)
        return number, _verdict(turn_ms[number], floor_ms)

    return chosen


def _with_verdict(judge: Callable[[dict, int, float], bool], choose=lambda times, floor: min(_nearest(times))):
    def judged(turn_ms, floor_ms):
        number = choose(turn_ms, floor_ms)
        return number, COMPUTE if judge(turn_ms, number, floor_ms) else DATA

    return judged


@decide_workers.wrong
def takes_the_shortest_turn(turn_ms, floor_ms):
    """The shortest turn decides, by however little: 4 workers at 20.2 ms instead of 1 at 21.0. The difference is within
    what a measurement varies by, and three more processes cost memory, start-up and cores of your neighbours."""
    return _with_right_verdict(lambda times, floor: min(times, key=times.get))(turn_ms, floor_ms)


@decide_workers.wrong
def takes_the_most_workers(turn_ms, floor_ms):
    """The largest number is taken, as if workers could only help. On a small machine they share the cores with the step
    and with each other: in one of the tables 2 workers need 19 ms a turn and none needs 12."""
    return _with_right_verdict(lambda times, floor: max(times))(turn_ms, floor_ms)


@decide_workers.wrong
def takes_the_fewest_of_all(turn_ms, floor_ms):
    """The smallest number of the table is taken, whatever its turn: 30 ms without workers, where 2 of them need 12. It
    is the smallest of those that are *near the shortest*."""
    return _with_right_verdict(lambda times, floor: min(times))(turn_ms, floor_ms)


@decide_workers.wrong
def compares_with_the_number_before(turn_ms, floor_ms):
    """Each number is compared with the one before it, or with the last that won, and not with the shortest turn. That
    ends too early where 1 worker wins 1 ms of 40 and two win 18, and where small gains add up, 20.0 to 19.2 to 18.5;
    and it goes on too far where one gain is just large enough."""
    return _with_right_verdict(_up_to_the_first_vain_one)(turn_ms, floor_ms)


def _up_to_the_first_vain_one(times: dict, floor: float) -> int:
    numbers = sorted(times)
    for one, following in zip(numbers, numbers[1:], strict=False):
        if times[following] > 0.95 * times[one]:
            return one
    return numbers[-1]


def _last_that_won(times: dict, floor: float, first: int | None = None) -> int:
    holder = min(times) if first is None else first
    shortest = times[holder]
    for number in sorted(times):
        if times[number] <= 0.95 * shortest:
            holder, shortest = number, times[number]
    return holder


@decide_workers.wrong
def takes_the_first_near_one_in_the_table(turn_ms, floor_ms):
    """The first entry that is near the shortest is taken, and the table was not in order: 4 workers stood before 2. A
    dict keeps the order in which it was filled. Take the smallest *number* of those that are near."""
    return _with_right_verdict(lambda times, floor: _nearest(times)[0])(turn_ms, floor_ms)


@decide_workers.wrong
def allows_ten_percent(turn_ms, floor_ms):
    """Turns up to 10 % longer than the shortest count as equal: that is the border of the verdict. Of 17.8 ms it is a
    loss of nearly 2 ms in every turn of the run. For the number of workers it is 5 %."""
    return _with_right_verdict(lambda times, floor: min(_nearest(times, 1.10)))(turn_ms, floor_ms)


@decide_workers.wrong
def measures_the_gain_in_ms(turn_ms, floor_ms):
    """Turns within 5 milliseconds of the shortest count as equal. Of 200 ms that is nothing, of a turn of 4 ms it
    is more than all. The 5 % are a share: at most 1.05 times the shortest."""
    return _with_right_verdict(_within_5_ms)(turn_ms, floor_ms)


def _within_5_ms(times: dict, floor: float) -> int:
    return min(number for number, turn in times.items() if turn <= min(times.values()) + 5)


@decide_workers.wrong
def compares_the_turns_with_the_floor(turn_ms, floor_ms):
    """The number is chosen by the distance to the step alone. In a data-bound loop no turn comes near it, so no number
    qualifies and the search fails, or falls back on another rule. Turns are compared with the shortest turn; the floor
    decides the verdict."""
    return _with_right_verdict(_near_the_floor())(turn_ms, floor_ms)


def _near_the_floor(share: float = 1.05, otherwise: Callable = lambda times: min(times, key=times.get)) -> Callable:
    def choose(times, floor):
        near = [number for number, turn in times.items() if turn <= share * floor]
        return min(near) if near else otherwise(times)

    return choose


@decide_workers.wrong
def ignores_the_floor(turn_ms, floor_ms):
    """The verdict is taken from the table alone. That workers made the loop faster, or that no number makes it faster
    still, does not say what is left to win: 20.2 ms a turn is the end of this table, and the step needs 10 of them.
    Compare with floor_ms."""
    return _with_verdict(lambda times, number, floor: number == min(times))(turn_ms, floor_ms)


@decide_workers.wrong
def judges_the_turn_of_another_number(turn_ms, floor_ms):
    """The verdict is about another turn than that of the number chosen: the shortest one, or the one without workers.
    In the table with 11.4 and 10.9 ms the loop would run at 11.4 ms, 14 % above its step of 10.0, and be called
    compute-bound."""
    return _with_verdict(lambda times, number, floor: min(times.values()) <= 1.1 * floor)(turn_ms, floor_ms)


@decide_workers.wrong
def asks_for_the_floor_itself(turn_ms, floor_ms):
    """A turn must be as short as the step alone to be called compute-bound, or nearly so. A turn is the step and the
    hand-over of a batch, and both are measured: 12.0 ms over a step of 11.5 leave nothing to win. 10 % are allowed."""
    return _with_verdict(lambda times, number, floor: times[number] <= floor)(turn_ms, floor_ms)


@decide_workers.wrong
def exchanges_the_verdicts(turn_ms, floor_ms):
    """The verdicts are exchanged: a loop at the pace of its step is sent to tune its loader, and one that waits for
    data to buy a faster processor. Near the step alone means that computing bounds it."""
    return _with_verdict(lambda times, number, floor: times[number] > 1.1 * floor)(turn_ms, floor_ms)


@decide_workers.wrong
def takes_5_percent_of_the_longer_turn(turn_ms, floor_ms):
    """The 5 % are taken of each number's own turn, 0.95 * turn <= shortest, or the percentage was rounded: so turns
    pass that are more than 5 % longer, 21.03 ms beside 20.0. The task takes them of the shortest turn."""
    return _with_right_verdict(lambda times, floor: min(_nearest(times, 1 / 0.95)))(turn_ms, floor_ms)


@decide_workers.wrong
def takes_the_share_of_waiting(turn_ms, floor_ms):
    """The 10 % are taken of the turn, as in a share of waiting, (turn - floor) / turn, or the percentage was rounded.
    Of 11.05 ms over a step of 10.0 the loop waits 9.5 %; the turn is 10.5 % longer. The task takes them of the step."""
    return _with_verdict(lambda times, number, floor: times[number] - floor <= 0.1 * times[number])(turn_ms, floor_ms)


@decide_workers.wrong
def returns_the_place_in_the_table(turn_ms, floor_ms):
    """This is the place in the table, not the number of workers: place 3 of {0, 1, 2, 4} is 4 workers, and in a table
    without 0 every place is one off. Take the key."""
    number, verdict = decide_workers.answer(turn_ms, floor_ms)
    return list(turn_ms).index(number), verdict


@decide_workers.form_of("returns_the_place_in_the_table")
def returns_the_place_in_the_sorted_table(turn_ms, floor_ms):
    number, verdict = decide_workers.answer(turn_ms, floor_ms)
    return sorted(turn_ms).index(number), verdict


# Other forms, and a wrong number with a wrong verdict on it: the number comes first, so its mistake is named.

_CHOICES = [
    ("takes_the_shortest_turn", lambda times, floor: min(times, key=times.get)),
    ("takes_the_most_workers", lambda times, floor: max(times)),
    ("takes_the_most_workers", lambda times, floor: max(_nearest(times))),
    ("takes_the_fewest_of_all", lambda times, floor: min(times)),
    ("compares_with_the_number_before", _up_to_the_first_vain_one),
    ("compares_with_the_number_before", _last_that_won),
    ("compares_with_the_number_before", lambda times, floor: _last_that_won(times, floor, first=0)),
    ("takes_the_first_near_one_in_the_table", lambda times, floor: _nearest(times)[0]),
    ("allows_ten_percent", lambda times, floor: min(_nearest(times, 1.10))),
    ("measures_the_gain_in_ms", _within_5_ms),
    ("takes_5_percent_of_the_longer_turn", lambda times, floor: min(_nearest(times, 1 / 0.95))),
    ("compares_the_turns_with_the_floor", _near_the_floor()),
    ("compares_the_turns_with_the_floor", _near_the_floor(1.10)),
    ("compares_the_turns_with_the_floor", _near_the_floor(1.05, max)),
    ("compares_the_turns_with_the_floor", _near_the_floor(1.10, max)),
    ("compares_the_turns_with_the_floor", _near_the_floor(1.05, lambda times: min([]))),
    ("compares_the_turns_with_the_floor", _near_the_floor(1.10, lambda times: min([]))),
]
_VERDICTS = [
    ("ignores_the_floor", lambda times, number, floor: number == min(times)),
    ("ignores_the_floor", lambda times, number, floor: number != min(times)),
    ("ignores_the_floor", lambda times, number, floor: number > 0),
    ("ignores_the_floor", lambda times, number, floor: number == 0),
    ("ignores_the_floor", lambda times, number, floor: times[number] <= 1.1 * min(times.values())),
    ("ignores_the_floor", lambda times, number, floor: number == max(times)),
    ("ignores_the_floor", lambda times, number, floor: number != max(times)),
    ("judges_the_turn_of_another_number", lambda times, number, floor: min(times.values()) <= 1.1 * floor),
    ("judges_the_turn_of_another_number", lambda times, number, floor: times[min(times)] <= 1.1 * floor),
    ("judges_the_turn_of_another_number", lambda times, number, floor: times[0] <= 1.1 * floor),
    ("asks_for_the_floor_itself", lambda times, number, floor: times[number] <= floor),
    ("asks_for_the_floor_itself", lambda times, number, floor: times[number] <= 1.01 * floor),
    ("asks_for_the_floor_itself", lambda times, number, floor: times[number] <= 1.05 * floor),
    ("takes_the_share_of_waiting", lambda times, number, floor: times[number] - floor <= 0.1 * times[number]),
    ("exchanges_the_verdicts", lambda times, number, floor: times[number] > 1.1 * floor),
]
_OFTEN_WITH_ANOTHER = [_CHOICES[0], _CHOICES[1], _CHOICES[7]]
for _mistake, _judge in _VERDICTS:
    decide_workers.form_of(_mistake)(_with_verdict(_judge))
for _mistake, _choose in _CHOICES:
    decide_workers.form_of(_mistake)(_with_right_verdict(_choose))
for _mistake, _choose in _OFTEN_WITH_ANOTHER:
    for _, _judge in _VERDICTS[1:4] + _VERDICTS[-5:]:
        decide_workers.form_of(_mistake)(_with_verdict(_judge, _choose))
