"""What chapter 05's experiment knows: orders that people write, what each does and why, and how a prediction is judged.

Every order is run by `course_utils.update_order`; no widget is known here.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from course_utils.update_order import ACTIONS, VERDICTS, OrderRun, run_order

RIGHT, OTHERWISE, NOT, RAISES = VERDICTS
LETTERS, NUM_UPDATES, TRACED, MOST_ACTIONS = "ABCDEFGH", 16, 2, 8
BEYOND = 1e3  # a loss that began at 16 and is not below this diverges
_Z, _F, _L, _B, _C, _S = ACTIONS
Order = tuple[str, ...]

ORDERS: dict[str, dict[Order, str]] = {  # by what they do, each with the reason
    RIGHT: {
        (_F, _L, _B, _C, _S, _Z): "zero_grad may stand after the step: the next backward finds no gradients.",
        (_F, _Z, _L, _B, _C, _S): "zero_grad removes gradients, not graphs: it may stand anywhere before backward.",
        (_F, _L, _Z, _B, _C, _S): "zero_grad removes gradients, not graphs: directly before backward is soon enough.",
        (_Z, _F, _F, _L, _B, _C, _S): "The second forward makes `outputs` anew; the first one's graph is dropped, and "
        "only time is lost (BatchNorm and dropout would notice).",
        (_Z, _F, _L, _B, _C, _S, _Z): "One zero_grad between step and backward is needed; a second finds nothing.",
    },
    OTHERWISE: {
        (_F, _L, _B, _C, _S): "Without zero_grad each backward adds to the gradients that are there: the step goes "
        "along old ones too. The loss may fall all the same; that is why nobody notices.",
        (_Z, _F, _L, _B, _S, _C): "The step is made before the clip, with the gradients as they came. What the clip "
        "scales down is removed by the next zero_grad.",
        (_Z, _F, _L, _C, _B, _S): "Before backward there is nothing to clip: the gradients come later, at full length.",
        (_Z, _F, _L, _B, _C, _S, _S): "The second step goes along the same gradient, which belongs to weights that are "
        "gone: with plain SGD as if the lr were twice as large.",
        (_S, _Z, _F, _L, _B, _C): "The step uses the gradients of the update before: every step comes one update late, "
        "and the last gradients are never used.",
    },
    NOT: {
        (_F, _L, _B, _Z, _C, _S): "zero_grad stands between backward and step: the step finds no gradients, and says "
        "nothing.",
        (_F, _L, _B, _C, _Z, _S): "zero_grad stands between backward and step: the step finds no gradients, and says "
        "nothing.",
        (_Z, _F, _L, _C, _S, _B): "The step comes when zero_grad has removed the gradients and backward has not made "
        "new ones; the next zero_grad removes those.",
        (_Z, _F, _L, _B, _C): "Gradients are made and removed; nothing uses them.",
        (_Z, _F, _L, _C, _S): "Without backward there are no gradients; clip and step pass over parameters that have "
        "none, and say nothing.",
    },
    RAISES: {
        (_Z, _F, _L, _B, _B, _C, _S): "The first backward frees what the graph has saved. Two losses are added before "
        "one backward, or a second forward is made.",
        (_Z, _L, _F, _B, _C, _S): "The loss needs the outputs of this update. In a notebook whose cell has run, the "
        "name is there from before: try the check box, the message is another one.",
        (_Z, _F, _B, _L, _C, _S): "backward is called on a loss that is not computed yet.",
        (_F, _L, _C, _S, _B): "In update 1 there are no gradients and the step does nothing. In update 2 it changes "
        "weights that the graph needs: backward notices and refuses.",
        (_Z, _L, _B, _C, _S): "Without a forward there are no outputs. In a notebook whose cell has run they are there "
        "from before: try the check box.",
    },
}
SHOWN: dict[str, Order] = {  # an order of each verdict that is never asked, for the still picture
    RIGHT: ACTIONS,
    OTHERWISE: (_Z, _F, _L, _B, _C, _S, _S, _S),
    NOT: (_Z, _F, _L),
    RAISES: (_F, _L, _S, _B, _C),
}
SEEDS = (0, 1, 2, 3, 4)
WHY = {order: why for group in ORDERS.values() for order, why in group.items()}


def drawn(seed: int) -> dict[str, Order]:
    """Letter -> order, eight of them: of each verdict one at least, so that counting does not tell the last."""
    generator = random.Random(seed)
    chosen = [generator.choice(list(group)) for group in ORDERS.values()]
    rest = [order for order in WHY if order not in chosen]
    chosen += generator.sample(rest, len(LETTERS) - len(chosen))
    generator.shuffle(chosen)
    return dict(zip(LETTERS, chosen, strict=True))


@lru_cache(maxsize=500)
def run_of(order: Order, left_over: bool = False) -> OrderRun:
    """The order run."""
    return run_order(order, num_updates=NUM_UPDATES, left_over=left_over)


class Row(NamedTuple):
    """A line of the trace: one action, and which state it left.

    state : its place in `OrderRun.states`; None for an action that raised or was not reached
    """

    update: int
    action: str
    state: int | None


def rows_of(run: OrderRun) -> list[Row]:
    """The actions of the first two updates, to the one that raises."""
    made, rows = len(run.states) - 1, []
    for place in range(TRACED * len(run.actions)):
        update, action = 1 + place // len(run.actions), run.actions[place % len(run.actions)]
        rows.append(Row(update, action, place + 1 if place < made else None))
    return rows


def num_rows(run: OrderRun) -> int:
    """How many actions can be stepped through: to the one that raises, or the end of the second update."""
    return min(TRACED * len(run.actions), len(run.states) - 1 + (run.error is not None))


class View(NamedTuple):
    """Where the reader stands.

    letters   : letter -> order, those that are asked
    order     : in view; `left_over` whether a right update was made before
    predicted : (order, left_over) -> the reader's prediction
    shown     : (order, left_over) -> how many of its actions were stepped through
    notice    : what the last button could not do
    """

    letters: Mapping[str, Order]
    order: Order
    left_over: bool
    predicted: Mapping[tuple[Order, bool], str]
    shown: Mapping[tuple[Order, bool], int]
    notice: str = ""

    @property
    def key(self) -> tuple[Order, bool]:
        return self.order, self.left_over

    @property
    def letter(self) -> str | None:
        """Of the order in view; None for one of the reader's."""
        found = (letter for letter, order in self.letters.items() if (order, False) == self.key)
        return next(found, None)

    @property
    def run(self) -> OrderRun:
        return run_of(*self.key)

    @property
    def prediction(self) -> str | None:
        return self.predicted.get(self.key)

    @property
    def finished(self) -> bool:
        """Whether the order in view was run to the end, so that its verdict is told."""
        return is_finished(self.key, self.shown)

    @property
    def ended(self) -> list[Order]:
        """Orders that are asked and were run to the end."""
        return [order for order in self.letters.values() if is_finished((order, False), self.shown)]

    @property
    def score(self) -> int:
        """Of those, how many were predicted rightly."""
        return sum(self.predicted.get((order, False)) == run_of(order).verdict for order in self.ended)


def is_finished(key: tuple[Order, bool], shown: Mapping[tuple[Order, bool], int]) -> bool:
    return shown.get(key, 0) >= max(1, num_rows(run_of(*key)))


def reached(view: View) -> bool:
    """All predicted rightly, each before it was run."""
    return view.score == len(view.letters)


def words(view: View) -> str:
    """The score in one line."""
    ended = len(view.ended)
    again = " \u00b7 one was predicted wrong: Reset asks eight other orders" if view.score < ended else ""
    return f"predicted right: {view.score} of {ended} \u00b7 not run yet: {len(view.letters) - ended}{again}"


def verdict(view: View) -> str:
    """The order in view judged, beside the prediction, with the reason; empty before it was run to the end."""
    if not view.finished:
        return ""
    run, said = view.run, view.prediction
    why = f" {WHY[view.order]}" if view.order in WHY and not view.left_over else ""
    sign = {None: "It", run.verdict: "\u2713 Right: it"}.get(said, f"\u2717 Not so, you said \u201c{said}\u201d: it")
    known = f" ({run.words})" if run.words and "no other order" not in run.words else ""
    beyond = "" if run.losses[-1] < BEYOND else " In these updates its loss grows beyond any bound."
    return f"{sign} {run.verdict}{known}.{why}{beyond}"
