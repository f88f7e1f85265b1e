"""Draw a photo of a Fashion-MNIST item: tinted, scaled, lit, with a shadow, on a textured ground.

Where things are is decided elsewhere, in integers (`catalogue_plan`); here the pixels are drawn. Only they may
differ, in their last bit, between machines.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image, ImageFilter

from course_utils.randomness import derive_seed

TINTS = {
    "red": (196, 44, 46), "blue": (48, 84, 178), "green": (46, 128, 74), "mustard": (218, 166, 40),
    "black": (62, 62, 68), "white": (240, 238, 232), "violet": (128, 72, 160), "teal": (34, 140, 148),
    "pink": (226, 138, 160), "brown": (128, 84, 54),
}  # fmt: skip

GROUNDS = {
    "grey linen": ("linen", (172, 170, 166)), "beige linen": ("linen", (212, 198, 172)),
    "blue linen": ("linen", (142, 160, 184)), "oak planks": ("planks", (190, 150, 104)),
    "walnut planks": ("planks", (116, 82, 58)), "white planks": ("planks", (214, 210, 202)),
    "pale concrete": ("concrete", (188, 188, 186)), "dark concrete": ("concrete", (112, 114, 118)),
    "sand carpet": ("carpet", (196, 176, 142)), "moss carpet": ("carpet", (118, 126, 90)),
}  # fmt: skip

INK = 20  # of 255: from here on a pixel belongs to the item, below it to the empty ground
TEXTURE = 320  # height and width of a texture; photos show a part of it


def item_window(item: np.ndarray) -> tuple[int, int, int, int]:
    """The smallest window (x0, y0, x1, y1) that holds the item; ends excluded.

    item : uint8 (28, 28), 0 where there is nothing
    """
    rows, columns = np.flatnonzero((item >= INK).any(1)), np.flatnonzero((item >= INK).any(0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def draw_photo(
    item: np.ndarray,
    *,
    size: tuple[int, int],
    box: tuple[int, int, int, int],
    tint: str,
    ground: str,
    corner: tuple[int, int],
    light: tuple[int, int],
) -> Image.Image:
    """The photo, RGB.

    item   : uint8 (28, 28) of Fashion-MNIST
    size   : (width, height) in pixels
    box    : (x0, y0, x1, y1): the item fills it, ends excluded
    tint   : a key of TINTS
    ground : a key of GROUNDS
    corner : which part of the ground is seen, 0 .. TEXTURE - side
    light  : (x, y), -10 .. 10 each: where it comes from; the shadow falls the other way
    """
    cover, shade = _cut_out(item, (box[2] - box[0], box[3] - box[1]))
    scene = _ground(ground, size, corner) * _light(size, light)
    scene *= 1 - _shadow(cover, size, box, light)
    inside = np.s_[box[1] : box[3], box[0] : box[2]]
    colour = np.array(TINTS[tint], np.float32) * shade[..., None]
    scene[inside] += cover[..., None] * (colour - scene[inside])
    scene += 1.6 * _noise()[: size[1], : size[0], None]
    return Image.fromarray(np.clip(scene, 0, 255).astype(np.uint8))


def _cut_out(item: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Cover (0 .. 1) and shade (0.4 .. 1.2) of the item at `size`, both float32 (height, width)."""
    x0, y0, x1, y1 = item_window(item)
    padded, window = np.pad(item, 2), (x0 + 2, y0 + 2, x1 + 2, y1 + 2)
    solid = _solid(padded)
    scale = size[0] / (x1 - x0)
    cover = _enlarge(solid, size, window).filter(
        ImageFilter.GaussianBlur(0.45 * scale)
    )  # rounds the old pixels' corners
    cover = np.clip((np.asarray(cover, np.float32) / 255 - 0.45) * max(1.5, 1.3 * scale) + 0.5, 0, 1)
    value, core = _value(padded, solid)
    tone = np.asarray(_enlarge(value, size, window), np.float32)
    low, high = np.percentile(np.asarray(value)[core], (5, 95))
    tone = (tone - (low + high) / 2) / max(high - low, 60)
    return cover, np.clip(0.92 + 0.42 * tone, 0.4, 1.2)


def _solid(padded: np.ndarray) -> Image.Image:
    """How far each old pixel belongs to the item, 0 .. 255; a dark print inside, one pixel wide, is no hole."""
    soft = np.clip(padded.astype(np.int32) * 255 // 48, 0, 255).astype(np.uint8)
    around = np.asarray(Image.fromarray(soft).filter(ImageFilter.BoxBlur(1)))
    return Image.fromarray(np.where(around > 186, 255, soft).astype(np.uint8))  # 186: seven of nine


def _value(padded: np.ndarray, solid: Image.Image) -> tuple[Image.Image, np.ndarray]:
    """The item's own brightness, and where it is sure.

    An edge pixel is half empty, hence dark: it gets its brightest neighbour's value, or items have a black outline.
    """
    core = np.asarray(solid.filter(ImageFilter.MinFilter(3))) > 127
    grown = np.asarray(Image.fromarray(padded).filter(ImageFilter.MaxFilter(3)))
    value = np.where(core & (padded >= 60), padded, np.maximum(padded, grown))
    return Image.fromarray(value), core if core.any() else padded >= INK


def _enlarge(image: Image.Image, size: tuple[int, int], window: tuple[int, int, int, int]) -> Image.Image:
    return image.resize(size, Image.Resampling.BICUBIC, box=window)


def _shadow(
    cover: np.ndarray, size: tuple[int, int], box: tuple[int, int, int, int], light: tuple[int, int]
) -> np.ndarray:
    """How much light the item takes away, 0 .. 1, (height, width, 1): soft, and away from the light."""
    shape = Image.new("L", size)
    offset = (box[0] - round(light[0] * 0.35), box[1] + 2 - round(light[1] * 0.2))
    shape.paste(Image.fromarray((cover * 255).astype(np.uint8)), offset)
    soft = np.asarray(shape.filter(ImageFilter.GaussianBlur(3)), np.float32)
    return soft[..., None] * (0.5 / 255)


def _light(size: tuple[int, int], light: tuple[int, int]) -> np.ndarray:
    """Brightness (height, width, 1), about 0.8 .. 1.15: a slope towards the light, darker corners."""
    x = np.linspace(-1, 1, size[0], dtype=np.float32)[None, :]
    y = np.linspace(-1, 1, size[1], dtype=np.float32)[:, None]
    return (1.03 + 0.011 * (light[0] * x + light[1] * y) - 0.07 * (x**2 + y**2))[..., None]


def _ground(name: str, size: tuple[int, int], corner: tuple[int, int]) -> np.ndarray:
    """float32 (height, width, 3): a part of the ground's texture."""
    kind, colour = GROUNDS[name]
    texture = _texture(kind)[corner[1] : corner[1] + size[1], corner[0] : corner[0] + size[0]]
    return np.array(colour, np.float32) * texture[..., None]


def _random(name: str) -> np.random.Generator:
    return np.random.default_rng(derive_seed("catalogue", name))


@cache
def _noise() -> np.ndarray:
    return _random("noise").normal(size=(TEXTURE, TEXTURE)).astype(np.float32)


def _cloud(rng: np.random.Generator, cells_x: int, cells_y: int) -> np.ndarray:
    """Smooth noise (TEXTURE, TEXTURE), mean 0, std 1, with that many hills across and down."""
    coarse = Image.fromarray(rng.uniform(0, 255, (cells_y, cells_x)).astype(np.uint8))
    fine = np.asarray(coarse.resize((TEXTURE, TEXTURE), Image.Resampling.BICUBIC), np.float32)
    return (fine - fine.mean()) / fine.std()


@cache
def _texture(kind: str) -> np.ndarray:
    """Relative brightness of a ground, float32 (TEXTURE, TEXTURE), mean about 1."""
    return {"linen": _linen, "planks": _planks, "concrete": _concrete, "carpet": _carpet}[kind](_random(kind))


def _linen(rng: np.random.Generator) -> np.ndarray:
    warp, weft = _cloud(rng, 160, 5), _cloud(rng, 5, 160)  # threads: fine across, long along
    y, x = np.mgrid[:TEXTURE, :TEXTURE]
    weave = np.where((x // 2 + y // 2) % 2 == 0, 0.025, -0.025)
    return (1 + 0.035 * (warp + weft) + weave + 0.015 * _cloud(rng, 6, 6)).astype(np.float32)


def _planks(rng: np.random.Generator) -> np.ndarray:
    wood = 1 + 0.045 * _cloud(rng, 12, 150) + 0.035 * _cloud(rng, 4, 60)
    for top in range(0, TEXTURE, 40):
        plank = wood[top : top + 40]
        plank *= rng.uniform(0.9, 1.08)
        plank[:] = np.roll(plank, int(rng.integers(TEXTURE)), 1)
        plank[:1] *= 0.55
        plank[1:2] *= 0.8
        joint = int(rng.integers(TEXTURE))
        plank[:, joint : joint + 1] *= 0.6
    return wood.astype(np.float32)


def _concrete(rng: np.random.Generator) -> np.ndarray:
    stone = 1 + 0.03 * _cloud(rng, 5, 5) + 0.03 * _cloud(rng, 20, 20) + 0.025 * _cloud(rng, 90, 90)
    pores = _cloud(rng, 110, 110) > 2.2
    return (stone - 0.16 * pores).astype(np.float32)


def _carpet(rng: np.random.Generator) -> np.ndarray:
    tufts = _cloud(rng, 130, 110)
    return (1 + 0.10 * tufts + 0.05 * _cloud(rng, 45, 45) + 0.02 * _cloud(rng, 6, 6)).astype(np.float32)
