"""The model of a loading pipeline against the real loop: how far is `simulate_pipeline` from what is measured?

    python -m benchmarks.timeline

writes `benchmarks/records/timeline.json`; `--quick` tries a few loops and stores nothing. Batches and steps sleep or
compute for a known time (the photos: for the time they were measured to take without workers), and every loop runs in
its steady state with 0 to 4 workers, or with several numbers of batches made ahead. The model is given those times,
the cores, and the hand-over as it was measured: the median over the case's loops of the time to get a batch that is
there already. It shares the cores in equal parts and at once, which a real system does not quite do: where load and
step both compute, measured turns are up to a third longer (`summary["off"]`).

    cases[name]
        load_ms, step_ms, load_computes, step_computes, slow_every, slow_factor : what the model is given
        handover_ms : that too, measured
        loops       : a list, one entry for each loop: `num_workers`, `prefetch_factor`; `measured_ms` and
                      `predicted_ms` of a turn; `measured_wait`, `predicted_wait`, shares of a turn;
                      `without_handover_ms`, the prediction where nothing is known of hand-over; `over` = measured_ms
                      / predicted_ms
        measured_best, predicted_best : the fewest workers within 5 % of the least turn (null for the prefetch cases)
    summary : loops, within_10_percent, least_over, most_over; within_10_percent_without_handover; `off`, the loops that
              the model is more than 10 % from: [case, num_workers, prefetch_factor, over]
    setup : rounds (the least turn of them counts), seconds a loop, cores
"""

from __future__ import annotations

import functools
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.loops import Costs, feed_of, run_loop
from benchmarks.pieces import program
from course_utils.loaders import ResumableLoader
from course_utils.machine import usable_cpus
from course_utils.pipeline_model import simulate_pipeline

SECONDS, ROUNDS, WORKERS, NEAR = 0.4, 3, (0, 1, 2, 3, 4), 0.10
SLOW = {"slow_every": 20, "slow_factor": 40.0}
PHOTOS = "photos"
CASES = {
    "sleeps 10, step sleeps 10": Costs(10, 10),
    "sleeps 30, step sleeps 10": Costs(30, 10),
    "computes 10, step sleeps 10": Costs(10, 10, load_computes=True),
    "computes 10, step computes 10": Costs(10, 10, load_computes=True, step_computes=True),
    "computes 20, step computes 10": Costs(20, 10, load_computes=True, step_computes=True),
    "computes 1, step computes 20": Costs(1, 20, load_computes=True, step_computes=True),
    "1 batch in 20 sleeps 200, the others 5, step sleeps 10": Costs(5, 10, **SLOW),
    PHOTOS: Costs(0, 0, load_computes=True, step_computes=True),  # its times are measured
}
RARE = "1 batch in 20 sleeps 200, the others 5, step sleeps 10"


def runs_of(name: str) -> list[tuple[int, int]]:
    """(workers, prefetch factor) of every loop of a case."""
    if name == RARE:
        return [(number, prefetch) for number in (1, 2) for prefetch in (1, 2, 4, 8)]
    return [(number, 2) for number in WORKERS]


@functools.cache
def photo_loop() -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Photos of the catalogue, decoded anew each time, 16 of 64 x 64 a batch, and a network that trains on them."""
    from benchmarks.rows.photos import course_photos
    from course_utils.catalogue import make_catalogue

    root = make_catalogue(Path(tempfile.gettempdir()) / "course-benchmarks-catalogue-50", num_products=50, seed=0)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch[0]), batch[1] % 10).backward()
        optimizer.step()

    return ResumableLoader(course_photos(root), batch_size=16).source.endless_feed, step


def measured(name: str, num_workers: int, prefetch: int, turn: int, seconds: float) -> dict[str, float]:
    """One loop; `turn` tells the rounds apart."""
    costs = CASES[name]
    make_feed, step = photo_loop() if name == PHOTOS else (feed_of(costs), costs.step)
    return run_loop(make_feed, step, num_workers, prefetch, seconds=seconds, period=costs.slow_every)


def predicted(costs: Costs, num_workers: int, prefetch: int, handover_ms: float, cores: int) -> dict[str, float]:
    """A turn and the share of waiting by the model, with hand-over and without."""
    how = {"num_workers": num_workers, "prefetch_factor": prefetch, "cores": cores}
    with_it = simulate_pipeline(**asdict(costs), **how, handover_ms=handover_ms)
    without = simulate_pipeline(**asdict(costs), **how)
    return {
        "predicted_ms": round(with_it.turn_ms, 3),
        "predicted_wait": round(with_it.wait_share, 3),
        "without_handover_ms": round(without.turn_ms, 3),
    }


def fewest(loops: list[dict[str, Any]], key: str) -> int | None:
    """The fewest workers within 5 % of the least turn."""
    if len({loop["prefetch_factor"] for loop in loops}) > 1:
        return None
    least = min(loop[key] for loop in loops)
    return next(loop["num_workers"] for loop in loops if loop[key] <= least * 1.05)


def joined(costs: Costs, runs: dict[tuple[int, int], list[dict[str, float]]], cores: int) -> dict[str, Any]:
    """A case's entry of the record."""
    handover_ms = round(statistics.median(one["handover_ms"] for (n, _), rows in runs.items() if n for one in rows), 3)
    loops = []
    for (num_workers, prefetch), rows in runs.items():
        least = min(rows, key=lambda row: row["turn_ms"])
        loop = {"num_workers": num_workers, "prefetch_factor": prefetch, "measured_ms": least["turn_ms"]}
        loop |= {"measured_wait": round(least["wait_ms"] / least["turn_ms"], 3)}
        loop |= predicted(costs, num_workers, prefetch, handover_ms, cores)
        loops.append(loop | {"over": round(loop["measured_ms"] / loop["predicted_ms"], 3)})
    best = {f"{who}_best": fewest(loops, f"{who}_ms") for who in ("measured", "predicted")}
    return asdict(costs) | {"handover_ms": handover_ms, "loops": loops} | best


def given(costs: Costs, runs: dict[tuple[int, int], list[dict[str, float]]]) -> Costs:
    """The photos' costs, from their loop without workers; others are as they are."""
    if costs.step_ms:
        return costs
    least = min(runs[0, 2], key=lambda row: row["turn_ms"])
    step_ms = round(least["turn_ms"] - least["wait_ms"], 3)
    return replace(costs, load_ms=least["wait_ms"], step_ms=step_ms)


def summary(cases: dict[str, Any]) -> dict[str, Any]:
    """How many loops the model is near to, and those that it is not."""
    loops = [(name, loop) for name, case in cases.items() for loop in case["loops"]]
    over, plain = (
        [loop["measured_ms"] / loop[key] for _, loop in loops] for key in ("predicted_ms", "without_handover_ms")
    )
    off = [
        [name, loop["num_workers"], loop["prefetch_factor"], loop["over"]]
        for (name, loop), ratio in zip(loops, over, strict=True)
        if not near(ratio)
    ]
    return {
        "loops": len(loops),
        "within_10_percent": sum(map(near, over)),
        "within_10_percent_without_handover": sum(map(near, plain)),
        "least_over": round(min(over), 3),
        "most_over": round(max(over), 3),
        "off": off,
    }


def near(ratio: float) -> bool:
    """Measured over predicted, no more than 10 % apart."""
    return 1 - NEAR <= ratio <= 1 + NEAR


def report(
    cache: Any, *, names: tuple[str, ...] = tuple(CASES), rounds: int = ROUNDS, seconds: float = SECONDS
) -> dict[str, Any]:
    """Every loop in every round: a busy moment meets all of them."""
    found: dict[str, dict] = {name: {how: [] for how in runs_of(name)} for name in names}
    for turn in range(rounds):
        for name in names:
            for how, rows in found[name].items():
                rows.append(cache.get(measured, name, *how, turn, seconds))
    cores = usable_cpus()
    cases = {name: joined(given(CASES[name], runs), runs, cores) for name, runs in found.items()}
    setup = {"rounds": rounds, "seconds_a_loop": seconds, "cores": cores, "near": NEAR}
    return {"setup": setup, "summary": summary(cases), "cases": cases}


def main(arguments: list[str] | None = None) -> None:
    quick = tuple(CASES)[:1] + (RARE,)
    program("timeline", arguments, whole=report, quick=lambda cache: report(cache, names=quick, rounds=1, seconds=0.05))


if __name__ == "__main__":
    main()
