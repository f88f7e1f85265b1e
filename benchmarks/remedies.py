"""What each remedy saves and what it costs: the data side and the model side of a training step (chapter 11).

    python -m benchmarks.remedies

writes `benchmarks/records/remedies.json`; `--quick` tries it with a few photos and one round, and stores nothing;
`--piece NAME` measures one table and keeps it for the record. In a round each way of a table runs once, in turn.

    data["reading"]      : photos of 88 to 112 pixels a side to uint8 batches of 64 x 64
    data["large photos"] : the same from photos ten times as wide and high
    data["transforms"]   : uint8 batches in memory to float32, moved, mirrored, normalised
    data["together"]     : from a photo to its place in such a batch
    data["undecoded"]    : the encoded photos' bytes alone
    model["steps"]       : a step of photo_net, batch of 32
    model["checkpoints"] : a step of even_net, whose layers are equally large, batch of 32
    model["precisions"]  : a step of photo_net, batch of 8
    model["AdamW"], model["SGD, momentum 0.9"] : the optimizer's step alone, 300 tensors of 32 x 32, by its form
    units                : whether this CPU computes in bfloat16, float16 itself; null where torch does not say
    setup                : rounds, sizes, numbers

A table is {way: row}, the plain way first. A row has `words` (not the optimizers'), `ms` and `median_ms` (least and
median of the rounds: an example on the data side, a step on the model side), `over_first` (its ms over those of the
first row), and

    reading, large photos : `prepare_s` (once, before the first epoch), `disk_bytes`, `ram_bytes` (of each process that
                            made it), `mean_difference` from the first way's pixels, of 255 (null: another order)
    undecoded             : `cold_ms`, median, after the system was asked to forget the files (null where it cannot be)
    model                 : `kept_bytes` for backward of one micro-batch; `peak_bytes`, the most that torch's allocator
                            gave out in a later step, beyond parameters, optimizer state and batch; `gradient_error`,
                            |own - plain| / |plain| (null where model or photos are others: no gradient to compare)
    optimizers            : `state_bytes` that it keeps, `peak_bytes` beyond that in a step

"plain" and "checkpoint 1" do the same work: what their times differ by is how far `steps` can be trusted. "2 threads"
needs a second core that nothing else uses.

All data figures but `cold_ms` are with a warm page cache: the files were read a moment before, so reading one is a copy
from memory, and what is measured is decoding. So it is in training from the second epoch on, if the files fit in the
memory that is free. Where they do not, each read goes to the disk: many small files then lose more than one large file
does. `cold_ms` gives the order of that loss for this disk; below the system, a host may still have held the files.
No way's effect on the accuracy was measured: half the resolution and half the width are other models.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import data_remedies as data
from benchmarks import model_remedies as model
from benchmarks.trainings import begin
from course_utils.catalogue import make_catalogue

NUM_PRODUCTS = 500
ROUNDS = {
    "reading": 15, "large photos": 9, "transforms": 25, "together": 9, "undecoded": 9,
    "steps": 30, "checkpoints": 30, "precisions": 6, "AdamW": 30, "SGD, momentum 0.9": 30,
}  # fmt: skip
DATA = ("reading", "large photos", "transforms", "together", "undecoded")
STEPS = {"steps": model.STEPS, "checkpoints": model.CHECKPOINTS, "precisions": model.PRECISIONS}


def data_table(name: str, num_products: int, rounds: int) -> dict[str, Any]:
    """One table of the data side, on a catalogue that is made for it and removed."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        work.mkdir()
        root = make_catalogue(Path(folder) / "photos", num_products=num_products, seed=0)
        measure = {
            "reading": lambda: data.reading(root, work, rounds=rounds),
            "large photos": lambda: data.large_photos(root, work, rounds=rounds),
            "transforms": lambda: data.transforms(rounds=rounds),
            "together": lambda: data.together(root, rounds=rounds),
            "undecoded": lambda: data.undecoded(root, work, rounds=rounds),
        }
        return measure[name]()


def model_table(name: str, rounds: int, quick: bool) -> dict[str, Any]:
    """One table of the model side."""
    if name in STEPS:
        ways = STEPS[name]
        return model.steps({of: model.quick(way) for of, way in ways.items()} if quick else ways, rounds=rounds)
    return model.optimizers(name, rounds=rounds)


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "photos": f"make_catalogue(num_products={NUM_PRODUCTS}, seed=0), 997 photos; large: {data.NUM_LARGE} of them, "
        f"{data.FACTOR} x as wide and high, with grain",
        "loader": f"ResumableLoader without workers, batches of {data.BATCH_SIZE}, shuffled; a new order each round",
        "photo_net": f"six convolutions, width {model.WIDTH}, 72,730 parameters; photos of {model.SIDE} x {model.SIDE}",
        "even_net": f"twelve convolutions of width {model.WIDTH} that keep the size; photos of 32 x 32, batch of 32",
        "optimizers": f"{model.NUM_TENSORS} tensors of {model.TENSOR_SIDE} x {model.TENSOR_SIDE}",
        "rounds": ROUNDS,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remedies", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few photos, one round; store nothing")
    parser.add_argument("--piece", choices=ROUNDS, help="only this table, kept for the record")
    chosen = parser.parse_args(arguments)
    cache, found = begin("remedies-quick" if chosen.quick else "remedies"), {"data": {}, "model": {}}
    for name in [chosen.piece] if chosen.piece else ROUNDS:
        rounds = 1 if chosen.quick else ROUNDS[name]
        if name in DATA:
            num_products = 6 if chosen.quick else NUM_PRODUCTS
            found["data"][name] = cache.get(data_table, name, num_products, rounds, runs=rounds)
        else:
            found["model"][name] = cache.get(model_table, name, rounds, chosen.quick, runs=rounds)
    if chosen.quick:
        cache.path.unlink(missing_ok=True)
        print({side: list(tables) for side, tables in found.items()})
    elif chosen.piece is None:
        print(cache.store({"setup": setup(), **found, "units": model.units()}).name)


if __name__ == "__main__":
    main()
