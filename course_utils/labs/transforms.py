"""Chapter 02's experiment: the augmentation studio. Change photos in several ways; a model must still name them.

What it computes is `transforms_view`'s; here are its sliders, words, picture and goal.
"""

from __future__ import annotations

import io
from html import escape

import torch

from course_utils import figures
from course_utils.datasets import ArrayDataset
from course_utils.labs.bench import Bench, picture
from course_utils.labs.knobs import choice, number
from course_utils.labs.panel import Goal, Still
from course_utils.labs.transforms_view import LEAST_CHANGE, NUM_PHOTOS, SLIDERS, View, code, look, studio_photos

LEAST_KINDS, LEAST_SHARE, SHOWN = 4, 0.85, 12


def reached(view: View) -> bool:
    """Changed in several ways, each of which changes something, and still recognised."""
    return view.kinds >= LEAST_KINDS and view.share >= LEAST_SHARE


def words(view: View) -> str:
    """The numbers of a view in one line."""
    return (
        f"the reference model still recognises {view.share:.0%} ({view.recognised} of {len(view.classes)}) "
        f"\u00b7 mean pixel change {view.change:.1f} of 255 \u00b7 kinds that change {LEAST_CHANGE} or more: "
        f"{view.kinds}"
    )


def each_alone(view: View) -> str:
    """What each transform does by itself: how far it changes the photos, and what it costs. Plain text."""
    lines = [
        f"{name}: change {change:.1f}{'' if change >= LEAST_CHANGE else ' (does not count)'}, {share:.0%} recognised"
        for name, (change, share) in view.alone.items()
    ]
    return "Each kind alone: " + (" \u00b7 ".join(lines) or "none is switched on")


def picture_of(view: View) -> str:
    """Each kind alone; the first photos, as they were and are, with the model's verdict; the code. HTML."""
    tiles = "".join(_tile(view, place) for place in range(min(SHOWN, len(view.classes))))
    grid = f'<div style="display:flex;flex-wrap:wrap;gap:6px 8px;line-height:1.3">{tiles}</div>'
    look = "background:#f5f5f5;padding:6px 8px;margin:8px 0 0 0;line-height:1.35;white-space:pre-wrap"
    alone = f'<div class="studio-alone" style="margin:4px 0 8px 0">{escape(each_alone(view))}</div>'
    return f'{alone}{grid}<pre class="studio-code" style="{look}">{escape(code(view.settings))}</pre>'


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
    views = [look(settings, photos=photos) for settings in ({}, {"light": 0.4}, {"turn": 45})]
    titles = [guess for view in views for guess in view.guesses[:6]]
    fig = figures.image_grid([image for view in views for image in view.images[:6]], titles)
    _, light, turn = views
    fewer = "fewer" if turn.recognised < light.recognised else "not fewer"
    alt = (
        "Six photos as they are, with brightness and contrast changed by up to 0.4, and turned by up to 45 degrees. "
        "The titles are what the reference model says. "
        f"Of the turned photos, which also have black corners, it recognises {fewer}."
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

    goal = (
        f"{LEAST_KINDS} kinds at once, each with a mean pixel change of {LEAST_CHANGE} or more by itself, "
        f"{LEAST_SHARE:.0%} still recognised"
    )
    return Bench(
        "transforms",
        compute,
        say=words,
        draw=picture_of,
        still=_still(photos),
        knobs=[*knobs.values(), seed],
        goal=Goal(goal, reached),
        height=370,
    )
