"""What a shipped notebook must look like: one function a rule.

A rule takes the notebook and its path and returns the problems it sees, in words that say where; an empty list is a pass.
`RULES` lists those that hold for each notebook alone; `test_notebooks.py` applies them, and breaks each on purpose.
"""
import ast
import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tests.notebook_tools import METADATA, WIDGET_VIEW, code_cells, tags, texts

MAX_OUTPUT_BYTES = 1_000_000
MAX_LINES, MAX_COLUMNS, MAX_WORDS = 25, 100, 120
MAX_MEDIAN_LINES, MAX_MAIN_CELLS = 8, 40
IGNORED = "nbval-ignore-output"
MACHINE_PATH = re.compile(
    r"(?<![\w.~-])/(?:home|root|tmp|work|workspace|Users|opt|mnt|var|private)(?=/|\b)"
    r"|\b[A-Za-z]:\\+Users|site-packages|dist-packages|ipykernel_\d+"
)
MEANINGFUL_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
RANDOM_ID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){0,3}(?:-?[0-9a-f]{12})?")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|(?:href|src)\s*=\s*[\"']([^\"']+)[\"']")
LAST_SECTIONS = ("What people say", "Exercises", "Summary")
CLAIM = re.compile(r"\bC\d+\b")

Rule = Callable[[NotebookNode, Path], list[str]]


def prose(cell: NotebookNode) -> str:
    """A Markdown cell without its code and formulas."""
    return re.sub(r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$", " ", cell.source, flags=re.DOTALL)


def sections(nb: NotebookNode) -> dict[str, list[NotebookNode]]:
    """The cells below each heading of level 2, by heading; what comes before the first stands under ""."""
    found: dict[str, list[NotebookNode]] = {"": []}
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            found |= {heading.strip(): [] for heading in re.findall(r"^## +(.+)", prose(cell), re.MULTILINE)}
        found[list(found)[-1]].append(cell)
    return found


# --- form of the file ---------------------------------------------------------------------------------------------------

def valid_format(nb: NotebookNode, path: Path) -> list[str]:
    """nbformat 4.5 or later, valid; metadata holds kernel and language, nothing of a machine and no widget state."""
    problems = [] if (nb.nbformat, nb.nbformat_minor) >= (4, 5) else ["needs nbformat 4.5: older ones have no cell ids"]
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        problems.append(f"not valid nbformat: {error.message}")
    if nb.metadata != METADATA:
        problems.append(f"metadata must be kernelspec python3 and language_info.name alone, got {json.dumps(nb.metadata)[:200]}")
    return problems


def named_cells(nb: NotebookNode, path: Path) -> list[str]:
    """Each cell has an id of its own that means something, such as `build-cosine`."""
    ids = [cell.get("id", "") for cell in nb.cells]
    poor = [name for name in ids if not MEANINGFUL_ID.fullmatch(name) or RANDOM_ID.fullmatch(name)]
    return [f"cell id {name!r} is random or not lower-case words with dashes" for name in poor] + [
        f"cell id {name!r} is used {ids.count(name)} times" for name in dict.fromkeys(ids) if ids.count(name) > 1
    ]


def executed_in_order(nb: NotebookNode, path: Path) -> list[str]:
    """Code cells carry 1..n: one run of a fresh kernel from top to bottom."""
    counts = [cell.execution_count for cell in code_cells(nb)]
    expected = list(range(1, len(counts) + 1))
    return [] if counts == expected else [f"not executed once from top to bottom: execution counts are {counts}"]


def clean_outputs(nb: NotebookNode, path: Path) -> list[str]:
    """No error, nothing on stderr, no widget id, no picture hidden in HTML, no object address."""
    problems = []
    for cell in code_cells(nb):
        for output in cell.outputs:
            if output.output_type == "error":
                problems.append(f"cell {cell.id}: stored error {output.ename}")
            if output.get("name") == "stderr":
                problems.append(f"cell {cell.id}: output on stderr: {output.text[:80]!r}")
            if WIDGET_VIEW in output.get("data", {}):
                problems.append(f"cell {cell.id}: a widget without words beside it (its stored id is random)")
        words = "".join(texts(cell))
        if "data:image/" in words:
            problems.append(f"cell {cell.id}: a picture inside HTML; figures.show stores it once, as image/png")
        if address := re.search(r"\b0x[0-9a-fA-F]{6,}", words):
            problems.append(f"cell {cell.id}: an object's address {address.group()} is printed; it differs in each run")
    return problems


def no_machine_paths(nb: NotebookNode, path: Path) -> list[str]:
    """Neither sources nor outputs name a folder of the machine that ran them."""
    return [
        f"cell {cell.id}: machine path {found.group()!r}"
        for cell in nb.cells
        for text in [cell.source, *texts(cell)]
        for found in MACHINE_PATH.finditer(re.sub(r"https?://\S+", "", text))
    ]


def small(nb: NotebookNode, path: Path) -> list[str]:
    """Outputs under 1 MB."""
    size = sum(len(json.dumps(cell.outputs)) for cell in code_cells(nb))
    return [] if size < MAX_OUTPUT_BYTES else [f"outputs hold {size} bytes, the limit is {MAX_OUTPUT_BYTES}"]


# --- pictures and links -------------------------------------------------------------------------------------------------

def figures_have_words(nb: NotebookNode, path: Path) -> list[str]:
    """After each picture comes an output of its own with the picture's words (`figures.show`)."""
    problems = []
    for cell in code_cells(nb):
        for output, following in zip(cell.outputs, [*cell.outputs[1:], NotebookNode()], strict=False):
            is_picture = any(mime.startswith("image/") for mime in output.get("data", {}))
            words = following.get("data", {}).get("text/plain", "")
            if is_picture and not re.match(r"\[figure\] \S", words):
                problems.append(f"cell {cell.id}: a picture without its words after it; use figures.show(fig, alt)")
    return problems


def links_in(nb: NotebookNode) -> Iterator[tuple[str, str]]:
    """(cell id, target) of each Markdown or HTML link that stays in the repository."""
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            for match in LINK.finditer(prose(cell)):
                target = match[1] or match[2]
                if not re.match(r"[a-z][a-z0-9+.-]*:", target):
                    yield cell.id, target


def anchors(nb: NotebookNode) -> set[str]:
    """The anchors that JupyterLab makes: a heading's text with dashes for spaces."""
    headings = (re.findall(r"^#+ +(.+?)\s*$", cell.source, re.MULTILINE) for cell in nb.cells if cell.cell_type == "markdown")
    return {re.sub(r"[`*]", "", heading).replace(" ", "-") for found in headings for heading in found}


def anchor_exists(target: Path, anchor: str) -> bool:
    """True if the anchor is a heading of the notebook, or a line the file has; other anchors are not looked at."""
    if target.suffix == ".ipynb":
        return anchor in anchors(nbformat.read(target, as_version=4))
    line = re.fullmatch(r"L(\d+)", anchor)
    return not line or int(line[1]) <= len(target.read_text(encoding="utf-8").splitlines())


def links_resolve(nb: NotebookNode, path: Path) -> list[str]:
    """Relative links work from notebooks/ and from work/, where only the chapters are copied."""
    problems = []
    for cell_id, link in links_in(nb):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if name.startswith("/"):
            problems.append(f"cell {cell_id}: link {link} is absolute")
        elif not name and anchor not in anchors(nb):
            problems.append(f"cell {cell_id}: link {link}: no such heading here")
        elif not name:
            continue
        elif not name.startswith("../") and not re.fullmatch(r"\d\d_\w+\.ipynb", name):
            problems.append(f"cell {cell_id}: link {link} breaks in work/: only chapters are copied there; begin with ../")
        elif not target.exists():
            problems.append(f"cell {cell_id}: link {link} leads nowhere")
        elif anchor and not anchor_exists(target, anchor):
            problems.append(f"cell {cell_id}: link {link}: no such anchor")
    return problems


# --- the chapter's shape ------------------------------------------------------------------------------------------------

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
    wanted = {"is not tagged setup": "setup" in tags(first), "does not call fit_threads()": "fit_threads(" in first.source}
    return [f"the first code cell {words}" for words, holds in wanted.items() if not holds]


def links_onward(nb: NotebookNode, path: Path) -> list[str]:
    """The summary links to the next chapter that is shipped."""
    later = sorted(other.name for other in path.parent.glob("[0-9][0-9]_*.ipynb") if other.name > path.name)
    summary = "".join(cell.source for cell in sections(nb).get("Summary", []))
    return [] if not later or f"({later[0]}" in summary else [f"the summary does not link to the next chapter, {later[0]}"]


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
    return problems + ([f"the main line has {count} code cells, the limit is {MAX_MAIN_CELLS}"] if count > MAX_MAIN_CELLS else [])


# --- what the code may do -----------------------------------------------------------------------------------------------

def ruff(nb: NotebookNode, path: Path, select: str = "F") -> list[str]:
    """What ruff says about names: used before they are made, imported and never used, overwritten."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", f"--select={select}",
               "--output-format=json", f"--stdin-filename={path.name}", "-"]
    run = subprocess.run(command, input=nbformat.writes(nb), capture_output=True, text=True, encoding="utf-8")
    if run.returncode not in (0, 1):
        raise RuntimeError(f"ruff did not run: {run.stderr}")
    return [f"cell {nb.cells[found['cell'] - 1].id}: {found['message']}" for found in json.loads(run.stdout)]


def names_are_made(nb: NotebookNode, path: Path) -> list[str]:
    """No name is used before a cell above made it."""
    return ruff(nb, path)


FORBIDDEN = {
    r"\bclear_output\b": "clear_output: nbval cannot compare it, and the page jumps",
    r"\binteract(?:ive|ive_output|_manual)?\(|@interact\b": "interact: nbval cannot compare it; use a live experiment",
    r"^\s*[!%]|get_ipython\(": "shell line or magic: the cell would be no Python elsewhere",
    r"\binput\(": "input(): waits for ever where nobody sits",
    r"NBVAL_|PYTEST_VALIDATE": "nbval comment: use a tag, readers do not see it",
    r"\bplt\.show\(": "plt.show: has no words; use figures.show(fig, alt)",
}
FORBIDDEN_TAGS = ("nbval-skip", "raises-exception", "nbval-raises-exception", "nbval-check-output")


def allowed_constructs(nb: NotebookNode, path: Path) -> list[str]:
    """Nothing that nbval cannot compare, that a reader's machine may not have, or that hides from comparison."""
    problems = []
    for cell in code_cells(nb):
        problems += [f"cell {cell.id}: {why}" for what, why in FORBIDDEN.items() if re.search(what, cell.source, re.MULTILINE)]
        problems += [f"cell {cell.id}: tag {tag} hides it from comparison" for tag in tags(cell) if tag in FORBIDDEN_TAGS]
        if re.search(r"\b(?:Thread|ThreadPoolExecutor|Timer)\(", cell.source) and "print(" in cell.source:
            problems.append(f"cell {cell.id}: prints from a thread: the text lands in another cell or nowhere")
    return problems


# --- cells that are not compared ----------------------------------------------------------------------------------------

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
    return any(isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant) for node in ast.walk(ast.parse(source)))


def exempt_cells_are_asserted(nb: NotebookNode, path: Path) -> list[str]:
    """The neighbour of an exempt cell exists, is compared itself, and asserts."""
    cells, problems = {cell.id: cell for cell in code_cells(nb)}, []
    for name, neighbour in exempt(nb).items():
        if neighbour not in cells:
            problems.append(f"cell {name} is not compared, and the cell {neighbour!r} that should assert what it shows is missing")
        elif IGNORED in tags(cells[neighbour]):
            problems.append(f"cell {name} is not compared, nor is its neighbour {neighbour}")
        elif not asserts(cells[neighbour].source):
            problems.append(f"cell {name} is not compared, and its neighbour {neighbour} asserts nothing")
    return problems


# --- exercises and claims -----------------------------------------------------------------------------------------------

def exercise_ids(nb: NotebookNode) -> list[str]:
    """Ids of the exercises whose stub stands in the notebook, in order."""
    return [cell.id.removeprefix("ex-") for cell in code_cells(nb) if "exercise" in tags(cell)]


def exercise_cells(cell: NotebookNode) -> bool:
    """True for the cells that exercises need: tagged `setup`, `exercise` or `check`."""
    return bool({"setup", "exercise", "check"} & set(tags(cell)))


def exercises_complete(nb: NotebookNode, path: Path) -> list[str]:
    """From 01 on: exercises stem-1 ... stem-n, each with its stub, check and hint cell, in this order, shipped unanswered."""
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
        if "check" in tags(cell) and "not attempted" not in "".join(texts(cell)):
            problems.append(f"cell {cell.id}: shipped with an answer: its output does not say 'not attempted'")
        if cell.id.startswith(("ex-", "check-")) and not {"exercise", "check"} & set(tags(cell)):
            problems.append(f"cell {cell.id}: lacks the tag exercise or check")
    return problems


def exercises_stand_alone(nb: NotebookNode, path: Path) -> list[str]:
    """The cells tagged setup, exercise or check run without the others: the answered chapter is tested in seconds."""
    part = nbformat.from_dict({**nb, "cells": [cell for cell in nb.cells if cell.cell_type == "code" and exercise_cells(cell)]})
    return [f"{problem} (what an exercise needs is made in a cell tagged setup)" for problem in ruff(part, path, "F821")]


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
    valid_format, named_cells, executed_in_order, clean_outputs, no_machine_paths, small, figures_have_words, links_resolve,
    ritual, links_onward, short_cells, short_prose, names_are_made, allowed_constructs, exempt_cells_are_asserted,
    exercises_complete, exercises_stand_alone, claims_decided,
]


def problems(nb: NotebookNode, path: Path) -> list[str]:
    """Everything that the rules find, each with the rule's name."""
    return [f"{rule.__name__}: {problem}" for rule in RULES for problem in rule(nb, path)]
