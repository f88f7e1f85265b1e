"""The exercise of chapter 11 about timing work that a device does later."""

from __future__ import annotations

from course_utils.exercises.compare import as_number, difference
from course_utils.exercises.declare import exercise

FIRST_CALL_MS = 80  # of the processor: memory is taken, algorithms are chosen


class ScriptedDevice:
    """A processor and a device with a script for each; milliseconds. No real time passes.

    A step is asked for in `launch_ms` of the processor, which then goes on; the device works `work_ms` on it, after
    what it was asked for before. `waiting_ms` are left of other work at the beginning.
    """

    def __init__(self, launch_ms: float, work_ms: float, waiting_ms: float) -> None:
        self._launch_ms, self._work_ms = launch_ms, work_ms
        self._now, self._done = 5000.0, 5000.0 + waiting_ms
        self.num_steps, self.num_readings, self.num_waits = 0, 0, 0

    def step(self) -> None:
        """Ask for a step; the first call takes longer."""
        self._now += self._launch_ms + (0 if self.num_steps else FIRST_CALL_MS)
        self._done = max(self._done, self._now) + self._work_ms
        self.num_steps += 1

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked for."""
        self._now = max(self._now, self._done)
        self.num_waits += 1

    def clock(self) -> float:
        """The processor's time in seconds."""
        self.num_readings += 1
        return self._now / 1000


def _scripted(launch_ms: float, work_ms: float, waiting_ms: float, repeats: int) -> tuple:
    device = ScriptedDevice(launch_ms, work_ms, waiting_ms)
    return device.step, device, device.clock, repeats


def _milliseconds(result, step, device, clock, repeats) -> tuple:
    """What was returned, and whether the device was ever waited for.

    A number for which the clock that was handed in was not read is nowhere near: real time has passed, and hardly any.
    """
    measured = device.num_steps > 0 and isinstance(as_number(result), float)
    return (_OF_ANOTHER_CLOCK if measured and not device.num_readings else result), device.num_waits > 0


_OF_ANOTHER_CLOCK = object()


def _differ(expected: tuple, got: tuple) -> str | None:
    if _OF_ANOTHER_CLOCK in (expected[0], got[0]):
        return None if expected[0] is got[0] else "the clock that was handed in was never read"
    waiting = None if expected[1] == got[1] else "device.synchronize() was never called"
    return difference(expected[0], got[0]) or waiting


@exercise(
    "profiling-5",
    title="Time work that a device does later",
    difficulty="medium",
    minutes=10,
    cases=[(1, 9, 0, 1), (1, 9, 0, 10), (1, 9, 500, 10), (6, 2, 0, 4), (0.5, 20, 30, 50)],
    expected=[(10.0, True), (9.1, True), (9.1, True), (6.5, True), (20.01, True)],
    arrange=_scripted,
    observe=_milliseconds,
    difference=_differ,
    describe=lambda launch_ms, work_ms, waiting_ms, repeats: (
        f"mean_step_ms(step, device, clock, repeats={repeats}), where the processor takes {launch_ms} ms to ask for a "
        f"step, the device {work_ms} ms to do it"
        + (f", and {waiting_ms} ms of other work are still waiting" if waiting_ms else "")
    ),
    hints=[
        "step() returns before the work is done. What does clock() - began measure if nobody waits: the work, or the "
        "asking for it?",
        "The device must be idle at both ends of the measurement: wait for it before the clock is read the first time, "
        "and before it is read the second time. Waiting in between would measure another loop.",
        "In order: a step that does not count, synchronize, read the clock, all steps, synchronize, read the clock. "
        "The difference is in seconds and for all steps together.",
    ],
    lesson="torch.cuda.synchronize, torch.accelerator.synchronize: without them a GPU looks many times too fast.",
)
def mean_step_ms(step, device, clock, repeats: int) -> float:
    """Mean time of a step whose work a device does later, in milliseconds.

    step    : step() asks the device for the work of one step and returns at once. The first call
              takes much longer: make it before the measurement
    device  : device.synchronize() waits until the device has done all that it was asked for. It
              may still be busy with other work when the function is called
    clock   : clock() is the time in seconds, as time.perf_counter() is; use this one
    repeats : so many steps are measured, 1 or more, one after the other as a training loop makes
              them, without waiting in between
    returns : from the moment when the device is idle to the moment when it has done the last of
              these steps, divided by their number

    Asking takes 1 ms, the work 9 ms: the first of 10 steps is asked for at 1 ms, the device works
    from then on without a pause and is done at 91 ms. The result is 9.1.
    """
    step()
    device.synchronize()
    began = clock()
    for _ in range(repeats):
        step()
    device.synchronize()
    return (clock() - began) / repeats * 1e3


def _timed(step, device, clock, repeats, *, warmup=True, begin=True, inside=None, end=True, divide=True) -> float:
    """The answer with its decisions as arguments; `inside` is "before" or "after" each step."""
    if warmup:
        step()
    if begin:
        device.synchronize()
    began = clock()
    for _ in range(repeats):
        if inside == "before":
            device.synchronize()
        step()
        if inside == "after":
            device.synchronize()
    if end:
        device.synchronize()
    return (clock() - began) / (repeats if divide else 1) * 1e3


def _form(name: str, **how) -> None:
    mean_step_ms.form_of(name)(lambda step, device, clock, repeats: _timed(step, device, clock, repeats, **how))


@mean_step_ms.wrong
def never_waits(step, device, clock, repeats):
    """Nobody waits for the device: this is the time to *ask* for the steps. The slower the device, the more wonderful
    it looks, and a change that makes it ten times slower would not be seen."""
    return _timed(step, device, clock, repeats, begin=False, end=False)


_form("never_waits", begin=False, end=False, warmup=False)


@mean_step_ms.wrong
def waits_at_the_beginning_only(step, device, clock, repeats):
    """The clock is read when all steps have been asked for, not when they are done: it shows how long asking takes. The
    device still works. Wait before the second reading too, not after it."""
    return _timed(step, device, clock, repeats, end=False)


_form("waits_at_the_beginning_only", end=False, warmup=False)


@mean_step_ms.wrong
def waits_at_the_end_only(step, device, clock, repeats):
    """What the device was still busy with when the clock was read first is measured as well: the warm-up's step and all
    older work. Each measurement then pays for the one before it. Wait between the step that does not count and the
    first reading."""
    return _timed(step, device, clock, repeats, begin=False)


@mean_step_ms.form_of("waits_at_the_end_only")
def waits_before_the_warm_up_only(step, device, clock, repeats):
    device.synchronize()
    return _timed(step, device, clock, repeats, begin=False)


@mean_step_ms.wrong
def waits_in_every_repetition(step, device, clock, repeats):
    """The processor waits for each step before it asks for the next one. In a training loop it asks ahead while the
    device works; here the device stands idle in every step until it is asked, and the sum of both is measured."""
    return _timed(step, device, clock, repeats, inside="after")


_form("waits_in_every_repetition", inside="before", end=False)
_form("waits_in_every_repetition", inside="after", begin=False)
_form("waits_in_every_repetition", inside="after", warmup=False)
_form("waits_in_every_repetition", inside="after", warmup=False, begin=False)
_form("waits_in_every_repetition", inside="before", end=False, warmup=False)


@mean_step_ms.wrong
def counts_the_first_call(step, device, clock, repeats):
    """The first call is inside: memory is taken, algorithms are chosen, kernels are compiled. Shared out among the
    repetitions it makes every step slower, and more so the fewer there are. Make one step before the clock is read."""
    return _timed(step, device, clock, repeats, warmup=False)


_form("counts_the_first_call", warmup=False, begin=False)


@mean_step_ms.form_of("counts_the_first_call")
def counts_the_first_call_as_one_more(step, device, clock, repeats):
    return _timed(step, device, clock, repeats + 1, warmup=False)


@mean_step_ms.form_of("counts_the_first_call")
def times_the_first_call(step, device, clock, repeats):
    return _timed(step, device, clock, repeats + 1, warmup=False, divide=False) / repeats


@mean_step_ms.wrong
def gives_the_time_of_all(step, device, clock, repeats):
    """This is the time of all steps together: twice as many repetitions seem to make a step twice as slow. Divide by
    their number."""
    return _timed(step, device, clock, repeats, divide=False)


@mean_step_ms.form_of("gives_the_time_of_all")
def gives_the_time_of_all_in_seconds(step, device, clock, repeats):
    return _timed(step, device, clock, repeats, divide=False) / 1e3


@mean_step_ms.wrong
def gives_seconds(step, device, clock, repeats):
    """These are seconds, as the clock gives them. The name says milliseconds: whoever compares it with a table of
    milliseconds finds the device a thousand times too fast."""
    return _timed(step, device, clock, repeats) / 1e3


@mean_step_ms.form_of("gives_seconds")
def divides_by_a_thousand(step, device, clock, repeats):
    return _timed(step, device, clock, repeats) / 1e6


@mean_step_ms.wrong
def divides_by_one_step_too_many(step, device, clock, repeats):
    """The warm-up is divided by as well, though it was not measured: with one repetition the step seems half as long as
    it is. Divide by the steps between the two readings."""
    return _timed(step, device, clock, repeats) * repeats / (repeats + 1)


@mean_step_ms.wrong
def measures_one_step_less(step, device, clock, repeats):
    """One step less than `repeats` lies between the readings, the one before them being counted as the first: with one
    repetition nothing is measured, and 0.0 comes out. The step that does not count is one more."""
    return _timed(step, device, clock, repeats - 1, divide=False) / repeats


@mean_step_ms.wrong
def reads_another_clock(step, device, clock, repeats):
    """Another clock was read than the one that was handed in, perhaps time.perf_counter itself. A timer whose clock can
    be handed in can be tested without waiting; here the other clock knows nothing of the device."""
    _timed(step, device, lambda: 0.0, repeats)
    return 0.0
