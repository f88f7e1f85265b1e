"""Chapter 05's experiment: put the actions of an update in any order, predict what it does, then step through it.

It only wires: `course_utils.update_order` runs the orders, `labs.training_loop_orders` asks and judges,
`labs.training_loop_drawing` draws.
"""

from __future__ import annotations

from course_utils import figures
from course_utils.labs.bench import Bench
from course_utils.labs.knobs import choice, switch
from course_utils.labs.panel import Goal, Still
from course_utils.labs.training_loop_drawing import HEIGHT, picture_of
from course_utils.labs.training_loop_orders import (
    LETTERS,
    MOST_ACTIONS,
    NUM_UPDATES,
    RAISES,
    SEEDS,
    SHOWN,
    Order,
    View,
    drawn,
    num_rows,
    reached,
    run_of,
    words,
)
from course_utils.update_order import ACTIONS, VERDICTS

OWN = "your own"


def still_orders() -> Still:
    """What the four answers look like, in orders that are never asked; the eight that are asked first, as words."""
    fig, ax = figures.axes(title="Four orders, an answer each", xlabel="updates made", ylabel="loss")
    for place, (verdict, order) in enumerate(SHOWN.items()):
        losses = run_of(order).losses
        look, marker = figures.SERIES[place], "x" if verdict == RAISES else ""
        ax.plot(range(len(losses)), losses, color=look.color, dashes=look.dashes, marker=marker)
        above = 1.2 if verdict == RAISES else 0  # else it stands on the line of what does not learn
        figures.label_line(ax, len(losses) - 1, losses[-1] + above, verdict, look.color)
    ax.set_ylim(0, 20)
    ax.set_xticks(range(0, NUM_UPDATES + 1, 4))
    shown = "; ".join(f"it {verdict}: {', '.join(order)}" for verdict, order in SHOWN.items())
    asked = "; ".join(f"{letter}: {', '.join(order)}" for letter, order in drawn(SEEDS[0]).items())
    return Still(fig, f"Drawn, and not asked: {shown}. Asked: what does each of these do? {asked}.")


def _options() -> dict[str, str]:
    """What a place may hold: an action, or nothing."""
    return {"\u2013": "", **{action: action for action in ACTIONS}}


class UpdateLab(Bench):
    """The update on the page; made by `update_lab`."""

    def __init__(self) -> None:
        self.letter = choice("Order", [*LETTERS, OWN], LETTERS[0])
        self.seed = choice("Orders asked (seed)", SEEDS, SEEDS[0])
        self.places = [choice(str(place), _options(), "") for place in range(1, MOST_ACTIONS + 1)]
        self.left_over = switch("a right update was made before, as in a notebook whose cell has run")
        for knob in self.places:
            if hasattr(knob, "layout"):
                knob.layout.width = "150px"
        self._told: set[int] = set()
        self._clear()
        self._put(self._letters[LETTERS[0]])
        asked = len(LETTERS)
        super().__init__(
            "training_loop",
            self._look,
            say=words,
            draw=picture_of,
            still=still_orders(),
            knobs=[self.letter, self.seed],
            rows=[self.places, [self.left_over]],
            answers=[
                (said.capitalize(), "tag", f"Predict that this order {said}", lambda said=said: self.predict(said))
                for said in VERDICTS
            ],
            buttons=[
                ("Next action", "step-forward", "Do one action, and see what it changed", self.step),
                ("Run to the end", "fast-forward", "All actions of two updates, then the verdict", self.finish),
            ],
            goal=Goal(f"predict what {asked} of {asked} orders do, each before it is run", reached),
            forget=self._ask_others,
            height=HEIGHT,
        )

    def order(self) -> Order:
        """The actions, as the knobs are; an empty place is passed over."""
        return tuple(knob.value for knob in self.places if knob.value)

    def _look(self) -> View:
        if self.seed.value != self._seed:
            self._clear()
            self._put(self._letters[LETTERS[0]])
            self._shown_letter = self.letter.value = LETTERS[0]
        elif self.letter.value != self._shown_letter and self.letter.value in LETTERS:
            self._put(self._letters[self.letter.value])
        notice, self._notice = self._notice, ""
        view = View(self._letters, self.order(), self.left_over.value, dict(self._predicted), dict(self._shown), notice)
        self._shown_letter = self.letter.value = view.letter or OWN
        if view.ended:
            self._told.add(self._seed)
        return view

    def _put(self, order: Order) -> None:
        """Turn the knobs to this order."""
        for knob, action in zip(self.places, [*order, *[""] * MOST_ACTIONS], strict=False):
            knob.value = action
        self.left_over.value = False

    def predict(self, verdict: str) -> None:
        """Say what the order in view does; once it runs, the prediction stays."""
        key = self.order(), self.left_over.value
        if self._shown.get(key):
            self._notice = "This order runs already: what you said of it stays."
        else:
            self._predicted[key] = verdict

    def step(self) -> None:
        """Do one action more; the prediction comes first."""
        key = self.order(), self.left_over.value
        if key not in self._predicted:
            self._notice = "Predict first: what does this order do?"
        else:
            self._shown[key] = min(self._shown.get(key, 0) + 1, max(1, num_rows(run_of(*key))))

    def finish(self) -> None:
        """Do all actions that are left; the prediction comes first."""
        key = self.order(), self.left_over.value
        for _ in range(max(1, num_rows(run_of(*key)))):
            self.step()

    def _ask_others(self) -> None:
        """Orders of which no answer was told yet: to repeat those that were would be memory."""
        if self._told.issuperset(SEEDS):
            self._told = {self._seed}
        others = [seed for seed in SEEDS if seed not in self._told]
        place = next(place for place, knob in enumerate(self.knobs) if knob is self.seed)
        self._at_first[place] = others[0]
        self._clear()
        self._seed = -1  # so that `_look` puts the first of these orders, not the one as it was at first

    def _clear(self) -> None:
        self._seed = self.seed.value
        self._letters = drawn(self._seed)
        self._predicted, self._shown, self._notice, self._shown_letter = {}, {}, "", LETTERS[0]


def update_lab() -> UpdateLab:
    """Eight orders of an update: predict what each does, step through it, see its losses beside the right order's."""
    return UpdateLab()
