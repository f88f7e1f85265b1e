"""Live experiments: the run in the background, the curve, the widget, and that none of them disturbs a cell."""

import ast
import threading
import time
import warnings
from pathlib import Path

import ipywidgets
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils import figures
from course_utils.labs import BackgroundRun, Goal, LiveRun, Point, Still, choice, number
from course_utils.labs import panel as panel_module
from course_utils.labs.curves import MOST_POINTS, curve_svg, thin, ticks, y_limits
from course_utils.labs.live import progress_words
from course_utils.labs.panel import error_html
from course_utils.labs.start_here import ACCURACY, first_run, start_here_lab

ROOT = Path(__file__).resolve().parents[1]
TOTAL = 60


def training(models=None, *, seed=0, total=TOTAL):
    """A factory in the shape that labs use: it builds, with default initialisation, and returns an iterator."""

    def factory():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        generator = torch.Generator().manual_seed(seed)
        if models is not None:
            models.append(model)
        return updates(model, optimizer, generator, total)

    return factory


def updates(model, optimizer, generator, total):
    for step in range(1, total + 1):
        inputs = torch.randn(16, 8, generator=generator)
        loss = F.cross_entropy(model(inputs), inputs[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield Point(step, total, {"loss": loss.item()})


def endless(draw=lambda: 0.0):
    """A factory without end whose every step also calls `draw`."""

    def points():
        step = 0
        while True:
            step += 1
            yield Point(step, 10**9, {"loss": draw()})
            time.sleep(1e-4)

    return lambda: points()


def wait_until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def live_threads():
    return [thread for thread in threading.enumerate() if thread.name == "live run"]


pytestmark = pytest.mark.usefixtures("no_run_is_left")


# --- the run in the background disturbs no cell ---------------------------------------------------------------


def cell(pause=lambda: None):
    """What a cell does that is run meanwhile: draws, builds with default initialisation, trains with dropout."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        pause()
        F.cross_entropy(model(torch.randn(32, 8)), torch.randint(3, (32,))).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()] + [torch.rand(3)])


def cell_beside(factory):
    """The cell's bits while a live run makes steps between all of the cell's own."""
    run = BackgroundRun(factory)
    run.start()

    def pause():
        made = len(run.points)
        wait_until(lambda: len(run.points) > made + 2 or run.error)

    bits = cell(pause)
    assert run.alive and run.error is None
    run.stop()
    return bits


def test_a_cell_computes_the_same_bits_while_a_lab_trains():
    assert torch.equal(cell_beside(training(total=10**9)), cell())


@pytest.mark.parametrize("draw", [lambda: nn.Linear(3, 3).weight.sum().item(), lambda: torch.rand(()).item()])
def test_the_control_a_thread_that_builds_or_draws_changes_the_cell(draw):
    assert not torch.equal(cell_beside(endless(draw)), cell())


def test_starting_puts_the_generators_back():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    run = BackgroundRun(training())
    run.start()
    run.stop()
    run.reset()
    run.advance(3)
    assert torch.equal(state, torch.get_rng_state())


def test_the_factory_is_called_by_the_caller_and_the_steps_by_the_thread():
    seen = []

    def points():
        seen.append(threading.current_thread().name)
        yield Point(1, 1, {})

    run = BackgroundRun(lambda: seen.append(threading.current_thread().name) or points())
    run.start()
    wait_until(lambda: run.state == "finished")
    assert seen == ["MainThread", "live run"]


def test_a_generator_function_is_refused_since_it_would_build_in_the_thread():
    def lazy():
        yield Point(1, 1, {})

    with pytest.raises(ValueError, match="would build in the background thread"):
        BackgroundRun(lazy)


def test_gradients_flow_in_the_thread_although_the_cell_switched_them_off():
    run = BackgroundRun(training())
    with torch.no_grad():
        run.start()
        wait_until(lambda: run.state != "running")
    assert (run.state, run.error) == ("finished", None)


def test_a_cell_draws_the_same_numbers_while_the_first_run_trains_and_evaluates():
    torch.manual_seed(1)
    run, drawn = BackgroundRun(lambda: first_run(num_epochs=1)), []
    run.start()
    while run.alive:
        drawn.append(torch.rand(()))
        time.sleep(2e-4)
    torch.manual_seed(1)
    assert run.state == "finished" and len(drawn) > 100
    assert torch.equal(torch.stack(drawn), torch.stack([torch.rand(()) for _ in drawn]))


# --- start, stop, go on, from the start -----------------------------------------------------------------------


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_stopped_and_continued_often_it_is_the_straight_run_to_the_bit():
    models, stops = [], [5, 6, 40]

    def stopping_itself():  # a stop that arrives during a step: the run ends after it
        built = training(models)()

        def points():
            for point in built:
                if point.step in stops:
                    run.stop(wait=False)
                yield point

        return points()

    BackgroundRun(training(models)).advance()
    run = BackgroundRun(stopping_itself)
    for stop in stops:
        run.start()
        wait_until(lambda: not run.alive)
        assert (run.state, len(run.points)) == ("stopped", stop)
    run.advance(2)
    run.advance()
    assert run.state == "finished" and [p.step for p in run.points] == list(range(1, TOTAL + 1))
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_from_the_start_is_a_fresh_run_with_the_same_bits():
    run = BackgroundRun(training())
    run.advance()
    first = run.points
    run.reset()
    assert (run.state, run.points) == ("ready", [])
    run.advance()
    assert run.points == first


def test_one_run_per_kernel_starting_the_second_stops_the_first():
    one, two = BackgroundRun(endless()), BackgroundRun(endless())
    one.start()
    two.start()
    assert (one.state, one.alive, two.alive, len(live_threads())) == ("stopped", False, True, 1)
    one.start()
    one.start()
    assert (two.state, two.alive, one.alive, len(live_threads())) == ("stopped", False, True, 1)


def test_a_run_in_the_cell_stops_the_one_in_the_background():
    background, here = BackgroundRun(endless()), BackgroundRun(training())
    background.start()
    here.advance(1)
    assert (background.state, len(live_threads())) == ("stopped", 0)


def test_a_run_in_the_cell_is_running_whenever_it_draws():
    states = []
    run = BackgroundRun(training(total=3), on_change=lambda: states.append(run.state), draws_per_second=1e9)
    run.advance(2)
    run.advance()
    assert states == ["running"] * 3 + ["stopped"] + ["running"] * 2 + ["finished"]


def test_start_after_stop_without_waiting_goes_on():
    run = BackgroundRun(endless())
    run.start()
    run.stop(wait=False)
    run.start()
    made = len(run.points)
    wait_until(lambda: len(run.points) > made)
    assert run.alive and [p.step for p in run.points[:made]] == list(range(1, made + 1))


def failing():
    def points():
        yield Point(1, 3, {"loss": 1.0})
        raise ValueError("planted <b>")

    return points()


def test_an_error_in_a_step_is_kept_and_not_thrown_and_no_thread_is_left():
    run = BackgroundRun(failing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pytest makes a warning of what a thread throws
        run.start()
        wait_until(lambda: not run.alive)
    assert run.state == "failed" and repr(run.error) == "ValueError('planted <b>')" and len(run.points) == 1


def test_an_error_in_the_factory_is_kept_by_start_and_raised_by_advance():
    def broken():
        raise KeyError("planted")

    run = BackgroundRun(broken)
    run.start()
    assert run.state == "failed" and isinstance(run.error, KeyError)
    with pytest.raises(ValueError, match="planted"):
        BackgroundRun(failing).advance()


def test_while_points_arrive_it_draws_at_most_four_times_a_second():
    draws = []
    run = BackgroundRun(endless(), on_change=lambda: draws.append(time.monotonic()))
    run.start()
    wait_until(lambda: len(draws) >= 5)
    run.stop()
    between = [later - earlier for earlier, later in zip(draws[1:-1], draws[2:-1], strict=False)]
    assert between and min(between) >= 0.249  # the first and the last tell the state
    assert len(run.points) > len(draws)


# --- the curve ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0, 624, [0, 200, 400, 600]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 2.3, [0, 0.5, 1, 1.5, 2]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (0, 3e-4, [0, 1e-4, 2e-4, 3e-4]),
    ],
)
def test_ticks_are_the_round_numbers_worked_out_by_hand(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize("low, high", [(1, 1), (2, 1), (0, float("inf")), (float("nan"), 1)])
def test_ticks_refuse_an_empty_or_endless_range(low, high):
    with pytest.raises(ValueError, match="finite low < high"):
        ticks(low, high)


@pytest.mark.parametrize("values, limits", [([2.31, 0.4], (0, 2.5)), ([], (0, 1)), ([-0.3, 0.9], (-0.5, 1.0))])
def test_the_y_axis_goes_from_0_to_the_tick_above_the_largest(values, limits):
    assert y_limits({"loss": list(enumerate(values))}) == pytest.approx(limits)


def test_thinning_keeps_first_and_last_and_drops_what_is_not_finite():
    points = [(x, float(x)) for x in range(10_000)]
    kept = thin(points)
    assert len(kept) == MOST_POINTS and (kept[0], kept[-1]) == (points[0], points[-1])
    assert thin([(0, 1.0), (1, float("nan")), (2, float("inf")), (3, 2.0)]) == [(0, 1.0), (3, 2.0)]


def svg(series, **changes):
    labels = {"title": "t", "xlabel": "step", "ylabel": "loss", "x_max": 100, "words": "w"}
    return curve_svg(series, **(labels | changes))


def test_the_curve_says_in_words_what_it_shows_and_escapes_every_text():
    evil = '<script>"&'
    text = svg({evil: [(0, 1.0)]}, title=evil, xlabel=evil, ylabel=evil, words=evil)
    assert "<script" not in text and text.count("&lt;script&gt;&quot;&amp;") == 6
    assert 'role="img" aria-label="&lt;script&gt;&quot;&amp;. &lt;script' in text


def test_the_curve_is_well_formed_for_any_number_of_lines():
    from xml.etree import ElementTree

    for count in (0, 1, 2, 6, 13):
        series = {f"line {i}": [(0, 2.0), (50, 1.0 + i / 100)] for i in range(count)}
        tree = ElementTree.fromstring(svg(series))
        assert len(tree.findall("{*}polyline")) == len(tree.findall("{*}g")) == count
        assert sum(text.text.startswith("line") for text in tree.iter("{http://www.w3.org/2000/svg}text")) == count


def test_names_at_the_ends_of_lines_keep_their_distance_and_stay_above_the_axis():
    from xml.etree import ElementTree

    tree = ElementTree.fromstring(svg({f"line {i}": [(0, 2.0), (100, 0.01 * i)] for i in range(6)}))
    heights = sorted(float(t.get("y")) for t in tree.findall("{*}text") if t.text.startswith("line"))
    assert min(b - a for a, b in zip(heights, heights[1:], strict=False)) >= 14.9 and heights[-1] <= 252


def test_a_run_that_diverges_keeps_its_picture():
    text = svg({"loss": [(0, 2.0), (10, 1e30), (20, float("inf")), (30, float("nan"))]}, y_range=(0, 3))
    assert "nan" not in text and "inf" not in text and 'points="64.0,106.7 106.6,34.0"' in text
    assert "<polyline" not in svg({"loss": [(0, float("nan"))]})


# --- the widget -----------------------------------------------------------------------------------------------


def still():
    fig, _ = figures.axes(title="t", xlabel="step", ylabel="loss")
    return Still(fig, "the loss falls: True")


def lab(factory=None, **changes):
    settings = {"title": "Training", "ylabel": "loss", "still": still()} | changes
    return LiveRun(settings.pop("name", "test"), factory or training(), **settings)


TEXTS = [
    "[live experiment test: controls in JupyterLab with ipywidgets; a still picture follows]",
    "[figure: its words follow]",
    "[figure] the loss falls: True",
]


def test_controls_picture_and_words_are_three_outputs_with_fixed_texts(outputs):
    shown = lab()
    shown._ipython_display_()
    assert [out["text/plain"] for out in outputs] == TEXTS and repr(shown) == TEXTS[0]
    assert outputs[0]["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.box.model_id
    assert "image/png" in outputs[1] and "image/png" not in outputs[0]


def test_training_fills_progress_and_curve_and_sets_the_buttons():
    shown = lab()
    assert "ready: press Train" in shown.status.value and "<polyline" not in shown.figure.value
    assert buttons(shown) == {"Train": True, "Stop": False, "From the start": False}
    shown.train.click()
    wait_until(lambda: shown.run.state == "finished" and not shown.run.alive)
    assert f"finished: step {TOTAL} of {TOTAL} \u00b7 loss " in shown.status.value and "<polyline" in shown.figure.value
    assert buttons(shown) == {"Train": False, "Stop": False, "From the start": True}


def buttons(shown):
    return {button.description: not button.disabled for button in (shown.train, shown.halt, shown.again)}


def test_stop_go_on_and_from_the_start_by_the_buttons():
    shown = lab(endless())
    shown.train.click()
    assert buttons(shown) == {"Train": False, "Stop": True, "From the start": True}
    wait_until(lambda: len(shown.run.points) > 3)
    shown.halt.click()
    wait_until(lambda: not shown.run.alive)
    assert buttons(shown) == {"Go on": True, "Stop": False, "From the start": True}
    made = len(shown.run.points)
    shown.train.click()
    wait_until(lambda: len(shown.run.points) > made)
    shown.again.click()
    wait_until(lambda: shown.run.points)
    assert shown.run.alive and shown.run.points[0].step == 1


def test_an_error_is_shown_escaped_with_its_place_and_the_run_can_begin_again():
    shown = lab(failing)
    shown.train.click()
    wait_until(lambda: not shown.run.alive)
    assert "ValueError: planted &lt;b&gt;" in shown.note.value and "planted <b>" not in shown.note.value
    assert 'role="alert"' in shown.note.value and "test_labs.py" in shown.note.value
    assert buttons(shown) == {"Train": False, "Stop": False, "From the start": True}
    assert error_html(None) == ""


def test_running_the_cell_again_ends_the_former_run_and_leaves_no_widget():
    lab(endless(), knobs=[choice("schedule", ["a", "b"], "a")]).run.start()
    count = len(ipywidgets.widgets.widget._instances)
    for _ in range(3):
        former = panel_module._on_page["test"]
        now = lab(endless(), knobs=[choice("schedule", ["a", "b"], "a")])
        assert (former.run.alive, former.box) == (False, None)
        now.run.start()
    assert len(live_threads()) == 1 and len(ipywidgets.widgets.widget._instances) == count


def test_another_cell_does_not_end_the_run():
    first = lab(endless())
    first.run.start()
    lab(name="other")
    assert first.run.alive


def test_knobs_of_a_cell_of_their_own_outlive_the_lab():
    knob = number("lr", 0.1, low=0.0, high=1.0, step=0.1)
    lab(knobs=[knob])
    lab(knobs=[knob])
    assert knob.comm is not None and knob.layout.comm is not None


def test_the_factory_reads_the_knobs_at_the_start_and_a_moved_knob_is_told():
    knob = number("total", 3, low=1, high=9, step=1)
    shown = lab(lambda: training(total=knob.value)(), knobs=[knob])
    shown.run.advance()
    assert len(shown.run.points) == 3 and "setting has changed" not in shown.note.value
    knob.value = 5
    assert "setting has changed" in shown.note.value
    shown.again.click()
    wait_until(lambda: not shown.run.alive)
    assert len(shown.run.points) == 5 and "setting has changed" not in shown.note.value


def test_the_goal_turns_to_reached_by_icon_and_word_and_back_with_a_new_run():
    shown = lab(endless(), goal=Goal("three steps & more", lambda point: point.step == 3))
    assert "three steps &amp; more" in shown.note.value and "\u25cb not reached yet" in shown.note.value
    shown.run.advance(2)
    assert not shown.reached
    shown.run.advance(2)
    assert shown.reached and "\u2713 reached" in shown.note.value
    shown.run.reset()
    assert "not reached yet" in shown.note.value


def test_progress_words_name_every_number():
    point = Point(3, 10, {"loss": 0.5}, {"accuracy": 0.875})
    assert progress_words("stopped", point) == "stopped: step 3 of 10 \u00b7 loss 0.500 \u00b7 accuracy 0.875"


def test_progress_words_do_not_round_a_small_lr_to_0():
    point = Point(3, 10, {"loss": 0.05}, {"lr": 3e-4, "last lr": 0.0})
    assert progress_words("running", point).endswith("loss 0.050 \u00b7 lr 0.0003 \u00b7 last lr 0.000")


def test_with_several_lines_their_values_are_said_in_the_picture_and_the_progress_stays_one_line():
    shown = lab(lambda: iter([Point(1, 2, {"a": 0.5, "b": 0.25}, {"lr": 0.1})]))
    shown.run.advance(1)
    assert "step 1 of 2 \u00b7 lr 0.100<" in shown.status.value
    assert "a 0.500 \u00b7 b 0.250 \u00b7 lr 0.100" in shown.figure.value


def test_the_first_line_is_drawn_over_the_others():
    text = svg({"first": [(0, 1.0), (100, 1.0)], "second": [(0, 1.0), (100, 1.0)]})
    first, second = (text.index(f'stroke="{look.color}"') for look in figures.SERIES[:2])
    assert second < first


@pytest.mark.parametrize("step, digits", [(0.05, ".2f"), (0.1, ".1f"), (0.25, ".2f"), (1e-5, ".5f"), (2.0, ".0f")])
def test_a_slider_shows_as_many_digits_as_its_steps_need(step, digits):
    assert number("n", 0.0, low=0.0, high=10.0, step=step).readout_format == digits


def test_knobs_of_a_lab_have_labels_of_equal_width():
    knobs = [choice("Your schedule", ["a"], "a"), number("n", 1, low=1, high=2, step=1)]
    lab(knobs=knobs)
    assert [knob.style.description_width for knob in knobs] == ["13ch"] * 2
    assert len({knob.layout.width for knob in knobs}) == 1


def test_without_ipywidgets_the_still_twin_stands_alone(fresh_python):
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "from course_utils import figures\n"
        "from course_utils.labs import LiveRun, Point, Still, choice, number\n"
        "knobs = [choice('c', ['a'], 'a'), number('n', 1, low=0, high=2, step=1)]\n"
        "still = Still(figures.axes(title='t', xlabel='x', ylabel='y')[0], 'the loss falls: True')\n"
        "run = lambda: iter([Point(1, 1, {'loss': 1.0})])\n"
        "lab = LiveRun('test', run, title='t', ylabel='y', knobs=knobs, still=still)\n"
        "lab.run.advance(); assert lab.box is None and lab.run.state == 'finished'\n"
        "lab._ipython_display_(); lab.close()"
    )
    done = fresh_python.run(code)
    assert done.stderr == "" and done.stdout.splitlines() == [TEXTS[0], TEXTS[2]]


FORBIDDEN = {"interact", "interactive", "clear_output", "print", "pyplot"}


def names_used(source):
    nodes = list(ast.walk(ast.parse(source)))
    imported = [
        alias.name.split(".")[-1]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    called = [getattr(node.func, "id", getattr(node.func, "attr", "")) for node in nodes if isinstance(node, ast.Call)]
    return {*imported, *called}


def test_no_lab_uses_interact_clear_output_pyplot_or_print():
    modules = sorted((ROOT / "course_utils" / "labs").glob("*.py"))
    assert len(modules) >= 5
    found = {path.name: used for path in modules if (used := names_used(path.read_text("utf-8")) & FORBIDDEN)}
    assert found == {}
    assert names_used("from IPython.display import clear_output\nw.interact(f)") & FORBIDDEN == {
        "clear_output",
        "interact",
    }


# --- chapter 00's experiment ----------------------------------------------------------------------------------


def test_the_first_run_reports_each_update_and_the_accuracy_at_its_end():
    points = list(first_run(num_epochs=1))
    total = points[-1].total
    assert [point.step for point in points] == list(range(1, total + 1)) and total == 157
    assert [point.step for point in points if point.notes] == [total] and 0.7 < points[-1].notes[ACCURACY] < 1


def test_the_first_run_differs_by_seed_and_is_the_same_for_the_same():
    one, same, other = (next(first_run(seed)).values for seed in (0, 0, 1))
    assert one == same != other


def test_the_lab_of_chapter_00_shows_the_run_that_its_button_makes(outputs):
    shown = start_here_lab(num_epochs=1)
    shown._ipython_display_()
    assert [out["text/plain"][:16] for out in outputs] == [
        "[live experiment",
        "[figure: its wor",
        "[figure] Trainin",
    ]
    assert "It ends below half of where it began: True." in outputs[2]["text/plain"]
    shown.run.advance(3)
    assert [point.step for point in shown.run.points] == [1, 2, 3] and not shown.reached
