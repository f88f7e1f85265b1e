"""Where a step's time goes: sections of a loop, timed without disturbing it.

It knows no model and no data: it reads a clock. Re-exported by `profiling`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from types import GeneratorType
from typing import Any

import torch

from course_utils.step_clock import clock_for
from course_utils.timer_summary import TimerSummary, row_of

_END = object()
_KEPT_NAMES = ("rest", "step")  # rows of the summary


class StepTimer:
    """Times named sections of a training step: wait, to_device, forward, backward, optimizer, or any other names.

    warmup : steps at the beginning that are kept apart: they allocate memory and choose algorithms
    keep   : the newest steps that are kept, so that a long run does not fill the memory
    device : where the step computes; None takes the GPU where there is one
    raises : ValueError for a warmup below 0 or a keep below 1

    A step begins with its first section and ends with `end_step()`; over `watch(loader)` it begins when a batch is
    asked for and ends when the next one is. Sections do not nest: a RuntimeError names both. One that is entered
    again in a step is added up (accumulation). A step that an exception leaves is not counted, nor is the one in
    which a watched loop is left: it may not have been finished.

    It draws nothing, holds no tensor and writes no file. On a CPU it reads the clock, twice a section, and waits for
    nothing. On CUDA it records events and waits for them when it is read: a section is then the time between two
    points of the GPU's own queue, so "wait" is time in which the GPU had nothing to do. On MPS it waits at each
    border. (The two GPU ways are written, not run.)
    """

    def __init__(self, *, warmup: int = 3, keep: int = 10_000, device: torch.device | str | None = None) -> None:
        if warmup < 0 or keep < 1:
            raise ValueError(f"StepTimer needs warmup >= 0 and keep >= 1, got warmup={warmup}, keep={keep}")
        self.warmup, self._clock = warmup, clock_for(device)
        self._steady, self._warmups, self._startups = (deque(maxlen=keep) for _ in range(3))
        self._sections: dict[str, _Section] = {}
        self._open: str | None = None
        self._iteration, self._num_steps = 0, 0
        self._forget()

    def section(self, name: str) -> _Section:
        """A context manager: `with timer.section("forward"): ...`.

        raises : ValueError for "rest" and "step", which the summary uses; RuntimeError on entering inside another
        """
        found = self._sections.get(name)
        if found is None:
            if name in _KEPT_NAMES:
                raise ValueError(f"a section cannot be called {name!r}: the summary has a row of that name")
            found = self._sections[name] = _Section(self, name)
        return found

    def end_step(self) -> None:
        """End the step that the last sections belong to.

        raises : RuntimeError inside a section, or where no section was entered since the last step's end
        """
        if self._open is not None:
            raise RuntimeError(f"end_step was called inside the section {self._open!r}: leave it first")
        if self._begin is None and not self._broken:
            raise RuntimeError("end_step was called where no step is open: enter a section first")
        if not self._broken:
            self._store((self._begin, self._clock.mark(), tuple(self._spans)))
        self._forget()

    def watch(self, loader: Iterable) -> WatchedLoader:
        """The same loader, with the time until each batch is there as the section "wait". For a `Trainer` too."""
        return WatchedLoader(self, loader)

    @property
    def step_ms(self) -> list[float]:
        """The whole of each counted step, in order."""
        return [self._clock.ms(begin, end) for begin, end, _ in self._steady]

    def summary(self) -> TimerSummary:
        """Median, 90th percentile and share of each section, over the counted steps.

        raises : ValueError where no step was counted
        """
        totals = self.step_ms
        if not totals:
            raise ValueError(
                f"no step was counted: {self._num_steps} ended, {self.warmup} are kept apart as warm-up, and so is the "
                "first of each iteration: make more steps, or StepTimer(warmup=0)"
            )
        steps = [self._sections_ms(spans) for _, _, spans in self._steady]
        names = [name for name in self._sections if any(name in step for step in steps)]
        rows = [row_of(name, [step[name] for step in steps if name in step], sum(totals)) for name in names]
        rest = [max(0.0, total - sum(step.values())) for total, step in zip(totals, steps, strict=True)]
        startups = tuple(self._clock.ms(*spans[0][1:]) for _, _, spans in self._startups)
        warmups = tuple(self._clock.ms(begin, end) for begin, end, _ in self._warmups)
        rows.append(row_of("rest", rest, sum(totals)))
        return TimerSummary(tuple(rows), row_of("step", totals, sum(totals)), startups, warmups)

    def _sections_ms(self, spans: Iterable[tuple[str, Any, Any]]) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, begin, end in spans:
            found[name] = found.get(name, 0.0) + self._clock.ms(begin, end)
        return found

    def _store(self, step: tuple) -> None:
        self._num_steps += 1
        if self._first:
            self._startups.append(step)
        else:
            (self._warmups if self._num_steps <= self.warmup else self._steady).append(step)

    def _forget(self) -> None:
        """No step is open."""
        self._begin, self._spans, self._broken, self._first = None, [], False, False

    def _waits(self, batches: Iterator[Any]) -> Iterator[Any]:
        self._iteration, self._open = self._iteration + 1, None
        iteration, first, waiting = self._iteration, True, self.section("wait")
        self._forget()  # what an interrupted loop left open
        try:
            while True:
                if self._begin is not None or self._broken:
                    self.end_step()
                self._first, first = first, False
                with waiting:
                    batch = next(batches, _END)
                if batch is _END:
                    return
                yield batch
        finally:
            if iteration == self._iteration:  # else another loop has begun
                self._forget()
            if isinstance(batches, GeneratorType):
                batches.close()  # its workers end with the loop


class _Section:
    """Entered and left once a step or more often; made once."""

    __slots__ = ("_timer", "_name", "_begin")

    def __init__(self, timer: StepTimer, name: str) -> None:
        self._timer, self._name, self._begin = timer, name, None

    def __enter__(self) -> None:
        timer = self._timer
        if timer._open is not None:
            raise RuntimeError(f"section {self._name!r} was entered inside {timer._open!r}: sections do not nest")
        timer._open, self._begin = self._name, timer._clock.mark()
        if timer._begin is None:
            timer._begin = self._begin

    def __exit__(self, error: type | None, *_: Any) -> None:
        timer = self._timer
        timer._spans.append((self._name, self._begin, timer._clock.mark()))
        timer._open = None
        if error is not None:
            timer._broken = True


class WatchedLoader:
    """A loader whose batches are timed; everything else is the loader's own: length, position, key, state."""

    def __init__(self, timer: StepTimer, watched: Iterable) -> None:
        self._timer, self.watched = timer, watched

    def __iter__(self) -> Iterator[Any]:
        return self._timer._waits(iter(self.watched))

    def __len__(self) -> int:
        return len(self.watched)

    def __getattr__(self, name: str) -> Any:
        if name == "watched":  # asked for while a copy of this is made
            raise AttributeError(name)
        return getattr(self.watched, name)
