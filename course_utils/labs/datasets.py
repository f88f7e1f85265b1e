"""Chapter 01's experiment: a folder with planted faults. Each tool tells some and is paid once on; three must do.

What the tools show is `labs.datasets_folder`'s, what a mark is worth `labs.datasets_inspection`'s; here is the page.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from html import escape
from pathlib import Path

from course_utils import figures
from course_utils.catalogue import make_catalogue
from course_utils.labs.bench import Bench, picture
from course_utils.labs.datasets_folder import TOOLS, MessyFolder
from course_utils.labs.datasets_inspection import EVERYTHING, KINDS, TOP, Inspection, findable, most_findable
from course_utils.labs.knobs import choice, several, switch
from course_utils.labs.panel import Goal, Still

MOST_FALSE_ALARMS, MOST_TOOLS = 2, 3
NUM_PRODUCTS, SEED = 20, 0
SWITCHES = {
    "hidden names": "Show hidden names",
    "headers": "Read headers",
    "decoding": "Decode every file",
    "contents": "Compare contents",
}


def words(now: Inspection) -> str:
    """The score in one line."""
    got = now.score
    alarms = f"{len(got.false_alarms)} false alarm{'' if len(got.false_alarms) == 1 else 's'}"
    other = f" \u00b7 marked as another kind: {len(got.other_kind)}" if got.other_kind else ""
    first = f" \u00b7 marked, but an original: {len(got.originals)}" if got.originals else ""
    paid = f"tools paid {len(now.paid)} of {MOST_TOOLS}"
    return f"found {len(got.found)} of {len(now.folder.planted)} \u00b7 {paid} \u00b7 {alarms}{other}{first}"


def reached(now: Inspection) -> bool:
    """As many found as the best three tools tell, with no more, hardly a false alarm, and nothing revealed before."""
    got = now.score
    enough = len(got.found) >= most_findable(now.folder, MOST_TOOLS) and len(now.paid) <= MOST_TOOLS
    return enough and len(got.false_alarms) <= MOST_FALSE_ALARMS and not now.revealed


def picture_of(now: Inspection) -> str:
    """What is known of the chosen lines, thumbnails (of every folder: the chosen), on request what is missing; HTML.

    A thumbnail is a decoded file, so there is none before that tool is on: it would show for nothing what fails.
    """
    shown = now.chosen if now.place == EVERYTHING else [entry.path for entry in now.entries()]
    tiles = "".join(_tile(now, path) for path in shown if path in now.folder.images)
    if tiles and "decoding" not in now.tools:
        tiles = '<div style="color:#666666">no pictures: no file is decoded</div>'
    style = "<style>.inspect-files select{font-family:monospace;font-size:12px;white-space:pre}</style>"
    grid = f'<div style="display:flex;flex-wrap:wrap;gap:4px;font-size:11px;line-height:1.2">{tiles}</div>'
    return style + _detail(now) + grid + (_missing(now) if now.revealed else "")


def _tile(now: Inspection, path: str) -> str:
    name = path.rpartition("/")[2]
    chosen = f"outline:3px solid {figures.WRONG};" if path in now.chosen else ""
    content = now.folder.thumbnails.get(path)
    blank = '<div style="width:64px;height:64px;background:#eeeeee">no picture</div>'
    shown = blank if content is None else picture(content, f"photo {name}", width=64)
    return f'<div style="width:76px;overflow:hidden;{chosen}">{shown}<br>{escape(name)}</div>'


def _detail(now: Inspection) -> str:
    """What is known of the chosen lines, in full."""
    rows = []
    for path in now.chosen:
        facts = [f"marked: {now.marks[path]}"] if path in now.marks else []
        if "decoding" in now.tools and path in now.folder.unreadable:
            facts.append(now.folder.unreadable[path])
        if "contents" in now.tools:
            facts += [f"same bytes as {twin}" for twin in now.twins(path)]
        if path in now.score.originals:
            facts.append("it lies in its place: what is wrong is its copies in hidden folders")
        rows.append(f"<div><b>{escape(path)}</b> {escape('; '.join(facts))}</div>")
    return "".join(rows[:4]) + (f"<div>and {len(rows) - 4} more</div>" if len(rows) > 4 else "")


def _missing(now: Inspection) -> str:
    rows = [
        f"<li><b>{escape(fault['fault'])}</b>: <code>{escape(fault['path'])}</code>, "
        f"shown by {escape(', '.join(now.folder.tools_for(fault['path'])))}</li>"
        for fault in now.score.missing
    ]
    return f'<ul class="inspect-missing">{"".join(rows)}</ul>' if rows else "<p>Nothing is missing.</p>"


def _still(folder: MessyFolder) -> Still:
    """How many of the planted faults each tool shows alone; exact."""
    planted, together = folder.planted, len(findable(folder, TOOLS))
    counts = {tool: len(findable(folder, [tool])) for tool in TOOLS}
    title = "No tool alone shows every planted fault"
    fig, ax = figures.axes(title=title, xlabel="tool", ylabel=f"faults shown, of {len(planted)}")
    ax.bar(list(counts), list(counts.values()), color=figures.RIGHT)
    ax.set_ylim(0, len(planted))
    ax.set_yticks(range(0, len(planted) + 1, 4))
    each = ", ".join(f"{tool} {count}" for tool, count in counts.items())
    return Still(fig, f"Of {len(planted)} planted faults each tool alone shows: {each}. Together: {together}.")


def _temporary_catalogue() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="course-inspect-"))
    return make_catalogue(folder / "photos", num_products=NUM_PRODUCTS, seed=SEED, messy=True)


class InspectLab(Bench):
    """The folder on the page; made by `inspect_lab`."""

    def __init__(self, folder: MessyFolder) -> None:
        self.now = Inspection(folder)
        self.place = choice("Look into", [EVERYTHING, TOP], TOP)
        self.kind = choice("Mark as", KINDS, KINDS[0])
        self.tools = {tool: switch(label) for tool, label in SWITCHES.items()}
        self.files = several("", rows=12)
        most = f"{most_findable(folder, MOST_TOOLS)} of {len(folder.planted)} faults"
        goal = f"{most} found with {MOST_TOOLS} tools, and at most {MOST_FALSE_ALARMS} false alarms"
        super().__init__(
            "datasets",
            self._look,
            say=words,
            draw=picture_of,
            still=_still(folder),
            knobs=[self.place, self.kind],
            rows=[list(self.tools.values()), [self.files]],
            buttons=[
                ("Mark", "flag", "Mark the chosen lines as this kind of fault", self.mark),
                ("Remove mark", "eraser", "Take the marks of the chosen lines back", self.unmark),
                ("Show what is missing", "eye", "Ends the search: the goal then needs Reset", self.reveal),
            ],
            goal=Goal(goal, reached),
            forget=self.now.forget,
        )
        if self.box is not None:
            self.files.add_class("inspect-files")

    def _look(self) -> Inspection:
        """Read the knobs, and fill the lists that depend on them."""
        self.now.turn_on(tool for tool, knob in self.tools.items() if knob.value)
        places = self.now.places()
        if list(self.place.options) != places:
            kept = self.place.value if self.place.value in places else TOP
            self.place.options, self.place.value = places, kept
        self.now.place = self.place.value
        lines = [(self.now.line(entry), entry.path) for entry in self.now.entries()]
        if list(self.files.options) != lines:
            kept = tuple(path for path in self.files.value if path in {path for _, path in lines})
            self.files.options, self.files.value = lines, kept
        self.now.chosen = tuple(self.files.value)
        return self.now

    def mark(self) -> None:
        """Mark the chosen lines as the chosen kind."""
        self.now.marks |= dict.fromkeys(self._chosen(), self.kind.value)

    def unmark(self) -> None:
        """Take the marks of the chosen lines back."""
        for path in self._chosen():
            self.now.marks.pop(path, None)

    def reveal(self) -> None:
        """Show the faults that no mark names."""
        self.now.revealed = True

    def _chosen(self) -> tuple[str, ...]:
        if not self.files.value:
            raise ValueError("no line is chosen: click one in the list, or several with Ctrl or Shift, then Mark")
        return tuple(self.files.value)


def inspect_lab(root: str | os.PathLike | None = None) -> InspectLab:
    """Search a messy catalogue for its planted faults, tool by tool.

    root   : of `make_catalogue(..., messy=True)`; None makes a small one in a temporary folder, removed at the end
    raises : ValueError where nothing is planted in `root`
    """
    if root is not None:
        return InspectLab(MessyFolder(root))
    made = _temporary_catalogue()
    lab = InspectLab(MessyFolder(made))
    lab._finalizer = weakref.finalize(lab, shutil.rmtree, made.parent, ignore_errors=True)
    return lab
