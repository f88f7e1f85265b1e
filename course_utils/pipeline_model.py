"""A loading pipeline as a model: when workers load, when the trainer waits and when it steps, from a few given times.

It measures nothing and starts no process; `tuning` measures the real loop. Re-exported by `loaders`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from course_utils.pipeline_timeline import Interval, Timeline

MEASURED = 100  # at least so many turns make the steady state, in whole rounds of workers and of slow loads
MAX_TRIES = 20  # windows of so many turns, until loads and steps keep pace
MAX_WAIT_SHARE = 0.05  # below it, a step waits little
_TRAINER = -1


def simulate_pipeline(
    load_ms: float | Sequence[float],
    step_ms: float,
    *,
    num_workers: int,
    prefetch_factor: int = 2,
    num_batches: int = 40,
    cores: int = 2,
    handover_ms: float = 0.0,
    load_computes: bool = True,
    step_computes: bool = True,
    slow_every: int = 1,
    slow_factor: float = 10.0,
    startup_ms: float = 0.0,
) -> Timeline:
    """The loop over a `DataLoader`, as events: workers load ahead, the trainer takes batches in order.

    load_ms         : to make one batch, alone on a core; a sequence is used over and over
    step_ms         : one step, alone on a core
    num_workers     : 0 loads in the loop: nothing overlaps, nothing is handed over
    prefetch_factor : batches of a worker that are asked for and not yet handed over, at most
    num_batches     : whose intervals are kept; the steady state is found over as many as it needs
    cores           : shared in equal parts by what computes at a moment, at most one core each
    handover_ms     : what the trainer pays for a batch that is ready: it computes
    load_computes   : False where loading waits for a disk or a network: it needs no core; so `step_computes` for a GPU
    slow_every      : 1 makes all loads alike; k > 1 makes the k-th, 2k-th, ... take `slow_factor` times as long
    startup_ms      : until workers can begin; needs no core
    raises          : ValueError for numbers that are no times or no counts

    Batch i is worker i % num_workers's. At first each is asked for `prefetch_factor` batches; after each hand-over one
    batch more is asked for, of the same worker. So does `torch.utils.data.DataLoader` (`_try_put_index`).
    """
    times = _load_times(load_ms, slow_every, slow_factor)
    named = {"step_ms": step_ms, "handover_ms": handover_ms, "startup_ms": startup_ms}
    _check(times, named, {"num_workers": (num_workers, 0), "prefetch_factor": (prefetch_factor, 1),
                          "num_batches": (num_batches, 1), "cores": (cores, 1)})  # fmt: skip
    if not num_workers:
        startup_ms = 0.0
    run = _Run(
        times, step_ms, num_workers, prefetch_factor, cores, handover_ms, load_computes, step_computes, startup_ms
    )
    turn_ms, step_took_ms = _steady(run, 2 * num_workers * prefetch_factor + len(times), len(times))
    run.until(num_batches)
    kept = [tuple(sorted(rows)[:num_batches]) for rows in (run.loads, run.waits, run.handovers, run.steps)]
    return Timeline(num_workers, *kept, turn_ms, max(0.0, turn_ms - step_took_ms), startup_ms)


def steady_turn_ms(
    load_ms: float,
    step_ms: float,
    *,
    num_workers: int,
    prefetch_factor: int = 2,
    cores: int = 2,
    handover_ms: float = 0.0,
    load_computes: bool = True,
    step_computes: bool = True,
) -> float:
    """One turn by formula, where all loads are alike: the largest of what trainer, workers and cores need for a batch.

    max(step + hand-over, load / workers, what computes / cores); load + step without workers. With prefetch_factor=1
    a worker has nothing to do until its batch is handed over: load + hand-over instead of load.
    """
    if not num_workers:
        return load_ms + step_ms
    computing = load_ms * load_computes + step_ms * step_computes + handover_ms
    turn_of_worker = load_ms + (handover_ms if prefetch_factor == 1 else 0.0)
    return max(step_ms + handover_ms, turn_of_worker / num_workers, computing / cores)


def fewest_workers(
    load_ms: float | Sequence[float],
    step_ms: float,
    *,
    max_wait_share: float = MAX_WAIT_SHARE,
    max_workers: int = 16,
    **pipeline: float,
) -> int | None:
    """The smallest number of workers with which waiting is less than `max_wait_share` of a turn; None if none is.

    pipeline : as `simulate_pipeline` takes it, without num_workers

    A small share is not yet a short turn: workers that compute on the step's cores make the step itself longer.
    """
    for num_workers in range(max_workers + 1):
        if simulate_pipeline(load_ms, step_ms, num_workers=num_workers, **pipeline).wait_share < max_wait_share:
            return num_workers
    return None


def _load_times(load_ms: float | Sequence[float], slow_every: int, slow_factor: float) -> list[float]:
    """One period of loads."""
    given = list(load_ms) if isinstance(load_ms, Sequence) else [load_ms]
    if not given or slow_every < 1 or not 0 <= slow_factor < math.inf:
        got = f"{len(given)} loads, slow_every={slow_every}, slow_factor={slow_factor}"
        raise ValueError(f"need at least one load, slow_every >= 1 (1: none is slow), slow_factor >= 0; got {got}")
    times = given * (math.lcm(len(given), slow_every) // len(given))
    if slow_every > 1:
        times[slow_every - 1 :: slow_every] = [time * slow_factor for time in times[slow_every - 1 :: slow_every]]
    return times


def _check(loads: list[float], times: dict[str, float], counts: dict[str, tuple[int, int]]) -> None:
    for name, value in [("load_ms", load) for load in loads] + [*times.items()]:
        if not 0 <= value < math.inf or (name == "step_ms" and value == 0):
            raise ValueError(f"{name} must be a time {'above' if name == 'step_ms' else 'of at least'} 0, got {value}")
    for name, (value, least) in counts.items():
        if value != int(value) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value}")


def _steady(run: _Run, first: int, period: int) -> tuple[float, float]:
    """Means of turn and step over whole rounds, once as much is loaded as is used: no queue fills or drains.

    first : steps that the start has shaped
    """
    length = math.lcm(max(1, len(run.asked)), period)
    length *= math.ceil(MEASURED / length)
    for _ in range(MAX_TRIES):
        run.until(first)
        loaded = run.loaded()
        run.until(first + length)
        if abs(run.loaded() - loaded - length) <= length / 100:
            break
        first += length
    before, *steps = run.steps[-length - 1 :]
    turn_ms = (steps[-1].end_ms - before.end_ms) / length
    return turn_ms, sum(step.end_ms - step.start_ms for step in steps) / length


class _Task:
    def __init__(self, kind: str, batch: int, start_ms: float, left_ms: float, computes: bool) -> None:
        self.kind, self.batch, self.start_ms, self.left_ms, self.computes = kind, batch, start_ms, left_ms, computes


class _Run:
    """The state of the model; `until` moves it on. A row is a worker's number, or the trainer's."""

    def __init__(self, times, step_ms, num_workers, prefetch_factor, cores, handover_ms, loads, steps, startup_ms):
        self.times, self.step_ms, self.handover_ms, self.cores = times, step_ms, handover_ms, cores
        self.load_computes, self.step_computes = loads, steps
        self.loads, self.waits, self.handovers, self.steps = [], [], [], []
        self.now, self.asked_ms, self.busy, self.ready = 0.0, 0.0, {}, set()
        self.asked = [deque(range(n, num_workers * prefetch_factor, num_workers)) for n in range(num_workers)]
        self.ahead = num_workers * prefetch_factor
        for row in range(num_workers if startup_ms else 0):
            self.busy[row] = _Task("start", 0, 0.0, startup_ms, False)

    def until(self, num_steps: int) -> None:
        while len(self.steps) < num_steps:
            self._begin()
            self._advance()

    def loaded(self) -> float:
        """Batches loaded, those on the way for the part that is done."""
        tasks = [task for task in self.busy.values() if task.kind == "load"]
        return len(self.loads) + sum(1 - task.left_ms / self._load_ms(task.batch) for task in tasks)

    def _load_ms(self, batch: int) -> float:
        return self.times[batch % len(self.times)]

    def _begin(self) -> None:
        """Whoever is idle takes up what there is to do."""
        for row, asked in enumerate(self.asked):
            if row not in self.busy and asked:
                self._load(row, asked.popleft())
        if _TRAINER in self.busy:
            return
        batch = len(self.steps)
        if not self.asked:
            self._load(_TRAINER, batch)
        elif batch in self.ready:
            self.ready.remove(batch)
            self.waits.append(Interval(batch, self.asked_ms, self.now))
            self.busy[_TRAINER] = _Task("hand-over", batch, self.now, self.handover_ms, True)

    def _load(self, row: int, batch: int) -> None:
        self.busy[row] = _Task("load", batch, self.now, self._load_ms(batch), self.load_computes)

    def _advance(self) -> None:
        """To the next end of a task; those that compute share the cores."""
        computing = sum(task.computes for task in self.busy.values())
        rate = min(1.0, self.cores / max(1, computing))
        passed = min(task.left_ms / (rate if task.computes else 1.0) for task in self.busy.values())
        self.now += passed
        for row, task in list(self.busy.items()):
            task.left_ms -= passed * (rate if task.computes else 1.0)
            if task.left_ms <= 1e-9 * self.step_ms:
                del self.busy[row]
                self._end(row, task)

    def _end(self, row: int, task: _Task) -> None:
        done = Interval(task.batch, task.start_ms, self.now, None if row == _TRAINER else row)
        if task.kind == "load":
            self.loads.append(done)
            self.ready.add(task.batch)
            if row == _TRAINER:
                self.ready.remove(task.batch)
                self.waits.append(done)
        if task.kind == "hand-over":
            self.handovers.append(done)
            self.asked[task.batch % len(self.asked)].append(task.batch + self.ahead)
        if task.kind == "step":
            self.steps.append(done)
            self.asked_ms = self.now
        elif row == _TRAINER:
            self.busy[row] = _Task("step", task.batch, self.now, self.step_ms, self.step_computes)
