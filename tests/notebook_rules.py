"""What a notebook file must look like, whatever it teaches: one function a rule.

A rule takes the notebook and its path and returns the problems it sees, in words that say where; an empty list is a
pass. `chapter_rules.py` has the rules about teaching. `test_notebooks.py` applies them all, and breaks each on purpose.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tests.notebook_tools import METADATA, WIDGET_VIEW, code_cells, tags, texts

MAX_OUTPUT_BYTES = 1_000_000
MACHINE_PATH = re.compile(
    r"(?<![\w.~-])/(?:home|root|tmp|work|workspace|Users|opt|mnt|var|private)(?=/|\b)"
    r"|\b[A-Za-z]:\\+Users|site-packages|dist-packages|ipykernel_\d+"
)
MEANINGFUL_ID = re.compile(r"[a-z][a-z0-9_]*(?:-[a-z0-9_]+)*")
RANDOM_ID = re.compile(r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){0,3}(?:-?[0-9a-f]{12})?")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|(?:href|src)\s*=\s*[\"']([^\"']+)[\"']")

Rule = Callable[[NotebookNode, Path], list[str]]


def prose(cell: NotebookNode) -> str:
    """A Markdown cell without its code and formulas."""
    return re.sub(r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$", " ", cell.source, flags=re.DOTALL)


def valid_format(nb: NotebookNode, path: Path) -> list[str]:
    """nbformat 4.5 or later, valid; metadata holds kernel and language, nothing of a machine and no widget state."""
    problems = [] if (nb.nbformat, nb.nbformat_minor) >= (4, 5) else ["needs nbformat 4.5: older ones have no cell ids"]
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        problems.append(f"not valid nbformat: {error.message}")
    if nb.metadata != METADATA:
        problems.append(
            f"metadata must be kernelspec python3 and language_info.name alone, got {json.dumps(nb.metadata)[:200]}"
        )
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


# --- pictures and links ---


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
    headings = (
        re.findall(r"^#+ +(.+?)\s*$", cell.source, re.MULTILINE) for cell in nb.cells if cell.cell_type == "markdown"
    )
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
            problems.append(
                f"cell {cell_id}: link {link} breaks in work/: only chapters are copied there; begin with ../"
            )
        elif not target.exists():
            problems.append(f"cell {cell_id}: link {link} leads nowhere")
        elif anchor and not anchor_exists(target, anchor):
            problems.append(f"cell {cell_id}: link {link}: no such anchor")
    return problems


# --- what the code may do ---


def ruff(nb: NotebookNode, path: Path, select: str) -> list[tuple[NotebookNode, str, str]]:
    """(cell, rule's code, message) of everything that ruff finds with these rules."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", f"--select={select}"]
    command += ["--output-format=json", f"--stdin-filename={path.name}", "-"]
    run = subprocess.run(command, input=nbformat.writes(nb), capture_output=True, text=True, encoding="utf-8")
    if run.returncode not in (0, 1):
        raise RuntimeError(f"ruff did not run: {run.stderr}")
    return [(nb.cells[found["cell"] - 1], found["code"], found["message"]) for found in json.loads(run.stdout)]


def names_are_made(nb: NotebookNode, path: Path) -> list[str]:
    """No name is used before a cell above made it; none is imported in vain, but what a stub imports for its answer."""
    return [
        f"cell {cell.id}: {message}"
        for cell, code, message in ruff(nb, path, "F")
        if not (code == "F401" and "exercise" in tags(cell))
    ]


FORBIDDEN = {
    r"\bclear_output\b": "clear_output: nbval cannot compare it, and the page jumps",
    r"\binteract(?:ive|ive_output|_manual)?\(|@interact\b": "interact: nbval cannot compare it; use a live experiment",
    r"^\s*[!%]|get_ipython\(": "shell line or magic: the cell would be no Python elsewhere",
    r"\binput\(": "input(): waits for ever where nobody sits",
    r"NBVAL_|PYTEST_VALIDATE": "nbval comment: use a tag, readers do not see it",
    r"\bplt\.show\(": "plt.show: has no words; use figures.show(fig, alt)",
    r"\btorch\.(?:ops\.\w+|_C)\.\w+": "an operation that not every build of torch has: getattr with a default",
}
FORBIDDEN_TAGS = ("nbval-skip", "raises-exception", "nbval-raises-exception", "nbval-check-output")


def allowed_constructs(nb: NotebookNode, path: Path) -> list[str]:
    """Nothing that nbval cannot compare, that a reader's machine may not have, or that hides from comparison."""
    problems = []
    for cell in code_cells(nb):
        problems += [
            f"cell {cell.id}: {why}" for what, why in FORBIDDEN.items() if re.search(what, cell.source, re.MULTILINE)
        ]
        problems += [
            f"cell {cell.id}: tag {tag} hides it from comparison" for tag in tags(cell) if tag in FORBIDDEN_TAGS
        ]
        if re.search(r"\b(?:Thread|ThreadPoolExecutor|Timer)\(", cell.source) and "print(" in cell.source:
            problems.append(f"cell {cell.id}: prints from a thread: the text lands in another cell or nowhere")
    return problems


RULES: list[Rule] = [
    valid_format,
    named_cells,
    executed_in_order,
    clean_outputs,
    no_machine_paths,
    small,
    figures_have_words,
    links_resolve,
    names_are_made,
    allowed_constructs,
]
