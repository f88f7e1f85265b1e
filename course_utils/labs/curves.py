"""Curves as SVG, written by hand: quick to make, crisp at any size, with words for those who do not see it.

A pure function from data to text. It knows no widget and no thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from course_utils.figures import RIGHT, SERIES, Series, spread

MOST_POINTS = 250  # a line 450 pixels wide shows no more
_TEXT, _GRID = "#333333", "#e2e2e2"
Points = Sequence[tuple[float, float]]


class _Frame(NamedTuple):
    """The plotting area in pixels, and the data range it shows."""

    left: float
    right: float
    top: float
    bottom: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * _share(value, self.x_range)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * _share(value, self.y_range)


def _share(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return min(1.0, max(0.0, (value - low) / (high - low)))  # what is outside is drawn at the edge


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Round numbers from low to high, 1, 2 or 5 times a power of ten apart.

    >>> ticks(0, 624)
    [0, 200, 400, 600]
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"ticks needs finite low < high, got {low} and {high}")
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(power * k for k in (1, 2, 5, 10) if power * k >= rough * 0.999)
    first = math.ceil(low / width - 1e-9)
    count = math.floor(high / width + 1e-9) - first + 1
    return [float(f"{(first + i) * width:.10g}") for i in range(count)]


def thin(points: Points, most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most `most` finite points, evenly taken, the first and the last among them."""
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if len(finite) <= most:
        return finite
    return [finite[i * (len(finite) - 1) // (most - 1)] for i in range(most)]


def y_limits(series: Mapping[str, Points]) -> tuple[float, float]:
    """From 0 (or below) to the next tick above the largest value: steady while a loss falls."""
    values = [y for points in series.values() for _, y in points if math.isfinite(y)]
    low, high = min([0.0, *values]), max([0.0, *values])
    if low == high:
        return low, low + 1.0
    marks = ticks(low, high)
    width = marks[1] - marks[0] if len(marks) > 1 else high - low
    return math.floor(low / width + 1e-9) * width, math.ceil(high / width - 1e-9) * width


def svg_text(x: float, y: float, words: str, *, anchor: str = "middle", color: str = _TEXT, more: str = "") -> str:
    """Words at (x, y) in pixels, escaped; `more`: further attributes."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" {more}'
    return f"<text {place}>{escape(words)}</text>"


def svg_line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    """A thin line, in pixels."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def _grid(frame: _Frame, xlabel: str, ylabel: str) -> Iterator[str]:
    left, right, bottom = frame.left, frame.right, frame.bottom
    for value in ticks(*frame.y_range, about=4):
        yield svg_line(left, frame.y(value), right, frame.y(value), _GRID)
        yield svg_text(left - 7, frame.y(value) + 4, f"{value:g}", anchor="end")
    for value in ticks(*frame.x_range):
        yield svg_line(frame.x(value), bottom, frame.x(value), bottom + 4, _TEXT)
        yield svg_text(frame.x(value), bottom + 18, f"{value:g}")
    yield svg_line(left, bottom, right, bottom, _TEXT)
    yield svg_text((left + right) / 2, bottom + 38, xlabel)
    middle = (frame.top + bottom) / 2
    yield svg_text(16, middle, ylabel, more=f'transform="rotate(-90 16 {middle:.1f})"')


_SHAPES = {  # around (0, 0), about 8 pixels wide
    "o": '<circle r="4"/>',
    "s": '<rect x="-3.5" y="-3.5" width="7" height="7"/>',
    "^": '<path d="M0 -4.5 L4.5 3.5 L-4.5 3.5 Z"/>',
    "D": '<path d="M0 -5 L5 0 L0 5 L-5 0 Z"/>',
    "v": '<path d="M0 4.5 L4.5 -3.5 L-4.5 -3.5 Z"/>',
    "P": '<path d="M-1.5 -4.5 h3 v3 h3 v3 h-3 v3 h-3 v-3 h-3 v-3 h3 Z"/>',
}


def _line(frame: _Frame, points: Points, look: Series) -> str:
    places = [(frame.x(x), frame.y(y)) for x, y in points]
    dashes = f' stroke-dasharray="{" ".join(map(str, look.dashes))}"' if look.dashes else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return (
        f'<polyline points="{path}" fill="none" stroke="{look.color}" stroke-width="2"{dashes}/>'
        f'<g transform="translate({x:.1f} {y:.1f})" fill="{look.color}">{_SHAPES[look.marker]}</g>'
    )


def _labels(frame: _Frame, ends: Mapping[str, tuple[float, float]], looks: Mapping[str, Series]) -> Iterator[str]:
    """Names beside the ends of their lines, moved apart where lines end together."""
    above = spread([-frame.y(y) for _, y in ends.values()], 15, low=6 - frame.bottom)  # pixels count downwards
    for (name, (x, _)), height in zip(ends.items(), above, strict=True):
        yield svg_text(frame.x(x) + 9, 4 - height, name, anchor="start", color=looks[name].color)


def curve_svg(
    series: Mapping[str, Points],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    x_max: float,
    y_range: tuple[float, float] | None = None,
    words: str = "",
    width: int = 640,
    height: int = 300,
) -> str:
    """A line for each series with axes, ticks, and names at the lines' ends.

    series        : name -> points (x, y); what is not finite is left out; any number, looks repeat after six;
                    the first is drawn over the others
    x_max         : right end of the x axis, which begins at 0
    y_range       : shown range, values outside are drawn at its edge; None fits the data
    words         : what the picture shows, for screen readers; the title is said before it
    width, height : pixels
    returns       : one <svg> element; every text in it is escaped
    """
    frame = _Frame(64, width - 150, 34, height - 48, (0, max(1, x_max)), y_range or y_limits(series))
    styles = SERIES if len(series) > 1 else [Series(RIGHT, (), "o")]
    looks = {name: styles[i % len(styles)] for i, name in enumerate(series)}
    drawn = {name: points for name in series if (points := thin(series[name]))}
    body = [
        f'<rect width="{width}" height="{height}" fill="white"/>',
        svg_text(frame.left, 18, title, anchor="start", more='font-weight="bold"'),
        *_grid(frame, xlabel, ylabel),
        *(_line(frame, points, looks[name]) for name, points in reversed(drawn.items())),
    ]
    if drawn:
        body += _labels(frame, {name: points[-1] for name, points in drawn.items()}, looks)
    return svg_picture(body, said=f"{title}. {words}".strip(), width=width, height=height)


def svg_picture(body: Iterable[str], *, said: str, width: int, height: int) -> str:
    """One <svg> element around `body`; `said` is what it shows, for screen readers."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    look = 'style="max-width:100%;height:auto;display:block" font-family="sans-serif" font-size="12"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(said)}" {size} {look}>'
    return f"{opening}{''.join(body)}</svg>"
