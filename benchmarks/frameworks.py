"""The Trainer beside Lightning, Ignite and Accelerate, all doing the work of one inlined loop (chapter 05).

    pip install lightning pytorch-ignite accelerate
    python -m benchmarks.frameworks --seconds 80

writes `benchmarks/records/frameworks.json`; `--quick` makes a few steps and stores nothing. The three are needed for
this record alone; without one of them nothing is stored. What the loops do is in `framework_loops.py`. All loops run at
once, each in a thread, and only the one that has the turn makes steps, five of them: a busy moment meets all. What a
run's start costs is left out, and the garbage collector is off.

    loops[loop], loop of "inlined loop", "barest loop", "Trainer", "Lightning", "Ignite", "Accelerate"
        ms, median_ms  : of a step; least and median over all rounds
        over_inlined   : own ms over the inlined loop's; median_over_inlined: the same of medians
        by_round       : {"low", "median", "high"}, quartiles over rounds of own ms / the inlined loop's
        extra_us       : microseconds a step beyond the inlined loop's: (median of `by_round` - 1) of its median
        same_weights   : after its run all weights are those of the inlined loop, to the bit
    packages : {package: version}
    setup    : work, net, rounds, steps a round

The ratio to quote is the median of `by_round`: minima may come from different moments, of which one was quieter.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from benchmarks.costs import digits, milliseconds
from benchmarks.framework_loops import missing, packages
from benchmarks.pieces import program
from benchmarks.rows.frameworks import GROUP, timed
from benchmarks.rows.trainer_step import make_batches

PIECES, ROUNDS = 4, 100


def measured(turn: int, rounds: int) -> dict[str, Any]:
    """Some rounds: {"times"[loop]: seconds a step, "same"[loop]: whether the weights are the inlined loop's}."""
    times, weights = timed(make_batches(100), rounds=rounds)
    same = {loop: torch.equal(of, weights["inlined loop"]) for loop, of in weights.items()}
    return {"times": times, "same": same}


def quartiles(values: list[float]) -> dict[str, float]:
    """{"low", "median", "high"}: a quarter is below the first, a quarter above the last."""
    at = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {name: digits(value) for name, value in zip(("low", "median", "high"), at, strict=True)}


def report(cache: Any, *, pieces: int = PIECES, rounds: int = ROUNDS) -> dict[str, Any]:
    """`loops` and `packages` of the record."""
    found = [cache.get(measured, turn, rounds, runs=rounds) for turn in range(pieces)]
    seconds = {loop: [value for piece in found for value in piece["times"][loop]] for loop in found[0]["times"]}
    plain, loops = milliseconds(seconds["inlined loop"]), {}
    for loop, own in seconds.items():
        row = milliseconds(own)
        row["by_round"] = quartiles([a / b for a, b in zip(own, seconds["inlined loop"], strict=True)])
        row["over_inlined"] = digits(row["ms"] / plain["ms"])
        row["median_over_inlined"] = digits(row["median_ms"] / plain["median_ms"])
        row["extra_us"] = digits((row["by_round"]["median"] - 1) * plain["median_ms"] * 1e3)
        loops[loop] = row | {"same_weights": all(piece["same"][loop] for piece in found)}
    return {"loops": loops, "packages": packages()}


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "work": "zero gradients, forward, loss, backward, norm, clip to 1, read loss and norm, refuse what is not "
        "finite, step, a row of history; the barest loop: without norm, clip, reading, check and history",
        "net": "small_cnn, AdamW, batches of 64 in memory",
        "off": "bars, logs, checkpoints and summaries",
        "rounds": PIECES * ROUNDS,
        "steps_a_round": GROUP,
    }


def whole(cache: Any) -> dict[str, Any]:
    """The record's content.

    raises : SystemExit where a package is missing
    """
    if missing():
        raise SystemExit(f"this record needs all three: pip install {' '.join(missing().values())}")
    return {"setup": setup(), **report(cache)}


def main(arguments: list[str] | None = None) -> None:
    program(
        "frameworks",
        arguments,
        whole=whole,
        quick=lambda cache: report(cache, pieces=1, rounds=2),
    )


if __name__ == "__main__":
    main()
