"""Bench, the experiment without a run: a knob computes at once, Reset, errors in the panel, and no generator moves."""

import random

import ipywidgets
import numpy as np
import pytest
import torch

from course_utils import figures
from course_utils.labs import Bench, Goal, Still, choice, number, switch
from course_utils.labs import panel as panel_module
from course_utils.labs.bench import picture

pytestmark = pytest.mark.usefixtures("no_run_is_left")


def bench(compute, *, knobs=(), **changes):
    still = Still(figures.axes(title="t", xlabel="x", ylabel="y")[0], "a line")
    settings = {"say": lambda result: f"result {result} & more", "draw": lambda result: f"<b>{result}</b>"} | changes
    return Bench(settings.pop("name", "bench"), compute, knobs=knobs, still=still, **settings)


def slider(value=1):
    return number("n", value, low=0, high=9, step=1, calm=True)


def test_a_knob_that_is_turned_computes_and_draws_at_once():
    knob = slider()
    shown = bench(lambda: 10 * knob.value, knobs=[knob])
    assert (shown.result, shown.figure.value) == (10, "<b>10</b>") and "result 10 &amp; more" in shown.status.value
    knob.value = 4
    assert (shown.result, shown.figure.value) == (40, "<b>40</b>") and "result 40" in shown.status.value
    assert "font-variant-numeric:tabular-nums" in shown.status.value  # its digits are of one width


def test_a_calm_slider_tells_its_value_when_it_is_let_go():
    assert slider().continuous_update is False
    assert number("n", 1, low=0, high=9, step=1).continuous_update is True


def test_a_switch_in_a_row_of_its_own_computes_too():
    box = switch("on")
    shown = bench(lambda: box.value, rows=[[box]])
    box.value = True
    assert shown.result is True


def test_the_goal_stays_reached_until_reset_which_puts_every_knob_back():
    knobs, calls = [slider(1), choice("c", ["a", "b"], "a")], []
    goal = Goal("five & up", lambda value: value >= 5)
    shown = bench(lambda: calls.append(1) or knobs[0].value, knobs=knobs, goal=goal)
    assert "five &amp; up" in shown.note.value and "\u25cb not reached yet" in shown.note.value
    knobs[0].value, knobs[1].value = 5, "b"
    knobs[0].value = 2
    assert shown.reached and "\u2713 reached" in shown.note.value and len(calls) == 4
    shown.buttons[-1].click()
    assert [knob.value for knob in knobs] == [1, "a"] and len(calls) == 5
    assert not shown.reached and "not reached yet" in shown.note.value


def test_a_button_acts_then_the_result_is_computed_again_and_reset_forgets():
    marks = []
    press = ("Mark", "flag", "tip", lambda: marks.append(1))
    shown = bench(lambda: len(marks), buttons=[press], forget=marks.clear)
    shown.buttons[0].click()
    shown.buttons[0].click()
    assert shown.result == 2
    shown.reset()
    assert shown.result == 0


def test_answers_are_a_row_of_buttons_of_their_own_above_the_others():
    pressed = []
    answers, others = ([(name, "tag", "tip", lambda name=name: pressed.append(name))] for name in ("yes", "go on"))
    shown = bench(lambda: list(pressed), answers=answers, buttons=others)
    rows = [[part.description for part in row.children] for row in shown.box.children[:2]]
    assert rows == [["yes"], ["go on", "Reset"]]
    for button in shown.buttons[:2]:
        button.click()
    assert shown.result == ["yes", "go on"]


def test_each_button_does_its_own_act_and_wears_its_own_words():
    pressed = []
    words = [(name, icon, f"tip {name}", lambda name=name: pressed.append(name)) for name, icon in ("ax", "by")]
    shown = bench(lambda: len(pressed), buttons=words)
    for button in shown.buttons[:2]:
        button.click()
    assert pressed == ["a", "b"] and shown.result == 2
    looks = [(button.description, button.icon, button.tooltip, button.layout.width) for button in shown.buttons]
    assert looks[:2] == [("a", "x", "tip a", "auto"), ("b", "y", "tip b", "auto")] and looks[2][0] == "Reset"


def test_the_panel_holds_knobs_then_rows_buttons_and_what_they_say_and_the_picture_keeps_its_height():
    knobs, row = [slider(), choice("a long label", ["a"], "a")], [switch("on"), switch("off")]
    shown = bench(lambda: 1, knobs=knobs, rows=[row], height=300)
    first, second, pressed, *rest = shown.box.children
    assert [list(part.children) for part in (first, second, pressed)] == [knobs, row, shown.buttons]
    assert rest == [shown.status, shown.figure, shown.note] and shown.figure.layout.min_height == "300px"
    assert [knob.style.description_width for knob in knobs] == ["12ch"] * 2
    assert second.layout.flex_flow == pressed.layout.flex_flow == "row wrap" and shown.box._dom_classes == ("live-lab",)
    assert len(bench(lambda: 1).box.children) == 4  # no empty row


def test_where_the_computation_fails_after_reset_no_former_result_is_left():
    results = [1]
    shown = bench(lambda: results.pop())
    assert shown.result == 1
    shown.reset()
    assert shown.result is None and "IndexError" in shown.note.value


def failing(message="planted <b>"):
    raise ValueError(message)


def test_an_error_is_shown_escaped_the_picture_stays_and_the_next_turn_works():
    knob = slider()
    shown = bench(lambda: failing() if knob.value == 3 else knob.value, knobs=[knob])
    knob.value = 3
    assert "ValueError: planted &lt;b&gt;" in shown.note.value and "planted <b>" not in shown.note.value
    assert 'role="alert"' in shown.note.value and (shown.result, shown.figure.value) == (1, "<b>1</b>")
    knob.value = 4
    assert (shown.error, shown.figure.value) == (None, "<b>4</b>") and "alert" not in shown.note.value


def test_an_error_of_any_kind_is_shown_with_the_words_of_an_experiment_without_a_run():
    note = bench(lambda: {}["no such key"]).note.value
    assert "KeyError: &#x27;no such key&#x27;" in note and "That did not work." in note
    assert "Traceback" in note.split("<summary>Where</summary>")[1] and "&lt;lambda&gt;" in note  # where it came from


def test_after_an_interrupt_which_no_panel_catches_a_knob_still_computes():
    knob = slider()
    shown = bench(lambda: interrupted() if knob.value == 3 else knob.value, knobs=[knob])
    with pytest.raises(KeyboardInterrupt):
        knob.value = 3
    knob.value = 4
    assert shown.result == 4


def interrupted():
    raise KeyboardInterrupt


@pytest.mark.parametrize("broken", [{"say": lambda _: failing()}, {"draw": lambda _: failing()}])
def test_an_error_while_drawing_is_shown_too(broken):
    assert "planted" in bench(lambda: 1, **broken).note.value


def test_an_error_of_a_button_is_shown_and_nothing_is_computed():
    calls = []
    shown = bench(lambda: calls.append(1), buttons=[("Mark", "flag", "tip", lambda: failing("no line"))])
    shown.buttons[0].click()
    assert "no line" in shown.note.value and len(calls) == 1


def test_a_computation_that_sets_knobs_does_not_compute_again():
    knob, calls = slider(), []

    def compute():
        calls.append(1)
        knob.value = 7
        return knob.value

    assert bench(compute, knobs=[knob]).result == 7 and len(calls) == 1


def generators():
    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


def test_what_it_draws_leaves_the_generators_as_they_were():
    def drawn():
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        return torch.rand(())

    before, knob = generators(), slider()
    shown = bench(drawn, knobs=[knob], buttons=[("Mark", "flag", "tip", lambda: drawn())])
    knob.value = 5
    shown.buttons[0].click()
    shown.reset()
    assert generators() == before


def test_running_the_cell_again_leaves_no_widget():
    bench(lambda: 1, knobs=[choice("c", ["a"], "a")], rows=[[switch("on")]], buttons=[("M", "flag", "t", lambda: None)])
    count = len(ipywidgets.widgets.widget._instances)
    for _ in range(3):
        former = panel_module._on_page["bench"]
        rows, buttons = [[switch("on")]], [("M", "flag", "t", lambda: None)]
        bench(lambda: 1, knobs=[choice("c", ["a"], "a")], rows=rows, buttons=buttons)
        assert former.box is None
    assert len(ipywidgets.widgets.widget._instances) == count


def test_knobs_of_a_former_panel_do_not_turn_it_any_more():
    knob, calls = slider(), []
    bench(lambda: calls.append("former"), knobs=[knob])
    bench(lambda: calls.append("now"), knobs=[knob])
    knob.value = 5
    assert calls == ["former", "now", "now"]


TEXTS = [
    "[live experiment bench: controls in JupyterLab with ipywidgets; a still picture follows]",
    "[figure: its words follow]",
    "[figure] a line",
]


def test_controls_picture_and_words_are_three_outputs_with_fixed_texts(outputs):
    shown = bench(lambda: 1)
    shown._ipython_display_()
    assert [out["text/plain"] for out in outputs] == TEXTS
    assert outputs[0]["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.box.model_id


def test_without_ipywidgets_the_still_twin_stands_alone_and_the_result_can_be_asked_for(fresh_python):
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "from course_utils import figures\n"
        "from course_utils.labs import Bench, Still, choice, number, switch\n"
        "knobs = [choice('c', ['a'], 'a'), number('n', 1, low=0, high=2, step=1), switch('s')]\n"
        "still = Still(figures.axes(title='t', xlabel='x', ylabel='y')[0], 'a line')\n"
        "lab = Bench('bench', lambda: knobs[1].value, say=str, draw=str, knobs=knobs, still=still)\n"
        "lab._ipython_display_(); knobs[1].value = 2; lab.refresh(); assert lab.box is None and lab.result == 2\n"
        "lab.reset(); assert lab.result == 1; lab.close()"
    )
    done = fresh_python.run(code)
    assert done.stderr == "" and done.stdout.splitlines() == [TEXTS[0], TEXTS[2]]


def test_a_picture_carries_its_file_and_its_words_escaped():
    made = picture(b"\x89PNG...", '"><script>', width=8, style="margin:1px")
    assert made.startswith('<img src="data:image/png;base64,iVBORy4uLg=="') and "<script" not in made
    assert made.endswith(' width="8" style="margin:1px">')
    assert 'alt="&quot;&gt;&lt;script&gt;"' in made and "image/jpeg" in picture(b"\xff\xd8", "a", width=8)
