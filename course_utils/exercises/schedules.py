"""Exercises of chapter 07: here the factor of a schedule; the others come in by import.

Order of the numbers: the factor, the count of steps, the groups, the loop, then what goes wrong around them.
"""

from __future__ import annotations

from course_utils.exercises.declare import exercise
from course_utils.exercises.schedules_decay import decay_groups
from course_utils.exercises.schedules_groups import apply_factor, uncovered_parameters
from course_utils.exercises.schedules_length import count_steps, ninth_lr
from course_utils.exercises.schedules_loop import train_epoch
from course_utils.exercises.schedules_plateau import plateau_cuts
from course_utils.exercises.schedules_preview import lr_preview

__all__ = [
    "apply_factor", "count_steps", "decay_groups", "lr_preview", "ninth_lr", "plateau_cuts", "train_epoch",
    "uncovered_parameters",
]  # fmt: skip


@exercise(
    "schedules-1",
    title="The factor of a warm-up",
    difficulty="easy",
    minutes=5,
    cases=[(0, 4), (1, 4), (3, 4), (4, 4), (9, 4), (0, 1)],
    expected=[0.25, 0.5, 1.0, 1.0, 1.0, 1.0],
    hints=[
        "`step` counts the updates already made, so the first update asks for step 0. Which factor should it get?",
        "With 4 warm-up steps the updates 0, 1, 2, 3 use 1/4, 2/4, 3/4, 4/4. Write that as a function of step.",
        "From then on the factor stays at 1: `min(1.0, ...)`.",
    ],
    lesson="The first update moves the weights, and update number warmup_steps - 1 is the first with the full lr.",
)
def warmup_factor(step: int, warmup_steps: int) -> float:
    """Multiplier of the base lr: rises linearly to 1 in `warmup_steps` updates, then stays 1.

    step         : optimizer updates already made (0-based)
    warmup_steps : updates spent rising, at least 1; the last of them has the factor 1
    """
    return min(1.0, (step + 1) / warmup_steps)


@warmup_factor.wrong
def starts_at_zero(step, warmup_steps):
    """The first update gets the factor 0: it costs a forward and a backward pass and leaves the weights as they are.
    The full lr comes one update late."""
    return min(1.0, step / warmup_steps)


@warmup_factor.wrong
def rises_from_zero_to_one(step, warmup_steps):
    """Divided by warmup_steps - 1, the rise ends in time but begins at 0: the first update leaves the weights as they
    are, and with one warm-up step it divides by 0. Use step + 1, and warmup_steps as it is."""
    return min(1.0, step / (warmup_steps - 1))


@warmup_factor.form_of("rises_from_zero_to_one")
def rises_from_zero_to_one_and_divides_by_one_at_least(step, warmup_steps):
    return min(1.0, step / max(1, warmup_steps - 1))


@warmup_factor.form_of("rises_from_zero_to_one")
def rises_from_zero_to_one_unless_it_is_one_step(step, warmup_steps):
    return 1.0 if warmup_steps == 1 else min(1.0, step / (warmup_steps - 1))


@warmup_factor.wrong
def rises_forever(step, warmup_steps):
    """Nothing holds the factor at 1: it goes on rising after the warm-up, and a run of 100 warm-ups' length ends with
    100 times the base lr."""
    return (step + 1) / warmup_steps


@warmup_factor.wrong
def arrives_one_step_late(step, warmup_steps):
    """Divided by warmup_steps + 1, the factor is below 1 for warmup_steps updates and reaches 1 one update late. Update
    0 counts as the first step of the warm-up."""
    return min(1.0, (step + 1) / (warmup_steps + 1))


@warmup_factor.wrong
def goes_one_step_too_far(step, warmup_steps):
    """With `<=` the step warmup_steps still belongs to the rise and gets (warmup_steps + 1) / warmup_steps, more than
    the full lr. The last step of the rise is warmup_steps - 1."""
    return (step + 1) / warmup_steps if step <= warmup_steps else 1.0


@warmup_factor.wrong
def divides_as_integers(step, warmup_steps):
    """`//` rounds down: the factor is 0 until the last update of the warm-up and then jumps to 1, so there is no
    warm-up and nothing is learned before it."""
    return min(1, (step + 1) // warmup_steps)


def _plan_cases() -> list[tuple]:
    """Warm-up, plateau, decay and after, in the order of the run; then a minimum; no warm-up; a decay of one step."""
    return (
        [(step, 4, 4, 12, 0.0) for step in (0, 3, 4, 6, 8, 9, 11, 12, 15)]
        + [(step, 4, 4, 12, 0.2) for step in (0, 1, 6, 8, 10, 11, 12, 40)]
        + [(0, 0, 4, 8, 0.0), (9, 2, 1, 10, 0.5), (10, 2, 1, 10, 0.5)]
    )


_NO_MINIMUM, _MINIMUM = [0.25, 1.0, 1.0, 1.0, 1.0, 0.75, 0.25, 0.0, 0.0], [0.25, 0.5, 1.0, 1.0, 0.6, 0.4, 0.2, 0.2]


@exercise(
    "schedules-2",
    title="Warm up, stay, decay",
    difficulty="medium",
    minutes=12,
    cases=_plan_cases,
    expected=[*_NO_MINIMUM, *_MINIMUM, 1.0, 1.0, 0.5],
    hints=[
        "Three parts. Which steps belong to each, with 4 steps of warm-up, 4 of decay and 12 in all? Draw them first.",
        "The decay ends at total_steps, so it starts at total_steps - decay_steps. progress = (step - start) / "
        "decay_steps; hold it between 0 and 1, and the plateau and the time after the end need no case of their own.",
        "From 1 down to min_factor: 1 - (1 - min_factor) * progress. The warm-up is that of schedules-1; the minimum "
        "has no part in it.",
    ],
    lesson="Until the decay starts, the plan does not depend on the run's length: the run can still be prolonged.",
)
def warmup_stable_decay(
    step: int, *, warmup_steps: int, decay_steps: int, total_steps: int, min_factor: float = 0.0
) -> float:
    """Rise linearly to 1, stay there, and fall linearly to `min_factor` at the end of the run.

    step         : optimizer updates already made (0-based)
    warmup_steps : updates spent rising as in schedules-1, 0 for none
    decay_steps  : updates spent falling, at least 1: the last ones of the run
    total_steps  : updates in the run; `min_factor` is reached at step == total_steps and kept
    min_factor   : where the fall ends; it has no part in the warm-up
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - (total_steps - decay_steps)) / decay_steps
    return 1 - (1 - min_factor) * min(1.0, max(0.0, progress))


def _plan(step: int, warmup_steps: int, fall: float) -> float:
    """The right warm-up, then what `fall` says."""
    return (step + 1) / warmup_steps if step < warmup_steps else fall


def _held(progress: float) -> float:
    return min(1.0, max(0.0, progress))


@warmup_stable_decay.wrong
def warms_up_from_zero(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """The first update gets the factor 0 and changes nothing: step counts the updates already made, so the warm-up
    needs step + 1."""
    fall = 1 - (1 - min_factor) * _held((step - total_steps + decay_steps) / decay_steps)
    return step / warmup_steps if step < warmup_steps else fall


@warmup_stable_decay.wrong
def warms_up_from_the_minimum(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """The warm-up starts at min_factor and not at 1 / warmup_steps: its first factors are too large. min_factor is
    where the *fall* ends."""
    fall = 1 - (1 - min_factor) * _held((step - total_steps + decay_steps) / decay_steps)
    return min_factor + (1 - min_factor) * (step + 1) / warmup_steps if step < warmup_steps else fall


@warmup_stable_decay.wrong
def warms_up_one_step_too_long(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """With `<=` the step warmup_steps still belongs to the rise and gets (warmup_steps + 1) / warmup_steps, more than
    the full lr; without a warm-up it divides by 0. Its last step is warmup_steps - 1."""
    if step <= warmup_steps:
        return (step + 1) / warmup_steps
    return 1 - (1 - min_factor) * _held((step - total_steps + decay_steps) / decay_steps)


@warmup_stable_decay.wrong
def goes_on_falling_after_the_end(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """Nothing holds the fall at min_factor: past total_steps the factor goes below it and then below 0, where the
    optimizer steps *up* the gradient. Hold the progress at 1."""
    return _plan(step, warmup_steps, 1 - (1 - min_factor) * max(0.0, (step - total_steps + decay_steps) / decay_steps))


@warmup_stable_decay.wrong
def starts_the_decay_at_the_end(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """The fall starts at total_steps, when the run is over: no update gets a low lr. It has to end there, so it starts
    at total_steps - decay_steps."""
    return _plan(step, warmup_steps, 1 - (1 - min_factor) * _held((step - total_steps) / decay_steps))


@warmup_stable_decay.wrong
def adds_the_minimum(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """min_factor is added on top, so the factor is 1 + min_factor where the fall starts: more than the full lr. The
    fall has the height 1 - min_factor."""
    fall = min_factor + 1 - _held((step - total_steps + decay_steps) / decay_steps)
    return _plan(step, warmup_steps, 1.0 if step < total_steps - decay_steps else fall)


@warmup_stable_decay.form_of("adds_the_minimum")
def adds_the_minimum_on_the_plateau(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    return _plan(step, warmup_steps, min_factor + 1 - _held((step - total_steps + decay_steps) / decay_steps))


@warmup_stable_decay.wrong
def is_cut_off_at_the_minimum(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """The fall aims at 0 and is cut off at min_factor: the factors before are too low, and the last part of the run
    has a flat lr. Let the fall itself end at min_factor."""
    return _plan(step, warmup_steps, max(min_factor, 1 - _held((step - total_steps + decay_steps) / decay_steps)))


@warmup_stable_decay.wrong
def decays_one_step_early(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """The minimum comes at step total_steps - 1, the last update of the run: with min_factor 0 that update changes
    nothing. At step == start of the fall the progress is still 0, at total_steps it is 1."""
    return _plan(step, warmup_steps, 1 - (1 - min_factor) * _held((step + 1 - total_steps + decay_steps) / decay_steps))


@warmup_stable_decay.form_of("decays_one_step_early")
def decays_in_one_step_less(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    progress = _held((step - total_steps + decay_steps) / max(decay_steps - 1, 1))
    return _plan(step, warmup_steps, 1 - (1 - min_factor) * progress)


@warmup_stable_decay.wrong
def divides_by_the_whole_run(step, *, warmup_steps, decay_steps, total_steps, min_factor=0.0):
    """The progress is divided by total_steps, not by decay_steps: when the run ends, the fall has come only a part of
    its way, and the lr never gets low."""
    return _plan(step, warmup_steps, 1 - (1 - min_factor) * _held((step - total_steps + decay_steps) / total_steps))
