"""A loading pipeline over time, as SVG: a row for each worker and one for the trainer.

A pure function from a timeline to text; it knows no widget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from course_utils.figures import REFERENCE, RIGHT, WRONG
from course_utils.labs.curves import svg_line, svg_picture, svg_text, ticks
from course_utils.pipeline_timeline import Interval, Timeline
from course_utils.worker_choice import workers

LEFT, TOP, ROW, MOST_ROW, WIDTH = 72, 46, 21, 34, 650
_HATCH = (
    f'<defs><pattern id="timeline-wait" width="5" height="5" patternUnits="userSpaceOnUse" '
    f'patternTransform="rotate(45)"><rect width="5" height="5" fill="#ffffff"/>'
    f'<rect width="1.6" height="5" fill="{WRONG}"/></pattern></defs>'
)
# what: (fill, outline)
LOOKS = {
    "load": ("#cccccc", REFERENCE),
    "wait": ("url(#timeline-wait)", WRONG),
    "hand-over": ("#000000", "#000000"),
    "step": (RIGHT, RIGHT),
}


def height_for(rows: int) -> int:
    """Pixels of a picture with room for so many rows."""
    return TOP + rows * ROW + 40


class _Place(NamedTuple):
    """Where things are: pixels a millisecond, pixels a row, the end of what is shown."""

    scale: float
    row: float
    end_ms: float

    @classmethod
    def of(cls, timeline: Timeline, rows: int) -> _Place:
        """As high as the room allows: fewer workers have higher rows."""
        end_ms = timeline.steps[-1].end_ms
        row = min(MOST_ROW, rows * ROW / (timeline.num_workers + 1))
        return cls((WIDTH - LEFT - 14) / end_ms, row, end_ms)

    def x(self, ms: float) -> float:
        return LEFT + min(ms, self.end_ms) * self.scale

    def y(self, row: int) -> float:
        return TOP + row * self.row


def timeline_svg(timeline: Timeline, *, rows: int | None = None) -> str:
    """The kept intervals of a timeline, from the start to the last step's end.

    rows : of the picture, so that its height stays while the number of workers changes; None for as many as needed
    """
    number = timeline.num_workers
    height, place = height_for(rows or number + 1), _Place.of(timeline, rows or number + 1)
    title = f"{workers(number).capitalize()} and the trainer: the first {len(timeline.steps)} batches (a model)"
    body = [
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>{_HATCH}',
        svg_text(4, 16, title, anchor="start", more='font-weight="bold"'),
        *_key(),
        *_names(number, place),
        *_bars(timeline, place),
        *_axis(place, TOP + (number + 1) * place.row),
    ]
    return svg_picture(body, said=said(timeline), width=WIDTH, height=height)


def said(timeline: Timeline) -> str:
    """The picture in words."""
    line, number = timeline, timeline.num_workers
    who = f"{workers(number)} and the trainer" if number else "the trainer alone, which loads and steps in turn"
    busy = f"; each worker loads {load_share(line):.0%} of the time shown" if number else ""
    return (
        f"Timeline of {who}, {len(line.steps)} batches in {line.steps[-1].end_ms:.0f} ms{busy}. In the steady state a "
        f"turn takes {line.turn_ms:.3g} ms, {line.wait_share:.0%} of it waiting."
    )


def load_share(timeline: Timeline) -> float:
    """The part of the time shown in which a worker loads, mean over the workers."""
    end_ms = timeline.steps[-1].end_ms
    spent = sum(min(one.end_ms, end_ms) - one.start_ms for one in timeline.loads if one.start_ms < end_ms)
    return spent / end_ms / max(1, timeline.num_workers)


def _key() -> Iterator[str]:
    """What the bars are, in a line."""
    x = LEFT
    for name, (fill, edge) in LOOKS.items():
        yield f'<rect x="{x}" y="25" width="20" height="11" fill="{fill}" stroke="{edge}"/>'
        yield svg_text(x + 26, 35, name, anchor="start")
        x += 40 + 7 * len(name)
    yield svg_text(x + 8, 35, "numbers: batches", anchor="start", color=REFERENCE)


def _names(number: int, place: _Place) -> Iterator[str]:
    for row in range(number + 1):
        name = "trainer" if row == number else f"worker {row}"
        yield svg_text(LEFT - 6, place.y(row) + place.row / 2 + 4, name, anchor="end")


def _bars(timeline: Timeline, place: _Place) -> Iterator[str]:
    trainer = timeline.num_workers
    parts = {
        "load": timeline.loads,
        "wait": timeline.waits if trainer else (),  # without workers the load is the waiting
        "hand-over": timeline.handovers,
        "step": timeline.steps,
    }
    for name, intervals in parts.items():
        shown = [one for one in intervals if one.start_ms < place.end_ms and one.end_ms > one.start_ms]
        for one in shown:
            row = trainer if one.worker is None else one.worker
            yield _bar(name, one, place, row)
            if name == "load" and place.x(one.end_ms) - place.x(one.start_ms) >= 15:
                middle = (place.x(one.start_ms) + place.x(one.end_ms)) / 2
                yield svg_text(middle, place.y(row) + place.row / 2 + 4, str(one.batch), more='font-size="10"')


def _bar(name: str, one: Interval, place: _Place, row: int) -> str:
    fill, edge = LOOKS[name]
    x, width = place.x(one.start_ms), place.x(one.end_ms) - place.x(one.start_ms)
    gap = 0.6 if width > 3 else 0  # so that neighbours are told apart
    return (
        f'<rect class="{name}" x="{x:.1f}" y="{place.y(row) + 2:.1f}" width="{max(0.3, width - gap):.1f}" '
        f'height="{place.row - 5:.1f}" fill="{fill}" stroke="{edge}" stroke-width="0.5"/>'
    )


def _axis(place: _Place, y: float) -> Iterator[str]:
    yield svg_line(LEFT, y + 2, WIDTH - 14, y + 2, "#333333")
    for value in ticks(0, place.end_ms, about=6):
        yield svg_line(place.x(value), y + 2, place.x(value), y + 6, "#333333")
        yield svg_text(place.x(value), y + 19, f"{value:g}")
    yield svg_text((LEFT + WIDTH) / 2, y + 35, "time (ms)")
