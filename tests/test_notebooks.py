"""The shipped notebooks keep the rules of `notebook_rules.py` and `chapter_rules.py`.

Each rule is broken on purpose on a small chapter, and must see it.
"""

import copy
import functools

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests import chapter_rules as teaching
from tests import notebook_rules as form
from tests.notebook_tools import METADATA, NOTEBOOKS, code_cells, read, shipped

RULES = [*form.RULES, *teaching.RULES]

SHIPPED = shipped()
# Each cell whose output is not compared, with the cell that asserts what it shows: blind spots, so keep the list short.
EXEMPT = {
    "00_start_here": {"machine": "machine-topics"},
    "01_datasets": {
        "fine-run": "fine-facts",
        "fine-betrayed": "fine-facts",
        "repair-run": "repair-figure",
        "repair-seeds": "repair-figure",
        "where": "where-facts",
    },
    "02_transforms": {
        "fine-train": "fine-betrayed",
        "repair-run": "repair-facts",
        "normalise-run": "normalise-figure",
        "label-table": "label-facts",
        "flip-classes": "flip-facts",
        "flip-train": "flip-facts",
        "speed": "speed-facts",
    },
    "03_sampling": {
        "fine-run": "fine-betrayed",
        "repair": "buffer-train",
        "labels": "labels-check",
        "cost": "uniform",
        "tail": "tail-facts",
    },
    "04_loaders": {
        "fine-run": "fine-betrayed",
        "start": "start-facts",
        "grow": "grow-facts",
        "tune": "tune-facts",
        "claim-c17-run": "claim-c17-facts",
        "claim-c68-run": "claim-c68-facts",
    },
    "05_training_loop": {
        "snapshot": "history",
        "claim-c29-run": "claim-c29-facts",
        "claim-c84-run": "claim-c84-facts",
    },
    "06_optimizer_step": {"ema-run": "ema-figure", "claim-c36-time": "claim-c36-time-facts"},
    "07_schedules": {"fused": "fused-check", "race-run": "race-facts", "when": "when-facts"},
    "11_profiling": {
        "fine-run": "why-formula",
        "fine-betrayed": "why-formula",
        "repair-run": "repair-facts",
        "real": "real-facts",
        "diagnose-run": "diagnose-facts",
        "workers-run": "diagnose-facts",
        "limit": "limit-facts",
        "profile": "profile-facts",
        "memory-table": "peak",
        "stores-time": "stores-facts",
        "model-run": "model-facts",
        "snapshot": "snapshot-facts",
        "launch": "launch-facts",
    },
}
REQUIRED_CLAIMS = {
    "01_datasets": {"C01", "C02", "C03", "C04", "C78"},
    "02_transforms": {"C05", "C06", "C07", "C08", "C09", "C71", "C72", "C75"},
    "03_sampling": {"C10", "C11", "C12", "C13", "C14", "C15", "C70"},
    "04_loaders": {
        *("C16", "C17", "C18", "C19", "C20", "C21", "C22", "C23", "C24", "C25"),
        *("C66", "C67", "C68", "C80"),
    },
    "05_training_loop": {"C26", "C27", "C28", "C29", "C30", "C31", "C77", "C84"},
    "06_optimizer_step": {"C33", "C34", "C35", "C36", "C37", "C83"},
    "07_schedules": {"C32", "C38", "C39", "C40", "C41", "C42", "C43", "C64", "C65", "C74", "C76", "C79", "C81", "C82"},
    "11_profiling": {"C60", "C61", "C62", "C69"},
}


# --- the shipped notebooks ---


@functools.cache
def chapter_at(path):
    """A shipped notebook, read once: no rule changes it."""
    return read(path)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_notebook_keeps_the_rule(path, rule):
    assert rule(chapter_at(path), path) == []


def test_cells_that_are_not_compared_are_exactly_those_listed_here():
    found = {path.stem: teaching.exempt(chapter_at(path)) for path in SHIPPED}
    assert {stem: cells for stem, cells in found.items() if cells} == EXEMPT


def test_each_claim_is_decided_in_one_chapter():
    told = [(name, path.stem) for path in SHIPPED for name in teaching.claims(chapter_at(path))]
    names = [name for name, _ in told]
    assert [(name, stem) for name, stem in told if names.count(name) > 1] == []


@pytest.mark.parametrize("stem", [path.stem for path in SHIPPED if path.stem in REQUIRED_CLAIMS])
def test_chapter_decides_all_its_claims(stem):
    assert REQUIRED_CLAIMS[stem] - set(teaching.claims(chapter_at(NOTEBOOKS / f"{stem}.ipynb"))) == set()


def test_every_file_in_notebooks_is_a_chapter_with_a_number():
    assert sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")) == [path.name for path in SHIPPED]


def test_notebooks_are_compared_strictly_by_plain_pytest(pytestconfig):
    assert pytestconfig.getoption("nbval") and not pytestconfig.getoption("nbval_lax")
    assert pytestconfig.getoption("nbval_current_env")
    assert pytestconfig.pluginmanager.has_plugin("tests.nbval_strict")
    assert "notebooks" in pytestconfig.getini("testpaths")


# --- each rule, broken on purpose ---


def figure(words):
    picture = new_output("display_data", data={"image/png": "iVBORw0=", "text/plain": "[figure: its words follow]"})
    return [picture, new_output("display_data", data={"text/plain": words})]


def chapter():
    """The smallest chapter that keeps every rule: 01 of a course whose next chapter is 02."""
    stream = [new_output("stream", name="stdout", text="3\n")]
    unanswered = [new_output("execute_result", data={"text/plain": "not attempted"}, execution_count=5)]
    cells = [
        new_markdown_cell("# 1. Datasets\n\nWhat is an example? You will count them. 5 minutes.", id="title"),
        new_code_cell(
            "from course_utils.machine import fit_threads\n\nfit_threads()", id="set-up", metadata={"tags": ["setup"]}
        ),
        new_markdown_cell("## Count\n\nSee [the module](../module.py#L1) and [the end](#Summary).", id="count-words"),
        new_code_cell("print(3)", id="count", outputs=stream, metadata={"tags": ["live"]}),
        new_markdown_cell("## What people say\n\n**C01.** Folders are classes.", id="claims"),
        new_code_cell("len('abc')", id="folders", outputs=figure("[figure] three bars")),
        new_markdown_cell("## Exercises", id="exercises"),
        new_code_cell(
            "def count(items):\n    raise NotImplementedError", id="ex-datasets-1", metadata={"tags": ["exercise"]}
        ),
        new_code_cell("print(count)", id="check-datasets-1", outputs=unanswered, metadata={"tags": ["check"]}),
        new_code_cell("print('a hint')", id="hint-datasets-1"),
        new_markdown_cell("## Summary\n\nNext: [transforms](02_transforms.ipynb#More-of-it)", id="summary"),
    ]
    nb = new_notebook(cells=cells, metadata=copy.deepcopy(METADATA))
    number(nb)
    return nb


def problems(nb, path):
    """Everything that the rules find."""
    return [f"{rule.__name__}: {problem}" for rule in RULES for problem in rule(nb, path)]


def number(nb):
    """Give the code cells the execution counts of one run."""
    for count, cell in enumerate(code_cells(nb), start=1):
        cell.execution_count = count


@pytest.fixture
def course(tmp_path):
    """A folder like the course's; the path of its chapter 01."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    (tmp_path / "module.py").write_text("x = 1\n", encoding="utf-8")
    following = new_notebook(cells=[new_markdown_cell("# 2. Transforms\n\n## More of it", id="title")])
    nbformat.write(following, folder / "02_transforms.ipynb")
    return folder / "01_datasets.ipynb"


def cell(nb, name):
    return next(cell for cell in nb.cells if cell.id == name)


def say(name, text):
    """A breakage: replace the source of cell `name`."""

    def spoil(nb):
        cell(nb, name).source = text

    return spoil


def add(name, text):
    """A breakage: add to the source of cell `name`."""

    def spoil(nb):
        cell(nb, name).source += text

    return spoil


def tag(name, *tags):
    """A breakage: give cell `name` these tags instead of its own."""

    def spoil(nb):
        cell(nb, name).metadata["tags"] = list(tags)

    return spoil


def put(name, *outputs):
    """A breakage: give cell `name` these outputs."""

    def spoil(nb):
        cell(nb, name).outputs = list(outputs)

    return spoil


def rename(name, new):
    def spoil(nb):
        cell(nb, name).id = new

    return spoil


def drop(name):
    def spoil(nb):
        nb.cells.remove(cell(nb, name))
        number(nb)

    return spoil


def move_to_end(name):
    def spoil(nb):
        nb.cells.append(nb.cells.pop(nb.cells.index(cell(nb, name))))
        number(nb)

    return spoil


def metadata(**entries):
    def spoil(nb):
        nb.metadata.update(nbformat.from_dict(entries))

    return spoil


def minor_version(nb):
    nb.nbformat_minor = 4


def broken_structure(nb):
    cell(nb, "count").outputs = "none"


def swap_counts(nb):
    cell(nb, "count").execution_count, cell(nb, "folders").execution_count = 3, 2


def unrun(nb):
    cell(nb, "count").execution_count = None


def many_cells(nb):
    nb.cells[3:3] = [new_code_cell("1", id=f"more-{number}") for number in range(41)]


def long_cells(nb):
    for code in code_cells(nb):
        code.source += "\n1" * 9


def neighbour_without_assert(nb):
    tag("count", "live", teaching.IGNORED)(nb)


def neighbour_with_a_constant(nb):
    tag("count", "live", teaching.IGNORED)(nb)
    add("folders", "\nassert True")(nb)


def neighbour_that_is_exempt(nb):
    tag("count", "live", teaching.IGNORED)(nb)
    tag("folders", teaching.IGNORED)(nb)
    add("folders", "\nassert len('abc') == 3")(nb)


def stream(text, name="stdout"):
    return new_output("stream", name=name, text=text)


def shown(**data):
    return new_output("display_data", data={key.replace("_", "/", 1): value for key, value in data.items()})


ERROR = new_output("error", ename="ValueError", evalue="no", traceback=[])
WIDGET = new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {"model_id": "a1"}})
VISIBLE_FOLDERS = [
    "/home/someone/x.py",
    "/root/.cache",
    "/tmp/ipykernel_7/1.py",
    "file:///work/data",
    "C:\\Users\\someone",
    "C:\\\\Users\\\\someone",
    "lib/site-packages/torch",
    "/Users/someone",
    "'/tmp'",
]

BROKEN = [
    (form.valid_format, minor_version, "4.5"),
    (form.valid_format, broken_structure, "not valid"),
    (form.valid_format, metadata(kernelspec={"name": "my-env", "display_name": "mine"}), "python3"),
    (form.valid_format, metadata(widgets={"state": {}}), "alone"),
    (form.named_cells, rename("count", "3fa9c01b"), "random"),
    (form.named_cells, rename("count", "b2f0c1d4-1111-2222-3333-444455556666"), "random"),
    (form.named_cells, rename("count", "Cell_3"), "lower-case"),
    (form.named_cells, rename("count", "folders"), "used 2 times"),
    (form.executed_in_order, swap_counts, "top to bottom"),
    (form.executed_in_order, unrun, "top to bottom"),
    (form.clean_outputs, put("count", ERROR), "ValueError"),
    (form.clean_outputs, put("count", stream("UserWarning", "stderr")), "stderr"),
    (form.clean_outputs, put("count", WIDGET), "widget"),
    (form.clean_outputs, put("count", shown(text_html="<img src='data:image/png;base64,AA'>")), "inside HTML"),
    (form.clean_outputs, put("count", stream("<Thing at 0x7f3a12bc>")), "address"),
    *[(form.no_machine_paths, put("count", stream(f"read {name}")), "machine path") for name in VISIBLE_FOLDERS],
    (form.no_machine_paths, say("count", "open('/tmp/x')"), "machine path"),
    (form.small, put("count", stream("x" * 1_000_000)), "limit"),
    (form.figures_have_words, put("count", figure("[figure] three bars")[0]), "without its words"),
    (form.figures_have_words, put("count", *figure("[figure] ")), "without its words"),
    (form.figures_have_words, put("count", *figure("<Figure size 500x300>")), "without its words"),
    (form.links_resolve, add("count-words", " [x](../gone.py)"), "nowhere"),
    (form.links_resolve, add("count-words", " [x](03_sampling.ipynb)"), "nowhere"),
    (form.links_resolve, add("count-words", " ![x](picture.png)"), "work/"),
    (form.links_resolve, add("count-words", " <img src='picture.png'>"), "work/"),
    (form.links_resolve, add("count-words", " [x](/module.py)"), "absolute"),
    (form.links_resolve, add("count-words", " [x](#Gone)"), "no such heading"),
    (form.links_resolve, add("count-words", " [x](02_transforms.ipynb#Gone)"), "no such anchor"),
    (form.links_resolve, add("count-words", " [x](../module.py#L2)"), "no such anchor"),
    (teaching.ritual, say("title", "# Datasets\n\nWhat is it? 5 minutes."), "'# 1. Title'"),
    (teaching.ritual, say("title", "# 1. Datasets\n\n5 minutes."), "question"),
    (teaching.ritual, say("title", "# 1. Datasets\n\nWhat is it?"), "minutes"),
    (teaching.ritual, say("claims", "## Claims\n\nC01"), "What people say"),
    (teaching.ritual, drop("exercises"), "Exercises"),
    (teaching.ritual, drop("summary"), "Summary"),
    (teaching.ritual, add("summary", "\n\n## And more"), ""),
    (teaching.ritual, move_to_end("claims"), "in this order"),
    (teaching.ritual, tag("set-up"), "tagged setup"),
    (teaching.ritual, say("set-up", "import math\nmath.pi"), "fit_threads"),
    (teaching.ritual, tag("count"), "live"),
    (teaching.links_onward, say("summary", "## Summary"), "02_transforms"),
    (teaching.short_cells, say("count", "1\n" * 26), "26 lines"),
    (teaching.short_cells, say("count", "x = '" + "a" * 100 + "'"), "characters"),
    (teaching.short_cells, long_cells, "median"),
    (teaching.short_prose, add("count-words", " word" * 121), "words between cells set-up and count"),
    (teaching.short_prose, many_cells, "40"),
    (form.names_are_made, say("count", "print(later)"), "count: Undefined name `later`"),
    (form.names_are_made, move_to_end("ex-datasets-1"), "Undefined name `count`"),
    (form.names_are_made, add("set-up", "\nimport math"), "unused"),
    *[
        (form.allowed_constructs, say("count", source), why)
        for source, why in [
            ("from IPython.display import clear_output", "clear_output"),
            ("@interact\ndef f(x): pass", "interact"),
            ("interact(print, x=1)", "interact"),
            ("!pip install x", "shell"),
            ("x = 1\n%matplotlib inline", "magic"),
            ("input('go on?')", "input"),
            ("# NBVAL_IGNORE_OUTPUT\n1", "tag"),
            ("plt.show()", "figures.show"),
            ("torch.ops.mkldnn._is_mkldnn_bf16_supported()", "not every build"),
            ("torch._C._cuda_init()", "not every build"),
            ("threading.Thread(target=lambda: print(1)).start()", "thread"),
        ]
    ],
    *[(form.allowed_constructs, tag("count", "live", name), "hides") for name in form.FORBIDDEN_TAGS],
    (teaching.exempt_cells_are_asserted, neighbour_without_assert, "asserts nothing"),
    (teaching.exempt_cells_are_asserted, neighbour_with_a_constant, "asserts nothing"),
    (teaching.exempt_cells_are_asserted, neighbour_that_is_exempt, "nor is its neighbour"),
    (teaching.exempt_cells_are_asserted, tag("count", teaching.IGNORED, "asserted-by:gone"), "missing"),
    (teaching.exempt_cells_are_asserted, tag("hint-datasets-1", teaching.IGNORED), "missing"),
    (teaching.exercises_complete, drop("ex-datasets-1"), "datasets-1"),
    (teaching.exercises_complete, rename("ex-datasets-1", "ex-datasets-2"), "datasets-1"),
    (teaching.exercises_complete, drop("check-datasets-1"), "in this order"),
    (teaching.exercises_complete, move_to_end("ex-datasets-1"), "in this order"),
    (teaching.exercises_complete, tag("check-datasets-1"), "lacks the tag"),
    (teaching.exercises_complete, put("check-datasets-1", stream("right")), "shipped with an answer"),
    (teaching.exercises_stand_alone, say("check-datasets-1", "print(count, width)"), "width"),
    (teaching.claims_decided, say("claims", "## What people say\n\nC85 and C01"), "C85"),
    (teaching.claims_decided, say("claims", "## What people say\n\nC1"), "C1 is none"),
    (teaching.claims_decided, drop("folders"), "no cell decides"),
]


def test_small_chapter_keeps_every_rule(course):
    assert problems(chapter(), course) == []


def test_every_rule_is_broken_on_purpose_below():
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


@pytest.mark.parametrize(
    "rule, spoil, words", BROKEN, ids=[f"{rule.__name__}-{i}" for i, (rule, _, _) in enumerate(BROKEN)]
)
def test_rule_sees_the_defect(course, rule, spoil, words):
    nb = chapter()
    spoil(nb)
    assert words in "\n".join(rule(nb, course)) and rule(nb, course) != []


@pytest.mark.parametrize(
    "text", ["../work/", "work/01_datasets.ipynb", "https://host/home/x", "and/or", "/dev/shm", "10 items/work"]
)
def test_harmless_text_is_no_machine_path(course, text):
    nb = chapter()
    put("count", stream(text))(nb)
    assert form.no_machine_paths(nb, course) == []


def test_a_stub_may_import_what_its_answer_needs(course):
    nb = chapter()
    add("ex-datasets-1", "\n\nimport math")(nb)
    assert form.names_are_made(nb, course) == []


def test_an_exempt_cell_with_an_asserting_neighbour_is_fine(course):
    nb = chapter()
    tag("count", "live", teaching.IGNORED, "asserted-by:hint-datasets-1")(nb)
    add("hint-datasets-1", "\nassert len('abc') == 3")(nb)
    assert teaching.exempt_cells_are_asserted(nb, course) == []
    assert teaching.exempt(nb) == {"count": "hint-datasets-1"}


def test_chapter_00_needs_no_claims_and_no_exercises(course):
    nb = chapter()
    nb.cells = [one for one in nb.cells if one.id in ("title", "set-up", "count-words", "count", "summary")]
    say("title", "# 0. Start here")(nb)
    first = course.with_name("00_start_here.ipynb")
    nbformat.write(chapter(), course)
    say("summary", "## Summary\n\n[datasets](01_datasets.ipynb)")(nb)
    number(nb)
    assert problems(nb, first) == []
