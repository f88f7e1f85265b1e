"""How many examples a second a batch size trains, and what it needs in memory (chapter 04, claim C80).

    python -m benchmarks.batch_throughput

writes `benchmarks/records/batch_throughput.json`; `--quick` tries three sizes, one round, and stores nothing;
`--task NAME` measures one task and keeps it for the record. Batches lie in memory, so no loader is in the figures. Each
size trains about 128 examples in a round (one step at the least), the sizes in turn; one thread.

    tasks["fashion" or "photos"]
        model, batch, num_parameters, parameter_bytes, state_bytes (of AdamW, from its first step on)
        sizes[batch size]
            train      : `ms`, `median_ms` a step (forward, backward, update); `examples_per_s` from the least;
                         `kept_bytes` for backward; `peak_bytes`, the most that torch's allocator gave out in a later
                         step beyond parameters, state and batch; `batch_bytes`; `total_bytes`: parameters, state, batch
                         and peak; `page_faults`
            first_step : `ms` of a new model's and optimizer's first step (least of the rounds); `peak_bytes` beyond
                         parameters and batch, the new state in it
            validation : `ms`, `median_ms`, `examples_per_s`, `peak_bytes` beyond parameters and batch, of the forward
                         pass under no_grad
        best[train or validation]            : the size with the most examples a second
        within["5 %" or "10 %"][train or validation] : the smallest size that is at most so far below the best
    setup : sizes, rounds of each task, rounds of first steps, examples a round

Where a large size is slower than a smaller one, look at its `page_faults` (new memory pages in a step, the least of
three; null on Windows). glibc's allocator asks the system for each tensor above 32 MiB anew and gives it back; each new
page is cleared first. With MALLOC_MMAP_THRESHOLD_=4000000000 and MALLOC_TRIM_THRESHOLD_=8000000000 in the environment,
photos had no page faults and nearly the speed of 128 at every larger size.

The learning rate is 0: the weights stay, so that no gradient becomes tiny in a model that has seen a batch too often.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import photo_stores as stores
from benchmarks.catalogue_tasks import photo_cnn
from benchmarks.costs import digits, milliseconds, peak_bytes, state_bytes
from benchmarks.timing import interleaved
from benchmarks.trainings import LOSS_FN, begin, data
from course_utils.catalogue import make_catalogue
from course_utils.models import small_cnn
from course_utils.profiling import bytes_for_backward
from course_utils.randomness import isolated_rng, seed_generators

SIZES, QUICK_SIZES = tuple(2**power for power in range(11)), (1, 4, 16)
ROUNDS, FIRST_ROUNDS, EXAMPLES = {"fashion": 30, "photos": 12}, 5, 128
SIDE, NUM_PRODUCTS = 64, 500
Batch = tuple[torch.Tensor, torch.Tensor]


def fashion(number: int) -> Batch:
    part = data("train")
    return part.images[:number].clone(), part.targets[:number].clone()  # a view would keep all of them


@functools.cache
def _photos() -> Batch:
    with tempfile.TemporaryDirectory() as folder:
        root = make_catalogue(Path(folder) / "photos", num_products=NUM_PRODUCTS, seed=0)
        images, targets = stores.decoded(stores.folder(root, SIDE))
    return (images.float() / 255 - 0.55) / 0.2, targets


def photos(number: int) -> Batch:
    """997 there are; from the 998th on they come again."""
    images, targets = _photos()
    places = torch.arange(number) % len(images)
    return images[places], targets[places]


TASKS: dict[str, tuple[str, Callable[[], nn.Module], Callable[[int], Batch]]] = {
    "fashion": ("small_cnn: two strided convolutions and a linear layer, 1 x 28 x 28", small_cnn, fashion),
    "photos": (
        "photo_cnn: three strided convolutions and a linear layer, 3 x 64 x 64",
        lambda: photo_cnn(SIDE),
        photos,
    ),
}


class Training:
    """A model, its optimizer and one batch, used again and again."""

    def __init__(self, task: str, size: int) -> None:
        _, build, batch_of = TASKS[task]
        with isolated_rng():
            seed_generators(0)
            self.model = build()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0)
        self.images, self.targets = batch_of(size)

    def loss(self) -> torch.Tensor:
        return LOSS_FN(self.model(self.images), self.targets)

    def update(self) -> None:
        """Backward and the optimizer's step; gradients stay."""
        self.loss().backward()
        self.optimizer.step()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.update()

    @torch.no_grad()
    def validate(self) -> float:
        return float(self.loss())


def _often(call: Callable[[], Any], number: int) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(number):
            call()

    return calls


def _speed(seconds: list[float], calls: int, size: int) -> dict[str, float]:
    found = milliseconds(seconds, per=calls)
    return found | {"examples_per_s": digits(size / found["ms"] * 1e3)}


def first_step(task: str, size: int, rounds: int) -> dict[str, float]:
    """Of a model and an optimizer that have made none."""
    seconds = []
    for _ in range(rounds):
        training, began = Training(task, size), time.perf_counter()
        training.step()
        seconds.append(time.perf_counter() - began)
    return {"ms": digits(min(seconds) * 1e3), "peak_bytes": peak_bytes(Training(task, size).update)}


def memory(task: str, size: int) -> dict[str, Any]:
    """What a size needs, counted: {"train": bytes, "validation": bytes}."""
    training = Training(task, size)
    parameters = sum(param.nbytes for param in training.model.parameters())
    training.step()
    training.optimizer.zero_grad()
    train = {"kept_bytes": bytes_for_backward(training.loss), "peak_bytes": peak_bytes(training.update)}
    train["page_faults"] = page_faults(training)
    train["batch_bytes"] = training.images.nbytes + training.targets.nbytes
    held = parameters + state_bytes(training.optimizer) + train["batch_bytes"]
    train["total_bytes"] = held + train["peak_bytes"]
    return {"train": train, "validation": {"peak_bytes": peak_bytes(training.validate)}}


def page_faults(training: Training) -> int | None:
    """New memory pages in a step; None where the system does not count them."""
    try:
        import resource
    except ImportError:
        return None
    counts = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        training.step()
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return min(counts)


def summary(sizes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """`best` and `within` from the examples a second."""
    best, within = {}, {"5 %": {}, "10 %": {}}
    for kind in ("train", "validation"):
        speed = {int(size): row[kind]["examples_per_s"] for size, row in sizes.items()}
        best[kind] = max(speed, key=speed.__getitem__)
        for words, share in (("5 %", 0.95), ("10 %", 0.90)):
            within[words][kind] = min(size for size, value in speed.items() if value >= share * speed[best[kind]])
    return {"best": best, "within": within}


def measure(task: str, sizes: tuple[int, ...], rounds: int, examples: int) -> dict[str, Any]:
    """One task's entry of the record."""
    calls, trainings = (
        {size: max(1, examples // size) for size in sizes},
        {size: Training(task, size) for size in sizes},
    )
    train = interleaved({str(size): _often(trainings[size].step, calls[size]) for size in sizes}, rounds=rounds)
    validation = interleaved(
        {str(size): _often(trainings[size].validate, calls[size]) for size in sizes}, rounds=rounds
    )
    rows: dict[str, dict[str, Any]] = {}
    for size in sizes:
        counted, name = memory(task, size), str(size)
        rows[name] = {
            "train": _speed(train[name], calls[size], size) | counted["train"],
            "first_step": first_step(task, size, min(rounds, FIRST_ROUNDS)),
            "validation": _speed(validation[name], calls[size], size) | counted["validation"],
        }
    model, optimizer = trainings[sizes[0]].model, trainings[sizes[0]].optimizer
    parameters = [param.numel() for param in model.parameters()]
    found = {"model": TASKS[task][0], "num_parameters": sum(parameters), "parameter_bytes": 4 * sum(parameters)}
    return found | {"state_bytes": state_bytes(optimizer), "sizes": rows} | summary(rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_throughput", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="three sizes, one round; store nothing")
    parser.add_argument("--task", choices=TASKS, help="only this task, kept for the record")
    chosen = parser.parse_args(arguments)
    cache = begin("batch_throughput-quick" if chosen.quick else "batch_throughput")
    sizes, examples = (QUICK_SIZES, 16) if chosen.quick else (SIZES, EXAMPLES)
    tasks = {}
    for name in [chosen.task] if chosen.task else TASKS:
        rounds = 1 if chosen.quick else ROUNDS[name]
        tasks[name] = cache.get(measure, name, sizes, rounds, examples, runs=2 * rounds * len(sizes))
    if chosen.quick:
        cache.path.unlink(missing_ok=True)
        print({name: found["within"] for name, found in tasks.items()})
    elif chosen.task is None:
        setup = {"sizes": SIZES, "rounds": ROUNDS, "first_rounds": FIRST_ROUNDS, "examples": EXAMPLES}
        print(cache.store({"setup": setup, "tasks": tasks}).name)


if __name__ == "__main__":
    main()
