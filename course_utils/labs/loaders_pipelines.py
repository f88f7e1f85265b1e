"""What chapter 04's experiment computes: six pipelines, a setting's timeline, and whether it is what was asked for.

Pure functions of `course_utils.pipeline_model`; nothing is measured and nothing is drawn here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from course_utils.pipeline_timeline import Timeline
from course_utils.synthetic_pipeline import Costs
from course_utils.worker_choice import workers

MOST_LONGER, MOST_WORKERS, MOST_PREFETCH = 0.05, 8, 8
TRIED_FIRST = 2  # numbers of workers above 0, before "no number does it" is judged
NUM_BATCHES = 24  # in the picture


class Preset(NamedTuple):
    """A pipeline to be solved: its costs, cores and first workers, and what is to be learned once it is."""

    costs: Costs
    cores: int
    lesson: str


COMPUTE = {"load_computes": True, "step_computes": True}
PRESETS = {
    "photos from a slow disk": Preset(
        Costs(30, 10),
        2,
        "Load-bound: workers that wait side by side share the waiting out; load / step of them are enough. A larger "
        "prefetch_factor would not do it.",
    ),
    "a big network": Preset(
        Costs(6, 40, **COMPUTE),
        2,
        "Step-bound: one worker hides the loading behind the step; more would have nothing to do.",
    ),
    "one photo in ten is huge": Preset(
        Costs(4, 12, slow_every=10, slow_factor=20),
        2,
        "Rare slow batches: on average one worker keeps up. Batches made ahead bridge the slow one: here a larger "
        "prefetch_factor does what three more workers do.",
    ),
    "arrays in memory": Preset(
        Costs(0.5, 12, num_workers=2, handover_ms=3),
        2,
        "Hand-over-bound with any worker: taking a batch over costs more than making it. 0 workers is the answer.",
    ),
    "a batch of sixty tensors": Preset(
        Costs(20, 20, handover_ms=8),
        4,
        "Hand-over-bound: workers hide the loading, nobody hides what the trainer pays to take a batch over. Make it "
        "cheaper: fewer tensors. Lower the hand-over to 1 ms and look again.",
    ),
    "two cores, both compute": Preset(
        Costs(30, 10, **COMPUTE),
        2,
        "Core-bound: 40 ms of computing a batch on 2 cores are 20 ms at least. More workers end the waiting and make "
        "the step itself slower. Make a batch cheaper, or take more cores.",
    ),
}


class View(NamedTuple):
    """A setting, and what the model says of it.

    preset : the name of the pipeline that it is, but for workers and prefetch_factor; None for one of the reader's
    solved : names of the pipelines solved until now, in order
    denied : whether the reader said of this pipeline that no number of workers does it
    tried  : numbers of workers that this pipeline was seen with
    """

    costs: Costs
    cores: int
    timeline: Timeline
    preset: str | None
    solved: tuple[str, ...] = ()
    denied: bool = False
    tried: frozenset[int] = frozenset()

    @property
    def longer(self) -> float:
        """By how much a turn is longer than the step alone, 0 for not at all: waiting, and a step that is slowed."""
        return longer_by(self.timeline, self.costs.step_ms)

    @property
    def enough(self) -> bool:
        """Whether that is 5 % at most."""
        return self.longer <= MOST_LONGER

    @property
    def too_early(self) -> bool:
        """Whether a pipeline is denied that was hardly tried: a guess is no answer."""
        return self.denied and self.preset is not None and len(self.tried - {0}) < TRIED_FIRST


def longer_by(timeline: Timeline, step_ms: float) -> float:
    """A turn beside the step alone: 0.5 is half as long again."""
    return round(max(0.0, timeline.turn_ms / step_ms - 1), 9)


@lru_cache(maxsize=500)
def fewest(costs: Costs, cores: int) -> dict[int, int] | None:
    """prefetch_factor -> the fewest workers with which a turn is 5 % longer at most; None where none does it.

    costs : of which workers and prefetch_factor do not count
    """
    found = {}
    for prefetch in range(1, MOST_PREFETCH + 1):
        for number in range(MOST_WORKERS + 1):
            setting = replace(costs, num_workers=number, prefetch_factor=prefetch)
            if longer_by(setting.predicted(cores, num_batches=1), costs.step_ms) <= MOST_LONGER:
                found[prefetch] = number
                break
    return found or None


def preset_of(costs: Costs, cores: int) -> str | None:
    """The pipeline that these costs are, whatever its workers and prefetch_factor."""
    free = {"num_workers": 0, "prefetch_factor": 2}
    plain = replace(costs, **free)
    return next(
        (name for name, one in PRESETS.items() if (plain, cores) == (replace(one.costs, **free), one.cores)), None
    )


def does_it(view: View) -> bool:
    """A turn is short enough, and no other prefetch_factor would need fewer workers."""
    return view.enough and view.costs.num_workers == min(fewest(view.costs, view.cores).values())


def look(
    costs: Costs,
    cores: int,
    *,
    solved: tuple[str, ...] = (),
    denied: bool = False,
    tried: frozenset[int] = frozenset(),
) -> View:
    """The setting on its timeline; where it solves its pipeline, that one is added to `solved`."""
    line, preset = costs.predicted(cores, num_batches=NUM_BATCHES), preset_of(costs, cores)
    view = View(costs, cores, line, preset, solved, denied, tried | {costs.num_workers})
    right = not view.too_early and fewest(costs, cores) is None if denied else does_it(view)
    if right and view.preset is not None and view.preset not in solved:
        return view._replace(solved=(*solved, view.preset))
    return view


def words(view: View) -> str:
    """The numbers of a setting in one line."""
    line = view.timeline
    slower = f", the step alone {view.costs.step_ms:g}" + (
        f" (now {line.step_ms:.3g})" if line.step_ms > 1.01 * view.costs.step_ms else ""
    )
    return (
        f"the step waits {line.wait_share:.1%} of the time \u00b7 a turn takes {line.turn_ms:.3g} ms{slower} "
        f"\u00b7 {1e3 / line.turn_ms:.3g} batches a second"
    )


def verdict(view: View) -> str:
    """The setting judged, in a sentence; then what is to be learned, where its pipeline is solved."""
    told = _denied(view) if view.denied else _judged(view)
    lesson = f" {PRESETS[view.preset].lesson}" if view.preset in view.solved and told.startswith("\u2713") else ""
    return told + lesson


def _denied(view: View) -> str:
    if view.too_early:
        return f"\u25cb Look at {TRIED_FIRST} numbers of workers above 0 first, then say so."
    if fewest(view.costs, view.cores) is None:
        return "\u2713 Right: no number of workers does it, with no prefetch_factor."
    return "\u25cb Some number of workers does it here."


def _judged(view: View) -> str:
    line, number = view.timeline, view.costs.num_workers
    if not view.enough:
        return f"\u25cb A turn is {view.longer:.0%} longer than the step alone: {_why(view)}."
    least = fewest(view.costs, view.cores)
    if number > least[view.costs.prefetch_factor]:
        return f"\u25cb The step waits {line.wait_share:.0%} of the time, but fewer workers do it too."
    if number > min(least.values()):
        return f"\u25cb The fewest with this prefetch_factor; with another one fewer workers than {number} do it."
    return f"\u2713 The step waits {line.wait_share:.0%} of the time, with the fewest workers: {number}."


def _why(view: View) -> str:
    line, number = view.timeline, view.costs.num_workers
    waits = f"the step waits {line.wait_share:.0%} of the time"
    if line.step_ms <= 1.01 * view.costs.step_ms:
        return waits
    return (
        f"{waits}, and it takes {line.step_ms:.3g} ms instead of {view.costs.step_ms:g}, because {workers(number)} "
        f"compute{'s' * (number == 1)} on its cores"
    )
