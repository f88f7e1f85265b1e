"""The exercise of chapter 06 about one update from ragged micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from course_utils.exercises.declare import exercise
from course_utils.exercises.optimizer_step_window_facts import (
    IGNORED,
    arranged,
    gather,
    sound_update,
    update_differs,
    whole_batch,
)
from course_utils.exercises.optimizer_step_window_forms import (
    added,
    by_examples,
    counts_of,
    each_micro_batch_alike,
    each_that_counts_alike,
    each_that_is_not_empty_alike,
)

_LOG3 = math.log(3)
_CASES = [
    ([0.0, 0.0], [([1.0, 2.0, 3.0], [0, 0, 0]), ([4.0], [1])]),
    ([0.0, 0.0], [([1.0, 2.0, 3.0], [0, IGNORED, 0]), ([3.0], [1])]),
    ([0.0, 0.0], [([], []), ([4.0, 4.0], [0, 1]), ([8.0], [0])]),
    ([_LOG3, 0.0], [([1.0], [0]), ([1.0, 0.0], [IGNORED] * 2), ([1.0, 1.0, 0.0], [1, 0, 1])]),
    ([0.5, -1.0, 0.2], [([1.0, -2.0], [0, 2]), ([0.5], [1]), ([3.0], [IGNORED]), ([2.0, 1.0, -1.0], [1, 1, 0]),
                        ([], []), ([1.5, 0.9, 0.3, 0.7], [2, IGNORED, 0, 2])]),
]  # fmt: skip


@exercise(
    "optimizer_step-1",
    title="One update from ragged micro-batches",
    difficulty="medium",
    minutes=12,
    cases=_CASES,
    expected=[
        # at weights of 0 each class has the probability 1/2, so the gradient of row 0 is -x/2 or +x/2
        sound_update([0.0, 0.0], [0.25, -0.25], math.log(2)),  # -(-0.5 - 1 - 1.5 + 2) / 4
        sound_update([0.0, 0.0], [1 / 6, -1 / 6], math.log(2)),  # -(-0.5 - 1.5 + 1.5) / 3
        sound_update([0.0, 0.0], [4 / 3, -4 / 3], math.log(2)),  # -(-2 + 2 - 4) / 3
        # probabilities 3/4 and 1/4 where x = 1: -(-1/4 + 3/4 - 1/4) / 4
        sound_update([_LOG3, 0.0], [_LOG3 - 1 / 16, 1 / 16], (2 * math.log(4 / 3) + math.log(4) + math.log(2)) / 4),
        sound_update(_CASES[4][0], *whole_batch(*_CASES[4])),
    ],
    arrange=arranged,
    probe=gather,
    difference=update_differs,
    describe=lambda weights, window: (
        f"accumulate_window, targets of the micro-batches {[targets for _, targets in window]}"
    ),
    imports="from torch.nn.functional import cross_entropy",
    hints=[
        "The mean over the whole window is one sum over all its targets, divided by one number. Which number is that, "
        "and when do you know it?",
        "Count first: in all micro-batches, the targets that are not -100. Then, for each micro-batch, the *sum* of "
        "its losses divided by this count; an empty one has the sum 0, where its mean would be 0 / 0.",
        'cross_entropy(..., reduction="sum") gives the sum. backward() adds to .grad and frees its graph, so call it '
        "for each micro-batch; zero_grad and step stand outside the loop.",
    ],
    lesson="`update` in course_utils.optimizer_step does this for any mean loss, and reads what counts from the loss.",
)
def accumulate_window(model, optimizer, micro_batches: list) -> float:
    """One update from a window of micro-batches, the same as from all its examples in one batch.

    model         : model(inputs) are the logits; under .grad there may still be old gradients
    optimizer     : holds the model's parameters
    micro_batches : list of (inputs, targets), targets int64 (B,). B differs and may be 0. A target
                    of -100 does not count: cross_entropy ignores it. A micro-batch may hold only
                    such targets; the window holds at least one that counts
    returns       : the mean loss over all targets of the window that count, a float

    The optimizer makes one step, with the gradient of this mean. The window as a whole does not fit
    into memory: no forward pass gets more than one micro-batch, and its backward pass comes before
    the next forward pass.

    Three targets with a mean loss of 2.0 and, in a second micro-batch, one with 6.0 give
    (3 * 2.0 + 1 * 6.0) / 4 = 3.0, and the gradient is that of this number.
    """
    num_targets = sum(int((targets != -100).sum()) for _, targets in micro_batches)
    optimizer.zero_grad()
    mean = 0.0
    for inputs, targets in micro_batches:
        loss = cross_entropy(model(inputs), targets, reduction="sum") / num_targets
        loss.backward()
        mean += loss.item()
    optimizer.step()
    return mean


def _declare(name: str, *forms: dict) -> None:
    """Further forms of a mistake, by the decisions of `added`."""
    for how in forms:
        accumulate_window.form_of(name)(lambda m, o, b, how=how: added(m, o, b, **how))


@accumulate_window.wrong
def averages_the_means(model, optimizer, micro_batches):
    """Each micro-batch has one voice, whatever it holds, as with loss / len(micro_batches): the one target of a short
    micro-batch weighs as much as the three of another. Texts differ in length all the time, so such a run leans towards
    the short ones, and its loss looks ordinary. Divide sums by the count of the whole window."""
    return added(model, optimizer, micro_batches, weigh=each_micro_batch_alike, skips=False)


_declare(
    "averages_the_means",
    {"weigh": each_micro_batch_alike},
    {"weigh": each_that_counts_alike},
    {"weigh": each_that_is_not_empty_alike},
)


@accumulate_window.wrong
def divides_by_another_count(model, optimizer, micro_batches):
    """The sums are divided by another count than that of the whole window's targets that count. With all of them, also
    those of -100, padding shrinks the gradient: the same text beside one long neighbour takes a smaller step. With
    those that came so far the first micro-batches weigh too much. Count targets != -100, in all, before the loop."""
    weigh = lambda counts, sizes: [count / sum(sizes) for count in counts]  # noqa: E731
    return added(model, optimizer, micro_batches, weigh=weigh)


_declare(
    "divides_by_another_count",
    {"weigh": by_examples},
    {"weigh": by_examples, "skips": False},
    {"weigh": lambda counts, sizes: [n / max(1, sum(counts[: i + 1])) for i, n in enumerate(counts)]},
    {"weigh": lambda counts, sizes: [n / max(1, sum(sizes[: i + 1])) for i, n in enumerate(counts)]},
)


@accumulate_window.wrong
def adds_up_the_means(model, optimizer, micro_batches):
    """Nothing is divided: backward() *adds* to .grad, so the step is as many times too large as there are micro-batches
    (or targets, for sums), and the same lr that is right for one batch diverges here."""
    return added(model, optimizer, micro_batches, weigh=lambda counts, sizes: [1.0] * len(counts), skips=False)


_declare(
    "adds_up_the_means",
    {"weigh": lambda counts, sizes: [1.0] * len(counts)},
    {"weigh": lambda counts, sizes: [float(count) for count in counts]},
    {"weigh": lambda counts, sizes: [float(size) for size in sizes]},
)


@accumulate_window.wrong
def divides_twice(model, optimizer, micro_batches):
    """The sums are divided by the count of the window, and then once more by the number of micro-batches: every step is
    that many times too small. It happens where a model and its loop both average; one of them has to."""
    weigh = lambda counts, sizes: [count / sum(counts) / len(counts) for count in counts]  # noqa: E731
    return added(model, optimizer, micro_batches, weigh=weigh)


_declare(
    "divides_twice",
    {"weigh": lambda counts, sizes: [size / sum(sizes) / len(sizes) for size in sizes]},
    {"weigh": lambda counts, sizes: [1 / max(count, 1) / len(counts) for count in counts]},
    {"weigh": lambda counts, sizes: [1 / max(size, 1) / len(sizes) for size in sizes]},
    {"weigh": lambda counts, sizes: [1 / sum(counts) for count in counts]},
)


@accumulate_window.wrong
def steps_after_every_micro_batch(model, optimizer, micro_batches):
    """There is no accumulation: each micro-batch makes an update of its own, from a small and noisy batch, and the
    second one starts from weights that the first has moved. `step` stands behind the loop."""
    return added(model, optimizer, micro_batches, weigh=lambda counts, sizes: [1.0] * len(counts), step="each")


@accumulate_window.wrong
def steps_on_the_first_micro_batch(model, optimizer, micro_batches):
    """The update is made after the first micro-batch, as `number % len(micro_batches) == 0` asks for when numbers begin
    at 0: the others are computed and thrown away, or leak into the next window. Step behind the loop."""
    return added(model, optimizer, micro_batches, step="first")


_declare(
    "steps_on_the_first_micro_batch",
    {"step": "first", "weigh": each_micro_batch_alike, "skips": False},
    {"step": "first", "weigh": each_micro_batch_alike},
    {"step": "first", "weigh": by_examples},
    {"step": "first", "weigh": lambda counts, sizes: [1.0] * len(counts)},
)


@accumulate_window.wrong
def clears_before_every_micro_batch(model, optimizer, micro_batches):
    """zero_grad() stands inside the loop: what is left at the step is the gradient of the last micro-batch alone, and
    the work of the others is thrown away. The loss that is printed is that of all of them."""
    return added(model, optimizer, micro_batches, zero=("each",))


_declare(
    "clears_before_every_micro_batch",
    {"zero": ("each",), "weigh": each_micro_batch_alike, "skips": False},
    {"zero": ("each",), "weigh": by_examples},
    {"zero": ("each",), "weigh": lambda counts, sizes: [1.0] * len(counts), "skips": False},
)


@accumulate_window.wrong
def keeps_old_gradients(model, optimizer, micro_batches):
    """Gradients that were under .grad before are added to those of the window: of an earlier window, of a check, of a
    step that was skipped. Clear them before the first backward pass; behind the step is too late for this one."""
    return added(model, optimizer, micro_batches, zero=())


@accumulate_window.form_of("keeps_old_gradients")
def divides_old_gradients_too(model, optimizer, micro_batches):
    losses = [cross_entropy(model(inputs), targets, reduction="sum") for inputs, targets in micro_batches]
    sum(losses).backward()
    for param in model.parameters():
        param.grad /= sum(counts_of(micro_batches))
    optimizer.step()
    return sum(losses).item() / sum(counts_of(micro_batches))


@accumulate_window.wrong
def clears_before_the_step(model, optimizer, micro_batches):
    """zero_grad() stands between the backward passes and the step: the optimizer finds nothing and the weights stay,
    for the whole run, without an error. The loss wavers as losses do. Clear before the loop or behind the step."""
    return added(model, optimizer, micro_batches, zero=("first", "last"))


@accumulate_window.wrong
def never_steps(model, optimizer, micro_batches):
    """The gradients are there and no step is made: the weights stay as they are. optimizer.step() belongs behind the
    loop, once."""
    return added(model, optimizer, micro_batches, step="never")


@accumulate_window.wrong
def lets_a_mean_of_nothing_in(model, optimizer, micro_batches):
    """The mean over no target is 0 / 0. Its gradient happens to be 0, so the weights are right, and the loss is NaN:
    one empty micro-batch ends a run that watches for it, and hides a real NaN where nobody does. Take sums, or pass
    over micro-batches in which nothing counts."""
    return added(model, optimizer, micro_batches, skips=False)


@accumulate_window.form_of("lets_a_mean_of_nothing_in")
def lets_a_mean_of_ignored_targets_in(model, optimizer, micro_batches):
    return added(model, optimizer, [batch for batch in micro_batches if len(batch[1])], skips=False)


@accumulate_window.wrong
def returns_another_mean(model, optimizer, micro_batches):
    """The update is right and the loss that is returned is not its own: it is that of the last micro-batch, the mean of
    the means, or the sum. The curve of the run then shows how the batches were cut, not how the model learns."""
    return added(model, optimizer, micro_batches, loss="last")


_declare(
    "returns_another_mean",
    {"loss": lambda means, counts, sizes: sum(means) / len(means)},
    {"loss": lambda means, counts, sizes: sum(means) / sum(count > 0 for count in counts)},
    {"loss": lambda means, counts, sizes: sum(means)},
    {"loss": lambda means, counts, sizes: sum(m * n for m, n in zip(means, counts, strict=True))},
    {"loss": lambda means, counts, sizes: sum(m * n for m, n in zip(means, sizes, strict=True)) / sum(sizes)},
    {"loss": lambda means, counts, sizes: sum(m * n for m, n in zip(means, counts, strict=True)) / len(means)},
    {"loss": lambda means, counts, sizes: means[-1] * counts[-1] / sum(counts)},
)


def _joined(model, optimizer, micro_batches, backward: Callable[[torch.Tensor], None]) -> torch.Tensor:
    """The sum over the graphs of all micro-batches; `backward` gets each part."""
    optimizer.zero_grad()
    total = torch.zeros(())
    for inputs, targets in micro_batches:
        loss = cross_entropy(model(inputs), targets, reduction="sum") / sum(counts_of(micro_batches))
        backward(loss)
        total = total + loss
    return total


@accumulate_window.wrong
def keeps_the_graph_in_the_loss(model, optimizer, micro_batches):
    """The loss is added up and returned with its graph: `total += loss` holds every micro-batch's activations that are
    not freed, and a history of such losses fills the memory within an epoch. Add loss.item(), or loss.detach()."""
    total = _joined(model, optimizer, micro_batches, lambda loss: loss.backward())
    optimizer.step()
    return total


@accumulate_window.wrong
def runs_the_whole_window_at_once(model, optimizer, micro_batches):
    """The micro-batches are joined to one batch: the numbers are right, and the memory is that of the whole window,
    which is what they were cut for."""
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@accumulate_window.wrong
def goes_through_earlier_graphs_again(model, optimizer, micro_batches):
    """backward() is called on the running sum: each time it goes through the graphs of all earlier micro-batches once
    more, and adds their gradients again. That it needs retain_graph=True is the sign. Call it on the new loss."""
    total = torch.zeros(())
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        total = total + cross_entropy(model(inputs), targets, reduction="sum") / sum(counts_of(micro_batches))
        total.backward(retain_graph=True)
    optimizer.step()
    return total.item()


@accumulate_window.wrong
def keeps_every_graph(model, optimizer, micro_batches):
    """The losses are added up, and one backward() stands behind the loop: the numbers are right, and until then the
    graphs of all micro-batches are in memory, as much as the whole batch needs. Call backward() for each."""
    total = _joined(model, optimizer, micro_batches, lambda loss: None)
    total.backward()
    optimizer.step()
    return total.item()
