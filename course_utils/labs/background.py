"""One run in the background of a kernel: start, stop, go on, from the start. It disturbs no cell.

A second thread that draws from the global generators, or merely builds an `nn.Linear`, changes the bits of a cell
that runs meanwhile. So the factory, which builds models and loaders, is called in the caller's thread with the
generators put back after it, and the thread only asks the iterator for the next point. It knows no widget.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from course_utils.randomness import isolated_rng


class Point(NamedTuple):
    """What a live run reports after one step.

    step, total : steps made, steps in the whole run
    values      : name -> number, one for each line that is drawn
    notes       : name -> number, told in words only
    """

    step: int
    total: int
    values: Mapping[str, float]
    notes: Mapping[str, float] = MappingProxyType({})


_lock = threading.RLock()
_current: BackgroundRun | None = None  # the one that may be alive in this kernel


class BackgroundRun:
    """Steps of one iterator, in a thread of their own or in the caller's.

    factory          : makes a fresh iterator of `Point`; called in the thread that calls `start` or `advance`
    on_change        : called without arguments, in whichever thread, while points arrive and at a change of state
    draws_per_second : the most often it is called while points arrive

    `state` is "ready", "running", "stopped", "finished" or "failed"; then `error` says why. `points` holds all points.
    raises : ValueError for a generator function: its body, model and all, would first run in the thread
    """

    def __init__(
        self,
        factory: Callable[[], Iterator[Point]],
        *,
        on_change: Callable[[], None] = lambda: None,
        draws_per_second: float = 4,
    ) -> None:
        if inspect.isgeneratorfunction(factory):
            raise ValueError(
                f"a live run needs a function that builds and then returns an iterator, got the generator function "
                f"{factory!r}, which would build in the background thread: move the loop with `yield` into an inner "
                "function and return its call"
            )
        self._factory, self._on_change, self._gap = factory, on_change, 1 / draws_per_second
        self._halt = threading.Event()
        self._thread: threading.Thread | None = None
        self._clear()

    def _clear(self) -> None:
        self._iterator: Iterator[Point] | None = None
        self.state, self.points, self.error = "ready", [], None

    @property
    def alive(self) -> bool:
        """Whether the thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin, or go on where it stopped, in a thread; the run that is alive in this kernel is stopped first."""
        global _current
        with _lock:
            if self.alive and not self._halt.is_set():
                return
            _end_current()
            if self.state in ("finished", "failed") or not self._build():
                return
            _current = self
            self._halt.clear()
            self._thread = threading.Thread(target=self._work, name="live run", daemon=True)
            self._enter("running")
            self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """End after the step in hand; the run can go on later. Without `wait` it returns at once."""
        self._halt.set()
        if wait and self.alive:
            self._thread.join()

    def reset(self) -> None:
        """Stop and forget: the next start calls the factory again."""
        self.stop()
        getattr(self._iterator, "close", lambda: None)()
        self._clear()
        self._on_change()

    def advance(self, num_steps: int | None = None) -> None:
        """Make `num_steps` more, or all, in the calling thread, for cells and tests; raises what a step raised."""
        with _lock:
            _end_current()
            self._halt.clear()
            if self._build():
                self._enter("running")
                self._run(num_steps)
            if self.error is not None:
                raise self.error

    def _build(self) -> bool:
        """Make the iterator if there is none; False when the factory raised."""
        try:
            if self._iterator is None:
                with isolated_rng():
                    self._iterator = iter(self._factory())
        except Exception as error:
            self._fail(error)
        return self.error is None

    def _work(self) -> None:
        self._run(None)

    def _run(self, limit: int | None) -> None:
        """Ask for points until stop, the end, an error, or `limit` more. Nothing else advances the iterator."""
        end = "stopped"
        try:
            last_draw, goal = time.monotonic(), None if limit is None else len(self.points) + limit
            while not self._halt.is_set() and len(self.points) != goal:
                point = next(self._iterator, None)
                if point is None:
                    end = "finished"
                    break
                self.points.append(point)
                if time.monotonic() - last_draw >= self._gap:
                    self._on_change()
                    last_draw = time.monotonic()
        except BaseException as error:  # left alone, it would appear in whatever cell runs next
            self._fail(error)
        else:
            self._enter(end)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self._enter("failed")

    def _enter(self, state: str) -> None:
        self.state = state
        self._on_change()


def _end_current() -> None:
    """Stop the run that is alive in this kernel, whoever owns it, and wait for its step in hand."""
    global _current
    if _current is not None:
        _current.stop()
    _current = None
