"""Loops whose bottleneck is known, because they are built so: does `diagnose` name it, and how much does it say?

    python -m benchmarks.diagnosis

writes `benchmarks/records/diagnosis.json`; `--quick` tries every loop for half a second and stores nothing. Examples
and steps sleep or compute for a known time, and each loop loses time for one reason only. What is known is arithmetic
on these times: a sleep lasts 0.1 to 0.4 ms longer than it was asked for, and a batch of 8 examples has eight of them.

    cases[name]
        loop         : in words
        num_workers, num_batches : of the loader; batches of one iteration, which share the start-up
        known        : the verdict that is right
        known_ms     : what the cause takes of each batch by arithmetic; null where only measuring tells (hand-over)
        verdicts     : of each repeat
        ms, share    : what each repeat says the cause takes of a batch, and its share of the batch's time
        ms_over_known : the median of `ms` over `known_ms`, or null
        parts_ms     : "step", "data", "hand-over", "start-up": medians over the repeats
        says_cores   : repeats whose first advice is that step and workers share the cores
        advice       : of the first repeat
    summary : right, diagnoses; the largest and least `ms_over_known`
    setup : seconds a diagnosis, repeats, cores
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset

from benchmarks.pieces import program
from benchmarks.synthetic_loaders import BATCH_SIZE, Case, Synthetic
from course_utils.loaders import ResumableLoader
from course_utils.machine import usable_cpus
from course_utils.profiling import diagnose
from course_utils.worker_pool import no_advice

SECONDS, REPEATS = 2.0, 3
OPENING_S, FEW_BATCHES, NUM_TENSORS = 0.4, 16, 100


@dataclass(frozen=True)
class Loop:
    """A loader and a step; `known` is what holds them up, by `known_ms` a batch."""

    words: str
    case: Case
    num_workers: int
    known: str
    known_ms: float | None
    opens: bool = False
    num_tensors: int = 0


class Tensors(Dataset):
    """Batches of many small tensors, which cost nothing to make; one example is one batch."""

    def __init__(self, num_tensors: int) -> None:
        self.num_tensors = num_tensors

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        return [torch.full((8,), float(index)) for _ in range(self.num_tensors)]


class Opening:
    """A loader without workers that opens something at the start of every iteration."""

    def __init__(self, case: Case) -> None:
        self.dataset = Synthetic(case)

    def __len__(self) -> int:
        return FEW_BATCHES

    def __iter__(self) -> Iterator[torch.Tensor]:
        time.sleep(OPENING_S)
        for at in range(FEW_BATCHES):
            yield torch.stack([self.dataset[at * BATCH_SIZE + number] for number in range(BATCH_SIZE)])


def open_something(worker_id: int) -> None:
    """What a worker does before its first batch."""
    time.sleep(OPENING_S)


def first(examples: list[Any]) -> Any:
    """The collate function where one example is one batch."""
    return examples[0]


def loops(cores: int) -> dict[str, Loop]:
    """The loops. Those that compute in workers fit the cores: else the cause would be another one."""
    all_cores = 15 * cores - 10  # ms of loading that make 15 ms a turn of all cores, with a step of 10
    opening_ms = OPENING_S * 1e3 / FEW_BATCHES
    return {
        "data, no workers": Loop("load sleeps 20 ms, step sleeps 10", Case(20, 10), 0, "data-bound", 20),
        "data, no workers, computing": Loop(
            "load computes 20 ms, step computes 20", Case(20, 20, True, True), 0, "data-bound", 20
        ),
        "data, 2 workers": Loop("load sleeps 60 ms, step sleeps 10", Case(60, 10), 2, "data-bound", 20),
        "shared cores": Loop(
            f"load computes {all_cores} ms, step computes 10, twice as many workers as cores",
            Case(all_cores, 10, True, True), 2 * cores, "data-bound", 5,
        ),
        "hand-over of bytes": Loop(
            "38 MiB a batch, step sleeps 5 ms", Case(0, 5, heavy_mib=38), 2, "hand-over-bound", None
        ),
        "hand-over of many tensors": Loop(
            f"{NUM_TENSORS} tensors of 32 bytes a batch, step sleeps 5 ms", Case(0, 5), 2, "hand-over-bound", None,
            num_tensors=NUM_TENSORS,
        ),
        "start-up, 2 workers": Loop(
            f"each worker opens something for {OPENING_S} s, {FEW_BATCHES} batches; load sleeps 10 ms, step 10",
            Case(10, 10), 2, "start-up-bound", opening_ms, opens=True,
        ),
        "start-up, no workers": Loop(
            f"an iteration opens something for {OPENING_S} s, {FEW_BATCHES} batches; load sleeps 0.4 ms, step 20",
            Case(0.4, 20), 0, "start-up-bound", opening_ms, opens=True,
        ),
        "step, no workers": Loop(
            "load computes 1 ms, step computes 60", Case(1, 60, True, True), 0, "compute-bound", 60
        ),
        "step, 2 workers": Loop("load sleeps 30 ms, step sleeps 30", Case(30, 30), 2, "compute-bound", 30),
    }  # fmt: skip


def loader_of(loop: Loop) -> Iterable:
    """The loop's loader; made anew, since a diagnosis is of a loader that nobody used before."""
    if loop.num_tensors:
        tensors = Tensors(loop.num_tensors)
        return ResumableLoader(tensors, batch_size=1, collate_fn=first, num_workers=loop.num_workers)
    if loop.opens and not loop.num_workers:
        return Opening(loop.case)
    how = {"worker_init_fn": open_something} if loop.opens else {}
    dataset = Few(loop.case) if loop.opens else Synthetic(loop.case)
    return ResumableLoader(dataset, batch_size=BATCH_SIZE, num_workers=loop.num_workers, **how)


class Few(Synthetic):
    """As many examples as make a short iteration."""

    def __len__(self) -> int:
        return FEW_BATCHES * BATCH_SIZE


def diagnosed(name: str, repeat: int, seconds: float) -> dict[str, Any]:
    """One diagnosis; `repeat` tells repeated ones apart."""
    loop = loops(usable_cpus())[name]
    with no_advice():
        loader = loader_of(loop)
    found = diagnose(loader, loop.case.step, seconds=seconds)
    return {
        "verdict": found.verdict,
        "ms": round(found.ms, 3),
        "share": round(found.share, 3),
        "parts_ms": {part: round(ms, 3) for part, ms in found.parts_ms.items()},
        "advice": list(found.advice),
        "num_batches": found.times.num_batches,
    }


def joined(loop: Loop, repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """A case's entry of the record."""
    ms, parts = [one["ms"] for one in repeats], repeats[0]["parts_ms"]
    return {
        "loop": loop.words,
        "num_workers": loop.num_workers,
        "num_batches": repeats[0]["num_batches"],
        "known": loop.known,
        "known_ms": loop.known_ms,
        "verdicts": [one["verdict"] for one in repeats],
        "ms": ms,
        "share": [one["share"] for one in repeats],
        "ms_over_known": round(statistics.median(ms) / loop.known_ms, 3) if loop.known_ms else None,
        "parts_ms": {part: statistics.median(one["parts_ms"][part] for one in repeats) for part in parts},
        "says_cores": sum("share its cores" in one["advice"][0] for one in repeats),
        "advice": repeats[0]["advice"],
    }


def summary(cases: dict[str, Any]) -> dict[str, Any]:
    """How many diagnoses are right, and how far what they say is from what is known."""
    right = [verdict == case["known"] for case in cases.values() for verdict in case["verdicts"]]
    ratios = [case["ms_over_known"] for case in cases.values() if case["ms_over_known"] is not None]
    return {
        "right": sum(right),
        "diagnoses": len(right),
        "least_over_known": min(ratios),
        "most_over_known": max(ratios),
    }


def report(cache: Any, *, repeats: int = REPEATS, seconds: float = SECONDS) -> dict[str, Any]:
    """Every loop in every round: a busy moment meets all of them."""
    known, found = loops(usable_cpus()), {}
    for repeat in range(repeats):
        for name in known:
            found.setdefault(name, []).append(cache.get(diagnosed, name, repeat, seconds))
    cases = {name: joined(loop, found[name]) for name, loop in known.items()}
    setup = {"seconds_a_diagnosis": seconds, "repeats": repeats, "cores": usable_cpus(), "batch_size": BATCH_SIZE}
    return {"setup": setup, "summary": summary(cases), "cases": cases}


def main(arguments: list[str] | None = None) -> None:
    program("diagnosis", arguments, whole=report, quick=lambda cache: report(cache, repeats=1, seconds=0.5))


if __name__ == "__main__":
    main()
