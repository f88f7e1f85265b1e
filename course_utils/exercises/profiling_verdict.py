"""The exercise of chapter 11 about what holds a loop up, decided on a table of its parts."""

from __future__ import annotations

from course_utils.exercises.declare import exercise


@exercise(
    "profiling-3",
    title="What holds the loop up",
    difficulty="medium",
    minutes=12,
    cases=[
        (20, 50, 4, 0, 10),
        (30, 50, 0, 0, 10),
        (20, 30, 8, 0, 10),
        (20, 21, 0, 400, 50),
        (20, 21, 0, 400, 1000),
        (20, 22, 0, 0, 10),
        (200, 221, 0, 0, 10),
        (200, 230, 15, 150, 10),
        (20, 28, 4, 40, 10),
        (20, 26, 6, 60, 10),
        (20, 21, 6, 0, 10),
        (20, 19, 6, 0, 10),
        (20, 60, 0, 100, 1),
        (20, 21, 0, 100, 8),
        (20, 40, 12, 100, 10),
    ],
    expected=[
        ("data-bound", 26),
        ("data-bound", 20),
        ("hand-over-bound", 8),
        ("start-up-bound", 8),
        ("compute-bound", 20),
        ("compute-bound", 20),
        ("data-bound", 21),
        ("compute-bound", 200),
        ("data-bound", 4),
        ("hand-over-bound", 6),
        ("compute-bound", 20),
        ("compute-bound", 20),
        ("start-up-bound", 100),
        ("start-up-bound", 12.5),
        ("hand-over-bound", 12),
    ],
    parts=("the verdict", "the milliseconds"),
    hints=[
        "What would be won if every batch were there at once? Not the step, however long it is: only what a turn takes "
        "above it. Split that into hand-over and data.",
        "The hand-over can cost no more than the turn shows above the step; the data has the rest. The start-up comes "
        "once in num_batches batches, so each bears its part.",
        "Put the three parts into a dict in the order data, hand-over, start-up: max(parts, key=parts.get) takes the "
        "first of equal ones. Compare its value with a tenth of step_ms, and name it only if it is more.",
    ],
    lesson="diagnose measures these times and decides like this: the table comes first, then the advice.",
)
def bottleneck(
    step_ms: float, turn_ms: float, handover_ms: float, startup_ms: float, num_batches: int
) -> tuple[str, float]:
    """What holds a training loop up, and how many milliseconds of each batch it takes.

    step_ms     : the step alone, on a batch that is there already
    turn_ms     : one turn of the loop in its steady state, getting a batch and making a step; what
                  it takes above step_ms could be won. Measured apart, it may come out below it:
                  then that is 0
    handover_ms : getting a finished batch from a worker; a part of what the turn takes above the
                  step, and never more than that. All else above the step is the data's
    startup_ms  : how much later than the others the first batch of an epoch comes
    num_batches : of an epoch; each bears an equal part of the start-up. 1 or more
    returns     : the verdict and its milliseconds: the largest of the data's part, the hand-over
                  and a batch's part of the start-up, as "data-bound", "hand-over-bound" or
                  "start-up-bound"; of equal ones the first in this order. If it is no more than
                  a tenth of step_ms: "compute-bound", and step_ms

    bottleneck(20, 50, 4, 100, 10): 30 ms above the step, 4 for the hand-over, 26 for the data; the
    start-up costs 10 a batch. The result is ("data-bound", 26).
    """
    above = max(0, turn_ms - step_ms)
    handover = min(handover_ms, above)
    parts = {
        "data": above - handover,
        "hand-over": handover,
        "start-up": startup_ms / num_batches,
    }
    part = max(parts, key=parts.get)
    if parts[part] <= 0.1 * step_ms:
        return "compute-bound", step_ms
    return f"{part}-bound", parts[part]


def _parts(step, turn, handover, startup, num_batches) -> dict[str, float]:
    above = max(0, turn - step)
    own = min(handover, above)
    return {"data": above - own, "hand-over": own, "start-up": startup / num_batches}


def _named(parts: dict[str, float], step: float, least: float, *, at_least: bool = False) -> tuple[str, float]:
    """The largest part where it is more than `least`, or as much where that is enough; else the step."""
    part = max(parts, key=parts.get)
    if parts[part] > least or (at_least and parts[part] == least):
        return f"{part}-bound", parts[part]
    return "compute-bound", step


@bottleneck.wrong
def takes_the_largest_of_all_four(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The step takes part in the comparison, and it wins as long as no other part is longer than it: a loop that spends
    two fifths of its time waiting is called compute-bound. The step has to be made; ask what could be won."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named({"compute": step_ms, **parts}, step_ms, 0)


@bottleneck.form_of("takes_the_largest_of_all_four")
def takes_the_largest_of_all_four_and_a_tenth(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named({**parts, "compute": step_ms}, step_ms, 0.1 * step_ms)


@bottleneck.wrong
def does_not_subtract_the_hand_over(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """All that the turn takes above the step is given to the data, and the hand-over is in it: the data is then never
    smaller than the hand-over, which can never be the verdict. Faster loading would be advised where sending the
    finished batches is what takes the time."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts | {"data": parts["data"] + parts["hand-over"]}, step_ms, 0.1 * step_ms)


@bottleneck.form_of("does_not_subtract_the_hand_over")
def does_not_subtract_the_whole_hand_over(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    parts = {"data": max(0, turn_ms - step_ms), "hand-over": handover_ms, "start-up": startup_ms / num_batches}
    return _named(parts, step_ms, 0.1 * step_ms)


@bottleneck.wrong
def takes_the_turn_for_the_data(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """A turn holds the step as well: taken whole, it is nearly always the largest part, and the
    loop data-bound. What the
    turn takes *above* the step is the loader's."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts | {"data": turn_ms}, step_ms, 0.1 * step_ms)


@bottleneck.form_of("takes_the_turn_for_the_data")
def takes_the_turn_without_the_hand_over_for_the_data(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts | {"data": turn_ms - handover_ms}, step_ms, 0.1 * step_ms)


@bottleneck.wrong
def believes_the_whole_hand_over(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The hand-over is taken as it was measured alone. In the loop part of it runs while the step does: if a turn takes
    1 ms above the step, a hand-over of 6 ms costs 1 and not 6. Take the smaller of the two."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts | {"hand-over": handover_ms}, step_ms, 0.1 * step_ms)


@bottleneck.wrong
def does_not_share_the_start_up_out(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The start-up of a whole epoch is compared with the time of a single batch: with workers it is then nearly always
    the largest, also in an epoch of ten thousand batches, where nobody would notice it. Divide it by num_batches."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, 1)
    return _named(parts, step_ms, 0.1 * step_ms)


@bottleneck.wrong
def forgets_the_start_up(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The start-up never becomes the verdict. In a short epoch, and in validation, it is what costs most, and
    persistent_workers=True is the remedy."""
    parts = _parts(step_ms, turn_ms, handover_ms, 0, num_batches)
    return _named(parts, step_ms, 0.1 * step_ms)


@bottleneck.wrong
def takes_a_tenth_of_the_turn(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """A tenth of the turn, or of the whole time of a batch, is the limit: the more a loop waits, the longer its turn,
    and the higher the limit rises with the very thing that is to be found. Take a tenth of step_ms."""
    return _named(_parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches), step_ms, 0.1 * turn_ms)


@bottleneck.form_of("takes_a_tenth_of_the_turn")
def takes_a_tenth_of_the_whole(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts, step_ms, 0.1 * (step_ms + sum(parts.values())))


@bottleneck.wrong
def names_what_takes_just_a_tenth(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """A part of exactly a tenth of the step is called the bottleneck: the task says that it must be more.
    With a step of 20 ms and a turn of 22 the step decides."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts, step_ms, 0.1 * step_ms, at_least=True)


@bottleneck.wrong
def always_finds_a_bottleneck_in_the_loader(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """There is no limit: the largest of the three is named even if it takes 1 ms beside a step of 20, or nothing. Work
    on the loader would win 5 % at most. Up to a tenth of step_ms it is the step that decides."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts, step_ms, -1)


@bottleneck.form_of("always_finds_a_bottleneck_in_the_loader")
def finds_a_bottleneck_wherever_there_is_something(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    return _named(_parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches), step_ms, 0)


@bottleneck.wrong
def adds_the_parts_up(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The three together are compared with a tenth of the step, and then one of them is named, which alone may be no
    more than a small part of it. A verdict names one cause: ask whether this cause is worth it."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts, step_ms, 0 if sum(parts.values()) > 0.1 * step_ms else step_ms + sum(parts.values()))


@bottleneck.wrong
def takes_another_of_equal_parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """Of equal parts another one than the first is named. max takes the first that it meets, so the order of the dict
    decides: data, hand-over, start-up. Sorting the names or the pairs decides by the alphabet backwards."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(dict(reversed(parts.items())), step_ms, 0.1 * step_ms)


for _order in (("hand-over", "data", "start-up"), ("data", "start-up", "hand-over"), ("start-up", "data", "hand-over")):
    bottleneck.form_of("takes_another_of_equal_parts")(
        lambda step_ms, turn_ms, handover_ms, startup_ms, num_batches, order=_order: _named(
            {name: _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)[name] for name in order},
            step_ms,
            0.1 * step_ms,
        )
    )


@bottleneck.wrong
def gives_a_share_in_place_of_milliseconds(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The number is a share of the time. Asked for are milliseconds of each batch: they can be compared with what a
    remedy costs, and with the same loop after it, whose whole is another one."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    verdict, ms = bottleneck.answer(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return verdict, ms / (min(step_ms, turn_ms) + sum(parts.values()))


for _whole in (
    lambda step, turn, parts: turn,
    lambda step, turn, parts: step,
    lambda step, turn, parts: step + sum(parts.values()),
    lambda step, turn, parts: turn + parts["start-up"],
):
    bottleneck.form_of("gives_a_share_in_place_of_milliseconds")(
        lambda step_ms, turn_ms, handover_ms, startup_ms, num_batches, whole=_whole: (
            bottleneck.answer(step_ms, turn_ms, handover_ms, startup_ms, num_batches)[0],
            bottleneck.answer(step_ms, turn_ms, handover_ms, startup_ms, num_batches)[1]
            / whole(step_ms, turn_ms, _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)),
        )
    )


@bottleneck.wrong
def gives_the_largest_part_of_a_loop_that_computes(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The verdict is right; where the step decides, the milliseconds are those of the largest other part, which the
    verdict does not speak of. A step of 20 ms would be reported as 1 ms. With "compute-bound" goes step_ms."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return bottleneck.answer(step_ms, turn_ms, handover_ms, startup_ms, num_batches)[0], max(parts.values())


@bottleneck.form_of("gives_the_largest_part_of_a_loop_that_computes")
def gives_the_turn_of_a_loop_that_computes(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    verdict, ms = bottleneck.answer(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return verdict, turn_ms if verdict == "compute-bound" else ms


for _ms in (lambda step, parts: 0, lambda step, parts: max(parts.values()) / step):
    bottleneck.form_of("gives_the_largest_part_of_a_loop_that_computes")(
        lambda step_ms, turn_ms, handover_ms, startup_ms, num_batches, ms=_ms: _with_ms(
            lambda verdict, right, parts: ms(step_ms, parts) if verdict == "compute-bound" else right,
            (step_ms, turn_ms, handover_ms, startup_ms, num_batches),
        )
    )


def _with_ms(ms, given) -> tuple[str, float]:
    """The right verdict, and `ms(verdict, right milliseconds, parts)`."""
    verdict, right = bottleneck.answer(*given)
    return verdict, ms(verdict, right, _parts(*given))


@bottleneck.wrong
def rounds_the_milliseconds(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The milliseconds are rounded, with // or round: 100 ms of start-up over 8 batches are 12.5 each, and over more
    batches than milliseconds // leaves nothing. Round where it is printed."""
    given = (step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _with_ms(lambda verdict, right, parts: int(right), given)


@bottleneck.wrong
def gives_all_that_could_be_won(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The verdict is right; the milliseconds are all that the turn takes above the step, or all parts together. Who
    mends the cause that is named wins its own part only: 26 ms of 30 in the task's example."""
    given = (step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _with_ms(lambda verdict, right, parts: _all_or(verdict, right, parts["data"] + parts["hand-over"]), given)


def _all_or(verdict: str, right: float, all_ms: float) -> float:
    return right if verdict == "compute-bound" else all_ms


@bottleneck.form_of("gives_all_that_could_be_won")
def gives_the_sum_of_all_parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    given = (step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _with_ms(lambda verdict, right, parts: _all_or(verdict, right, sum(parts.values())), given)


@bottleneck.form_of("gives_all_that_could_be_won")
def gives_all_above_the_step_but_the_start_up(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    given = (step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _with_ms(
        lambda verdict, right, parts: turn_ms - step_ms if verdict[:4] in ("data", "hand") else right, given
    )


@bottleneck.wrong
def shares_the_start_up_among_the_others(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    """The start-up is divided by num_batches - 1, as if the first batch bore nothing of it; in an epoch of one batch
    this divides by zero. It is the epoch's cost, spread over all its batches."""
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts | {"start-up": startup_ms / (num_batches - 1)}, step_ms, 0.1 * step_ms)


@bottleneck.form_of("shares_the_start_up_among_the_others")
def shares_it_among_the_others_if_there_are_any(step_ms, turn_ms, handover_ms, startup_ms, num_batches):
    parts = _parts(step_ms, turn_ms, handover_ms, startup_ms, num_batches)
    return _named(parts | {"start-up": startup_ms / max(1, num_batches - 1)}, step_ms, 0.1 * step_ms)
