"""What a forgotten `model.eval()` costs, and what a validation in train mode leaves behind (chapter 05, C30).

    python -m benchmarks.forgotten_eval

writes `benchmarks/records/forgotten_eval.json`; `--quick` tries it with a few updates and stores nothing.
Five networks that differ only in their layers of BatchNorm and dropout are trained on Fashion-MNIST. Then the same test
examples are judged in evaluation mode and, by a copy of the network, in train mode: batch sizes and orders differ.
After that, copies make a pass over the validation examples in train mode, under `no_grad`, and are judged in evaluation
mode, at once and after some updates more.

    results[net], net of NETS
        right["accuracy" or "loss"] : spreads, in evaluation mode: no batch and no order matters
        train_mode[order][batch size] : spreads of `accuracy`, `loss`, and `lost`, right accuracy - own, seed by seed
        untouched[updates] : spread of the accuracy in evaluation mode after so many updates more, without such a pass
        passes[order][batch size], only of nets with BatchNorm
            weights_changed : trainings, of all, in which a parameter changed: 0
            shift : spread of the mean over all channels of |running mean moved| / running deviation before the pass
            accuracy_after[updates], lost_after[updates] : spreads; lost is untouched accuracy - own, seed by seed
    setup : nets in words, orders, batch sizes, data, optimizer, updates, seeds

`order` is "shuffled" or "sorted by class". There is no batch size of 1 for "BatchNorm1d": in train mode PyTorch raises
"Expected more than 1 value per channel". A spread is {"mean", "stdev", "each"} over seeds; accuracies are shares.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from benchmarks.pieces import program
from benchmarks.trainings import LOSS_FN, collect, data, spread, train
from course_utils.loaders import ResumableLoader
from course_utils.models import small_cnn
from course_utils.randomness import derive_seed, isolated_rng, seed_generators
from course_utils.schedules import constant
from course_utils.training_loop import evaluate

NETS = {
    "plain": "small_cnn: neither",
    "BatchNorm": "a BatchNorm2d after each of the two convolutions",
    "dropout": "Dropout(0.5) before the linear layer",
    "BatchNorm, dropout": "both",
    "BatchNorm1d": "a hidden layer of 32 with BatchNorm1d before the last one: one number a channel and example",
}
ORDERS, SIZES = ("shuffled", "sorted by class"), (1, 8, 64, 256)
SEEDS, NUM_STEPS, BATCH_SIZE, LR = (0, 1, 2, 3, 4), 420, 64, 2e-3
NUM_TEST, NUM_PASS, LATER = 2_000, 1_000, (0, 1, 5, 20, 100)
Examples = tuple[torch.Tensor, torch.Tensor]


def build(net: str) -> nn.Sequential:
    """`small_cnn` with the layers that `net` names."""
    if net == "BatchNorm1d":
        return nn.Sequential(*small_cnn()[:-1], nn.Linear(784, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    layers: list[nn.Module] = []
    for layer in small_cnn():
        if isinstance(layer, nn.Linear) and "dropout" in net:
            layers.append(nn.Dropout(0.5))
        layers.append(layer)
        if isinstance(layer, nn.Conv2d) and "BatchNorm" in net:
            layers.append(nn.BatchNorm2d(layer.out_channels))
    return nn.Sequential(*layers)


def examples(part: str, order: str, count: int) -> Examples:
    """The first `count` examples of a part in a fixed order: drawn once, or the same ones sorted by class."""
    images, targets = data(part).images[:count], data(part).targets[:count]
    generator = torch.Generator().manual_seed(0)
    places = torch.randperm(len(targets), generator=generator)
    if order == "sorted by class":
        places = places[targets[places].argsort(stable=True)]
    return images[places], targets[places]


@torch.no_grad()
def in_train_mode(model: nn.Module, batch_size: int, given: Examples) -> dict[str, float]:
    """The model's mode and running statistics change; accuracy and loss are weighted by examples."""
    model.train()
    logits = torch.cat([model(images) for images in given[0].split(batch_size)])
    return judged(logits, given[1])


def judged(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """{"accuracy", "loss"} of logits (N, C)."""
    return {
        "accuracy": (logits.argmax(1) == targets).double().mean().item(),
        "loss": LOSS_FN(logits.double(), targets).item(),
    }


def in_eval_mode(model: nn.Module, given: Examples) -> dict[str, float]:
    found = evaluate(model, zip(given[0].split(500), given[1].split(500), strict=True), LOSS_FN)
    return {"accuracy": found.accuracy, "loss": found.loss}


def running(model: nn.Module) -> list[nn.Module]:
    """The layers that keep running statistics."""
    return [module for module in model.modules() if hasattr(module, "running_mean")]


def shift(before: nn.Module, after: nn.Module) -> float:
    """Mean over all channels of how far the running mean moved, in running deviations of `before`."""
    pairs = zip(running(before), running(after), strict=True)
    moved = [(new.running_mean - old.running_mean).abs() / old.running_var.sqrt() for old, new in pairs]
    return torch.cat(moved).mean().item()


def accuracies_after(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, later: tuple[int, ...]) -> dict:
    """{updates more: accuracy in evaluation mode}; the updates are the same whatever the statistics are."""
    given, found = examples("test", "shuffled", NUM_TEST), {}
    seed_generators(derive_seed(seed, "later"))  # dropout draws the same too
    loader = ResumableLoader(data("train"), batch_size=BATCH_SIZE, seed=derive_seed(seed, "later"))
    batches = iter(loader)
    for updates in range(max(later) + 1):
        if updates in later:
            found[str(updates)] = in_eval_mode(model, given)["accuracy"]
        model.train()
        images, targets = next(batches)
        optimizer.zero_grad()
        LOSS_FN(model(images), targets).backward()
        optimizer.step()
    return found


def passed(trained: tuple, order: str, batch_size: int, seed: int, later: tuple[int, ...]) -> dict[str, Any]:
    """A copy makes one pass over the validation examples in train mode, then goes on."""
    model, optimizer = copy.deepcopy(trained)
    in_train_mode(model, batch_size, examples("val", order, NUM_PASS))
    pairs = zip(trained[0].parameters(), model.parameters(), strict=True)
    found = {"weights_changed": not all(torch.equal(old, new) for old, new in pairs), "shift": shift(trained[0], model)}
    return found | {"accuracy_after": accuracies_after(model, optimizer, seed, later)}


def run(net: str, seed: int, num_steps: int, sizes: tuple[int, ...], later: tuple[int, ...]) -> dict[str, Any]:
    """One training and all that is asked of it."""
    if net == "BatchNorm1d":
        sizes = tuple(size for size in sizes if size > 1)
    with isolated_rng():
        seed_generators(derive_seed(seed, net))  # dropout
        how = {"num_steps": num_steps, "batch_size": BATCH_SIZE, "seed": seed}
        trainer = train(lambda: build(net), lambda params: torch.optim.AdamW(params, lr=LR), constant, **how)
        trained = trainer.model, trainer.optimizer
        return {
            "right": in_eval_mode(trained[0], examples("test", "shuffled", NUM_TEST)),
            "train_mode": {
                order: {
                    str(size): in_train_mode(copy.deepcopy(trained[0]), size, examples("test", order, NUM_TEST))
                    for size in sizes
                }
                for order in ORDERS
            },
            "untouched": accuracies_after(*copy.deepcopy(trained), seed, later),
            "passes": {
                order: {str(size): passed(trained, order, size, seed, later) for size in sizes} for order in ORDERS
            }
            if running(trained[0])
            else {},
        }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over seeds, in the record's form."""
    first = runs[0]
    return {
        "right": collect([row["right"] for row in runs]),
        "train_mode": {
            order: {size: _of_mode(runs, order, size) for size in sizes} for order, sizes in first["train_mode"].items()
        },
        "untouched": collect([row["untouched"] for row in runs]),
        "passes": {
            order: {size: _of_pass(runs, order, size) for size in sizes} for order, sizes in first["passes"].items()
        },
    }


def _of_mode(runs: list[dict[str, Any]], order: str, size: str) -> dict[str, Any]:
    own = [row["train_mode"][order][size] for row in runs]
    lost = [row["right"]["accuracy"] - found["accuracy"] for row, found in zip(runs, own, strict=True)]
    return collect(own) | {"lost": spread(lost)}


def _of_pass(runs: list[dict[str, Any]], order: str, size: str) -> dict[str, Any]:
    own = [row["passes"][order][size] for row in runs]
    after = [found["accuracy_after"] for found in own]
    lost = [
        {updates: row["untouched"][updates] - accuracy for updates, accuracy in of.items()}
        for row, of in zip(runs, after, strict=True)
    ]
    return {
        "weights_changed": sum(found["weights_changed"] for found in own),
        "shift": spread([found["shift"] for found in own]),
        "accuracy_after": collect(after),
        "lost_after": collect(lost),
    }


def report(cache: Any, *, seeds=SEEDS, num_steps=NUM_STEPS, sizes=SIZES, later=LATER) -> dict[str, Any]:
    """{net: summary}."""
    return {net: summary([cache.get(run, net, seed, num_steps, sizes, later) for seed in seeds]) for net in NETS}


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "data": f"9,000 training examples of Fashion-MNIST; {NUM_TEST} test examples are judged, {NUM_PASS} validation "
        "examples are passed over; the same ones in either order",
        "optimizer": f"AdamW, lr {LR}, constant, {NUM_STEPS} updates (3 epochs), batch size {BATCH_SIZE}",
        "nets": NETS,
        "momentum": nn.BatchNorm2d(1).momentum,
        "orders": ORDERS,
        "batch_sizes": SIZES,
        "later": LATER,
        "seeds": SEEDS,
    }


def main(arguments: list[str] | None = None) -> None:
    few = {"seeds": SEEDS[:2], "num_steps": 2, "sizes": (64,), "later": (0, 1)}
    program(
        "forgotten_eval",
        arguments,
        whole=lambda cache: {"setup": setup(), "results": report(cache)},
        quick=lambda cache: report(cache, **few),
    )


if __name__ == "__main__":
    main()
