"""The Trainer's time for one update beside Lightning's, Ignite's and Accelerate's, over an inlined loop (chapter 05).

All do the same work, from the same weights on the same batches, at a step of about 2 ms: `benchmarks.framework_loops`.
A loop whose package is not installed is named on stderr and left out. All loops run at once, each in a thread, and only
the one that has the turn makes steps, five of them; what a run's start costs is not in the times.
"""

from __future__ import annotations

import sys

import torch

from benchmarks.framework_loops import TurnLoader, missing, present
from benchmarks.rows.trainer_step import Batches, make_batches, make_network
from benchmarks.timing import Row, Times, collector_off, paired, turned

GROUP, SKIP, ROUNDS = 5, 4, 60


def timed(batches: Batches, *, rounds: int) -> tuple[Times, dict[str, torch.Tensor]]:
    """{loop: seconds a step, one value a round}, {loop: all weights after its run}; the first loop changes by round.

    The first `SKIP` turns warm up. The garbage collector is off meanwhile.
    """
    turns, models, loaders = SKIP + rounds + 1, {}, {}
    with collector_off():
        for name, fit in present().items():
            model, optimizer = make_network()
            models[name], loaders[name] = model, TurnLoader(batches, turns * GROUP, GROUP)
            loaders[name].start(lambda fit=fit, how=(loaders[name], model, optimizer): fit(*how))
        for turn in range(turns):
            for name in turned(loaders, turn):
                loaders[name].turn()
    for loader in loaders.values():
        loader.join()
    weights = {name: torch.cat([param.detach().flatten() for param in of.parameters()]) for name, of in models.items()}
    return {name: loader.seconds[SKIP:] for name, loader in loaders.items()}, weights


def measure(*, quick: bool = False) -> list[Row]:
    for name, package in missing().items():
        print(f"frameworks: {name} is left out: pip install {package} for it", file=sys.stderr)
    times, _ = timed(make_batches(4 if quick else 100), rounds=2 if quick else ROUNDS)
    pairs = [(name, "inlined loop") for name in times if name not in ("inlined loop", "barest loop")]
    pairs.append(("Trainer", "barest loop"))
    return [paired("frameworks", f"whole run, update by {of} over {over}", times, of, over) for of, over in pairs]
