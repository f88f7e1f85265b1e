"""Warm-up: how long (claim C81), and which network needs it (claim C82).

    python -m benchmarks.warmup

writes `benchmarks/records/warmup.json`. Every run is warm-up, then half a cosine to 0, with AdamW.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.trainings import Cache, begin, collect, figures, plan_of, train
from course_utils.models import small_cnn

SHARES, SHARE_LRS = (0.0, 0.01, 0.05, 0.2), (3e-3, 1e-2, 3e-2)
NUM_STEPS, NUM_STEPS_MODELS, BATCH_SIZE = 600, 300, 64
MODEL_LRS = (1e-3, 3e-3, 1e-2, 3e-2)  # the last is too high for every model without a warm-up


class SmallAttention(nn.Module):
    """Four transformer layers over the 16 patches of 7 x 7 pixels; images float (B, 1, 28, 28) -> logits (B, 10).

    norm_first : layer norm before each block (pre-norm), or after the sum, as in the first transformer (post-norm)
    """

    def __init__(self, *, norm_first: bool, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(49, width)
        self.position = nn.Parameter(0.02 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = nn.functional.unfold(images, 7, stride=7).transpose(1, 2)
        return self.head(self.encoder(self.embed(patches) + self.position).mean(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "small_cnn": small_cnn,
    "attention, norm first": functools.partial(SmallAttention, norm_first=True),
    "attention, norm last": functools.partial(SmallAttention, norm_first=False),
}


def run(model: str, num_steps: int, lr: float, warmup_share: float, seed: int) -> dict[str, float]:
    """One training."""
    how = {"num_steps": num_steps, "batch_size": BATCH_SIZE, "seed": seed}
    plan = plan_of(num_steps, warmup_share=warmup_share)
    return figures(train(MODELS[model], functools.partial(torch.optim.AdamW, lr=lr), plan, **how))


def grid(cache: Cache, model: str, num_steps: int, lrs, shares, seeds) -> dict[str, Any]:
    """{lr: {warm-up share: {figure: mean, stdev, each}}}."""
    return {
        str(lr): {
            str(share): collect([cache.get(run, model, num_steps, lr, share, seed) for seed in seeds])
            for share in shares
        }
        for lr in lrs
    }


def main() -> None:
    cache = begin("warmup")
    shares = grid(cache, "small_cnn", NUM_STEPS, SHARE_LRS, SHARES, range(5))
    models = {name: grid(cache, name, NUM_STEPS_MODELS, MODEL_LRS, (0.0, 0.1), range(3)) for name in MODELS}
    sizes = {name: sum(param.numel() for param in build().parameters()) for name, build in MODELS.items()}
    setup = {
        "data": "embedded Fashion-MNIST part: 9,000 images to train, 2,000 to test",
        "optimizer": "AdamW, defaults but for the lr; warm-up, then half a cosine to 0",
        "batch_size": BATCH_SIZE,
        "num_parameters": sizes,
        "shares": {"num_steps": NUM_STEPS, "seeds": 5, "warmup_steps": {str(s): round(s * NUM_STEPS) for s in SHARES}},
        "models": {
            "num_steps": NUM_STEPS_MODELS,
            "seeds": 3,
            "warmup_steps": {"0.0": 0, "0.1": NUM_STEPS_MODELS // 10},
        },
        "diverged": "a run that became inf or NaN counts as guessing: loss ln 10, accuracy 0.1",
    }
    print(cache.store({"setup": setup, "shares": shares, "models": models}).name)


if __name__ == "__main__":
    main()
