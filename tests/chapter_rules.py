"""What a chapter must look like (style.md, *A chapter*): one function a rule, in the form of `notebook_rules.py`."""

import ast
import re
import statistics
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tests.notebook_rules import Rule, prose, ruff
from tests.notebook_tools import code_cells, tags, texts

MAX_LINES, MAX_COLUMNS, MAX_MEDIAN_LINES = 25, 100, 8  # of a code cell
MAX_WORDS, MAX_MAIN_CELLS = 120, 40
IGNORED = "nbval-ignore-output"
LAST_SECTIONS = ("What people say", "Exercises", "Summary")
CLAIM = re.compile(r"\bC\d+\b")


def sections(nb: NotebookNode) -> dict[str, list[NotebookNode]]:
    """The cells below each heading of level 2, by heading; what comes before the first stands under ""."""
    found: dict[str, list[NotebookNode]] = {"": []}
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            found |= {heading.strip(): [] for heading in re.findall(r"^## +(.+)", prose(cell), re.MULTILINE)}
        found[list(found)[-1]].append(cell)
    return found


def ritual(nb: NotebookNode, path: Path) -> list[str]:
    """Title block, set-up cell, live experiment, and from 01 on the fixed last sections (style.md, *A chapter*)."""
    number, parts = int(path.name[:2]), sections(nb)
    title = nb.cells[0].source if nb.cells and nb.cells[0].cell_type == "markdown" else ""
    last = list(LAST_SECTIONS) if number else ["Summary"]
    problems = []
    if not re.match(rf"# {number}\. \S", title):
        problems.append(f"the first cell must begin with '# {number}. Title'")
    if number and "?" not in title:
        problems.append("the title block asks no question")
    if number and not re.search(r"\d+ min", title):
        problems.append("the title block does not say how many minutes")
    if [heading for heading in parts if heading in last] != last or list(parts)[-1] != "Summary":
        problems.append(f"needs the sections {last}, in this order, Summary last; the headings are {list(parts)[1:]}")
    if not any("live" in tags(cell) for cell in code_cells(nb)):
        problems.append("no live experiment: no cell is tagged live")
    return problems + set_up(nb)


def set_up(nb: NotebookNode) -> list[str]:
    """The first code cell is tagged `setup` and calls `fit_threads()`."""
    first = code_cells(nb)[0] if code_cells(nb) else NotebookNode(metadata={}, source="")
    wanted = {
        "is not tagged setup": "setup" in tags(first),
        "does not call fit_threads()": "fit_threads(" in first.source,
    }
    return [f"the first code cell {words}" for words, holds in wanted.items() if not holds]


def links_onward(nb: NotebookNode, path: Path) -> list[str]:
    """The summary links to the next chapter that is shipped."""
    later = sorted(other.name for other in path.parent.glob("[0-9][0-9]_*.ipynb") if other.name > path.name)
    summary = "".join(cell.source for cell in sections(nb).get("Summary", []))
    return (
        [] if not later or f"({later[0]}" in summary else [f"the summary does not link to the next chapter, {later[0]}"]
    )


def short_cells(nb: NotebookNode, path: Path) -> list[str]:
    """At most 25 lines a code cell, 100 characters a line (a projector shows no more); most cells a few lines."""
    problems, lengths = [], []
    for cell in code_cells(nb):
        lines = cell.source.splitlines()
        lengths.append(len(lines))
        if len(lines) > MAX_LINES:
            problems.append(f"cell {cell.id}: {len(lines)} lines, the limit is {MAX_LINES}")
        problems += [f"cell {cell.id}: a line of {len(line)} characters" for line in lines if len(line) > MAX_COLUMNS]
    if lengths and statistics.median(lengths) > MAX_MEDIAN_LINES:
        problems.append(f"the median code cell has {statistics.median(lengths)} lines, the limit is {MAX_MEDIAN_LINES}")
    return problems


def short_prose(nb: NotebookNode, path: Path) -> list[str]:
    """At most 120 words between two code cells; at most 40 code cells before *What people say*."""
    problems, words, before = [], 0, ""
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            words += len(prose(cell).split())
        elif cell.cell_type == "code":
            if before and words > MAX_WORDS:  # the title block has no code cell before it
                problems.append(f"{words} words between cells {before} and {cell.id}, the limit is {MAX_WORDS}")
            words, before = 0, cell.id
    main = [cell for heading, cells in sections(nb).items() if heading not in LAST_SECTIONS for cell in cells]
    count = sum(cell.cell_type == "code" for cell in main)
    return problems + (
        [f"the main line has {count} code cells, the limit is {MAX_MAIN_CELLS}"] if count > MAX_MAIN_CELLS else []
    )


# --- cells that are not compared ---


def exempt(nb: NotebookNode) -> dict[str, str]:
    """Cells whose output is not compared, each with the cell that asserts what it shows.

    That is the next code cell, or the one named by a tag `asserted-by:<cell id>`; "" if there is none.
    """
    cells, found = code_cells(nb), {}
    for cell, following in zip(cells, [*cells[1:], NotebookNode(id="")], strict=False):
        if IGNORED in tags(cell):
            named = [tag.partition(":")[2] for tag in tags(cell) if tag.startswith("asserted-by:")]
            found[cell.id] = named[0] if named else following.id
    return found


def asserts(source: str) -> bool:
    """True if the source has an `assert` that is about something, not a constant."""
    return any(
        isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant) for node in ast.walk(ast.parse(source))
    )


def exempt_cells_are_asserted(nb: NotebookNode, path: Path) -> list[str]:
    """The neighbour of an exempt cell exists, is compared itself, and asserts."""
    cells, problems = {cell.id: cell for cell in code_cells(nb)}, []
    for name, neighbour in exempt(nb).items():
        if neighbour not in cells:
            problems.append(
                f"cell {name} is not compared, and the cell {neighbour!r} that should assert what it shows is missing"
            )
        elif IGNORED in tags(cells[neighbour]):
            problems.append(f"cell {name} is not compared, nor is its neighbour {neighbour}")
        elif not asserts(cells[neighbour].source):
            problems.append(f"cell {name} is not compared, and its neighbour {neighbour} asserts nothing")
    return problems


# --- exercises and claims ---


def exercise_ids(nb: NotebookNode) -> list[str]:
    """Ids of the exercises whose stub stands in the notebook, in order."""
    return [cell.id.removeprefix("ex-") for cell in code_cells(nb) if "exercise" in tags(cell)]


def exercise_cells(cell: NotebookNode) -> bool:
    """True for the cells that exercises need: tagged `setup`, `exercise` or `check`."""
    return bool({"setup", "exercise", "check"} & set(tags(cell)))


def exercises_complete(nb: NotebookNode, path: Path) -> list[str]:
    """From 01 on: exercises stem-1 to stem-n, each with stub, check and hint cell in this order, shipped unanswered."""
    stem, ids = path.stem[3:], exercise_ids(nb)
    order = [cell.id for cell in code_cells(nb)]
    problems = []
    if ids != [f"{stem}-{number}" for number in range(1, len(ids) + 1)] or (int(path.name[:2]) and not ids):
        problems.append(f"exercises must be {stem}-1, {stem}-2, ..., in cells ex-{stem}-1, ...; found {ids}")
    for name in ids:
        trio = [f"ex-{name}", f"check-{name}", f"hint-{name}"]
        if [cell_id for cell_id in order if cell_id in trio] != trio:
            problems.append(f"exercise {name} needs the cells {', '.join(trio)}, in this order")
    for cell in code_cells(nb):
        if cell.id.startswith("check-") and "not attempted" not in "".join(texts(cell)):
            problems.append(f"cell {cell.id}: shipped with an answer: its output does not say 'not attempted'")
        if cell.id.startswith(("ex-", "check-")) and not {"exercise", "check"} & set(tags(cell)):
            problems.append(f"cell {cell.id}: lacks the tag exercise or check")
    return problems


def exercises_stand_alone(nb: NotebookNode, path: Path) -> list[str]:
    """The cells tagged setup, exercise or check run without the others: the answered chapter is tested in seconds."""
    part = nbformat.from_dict(
        {**nb, "cells": [cell for cell in nb.cells if cell.cell_type == "code" and exercise_cells(cell)]}
    )
    return [
        f"cell {cell.id}: {message} (what an exercise needs is made in a cell tagged setup)"
        for cell, _, message in ruff(part, path, "F821")
    ]


def claims(nb: NotebookNode) -> list[str]:
    """Ids of the claims that the section *What people say* names, each once, in order."""
    said = "\n".join(cell.source for cell in sections(nb).get("What people say", []) if cell.cell_type == "markdown")
    return list(dict.fromkeys(CLAIM.findall(said)))


def claims_decided(nb: NotebookNode, path: Path) -> list[str]:
    """Claim ids are C01 to C84, and after each claim a cell decides it, before the next is told."""
    known = {f"C{number:02}" for number in range(1, 85)}
    problems = [f"claim {name} is none of C01 to C84" for name in claims(nb) if name not in known]
    told: list[str] = []
    undecided: list[str] = []
    for cell in sections(nb).get("What people say", []):
        if cell.cell_type == "code":
            undecided = []
        elif new := [name for name in dict.fromkeys(CLAIM.findall(cell.source)) if name not in told]:
            problems += [f"claim {name}: no cell decides it before {new[0]} is told" for name in undecided]
            undecided, told = new, told + new
    return problems + [f"claim {name}: no cell decides it" for name in undecided]


RULES: list[Rule] = [
    ritual,
    links_onward,
    short_cells,
    short_prose,
    exempt_cells_are_asserted,
    exercises_complete,
    exercises_stand_alone,
    claims_decided,
]
