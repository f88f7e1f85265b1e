"""The exercise of chapter 06 about the windows of a run."""

from __future__ import annotations

from itertools import chain, islice, zip_longest

from course_utils.exercises.declare import exercise
from course_utils.exercises.optimizer_step_facts import close_facts_differ
from course_utils.exercises.optimizer_step_windows_facts import Loader, gather, sound_windows, window_facts

_RUNS = [((5, 5), 2), ((4,), 2), ((3, 2), 4), ((6, 1, 5), 3), ((3, 3), 1), ((0, 3), 2)]


@exercise(
    "optimizer_step-2",
    title="The windows of a run",
    difficulty="easy",
    minutes=8,
    cases=_RUNS,
    expected=[
        window_facts(
            "one by one",
            [["0.0", "0.1"], ["0.2", "0.3"], ["0.4"], ["1.0", "1.1"], ["1.2", "1.3"], ["1.4"]],
            [0, 1, 2, 3, 4, 5],
            [2, 4, 5, 7, 9, 10],
            "as they came",
            [1, 1, 1, 2, 2, 2, 2],
        ),
        *(sound_windows(*run) for run in _RUNS[1:]),
    ],
    arrange=lambda lengths, accumulate: (Loader(lengths), accumulate, len(lengths)),
    probe=gather,
    difference=close_facts_differ,
    describe=lambda lengths, accumulate: (
        f"update_windows(loader, accumulate={accumulate}, num_epochs={len(lengths)}), epochs of "
        f"{', '.join(map(str, lengths))} micro-batches, named epoch.number"
    ),
    imports="from itertools import islice",
    hints=[
        "Two things end a window: it is full, or the epoch is over. Which of the two does a test with % see?",
        "An outer loop over the epochs, each with an iterator of its own; inside it, take micro-batches until a window "
        "is full or nothing is left. A window without a micro-batch is no window.",
        "islice(batches, accumulate), with batches = iter(loader), takes up to so many and goes on where it stopped. "
        "`yield` hands a window over, and the count of the updates goes on through all epochs.",
    ],
    lesson="An epoch of n micro-batches makes ceil(n / accumulate) updates: plan the schedule with this number.",
)
def update_windows(loader, accumulate: int, num_epochs: int):
    """The windows of micro-batches that make the updates of a run, one after the other.

    loader     : each `for` over it (each iter(loader)) is one epoch and gives its micro-batches.
                 It has no length; epochs may differ in length, and one may be empty
    accumulate : micro-batches for one update, 1 or more
    num_epochs : so many epochs are read
    yields     : (step, window) for each update. `step` counts the updates of the whole run, from 0.
                 `window` is a list of its own with `accumulate` micro-batches, in their order; the
                 last window of an epoch holds what is left, if anything is. No window holds
                 micro-batches of two epochs

    A window is handed over as soon as it is full: nothing beyond it was taken from the loader. With
    accumulate=2, two epochs a b c d e give (0, [a, b]), (1, [c, d]), (2, [e]), and then
    (3, [a, b]), (4, [c, d]), (5, [e]): six updates.
    """
    step = 0
    for _ in range(num_epochs):
        batches = iter(loader)
        while window := list(islice(batches, accumulate)):
            yield step, window
            step += 1


def _numbered(windows):
    yield from enumerate(windows)


def _collected(loader, accumulate, num_epochs, *, full, rest=True, across=False, end=True):
    """Windows by a list that is filled: `full(window, number)` ends one; `rest` at the end of an epoch, `end` at the
    end of the run; with `across` a window lives on in the next epoch."""
    window, number = [], 0
    for _ in range(num_epochs):
        if not across:
            window, number = [], 0
        for batch in loader:
            window.append(batch)
            number += 1
            if full(window, number):
                yield window
                window = []
        if rest and window and not across:
            yield window
    if across and end and window:
        yield window


@update_windows.wrong
def drops_the_last_window(loader, accumulate, num_epochs):
    """A window counts only when it is full, as with `number % accumulate == 0`: what is left at the end of an epoch
    never makes an update. With more to accumulate than the epoch has batches the run makes no update at all, and
    nothing says so."""
    yield from _numbered(_collected(loader, accumulate, num_epochs, full=lambda w, n: n % accumulate == 0, rest=False))


@update_windows.wrong
def leaks_into_the_next_epoch(loader, accumulate, num_epochs):
    """What is left of an epoch waits and is filled up in the next one: an update mixes gradients of weights that an
    evaluation, a checkpoint or the end of the run lies between. Begin each epoch with an empty window, and hand over
    the old one before."""
    yield from _numbered(
        _collected(loader, accumulate, num_epochs, full=lambda w, n: len(w) == accumulate, across=True)
    )


@update_windows.form_of("leaks_into_the_next_epoch")
def leaks_into_the_next_epoch_and_drops_the_last(loader, accumulate, num_epochs):
    full = lambda w, n: len(w) == accumulate  # noqa: E731
    yield from _numbered(_collected(loader, accumulate, num_epochs, full=full, across=True, end=False))


@update_windows.form_of("leaks_into_the_next_epoch")
def leaks_and_counts_the_batches_of_an_epoch(loader, accumulate, num_epochs):
    window, step = [], 0
    for _ in range(num_epochs):
        for number, batch in enumerate(loader, start=1):
            window.append(batch)
            if number % accumulate == 0:
                yield step, window
                window, step = [], step + 1


@update_windows.form_of("leaks_into_the_next_epoch")
def chains_the_epochs(loader, accumulate, num_epochs):
    batches = chain.from_iterable(iter(loader) for _ in range(num_epochs))
    yield from _numbered(iter(lambda: list(islice(batches, accumulate)), []))


@update_windows.wrong
def hands_over_an_empty_window(loader, accumulate, num_epochs):
    """Where an epoch divides evenly (or is empty), an empty window follows. Its mean loss is 0 / 0: a NaN in the
    history, and an update from nothing, in which momentum and decay move the weights and the schedule goes on. Ask
    whether anything is left."""

    def windows():
        for _ in range(num_epochs):
            window = []
            for batch in loader:
                window.append(batch)
                if len(window) == accumulate:
                    yield window
                    window = []
            yield window

    yield from _numbered(windows())


@update_windows.wrong
def begins_with_a_window_of_one(loader, accumulate, num_epochs):
    """Counted from 0, `i % accumulate == 0` is true for the first micro-batch: it makes an update alone, with the noise
    of a small batch, and all windows after it are shifted. Count from 1, or ask for (i + 1) % accumulate."""
    yield from _numbered(_collected(loader, accumulate, num_epochs, full=lambda w, n: (n - 1) % accumulate == 0))


@update_windows.form_of("begins_with_a_window_of_one")
def begins_with_a_window_of_one_and_drops_the_rest(loader, accumulate, num_epochs):
    full = lambda w, n: (n - 1) % accumulate == 0  # noqa: E731
    yield from _numbered(_collected(loader, accumulate, num_epochs, full=full, rest=False))


@update_windows.wrong
def makes_windows_one_too_long(loader, accumulate, num_epochs):
    """The border is tested before the new micro-batch is counted, or with > in place of ==: a window holds one more
    than asked for, and the mean is taken over a batch that nobody planned."""
    yield from _numbered(_collected(loader, accumulate, num_epochs, full=lambda w, n: len(w) > accumulate))


@update_windows.wrong
def starts_the_count_anew(loader, accumulate, num_epochs):
    """`step` begins at 0 in every epoch: a schedule that is a function of it goes over its warm-up again and again, and
    checkpoints of later epochs overwrite those of the first. It counts the updates of the whole run."""
    for _ in range(num_epochs):
        yield from update_windows.answer(loader, accumulate, 1)


@update_windows.wrong
def counts_micro_batches(loader, accumulate, num_epochs):
    """`step` follows from the number of micro-batches, as with number // accumulate: the short window of each epoch
    shifts it, so numbers come twice or are left out, and a schedule of that many updates ends too early or too late.
    Add 1 for each window that is handed over."""
    number = 0
    for _, window in update_windows.answer(loader, accumulate, num_epochs):
        number += len(window)
        yield number // accumulate, window


@update_windows.form_of("counts_micro_batches")
def counts_micro_batches_before(loader, accumulate, num_epochs):
    number = 0
    for _, window in update_windows.answer(loader, accumulate, num_epochs):
        yield number // accumulate, window
        number += len(window)


@update_windows.form_of("counts_micro_batches")
def counts_micro_batches_up_to_the_last(loader, accumulate, num_epochs):
    number = 0
    for _, window in update_windows.answer(loader, accumulate, num_epochs):
        number += len(window)
        yield (number - 1) // accumulate, window


@update_windows.form_of("counts_micro_batches")
def gives_the_number_of_micro_batches(loader, accumulate, num_epochs):
    number = 0
    for _, window in update_windows.answer(loader, accumulate, num_epochs):
        yield number, window
        number += len(window)


@update_windows.wrong
def counts_from_one(loader, accumulate, num_epochs):
    """The first update has the number 1: a schedule is asked for the lr of the second one, and the last update for one
    beyond its end. `step` counts updates already made, and before the first that is 0."""
    for step, window in update_windows.answer(loader, accumulate, num_epochs):
        yield step + 1, window


@update_windows.wrong
def loads_the_epoch_first(loader, accumulate, num_epochs):
    """All micro-batches of an epoch (or of the run) are in a list before the first update: the memory is that of the
    epoch, the first step waits for all of it, and a loader without an end is never done. Take a window, `yield` it."""
    step = 0
    for _ in range(num_epochs):
        batches = list(loader)
        for first in range(0, len(batches), accumulate):
            yield step, batches[first : first + accumulate]
            step += 1


@update_windows.form_of("loads_the_epoch_first")
def loads_the_run_first(loader, accumulate, num_epochs):
    return list(update_windows.answer(loader, accumulate, num_epochs))


@update_windows.form_of("loads_the_epoch_first")
def loads_the_run_first_and_hands_out(loader, accumulate, num_epochs):
    return iter(list(update_windows.answer(loader, accumulate, num_epochs)))


@update_windows.wrong
def looks_a_batch_ahead(loader, accumulate, num_epochs):
    """The next micro-batch is taken to see whether the epoch is over, and only then is the window handed over: the
    update waits for a batch that it does not need, and a loader that counts what it gave (chapter 04) has counted one
    that no update has seen. Hand a window over when it is full."""

    def windows():
        for _ in range(num_epochs):
            window = []
            for batch in loader:
                if len(window) == accumulate:
                    yield window
                    window = []
                window.append(batch)
            if window:
                yield window

    yield from _numbered(windows())


@update_windows.form_of("looks_a_batch_ahead")
def takes_the_next_window_first(loader, accumulate, num_epochs):
    def windows():
        held = None
        for _, window in update_windows.answer(loader, accumulate, num_epochs):
            if held is not None:
                yield held
            held = window
        if held is not None:
            yield held

    yield from _numbered(windows())


@update_windows.wrong
def hands_over_one_list(loader, accumulate, num_epochs):
    """Every window is the same list, emptied and filled again: whoever keeps a window (a log of what was trained, a
    retry after an overflow) finds other micro-batches in it later. Begin a new list, `window = []`, for each."""
    window, step = [], 0
    for _, found in update_windows.answer(loader, accumulate, num_epochs):
        window[:] = found
        yield step, window
        step += 1
        window.clear()


@update_windows.form_of("hands_over_one_list")
def hands_over_one_list_and_fills_it_again(loader, accumulate, num_epochs):
    window = []
    for step, found in update_windows.answer(loader, accumulate, num_epochs):
        window[:] = found
        yield step, window


@update_windows.wrong
def asks_for_the_length(loader, accumulate, num_epochs):
    """len(loader) is asked for, and this loader has none: one over a stream, or with a filter, cannot know it. That an
    epoch is over shows when nothing more comes."""
    num_batches = len(loader)
    yield from _numbered(_collected(loader, accumulate, num_epochs, full=lambda w, n: n in (accumulate, num_batches)))


@update_windows.wrong
def reads_one_epoch_only(loader, accumulate, num_epochs):
    """iter(loader) is called once, for the whole run: after the first epoch it is used up, all further epochs are
    empty, and the run ends early without an error. Each epoch begins with an iterator of its own."""
    yield from update_windows.answer(loader, accumulate, 1)


@update_windows.wrong
def fills_the_last_window_up(loader, accumulate, num_epochs):
    """The last window of an epoch is filled up to `accumulate`, with None or with micro-batches that were there before:
    these count twice in the mean, None fails in the model. A short window is no harm where the update divides by what
    it holds."""

    def windows():
        for _ in range(num_epochs):
            batches = iter(loader)
            while window := list(islice(batches, accumulate)):
                yield window + [None] * (accumulate - len(window))

    yield from _numbered(windows())


@update_windows.form_of("fills_the_last_window_up")
def fills_the_last_window_up_by_zip(loader, accumulate, num_epochs):
    def windows():
        for _ in range(num_epochs):
            yield from map(list, zip_longest(*[iter(loader)] * accumulate))

    yield from _numbered(windows())
