"""What `python -m benchmarks.NAME` does, in pieces: each may begin when the machine is quiet.

    python -m benchmarks.NAME --seconds 90

stops before the first piece that begins later than that, and goes on with it when it is started again; the record is
stored once every piece is there. `--quick` measures a little of everything, prints it and stores nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any

from benchmarks.trainings import Cache
from course_utils.machine import fit_threads


class OutOfTime(Exception):
    """The next piece would begin too late."""


class Pieces(Cache):
    """A `Cache` that begins no new piece after `seconds`.

    raises : OutOfTime, from `get`, for a piece that is not there by then
    """

    def __init__(self, name: str, *, seconds: float = math.inf) -> None:
        super().__init__(name)
        self.end = time.perf_counter() + seconds

    def get(self, make: Callable[..., Any], *args: Any, runs: int = 1) -> Any:
        """`make(*args)`, or what it gave before."""
        if f"{make.__name__}{args}" not in self.pieces and time.perf_counter() >= self.end:
            raise OutOfTime(f"{make.__name__}{args}")
        return super().get(make, *args, runs=runs)


class Uncached:
    """In the place of `Pieces`: makes every piece anew and keeps nothing."""

    def get(self, make: Callable[..., Any], *args: Any, runs: int = 1) -> Any:
        """`make(*args)`."""
        return make(*args)


def program(
    name: str,
    arguments: list[str] | None,
    *,
    whole: Callable[[Pieces], dict[str, Any]],
    quick: Callable[[Uncached], dict[str, Any]],
) -> None:
    """Store the record of `whole`, or print what `quick` gives, or say which piece is the next."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--quick", action="store_true", help="see that it works: the figures say nothing")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no piece later than that")
    chosen = parser.parse_args(arguments)
    fit_threads()
    if chosen.quick:
        print(json.dumps(quick(Uncached()), indent=1))
        return
    pieces = Pieces(name, seconds=chosen.seconds)
    try:
        print(pieces.store(whole(pieces)).name)
    except OutOfTime as piece:
        print(f"{len(pieces.pieces)} pieces are there; the next one is {piece}: start again to go on")
