"""A loop's turns as a strip, and a diagnosis as a bar: SVG with words.

Pure functions from times to text; no widget is known here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from course_utils.bottleneck import Diagnosis
from course_utils.figures import RIGHT, SERIES, WRONG
from course_utils.labs.curves import svg_line, svg_picture, svg_text, ticks
from course_utils.labs.profiling_pipelines import Log

LEFT, TOP, BOTTOM, HEIGHT, WIDTH, SHOWN = 52, 44, 158, 196, 650, 36
_PATTERN = (
    f'<defs><pattern id="strip-wait" width="5" height="5" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><rect width="5" height="5" fill="#ffffff"/>'
    f'<rect width="1.6" height="5" fill="{WRONG}"/></pattern></defs>'
)
_WAIT = f'fill="url(#strip-wait)" stroke="{WRONG}" stroke-width="0.5"'


def mean_turn(log: Log) -> tuple[float, float]:
    """Mean wait and step of a turn, ms; an epoch's first batch is not counted."""
    turns = list(zip(log.waits, log.steps, strict=True))
    later = [turn for place, turn in enumerate(turns) if place % log.times.num_batches]
    waits, steps = zip(*later or turns, strict=True)
    return statistics.fmean(waits), statistics.fmean(steps)


def said(log: Log) -> str:
    """The strip in words: the mean, and the first batch."""
    wait, step = mean_turn(log)
    return (
        f"On average a turn waits {wait:.1f} ms and steps {step:.1f} ms; an epoch's first batch is there after "
        f"{log.waits[0]:.0f} ms"
    )


def strip_svg(log: Log) -> str:
    """The first turns, each a bar of waiting and step; bars that leave the picture at the top carry their number."""
    top_ms, width = 2.0 * sum(mean_turn(log)), (WIDTH - LEFT - 8) / SHOWN
    scale = (BOTTOM - TOP) / top_ms
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{_PATTERN}',
        svg_text(4, 14, "The loop, turn by turn", anchor="start", more='font-weight="bold"'),
        f'<rect x="190" y="5" width="20" height="11" {_WAIT}/>',
        svg_text(216, 15, "until the batch is there", anchor="start"),
        f'<rect x="370" y="5" width="20" height="11" fill="{RIGHT}"/>',
        svg_text(396, 15, "step", anchor="start"),
    ]
    for value in ticks(0, top_ms, about=4):
        y = BOTTOM - value * scale
        body += [svg_line(LEFT, y, WIDTH - 8, y, "#e2e2e2"), svg_text(LEFT - 7, y + 4, f"{value:g}", anchor="end")]
    for place in range(min(SHOWN, len(log.waits))):
        body += _turn(log, place, LEFT + place * width, width, scale, top_ms)
    body += [
        svg_line(LEFT, BOTTOM, WIDTH - 8, BOTTOM, "#333333"),
        svg_text((LEFT + WIDTH) / 2, HEIGHT - 6, "turn (e: an epoch begins)"),
        svg_text(14, (TOP + BOTTOM) / 2, "ms", more=f'transform="rotate(-90 14 {(TOP + BOTTOM) / 2})"'),
    ]
    return svg_picture(body, said=f"{said(log)}.", width=WIDTH, height=HEIGHT)


def _turn(log: Log, place: int, x: float, width: float, scale: float, top_ms: float) -> Iterator[str]:
    wait, step = log.waits[place], log.steps[place]
    shown_wait = min(wait, top_ms)
    shown_step = min(step, top_ms - shown_wait)
    y = BOTTOM - shown_wait * scale
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{shown_wait * scale:.1f}" {_WAIT}/>'
    if shown_step > 0:
        height = shown_step * scale
        yield (f'<rect x="{x:.1f}" y="{y - height:.1f}" width="{width - 2:.1f}" height="{height:.1f}" fill="{RIGHT}"/>')
    if wait + step > 1.001 * top_ms:
        yield svg_text(x + width / 2, TOP - 6, f"{wait + step:.0f}", more='font-size="10"')
    if place % log.times.num_batches == 0:
        yield svg_text(x + width / 2 - 1, BOTTOM + 14, "e")


def parts_svg(found: Diagnosis) -> str:
    """The time of a batch as one bar, cut into its parts."""
    height, left, right = 62, 8, WIDTH - 8
    scale, x = (right - left) / found.batch_ms, float(left)
    body = [f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    key = float(left)
    for (name, ms), look in zip(found.parts_ms.items(), SERIES, strict=False):
        color = RIGHT if name == "step" else look.color
        body.append(
            f'<rect class="part" x="{x:.1f}" y="6" width="{ms * scale:.1f}" height="22" fill="{color}" '
            'stroke="#ffffff"/>'
        )
        label = f"{name} {ms:.1f} ms ({ms / found.batch_ms:.0%})"
        body.append(f'<rect x="{key:.1f}" y="40" width="11" height="11" fill="{color}"/>')
        body.append(svg_text(key + 16, 50, label, anchor="start"))
        x, key = x + ms * scale, key + 34 + 6.6 * len(label)
    each = ", ".join(f"{name} {ms:.1f} ms" for name, ms in found.parts_ms.items())
    return svg_picture(body, said=f"A batch takes {found.batch_ms:.3g} ms: {each}.", width=WIDTH, height=height)
