"""Which exercises are done: a small JSON file on this computer, readable by its owner alone and sent nowhere.

It holds one word an exercise, no answers and no times. What is right stays right.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from course_utils.exercises.report import ICONS, card

_STATUSES = ("right", "wrong", "raised")


def progress_path() -> Path:
    """`COURSE_PROGRESS`, else `progress.json` beside the reader's copies, where their kernels run."""
    return Path(os.environ.get("COURSE_PROGRESS") or "progress.json")


def record(exercise_id: str, status: str) -> str | None:
    """Keep a result; returns a sentence where that did not go as it should, never an error."""
    if status not in _STATUSES:
        return None
    known, note = load()
    if known.get(exercise_id) in (status, "right"):
        return note
    return save({**known, exercise_id: status}) or note


def load() -> tuple[dict[str, str], str | None]:
    """What is kept, and a sentence if the file could not be read: a damaged one is set aside, not overwritten."""
    path = progress_path()
    try:
        return _parse(path.read_text(encoding="utf-8")), None
    except FileNotFoundError:
        return {}, None
    except OSError as error:
        return {}, f"Progress cannot be read from {path.name} ({_reason(error)})."
    except ValueError:
        return {}, _set_aside(path)


def save(known: Mapping[str, str]) -> str | None:
    """Write all or nothing: a new file takes the old one's place in one move."""
    path = progress_path()
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump({"exercises": dict(sorted(known.items()))}, file, indent=1)
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        return f"Progress is not kept: {path.name} cannot be written ({_reason(error)})."
    return None


def _parse(text: str) -> dict[str, str]:
    """ValueError for anything that `save` would not have written."""
    held = json.loads(text)
    known = held.get("exercises") if isinstance(held, dict) else None
    if not isinstance(known, dict) or not all(s in _STATUSES for s in known.values()):
        raise ValueError("no progress file")
    return known


def _set_aside(path: Path) -> str:
    """Move the damaged file to the first free name beside it."""
    number = 1
    while (aside := path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")).exists():
        number += 1
    try:
        os.replace(path, aside)
    except OSError as error:
        return f"{path.name} is damaged and cannot be moved aside ({_reason(error)})."
    return f"{path.name} was damaged; it is kept as {aside.name}, and progress starts anew."


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


@dataclass(frozen=True)
class Progress:
    """A printable table: `rows` are (chapter's stem, exercise id, title, status)."""

    rows: tuple[tuple[str, str, str, str], ...]
    note: str | None = None

    @property
    def num_right(self) -> int:
        return sum(status == "right" for *_, status in self.rows)

    @property
    def _summary(self) -> str:
        return f"{self.num_right} of {len(self.rows)} exercises are right"

    def __repr__(self) -> str:
        width = max((len(f"{i} {s}") for _, i, _, s in self.rows), default=0) + 2
        lines = [f"  {ICONS[s]} {f'{i}  {s}':<{width}} {title}" for _, i, title, s in self.rows]
        return "\n".join([self._summary, *lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{ICONS[s]} {s}</td><td>{i}</td><td style='text-align:left'>{html.escape(t)}</td></tr>"
            for _, i, t, s in self.rows
        )
        note = f"<div>{html.escape(self.note)}</div>" if self.note else ""
        head = "<tr><th>status</th><th>exercise</th><th style='text-align:left'>title</th></tr>"
        return card(f"<b>{self._summary}</b><table>{head}{rows}</table>{note}")
