"""Batches made ahead or one more worker: what shortens a loop whose step waits (chapter 11)?

    python -m benchmarks.prefetch

writes `benchmarks/records/prefetch.json`; `--quick` tries both loops once and stores nothing. Loading sleeps, so the
cores play no part. In the steady loop 2 workers are too slow for the step, batch after batch. In the rare one they are
fast enough on average, but one batch in 20 takes so long that the step has to wait for it unless enough batches were
made ahead. All choices take turns, round after round, in the steady state.

    loops[name], name "steady" or "rare"
        load_ms, step_ms, slow_every, slow_factor : what a batch and a step cost
        choices[choice], choice such as "2 workers, prefetch 4"
            num_workers, prefetch_factor, ahead : their product, batches held ready at most
            seconds : for `batches` batches, of each round; least, median : of these
            wait_share, longest_wait_ms : of the round with the least seconds
            predicted_s : by `simulate_pipeline`, with the hand-over measured
        prefetch_gain : least seconds with prefetch 1 over those with 8, both with 2 workers
        worker_gain   : least seconds with 2 workers over those with 3, both with prefetch 2
        wins          : rounds, of all, in which prefetch 8 was faster than 1; in which 3 workers were faster than 2
    setup : batches, rounds, cores
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from benchmarks.loops import Costs, feed_of, run_loop
from benchmarks.pieces import program
from course_utils.machine import usable_cpus
from course_utils.pipeline_model import simulate_pipeline

BATCHES, ROUNDS = 120, 5
LOOPS = {"steady": Costs(40, 10), "rare": Costs(5, 10, slow_every=20, slow_factor=40.0)}
CHOICES = ((2, 1), (2, 2), (2, 4), (2, 8), (3, 2))


def name_of(num_workers: int, prefetch: int) -> str:
    return f"{num_workers} workers, prefetch {prefetch}"


def timed(name: str, num_workers: int, prefetch: int, turn: int, batches: int) -> dict[str, float]:
    """One loop; `turn` tells the rounds apart."""
    costs = LOOPS[name]
    return run_loop(
        feed_of(costs), costs.step, num_workers, prefetch, seconds=0.0, period=costs.slow_every, turns=batches
    )


def joined(name: str, runs: dict[tuple[int, int], list[dict[str, float]]], batches: int) -> dict[str, Any]:
    """A loop's entry of the record."""
    costs = LOOPS[name]
    given = {field: value for field, value in asdict(costs).items() if not field.endswith("computes")}
    handover_ms = statistics.median(row["handover_ms"] for rows in runs.values() for row in rows)
    choices = {name_of(*how): _choice(costs, how, rows, batches, handover_ms) for how, rows in runs.items()}
    seconds = {how: [row["turn_ms"] for row in rows] for how, rows in runs.items()}
    return given | {
        "handover_ms": round(handover_ms, 3),
        "choices": choices,
        "prefetch_gain": round(min(seconds[2, 1]) / min(seconds[2, 8]), 3),
        "worker_gain": round(min(seconds[2, 2]) / min(seconds[3, 2]), 3),
        "wins": {
            "prefetch 8": sum(many < one for one, many in zip(seconds[2, 1], seconds[2, 8], strict=True)),
            "3 workers": sum(three < two for two, three in zip(seconds[2, 2], seconds[3, 2], strict=True)),
        },
    }


def _choice(
    costs: Costs, how: tuple[int, int], rows: list[dict[str, float]], batches: int, handover_ms: float
) -> dict[str, Any]:
    num_workers, prefetch = how
    best = min(rows, key=lambda row: row["turn_ms"])
    seconds = [round(row["turn_ms"] * batches / 1e3, 3) for row in rows]
    model = simulate_pipeline(
        **asdict(costs), num_workers=num_workers, prefetch_factor=prefetch, cores=usable_cpus(), handover_ms=handover_ms
    )
    return {
        "num_workers": num_workers,
        "prefetch_factor": prefetch,
        "ahead": num_workers * prefetch,
        "seconds": seconds,
        "least": min(seconds),
        "median": statistics.median(seconds),
        "wait_share": round(best["wait_ms"] / best["turn_ms"], 3),
        "longest_wait_ms": best["longest_wait_ms"],
        "predicted_s": round(model.turn_ms * batches / 1e3, 3),
    }


def report(cache: Any, *, rounds: int = ROUNDS, batches: int = BATCHES) -> dict[str, Any]:
    """Every choice in every round: a busy moment meets all of them."""
    found: dict[str, dict] = {name: {how: [] for how in CHOICES} for name in LOOPS}
    for turn in range(rounds):
        for name, runs in found.items():
            for how, rows in runs.items():
                rows.append(cache.get(timed, name, *how, turn, batches))
    loops = {name: joined(name, runs, batches) for name, runs in found.items()}
    return {"setup": {"batches": batches, "rounds": rounds, "cores": usable_cpus()}, "loops": loops}


def main(arguments: list[str] | None = None) -> None:
    program("prefetch", arguments, whole=report, quick=lambda cache: report(cache, rounds=1, batches=20))


if __name__ == "__main__":
    main()
