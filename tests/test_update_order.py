"""Each order of the actions: the verdict, what an action changed, and that the lines shown are those that run."""

from itertools import permutations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.training_loop import every_order, run_order
from course_utils.update_order import ACTIONS, LINES, VERDICTS, Orders

NO_CLIP = ("zero_grad", "forward", "loss", "backward", "step")


def verdict(*actions, **how):
    return run_order(actions, **how).verdict


@pytest.fixture(scope="module")
def orders():
    return every_order()


# --- every order (claim C27)


def test_the_four_right_orders_are_those_with_zero_grad_outside_backward_and_step_and_clip_between_them(orders):
    def follows(order):
        at = {action: place for place, action in enumerate(order)}
        chain = at["forward"] < at["loss"] < at["backward"] < at["clip"] < at["step"]
        return chain and not at["backward"] < at["zero_grad"] < at["step"]

    expected = [order for order in permutations(ACTIONS) if follows(order)]
    assert orders.judged("learns as the right order") == expected and len(expected) == 4
    assert ACTIONS in expected and (*ACTIONS[1:], "zero_grad") in expected


def test_720_orders_by_verdict(orders):
    counts = {"learns as the right order": 4, "learns otherwise": 38, "does not learn": 60, "raises": 618}
    assert orders.counts == counts and sum(counts.values()) == 720 and tuple(counts) == VERDICTS


def test_the_orders_that_run_are_explained_by_what_stands_between_backward_and_step(orders):
    """Seen as a circle, from backward to the next step: zero_grad there, nothing is learnt; clip not there, no clip."""
    for run in orders:
        if run.error is not None:
            continue
        start, end = run.actions.index("backward"), run.actions.index("step")
        between = run.actions[start:end] if start < end else run.actions[start:] + run.actions[:end]
        if "zero_grad" in between:
            expected = "the weights stay as they were at the start"
        elif run.verdict == "learns as the right order":
            expected = "equal weights after each of 3 updates"
        else:
            late = ", one update late" if end < start else ""
            expected = f"the weights are those {'of the right order' if 'clip' in between else 'without clip'}{late}"
        assert run.words == expected


def test_a_variable_that_is_not_there_stops_600_orders_and_18_change_weights_under_a_graph(orders):
    kinds = [(run.error.kind, run.error.update, run.error.action) for run in orders if run.error]
    assert kinds.count(("NameError", 1, "loss")) == 240 and kinds.count(("NameError", 1, "backward")) == 360
    assert kinds.count(("RuntimeError", 2, "backward")) == 18 and len(kinds) == 618
    inplace = [run for run in orders if run.error and run.error.kind == "RuntimeError"]
    assert all("modified by an inplace operation" in run.error.message for run in inplace)
    assert all(
        run.actions.index("forward") < run.actions.index("step") < run.actions.index("backward") for run in inplace
    )


def test_after_a_right_update_its_variables_hide_a_name_and_its_graph_is_used_up(orders):
    """Of the 720 orders every 50th of those that fresh variables stop, and all others."""
    stopped = [run.actions for run in orders if run.error and run.error.update == 1]
    assert len(stopped) == 600
    for order in stopped[::50]:
        error = run_order(order, num_updates=2, left_over=True).error
        assert (error.kind, error.update) == (
            "RuntimeError",
            1,
        ) and "a second time" in error.message
    others = [run.actions for run in orders if run.actions not in stopped]
    runs = Orders(run_order(order, num_updates=2, left_over=True) for order in others)
    assert list(runs.counts.values()) == [3, 39, 48, 30] and {run.error.update for run in runs if run.error} == {1}
    late = (*ACTIONS[1:], "zero_grad")  # its first step adds the gradient that was left over
    assert late not in runs.judged("learns as the right order") and ACTIONS in runs.judged("learns as the right order")


@pytest.mark.parametrize("seed, num_updates", [(1, 2), (2, 3), (3, 5), (4, 2)])
def test_verdicts_are_the_same_for_any_weights_and_data(orders, seed, num_updates):
    chosen = [run for run in orders if run.error is None or run.error.update == 2][::4]
    assert len({run.words for run in chosen}) == 6 and len(chosen) == 30
    found = [run_order(run.actions, seed=seed, num_updates=num_updates) for run in chosen]
    assert [run.verdict for run in found] == [run.verdict for run in chosen]


# --- left out, doubled


@pytest.mark.parametrize(
    "actions, verdict, words",
    [
        (NO_CLIP, "learns otherwise", "the weights are those without clip"),
        (ACTIONS[1:], "learns otherwise", "the weights are those without zero_grad"),
        (ACTIONS[:-1], "does not learn", "the weights stay as they were at the start"),
        (
            ("zero_grad", "forward", "loss", "clip", "step"),
            "does not learn",
            "the weights stay as they were at the start",
        ),
        (("step",), "does not learn", "the weights stay as they were at the start"),
        ((), "does not learn", "the weights stay as they were at the start"),
        ((*ACTIONS, "step"), "learns otherwise", "the weights follow no other order that has a name"),
        ((*ACTIONS, "zero_grad"), "learns as the right order", "equal weights after each of 3 updates"),
        (
            (*ACTIONS[:4], "backward", *ACTIONS[4:]),
            "raises",
            "RuntimeError at 'backward' in update 1: Trying to backward through the graph a second time",
        ),
        (("zero_grad", "loss"), "raises", "NameError at 'loss' in update 1: name 'outputs' is not defined"),
    ],
)
def test_each_line_has_its_reason_shown_by_leaving_it_out_or_doubling_it(actions, verdict, words):
    run = run_order(actions)
    assert (run.verdict, run.words) == (verdict, words)


def test_a_step_with_gradients_left_over_and_never_again_does_not_learn():
    run = run_order(("step", "forward", "loss", "backward", "clip", "zero_grad"), left_over=True)
    assert run.verdict == "does not learn" and run.words == "the weights stay as they were after the first update"
    assert not torch.equal(run.weights[0], run.weights[1]) and torch.equal(run.weights[1], run.weights[3])


@pytest.mark.parametrize(
    "actions, how, said",
    [
        (["warm_up"], {}, "no action 'warm_up': there are zero_grad, forward, loss"),
        (ACTIONS, {"num_updates": 1}, "2 updates or more, got num_updates=1"),
    ],
)
def test_an_unknown_action_and_a_single_update_are_refused(actions, how, said):
    with pytest.raises(ValueError, match=said):
        run_order(actions, **how)


# --- what a run holds


def plain_loop(weights, batches):
    """Written by hand: first and second weight after each update."""
    first, second = (nn.Parameter(weight.clone()) for weight in weights)
    optimizer, rows = torch.optim.SGD([first, second], lr=0.125), [weights]
    for inputs, targets in batches:
        optimizer.zero_grad()
        F.mse_loss(second * (first * inputs), targets).backward()
        nn.utils.clip_grad_norm_([first, second], 1.0)
        optimizer.step()
        rows.append(torch.stack([first, second]).detach())
    return torch.stack(rows)


@pytest.mark.parametrize("seed", range(4))
def test_the_right_order_is_a_plain_loop_to_the_bit_its_loss_falls_and_its_clip_binds(seed):
    from course_utils.update_order import _problem

    run, (weights, batches) = run_order(ACTIONS, seed=seed), _problem(3, seed)
    assert torch.equal(run.weights, plain_loop(weights, batches[:-1])) and run.weights.shape == (4, 2)
    assert run.losses == sorted(run.losses, reverse=True) and len(set(run.losses)) == 4
    assert all(state.gradients.norm() > 1.5 for state in run.states if state.action == "backward")
    inputs, targets = (torch.cat(side) for side in zip(*batches[:-1], strict=True))
    assert run.losses[0] == F.mse_loss(weights.prod() * inputs, targets).item()


def test_the_states_of_the_first_update_show_what_each_action_changed():
    run = run_order(ACTIONS)
    assert (run.states[0].update, run.states[0].action, run.states[0].loss) == (0, "", None)
    before, changed = run.states[0], {}
    for state in run.of_update(1):
        changed[state.action], before = state.changes(before), state
    assert changed == {
        "zero_grad": [],
        "forward": ["graphs"],
        "loss": ["graphs", "loss"],
        "backward": ["gradients", "graphs"],
        "clip": ["gradients"],
        "step": ["weights"],
    }
    assert run.of_update(2)[0].gradients is None and run.of_update(2)[0].loss == run.of_update(1)[-1].loss
    assert len(run.states) == 1 + 3 * 6 and [state.action for state in run.of_update(3)] == list(ACTIONS)


def test_the_gradient_before_and_after_clipping_is_that_worked_out_by_hand():
    """Weights a, b: the derivative of mean (abx - 3x)^2 is 2 (ab - 3) mean(x^2) times (b, a)."""
    from course_utils.update_order import _problem

    (a, b), batches = _problem(3, 0)
    found = {state.action: state.gradients for state in run_order(ACTIONS).of_update(1)}
    factor = 2 * (a * b - 3) * batches[0][0].square().mean()
    assert torch.equal(found["backward"], torch.stack([factor * b, factor * a]))
    assert found["clip"].norm().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    "actions, graphs",
    [
        (("forward",), ("alive", None)),
        (("forward", "loss"), ("alive", "alive")),
        (("forward", "loss", "backward"), ("freed", "freed")),
        (("forward", "loss", "backward", "forward"), ("alive", "freed")),
        (("forward", "loss", "backward", "forward", "step"), ("outdated", "freed")),
        (("forward", "loss", "backward", "forward", "loss", "step"), ("outdated", "outdated")),
        (("zero_grad",), (None, None)),
    ],
)
def test_a_graph_is_alive_freed_or_outdated(actions, graphs):
    state = run_order(actions).of_update(1)[-1]
    assert (state.graphs["outputs"], state.graphs["loss"]) == graphs


def test_an_error_is_told_and_what_was_made_before_it_stays():
    run = run_order(("forward", "step", "zero_grad", "loss", "backward", "clip"))
    assert (run.error.update, run.error.action, run.error.kind) == (2, "backward", "RuntimeError")
    assert "is at version" in run.error.message and "[" not in run.words
    assert [state.action for state in run.of_update(2)] == ["forward", "step", "zero_grad", "loss"]
    assert run.weights.shape == (2, 2) and len(run.losses) == 2


def test_states_are_copies_and_no_generator_moves():
    before = torch.get_rng_state()
    first, second = run_order(ACTIONS), run_order(ACTIONS)
    assert torch.equal(first.weights, second.weights) and torch.equal(torch.get_rng_state(), before)
    steps = [state.weights for state in first.states if state.action == "step"]
    assert len({tuple(row.tolist()) for row in steps}) == 3
    clipped = [state.gradients for state in first.states if state.action == "clip"]
    assert clipped[0].norm() < 1.01 < first.of_update(1)[3].gradients.norm()


def test_the_line_shown_is_the_line_that_runs(monkeypatch):
    monkeypatch.setitem(LINES, "step", "optimizer.zero_grad()")
    run = run_order(ACTIONS, seed=77)  # the right order of a seed is kept
    assert torch.equal(run.weights[0], run.weights[-1])
