"""Chapter 04's experiment: the loading pipeline as a timeline; then the same numbers run and measured here.

It only wires: `labs.loaders_pipelines` computes and judges, `labs.loaders_drawing` draws, and what is measured is
`course_utils.synthetic_pipeline`'s.
"""

from __future__ import annotations

from html import escape
from typing import Any

from course_utils import figures
from course_utils.labs.knobs import choice, number
from course_utils.labs.loaders_drawing import height_for, timeline_svg
from course_utils.labs.loaders_pipelines import (
    MOST_LONGER,
    MOST_PREFETCH,
    MOST_WORKERS,
    PRESETS,
    View,
    look,
    preset_of,
    verdict,
    words,
)
from course_utils.labs.measuring import MeasuringBench
from course_utils.labs.panel import Goal, Still
from course_utils.machine import usable_cpus
from course_utils.measured_loop import Measured, MeasuredLoop
from course_utils.synthetic_pipeline import Costs
from course_utils.worker_choice import workers

OWN = "your own numbers"
COMPUTES = {"waits (disk, network)": False, "computes (takes a core)": True}
STEP_COMPUTES = {"waits (a GPU works)": False, "computes (takes a core)": True}
SLOW = {"none": 1, "one in 5": 5, "one in 10": 10, "one in 20": 20}
SECONDS = 2.0
FAR = 1.15  # a measured turn so many times the predicted one is talked about


def picture_of(view: View) -> str:
    """The verdict, the timeline, and which pipelines are solved; HTML."""
    right = verdict(view).startswith("\u2713")
    color = figures.RIGHT if right else figures.WRONG
    told = f'<div class="pipeline-verdict" style="color:{color};min-height:3.9em">{escape(verdict(view))}</div>'
    signs = {True: "\u2713", False: "\u25cb"}
    each = " \u00b7 ".join(f"{signs[name in view.solved]} {name}" for name in PRESETS)
    score = f"<div class='pipeline-score'>Solved {len(view.solved)} of {len(PRESETS)}: {escape(each)}</div>"
    return told + timeline_svg(view.timeline, rows=MOST_WORKERS + 1) + score


def told_of(costs: Costs, results: list[Measured], state: str, cores: int) -> str:
    """What was measured beside what the model says of this machine; HTML."""
    if not results:
        return "<div>Measuring: the workers start.</div>" if state == "running" else ""
    now, line = results[-1], costs.predicted(cores)
    rows = [
        (f"the model, with this machine's {cores} core{'s' * (cores != 1)}", line.turn_ms, line.wait_share),
        (f"measured here, {now.num_turns} turns", now.turn_ms, now.wait_share),
    ]
    body = "".join(
        f"<tr><td style='padding-right:2em'>{escape(name)}</td><td>{turn:.1f}&nbsp;ms</td>"
        f"<td style='padding-left:2em'>{share:.0%}</td></tr>"
        for name, turn, share in rows
    )
    head = "<tr><th></th><th>a turn</th><th style='padding-left:2em'>the step waits</th></tr>"
    ending = {"running": "Measuring", "stopped": "Stopped"}.get(state, "Measured")
    far = now.turn_ms > FAR * line.turn_ms
    why = f"<div>{now.turn_ms / line.turn_ms:.2f} times the model's turn. {escape(_LEFT_OUT)}</div>" if far else ""
    return f"<div>{ending}: {escape(in_words(costs))}</div><table>{head}{body}</table>{why}"


_LEFT_OUT = (
    "The model leaves out the real hand-over, about a millisecond a batch, and whatever else this machine does "
    "meanwhile."
)


def in_words(costs: Costs) -> str:
    """A setting in a line: a result says what it is of, whatever the knobs say by now."""
    slow = f", one in {costs.slow_every} takes {costs.slow_factor:g} times as long" if costs.slow_every > 1 else ""
    ahead = f", prefetch_factor {costs.prefetch_factor}" if costs.num_workers else ""
    hand = f", hand-over {costs.handover_ms:g} ms" if costs.num_workers else ""
    kinds = {False: "waits", True: "computes"}
    return (
        f"{workers(costs.num_workers)}{ahead}; a batch {costs.load_ms:g} ms ({kinds[costs.load_computes]}){slow}{hand}"
        f"; a step {costs.step_ms:g} ms ({kinds[costs.step_computes]})"
    )


def still_pipeline() -> Still:
    """Two workers on photos from a slow disk: one setting of the experiment, exact."""
    timeline = Costs(30, 10, num_workers=2).predicted(2)
    return Still(timeline.figure(), timeline.words)


class PipelineLab(MeasuringBench):
    """The pipeline on the page; made by `pipeline_lab`."""

    def __init__(self) -> None:
        first = next(iter(PRESETS))
        self.preset = choice("Pipeline", [*PRESETS, OWN], first)
        self.parts = _knobs()
        self._shown, self._solved, self._denied, self._tried = first, (), None, {}
        self._measured = Costs(30, 10)
        self._set(first)
        goal = (
            f"in all {len(PRESETS)} pipelines a turn is at most {MOST_LONGER:.0%} longer than the step alone, with the "
            "fewest workers (prefetch_factor is yours to choose), or you say rightly that no number of workers does it"
        )
        super().__init__(
            "loaders",
            self._look,
            measure=self._start,
            tell=lambda results, state: told_of(self._measured, results, state, usable_cpus()),
            say=words,
            draw=picture_of,
            still=still_pipeline(),
            knobs=[self.preset, *self.parts.values()],
            buttons=[("No number of workers does it", "ban", "Of this pipeline, with any prefetch_factor", self.deny)],
            goal=Goal(goal, lambda view: len(view.solved) == len(PRESETS)),
            forget=self._forget,
            height=height_for(MOST_WORKERS + 1) + 110,
        )

    def costs(self) -> Costs:
        """The setting, as the knobs are."""
        values = {name: knob.value for name, knob in self.parts.items() if name != "cores"}
        exact = {name: round(value, 2) for name, value in values.items() if isinstance(value, float)}
        return Costs(**values | exact)  # a browser's slider says 30.000000000000004

    def _look(self) -> View:
        if self.preset.value != self._shown and self.preset.value in PRESETS:
            self._set(self.preset.value)
        costs, cores = self.costs(), self.parts["cores"].value
        setting = costs, cores
        tried = self._tried.get(preset_of(costs, cores), frozenset())
        view = look(costs, cores, solved=self._solved, denied=self._denied == setting, tried=tried)
        self._shown = self.preset.value = view.preset or OWN
        self._solved, self._tried[view.preset] = view.solved, view.tried
        return view

    def _set(self, name: str) -> None:
        """Turn every knob to a pipeline as it begins."""
        costs, cores, _ = PRESETS[name]
        for part, value in {**vars(costs), "cores": cores}.items():
            if part in self.parts:
                self.parts[part].value = value
        self._shown = name

    def deny(self) -> None:
        """Say of the pipeline in view that no number of workers does it."""
        self._denied = self.costs(), self.parts["cores"].value

    def _start(self) -> Any:
        self._measured = self.costs()
        return MeasuredLoop(self._measured, seconds=SECONDS)

    def _forget(self) -> None:
        self._solved, self._denied, self._shown, self._tried = (), None, next(iter(PRESETS)), {}


def _knobs() -> dict[str, Any]:
    """A knob for each cost, and the cores; all at the first pipeline."""
    return {
        "num_workers": number("Workers", 0, low=0, high=MOST_WORKERS, step=1),
        "prefetch_factor": number("prefetch_factor", 2, low=1, high=MOST_PREFETCH, step=1),
        "cores": choice("Cores (model)", [1, 2, 4, 8], 2),
        "load_ms": number("Load a batch (ms)", 30.0, low=0.5, high=60.0, step=0.5),
        "load_computes": choice("Loading", COMPUTES, False),
        "step_ms": number("Step (ms)", 10.0, low=1.0, high=60.0, step=0.5),
        "step_computes": choice("The step", STEP_COMPUTES, False),
        "slow_every": choice("Slow batches", SLOW, 1),
        "slow_factor": number("Slow: times", 10.0, low=1.0, high=40.0, step=1.0),
        "handover_ms": number("Hand-over (ms)", 0.0, low=0.0, high=20.0, step=0.5),
    }


def pipeline_lab() -> PipelineLab:
    """Six pipelines as timelines: find the fewest workers with which the step hardly waits, then measure here."""
    return PipelineLab()
