"""A reader's search of a messy folder: which lines are in view, what is marked, and what the marks are worth.

It knows no widget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from course_utils.labs.datasets_folder import TOOLS, Entry, MessyFolder

CLUTTER, EMPTY, BROKEN = "clutter: no photo of ours", "class without photos", "cannot be decoded"
NOT_RGB, TURNED = "not RGB with 8 bits", "stored on its side"
COPY, COPY_ELSEWHERE = "same photo, same class", "same photo, other class"
KINDS = (CLUTTER, EMPTY, BROKEN, NOT_RGB, TURNED, COPY, COPY_ELSEWHERE)
ACCEPTED = {  # each planted fault: every kind that can be defended, the first the plainest
    "checkpoint folder": (CLUTTER, COPY, COPY_ELSEWHERE), "checkpoint folder in a class": (CLUTTER, COPY),
    "hidden folder": (CLUTTER, COPY, COPY_ELSEWHERE), "archive folder": (CLUTTER,), "hidden file": (CLUTTER,),
    "resource fork": (CLUTTER, BROKEN), "thumbnail database": (CLUTTER,), "empty class": (EMPTY,),
    "truncated": (BROKEN,), "not an image": (BROKEN, CLUTTER), "empty file": (BROKEN, CLUTTER),
    "grey": (NOT_RGB,), "alpha": (NOT_RGB,), "cmyk": (NOT_RGB,), "palette": (NOT_RGB,),
    "16-bit": (NOT_RGB,), "rotated": (TURNED,), "duplicate product": (COPY,),
    "duplicate in another class": (COPY_ELSEWHERE,),
}  # fmt: skip
_WHOLE_FOLDERS = ("checkpoint folder", "checkpoint folder in a class", "hidden folder", "archive folder")
EVERYTHING, TOP = "every folder", "the top folder"
_GAP = "\u00a0"  # a browser would take away plain spaces in a list


class Score(NamedTuple):
    """What a reader's marks are worth.

    found        : planted faults that a mark names, with a kind that fits
    missing      : the others
    other_kind   : marked paths of planted faults whose kind does not fit
    false_alarms : marked paths at which nothing is planted
    originals    : photos marked as copies that are in their place: the copies of them are the fault. Not false alarms
    """

    found: list[dict[str, str]]
    missing: list[dict[str, str]]
    other_kind: list[str]
    false_alarms: list[str]
    originals: list[str]


def score(
    marks: Mapping[str, str], planted: Sequence[Mapping[str, str]], originals: Collection[str] = frozenset()
) -> Score:
    """Compare marks with what was planted; a function of its arguments.

    marks     : path -> one of `KINDS`
    planted   : of the manifest: `fault`, `path`, for a copy also `of`
    originals : see `MessyFolder.originals`

    Of two equal photos either may be marked: nothing in the files says which came first. A hidden or archive folder
    may be marked in place of the file in it.
    """
    found, missing, right = [], [], set()
    for fault in planted:
        fitting = {path for path in _names(fault) if marks.get(path) in ACCEPTED[fault["fault"]]}
        right |= fitting
        (found if fitting else missing).append(dict(fault))
    places = {path for fault in planted for path in _names(fault) if path != fault.get("of")}
    wrong = [path for path in marks if path not in right]
    other = [path for path in wrong if path in places]
    first = [path for path in wrong if path in originals and marks[path] in (COPY, COPY_ELSEWHERE)]
    alarms = [path for path in wrong if path not in places and path not in first]
    return Score(found, missing, other, alarms, first)


def findable(folder: MessyFolder, tools: Collection[str]) -> list[dict[str, str]]:
    """The planted faults that some line tells, with these of `TOOLS`."""
    seen = folder.seen_with(tools)
    return [fault for fault in folder.planted if seen & set(_names(fault))]


def most_findable(folder: MessyFolder, num_tools: int) -> int:
    """How many faults the best choice of `num_tools` tools beside the plain list tells."""
    choices = combinations(TOOLS[1:], num_tools)
    return max(len(findable(folder, (TOOLS[0], *tools))) for tools in choices)


def _names(fault: Mapping[str, str]) -> Iterable[str]:
    """The paths whose mark names this fault."""
    path = fault["path"]
    folder = [path.rpartition("/")[0]] if fault["fault"] in _WHOLE_FOLDERS else []
    return [path, *folder, *([fault["of"]] if "of" in fault else [])]


class Inspection:
    """Where the reader stands: marks, tools that are on, the folder in view; a result of the experiment.

    marks    : path -> kind
    paid     : tools that were on at any time since the search began
    revealed : whether the missing faults were shown
    """

    def __init__(self, folder: MessyFolder) -> None:
        self.folder, self.tools, self.place, self.chosen = folder, set(), TOP, ()
        self.forget()

    def forget(self) -> None:
        """No mark, nothing paid, nothing revealed."""
        self.marks, self.paid, self.revealed = {}, set(), False

    def turn_on(self, tools: Iterable[str]) -> None:
        """These tools are on, and no other; each is paid from now on."""
        self.tools = set(tools)
        self.paid |= self.tools

    @property
    def score(self) -> Score:
        return score(self.marks, self.folder.planted, self.folder.originals)

    def places(self) -> list[str]:
        """What the reader may look into: a hidden folder only with the tool that shows it."""
        folders = [entry.path for entry in self.folder.entries if entry.is_folder and self._visible(entry)]
        return [EVERYTHING, TOP, *folders]

    def _visible(self, entry: Entry) -> bool:
        return not entry.hidden or "hidden names" in self.tools

    def entries(self) -> list[Entry]:
        """What lies in the place in view."""
        shown = [entry for entry in self.folder.entries if self._visible(entry)]
        if self.place == EVERYTHING:
            return shown
        wanted = "" if self.place == TOP else self.place
        return [entry for entry in shown if entry.path.rpartition("/")[0] == wanted]

    def line(self, entry: Entry) -> str:
        """One line of the list: size, a column for each tool that is on, name."""
        name = entry.path if self.place == EVERYTHING else entry.path.rpartition("/")[2]
        unit = "bytes" if not entry.is_folder else "entry" if entry.size == 1 else "entries"
        columns = [f"{entry.size:,} {unit:<7}".rjust(14)]
        columns += [f"{self._header(entry.path):<17}"] if "headers" in self.tools else []
        columns += [f"{self._decoded(entry.path):<5}"] if "decoding" in self.tools else []
        columns += [name + "/" * entry.is_folder]
        columns += [self._twins(entry.path)] if "contents" in self.tools else []
        mark = "\u25cf" if entry.path in self.marks else " "
        return f"{mark} {'  '.join(columns)}".rstrip().replace(" ", _GAP)

    def _header(self, path: str) -> str:
        if path not in self.folder.headers:
            return ""
        header = self.folder.headers[path]
        if header is None:
            return "no image header"
        turned = f" EXIF {header.orientation}" if header.orientation != 1 else ""
        return f"{header.width}x{header.height} {header.mode}{turned}"

    def _decoded(self, path: str) -> str:
        return "" if path not in self.folder.images else "FAILS" if path in self.folder.unreadable else "ok"

    def _twins(self, path: str) -> str:
        twins = self.twins(path)
        more = f" and {len(twins) - 1} more" if len(twins) > 1 else ""
        return f"= {twins[0]}{more}" if twins else ""

    def twins(self, path: str) -> list[str]:
        """Files in view or elsewhere with the same bytes; hidden ones only with the tool that shows them."""
        shown = {entry.path for entry in self.folder.entries if self._visible(entry)}
        return [twin for twin in self.folder.twins.get(path, []) if twin in shown]
