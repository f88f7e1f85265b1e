"""The exercise of chapter 11 about the share of waiting, measured in a loop that overlaps with its loading."""

from __future__ import annotations

import statistics
from itertools import pairwise

from course_utils.exercises.declare import exercise


def _rows(turns: list[tuple]) -> tuple:
    return ([dict(zip(("asked", "there", "done", "load_ms"), turn, strict=True)) for turn in turns],)


@exercise(
    "profiling-2",
    title="The share of waiting",
    difficulty="easy",
    minutes=8,
    cases=[
        ([(0, 400, 430, 40), (440, 450, 480, 40), (500, 510, 540, 40)],),
        ([(0, 400, 430, 50), (430, 430, 460, 55), (460, 460, 490, 55), (490, 490, 520, 60)],),
        ([(0, 200, 240, 90), (250, 280, 320, 90), (320, 320, 360, 80), (370, 410, 440, 80), (450, 460, 500, 80)],),
        ([(0, 90, 100, 12), (100, 103, 113, 12), (113, 113, 123, 12), (133, 133, 143, 13), (143, 150, 160, 13)],),
        ([(0, 300, 330, 35), (340, 365, 395, 35)],),
        ([(0, 400, 430, 40)],),
        ([],),
    ],
    expected=[0.2, 0.0, 0.32, 1 / 6, 25 / 55, ValueError, ValueError],
    arrange=_rows,
    keep_arguments=True,
    describe=lambda turns: f"wait_share(rows) with (asked, there, done, load_ms) of the rows {turns}",
    hints=[
        "Loading is not waiting: while the loop makes its step, workers make the next batches. Which two of the time "
        "stamps enclose the time in which the loop had nothing to do?",
        "The waits of all rows but the first, added up, and one length of time in which they happened: not a sum of "
        "parts, but the difference of two time stamps.",
        "Above the line the sum of there - asked; below it, the last row's `done` less the second row's `asked`. With "
        "fewer than two rows there is no second row: raise ValueError before.",
    ],
    lesson="It is the most that a faster loader can win: a loop that never waits takes 1 - share of the time.",
)
def wait_share(rows: list[dict]) -> float:
    """The share of its time that a loop waited for batches, its first batch left out.

    rows    : one dict a batch, in order, of times in milliseconds since the loop began:
              "asked", when the loop asked for the batch; "there", when it had it; "done", when
              its step was done; and "load_ms", how long a worker took to make the batch, while
              the loop was at work. Between "done" and the next "asked" the loop did other things
    returns : from 0 to 1, not rounded: the waits for the second to the last batch together, as a
              share of the time from asking for the second batch to the end of the last step
    raises  : ValueError for fewer than two rows

    Three rows whose asked, there, done, load_ms are (0, 400, 430, 40), (440, 450, 480, 40) and
    (500, 510, 540, 40): the loop waited 10 ms twice in the 100 ms from 440 to 540, so the share
    is 0.2. The first wait started the workers.
    """
    if len(rows) < 2:
        raise ValueError(f"wait_share needs two rows or more, got {len(rows)}")
    waited = sum(row["there"] - row["asked"] for row in rows[1:])
    return waited / (rows[-1]["done"] - rows[1]["asked"])


def _wait(row) -> float:
    return row["there"] - row["asked"]


def _step(row) -> float:
    return row["done"] - row["there"]


def _turn(row) -> float:
    return row["done"] - row["asked"]


def _load(row) -> float:
    return row["load_ms"]


def _sum(part, rows) -> float:
    return sum(part(row) for row in rows)


def _window(rows) -> float:
    """From the first of the rows asked for to the end of the last one."""
    return rows[-1]["done"] - rows[0]["asked"]


def _both(name: str, share) -> None:
    """The mistake over the rows that count, and over all rows: the start-up inside as well."""
    wait_share.form_of(name)(lambda rows: share(rows[1:]))
    wait_share.form_of(name)(share)


def _ratio(above, below):
    return lambda rows: _sum(above, rows) / _sum(below, rows)


def _mean_ratio(above, below):
    return lambda rows: statistics.fmean(above(row) / below(row) for row in rows)


@wait_share.wrong
def measures_the_loading(rows):
    """This is the share of loading, load / (load + step). Workers load while the loop makes its step, so most of that
    time costs nothing: a loop that never waits would be told to buy a faster loader. Only there - asked is lost."""
    return _sum(_load, rows[1:]) / (_sum(_load, rows[1:]) + _sum(_step, rows[1:]))


for _share in (
    lambda rows: _sum(_load, rows) / (_sum(_load, rows) + _sum(_step, rows)),
    lambda rows: statistics.fmean(_load(row) / (_load(row) + _step(row)) for row in rows),
    lambda rows: _sum(_load, rows) / _window(rows),
    _ratio(_load, _turn),
    _ratio(_load, _step),
):
    _both("measures_the_loading", _share)


@wait_share.wrong
def measures_against_the_sum_of_the_parts(rows):
    """The wait is right, and it is divided by load + step. The two overlap, so their sum is longer than the time that
    passed, and the share comes out too small. The loop's own time is the difference of two of its time stamps."""
    return _sum(_wait, rows[1:]) / (_sum(_load, rows[1:]) + _sum(_step, rows[1:]))


for _share in (
    lambda rows: _sum(_wait, rows) / (_sum(_load, rows) + _sum(_step, rows)),
    lambda rows: _sum(_wait, rows) / (_sum(_load, rows) + _sum(_turn, rows)),
    lambda rows: _sum(_wait, rows) / (_sum(_load, rows) + _window(rows)),
):
    _both("measures_against_the_sum_of_the_parts", _share)


@wait_share.wrong
def counts_the_start_up(rows):
    """The first wait is inside. It started the workers, once an epoch: in ten turns it outweighs all other waits, in
    ten thousand it is nothing, so this share says mostly how long you measured."""
    return _sum(_wait, rows) / _window(rows)


@wait_share.form_of("counts_the_start_up")
def counts_the_start_up_and_forgets_the_rest(rows):
    return _sum(_wait, rows) / _sum(_turn, rows)


@wait_share.wrong
def drops_the_first_wait_but_not_its_time(rows):
    """The first wait is left out above the line and is still inside below it, where the time begins with the first
    batch: the share comes out too small, the more so the shorter the measurement. Begin with the second `asked`."""
    return _sum(_wait, rows[1:]) / _window(rows)


@wait_share.form_of("drops_the_first_wait_but_not_its_time")
def divides_by_the_time_since_the_beginning(rows):
    return _sum(_wait, rows[1:]) / rows[-1]["done"]


@wait_share.form_of("drops_the_first_wait_but_not_its_time")
def divides_by_all_turns(rows):
    return _sum(_wait, rows[1:]) / _sum(_turn, rows)


@wait_share.form_of("drops_the_first_wait_but_not_its_time")
def begins_with_the_first_step(rows):
    return _sum(_wait, rows[1:]) / (rows[-1]["done"] - rows[0]["there"])


@wait_share.wrong
def forgets_what_the_loop_does_between(rows):
    """Only waits and steps are below the line. What the loop does between `done` and the next `asked`, logging or
    copying, takes time as well: without it the share is too large, and a faster loader wins less than it promises."""
    return _sum(_wait, rows[1:]) / _sum(_turn, rows[1:])


@wait_share.wrong
def counts_other_work_as_waiting(rows):
    """All that is not the step counts as waiting, so also what the loop does between `done` and the next `asked`:
    logging or copying, which a faster loader does not shorten. The wait begins when the loop asks: there - asked."""
    return 1 - _sum(_step, rows[1:]) / _window(rows[1:])


def _since_the_step_before(rows) -> float:
    return sum(row["there"] - before["done"] for before, row in pairwise(rows))


for _share in (
    lambda rows: _since_the_step_before(rows) / _window(rows[1:]),
    lambda rows: _since_the_step_before(rows) / (rows[-1]["done"] - rows[0]["done"]),
    lambda rows: _since_the_step_before(rows) / _window(rows),
    lambda rows: 1 - _sum(_step, rows[1:]) / (rows[-1]["done"] - rows[0]["done"]),
):
    wait_share.form_of("counts_other_work_as_waiting")(_share)


@wait_share.wrong
def begins_where_the_first_step_ended(rows):
    """The time begins with the first step's `done`: what the loop did before it asked for the second batch is below the
    line, and no wait of that time above it. The share comes out too small. Begin with the second `asked`."""
    return _sum(_wait, rows[1:]) / (rows[-1]["done"] - rows[0]["done"])


@wait_share.wrong
def averages_the_shares_of_the_turns(rows):
    """Each turn has its own share, and their mean is taken: a short turn counts as much as a long one. Add the waits
    up, add the time up, divide once."""
    return statistics.fmean(_wait(row) / _turn(row) for row in rows[1:])


@wait_share.form_of("averages_the_shares_of_the_turns")
def averages_the_shares_of_all_turns(rows):
    return statistics.fmean(_wait(row) / _turn(row) for row in rows)


@wait_share.form_of("averages_the_shares_of_the_turns")
def averages_the_shares_between_askings(rows):
    ends = [*(row["asked"] for row in rows[2:]), rows[-1]["done"]]
    return statistics.fmean(_wait(row) / (end - row["asked"]) for row, end in zip(rows[1:], ends, strict=True))


@wait_share.wrong
def takes_the_median_wait(rows):
    """A median of waits: several workers deliver in bursts, so that one long wait is followed by waits of nothing, and
    the median sees one kind only. For a share the waits are added up."""
    return statistics.median(map(_wait, rows[1:])) / statistics.median(map(_turn, rows[1:]))


for _share in (
    lambda rows: statistics.median(map(_wait, rows)) / statistics.median(map(_turn, rows)),
    lambda rows: statistics.median(_wait(row) / _turn(row) for row in rows),
    lambda rows: len(rows) * statistics.median(map(_wait, rows)) / _window(rows),
):
    _both("takes_the_median_wait", _share)


@wait_share.wrong
def counts_the_turns_that_waited(rows):
    """This counts how many turns had to wait at all. A wait of a tenth of a millisecond counts like one of a second:
    nearly every loop with workers would seem to wait all the time."""
    return sum(_wait(row) > 0 for row in rows[1:]) / len(rows[1:])


_both("counts_the_turns_that_waited", lambda rows: sum(_wait(row) > 0 for row in rows) / len(rows))


@wait_share.wrong
def divides_by_the_steps(rows):
    """The waits are divided by the steps alone: where the loop waits twice as long as it works, this says 2. A share is
    of the whole, and waiting is a part of it."""
    return _sum(_wait, rows[1:]) / _sum(_step, rows[1:])


_both("divides_by_the_steps", _ratio(_wait, _step))
_both("divides_by_the_steps", _mean_ratio(_wait, _step))


@wait_share.wrong
def gives_the_share_of_work(rows):
    """This is the other share, of the time in which the loop did not wait. A loop that waits for nothing would be
    reported as waiting all the time."""
    return 1 - wait_share.answer(rows)


for _share in (lambda rows: _sum(_step, rows) / _window(rows), _ratio(_step, _turn)):
    _both("gives_the_share_of_work", _share)


@wait_share.wrong
def leaves_out_the_last_turn(rows):
    """The time ends before the last step does, where its batch was asked for or was there: that step is missing below
    the line, so that the share comes out too large. The last step's `done` is the end."""
    return _sum(_wait, rows[1:]) / (rows[-1]["asked"] - rows[1]["asked"])


@wait_share.form_of("leaves_out_the_last_turn")
def leaves_out_the_last_turn_and_its_wait(rows):
    return _sum(_wait, rows[1:-1]) / (rows[-1]["asked"] - rows[1]["asked"])


@wait_share.form_of("leaves_out_the_last_turn")
def ends_with_the_last_batch(rows):
    return _sum(_wait, rows[1:]) / (rows[-1]["there"] - rows[1]["asked"])


@wait_share.wrong
def computes_the_wait(rows):
    """The wait is worked out as load - step, which holds for one worker that is always a batch behind. Two workers make
    two batches at a time, and batches made ahead cover a slow one: the wait was measured, so use the time stamps."""
    return sum(max(0, _load(row) - _step(row)) for row in rows[1:]) / _window(rows[1:])


for _share in (
    lambda rows: sum(max(0, _load(row) - _step(row)) for row in rows) / _window(rows),
    lambda rows: (_sum(_load, rows) - _sum(_step, rows)) / _window(rows),
    lambda rows: 1 - _sum(_step, rows) / _sum(_load, rows),
):
    _both("computes_the_wait", _share)


@wait_share.wrong
def gives_percent(rows):
    """The number is a percentage, 20 in place of 0.2. A share goes from 0 to 1; the sign % belongs where it is
    printed, f"{share:.0%}"."""
    return 100 * wait_share.answer(rows)


@wait_share.wrong
def gives_a_number_where_nothing_was_measured(rows):
    """With the first batch alone this gives something all the same: 0 says that the loop never waited, the best result
    there is, and NaN looks like a number until it is compared. Nothing was measured: raise ValueError."""
    return wait_share.answer(rows) if len(rows) > 1 else 0.0


@wait_share.form_of("gives_a_number_where_nothing_was_measured")
def says_nan_where_nothing_was_measured(rows):
    return wait_share.answer(rows) if len(rows) > 1 else float("nan")
