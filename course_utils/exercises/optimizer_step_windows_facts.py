"""What the windows of a run are asked: the loader they come from, and the facts that are gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from course_utils.exercises.facts import Said
from course_utils.exercises.optimizer_step_facts import up_to_the_first_fault
from course_utils.exercises.wording import kind, short

_ONE_BY_ONE, _FOUND, _STEPS = "how the windows come", "the windows", "the numbers of the updates"
_TAKEN, _KEPT = "micro-batches taken from the loader when each window comes", "the windows, looked at again at the end"
_BEGUN = "epochs begun, by iter(loader), when each window comes and at the end"


class Loader:
    """A loader without a length: the n-th `for` over it gives the micro-batches of epoch n, "0.1" is epoch 0, batch 1.

    taken : micro-batches handed over so far, in all epochs together
    """

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self.lengths, self.epoch, self.taken = lengths, -1, 0

    def __iter__(self) -> Iterator[str]:
        self.epoch += 1
        return self._batches(self.epoch)

    def _batches(self, epoch: int) -> Iterator[str]:
        for number in range(self.lengths[epoch] if epoch < len(self.lengths) else 0):
            self.taken += 1
            yield f"{epoch}.{number}"


def sound_windows(lengths: tuple[int, ...], accumulate: int) -> dict:
    """The facts of a sound answer, by counting."""
    firsts = [(epoch, first) for epoch, length in enumerate(lengths) for first in range(0, length, accumulate)]
    ends = [min(first + accumulate, lengths[epoch]) for epoch, first in firsts]
    windows = [[f"{epoch}.{n}" for n in range(first, end)] for (epoch, first), end in zip(firsts, ends, strict=True)]
    taken = [sum(map(len, windows[: place + 1])) for place in range(len(windows))]
    begun = [*(epoch + 1 for epoch, _ in firsts), len(lengths)]
    return window_facts("one by one", windows, range(len(windows)), taken, "as they came", begun)


def window_facts(come: str, windows: Iterable, steps: Iterable, taken: list[int], again: str, begun: list[int]) -> dict:
    facts = {_ONE_BY_ONE: come, _FOUND: list(windows), _STEPS: list(steps), _TAKEN: taken}
    return facts | {_KEPT: again, _BEGUN: begun}


def gather(fn: Callable, result: Any, loader: Loader, accumulate: int, num_epochs: int) -> dict:
    """The windows as they come, and once more at the end."""
    sound = sound_windows(loader.lengths, accumulate)
    if isinstance(result, (list, tuple)):
        all_read = loader.taken == sum(loader.lengths)
        words = "all in one list, when the run has read its last micro-batch" if all_read else f"as {short(result)}"
        return {_ONE_BY_ONE: Said("in a list" if all_read else "returned", f"{words}: `yield` one after the other")}
    steps, kept, found, taken, begun = [], [], [], [], []
    try:
        for item in islice(result, len(sound[_FOUND]) + 3):  # one that never ends is cut here
            if fault := _is_no_pair(item):
                return {_ONE_BY_ONE: fault}
            steps.append(item[0])
            kept.append(item[1])
            found.append(list(item[1]))
            taken.append(loader.taken)
            begun.append(loader.epoch + 1)
    except RuntimeError as error:
        if not isinstance(error.__cause__, StopIteration):
            raise
        return {_ONE_BY_ONE: Said("StopIteration", "until next() finds nothing: a StopIteration ends the generator")}
    begun.append(loader.epoch + 1)
    again = "as they came"
    if [list(window) for window in kept] != found:
        again = Said("changed", f"changed, the first one now holds {list(kept[0])}")
    return up_to_the_first_fault(window_facts("one by one", found, steps, taken, again, begun), sound)


def _is_no_pair(item: Any) -> Said | None:
    """What is wrong with what was yielded, if it is not (step, window) with a window that can be read again."""
    if not isinstance(item, (tuple, list)) or len(item) != 2 or isinstance(item[0], str):
        return Said("no pair", f"as {short(item)}, not as a pair (step, window)")
    step, window = item
    if isinstance(step, (list, tuple)):
        return Said("turned round", f"as {short(item)}, not in the order (step, window)")
    if not isinstance(window, (list, tuple)):
        return Said("no list", f"with {kind(window)} for a window, not a list")
    return None
