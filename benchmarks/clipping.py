"""Must a recurrent network clip, and by norm or by value? (chapter 06, C83)

    python -m benchmarks.clipping

writes `benchmarks/records/clipping.json`; `--quick` tries it with a few updates and two seeds, and stores nothing.
Networks that predict the next character of the catalogue's captions are trained without clipping, by norm and by value,
each with SGD and with AdamW at several lrs. The validation loss after the last update is compared.

    results[net][optimizer][clip][lr], lr as text
        val_loss, train_loss : spreads; at the end, and mean of the last tenth of updates; a training that diverged (a
                               number that is not finite, or above guessing) counts as guessing
        diverged  : trainings, of all seeds, that did
        clipped   : spread of the share of updates in which clipping changed the gradient
        entries   : spread of the mean share of the gradient's entries at the bound (by value)
        norm_median, norm_max : spreads over seeds of the norm before clipping (null where none was finite)
    verdict[net][optimizer]
        best[clip]   : `lr` and `val_loss` (spread) at the lr with the least mean validation loss
        inside[clip] : that lr is neither the lowest nor the highest tried
        lower[clip]  : spread, seed by seed, of the best loss without clipping - that with it; above 0: clipping wins
        usable[clip] : lrs at which no training diverged and the mean loss is within 0.1 of the best of all
    cosines[net][bound] : of gradients of trainings without clipping (AdamW, every 10th update): `cosine`, spread over
        seeds of the mean cosine of the angle between clipped and raw; `least`, of all; `entries`, share cut, mean
    setup : nets, clips and bounds in words, data, lrs, updates, seeds, loss of guessing

A spread is {"mean", "stdev", "each"} over seeds. Bounds of `cosines` that cut nothing have a cosine of 1.
"""

from __future__ import annotations

import functools
import math
import statistics
from typing import Any

import torch
from torch import nn

from benchmarks.catalogue_tasks import NUM_PRODUCTS, WINDOW, Examples, alphabet, captions
from benchmarks.pieces import program
from benchmarks.trainings import LOSS_FN, fit_whole, initial, spread
from course_utils.loaders import ResumableLoader
from course_utils.optimizer_step import NonFiniteError, clip_effect
from course_utils.training_loop import Trainer, evaluate

NETS = {"RNN": nn.RNN, "GRU": nn.GRU}
OPTIMIZERS = {"SGD": functools.partial(torch.optim.SGD, momentum=0.9), "AdamW": torch.optim.AdamW}
LRS = {"SGD": (0.1, 0.3, 1.0, 3.0), "AdamW": (0.003, 0.01, 0.03, 0.1)}
CLIPS: dict[str, dict[str, float]] = {
    "none": {},
    "norm 1": {"max_norm": 1.0},
    "norm 0.25": {"max_norm": 0.25},
    "value 0.01": {"max_value": 0.01},
}
BOUNDS: dict[str, dict[str, float]] = {
    "norm 0.25": {"max_norm": 0.25},
    "largest entry 0.01, by norm_type inf": {"max_norm": 0.01, "norm_type": math.inf},
    "value 0.1": {"max_value": 0.1},
    "value 0.01": {"max_value": 0.01},
    "value 0.001": {"max_value": 0.001},
}
SEEDS, NUM_STEPS, BATCH_SIZE, WIDTH, LOOK_EVERY, LOOK_LR = (0, 1, 2, 3, 4), 200, 32, 64, 10, 0.003
NUM_VAL = 500  # windows


class CaptionNet(nn.Module):
    """Next character: embedding 16, a recurrent layer of 64, linear; int64 (B, T) -> logits (B, characters, T)."""

    def __init__(self, net: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(alphabet()), 16)
        self.recurrent = NETS[net](16, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, len(alphabet()))

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(self.embed(letters))[0]).transpose(1, 2)


class Watch:
    """The trainer's `on_step`: what clipping did to each update's gradient, as far as it can be seen afterwards."""

    def __init__(self, clip: dict[str, float]) -> None:
        self.clip, self.norms, self.clipped, self.entries = clip, [], [], []

    def __call__(self, trainer: Trainer, report: Any, keys: list) -> None:
        self.norms.append(report.grad_norm)
        share = share_at(gradients_of(trainer.model), self.clip.get("max_value", math.inf))
        self.entries.append(share)
        self.clipped.append(share > 0 or report.grad_norm > self.clip.get("max_norm", math.inf))


class Look:
    """The trainer's `on_step` of a training without clipping: what each bound would do to every 10th gradient."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[float, float]]] = {bound: [] for bound in BOUNDS}

    def __call__(self, trainer: Trainer, report: Any, keys: list) -> None:
        if trainer.step % LOOK_EVERY == 0:
            gradients = gradients_of(trainer.model)
            for bound, how in BOUNDS.items():
                entries = share_at(gradients, how.get("max_value", math.inf))
                self.found[bound].append((clip_effect(gradients, **how).cosine, entries))


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    return [param.grad for param in model.parameters()]


def share_at(gradients: list[torch.Tensor], bound: float) -> float:
    """Share of entries whose magnitude is the bound or above."""
    reached = sum(int((gradient.abs() >= bound).sum()) for gradient in gradients)
    return reached / sum(gradient.numel() for gradient in gradients)


def trained(net: str, optimizer: str, lr: float, seed: int, num_steps: int, clip: dict[str, float], on_step: Any):
    """The trainer after `num_steps` updates, or None where a loss or gradient was not finite."""
    model = initial(lambda: CaptionNet(net), seed)
    trainer = Trainer(model, OPTIMIZERS[optimizer](model.parameters(), lr=lr), LOSS_FN, on_step=on_step, **clip)
    try:
        return fit_whole(trainer, ResumableLoader(captions("train"), batch_size=BATCH_SIZE, seed=seed), num_steps)
    except NonFiniteError:
        return None


@functools.cache
def val_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    part: Examples = captions("val")
    return list(zip(part.inputs[:NUM_VAL].split(250), part.targets[:NUM_VAL].split(250), strict=True))


def run(net: str, optimizer: str, clip: str, lr: float, seed: int, num_steps: int) -> dict[str, Any]:
    """One training's figures."""
    watch, guessing = Watch(CLIPS[clip]), math.log(len(alphabet()))
    trainer = trained(net, optimizer, lr, seed, num_steps, CLIPS[clip], watch)
    losses = [math.inf] * 2
    if trainer is not None:
        last = [row["loss"] for row in trainer.history][-max(1, num_steps // 10) :]
        losses = [evaluate(trainer.model, val_batches(), LOSS_FN).loss, statistics.fmean(last)]
    norms = watch.norms
    return {
        "val_loss": min(losses[0], guessing),
        "train_loss": min(losses[1], guessing),
        "diverged": not losses[0] < guessing,
        "clipped": statistics.fmean(watch.clipped) if norms else 0.0,
        "entries": statistics.fmean(watch.entries) if norms else 0.0,
        "norm_median": statistics.median(norms) if norms else None,
        "norm_max": max(norms, default=None),
    }


def look(net: str, seed: int, num_steps: int) -> dict[str, dict[str, float]]:
    """{bound: mean and least cosine, mean share of entries cut} in one training without clipping."""
    watch = Look()
    trained(net, "AdamW", LOOK_LR, seed, num_steps, {}, watch)
    found = {}
    for bound, pairs in watch.found.items():
        cosines, entries = zip(*pairs, strict=True)
        means = {"cosine": statistics.fmean(cosines), "entries": statistics.fmean(entries)}
        found[bound] = means | {"least": min(cosines)}
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Spreads over seeds."""
    found: dict[str, Any] = {"diverged": sum(row["diverged"] for row in runs)}
    for name in ("val_loss", "train_loss", "clipped", "entries", "norm_median", "norm_max"):
        values = [row[name] for row in runs]
        found[name] = None if None in values else spread(values)
    return found


def verdict(of: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a reader wants to know of {clip: {lr: summary}}."""
    best = {clip: min(lrs, key=lambda lr: lrs[lr]["val_loss"]["mean"]) for clip, lrs in of.items()}
    losses = {clip: of[clip][lr]["val_loss"] for clip, lr in best.items()}
    bar = min(loss["mean"] for loss in losses.values()) + 0.1
    found: dict[str, Any] = {"best": {}, "inside": {}, "lower": {}, "usable": {}}
    for clip, lrs in of.items():
        found["best"][clip] = {"lr": float(best[clip]), "val_loss": losses[clip]}
        found["inside"][clip] = list(lrs)[0] != best[clip] != list(lrs)[-1]
        pairs = zip(losses["none"]["each"], losses[clip]["each"], strict=True)
        found["lower"][clip] = spread([without - own for without, own in pairs])
        fine = [lr for lr, row in lrs.items() if not row["diverged"] and row["val_loss"]["mean"] <= bar]
        found["usable"][clip] = [float(lr) for lr in fine]
    return found


def report(cache: Any, *, nets=tuple(NETS), lrs=LRS, seeds=SEEDS, num_steps=NUM_STEPS) -> dict[str, Any]:
    """`results`, `verdict` and `cosines` of the record."""
    results: dict[str, Any] = {net: {optimizer: {} for optimizer in lrs} for net in nets}
    for net, optimizers in results.items():
        for optimizer, clips in optimizers.items():
            for clip in CLIPS:
                clips[clip] = {
                    str(lr): summary([cache.get(run, net, optimizer, clip, lr, seed, num_steps) for seed in seeds])
                    for lr in lrs[optimizer]
                }
    cosines = {}
    for net in nets:
        looks = [cache.get(look, net, seed, num_steps) for seed in seeds]
        cosines[net] = {
            bound: {
                "cosine": spread([found[bound]["cosine"] for found in looks]),
                "least": round(min(found[bound]["least"] for found in looks), 4),
                "entries": round(statistics.fmean(found[bound]["entries"] for found in looks), 4),
            }
            for bound in BOUNDS
        }
    judged = {net: {name: verdict(of) for name, of in optimizers.items()} for net, optimizers in results.items()}
    return {"results": results, "verdict": judged, "cosines": cosines}


def setup() -> dict[str, Any]:
    """What the figures need beside them to be read."""
    return {
        "data": f"captions of make_catalogue(num_products={NUM_PRODUCTS}, seed=0), split by product, in windows of "
        f"{WINDOW} characters; {NUM_VAL} windows judge",
        "net": f"embedding 16, one recurrent layer of {WIDTH}, linear; PyTorch's initial weights",
        "optimizers": {"SGD": "momentum 0.9", "AdamW": "PyTorch's betas and weight decay"},
        "clips": CLIPS,
        "lrs": LRS,
        "num_steps": NUM_STEPS,
        "batch_size": BATCH_SIZE,
        "guessing": round(math.log(len(alphabet())), 4),
        "seeds": SEEDS,
    }


def main(arguments: list[str] | None = None) -> None:
    few = {"nets": ("RNN",), "lrs": {"SGD": (0.1,), "AdamW": (0.001,)}, "seeds": SEEDS[:2], "num_steps": 2}
    program(
        "clipping",
        arguments,
        whole=lambda cache: {"setup": setup(), **report(cache)},
        quick=lambda cache: report(cache, **few),
    )


if __name__ == "__main__":
    main()
