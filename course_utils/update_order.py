"""The actions of an update in any order: what each did, and whether the weights come out as they should.

It knows one tiny problem, and runs the very lines that it shows; it judges by equality to the bit, not by curves.
`training_loop` re-exports its names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

LINES = {
    "zero_grad": "optimizer.zero_grad()",
    "forward": "outputs = model(inputs)",
    "loss": "loss = loss_fn(outputs, targets)",
    "backward": "loss.backward()",
    "clip": "clip_grad_norm_(model.parameters(), max_norm=1.0)",
    "step": "optimizer.step()",
}
ACTIONS = tuple(LINES)  # in the right order
VERDICTS = ("learns as the right order", "learns otherwise", "does not learn", "raises")
_code = cache(lambda line: compile(line, "<update>", "exec"))
_saved = cache(lambda kind: [name for name in dir(kind) if name.startswith("_saved_")])  # of a node of a graph
COURSES = {f"without {out}": tuple(action for action in ACTIONS if action != out) for out in ("clip", "zero_grad")}


class State(NamedTuple):
    """What there is after one action.

    update    : 1 for the first; 0 for the start
    action    : one of `ACTIONS`; "" for the start
    weights   : float64 (2,), copied
    gradients : float64 (2,), copied; None where there are none
    graphs    : of "outputs" and "loss": None where the variable is not there; "alive" where backward can go through;
                "freed" after a backward; "outdated" where weights that it needs have changed since
    loss      : the value of the variable `loss`, or None
    """

    update: int
    action: str
    weights: torch.Tensor
    gradients: torch.Tensor | None
    graphs: dict[str, str | None]
    loss: float | None

    def changes(self, before: State) -> list[str]:
        """Which of weights, gradients, graphs and loss are other than in `before`."""
        pairs = zip(self._fields[2:], self[2:], before[2:], strict=True)
        return [name for name, now, was in pairs if not _same(now, was)]


class Raised(NamedTuple):
    """Where an error came, and what it said."""

    update: int
    action: str
    kind: str
    message: str


class OrderRun(NamedTuple):
    """Updates made with one order of actions.

    actions : of one update
    states  : the start, then one after each action that was made
    weights : float64 (updates made + 1, 2): before the first update and after each
    losses  : of all data with these weights
    error   : what ended the run, or None
    verdict : one of `VERDICTS`
    words   : what is known beyond the verdict
    """

    actions: tuple[str, ...]
    states: list[State]
    weights: torch.Tensor
    losses: list[float]
    error: Raised | None
    verdict: str
    words: str

    def of_update(self, update: int) -> list[State]:
        """The states after each action of one update."""
        return [state for state in self.states if state.update == update]


class Orders(list[OrderRun]):
    """Runs, one an order."""

    @property
    def counts(self) -> dict[str, int]:
        """How many runs have each verdict."""
        return {verdict: len(self.judged(verdict)) for verdict in VERDICTS}

    def judged(self, verdict: str) -> list[tuple[str, ...]]:
        """The orders with this verdict."""
        return [run.actions for run in self if run.verdict == verdict]


def run_order(actions: Sequence[str], *, num_updates: int = 3, seed: int = 0, left_over: bool = False) -> OrderRun:
    """Make updates with the actions in this order; some may be left out, or come twice.

    num_updates : at least 2: an order may come right once, and raise or be late after that
    seed        : of weights and data; the verdict is the same for every one
    left_over   : a right update was made before, as in a notebook whose cell has run: its gradients, `outputs` and
                  `loss` are still there
    raises      : ValueError for an action that is not known, or fewer than 2 updates; what an order itself raises is
                  its `error`
    """
    actions, how = tuple(actions), (num_updates, seed, left_over)
    if unknown := [action for action in actions if action not in LINES]:
        raise ValueError(f"no action {unknown[0]!r}: there are {', '.join(ACTIONS)}")
    if num_updates < 2:
        raise ValueError(f"an order is judged by 2 updates or more, got num_updates={num_updates}")
    states, error = _made(actions, *how)
    ends = states[:: len(actions)] if actions else states * (num_updates + 1)
    weights = torch.stack([state.weights for state in ends])
    verdict, words = _judge(weights, error, how)
    return OrderRun(actions, states, weights, _losses(weights, num_updates, seed), error, verdict, words)


def every_order(*, num_updates: int = 3, seed: int = 0, left_over: bool = False) -> Orders:
    """One run for each of the 720 orders of the six actions: a second; five where what is left over makes 630 raise."""
    how = {"num_updates": num_updates, "seed": seed, "left_over": left_over}
    return Orders(run_order(order, **how) for order in permutations(ACTIONS))


@cache
def _problem(num_updates: int, seed: int) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Two weights, of which the product should become 3; a batch of two examples an update, and one for before."""
    generator = torch.Generator().manual_seed(seed)
    quarters = torch.randint(2, 5, (2 + 2 * (num_updates + 1),), generator=generator).double() / 4
    inputs = quarters[2:].view(-1, 2, 1) * 2  # 1, 1.5 or 2
    return quarters[:2], [(batch, 3.0 * batch) for batch in inputs]


class _TwoLayers(nn.Module):
    """Two weights, one after the other."""

    def __init__(self, weights: torch.Tensor) -> None:
        super().__init__()
        self.first, self.second = (nn.Parameter(weight.clone()) for weight in weights)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.second * (self.first * inputs)


def _made(actions, num_updates: int, seed: int, left_over: bool) -> tuple[list[State], Raised | None]:
    """Run the lines; the start and the state after each of them, and the error that ended it."""
    weights, batches = _problem(num_updates, seed)
    model, names = _TwoLayers(weights), {"loss_fn": F.mse_loss, "clip_grad_norm_": nn.utils.clip_grad_norm_}
    names |= {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.125)}
    if left_over:
        for action in ACTIONS:
            _do(action, names, batches[-1])
    states = [_state(0, "", names)]
    for update, batch in enumerate(batches[:-1], start=1):
        for action in actions:
            try:
                _do(action, names, batch)
            except (NameError, RuntimeError) as error:
                return states, Raised(update, action, type(error).__name__, str(error))
            states.append(_state(update, action, names))
    return states, None


def _do(action: str, names: dict[str, Any], batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    names["inputs"], names["targets"] = batch
    exec(_code(LINES[action]), names)


def _state(update: int, action: str, names: dict[str, Any]) -> State:
    params = list(names["model"].parameters())
    grads = [param.grad for param in params if param.grad is not None]
    graphs = {name: _graph(names[name]) if name in names else None for name in ("outputs", "loss")}
    weights = parameters_to_vector(params).detach()  # copies, as of the gradients
    loss = names["loss"].item() if "loss" in names else None
    return State(update, action, weights, parameters_to_vector(grads) if grads else None, graphs, loss)


def _graph(tensor: torch.Tensor) -> str:
    """Can backward go through the graph of `tensor`? Asks autograd for what it saved, as backward would."""
    try:
        _ask(tensor.grad_fn)
    except RuntimeError as error:
        return "outdated" if "inplace" in str(error) else "freed"
    return "alive"


def _ask(node: Any) -> None:
    for name in _saved(type(node)):
        getattr(node, name)
    for before, _ in node.next_functions:
        if before is not None:
            _ask(before)


def _same(now: Any, was: Any) -> bool:
    """Equal to the bit."""
    if isinstance(now, torch.Tensor) and isinstance(was, torch.Tensor):
        return torch.equal(now.view(torch.int64), was.view(torch.int64))
    return type(now) is type(was) and now == was


def _losses(weights: torch.Tensor, num_updates: int, seed: int) -> list[float]:
    """Mean squared errors over the batches of all updates, for each row of weights."""
    inputs, targets = (torch.cat(side) for side in zip(*_problem(num_updates, seed)[1][:-1], strict=True))
    return (weights.prod(1)[:, None] * inputs.T - targets.T).square().mean(1).tolist()


@cache
def _course(actions: tuple[str, ...], num_updates: int, seed: int, left_over: bool) -> torch.Tensor:
    states, _ = _made(actions, num_updates, seed, left_over)
    return torch.stack([state.weights for state in states[:: len(actions)]])


def _judge(weights: torch.Tensor, error: Raised | None, how: tuple) -> tuple[str, str]:
    """The verdict, and what is known beyond it."""
    if error is not None:
        said = re.split(r"\. | \(|: \[", error.message)[0]
        return "raises", f"{error.kind} at {error.action!r} in update {error.update}: {said}"
    if _same(weights, _course(ACTIONS, *how)):
        return "learns as the right order", f"equal weights after each of {len(weights) - 1} updates"
    if all(_same(row, weights[-1]) for row in weights[1:]):
        since = "at the start" if _same(*weights[:2]) else "after the first update"
        return "does not learn", f"the weights stay as they were {since}"
    for words, actions in {"of the right order": ACTIONS, **COURSES}.items():
        course = _course(actions, *how)
        if _same(weights, course):
            return "learns otherwise", f"the weights are those {words}"
        if _same(weights[0], weights[1]) and _same(weights[1:], course[:-1]):
            return "learns otherwise", f"the weights are those {words}, one update late"
    return "learns otherwise", "the weights follow no other order that has a name"
