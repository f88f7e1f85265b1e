"""What a leak between training and validation part adds to the validation accuracy (chapter 01).

    python -m benchmarks.leak

writes `benchmarks/records/leak.json`; `--quick` tries it with one epoch and two seeds, and stores nothing. A quarter of
the products are "new": no split sees them, and what a network gets right there is what it can do. The photos of the
other products are divided twice by `group_split`, in the same shares and with the classes kept: once with each photo as
a group of its own, so that a product may have photos on both sides, and once with the product as the group. The same
network is trained on both, and its accuracy on the validation part is compared with that on the new products.

    results[case][split], split "per photo" or "by product"
        num_train, num_val, num_new, num_shared : photos; num_shared of the validation photos have a product in training
        val_accuracy[epochs], new_accuracy[epochs], excess[epochs] : spreads; excess is val - new, seed by seed
        by_siblings[photos of the same product in training] : spread of the validation accuracy after the last epoch
    setup : cases in words, what was trained, epochs, seeds

A spread is {"mean", "stdev", "each"} over seeds. Numbers of photos are the first seed's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, NamedTuple

import torch

from benchmarks.catalogue_tasks import NUM_PRODUCTS, SIDE, Examples
from benchmarks.photo_training import BATCH_SIZE, all_photos, at_steps, batches_of, make_trainer, predictions
from benchmarks.pieces import program
from benchmarks.trainings import Cache, spread
from course_utils.randomness import derive_seed
from course_utils.splits import group_split

MOST = 3  # photos of a product; those with fewer are not used
EPOCHS, SEEDS, LR = (1, 2, 5, 10, 20), (0, 1, 2, 3, 4), 1e-3
SPLITS = {
    "per photo": "group_split with each photo as a group: photos of a product go to either part",
    "by product": "group_split with the product as the group",
}
CASES = {
    "1 photo": "class of the item; one photo a product: nothing can leak",
    "2 photos": "class of the item; two photos a product, each with another ground, place, size and light",
    "3 photos": "class of the item; three such photos a product",
    "burst": "class of the item; one photo a product, three times: moved by up to 2 pixels of 32, lighter or darker",
    "burst, coin": "a coin thrown for each product, shown by no photo; three times as in burst",
}
SHARES = (0.8, 0.2)  # of the photos that are not of new products: training, validation


class Photos(NamedTuple):
    """The examples of a case, and the product of each."""

    data: Examples
    products: list[int]


def photos_of(case: str) -> Photos:
    """The photos that a case uses, of products that have three."""
    data, rows = all_photos()
    num_photos = int(case[0]) if case[0].isdigit() else 1
    counts = Counter(row["product"] for row in rows)
    pool = [at for at, row in enumerate(rows) if counts[row["product"]] == MOST and row["photo"] < num_photos]
    products, inputs, targets = [rows[at]["product"] for at in pool], data.inputs[pool], data.targets[pool]
    if case.startswith("burst"):
        inputs, targets, products = burst(inputs), targets.repeat(MOST), products * MOST
    if case.endswith("coin"):
        targets = torch.tensor([derive_seed("coin", product) % 2 for product in products])
    return Photos(Examples(inputs, targets), products)


def burst(inputs: torch.Tensor) -> torch.Tensor:
    """Each photo three times, float (3 N, C, H, W), moved by up to 2 pixels each way and a little lighter or darker."""
    generator = torch.Generator().manual_seed(0)
    wide = torch.nn.functional.pad(inputs.repeat(MOST, 1, 1, 1), (2, 2, 2, 2), mode="replicate")
    corners = torch.randint(0, 5, (len(wide), 2), generator=generator).tolist()
    height, width = inputs.shape[2:]
    moved = torch.stack([image[:, y : y + height, x : x + width] for image, (y, x) in zip(wide, corners, strict=True)])
    return moved + 0.1 * torch.randn(len(wide), 1, 1, 1, generator=generator)


def divide(split: str, photos: Photos, seed: int) -> tuple[list[int], list[int], list[int]]:
    """Positions for training, validation and new products; the new ones are the same for both splits."""
    targets, products = photos.data.targets, torch.tensor(photos.products)
    known, new = map(torch.tensor, group_split(products, fractions=(0.75, 0.25), seed=seed, targets=targets))
    groups = known if split == "per photo" else products[known]
    parts = group_split(groups, fractions=SHARES, seed=seed, targets=targets[known])
    return known[parts[0]].tolist(), known[parts[1]].tolist(), new.tolist()


def run(case: str, split: str, seed: int, epochs: tuple[int, ...]) -> dict[str, Any]:
    """One training: share of right answers on validation and new photos after each of `epochs`."""
    data, products = photos = photos_of(case)
    train, val, new = divide(split, photos, seed)
    in_training = Counter(products[at] for at in train)
    trainer, loader = make_trainer(LR, seed), batches_of(data, seed, indices=train)
    found = {"num_train": len(train), "num_val": len(val), "num_new": len(new), "val": {}, "new": {}}
    for step in at_steps(trainer, loader, [epoch * len(loader) for epoch in epochs]):
        right = (predictions(trainer.model, data.inputs) == data.targets).double()
        epoch = str(step // len(loader))
        found["val"][epoch], found["new"][epoch] = right[val].mean().item(), right[new].mean().item()
    siblings = defaultdict(list)
    for at in val:
        siblings[in_training[products[at]]].append(right[at].item())
    found["num_shared"] = sum(len(of) for number, of in siblings.items() if number)
    return found | {"by_siblings": {str(number): sum(of) / len(of) for number, of in sorted(siblings.items())}}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over seeds; of numbers of photos the first seed's."""
    found = {name: runs[0][name] for name in ("num_train", "num_val", "num_new", "num_shared")}
    epochs = list(runs[0]["val"])
    for name, of in (("val_accuracy", "val"), ("new_accuracy", "new")):
        found[name] = {epoch: spread([row[of][epoch] for row in runs]) for epoch in epochs}
    found["excess"] = {epoch: spread([row["val"][epoch] - row["new"][epoch] for row in runs]) for epoch in epochs}
    numbers = [number for number in runs[0]["by_siblings"] if all(number in row["by_siblings"] for row in runs)]
    found["by_siblings"] = {number: spread([row["by_siblings"][number] for row in runs]) for number in numbers}
    return found


def report(cache: Cache, *, epochs: tuple[int, ...] = EPOCHS, seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """{case: {split: summary}}."""
    return {
        case: {split: summary([cache.get(run, case, split, seed, epochs) for seed in seeds]) for split in SPLITS}
        for case in CASES
    }


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "data": f"make_catalogue(num_products={NUM_PRODUCTS}, seed=0): the products with three photos, "
        f"{SIDE} x {SIDE} pixels; new products: a quarter of them, other ones for each seed",
        "model": "photo_cnn: three convolutions and a linear layer, 33,834 parameters",
        "optimizer": f"AdamW, lr {LR}, constant, batch size {BATCH_SIZE}",
        "cases": CASES,
        "splits": SPLITS,
        "shares": SHARES,
        "epochs": EPOCHS,
        "seeds": SEEDS,
    }


def main(arguments: list[str] | None = None) -> None:
    program(
        "leak",
        arguments,
        whole=lambda cache: {"setup": setup(), "results": report(cache)},
        quick=lambda cache: report(cache, epochs=(1,), seeds=SEEDS[:2]),
    )


if __name__ == "__main__":
    main()
