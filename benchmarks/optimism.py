"""How far the best validation score is above what the chosen candidate can do (chapter 05).

    python -m benchmarks.optimism

writes `benchmarks/records/optimism.json`; `--quick` tries it with a few updates and two repeats, and stores nothing. In
a repeat, 64 candidates are trained on 1,000 examples of Fashion-MNIST. Then, draw after draw, a validation part is
drawn from the examples that no candidate was trained on, the best of the first 1, 2, 4 ... candidates (in an order
drawn anew) is chosen by it, and the best validation accuracy is compared with the accuracy of the chosen candidate on
the 2,000 test examples, and with its accuracy on a second part of the size of the first, which is looked at once.

    results[kind][validation examples][candidates]
        optimism  : validation accuracy - test accuracy, both of the chosen candidate
        once      : accuracy on the part that is looked at once - test accuracy
        val, test : the accuracies; more candidates choose a better one, so `test` grows too
        above     : share of the draws in which the validation accuracy is above the test accuracy
    one_draw[kind]["val" or "test" or "once"][candidates] : of each repeat's first draw with `one_draw_examples`
    candidates[kind] : `test`, spread over candidates of the first repeat's test accuracies
    setup : kinds in words, the net, data, candidates, sizes, repeats, draws

Each figure but those of `one_draw` is a spread, {"mean", "stdev", "each"}, over repeats of its mean over a repeat's
draws; the accuracy of one draw scatters more. `kind` is one of KINDS. Of equally good candidates with independent
errors the best of K on n examples is expected to be above by about sqrt(2 ln K) sqrt(p (1 - p) / n); candidates that
fail on the same examples are above by less.
"""

from __future__ import annotations

import functools
import statistics
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.pieces import program
from benchmarks.trainings import collect, data, spread
from course_utils.randomness import derive_seed

KINDS = {
    "settings": "lr from 0.003 to 0.3, weight decay from 1e-5 to 1e-2, dropout from 0 to 0.5: drawn for each candidate",
    "seeds": "one setting; initial weights and batches are drawn for each candidate",
    "checkpoints": "one training, looked at after every 5 updates from update 100 on",
    "guesses": "nothing is learned: each candidate guesses one of ten classes, example by example",
}
NUM_CANDIDATES, NUM_TRAIN, HIDDEN, BATCH_SIZE, NUM_STEPS = 64, 1_000, 32, 50, 420
FIRST_LOOK, LOOK_EVERY = 100, 5  # 64 looks until update 415
SIZES, COUNTS = (50, 200, 1_000), (1, 2, 4, 8, 16, 32, 64)
REPEATS, DRAWS, ONE_DRAW_EXAMPLES = 20, 25, 200


@functools.cache
def features(part: str) -> torch.Tensor:
    """Images of 14 x 14, float32 (N, 196)."""
    return F.avg_pool2d(data(part).images, 2).flatten(1)


def log_uniform(low: float, high: float, count: int, generator: torch.Generator) -> torch.Tensor:
    return low * (high / low) ** torch.rand(count, 1, 1, generator=generator)


class Candidates:
    """Networks with one hidden layer, trained side by side: K of them in one batched product; SGD with momentum 0.9.

    weights : [(K, 196, 32), (K, 1, 32), (K, 32, 10), (K, 1, 10)]
    """

    def __init__(self, kind: str, generator: torch.Generator) -> None:
        count = 1 if kind == "checkpoints" else NUM_CANDIDATES
        self.generator, fans = generator, (features("all").shape[1], HIDDEN)
        self.lr, self.decay, self.drop = (torch.full((count, 1, 1), value) for value in (0.05, 1e-4, 0.0))
        if kind == "settings":
            self.lr = log_uniform(0.003, 0.3, count, generator)
            self.decay = log_uniform(1e-5, 1e-2, count, generator)
            self.drop = 0.5 * torch.rand(count, 1, 1, generator=generator)
        self.weights = []
        for fan, width in zip(fans, (HIDDEN, 10), strict=True):
            self.weights.append(torch.randn(count, fan, width, generator=generator) * fan**-0.5)
            self.weights.append(torch.zeros(count, 1, width))
        self.speeds = [torch.zeros_like(weight) for weight in self.weights]
        for weight in self.weights:
            weight.requires_grad_()

    def logits(self, inputs: torch.Tensor, *, train: bool = False) -> torch.Tensor:
        """float (K or 1, B, 196) -> (K, B, 10)."""
        first, first_bias, second, second_bias = self.weights
        hidden = (inputs @ first + first_bias).relu()
        if train:
            kept = torch.rand(hidden.shape, generator=self.generator) >= self.drop
            hidden = hidden * kept / (1 - self.drop)
        return hidden @ second + second_bias

    def update(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        """One step of each: inputs (K, B, 196), targets (K, B)."""
        logits = self.logits(inputs, train=True)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / targets.shape[1]
        gradients = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            for weight, speed, gradient in zip(self.weights, self.speeds, gradients, strict=True):
                speed.mul_(0.9).add_(gradient + self.decay * weight)
                weight -= self.lr * speed

    @torch.no_grad()
    def right(self, part: str, rows: torch.Tensor | slice = slice(None)) -> torch.Tensor:
        """bool (K, examples): which are classified right."""
        inputs, targets = features(part)[rows], data(part).targets[rows]
        chunks = zip(inputs.split(1_000), targets.split(1_000), strict=True)
        return torch.cat([self.logits(some[None]).argmax(2) == of for some, of in chunks], 1)


def trained(kind: str, repeat: int, num_steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """bool (candidates, 9,000) and (candidates, 2,000): right on the examples left out, and on the test examples."""
    generator = torch.Generator().manual_seed(derive_seed(repeat, kind))
    if kind == "guesses":
        shapes = (NUM_CANDIDATES, len(data("all").targets) - NUM_TRAIN), (NUM_CANDIDATES, len(data("test").targets))
        return tuple(torch.rand(shape, generator=generator) < 0.1 for shape in shapes)
    places = torch.randperm(len(data("all").targets), generator=generator)
    train, rest = places[:NUM_TRAIN], places[NUM_TRAIN:]
    candidates, looks = Candidates(kind, generator), []
    for step in range(1, num_steps + 1):
        batch = train[torch.randint(NUM_TRAIN, (len(candidates.lr), BATCH_SIZE), generator=generator)]
        candidates.update(features("all")[batch], data("all").targets[batch])
        is_look = step >= FIRST_LOOK and step % LOOK_EVERY == 0 and len(looks) < NUM_CANDIDATES
        if is_look if kind == "checkpoints" else step == num_steps:
            looks.append((candidates.right("all", rest), candidates.right("test")))
    return tuple(torch.cat(parts) for parts in zip(*looks, strict=True))


def chosen(left_out: torch.Tensor, test: torch.Tensor, size: int, generator: torch.Generator) -> list[dict[str, float]]:
    """One draw: {"val", "test", "once"} of the candidate chosen among the first 1, 2, 4 ... of a drawn order.

    test : float64 (candidates,), the accuracies on all test examples
    """
    places = torch.randperm(left_out.shape[1], generator=generator)[: 2 * size]
    order = torch.randperm(len(left_out), generator=generator)
    val, once = (left_out[:, part][order].double().mean(1) for part in places.split(size))
    truth, rows = test[order], []
    for count in COUNTS:
        best = int(val[:count].argmax())
        rows.append({"val": val[best].item(), "test": truth[best].item(), "once": once[best].item()})
    return rows


def run(kind: str, repeat: int, num_steps: int, draws: int) -> dict[str, Any]:
    """One repeat: {"means"[size][count]: figures, "first"[count]: the first draw's, "test": of all candidates}."""
    left_out, right = trained(kind, repeat, num_steps)
    test = right.double().mean(1)
    generator = torch.Generator().manual_seed(derive_seed(repeat, kind, "draws"))
    found: dict[str, Any] = {"means": {}, "test": test.tolist()}
    for size in SIZES:
        rows = [chosen(left_out, test, size, generator) for _ in range(draws)]
        found["means"][str(size)] = {str(count): figures([row[at] for row in rows]) for at, count in enumerate(COUNTS)}
        if size == ONE_DRAW_EXAMPLES:
            found["first"] = {str(count): rows[0][at] for at, count in enumerate(COUNTS)}
    return found


def figures(draws: list[dict[str, float]]) -> dict[str, float]:
    """The record's figures of some draws with one size and one number of candidates: means."""
    own = {name: statistics.fmean(row[name] for row in draws) for name in ("val", "test")}
    return own | {
        "optimism": own["val"] - own["test"],
        "once": statistics.fmean(row["once"] - row["test"] for row in draws),
        "above": statistics.fmean(row["val"] > row["test"] for row in draws),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """{size: {count: {figure: spread}}} over repeats."""
    return {
        size: {count: collect([row["means"][size][count] for row in runs]) for count in counts}
        for size, counts in runs[0]["means"].items()
    }


def first_draws(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """{figure: {count: [one value a repeat]}}."""
    return {
        name: {str(count): [round(row["first"][str(count)][name], 4) for row in runs] for count in COUNTS}
        for name in ("val", "test", "once")
    }


def report(cache: Any, *, repeats: int = REPEATS, num_steps: int = NUM_STEPS, draws: int = DRAWS) -> dict[str, Any]:
    runs = {kind: [cache.get(run, kind, repeat, num_steps, draws) for repeat in range(repeats)] for kind in KINDS}
    return {
        "results": {kind: summary(of) for kind, of in runs.items()},
        "one_draw": {kind: first_draws(of) for kind, of in runs.items()},
        "candidates": {kind: {"test": spread(of[0]["test"])} for kind, of in runs.items()},
    }


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "data": f"Fashion-MNIST at 14 x 14: {NUM_TRAIN} training examples, other ones in each repeat; validation parts "
        "from the other 9,000; 2,000 test examples",
        "net": f"one hidden layer of {HIDDEN}; SGD, momentum 0.9, batches of {BATCH_SIZE}, {NUM_STEPS} updates",
        "kinds": KINDS,
        "num_candidates": NUM_CANDIDATES,
        "sizes": SIZES,
        "counts": COUNTS,
        "repeats": REPEATS,
        "draws": DRAWS,
        "one_draw_examples": ONE_DRAW_EXAMPLES,
    }


def main(arguments: list[str] | None = None) -> None:
    program(
        "optimism",
        arguments,
        whole=lambda cache: {"setup": setup(), **report(cache)},
        quick=lambda cache: report(cache, repeats=2, num_steps=FIRST_LOOK + LOOK_EVERY, draws=2),
    )


if __name__ == "__main__":
    main()
