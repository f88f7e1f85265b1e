"""The Trainer's time for one update beside Lightning's, Ignite's and Accelerate's, over an inlined loop (chapter 05).

All do the same work, from the same weights on the same batches, at a step of about 2 ms: `benchmarks.framework_loops`.
A loop whose package is not installed is named on stderr and left out. In a round each loop makes a whole run;
times are between batches, so what a run's start costs is not in them.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import torch

from benchmarks.framework_loops import Stamped, missing, present
from benchmarks.rows.trainer_step import Batches, make_batches, make_network
from benchmarks.timing import Row, Times, ratio

NUM_STEPS, SKIP, GROUP, ROUNDS = 105, 20, 5, 12


def timed(batches: Batches, *, rounds: int, num_steps: int = NUM_STEPS) -> tuple[Times, dict[str, torch.Tensor]]:
    """{loop: seconds a step, for each group of steps of each round}, {loop: all weights after a run}; turns change."""
    times, weights, fits = defaultdict(list), {}, present()
    names = list(fits)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            loader, (model, optimizer) = Stamped(batches, num_steps), make_network()
            fits[name](loader, model, optimizer)
            times[name] += loader.seconds(skip=min(SKIP, num_steps // 4), group=GROUP)
            weights[name] = torch.cat([param.detach().flatten() for param in model.parameters()])
    return {name: times[name] for name in names}, weights


def measure(*, quick: bool = False) -> list[Row]:
    for name, package in missing().items():
        print(f"frameworks: {name} is left out: pip install {package} for it", file=sys.stderr)
    batches = make_batches(4 if quick else 100)
    times, _ = timed(batches, rounds=1 if quick else ROUNDS, num_steps=20 if quick else NUM_STEPS)
    pairs = [(name, "inlined loop") for name in times if name not in ("inlined loop", "barest loop")]
    pairs.append(("Trainer", "barest loop"))
    return [ratio("frameworks", f"whole run, update by {of} over {over}", times, of, over) for of, over in pairs]
