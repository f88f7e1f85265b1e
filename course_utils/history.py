"""A run's history: rows to look at by column, to draw, and to write as CSV or JSON lines.

It knows rows (dicts) and files; it trains nothing. Values are written as they are: floats to their last digit.
"""

from __future__ import annotations

import csv
import json
import statistics
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class History(list):
    """A list of rows, one dict each, in the order they were made: of updates, or of validations.

    It is a list in every way; `column`, `figure` and the writers are what a list lacks.
    """

    @property
    def names(self) -> list[str]:
        """The columns, in the order in which they first came."""
        return list(dict.fromkeys(name for row in self for name in row))

    def column(self, name: str) -> list[Any]:
        """The values under `name`, one a row.

        raises : KeyError that lists the columns there are
        """
        if self and name not in self.names:
            raise KeyError(f"no column {name!r} in this history; it has {', '.join(self.names)}")
        return [row.get(name) for row in self]

    def smoothed(self, name: str, window: int) -> list[float]:
        """Means over the last `window` values of `name` (fewer at the start), one a row."""
        values = self.column(name)
        return [statistics.fmean(values[max(0, end - window) : end]) for end in range(1, len(values) + 1)]

    def write_csv(self, path: str | PathLike) -> Path:
        """One line a row under a line of names; a value that a row lacks, or that is None, is left empty."""
        path = Path(path)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=self.names)
            writer.writeheader()
            writer.writerows(self)
        return path

    def write_jsonl(self, path: str | PathLike, *, append: bool = False) -> Path:
        """One JSON object a line: a line that is cut off spoils no other.

        append : after what the file holds, as a run that goes on wants it
        raises : ValueError for a value that is inf or NaN, which JSON has no word for; nothing is written then
        """
        path = Path(path)
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in self)
        with path.open("a" if append else "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        return path

    @classmethod
    def read_jsonl(cls, path: str | PathLike) -> History:
        """The rows that `write_jsonl` wrote, equal to the last digit."""
        return cls(json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines())

    def figure(self, name: str = "loss", *, window: int = 20, title: str | None = None) -> Figure:
        """`name` against the step: each value thin and grey, means over `window` rows in colour.

        raises : ValueError for a history without rows
        """
        from course_utils.figures import REFERENCE, RIGHT, axes

        if not self:
            raise ValueError("the history is empty: make at least one step before its figure")
        steps = self.column("step")
        fig, ax = axes(title=title or f"{name} by step", xlabel="step (optimizer updates)", ylabel=name)
        if window > 1:
            ax.plot(steps, self.column(name), color=REFERENCE, linewidth=0.6, alpha=0.6)
        ax.plot(steps, self.smoothed(name, window), color=RIGHT)
        return fig
