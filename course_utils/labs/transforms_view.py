"""What chapter 02's experiment computes: photos after a pipeline of sliders, and how a model names them.

The photos and the model are `course_utils.reference_model`'s, the transforms torchvision's v2; here they are joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from course_utils.datasets import ArrayDataset
from course_utils.randomness import BatchKey, derive_seed, seed_generators
from course_utils.reference_model import SIZE, reference_photos, still_recognised

LEAST_CHANGE, NUM_PHOTOS = 5, 160
# name: label of the slider, value that leaves the photo alone, low, high, step
SLIDERS = {
    "flip": ("Flip (share)", 0.0, 0.0, 1.0, 0.25),
    "crop": ("Crop (keeps)", 1.0, 0.2, 1.0, 0.1),
    "turn": ("Rotation (\u00b0)", 0, 0, 90, 5),
    "light": ("Light (\u00b1)", 0.0, 0.0, 0.9, 0.1),
    "hue": ("Hue (\u00b1)", 0.0, 0.0, 0.5, 0.05),
    "blur": ("Blur (sigma)", 0.0, 0.0, 3.0, 0.5),
    "erase": ("Erase (part)", 0.0, 0.0, 0.4, 0.05),
}
NOTHING = {name: slider[1] for name, slider in SLIDERS.items()}


class View(NamedTuple):
    """Photos after a pipeline, and what the reference model says to them.

    settings   : the sliders' values
    originals  : uint8 (N, 3, 64, 64)
    images     : the same after the pipeline
    classes    : name of each photo's class
    guesses    : name that the model gives to each image
    alone      : kind -> (change, share) of the photos after this one transform, for those that are switched on
    """

    settings: dict[str, float]
    originals: torch.Tensor
    images: torch.Tensor
    classes: list[str]
    guesses: list[str]
    alone: dict[str, tuple[float, float]]

    @property
    def recognised(self) -> int:
        """Photos that the model still names right."""
        return sum(name == guess for name, guess in zip(self.classes, self.guesses, strict=True))

    @property
    def share(self) -> float:
        """The same, of all photos."""
        return self.recognised / len(self.classes)

    @property
    def kinds(self) -> int:
        """Transforms that count: each by itself changes the photos by LEAST_CHANGE or more."""
        return sum(change >= LEAST_CHANGE for change, _ in self.alone.values())

    @property
    def change(self) -> float:
        """How far a value lies from where it was, mean over all pixels and channels; 0 .. 255."""
        return _change(self.images, self.originals)


def _change(images: torch.Tensor, originals: torch.Tensor) -> float:
    return (images.float() - originals.float()).abs().mean().item()


@cache
def studio_photos(num_photos: int = NUM_PHOTOS) -> ArrayDataset:
    """Of the reference photos those that the model names right as they are: what it loses, the pipeline took."""
    photos = reference_photos(num_photos)
    known = still_recognised(None, photos).recognised[0]
    return ArrayDataset(photos.images[known], photos.targets[known], classes=photos.classes)


def stages(settings: Mapping[str, float]) -> dict[str, tuple[str, dict[str, Any]]]:
    """The transforms that these settings switch on, in order: name -> (class of v2, its arguments)."""
    values = {name: round(value, 2) for name, value in {**NOTHING, **settings}.items()}
    light, hue = values["light"], values["hue"]
    every = {
        "flip": ("RandomHorizontalFlip", {"p": values["flip"]}),
        "crop": ("RandomResizedCrop", {"size": SIZE, "scale": (values["crop"], 1.0)}),
        "turn": ("RandomRotation", {"degrees": values["turn"]}),
        "light": ("ColorJitter", {"brightness": light, "contrast": light}),
        "hue": ("ColorJitter", {"hue": hue}),
        "blur": ("GaussianBlur", {"kernel_size": 9, "sigma": (0.1, values["blur"])}),
        "erase": ("RandomErasing", {"p": 0.5, "scale": (values["erase"], values["erase"])}),
    }
    return {name: made for name, made in every.items() if values[name] != NOTHING[name]}


def code(settings: Mapping[str, float]) -> str:
    """The pipeline as Python, to be copied; needs `from torchvision.transforms import v2`."""
    lines = [
        f"    v2.{kind}({', '.join(f'{name}={value!r}' for name, value in arguments.items())}),\n"
        for kind, arguments in stages(settings).values()
    ]
    return f"v2.Compose([\n{''.join(lines)}])" if lines else "v2.Identity()"


class Pipeline:
    """The stages one after another, each with draws of its own: a slider that moves leaves the others' draws alone.

    transforms : name -> transform of one image
    """

    def __init__(self, transforms: Mapping[str, Any]) -> None:
        self.transforms = dict(transforms)

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        seed = torch.initial_seed()  # `keyed_examples` seeded the generators for this photo
        for name, transform in self.transforms.items():
            seed_generators(derive_seed(seed, name))
            image = transform(image)
        return image


def pipeline(settings: Mapping[str, float]) -> Pipeline:
    """What `code(settings)` says, with a name for each stage."""
    from torchvision.transforms import v2

    return Pipeline({name: getattr(v2, kind)(**how) for name, (kind, how) in stages(settings).items()})


def look(settings: Mapping[str, float], *, photos: ArrayDataset, seed: int = 0) -> View:
    """Photos after the pipeline, and how the model names them; a function of its arguments.

    settings : some of `SLIDERS`; the others leave the photos alone
    raises   : ValueError for a name that is no slider
    """
    unknown = sorted(set(settings) - set(SLIDERS))
    if unknown:
        raise ValueError(f"settings must be of {', '.join(SLIDERS)}; got {', '.join(unknown)}")
    images, guesses = _ask(settings, photos, seed)
    whole = (_change(images, photos.images), (guesses == photos.targets).double().mean().item())
    on = list(stages(settings))
    alone = {name: _alone(name, settings[name], photos, seed) if len(on) > 1 else whole for name in on}
    classes = [photos.classes[target] for target in photos.targets.tolist()]
    names = [photos.classes[guess] for guess in guesses.tolist()]
    return View(dict(settings), photos.images, images, classes, names, alone)


def _ask(settings: Mapping[str, float], photos: ArrayDataset, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The photos after the pipeline, and the number of the class that the model gives to each."""
    key = BatchKey(seed, 0, 0, list(range(len(photos))), [0] * len(photos))
    images = photos.replace_transforms(pipeline(settings), None).take(key)[0]
    changed = ArrayDataset(images, photos.targets, classes=photos.classes)
    return images, still_recognised(None, changed).predicted[0]


@lru_cache(maxsize=100)
def _alone(name: str, value: float, photos: ArrayDataset, seed: int) -> tuple[float, float]:
    """(change, share) after one transform by itself; kept, for a slider that moves leaves the others' as they are."""
    images, guesses = _ask({name: value}, photos, seed)
    return _change(images, photos.images), (guesses == photos.targets).double().mean().item()
