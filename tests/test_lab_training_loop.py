"""Chapter 05's experiment: what each order does, how predictions are judged, the trace, the page."""

import html
import re
from xml.etree import ElementTree

import ipywidgets
import pytest
import torch

from course_utils.labs import training_loop as lab_training_loop
from course_utils.labs.training_loop import OWN, still_orders, update_lab
from course_utils.labs.training_loop_drawing import losses_svg, trace_html
from course_utils.labs.training_loop_orders import (
    LETTERS,
    NOT,
    ORDERS,
    OTHERWISE,
    RAISES,
    RIGHT,
    SEEDS,
    SHOWN,
    WHY,
    View,
    drawn,
    num_rows,
    reached,
    rows_of,
    run_of,
    verdict,
    words,
)
from course_utils.update_order import ACTIONS, LINES, VERDICTS

pytestmark = pytest.mark.usefixtures("no_run_is_left", "still")
STILL_TWIN = lab_training_loop, "still_orders"

NO_ZERO = ACTIONS[1:]
BETWEEN = ("forward", "loss", "backward", "zero_grad", "clip", "step")
TWICE = ("zero_grad", "forward", "loss", "backward", "backward", "clip", "step")
UNCLIPPED = ("zero_grad", "forward", "loss", "backward", "step", "clip")
LATE = ("forward", "loss", "clip", "step", "backward")  # raises in update 2


def view(order=NO_ZERO, *, predicted=None, shown=0, left_over=False, letters=None):
    key = order, left_over
    said = {} if predicted is None else {key: predicted}
    return View(letters or {"A": NO_ZERO}, order, left_over, said, {key: shown})


# --- what is asked and judged ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", WHY, ids=" ".join)
def test_each_order_does_what_it_is_filed_under_and_has_a_reason(order):
    assert order in ORDERS[run_of(order).verdict] and WHY[order].endswith(".")


def test_the_right_order_itself_is_never_asked_and_every_verdict_has_five_orders():
    assert ACTIONS not in WHY and {kind: len(group) for kind, group in ORDERS.items()} == dict.fromkeys(VERDICTS, 5)


@pytest.mark.parametrize("seed", range(5))
def test_eight_orders_are_asked_all_different_with_every_verdict(seed):
    asked = drawn(seed)
    assert "".join(asked) == LETTERS and len(set(asked.values())) == 8 and asked == drawn(seed)
    assert {run_of(order).verdict for order in asked.values()} == set(VERDICTS)


def test_other_seeds_ask_other_orders():
    assert len({frozenset(drawn(seed).values()) for seed in range(5)}) == 5


def test_the_numbers_of_verdicts_do_not_tell_the_last_order():
    counts = [[run_of(order).verdict for order in drawn(seed).values()] for seed in range(5)]
    assert len({tuple(sorted(kinds)) for kinds in counts}) > 1


@pytest.mark.parametrize(
    "order, rows, last",
    [(ACTIONS, 12, "step"), (TWICE, 5, "backward"), (LATE, 10, "backward"), ((), 0, None), (("loss",), 1, "loss")],
    ids=lambda part: str(part),
)
def test_an_order_is_stepped_through_to_the_action_that_raises_or_the_end_of_update_2(order, rows, last):
    run = run_of(order)
    assert num_rows(run) == rows and (rows == 0 or rows_of(run)[rows - 1].action == last)
    reached_rows = rows_of(run)[:rows]
    assert [row.state for row in reached_rows if row.state] == list(range(1, rows + (run.error is None)))


@pytest.mark.parametrize(
    "order, said, told",
    [
        (NO_ZERO, OTHERWISE, "\u2713 Right: it learns otherwise (the weights are those without zero_grad). Without"),
        (NO_ZERO, RIGHT, "\u2717 Not so, you said \u201clearns as the right order\u201d: it learns otherwise"),
        (
            BETWEEN,
            NOT,
            "\u2713 Right: it does not learn (the weights stay as they were at the start). zero_",
        ),
        (TWICE, RAISES, "\u2713 Right: it raises (RuntimeError at 'backward' in update 1: Trying to backward"),
        (
            LATE,
            NOT,
            "\u2717 Not so, you said \u201cdoes not learn\u201d: it raises (RuntimeError at 'backward'",
        ),
        (ACTIONS, RIGHT, "\u2713 Right: it learns as the right order (equal weights after each of 16 updates)."),
        (UNCLIPPED, OTHERWISE, "\u2713 Right: it learns otherwise (the weights are those without clip). The step is"),
        ((), RIGHT, "\u2717 Not so, you said \u201clearns as the right order\u201d: it does not learn"),
    ],
)
def test_a_finished_order_is_judged_with_its_reason_and_an_unfinished_one_is_not(order, said, told):
    end = max(1, num_rows(run_of(order)))
    assert verdict(view(order, predicted=said, shown=end)).startswith(told)
    assert verdict(view(order, predicted=said, shown=end - 1)) == ""


def test_an_order_whose_loss_grows_beyond_any_bound_says_so():
    told = [verdict(view(order, predicted=OTHERWISE, shown=12)) for order in (UNCLIPPED, NO_ZERO)]
    assert [one.endswith(" In these updates its loss grows beyond any bound.") for one in told] == [True, False]


def test_a_right_update_before_makes_another_run_and_the_reason_of_the_plain_one_is_not_given():
    order = ("zero_grad", "loss", "backward", "clip", "step")
    end = num_rows(run_of(order, True))
    told = verdict(view(order, predicted=RAISES, shown=end, left_over=True))
    assert "a second time" in told and WHY[order] not in told


def test_the_score_counts_orders_run_to_the_end_and_the_goal_wants_all_of_them():
    asked = {"A": NO_ZERO, "B": BETWEEN}
    said = {(NO_ZERO, False): OTHERWISE, (BETWEEN, False): NOT, (ACTIONS, False): RAISES}
    ends = {(order, False): num_rows(run_of(order)) for order in (NO_ZERO, BETWEEN, ACTIONS)}
    now = View(asked, ACTIONS, False, said, ends)
    assert (now.score, now.letter, reached(now)) == (2, None, True)
    assert words(now) == "predicted right: 2 of 2 \u00b7 not run yet: 0"
    part = now._replace(shown=ends | {(BETWEEN, False): 3})
    assert words(part) == "predicted right: 1 of 1 \u00b7 not run yet: 1" and not reached(part)
    wrong = now._replace(predicted=said | {(NO_ZERO, False): NOT})
    assert words(wrong).endswith("one was predicted wrong: Reset asks eight other orders") and not reached(wrong)


# --- the pictures ---------------------------------------------------------------------------------------------


def table(now):
    """The rows of the trace, as lists of cells."""
    rows = ElementTree.fromstring(trace_html(now)).findall("tr")
    return [["".join(cell.itertext()) for cell in row] for row in rows]


def test_the_trace_shows_every_line_and_the_values_of_those_made():
    rows = table(view(shown=3))
    assert [row[:2] for row in rows[1:4]] == [["", "start"], ["1", LINES["forward"]], ["1", LINES["loss"]]]
    assert len(rows) == 2 + 10 and rows[5][2:] == [""] * 4
    state = run_of(NO_ZERO).states[3]
    assert rows[4][2:4] == [f"{state.loss:.3f}", "freed / freed"]
    assert rows[4][4].split() == [f"{value:.3f}" for value in state.gradients.tolist()]
    assert rows[1][2:] == ["\u2013", "\u2013 / \u2013", "none", "  ".join(f"{x:.3f}" for x in state.weights.tolist())]


@pytest.mark.parametrize("order", [TWICE, NO_ZERO, LATE], ids=" ".join)
def test_an_order_that_was_not_run_to_the_end_does_not_tell_in_words_where_it_will_raise(order):
    last = num_rows(run_of(order))
    told = [re.search("aria-label='([^']*)'", trace_html(view(order, shown=shown)))[1] for shown in range(last + 1)]
    assert told == [*(f"{shown} actions made" for shown in range(last)), f"{last} actions made, to the end"]


def test_what_an_action_changed_is_bold_and_nothing_else():
    page = trace_html(view(shown=10))
    bold = [re.findall(r"<td style='([^']*)'>", row)[2:] for row in re.findall(r"trace-made.*?</tr>", page)]
    changed = [["bold" in style for style in styles] for styles in bold]
    assert changed[:5] == [
        [False, True, False, False],  # forward: a graph
        [True, True, False, False],  # loss
        [False, True, True, False],  # backward
        [False, False, True, False],  # clip
        [False, False, False, True],  # step
    ]


def test_an_action_that_raises_shows_its_error_escaped_in_its_row():
    rows = table(view(TWICE, shown=5))
    assert rows[-10][2].startswith("\u2717 RuntimeError: Trying to backward through the graph a second time")
    assert rows[-9][2:] == [""] * 4
    name = table(view(("loss",), shown=1))[2][2]
    assert name == "\u2717 NameError: name 'outputs' is not defined"


def labels(picture):
    return [text.text for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


def test_the_losses_of_an_order_come_when_it_was_run_to_the_end():
    assert "this order" not in labels(losses_svg(view(shown=9)))
    assert {"this order", "the right order"} <= set(labels(losses_svg(view(shown=10))))
    same = losses_svg(view(("forward", "loss", "backward", "clip", "step", "zero_grad"), shown=12))
    assert "both orders" in labels(same) and "this order" not in labels(same)


@pytest.mark.parametrize("order", [*WHY, (), ("step",), ("forward",) * 8], ids=" ".join)
def test_every_order_can_be_drawn_also_one_that_diverges_or_makes_no_update(order):
    now = view(order, predicted=NOT, shown=99)
    for text in (losses_svg(now), trace_html(now)):
        ElementTree.fromstring(text)
    assert "nan" not in losses_svg(now) and "inf" not in losses_svg(now)


# --- the page -------------------------------------------------------------------------------------------------


def button(lab, said):
    return next(one for one in lab.buttons if one.description == said)


def play(lab, said, *, end="Run to the end"):
    button(lab, said.capitalize()).click()
    button(lab, end).click()


def test_eight_of_eight_predicted_before_they_run_reach_the_goal_and_reset_forgets():
    lab = update_lab()
    for letter, order in drawn(0).items():
        assert not lab.reached
        lab.letter.value = letter
        assert lab.order() == order
        play(lab, run_of(order).verdict)
        assert lab.error is None and "\u2713 Right" in lab.figure.value and html.escape(WHY[order]) in lab.figure.value
    assert lab.reached and "\u2713 reached" in lab.note.value and "predicted right: 8 of 8" in lab.status.value
    button(lab, "Reset").click()
    assert not lab.reached and "0 of 0 \u00b7 not run yet: 8" in lab.status.value and lab.letter.value == "A"
    assert lab.seed.value == 1 and lab.order() == drawn(1)["A"] and lab.result.prediction is None


def test_reset_asks_orders_whose_answers_were_not_told_and_the_same_ones_where_none_was():
    lab = update_lab()
    asked = []
    for _ in range(7):
        asked.append(lab.seed.value)
        assert (lab.order(), lab.result.letters) == (drawn(asked[-1])["A"], drawn(asked[-1])) and not lab.result.shown
        button(lab, "Raises").click()
        button(lab, "Reset").click()
        assert lab.seed.value == asked[-1] and lab.result.predicted == {}
        play(lab, RAISES)
        button(lab, "Reset").click()
    assert asked == [0, 1, 2, 3, 4, 0, 1] and tuple(asked[:5]) == SEEDS and lab.error is None


def test_a_prediction_comes_first_may_change_until_the_order_runs_and_stays_then():
    lab = update_lab()
    button(lab, "Next action").click()
    assert "Predict first" in lab.figure.value and not lab.result.shown
    play(lab, NOT, end="Next action")
    assert lab.result.shown == {lab.result.key: 1} and "Predict first" not in lab.figure.value
    button(lab, "Raises").click()
    assert lab.result.prediction == NOT and "runs already: what you said of it stays" in lab.figure.value
    lab.letter.value = "B"
    assert "runs already" not in lab.figure.value
    button(lab, "Raises").click()
    button(lab, "Learns otherwise").click()
    assert lab.result.prediction == OTHERWISE


def test_next_action_goes_to_the_end_and_no_further():
    lab = update_lab()
    order = drawn(0)["A"]
    button(lab, "Raises").click()
    for _ in range(20):
        button(lab, "Next action").click()
    assert lab.result.shown == {(order, False): num_rows(run_of(order))} and lab.result.finished and lab.error is None


def test_a_wrong_prediction_counts_and_says_why():
    lab = update_lab()
    order = drawn(0)["A"]
    play(lab, next(kind for kind in VERDICTS if kind != run_of(order).verdict))
    assert "\u2717 Not so" in lab.figure.value and html.escape(WHY[order]) in lab.figure.value
    assert "predicted right: 0 of 1 \u00b7 not run yet: 7 \u00b7 one was predicted wrong" in lab.status.value


def test_an_own_order_is_run_and_judged_but_does_not_count_and_an_asked_one_is_known_again():
    lab = update_lab()
    for knob, action in zip(lab.places, (*ACTIONS, "", ""), strict=True):
        knob.value = action
    assert lab.letter.value == OWN and lab.order() == ACTIONS
    play(lab, RIGHT)
    assert "\u2713 Right: it learns as" in lab.figure.value and "0 of 0" in lab.status.value
    for knob, action in zip(lab.places, ("", *drawn(0)["C"], *[""] * 7), strict=False):
        knob.value = action
    assert lab.letter.value == "C"
    lab.left_over.value = True
    assert lab.letter.value == OWN and lab.result.left_over
    lab.letter.value = "D"
    assert lab.left_over.value is False and lab.order() == drawn(0)["D"] and lab.error is None


def test_other_orders_forget_what_was_said():
    lab = update_lab()
    play(lab, RAISES)
    lab.letter.value = "C"
    lab.seed.value = 1
    assert lab.letter.value == "A" and lab.order() == drawn(1)["A"] and "0 of 0" in lab.status.value
    assert lab.result.predicted == {} and lab.error is None
    button(lab, "Reset").click()  # of seed 0 an answer was told, of seed 1 none
    assert lab.seed.value == 1 and lab.order() == drawn(1)["A"] and lab.result.letters == drawn(1)


def test_no_order_of_any_knobs_is_an_error():
    lab, generator = update_lab(), torch.Generator().manual_seed(0)
    for _ in range(15):
        chosen = torch.randint(len(ACTIONS) + 1, (len(lab.places),), generator=generator).tolist()
        for knob, place in zip(lab.places, chosen, strict=True):
            knob.value = ["", *ACTIONS][place]
        play(lab, NOT)
        assert lab.error is None and lab.result.finished and "live-error" not in lab.note.value


def test_running_the_cell_again_leaves_no_widget():
    former = update_lab()
    count = len(ipywidgets.widgets.widget._instances)
    update_lab()
    assert former.box is None and len(ipywidgets.widgets.widget._instances) == count


def test_the_lab_disturbs_no_generator_and_its_still_twin_asks_and_does_not_tell(outputs, still):
    before = torch.get_rng_state()
    lab = update_lab()
    lab._ipython_display_()
    still_orders()
    assert torch.equal(before, torch.get_rng_state())
    assert [out["text/plain"] for out in outputs][::2] == [
        "[live experiment training_loop: controls in JupyterLab with ipywidgets; a still picture follows]",
        f"[figure] {still.alt}",
    ]
    asked = "; ".join(f"{letter}: {', '.join(order)}" for letter, order in drawn(0).items())
    assert still.alt.endswith(f". Asked: what does each of these do? {asked}.")
    told, ax = still.alt.split("Asked")[0], still.fig.axes[0]
    assert not any(f": {', '.join(order)};" in told for order in WHY)
    assert [text.get_text() for text in ax.texts] == list(VERDICTS)


@pytest.mark.parametrize("verdict_", VERDICTS)
def test_the_still_twin_draws_an_order_of_each_verdict_that_is_never_asked_inside_its_axes(verdict_, still):
    order, line = SHOWN[verdict_], still.fig.axes[0].get_lines()[VERDICTS.index(verdict_)]
    assert run_of(order).verdict == verdict_ and order not in WHY
    assert line.get_ydata().tolist() == run_of(order).losses and max(line.get_ydata()) < 20


def test_without_ipywidgets_the_still_twin_stands_alone_and_the_lab_still_computes(no_widgets, outputs, still):
    lab = update_lab()
    lab._ipython_display_()
    lab.refresh()
    lab.predict(RAISES)
    lab.finish()
    lab.refresh()
    assert lab.box is None and lab.error is None and lab.result.score == 1
    assert outputs[-1]["text/plain"] == f"[figure] {still.alt}"
    assert not any("application/vnd.jupyter.widget-view+json" in out for out in outputs)
