"""Chapter 11's experiment: what the tool says of stored times, how parts become a table of times, naming, the page."""

import html
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from course_utils.bottleneck import LoopTimes, decide
from course_utils.labs import profiling as lab_profiling
from course_utils.labs.profiling import HERE, KEPT, View, bottleneck_lab, progress_html, reached, still_loops
from course_utils.labs.profiling_drawing import SHOWN, mean_turn, parts_svg, said, strip_svg
from course_utils.labs.profiling_pipelines import (
    CASES,
    COMPUTE,
    DATA,
    HANDOVER,
    LETTERS,
    STARTUP,
    VERDICTS,
    Case,
    Log,
    MeasuredParts,
    Progress,
    StoredParts,
    log_from,
    order,
)
from course_utils.labs.profiling_times import STORED
from course_utils.measured_loop import Measured
from course_utils.synthetic_pipeline import Costs

pytestmark = pytest.mark.usefixtures("no_run_is_left", "nothing_is_left", "still")
STILL_TWIN = lab_profiling, "still_loops"

QUICK = Case(Costs(0.5, 1.0, num_workers=1), 100, DATA, "a lesson")


# --- tables of times in, verdicts out -------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_tool_says_of_the_stored_times_what_each_pipeline_was_built_to_be(name):
    found = STORED[name].diagnosis
    assert found.verdict == CASES[name].verdict and list(STORED) == list(CASES)
    kept = STORED[name].times
    assert (kept.num_workers, kept.num_batches) == (CASES[name].costs.num_workers, CASES[name].num_batches)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("worse", [0.8, 1.25])
def test_the_verdicts_have_room_a_step_a_fourth_slower_or_faster_changes_none(name, worse):
    times = STORED[name].times
    moved = replace(times, step_ms=times.step_ms * worse, turn_ms=times.turn_ms + times.step_ms * (worse - 1))
    assert decide(moved).verdict == CASES[name].verdict


@pytest.mark.parametrize("name", [name for name in CASES if name != "slow loading"])
def test_the_model_agrees_with_what_the_lesson_says_of_the_turn(name):
    costs = CASES[name].costs
    turn = replace(costs, startup_ms=0.0).predicted(2).turn_ms
    assert turn == pytest.approx(STORED[name].times.turn_ms, rel=0.35)


def test_all_four_verdicts_occur_and_the_naive_reading_misleads_where_the_lesson_says_so():
    assert {case.verdict for case in CASES.values()} == set(VERDICTS) == {DATA, HANDOVER, STARTUP, COMPUTE}
    none, slow = STORED["no workers"], STORED["a slow step"]
    assert none.naive_ms < none.times.step_ms and none.diagnosis.verdict == DATA  # "the step takes longer"
    assert slow.naive_ms > slow.times.step_ms and slow.diagnosis.verdict == COMPUTE  # "the loader takes longer"
    dear = STORED["dear hand-over"].times
    assert max(dear.load_ms, dear.step_ms) * 1.3 < dear.turn_ms  # with workers, and still a sum
    bound = STORED["slow loading"].times
    assert bound.turn_ms == pytest.approx(bound.load_ms, rel=0.1)


@pytest.mark.parametrize("name", CASES)
def test_the_stored_start_is_the_first_wait_that_the_strip_shows(name):
    assert STORED[name].times.startup_ms == pytest.approx(STORED[name].waits[0], abs=0.01)


def test_the_naive_number_is_the_mean_of_the_first_batches_with_the_start():
    log = Log(LoopTimes(10, 20, 10, load_ms=5, startup_ms=105, num_workers=1, num_batches=1000), (1.0,), (1.0,))
    assert log.naive_ms == pytest.approx((105 + 19 * 5) / 20)
    short = replace(log, times=replace(log.times, num_batches=4))
    assert short.naive_ms == pytest.approx((105 + 3 * 5) / 4)


def measured(turn, wait, first, waits):
    return Measured(turn, wait, first, tuple(waits), (turn - wait,) * len(waits))


def test_the_parts_become_one_table_of_times():
    found = [measured(18, 8, 100, [8, 8]), measured(9, 9, 50, [9, 9]), measured(17, 7, 40, [1, 7, 30])]
    log = log_from(CASES["dear hand-over"], found, 10.0)
    assert log.times == LoopTimes(10.0, 18, 8, 9, 100, 7, 2, 20_000)  # the median of the idle worker's waits
    assert (log.waits, log.steps) == ((100, 8, 8), (10.0, 10, 10)) and log.diagnosis.verdict == HANDOVER


def test_without_workers_nothing_is_handed_over():
    log = log_from(CASES["no workers"], [measured(21, 9, 9, [9]), measured(9, 9, 9, [9])], 12.0)
    assert log.times.handover_ms == 0.0 and log.diagnosis.verdict == DATA


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_a_function_of_the_seed_and_holds_each_pipeline_once(seed):
    assert sorted(order(seed).values()) == sorted(CASES) and "".join(order(seed)) == LETTERS
    assert order(seed) == order(seed)


def test_orders_of_different_seeds_differ():
    assert len({tuple(order(seed).values()) for seed in range(5)}) == 5


# --- measuring ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers, num_loops", [(0, 2), (1, 3)])
def test_the_parts_are_really_measured_and_the_last_progress_has_the_table(num_workers, num_loops):
    case = QUICK._replace(costs=replace(QUICK.costs, num_workers=num_workers))
    found = list(MeasuredParts(case, speed=20))
    assert [part.words.split(":")[0] for part in found][-1] == "the step alone" and len(found) > num_loops
    assert all(part.log is None for part in found[:-1])
    times = found[-1].log.times
    assert times.step_ms > 0.9 and times.turn_ms > 0.9 and times.num_batches == 100  # a step sleeps 1 ms at least
    assert (times.handover_ms > 0) is (num_workers > 0) and times.startup_ms > 0


def test_what_is_measured_of_the_parts_is_the_loop_the_loader_alone_and_an_idle_worker():
    case = CASES["dear hand-over"]
    parts = MeasuredParts(case)
    asked = [(loop.costs, loop.seconds) for loop in parts._loops]
    parts.close()
    assert asked == [
        (case.costs, 1.2),
        (replace(case.costs, step_ms=0.0), 0.6),
        (replace(case.costs, load_ms=0.0), 0.6),
    ]


def test_a_measurement_that_is_closed_or_fails_leaves_no_worker():
    parts = MeasuredParts(QUICK)
    next(parts)
    parts.close()
    broken = MeasuredParts(QUICK)
    broken._loops[0]._dataset.step = lambda batch: 1 / 0
    with pytest.raises(ZeroDivisionError):
        next(broken)
    assert all(list(loop) == [] for loop in [*parts._loops, *broken._loops])


def test_workers_that_cannot_be_started_end_those_that_were(monkeypatch):
    made = []

    def loop(costs, **how):
        if made:
            raise OSError("no more processes")
        made.append(measured_loop(costs, **how))
        return made[0]

    from course_utils.labs import profiling_pipelines

    measured_loop = profiling_pipelines.MeasuredLoop
    monkeypatch.setattr(profiling_pipelines, "MeasuredLoop", loop)
    with pytest.raises(OSError, match="no more processes"):
        MeasuredParts(QUICK)
    assert list(made[0]) == []


def test_stored_parts_are_one_progress_with_the_log():
    log = STORED["no workers"]
    assert list(StoredParts(log)) == [Progress("the stored times", log)]


# --- the pictures ---------------------------------------------------------------------------------------------


def test_the_strip_has_two_bars_a_turn_marks_each_epoch_and_numbers_what_leaves_it():
    log = STORED["short epochs"]
    tree = ElementTree.fromstring(strip_svg(log))
    texts = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("e") == 4  # turns 0, 10, 20, 30 of 36
    tall = [wait + step for wait, step in zip(log.waits, log.steps, strict=True) if wait > 100]
    assert len(tall) == 4 and all(f"{turn:.0f}" in texts for turn in tall)
    rects = tree.findall("{*}rect")
    assert len(rects) == 1 + 2 + 2 * SHOWN - 4  # no step is seen above a wait that leaves the picture
    assert tree.get("aria-label") == f"{said(log)}."


def test_the_mean_leaves_an_epochs_first_batch_out():
    log = Log(LoopTimes(10, 12, 2, num_batches=2, num_workers=1), (400.0, 2.0, 500.0, 4.0), (10.0, 10.0, 10.0, 12.0))
    assert mean_turn(log) == (3.0, 11.0)
    assert said(log) == "On average a turn waits 3.0 ms and steps 11.0 ms; an epoch's first batch is there after 400 ms"


def test_the_parts_of_a_diagnosis_are_one_bar_of_full_length():
    found = STORED["dear hand-over"].diagnosis
    tree = ElementTree.fromstring(parts_svg(found))
    widths = [float(rect.get("width")) for rect in tree.findall("{*}rect") if rect.get("class") == "part"]
    shares = [width / sum(widths) for width in widths]
    assert sum(widths) == pytest.approx(634, abs=0.5)
    assert shares == pytest.approx([ms / found.batch_ms for ms in found.parts_ms.values()], abs=0.001)
    assert tree.get("aria-label").startswith(f"A batch takes {found.batch_ms:.3g} ms: step")


# --- the page -------------------------------------------------------------------------------------------------


def button(lab, words):
    return next(one for one in lab.buttons if one.description == words)


def ask(lab):
    lab.go.click()
    if lab.run._thread is not None:
        lab.run._thread.join(30)


def play(lab, letter, verdict):
    lab.letter.value = letter
    button(lab, verdict.capitalize()).click()
    ask(lab)


def test_five_of_five_named_before_the_tool_reach_the_goal_and_reset_forgets():
    lab = bottleneck_lab(stored=True)
    for letter, name in lab.result.letters.items():
        assert not lab.reached
        play(lab, letter, CASES[name].verdict)
        assert lab.error is None and "\u2713 Right." in lab.figure.value
        assert html.escape(CASES[name].lesson) in lab.figure.value
    assert lab.reached and "\u2713 reached" in lab.note.value
    assert "named right before the tool did: 5 of 5 \u00b7 not asked about yet: 0" in lab.status.value
    button(lab, "Reset").click()
    assert not lab.reached and "0 of 0 \u00b7 not asked about yet: 5" in lab.status.value
    assert "pipeline-told" not in lab.figure.value and lab.run.state == "ready"


def test_five_asked_about_and_one_named_wrong_do_not_reach_the_goal():
    letters = order(0)
    named = {letter: CASES[name].verdict for letter, name in letters.items()}
    view = View(letters, "A", named, {letter: STORED[name].diagnosis for letter, name in letters.items()}, frozenset())
    assert reached(view) and view.score == 5
    wrong = view._replace(named=named | {"B": DATA})
    assert wrong.score == 4 and not reached(wrong)


def test_a_wrong_name_is_told_with_the_tools_verdict_parts_and_advice_and_cannot_be_changed():
    lab = bottleneck_lab(stored=True)
    letter = next(letter for letter, name in lab.result.letters.items() if name == "dear hand-over")
    play(lab, letter, DATA)
    shown = html.unescape(lab.figure.value)
    assert "\u2717 Not so." in shown and f"The tool: <b>{HANDOVER}</b>" in shown and 'class="part"' in shown
    assert all(sentence in shown for sentence in STORED["dear hand-over"].diagnosis.advice)
    button(lab, "Hand-over-bound").click()
    assert f"The tool has told pipeline {letter} already: your name for it stays." in lab.figure.value
    assert lab.error is None and lab.result.named[letter] == DATA and lab.result.score == 0
    lab.letter.value = next(other for other in LETTERS if other != letter)
    assert "already" not in lab.figure.value


def test_after_a_wrong_name_it_is_said_how_the_goal_can_be_reached_and_reset_opens_it_again():
    lab = bottleneck_lab(stored=True)
    assert "named wrong" not in lab.status.value
    letter, name = next((letter, name) for letter, name in lab.result.letters.items() if CASES[name].verdict != DATA)
    play(lab, letter, DATA)
    assert "0 of 1 \u00b7 not asked about yet: 4 \u00b7 one was named wrong: for the goal Reset" in lab.status.value
    button(lab, "Reset").click()
    assert "named wrong" not in lab.status.value
    play(lab, letter, CASES[name].verdict)
    assert "1 of 1 \u00b7 not asked about yet: 4<" in lab.status.value


def test_the_tool_is_not_asked_before_a_name_is_given_and_the_name_may_change_until_then():
    lab = bottleneck_lab(stored=True)
    lab.go.click()
    assert "Name the bottleneck of pipeline A first." in lab.figure.value and lab.run.state == "ready"
    assert lab.told.value == "" and not lab.result.found
    button(lab, "Data-bound").click()
    button(lab, "Compute-bound").click()
    assert "You say: <b>compute-bound</b>" in lab.figure.value and "first." not in lab.figure.value
    ask(lab)
    assert lab.result.found["A"].verdict == CASES[lab.result.letters["A"]].verdict and lab.told.value == ""


def test_each_pipeline_shows_its_own_loop_and_no_verdict_before_the_tool_is_asked():
    lab = bottleneck_lab(stored=True)
    for letter, name in lab.result.letters.items():
        lab.letter.value = letter
        shown = html.unescape(lab.figure.value)
        assert said(STORED[name]) in shown and f"<b>Pipeline {letter}</b>" in shown
        assert not any(word in shown for word in (*VERDICTS, name)) and "The loader alone" not in shown
    button(lab, "Loader and step alone").click()
    assert f"{STORED[name].naive_ms:.1f} ms as the mean of its first 10" in lab.figure.value
    lab.letter.value = "A"
    assert "The loader alone" not in lab.figure.value


def test_another_order_forgets_what_was_named():
    lab = bottleneck_lab(stored=True)
    play(lab, "A", DATA)
    lab.seed.value = 1
    assert lab.result.letters == order(1) and lab.result.named == {} and lab.result.found == {}
    lab.go.click()  # what was measured under the former order counts for no letter of this one
    assert lab.result.found == {} and "0 of 0" in lab.status.value


@pytest.fixture
def quick(monkeypatch):
    made = []

    def parts(case):
        made.append(MeasuredParts(QUICK, speed=20))
        return made[-1]

    monkeypatch.setattr(lab_profiling, "MeasuredParts", parts)
    return made


def test_the_tool_measures_here_in_the_background_and_the_answer_is_of_the_letter_that_was_asked(quick):
    lab = bottleneck_lab()
    assert lab.times.value == HERE
    button(lab, "Data-bound").click()
    lab.go.click()
    lab.letter.value = "C"
    lab.run._thread.join(30)
    assert list(lab.result.found) == ["A"] and lab.run.error is None
    assert lab.result.found["A"].times.num_batches == 100 and "pipeline-told" not in lab.figure.value
    lab.letter.value = "A"
    assert "The tool: <b>" in lab.figure.value


def test_where_the_measured_verdict_is_another_the_one_it_was_built_for_counts_and_it_is_said(monkeypatch):
    other = STORED["short epochs"]
    monkeypatch.setattr(lab_profiling, "MeasuredParts", lambda case: StoredParts(other))
    lab = bottleneck_lab()
    case = CASES[lab.result.letters["A"]]
    assert case.verdict != STARTUP
    play(lab, "A", case.verdict)
    shown = html.unescape(lab.figure.value)
    assert "\u2713 Right." in shown and f"It was built to be {case.verdict}, and that counts" in shown
    assert "it was start-up-bound" in shown and lab.result.score == 1


def test_stop_ends_the_workers_nothing_is_told_and_it_can_be_asked_again(monkeypatch):
    made = []
    monkeypatch.setattr(lab_profiling, "MeasuredParts", lambda case: made.append(MeasuredParts(QUICK)) or made[-1])
    lab = bottleneck_lab()
    button(lab, "Data-bound").click()
    lab.go.click()
    lab.halt.click()
    lab.run._thread.join(30)
    assert lab.run.state == "stopped" and lab.result.found == {}
    assert all(list(loop) == [] for loop in made[0]._loops)
    lab.times.value = KEPT
    ask(lab)
    assert list(lab.result.found) == ["A"]


def test_an_order_that_changes_while_it_measures_ends_the_measuring(monkeypatch):
    monkeypatch.setattr(lab_profiling, "MeasuredParts", lambda case: MeasuredParts(QUICK))
    lab = bottleneck_lab()
    button(lab, "Data-bound").click()
    lab.go.click()
    lab.seed.value = 2
    assert not lab.run.alive and lab.run.state == "ready" and lab.result.found == {}


def test_an_error_of_the_measuring_is_shown_and_nothing_is_told(monkeypatch):
    monkeypatch.setattr(lab_profiling, "MeasuredParts", lambda case: (_ for _ in ()).throw(OSError("no <process>")))
    lab = bottleneck_lab()
    button(lab, "Data-bound").click()
    ask(lab)
    assert "no &lt;process&gt;" in lab.told.value and lab.result.found == {}
    lab.times.value = KEPT
    ask(lab)
    assert list(lab.result.found) == ["A"] and "alert" not in lab.told.value


@pytest.mark.parametrize(
    "results, state, told",
    [
        ([], "ready", ""),
        ([], "running", "<div>Measuring pipeline B: the workers start.</div>"),
        (
            [Progress("the loop: 9 <batches>")],
            "running",
            "<div>Measuring pipeline B: the loop: 9 &lt;batches&gt;.</div>",
        ),
        ([Progress("the loop")], "stopped", "<div>Stopped at pipeline B: the loop.</div>"),
        ([Progress("the loop")], "finished", ""),
    ],
)
def test_progress_is_told_until_the_answer_is_there(results, state, told):
    assert progress_html("B", results, state) == told


def test_running_the_cell_again_leaves_no_widget_and_no_run():
    import ipywidgets

    former = bottleneck_lab(stored=True)
    count = len(ipywidgets.widgets.widget._instances)
    bottleneck_lab(stored=True)
    assert former.box is None and len(ipywidgets.widgets.widget._instances) == count


def test_the_lab_disturbs_no_generator_and_its_still_twin_tells_the_loops_and_no_verdict(outputs):
    before = torch.get_rng_state()
    lab = bottleneck_lab()
    lab._ipython_display_()
    assert torch.equal(before, torch.get_rng_state())
    words = still_loops().alt
    assert [out["text/plain"] for out in outputs][::2] == [
        "[live experiment profiling: controls in JupyterLab with ipywidgets; a still picture follows]",
        f"[figure] {words}",
    ]
    assert (
        words.startswith("The mean turn of five loops, as stored, without the first of an epoch. A: ")
        and "E: " in words
    )
    assert not any(word in words for word in (*VERDICTS, *CASES))


def test_the_stills_title_is_true():
    waits = {name: mean_turn(log)[0] / sum(mean_turn(log)) for name, log in STORED.items()}
    assert sorted(name for name, share in waits.items() if 0.38 < share < 0.6) == sorted(
        ["slow loading", "dear hand-over", "no workers"]
    )
    assert all(share < 0.2 for name, share in waits.items() if name in ("a slow step", "short epochs"))


def test_without_ipywidgets_the_still_twins_of_both_measuring_labs_stand_alone_and_they_still_compute(
    fresh_python,
):
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "from course_utils.labs.profiling import bottleneck_lab\n"
        "lab = bottleneck_lab(stored=True); lab._ipython_display_(); lab.name_it('data-bound'); lab.measure()\n"
        "lab.run._thread.join(20); lab.refresh()\n"
        "assert lab.box is None and list(lab.result.found) == ['A'], lab.result\n"
        "from course_utils.labs.loaders import pipeline_lab\n"
        "lab = pipeline_lab(); lab._ipython_display_(); lab.parts['num_workers'].value = 3; lab.refresh()\n"
        "assert lab.box is None and lab.result.solved == ('photos from a slow disk',), lab.result\n"
        "lab.parts['load_ms'].value = 0.5; lab.parts['num_workers'].value = 0\n"
        "lab.run.advance(1); assert lab.run.points[0].num_turns > 0; lab.close()"
    )
    done = fresh_python.run(code)
    assert done.stderr == "" and done.stdout.splitlines()[0].startswith("[live experiment profiling: controls")
    shown = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert [line.split(":")[0] for line in shown[::2]] == ["[live experiment profiling", "[live experiment loaders"]
    assert shown[1].startswith("[figure] The mean turn of five loops")
    assert shown[3].startswith("[figure] A model, not a measurement: what 2 workers")
