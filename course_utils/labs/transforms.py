"""Chapter 02's experiment: the augmentation studio. Change photos as much as you can; a model must still name them.

The photos and the model are `course_utils.reference_model`'s, the transforms torchvision's v2; here they are joined.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, NamedTuple

import torch

from course_utils import figures
from course_utils.datasets import ArrayDataset
from course_utils.labs.bench import Bench, picture
from course_utils.labs.knobs import choice, number
from course_utils.labs.panel import Goal, Still
from course_utils.randomness import BatchKey, derive_seed, seed_generators
from course_utils.reference_model import SIZE, reference_photos, still_recognised

LEAST_KINDS, LEAST_CHANGE, LEAST_SHARE = 4, 20, 0.85
NUM_PHOTOS, SHOWN = 160, 12
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
    """

    settings: dict[str, float]
    originals: torch.Tensor
    images: torch.Tensor
    classes: list[str]
    guesses: list[str]

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
        """Transforms that are switched on."""
        return len(stages(self.settings))

    @property
    def change(self) -> float:
        """How far a value lies from where it was, mean over all pixels and channels; 0 .. 255."""
        return (self.images.float() - self.originals.float()).abs().mean().item()


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
    key = BatchKey(seed, 0, 0, list(range(len(photos))), [0] * len(photos))
    images = photos.replace_transforms(pipeline(settings), None).take(key)[0]
    changed = ArrayDataset(images, photos.targets, classes=photos.classes)
    guesses = still_recognised(None, changed).predicted[0].tolist()
    classes = [photos.classes[target] for target in photos.targets.tolist()]
    return View(dict(settings), photos.images, images, classes, [photos.classes[guess] for guess in guesses])


def reached(view: View) -> bool:
    """Changed in several ways, changed much, and still recognised."""
    return view.kinds >= LEAST_KINDS and view.change >= LEAST_CHANGE and view.share >= LEAST_SHARE


def words(view: View) -> str:
    """The numbers of a view in one line."""
    return (
        f"the reference model still recognises {view.share:.0%} ({view.recognised} of {len(view.classes)}) "
        f"\u00b7 mean pixel change {view.change:.1f} of 255 \u00b7 kinds: {view.kinds}"
    )


def picture_of(view: View) -> str:
    """The first photos, each as it was and as it is, with the model's verdict; below them the code. HTML."""
    tiles = "".join(_tile(view, place) for place in range(min(SHOWN, len(view.classes))))
    grid = f'<div style="display:flex;flex-wrap:wrap;gap:6px 8px;line-height:1.3">{tiles}</div>'
    look = "background:#f5f5f5;padding:6px 8px;margin:8px 0 0 0;line-height:1.35;white-space:pre-wrap"
    return f'{grid}<pre class="studio-code" style="{look}">{escape(code(view.settings))}</pre>'


def _tile(view: View, place: int) -> str:
    name, guess = view.classes[place], view.guesses[place]
    verdict = f"\u2713 {name}" if name == guess else f"\u2717 {guess}?"
    before = picture(_jpeg(view.originals[place]), f"{name} as it was", width=32)
    after = picture(_jpeg(view.images[place]), f"{name} after the transforms: named {guess}", width=64)
    color = figures.RIGHT if name == guess else figures.WRONG
    return f'<div style="width:100px">{before}{after}<br><span style="color:{color}">{escape(verdict)}</span></div>'


def _jpeg(image: torch.Tensor) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(file, "JPEG", quality=90)
    return file.getvalue()


def _still(photos: ArrayDataset) -> Still:
    """Six photos, as they are and under two settings; its words are decided facts."""
    rows: Sequence[tuple[str, dict[str, float]]] = (
        ("as it is", {}),
        ("light 0.4", {"light": 0.4}),
        ("turn 45", {"turn": 45}),
    )
    views = [look(settings, photos=photos) for _, settings in rows]
    titles = [name for name, _ in rows for _ in range(6)]
    fig = figures.image_grid([image for view in views for image in view.images[:6]], titles)
    _, light, turn = views
    alt = (
        "Six photos as they are, with brightness and contrast changed by up to 0.4, and turned by up to 45 degrees. "
        f"Turned, the reference model recognises fewer than with changed light: {turn.recognised < light.recognised}."
    )
    return Still(fig, alt)


def augmentation_lab(*, num_photos: int = NUM_PHOTOS) -> Bench:
    """Seven augmentations to turn up, on photos that the reference model recognises as they are.

    num_photos : of the reference photos, before those are left out that the model does not recognise
    """
    photos = studio_photos(num_photos)
    knobs = {
        name: number(label, off, low=low, high=high, step=step, calm=True)
        for name, (label, off, low, high, step) in SLIDERS.items()
    }
    seed = choice("Draws", {f"seed {seed}": seed for seed in range(5)}, 0)

    def compute() -> View:
        return look({name: knob.value for name, knob in knobs.items()}, photos=photos, seed=seed.value)

    goal = f"{LEAST_KINDS} kinds at once, pixel change of {LEAST_CHANGE} or more, {LEAST_SHARE:.0%} still recognised"
    return Bench(
        "transforms",
        compute,
        say=words,
        draw=picture_of,
        still=_still(photos),
        knobs=[*knobs.values(), seed],
        goal=Goal(goal, reached),
        height=340,
    )
