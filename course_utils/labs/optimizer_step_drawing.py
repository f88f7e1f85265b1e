"""A window cut into micro-batches, the error of each rule tried, and the memory it keeps: SVG with words.

Pure functions from a view to text; no widget is known here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from course_utils.figures import REFERENCE, RIGHT, WRONG
from course_utils.labs.curves import svg_line, svg_picture, svg_text
from course_utils.labs.optimizer_step_situations import RULE_WORDS, View, kib
from course_utils.labs.optimizer_step_windows import CLOSE, WORDS, kept_targets

WIDTH, LEFT, RIGHT_END = 650, 150, 636
CELLS, CELL = 26, 6  # where the captions begin, pixels of a word
ERRORS, ROW = 158, 18  # where the errors begin, pixels of a rule
MEMORY = ERRORS + 34 + ROW * len(RULE_WORDS) + 46
HEIGHT = MEMORY + 44
LOWEST, HIGHEST = -9, 1  # powers of ten
_GREY = "#e2e2e2"


class _Part(NamedTuple):
    """A micro-batch on the page: its first caption, its left edge and width, and the width of a caption."""

    first: int
    length: int
    x: float
    width: float
    column: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


def window_svg(view: View) -> str:
    """The captions in their micro-batches, the weight of each, then a dot for every rule tried, then the memory."""
    parts = list(_parts(view.setting.lengths))
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        svg_text(4, 14, "The window: a column for each caption, full where its words count", anchor="start",
                 more='font-weight="bold"'),
        *_captions(view, parts),
        *_weights(view, parts),
        *_errors(view),
        *_memory(view),
    ]  # fmt: skip
    return svg_picture(body, said=said(view), width=WIDTH, height=HEIGHT)


def said(view: View) -> str:
    """The picture in words."""
    each = "; ".join(
        f"{length} captions with {count} words that count, times {weight:.3g}"
        for length, count, weight in zip(view.setting.lengths, view.counts, view.weights, strict=True)
    )
    return (
        f"Micro-batches: {each}. With the rule {view.setting.rule} the gradient error is {view.found.error:.1e}; "
        f"{kib(view.kept)} KiB are kept, the limit is {kib(view.limit)}. Rules tried on this cut: {len(view.tried)}."
    )


def _parts(lengths: tuple[int, ...]) -> Iterator[_Part]:
    """Side by side over the whole width; each has room for its words, also an empty one."""
    gap, base = 10, 50
    column = min(12.0, (WIDTH - 8 - len(lengths) * (gap + base)) / max(1, sum(lengths)))
    x, first = 4.0, 0
    for length in lengths:
        width = base + length * column
        yield _Part(first, length, x, width, column)
        x, first = x + width + gap, first + length


def _captions(view: View, parts: list[_Part]) -> Iterator[str]:
    kept, height = kept_targets(view.setting), WORDS * CELL
    for part, size in zip(parts, view.each, strict=True):
        edge = REFERENCE if size <= view.limit else WRONG
        yield (
            f'<rect class="part" x="{part.x:.1f}" y="{CELLS - 4}" width="{part.width:.1f}" height="{height + 8}" '
            f'fill="none" stroke="{edge}" stroke-width="{1 if edge == REFERENCE else 2}"/>'
        )
        for place in range(part.length):
            x = part.x + (part.width - part.length * part.column) / 2 + place * part.column
            full = kept[part.first + place] * CELL
            where = f'x="{x:.1f}" width="{part.column - 1.5:.1f}"'
            yield f'<rect {where} y="{CELLS}" height="{height - full}" fill="white" stroke="{_GREY}"/>'
            yield f'<rect class="counts" {where} y="{CELLS + height - full}" height="{full}" fill="{REFERENCE}"/>'


def _weights(view: View, parts: list[_Part]) -> Iterator[str]:
    y = CELLS + WORDS * CELL + 18
    for part, count, weight in zip(parts, view.counts, view.weights, strict=True):
        yield svg_text(part.middle, y, f"{part.length} capt." if part.length else "empty")
        yield svg_text(part.middle, y + 16, f"{count} count")
        yield svg_text(part.middle, y + 32, f"\u00d7 {weight:.3f}", more='font-weight="bold"')
    words = f"its loss \u00d7 {RULE_WORDS[view.setting.rule]}"
    yield svg_text(4, y + 50, words, anchor="start", color=REFERENCE)


def _x(error: float) -> float:
    """Where an error stands; 0 and what is smaller at the left edge."""
    power = math.log10(error) if error > 0 else LOWEST
    share = (min(max(power, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return LEFT + share * (RIGHT_END - LEFT)


def _errors(view: View) -> Iterator[str]:
    """A row for each rule, a dot where it was tried on this cut; the chosen one's is filled."""
    top, bottom = ERRORS + 30, ERRORS + 30 + ROW * len(RULE_WORDS)
    yield svg_text(4, ERRORS + 8, "Gradient error of the rules tried on this cut", anchor="start",
                   more='font-weight="bold"')  # fmt: skip
    goal = _x(CLOSE)
    yield f'<rect x="{LEFT}" y="{top}" width="{goal - LEFT:.1f}" height="{bottom - top}" fill="#e8f1f8"/>'
    yield svg_text((LEFT + goal) / 2, top - 5, "the whole batch's gradient", color=RIGHT)
    for row, rule in enumerate(RULE_WORDS):
        y, chosen = top + ROW * (row + 0.5), rule == view.setting.rule
        yield svg_line(LEFT, y, RIGHT_END, y, _GREY)
        yield svg_text(LEFT - 8, y + 4, rule, anchor="end", more='font-weight="bold"' if chosen else "")
        if rule in view.tried:
            yield _dot(view.tried[rule], y, chosen)
    for power in range(LOWEST, HIGHEST + 1, 2):
        x = _x(10.0**power)
        yield svg_line(x, bottom, x, bottom + 4, "#333333")
        yield svg_text(x, bottom + 17, f"1e{power}")
    yield svg_line(LEFT, bottom, RIGHT_END, bottom, "#333333")
    yield svg_text((LEFT + RIGHT_END) / 2, bottom + 32, "|difference| / |whole batch's gradient|, logarithmic")


def _dot(error: float, y: float, chosen: bool) -> str:
    color = RIGHT if error < CLOSE else WRONG
    fill, shape = color if chosen else "white", f'stroke="{color}" stroke-width="2"'
    x = _x(error)
    if error < CLOSE:
        return f'<circle class="tried" cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}" {shape}/>'
    return f'<rect class="tried" x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{fill}" {shape}/>'


def _memory(view: View) -> Iterator[str]:
    scale = (RIGHT_END - LEFT) / max(4.2 * view.limit, view.kept)
    color, limit = RIGHT if view.fits else WRONG, LEFT + view.limit * scale
    yield svg_text(LEFT - 8, MEMORY + 15, "activations kept", anchor="end", more='font-weight="bold"')
    width = view.kept * scale
    yield f'<rect class="kept" x="{LEFT}" y="{MEMORY + 2}" width="{width:.1f}" height="18" fill="{color}"/>'
    yield f'<path d="M{limit:.1f} {MEMORY - 3} V{MEMORY + 25}" stroke="#000000" stroke-width="2"/>'
    yield svg_text(limit, MEMORY + 38, f"memory limit {kib(view.limit)} KiB")
    inside = width > 0.7 * (RIGHT_END - LEFT)
    x, look = (LEFT + width - 8, ("end", "#ffffff")) if inside else (max(LEFT + width, limit) + 8, ("start", "#333333"))
    yield svg_text(x, MEMORY + 15, f"{kib(view.kept)} KiB", anchor=look[0], color=look[1])
