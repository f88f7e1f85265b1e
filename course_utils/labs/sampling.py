"""Chapter 03's experiment: draw epochs with any sampler, and see which classes come and which photos never do.

`labs.sampling_draw` draws and counts; here is the picture.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache

from course_utils import figures
from course_utils.labs.bench import Bench
from course_utils.labs.curves import svg_line, svg_picture, svg_text
from course_utils.labs.knobs import choice, number
from course_utils.labs.panel import Goal, Still
from course_utils.labs.sampling_draw import SAMPLERS, Draw, draw

NUM_PRODUCTS = 200  # of the catalogue whose labels are drawn where none are given
MOST_RATIO, MOST_UNSEEN = 1.2, 0.01
SHOWN_BATCHES = 10
_BLUE = (0, 114, 178)  # figures.RIGHT


@cache
def catalogue_labels(num_products: int = NUM_PRODUCTS, seed: int = 0) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The classes of a catalogue's photos, in the order of its index, and their names; no file is made."""
    from course_utils.catalogue_plan import CLASSES, plan_photos

    return tuple(row["target"] for row, _ in plan_photos(num_products, seed)), tuple(sorted(CLASSES))


def reached(drawn: Draw) -> bool:
    """Balanced, and hardly a photo left out."""
    return drawn.ratio < MOST_RATIO and drawn.unseen <= MOST_UNSEEN * len(drawn.targets)


def words(drawn: Draw) -> str:
    """The numbers of a draw in one line; repeats are a mean over its epochs, the others count all of them."""
    total, share = len(drawn.targets), drawn.unseen / len(drawn.targets)
    ratio = f"{drawn.ratio:.2f}" if math.isfinite(drawn.ratio) else "infinite, a class is missing"
    return (
        f"{len(drawn.drawn):,} draws in {epochs_of(drawn)} \u00b7 max/min class count {ratio} \u00b7 never seen: "
        f"{drawn.unseen} of {total} ({share:.1%}) \u00b7 repeats in an epoch: {drawn.repeats / len(drawn.epochs):,.0f}"
    )


def epochs_of(drawn: Draw) -> str:
    """ "1 epoch", "20 epochs"."""
    return f"{len(drawn.epochs)} epoch" + "s" * (len(drawn.epochs) != 1)


def picture_of(drawn: Draw, *, width: int = 650) -> str:
    """One row a class: draws beside what was expected, then its examples in each of the first batches; SVG."""
    rows, top, step = len(drawn.classes), 50, 24
    body = [
        f'<rect width="{width}" height="{top + rows * step + 26}" fill="white"/>',
        svg_text(4, 18, f"Draws of each class in {epochs_of(drawn)}", anchor="start", more='font-weight="bold"'),
        svg_text(352, 18, f"Examples of each class in the first {SHOWN_BATCHES} batches", anchor="start",
                 more='font-weight="bold"'),
        svg_text(88, 38, "bar: drawn, line: expected", anchor="start"),
        *_bars(drawn, top, step),
        *_cells(drawn, top, step),
    ]  # fmt: skip
    counts = ", ".join(f"{name} {count}" for name, count in zip(drawn.classes, drawn.counts, strict=True))
    return svg_picture(
        body, said=f"Draws of each class in {epochs_of(drawn)}: {counts}", width=width, height=top + rows * step + 26
    )


def _bars(drawn: Draw, top: int, step: int) -> Iterator[str]:
    left, longest = 88, 200
    scale = longest / max(1, *drawn.counts, *drawn.expected)
    for row, (name, count, mean) in enumerate(zip(drawn.classes, drawn.counts, drawn.expected, strict=True)):
        y = top + row * step
        yield svg_text(left - 6, y + 15, name, anchor="end")
        yield f'<rect x="{left}" y="{y + 4}" width="{count * scale:.1f}" height="14" fill="{figures.RIGHT}"/>'
        x = left + mean * scale
        yield f'<path d="M{x:.1f} {y} V{y + 22}" stroke="#000000" stroke-width="2"/>'
        yield svg_text(left + max(count, mean) * scale + 6, y + 15, f"{count:,}", anchor="start")
    yield svg_line(left, top, left, top + len(drawn.classes) * step, "#333333")


def _cells(drawn: Draw, top: int, step: int) -> Iterator[str]:
    left, side = 352, 29
    batches = [batch for epoch in drawn.epochs for batch in epoch][:SHOWN_BATCHES]
    for column, batch in enumerate(batches):
        x = left + column * side
        yield svg_text(x + side / 2, 40, str(column + 1))
        for row, count in enumerate(drawn.count(batch)):
            share = min(1.0, 2 * count / max(1, len(batch)))  # half of a batch is the darkest
            color = "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in _BLUE)
            y = top + row * step
            yield f'<rect x="{x}" y="{y}" width="{side - 1}" height="{step - 1}" fill="{color}" stroke="#e2e2e2"/>'
            yield svg_text(x + side / 2, y + 16, str(count), color="#ffffff" if share > 0.6 else "#333333")


def _still(targets: Sequence[int], classes: Sequence[str]) -> Still:
    """One epoch shuffled and one weighted, class by class; both are exact for their seed."""
    found = {name: draw(targets, classes, sampler=name) for name in ("shuffle", "weighted")}
    rarest_first = sorted(range(len(classes)), key=found["shuffle"].counts.__getitem__, reverse=True)
    title = "Shuffled, an epoch is as long-tailed as the data"
    fig, ax = figures.axes(title=title, xlabel="class, most photos first", ylabel="draws in one epoch")
    for name, look in zip(found, figures.SERIES, strict=False):
        heights = [found[name].counts[place] for place in rarest_first]
        ax.plot(range(len(classes)), heights, markersize=4, **look.style)
        figures.label_line(ax, len(classes) - 1, heights[-1], name, look.color)
    ax.set_xticks(range(len(classes)), [classes[place] for place in rarest_first], rotation=45, ha="right")
    ax.set_ylim(bottom=0)
    close = found["weighted"].ratio < found["shuffle"].ratio / 3
    alt = (
        f"Draws of each of {len(classes)} classes in one epoch of {len(targets)} photos. "
        f"The max/min class count of weighted draws is below a third of the shuffled one: {close}."
    )
    return Still(fig, alt)


def sampler_lab(targets: Sequence[int] | None = None, *, classes: Sequence[str] | None = None) -> Bench:
    """Draw epochs from a long-tailed catalogue until every class comes equally often.

    targets, classes : of the reader's data; without them the labels of a catalogue of 200 products
    raises           : ValueError for one without the other
    """
    if (targets is None) != (classes is None):
        raise ValueError("sampler_lab needs targets and classes, or neither")
    if targets is None:
        targets, classes = catalogue_labels()
    sampler = choice("Sampler", SAMPLERS, "shuffle")
    alpha = number("Exponent (weighted)", 0.0, low=0.0, high=1.5, step=0.25, calm=True)
    epochs = choice("Epochs drawn", [1, 2, 5, 10, 20, 50], 1)
    batch_size = choice("Batch size", [8, 16, 32, 64], 32)
    seed = choice("Seed", [0, 1, 2, 3, 4], 0)

    def compute() -> Draw:
        how = {"sampler": sampler.value, "alpha": alpha.value, "batch_size": batch_size.value}
        return draw(targets, classes, num_epochs=epochs.value, seed=seed.value, **how)

    goal = (
        f"over all epochs drawn, max/min class count under {MOST_RATIO}, "
        f"and at most {MOST_UNSEEN:.0%} of the photos never seen"
    )
    return Bench(
        "sampling",
        compute,
        say=words,
        draw=picture_of,
        still=_still(targets, classes),
        knobs=[sampler, alpha, epochs, batch_size, seed],
        goal=Goal(goal, reached),
        height=50 + 24 * len(classes) + 30,
    )
