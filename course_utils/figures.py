"""Figures with words: a small picture, then a caption that says what it shows.

It knows no model and no data. Matplotlib is imported where a figure is made, and never through pyplot: a figure
that nobody holds is gone, and a figure made in a thread disturbs nobody.
"""

from __future__ import annotations

import base64
import html
import io
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG, REFERENCE = "#0072B2", "#D55E00", "#666666"  # one colour per meaning; Okabe & Ito


class Series(NamedTuple):
    """How one of several lines of a kind is drawn, so that colour is never the only difference.

    color  : its lightness differs from the others', so the lines stay apart in grey
    dashes : lengths on, off, ... in points; () is a full line
    marker : one of matplotlib's o s ^ D v P
    """

    color: str
    dashes: tuple[int, ...]
    marker: str

    @property
    def style(self) -> dict:
        """Keyword arguments for `ax.plot`."""
        line = (0, self.dashes) if self.dashes else "-"
        return {"color": self.color, "marker": self.marker, "linestyle": line}


SERIES = [
    Series("#332288", (), "o"),
    Series("#CC5544", (6, 2), "s"),
    Series("#117733", (2, 2), "^"),
    Series("#B8860B", (8, 2, 2, 2), "D"),
    Series("#882255", (4, 1), "v"),
    Series("#3F9C8F", (1, 2), "P"),
]

_LABEL = "line label"  # gid of what `label_line` wrote: `show` moves those apart
_FONT_SIZE = 9


def axes(*, title: str, xlabel: str, ylabel: str, width: float = 5, height: float = 3) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, both labelled; the title is the finding. Width and height in inches."""
    from matplotlib.figure import Figure

    fig = Figure(figsize=(width, height), layout="constrained")  # makes room for labels outside the axes
    ax = fig.add_subplot()
    ax.set_title(title, fontsize=_FONT_SIZE + 1, loc="left")
    ax.set_xlabel(xlabel, fontsize=_FONT_SIZE)
    ax.set_ylabel(ylabel, fontsize=_FONT_SIZE)
    ax.tick_params(labelsize=_FONT_SIZE - 1)
    ax.spines[["top", "right"]].set_visible(False)
    return fig, ax


def label_line(ax: Axes, x: float, y: float, text: str, color: str) -> None:
    """Write `text` beside the line's end (x, y), in data units; `show` moves apart what would overlap."""
    ax.annotate(
        text,
        (x, y),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=color,
        fontsize=_FONT_SIZE,
        annotation_clip=False,
        gid=_LABEL,
    )


def spread(positions: Sequence[float], gap: float, *, low: float = -math.inf) -> list[float]:
    """Move positions apart until neighbours are `gap` from each other, none below `low`; order is kept.

    A crowd keeps its middle, unless `low` pushes it up.

    >>> spread([10, 11, 40], 4)
    [8.5, 12.5, 40]
    """
    crowds: list[list[float]] = []  # each [sum of its positions, how many]; it takes gap * how many around its mean
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    for i in order:
        crowds.append([positions[i], 1])
        while len(crowds) > 1 and _touch(crowds[-2], crowds[-1], gap):
            total, count = crowds.pop()
            crowds[-1] = [crowds[-1][0] + total, crowds[-1][1] + count]
    places = [total / count + gap * (k - (count - 1) / 2) for total, count in crowds for k in range(int(count))]
    places = [max(place, low + gap * k) for k, place in enumerate(places)]
    return [place for _, place in sorted(zip(order, places, strict=True))]


def _touch(lower: list[float], upper: list[float], gap: float) -> bool:
    distance = upper[0] / upper[1] - lower[0] / lower[1]
    return distance < gap * (lower[1] + upper[1]) / 2


def _separate_labels(fig: Figure) -> None:
    """Shift the labels of each pair of axes up or down so that no two overlap."""
    groups = [[text for text in ax.texts if text.get_gid() == _LABEL] for ax in fig.axes]
    if not any(len(group) > 1 for group in groups):
        return
    fig.draw_without_rendering()  # places the axes: before it, data units mean nothing on the page
    points = 72 / fig.dpi  # in a pixel
    for ax, labels in zip(fig.axes, groups, strict=True):
        heights = [ax.transData.transform(label.xy)[1] * points for label in labels]
        floor = ax.bbox.y0 * points + _FONT_SIZE / 2
        for label, old, new in zip(labels, heights, spread(heights, 1.3 * _FONT_SIZE, low=floor), strict=True):
            label.set_position((5, new - old))


def _pixels(image) -> np.ndarray:
    """An image as matplotlib takes it: (H, W) or (H, W, 3), uint8 or float in [0, 1]."""
    import numpy as np

    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3):
        pixels = pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0)
    elif pixels.ndim != 2:
        raise ValueError(f"an image needs shape (1, H, W), (3, H, W) or (H, W), got {pixels.shape}")
    if pixels.dtype != np.uint8 and not (0 <= pixels.min() and pixels.max() <= 1):
        got = f"{pixels.dtype} in [{pixels.min():.3g}, {pixels.max():.3g}]"
        raise ValueError(f"an image needs uint8, or float in [0, 1], got {got}: undo the normalisation first")
    return pixels


def image_grid(images: Sequence, titles: Sequence[str], *, columns: int = 6, size: float = 1.1) -> Figure:
    """Images side by side, each under its title.

    images  : each (1, H, W), (3, H, W) or (H, W); uint8, or float in [0, 1]; tensors or arrays
    titles  : one for each image
    columns : images in a row
    size    : inches of one image
    raises  : ValueError without images, for another number of titles, for another shape or range
    """
    from matplotlib.figure import Figure

    if not len(images) or len(images) != len(titles):
        raise ValueError(
            f"image_grid needs images and a title for each, got {len(images)} images and {len(titles)} titles"
        )
    columns = min(columns, len(images))
    rows = math.ceil(len(images) / columns)
    fig = Figure(figsize=(size * columns, (size + 0.25) * rows), layout="constrained")
    grid = list(fig.subplots(rows, columns, squeeze=False).flat)
    for ax in grid:
        ax.set_axis_off()
    for ax, image, title in zip(grid, images, titles, strict=False):
        ax.imshow(_pixels(image), cmap="gray", vmin=0, vmax=255 if _pixels(image).dtype == "uint8" else 1)
        ax.set_title(title, fontsize=_FONT_SIZE - 1)
    return fig


def png_bytes(fig: Figure, *, colors: int | None = None, dpi: int = 100) -> bytes:
    """The figure as PNG with a palette: a third of the size of full colour, equal bytes for equal figures.

    colors : in the palette, at most 256; None takes 64 for lines, 256 where there are images; 0 keeps full colour
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    fig.set_dpi(dpi)
    canvas = FigureCanvasAgg(fig)
    _separate_labels(fig)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    if colors is None:
        colors = 256 if any(ax.images for ax in fig.axes) else 64
    if colors:
        picture = picture.quantize(colors, dither=Image.Dither.NONE)
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _in_ipython() -> bool:
    """Whether something takes rich output; a plain `python` that never started IPython does not."""
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None


def publish(data: dict) -> None:
    """Make an output of its own from a dict of MIME types; without IPython its `text/plain` is printed."""
    if not _in_ipython():
        print(data["text/plain"])
        return
    from IPython.display import publish_display_data

    publish_display_data(data)


def show(fig: Figure, alt: str, *, colors: int | None = None) -> None:
    """Show the picture once, then its words as a caption in an output of its own.

    alt    : what a reader should see, in a sentence; digits only where they are exact
    colors : see `png_bytes`
    raises : ValueError for an empty `alt`

    Notebooks compare the words and not the bytes. Without IPython the words are printed.
    """
    if not alt.strip():
        raise ValueError(f"show needs alt, the figure in a sentence, for readers who see only that; got {alt!r}")
    if _in_ipython():
        picture = base64.b64encode(png_bytes(fig, colors=colors)).decode()
        publish({"image/png": picture, "text/plain": "[figure: its words follow]"})
    publish({"text/html": f"<p><em>{html.escape(alt)}</em></p>", "text/plain": f"[figure] {alt}"})
