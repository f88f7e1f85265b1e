"""Remake `reference_model.npz` and `reference_model.json`: train the reference model on catalogue photos.

    python -m course_utils.data.make_reference_model [OUTPUT.npz]

About four minutes on one CPU core. The photos are drawn in memory. The items are split first (`split_items`), so no
held-out photo shows an item that the model was trained on. Photos differ in place, size, light and ground as the
catalogue's do. The only augmentation is a shift by up to 4 pixels: no photo is mirrored, turned, cut out or recoloured,
so that the model can be asked about these.
The same arguments, torch version and processor give the same bits.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import pad

from course_utils.data import REFERENCE_MODEL
from course_utils.datasets import ArrayDataset
from course_utils.randomness import isolated_rng, seed_generators
from course_utils.reference_model import ReferenceCNN, draw_photos, split_items

SHIFT = 4  # pixels


def train_reference_model(
    photos: ArrayDataset, *, num_epochs: int, batch_size: int = 128, peak_lr: float = 0.01, seed: int = 0
) -> ReferenceCNN:
    """A model trained on the photos: AdamW, one cycle, smoothed labels, shifts; returned in eval mode.

    photos : images uint8 (N, 3, 64, 64), as `draw_photos` makes them; N >= batch_size
    """
    with isolated_rng():
        seed_generators(seed)
        model = ReferenceCNN().to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, weight_decay=0.05)
        steps_per_epoch = len(photos) // batch_size
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak_lr, total_steps=num_epochs * steps_per_epoch)
        loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
        for _ in range(num_epochs):
            for places in torch.randperm(len(photos))[: steps_per_epoch * batch_size].split(batch_size):
                optimizer.zero_grad()
                loss_fn(model(_shifted(photos.images[places])), photos.targets[places]).backward()
                optimizer.step()
                scheduler.step()
    return model.eval()


def _shifted(images: torch.Tensor) -> torch.Tensor:
    """A whole batch, moved by -4 .. 4 pixels down and right; what comes in at the border is mirrored."""
    down, right = torch.randint(2 * SHIFT + 1, (2,)).tolist()
    padded = pad(images.float() / 255, (SHIFT,) * 4, mode="reflect")
    return padded[:, :, down : down + images.shape[2], right : right + images.shape[3]]


@torch.inference_mode()
def accuracy(model: nn.Module, photos: ArrayDataset) -> float:
    """Share of the photos whose class the model names."""
    hits = [model(images).argmax(1) == targets for images, targets in _batches(photos)]
    return torch.cat(hits).double().mean().item()


def _batches(photos: ArrayDataset):
    return zip(photos.images.split(500), photos.targets.split(500), strict=True)


def save(model: ReferenceCNN, recipe: dict[str, Any], path: Path) -> None:
    """Weights as arrays, without pickle; the recipe beside them."""
    np.savez(path, **{name: value.numpy() for name, value in model.state_dict().items()})
    path.with_suffix(".json").write_text(json.dumps(recipe, indent=1) + "\n", encoding="utf-8", newline="\n")


def make(path: Path, *, num_epochs: int = 10, photos_per_item: int = 3, seed: int = 0) -> dict[str, Any]:
    """Draw the photos, train, measure on the held-out photos, save; returns the recipe."""
    torch.set_num_threads(1)
    train_items, held_out = split_items()
    photos = draw_photos(train_items, seed=seed + 1, photos_per_item=photos_per_item)
    model = train_reference_model(photos, num_epochs=num_epochs, seed=seed)
    recipe = {
        "arguments": {"num_epochs": num_epochs, "photos_per_item": photos_per_item, "seed": seed},
        "augmentation": f"shifts of up to {SHIFT} pixels",
        "train_photos": len(photos),
        "held_out_items": len(held_out),
        "train_accuracy": round(accuracy(model, photos), 4),
        "held_out_accuracy": round(accuracy(model, draw_photos(held_out, seed=seed)), 4),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
    }
    save(model, recipe, path)
    return recipe


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    print(json.dumps(make(Path(sys.argv[1]) if len(sys.argv) == 2 else REFERENCE_MODEL), indent=1))
