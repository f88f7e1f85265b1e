"""Chapter 11's experiment: five pipelines; name the bottleneck of each before the tool does.

It only wires: `labs.profiling_pipelines` knows and measures the pipelines, `labs.profiling_drawing` draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from course_utils import figures
from course_utils.bottleneck import Diagnosis
from course_utils.labs.knobs import choice
from course_utils.labs.measuring import MeasuringBench
from course_utils.labs.panel import Goal, Still
from course_utils.labs.profiling_drawing import mean_turn, parts_svg, said, strip_svg
from course_utils.labs.profiling_pipelines import CASES, LETTERS, VERDICTS, Case, Log, MeasuredParts, StoredParts, order
from course_utils.labs.profiling_times import STORED
from course_utils.worker_choice import workers

HERE, KEPT = "measured here (3 s)", "stored"


class View(NamedTuple):
    """Where the reader stands.

    letters : letter -> name of its pipeline
    letter  : in view
    named   : letter -> the verdict that the reader gave
    found   : letter -> what the tool said of it
    alone   : letters whose parts the reader asked for
    notice  : what the last button could not do
    """

    letters: dict[str, str]
    letter: str
    named: dict[str, str]
    found: dict[str, Diagnosis]
    alone: frozenset[str]
    notice: str = ""

    @property
    def case(self) -> Case:
        return CASES[self.letters[self.letter]]

    @property
    def log(self) -> Log:
        """The stored times: what the loop of the pipeline in view shows."""
        return STORED[self.letters[self.letter]]

    @property
    def score(self) -> int:
        """Pipelines named right, of those that the tool was asked about."""
        return sum(self.named.get(letter) == CASES[self.letters[letter]].verdict for letter in self.found)


def reached(view: View) -> bool:
    """All five named right, each before the tool was asked."""
    return view.score == len(LETTERS)


def words(view: View) -> str:
    """The score in one line."""
    left = len(LETTERS) - len(view.found)
    again = " \u00b7 one was named wrong: for the goal Reset, or another order" if view.score < len(view.found) else ""
    return (
        f"named right before the tool did: {view.score} of {len(view.found)} \u00b7 not asked about yet: {left}{again}"
    )


def picture_of(view: View) -> str:
    """The pipeline in view: what its code says, the strip, on request its parts alone, then the tool's answer; HTML."""
    costs, epoch = view.case.costs, view.case.num_batches
    batches = f"{workers(costs.num_workers)}, {epoch:,} batches in an epoch"
    head = (
        f"<div class='pipeline-head'><b>Pipeline {view.letter}</b>: {escape(batches)}. {escape(said(view.log))}.</div>"
    )
    alone = _alone(view.log) if view.letter in view.alone else ""
    return head + strip_svg(view.log) + alone + _named(view) + _told(view)


def _named(view: View) -> str:
    """The reader's name, and what the last button could not do; a line that is always there, so nothing moves."""
    named = view.named.get(view.letter)
    said_so = f"You say: <b>{escape(named)}</b>" if named else ""
    return f"<div class='pipeline-named' style='min-height:1.5em'>{said_so} {escape(view.notice)}</div>"


def _alone(log: Log) -> str:
    """What people time first, and the numbers behind it."""
    times, count = log.times, min(20, log.times.num_batches)
    return (
        f"<div class='pipeline-alone'>The step alone: {times.step_ms:.1f} ms. The loader alone, nothing done with its "
        f"batches: {times.load_ms:.1f} ms a batch once it runs; {log.naive_ms:.1f} ms as the mean of its first "
        f"{count}, the start counted.</div>"
    )


def _told(view: View) -> str:
    """What the tool said of the pipeline in view, beside what the reader did; HTML."""
    if view.letter not in view.found:
        return ""
    found, case = view.found[view.letter], view.case
    right = view.named.get(view.letter) == case.verdict
    sign, color = ("\u2713 Right", figures.RIGHT) if right else ("\u2717 Not so", figures.WRONG)
    other = "" if found.verdict == case.verdict else _other(found, case)
    advice = "".join(f"<li>{escape(sentence)}</li>" for sentence in found.advice)
    return (
        f"<div class='pipeline-told'><b style='color:{color}'>{sign}.</b> The tool: <b>{escape(found.verdict)}</b>, "
        f"{found.ms:.3g} of {found.batch_ms:.3g} ms a batch, {found.share:.0%}. {escape(other)}</div>{parts_svg(found)}"
        f"<div>{escape(case.lesson)}</div>Try:<ul style='margin:0'>{advice}</ul>"
    )


def _other(found: Diagnosis, case: Case) -> str:
    return (
        f"It was built to be {case.verdict}, and that counts: measured here, beside whatever else this machine does, "
        f"it was {found.verdict}."
    )


def progress_html(letter: str, results: list, state: str) -> str:
    """How far the measurement is; empty before the first and after the last."""
    if state == "finished" or not (results or state == "running"):
        return ""
    now = escape(results[-1].words) if results else "the workers start"
    return f"<div>{'Measuring' if state == 'running' else 'Stopped at'} pipeline {letter}: {now}.</div>"


def still_loops(seed: int = 0) -> Still:
    """The mean turn of each of the five, from the stored times: what a reader without widgets can reason about."""
    logs = {letter: STORED[name] for letter, name in order(seed).items()}
    costs = {letter: CASES[name] for letter, name in order(seed).items()}
    waits = {letter: mean_turn(log)[0] for letter, log in logs.items()}
    steps = {letter: mean_turn(log)[1] for letter, log in logs.items()}
    title = "Five loops: three of them wait nearly half of the time"
    fig, ax = figures.axes(title=title, xlabel="pipeline", ylabel="a turn, mean (ms)")
    ax.bar(list(LETTERS), list(waits.values()), color="white", edgecolor=figures.WRONG, hatch="////", label="waits")
    ax.bar(list(LETTERS), list(steps.values()), bottom=list(waits.values()), color=figures.RIGHT, label="steps")
    ax.legend(fontsize=8, frameon=False, ncols=2)
    ax.set_ylim(top=1.3 * max(waits[letter] + steps[letter] for letter in LETTERS))
    each = "; ".join(
        f"{letter}: {workers(costs[letter].costs.num_workers)}, {costs[letter].num_batches:,} batches an epoch, waits "
        f"{waits[letter]:.0f} and steps {steps[letter]:.0f} ms, first batch after {logs[letter].waits[0]:.0f} ms, the "
        f"loader alone {logs[letter].times.load_ms:.0f} ms a batch"
        for letter in LETTERS
    )
    return Still(fig, f"The mean turn of five loops, as stored, without the first of an epoch. {each}.")


class BottleneckLab(MeasuringBench):
    """The five pipelines on the page; made by `bottleneck_lab`."""

    def __init__(self, *, stored: bool = False) -> None:
        self.letter = choice("Pipeline", list(LETTERS), LETTERS[0])
        self.seed = choice("Order (seed)", [0, 1, 2, 3, 4], 0)
        self.times = choice("The tool's times", [HERE, KEPT], KEPT if stored else HERE)
        self._seed, self._asked, self._notice = 0, LETTERS[0], ""
        self._forget()
        names = [
            (f"{verdict.capitalize()}", "tag", f"Say that this pipeline is {verdict}", verdict) for verdict in VERDICTS
        ]
        super().__init__(
            "profiling",
            self._look,
            measure=self._start,
            tell=lambda results, state: progress_html(self._asked, results, state),
            words="Ask the tool",
            tooltip="Measure the pipeline in the background and decide; the reader's name comes first",
            say=words,
            draw=picture_of,
            still=still_loops(),
            knobs=[self.letter, self.seed, self.times],
            buttons=[
                *(
                    (label, icon, tip, lambda verdict=verdict: self.name_it(verdict))
                    for label, icon, tip, verdict in names
                ),
                ("Loader and step alone", "eye", "What many people time first", self.show_alone),
            ],
            goal=Goal(
                f"name the bottleneck of {len(LETTERS)} of {len(LETTERS)} pipelines before the tool does", reached
            ),
            forget=self._forget,
            height=240,
        )

    def _forget(self) -> None:
        self._named, self._found, self._alone = {}, {}, frozenset()

    def _look(self) -> View:
        if self.seed.value != self._seed:
            self._seed = self.seed.value
            self.run.reset()  # what is being measured has another letter now
            self._forget()
        notice, self._notice = self._notice, ""
        letters = order(self._seed)
        return View(letters, self.letter.value, dict(self._named), dict(self._found), self._alone, notice)

    def name_it(self, verdict: str) -> None:
        """Say what holds up the pipeline in view; once the tool has told it, its name stays."""
        letter = self.letter.value
        if letter in self._found:
            self._notice = f"The tool has told pipeline {letter} already: your name for it stays."
        else:
            self._named[letter] = verdict

    def show_alone(self) -> None:
        """Show loader and step of the pipeline in view, each timed alone."""
        self._alone |= {self.letter.value}

    def measure(self) -> None:
        """Ask the tool about the pipeline in view; the reader's name comes first."""
        if self.letter.value in self._named:
            return super().measure()
        self._notice = f"Name the bottleneck of pipeline {self.letter.value} first."
        self.refresh()

    def _start(self) -> Iterator:
        self._asked, name = self.letter.value, order(self._seed)[self.letter.value]
        return StoredParts(STORED[name]) if self.times.value == KEPT else MeasuredParts(CASES[name])

    def _on_change(self) -> None:
        super()._on_change()
        if self.run.state == "finished" and self.run.points and self._asked not in self._found:
            self._found[self._asked] = self.run.points[-1].log.diagnosis
            self._renew()  # in the run's thread: it draws nothing from any generator
            self._show()


def bottleneck_lab(*, stored: bool = False) -> BottleneckLab:
    """Five pipelines, A to E: see their loops, name what holds each up, then ask the tool.

    stored : begin with the stored times in place of measuring here, for a machine that is busy or slow
    """
    return BottleneckLab(stored=stored)
