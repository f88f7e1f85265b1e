"""Loaders whose best number of workers is known: is `tune_workers` right, and what does it save (chapter 04)?

    python -m benchmarks.synthetic_loaders

writes `benchmarks/records/tuner.json`; `--quick` tries the first case and stores nothing. A case is a dataset that
sleeps or computes for a known time a batch, and a step that does so. What a turn of the loop takes is then known:

    T(0) = load + step,   T(w) = max(step, load / w, computing / cores)

where computing is what load and step compute in a turn and do not sleep; hand-over is not in it. Every case is measured
with each number of workers, in rounds that take turns (the full grid), and tuned a few times.

    cases[name]
        load_ms, step_ms, load_computes, step_computes
        predicted[workers], measured[workers] : ms a turn; measured is the least of the rounds. No prediction, and null
            in its place, where the hand-over is the work
        best, tuned : the number with the least measured time; what each tuning chose
        over_best   : measured time of what was chosen over the least, for each tuning; the bar is 1.1
        over_predicted : the same by prediction
        verdicts    : of each tuning
        tuner_seconds, grid_seconds : of each tuning; of one round of the grid, each number measured once
    summary : worst_over_best; within_bar, tunings; tuner_seconds, grid_seconds: one tuning, one round, of each case
    setup : budget, numbers, seconds a measurement, cores, the bar
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks.pieces import program
from course_utils import tuning
from course_utils.loaders import ResumableLoader, tune_workers
from course_utils.machine import usable_cpus
from course_utils.pipeline_model import steady_turn_ms

BATCH_SIZE, MAX_WORKERS, BUDGET_S, ROUNDS, SLICE_S, TUNINGS = 8, 4, 20.0, 4, 0.5, 3
BAR = 1.1


@dataclass(frozen=True)
class Costs:
    """What one batch costs and what one step costs, in ms, slept or computed."""

    load_ms: float
    step_ms: float
    load_computes: bool = False
    step_computes: bool = False

    def step(self, batch: Any) -> None:
        """A step that costs what it should."""
        spend(self.step_ms / 1e3, self.step_computes)


@dataclass(frozen=True)
class Case(Costs):
    """A loop for the tuner.

    heavy_mib : of a batch, whose making costs nothing and whose hand-over does
    slow_every : one example in so many takes `slow_every` times its share and the others nothing: the same mean
    """

    heavy_mib: int = 0
    slow_every: int = 1

    def turn_ms(self, num_workers: int, cores: int) -> float | None:
        """What one turn of the loop takes; None where nobody knows."""
        if self.heavy_mib:
            return None
        computing = {"load_computes": self.load_computes, "step_computes": self.step_computes}
        return steady_turn_ms(self.load_ms, self.step_ms, num_workers=num_workers, cores=cores, **computing)


CASES = {
    "sleeps 10, step sleeps 10": Case(10, 10),
    "sleeps 30, step sleeps 10": Case(30, 10),
    "sleeps 40, step sleeps 20": Case(40, 20),
    "sleeps 0.2, step sleeps 20": Case(0.2, 20),
    "computes 10, step sleeps 10": Case(10, 10, load_computes=True),
    "computes 1, step computes 20": Case(1, 20, load_computes=True, step_computes=True),
    "computes 20, step computes 10": Case(20, 10, load_computes=True, step_computes=True),
    "38 MiB a batch, step sleeps 5": Case(0, 5, heavy_mib=38),
    "one example in 40 sleeps 50, step sleeps 10": Case(10, 10, slow_every=40),
}


def spend(seconds: float, computes: bool) -> None:
    """Sleep, or compute for that long by this thread's own clock: a busy core makes it longer."""
    if not computes:
        time.sleep(seconds)
        return
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Synthetic(Dataset):
    """Examples that cost what their case says."""

    def __init__(self, case: Case) -> None:
        self.case, self.seconds = case, case.load_ms / 1e3 / BATCH_SIZE * case.slow_every
        numbers = case.heavy_mib * 2**20 // 4 // BATCH_SIZE
        self.example = torch.ones(numbers) if numbers else torch.ones(1)

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.case.load_ms and index % self.case.slow_every == 0:
            spend(self.seconds, self.case.load_computes)
        return self.example


def loader_of(case: Case) -> ResumableLoader:
    return ResumableLoader(Synthetic(case), batch_size=BATCH_SIZE)


def measured_ms(case: Case, num_workers: int, seconds: float) -> float:
    """A turn in the steady state, as the tuner measures it, with as much time as it needs."""
    feed, options = loader_of(case).source.endless_feed, {"pin_memory": False}
    return tuning._measure(feed, case.step, num_workers, options, seconds, time.perf_counter() + 1e6).turn_ms


def grid_round(name: str, turn: int, max_workers: int, seconds: float) -> dict[str, Any]:
    """Every number once, for `seconds` each; another one is the first in each round."""
    case, numbers, began = CASES[name], list(range(max_workers + 1)), time.perf_counter()
    turn %= len(numbers)
    found = {str(number): measured_ms(case, number, seconds) for number in numbers[turn:] + numbers[:turn]}
    return {"turns": found, "seconds": time.perf_counter() - began}


def grid(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The least of the rounds for each number, and the seconds of one round."""
    numbers = sorted(rounds[0]["turns"], key=int)
    least = {number: round(min(one["turns"][number] for one in rounds), 3) for number in numbers}
    return {"measured": least, "grid_seconds": round(statistics.fmean(one["seconds"] for one in rounds), 2)}


def tuned(name: str, number: int) -> dict[str, Any]:
    """One tuning; `number` tells repeated ones apart."""
    case = CASES[name]
    found = tune_workers(loader_of(case), case.step, seconds=BUDGET_S, max_workers=MAX_WORKERS)
    turns = {str(row.num_workers): round(row.turn_ms, 3) for row in found.times}
    chosen = {"num_workers": found.num_workers, "verdict": found.choice.verdict}
    return chosen | {"seconds": round(found.seconds, 2), "turns": turns, "floor_ms": round(found.floor_ms, 3)}


def joined(name: str, grid_of: dict[str, Any], tunings: list[dict[str, Any]], cores: int) -> dict[str, Any]:
    """A case's entry of the record."""
    case, measured = CASES[name], grid_of["measured"]
    predicted = {number: case.turn_ms(int(number), cores) for number in measured}
    known = None not in predicted.values()
    chosen, least = [str(found["num_workers"]) for found in tunings], min(measured.values())
    return {
        "load_ms": case.load_ms,
        "step_ms": case.step_ms,
        "load_computes": case.load_computes,
        "step_computes": case.step_computes,
        "predicted": predicted,
        "measured": measured,
        "best": int(min(measured, key=measured.__getitem__)),
        "tuned": [int(number) for number in chosen],
        "over_best": [round(measured[number] / least, 3) for number in chosen],
        "over_predicted": [round(predicted[n] / min(predicted.values()), 3) for n in chosen] if known else None,
        "verdicts": [found["verdict"] for found in tunings],
        "tuner_seconds": [found["seconds"] for found in tunings],
        "grid_seconds": grid_of["grid_seconds"],
    }


def summary(cases: dict[str, Any]) -> dict[str, Any]:
    """Over all cases: the worst choice, and the tuner's seconds beside the grid's."""
    ratios = [ratio for case in cases.values() for ratio in case["over_best"]]
    seconds = sum(statistics.fmean(case["tuner_seconds"]) for case in cases.values())
    grids = sum(case["grid_seconds"] for case in cases.values())
    worst = {"worst_over_best": max(ratios), "within_bar": sum(ratio <= BAR for ratio in ratios)}
    return worst | {"tunings": len(ratios), "tuner_seconds": round(seconds, 1), "grid_seconds": round(grids, 1)}


def measure(cache: Any, name: str, rounds: int, tunings: int, cores: int) -> dict[str, Any]:
    """A case: rounds of the grid and tunings take turns, so that a busy moment meets both."""
    grids, found = [], []
    for turn in range(max(rounds, tunings)):
        if turn < rounds:
            grids.append(cache.get(grid_round, name, turn, MAX_WORKERS, SLICE_S, runs=MAX_WORKERS + 1))
        if turn < tunings:
            found.append(cache.get(tuned, name, turn))
    case = joined(name, grid(grids), found, cores)
    print(name, {key: case[key] for key in ("measured", "tuned", "over_best", "verdicts")}, flush=True)
    return case


def report(
    cache: Any, *, names: tuple[str, ...] = tuple(CASES), rounds: int = ROUNDS, tunings: int = TUNINGS
) -> dict[str, Any]:
    """Everything in the record."""
    cores = usable_cpus()
    cases = {name: measure(cache, name, rounds, tunings, cores) for name in names}
    setup = {"budget_s": BUDGET_S, "max_workers": MAX_WORKERS, "batch_size": BATCH_SIZE, "rounds": rounds}
    setup |= {"seconds_a_measurement": SLICE_S, "cores": cores, "bar": BAR}
    return {"setup": setup, "summary": summary(cases), "cases": cases}


def main(arguments: list[str] | None = None) -> None:
    quick = tuple(CASES)[:1]
    program("tuner", arguments, whole=report, quick=lambda cache: report(cache, names=quick, rounds=1, tunings=1))


if __name__ == "__main__":
    main()
