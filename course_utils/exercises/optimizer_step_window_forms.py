"""One update from a window with its decisions as arguments: most wrong answers of its exercise are forms of it."""

from __future__ import annotations

from torch.nn.functional import cross_entropy

from course_utils.exercises.optimizer_step_window_facts import IGNORED


def counts_of(micro_batches: list) -> list[int]:
    return [int((targets != IGNORED).sum()) for _, targets in micro_batches]


def by_targets(counts: list[int], sizes: list[int]) -> list[float]:
    return [count / sum(counts) for count in counts]


def added(
    model, optimizer, micro_batches, *, weigh=by_targets, zero=("first",), step="last", skips=True, loss="weighed"
) -> float:
    """One update with its decisions as arguments.

    weigh : (counts, sizes) -> what the mean loss of each micro-batch is multiplied by
    zero  : where gradients are cleared: "first", "each" (before each micro-batch), "last" (before the step)
    step  : "last", "each", "first" (after the first micro-batch and never again) or "never"
    skips : micro-batches without a target that counts are passed over
    loss  : what is returned: "weighed", "last", "right", or a function of (mean losses, counts, sizes)
    """
    counts, sizes = counts_of(micro_batches), [len(targets) for _, targets in micro_batches]
    if "first" in zero:
        optimizer.zero_grad()
    weights, means = weigh(counts, sizes), []
    for place, (inputs, targets) in enumerate(micro_batches):
        if "each" in zero:
            optimizer.zero_grad()
        if counts[place] or not skips:
            mean = cross_entropy(model(inputs), targets)
            (mean * weights[place]).backward()
            means.append(mean.item())
        else:
            means.append(0.0)
        if step == "each" or (step == "first" and place == 0):
            optimizer.step()
            optimizer.zero_grad()
    if "last" in zero:
        optimizer.zero_grad()
    if step == "last":
        optimizer.step()
    if callable(loss):
        return loss(means, counts, sizes)
    shares = {"weighed": weights, "right": by_targets(counts, sizes)}.get(loss)
    return means[-1] if shares is None else sum(s * m for s, m in zip(shares, means, strict=True))


def each_micro_batch_alike(counts: list[int], sizes: list[int]) -> list[float]:
    return [1 / len(counts)] * len(counts)


def each_that_counts_alike(counts: list[int], sizes: list[int]) -> list[float]:
    return [1 / sum(count > 0 for count in counts)] * len(counts)


def each_that_is_not_empty_alike(counts: list[int], sizes: list[int]) -> list[float]:
    return [1 / sum(size > 0 for size in sizes)] * len(sizes)


def by_examples(counts: list[int], sizes: list[int]) -> list[float]:
    return [size / sum(sizes) for size in sizes]
