"""What is in the catalogue: products, photos, places, captions; a function of (num_products, seed).

All of it is decided in integers by Python's own generator, so it is the same on any machine. No file is written here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from course_utils.catalogue_photos import GROUNDS, TEXTURE, TINTS, item_window
from course_utils.data import FASHION_PART
from course_utils.randomness import derive_seed

# in the order of Fashion-MNIST's labels: the folder's name, and what a caption calls it
CLASSES = {
    "t-shirt": "t-shirt", "trouser": "pair of trousers", "pullover": "pullover", "dress": "dress", "coat": "coat",
    "sandal": "sandal", "shirt": "shirt", "sneaker": "sneaker", "bag": "bag", "ankle-boot": "ankle boot",
}  # fmt: skip
LONG_TAIL = ("sneaker", "t-shirt", "bag", "dress", "trouser", "ankle-boot", "pullover", "coat", "sandal", "shirt")
SIZES = ((96, 96), (104, 88), (88, 104), (112, 96), (96, 112))  # (width, height)


@cache
def catalogue_items() -> tuple[np.ndarray, np.ndarray]:
    """The embedded training split: images uint8 (10000, 28, 28), labels uint8 (10000,)."""
    with np.load(FASHION_PART, allow_pickle=False) as part:
        return part["train_images"], part["train_labels"]


def class_counts(num_products: int) -> dict[str, int]:
    """Products of each class, 1 : 1/2 : 1/3 ...; at least one of each where there are ten or more."""
    weights = [2520 // rank for rank in range(1, 11)]  # 2520 divides by 1 .. 10: no rounding differs between machines
    floor = 1 if num_products >= len(weights) else 0
    free = num_products - floor * len(weights)
    counts = [floor + free * weight // sum(weights) for weight in weights]
    for rank in range(num_products - sum(counts)):
        counts[rank] += 1
    return dict(zip(LONG_TAIL, counts, strict=True))


def plan_photos(num_products: int, seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """For each photo its row of the index, and the arguments of `draw_photo`."""
    rng = random.Random(derive_seed("catalogue", seed, num_products))  # Python's own: the same integers everywhere
    labels = catalogue_items()[1]
    products = []
    for name, count in class_counts(num_products).items():
        candidates = np.flatnonzero(labels == list(CLASSES).index(name)).tolist()
        products += [(name, item) for item in rng.sample(candidates, count)]
    rng.shuffle(products)
    for product, (name, item) in enumerate(products):
        yield from plan_product(product, name, item, rng)


def plan_product(
    product: int, name: str, item: int, rng: random.Random
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """1 to 3 photos of one product: same item and tint; another ground, place, scale and light each time."""
    tint, num_photos = rng.choice(list(TINTS)), rng.randint(1, 3)
    grounds = rng.sample(list(GROUNDS), num_photos)
    for photo, ground in enumerate(grounds):
        width, height = rng.choice(SIZES)
        box = _place(catalogue_items()[0][item], width, height, rng)
        light = (rng.randint(-10, 10), rng.randint(-10, 10))
        corner = (rng.randrange(TEXTURE - width), rng.randrange(TEXTURE - height))
        row = {
            "path": f"{name}/{product:05d}_{photo}.jpg", "label": name, "target": sorted(CLASSES).index(name),
            "product": product, "photo": photo, "width": width, "height": height, "box": list(box),
            "caption": _caption(f"{tint} {CLASSES[name]}", ground, box, width, light, rng), "item": item,
        }  # fmt: skip
        drawing = {"size": (width, height), "box": box, "tint": tint, "ground": ground}
        yield row, {**drawing, "corner": corner, "light": light}


def _place(item: np.ndarray, width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """The box of the item: its longer side 44 to 80 pixels, its shape kept, at least 3 pixels from the border."""
    x0, y0, x1, y1 = item_window(item)
    longer, shape = rng.randint(44, 80), max(x1 - x0, y1 - y0)
    box_width, box_height = (max(8, side * longer // shape) for side in (x1 - x0, y1 - y0))
    left, top = rng.randint(3, width - box_width - 3), rng.randint(3, height - box_height - 3)
    return left, top, left + box_width, top + box_height


def _caption(
    what: str, ground: str, box: tuple[int, ...], width: int, light: tuple[int, int], rng: random.Random
) -> str:
    """From "a red bag" to "a small red bag on grey linen, at the left, light from above"; every word is true."""
    longer = max(box[2] - box[0], box[3] - box[1])
    scale = "small " if longer < 54 else "large " if longer >= 70 else ""
    middle = (box[0] + box[2]) * 50 // width  # per cent of the width
    place = "at the left" if middle < 40 else "at the right" if middle > 60 else "in the middle"
    words, detail = [f" on {ground}", f", {place}", f", light from {_direction(*light)}"], rng.randint(0, 4)
    return f"a {scale if detail >= 2 else ''}{what}" + "".join(words[: detail if detail < 2 else detail - 1])


def _direction(x: int, y: int) -> str:
    if abs(y) >= abs(x):
        return "above" if y <= 0 else "below"
    return "the left" if x < 0 else "the right"
