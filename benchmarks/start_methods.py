"""Seconds until workers hand over a first batch, for each way to start them, and what persistent ones save.

    python -m benchmarks.start_methods

writes `benchmarks/records/start_methods.json`; `--quick` tries one way on a few examples and stores nothing. Each
way of starting is measured in a fresh process that has imported torch, as a notebook has: `fork` copies that process;
`forkserver` and `spawn` begin with a new Python that imports torch and the dataset's module again; `forkserver,
preloaded` has a server that imports torch once, before it is copied. Two workers, a plain `DataLoader`; an epoch is
short or long; the loader is iterated again and again, with persistent workers and without.

    ways[way]
        first_ever_s : from `iter` to the first batch of the process's first loader, a server's start included; each run
        epochs[length][kind], length "short" or "long", kind "fresh" or "persistent"
            first_batch_s[k] : spread over runs, from `iter` to the first batch of epoch k (0, 1)
            epoch_s[k]       : spread over runs, the whole epoch
        saved_s[length]      : a later epoch (k >= 1) with fresh workers minus one with persistent ones, from the least
                               of each; `saved_share[length]`, of the fresh one's seconds
    platform : `ways` that there are here, `default`, the one that is used where none is named
    setup : workers, examples, ms an example, batch size; runs; cores
    A spread is {"least", "median", "each"} over runs.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).parents[1]
RUNS, NUM_WORKERS, BATCH_SIZE, EPOCHS = 2, 2, 8, 2
LENGTHS = {"short": {"examples": 64, "ms": 1.0}, "long": {"examples": 512, "ms": 4.0}}
PRELOADED = "forkserver, preloaded"
WAYS = ("fork", "forkserver", PRELOADED, "spawn")
_CHILD = "import sys, json; from benchmarks.start_methods import one; print(json.dumps(one(*json.loads(sys.argv[1]))))"


class Slow(Dataset):
    """Examples that sleep; its module imports nothing but torch, which is what starting a worker costs at least."""

    def __init__(self, examples: int, ms: float) -> None:
        self.examples, self.ms = examples, ms

    def __len__(self) -> int:
        return self.examples

    def __getitem__(self, index: int) -> int:
        time.sleep(self.ms / 1e3)
        return index


def ways_here() -> list[str]:
    """Those of `WAYS` that this platform has."""
    methods = multiprocessing.get_all_start_methods()
    return [way for way in WAYS if way.split(",")[0] in methods]


def one(way: str, lengths: dict[str, dict[str, float]], epochs: int) -> dict[str, Any]:
    """Everything of one way, in this process, which must be a fresh one: {"length kind": [[first, whole], ...]}."""
    context = multiprocessing.get_context(way.split(",")[0])
    if way == PRELOADED:
        context.set_forkserver_preload(["torch", "benchmarks.start_methods"])
    found = {}
    for length, size in lengths.items():
        for kind in ("fresh", "persistent"):
            loader = DataLoader(
                Slow(**size),
                batch_size=BATCH_SIZE,
                num_workers=NUM_WORKERS,
                multiprocessing_context=context,
                persistent_workers=kind == "persistent",
            )
            found[f"{length} {kind}"] = [_epoch(loader) for _ in range(epochs)]
    return found


def _epoch(loader: DataLoader) -> list[float]:
    """Seconds until the first batch, and of the whole."""
    began, first = time.perf_counter(), None
    for _ in loader:
        first = first or time.perf_counter() - began
    return [round(first, 4), round(time.perf_counter() - began, 4)]


def in_fresh_process(way: str, run: int, lengths: dict[str, dict[str, float]], epochs: int) -> dict[str, Any]:
    """`one` in a process of its own; `run` tells repeated ones apart."""
    command = [sys.executable, "-c", _CHILD, json.dumps([way, lengths, epochs])]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def spread(values: list[float]) -> dict[str, Any]:
    return {"least": min(values), "median": round(statistics.median(values), 4), "each": values}


def joined(runs: list[dict[str, Any]], lengths: list[str]) -> dict[str, Any]:
    """A way's entry of the record."""
    found: dict[str, Any] = {"first_ever_s": [run[f"{lengths[0]} fresh"][0][0] for run in runs]}
    found |= {"epochs": {}, "saved_s": {}, "saved_share": {}}
    for length in lengths:
        kinds, later = {}, {}
        for kind in ("fresh", "persistent"):
            by_epoch = list(zip(*(run[f"{length} {kind}"] for run in runs), strict=True))
            kinds[kind] = {
                name: [spread([epoch[at] for epoch in each]) for each in by_epoch]
                for at, name in enumerate(("first_batch_s", "epoch_s"))
            }
            later[kind] = min(epoch["least"] for epoch in kinds[kind]["epoch_s"][1:])
        found["epochs"][length] = kinds
        found["saved_s"][length] = round(later["fresh"] - later["persistent"], 4)
        found["saved_share"][length] = round(1 - later["persistent"] / later["fresh"], 3)
    return found


def report(
    cache: Any,
    *,
    ways: list[str] | None = None,
    runs: int = RUNS,
    lengths: dict[str, dict[str, float]] = LENGTHS,
    epochs: int = EPOCHS,
) -> dict[str, Any]:
    """Every way in every round: a busy moment meets all of them."""
    from course_utils.machine import usable_cpus

    found: dict[str, list] = {way: [] for way in ways or ways_here()}
    for run in range(runs):
        for way, rows in found.items():
            rows.append(cache.get(in_fresh_process, way, run, lengths, epochs))
    setup = {"num_workers": NUM_WORKERS, "batch_size": BATCH_SIZE, "lengths": lengths, "epochs": epochs, "runs": runs}
    default = multiprocessing.get_context().get_start_method()
    platform = {"ways": ways_here(), "default": default, "system": sys.platform}
    joint = {way: joined(rows, list(lengths)) for way, rows in found.items()}
    return {"setup": setup | {"cores": usable_cpus()}, "platform": platform, "ways": joint}


def main(arguments: list[str] | None = None) -> None:
    from benchmarks.pieces import program  # what workers import with this module is to be no more than torch

    small = {"short": {"examples": 16, "ms": 0.1}}
    quick = {"ways": ways_here()[:1], "runs": 1, "lengths": small, "epochs": 2}
    program("start_methods", arguments, whole=report, quick=lambda cache: report(cache, **quick))


if __name__ == "__main__":
    main()
