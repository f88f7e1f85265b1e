"""Exercises of chapter 07 about a scheduler in use: in the loop, in a preview, and driven by a metric."""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn.functional import mse_loss

from course_utils.exercises.declare import exercise


class _RecordingSGD(torch.optim.SGD):
    """Plain SGD that keeps the lr of each update."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, lr=lr)
        self.lrs: list[float] = []

    def step(self, closure=None):
        self.lrs.append(self.param_groups[0]["lr"])
        return super().step(closure)


def _loop(num_micro_batches: int, accumulate: int) -> tuple:
    """A model of one weight, an lr that halves with each step, and micro-batches of two examples."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = _RecordingSGD(model.parameters(), lr=0.08)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    inputs = [torch.tensor([[1.0], [2.0]]) + i for i in range(num_micro_batches)]
    return model, optimizer, scheduler, [(x, 3 * x) for x in inputs], accumulate


def _lrs_and_weight(result, model, optimizer, scheduler, micro_batches, accumulate) -> dict:
    return {
        "lr of each update": optimizer.lrs,
        "scheduler.last_epoch after it": scheduler.last_epoch,
        "weight after it": model.weight.item(),
    }


@exercise(
    "schedules-6",
    title="Where the scheduler steps",
    difficulty="medium",
    minutes=12,
    cases=[(1, 1), (2, 1), (4, 2), (6, 3)],
    expected=[
        {"lr of each update": [0.08], "scheduler.last_epoch after it": 1, "weight after it": 1.8},  # 1 + 0.08 * 10
        None,
        None,
        None,
    ],
    arrange=_loop,
    observe=_lrs_and_weight,
    describe=lambda num, accumulate: f"train_epoch, number of micro-batches {num}, accumulate={accumulate}",
    rel=1e-4,
    imports="from torch.nn.functional import mse_loss",
    hints=[
        "Sort each call to its place: which happen for each micro-batch, which once for each update?",
        "Each micro-batch: forward, loss / accumulate, backward. Each `accumulate` micro-batches: optimizer.step(), "
        "scheduler.step(), optimizer.zero_grad().",
        "enumerate(micro_batches, start=1) and `if number % accumulate == 0:` find the end of a window.",
    ],
    lesson="The scheduler steps once for each update, after it: the first update uses the first lr of the plan.",
)
def train_epoch(model, optimizer, scheduler, micro_batches, accumulate: int) -> None:
    """Train on all micro-batches; make one update from the mean gradient of each `accumulate` of them.

    scheduler     : a LambdaLR whose lr is a function of the number of updates made
    micro_batches : list of (inputs, targets), of equal size; a multiple of `accumulate`; the loss is mse_loss
    """
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        loss = mse_loss(model(inputs), targets) / accumulate
        loss.backward()
        if number % accumulate == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


def _windows(model, micro_batches, accumulate: int):
    """Backward through each micro-batch; yields (number, loss, True at the end of a window)."""
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        loss = mse_loss(model(inputs), targets) / accumulate
        loss.backward()
        yield number, loss.item(), number % accumulate == 0


@train_epoch.wrong
def steps_once_a_micro_batch(model, optimizer, scheduler, micro_batches, accumulate):
    """scheduler.step() runs for each micro-batch: with accumulation the schedule goes `accumulate` times too fast and
    is at its end after that part of the run."""
    for _, _, complete in _windows(model, micro_batches, accumulate):
        if complete:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()


@train_epoch.wrong
def steps_the_scheduler_first(model, optimizer, scheduler, micro_batches, accumulate):
    """scheduler.step() comes before optimizer.step(): the first lr of the plan is never used, and every update gets
    the lr of the next one. PyTorch warns about it, once."""
    for _, _, complete in _windows(model, micro_batches, accumulate):
        if complete:
            scheduler.step()
            optimizer.step()
            optimizer.zero_grad()


@train_epoch.wrong
def steps_once_an_epoch(model, optimizer, scheduler, micro_batches, accumulate):
    """scheduler.step() runs once at the end: a schedule planned in updates advances by one in a whole epoch, so the lr
    hardly moves."""
    for _, _, complete in _windows(model, micro_batches, accumulate):
        if complete:
            optimizer.step()
            optimizer.zero_grad()
    scheduler.step()


@train_epoch.wrong
def passes_the_loss(model, optimizer, scheduler, micro_batches, accumulate):
    """scheduler.step(loss) is for ReduceLROnPlateau alone. Every other scheduler takes the number as the epoch to jump
    to, so the lr becomes a function of the loss."""
    for _, loss, complete in _windows(model, micro_batches, accumulate):
        if complete:
            optimizer.step()
            scheduler.step(loss)
            optimizer.zero_grad()


@train_epoch.wrong
def never_clears_the_gradients(model, optimizer, scheduler, micro_batches, accumulate):
    """The lrs are right, but the gradients are never set to zero: each update adds those of all earlier micro-batches
    once more."""
    for _, _, complete in _windows(model, micro_batches, accumulate):
        if complete:
            optimizer.step()
            scheduler.step()


@exercise(
    "schedules-7",
    title="What patience counts, and a metric that is NaN",
    difficulty="hard",
    minutes=15,
    cases=[
        ([0.9, 0.8, 0.7], 1),
        ([0.5, 0.6, 0.7], 1),
        ([0.5] * 7, 5),
        ([0.5, 0.6, 0.4, 0.45, 0.42], 1),
        ([0.5] * 8, 1),
        ([0.5, 0.9, 0.6, 0.7], 1),
        ([0.5, math.nan, math.nan, 0.4], 1),
    ],
    expected=[[], [2], [6], [4], [2, 4, 6], [2], ValueError],
    keep_arguments=True,
    describe=lambda metrics, patience: f"plateau_cuts({metrics}, patience={patience})",
    hints=[
        "Keep the best metric so far and the number of epochs since. Only a strictly lower metric is better.",
        "`patience` epochs without improvement are tolerated: the cut comes when there is one more, `num_bad "
        "> patience`.",
        "After a cut the count starts at 0 again, the best stays. math.isnan(metric): raise ValueError.",
    ],
    lesson="A NaN compares as no improvement: without the check a broken validation would cut the lr silently.",
)
def plateau_cuts(metrics: list[float], patience: int) -> list[int]:
    """Epochs (0-based) after which ReduceLROnPlateau would cut the lr, for a metric that should fall.

    metrics  : one validation loss an epoch; better is strictly lower than the best so far (threshold 0)
    patience : epochs without improvement that are tolerated, at least 1; one more cuts the lr and starts the count anew
    raises   : ValueError if a metric is NaN
    """
    best, num_bad, cuts = float("inf"), 0, []
    for epoch, metric in enumerate(metrics):
        if metric != metric:  # only NaN differs from itself
            raise ValueError(f"the metric of epoch {epoch} is NaN: look for its cause before the lr is changed")
        best, num_bad = (metric, 0) if metric < best else (best, num_bad + 1)
        if num_bad > patience:
            cuts.append(epoch)
            num_bad = 0
    return cuts


def _cuts(metrics, *, better, due, reset=True, check=True) -> list[int]:
    """The answer with its decisions as arguments."""
    best, num_bad, cuts, before = math.inf, 0, [], math.inf
    for epoch, metric in enumerate(metrics):
        if check and math.isnan(metric):
            raise ValueError("NaN")
        improved = better(metric, best, before)
        best, num_bad, before = (metric, 0, metric) if improved else (best, num_bad + 1, metric)
        if due(num_bad):
            cuts.append(epoch)
            num_bad = 0 if reset else num_bad
    return cuts


def _lower(metric, best, before) -> bool:
    return metric < best


@plateau_cuts.wrong
def cuts_one_epoch_early(metrics, patience):
    """The lr is cut as soon as `patience` epochs did not improve. Patience is what is tolerated: with patience 5 the
    sixth such epoch cuts, which is the seventh equal value."""
    return _cuts(metrics, better=_lower, due=lambda num_bad: num_bad >= patience)


@plateau_cuts.wrong
def never_counts_anew(metrics, patience):
    """The count is not set back after a cut: from the first cut on, every epoch without improvement cuts again, and
    the lr is gone after a few of them."""
    return _cuts(metrics, better=_lower, due=lambda num_bad: num_bad > patience, reset=False)


@plateau_cuts.wrong
def compares_with_the_epoch_before(metrics, patience):
    """Each metric is compared with the one before it, not with the best: a loss that jumps up and down counts as
    improving for ever."""
    return _cuts(metrics, better=lambda m, _, before: m < before, due=lambda num_bad: num_bad > patience)


@plateau_cuts.wrong
def takes_equal_for_better(metrics, patience):
    """An equal metric counts as an improvement: on a flat plateau, the very thing to be noticed, the lr is never
    cut."""
    return _cuts(metrics, better=lambda m, best, _: m <= best, due=lambda num_bad: num_bad > patience)


@plateau_cuts.wrong
def lets_nan_cut_the_lr(metrics, patience):
    """A NaN is not lower than the best, so it counts as an epoch without improvement, and the lr is cut though nothing
    was measured. The cause of the NaN stays hidden."""
    return _cuts(metrics, better=_lower, due=lambda num_bad: num_bad > patience, check=False)


def _started(num_made: int, num_steps: int) -> tuple:
    """An optimizer of two groups whose scheduler has made `num_made` steps."""
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.8, 0.08)]
    optimizer = torch.optim.SGD(groups)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for _ in range(num_made):
        optimizer.step()
        scheduler.step()
    return optimizer, scheduler, num_steps


def _preview_and_state(result, optimizer, scheduler, num_steps) -> dict:
    return {
        "lrs returned": result,
        "scheduler.last_epoch after it": scheduler.last_epoch,
        "lr of each group after it": [group["lr"] for group in optimizer.param_groups],
    }


@exercise(
    "schedules-9",
    title="Look ahead without using up the schedule",
    difficulty="hard",
    minutes=12,
    cases=[(0, 1), (0, 3), (2, 3)],
    expected=[
        {"lrs returned": [0.8], "scheduler.last_epoch after it": 0, "lr of each group after it": [0.8, 0.08]},
        {"lrs returned": [0.8, 0.4, 0.2], "scheduler.last_epoch after it": 0, "lr of each group after it": [0.8, 0.08]},
        {
            "lrs returned": [0.2, 0.1, 0.05],
            "scheduler.last_epoch after it": 2,
            "lr of each group after it": [0.2, 0.02],
        },
    ],
    arrange=_started,
    observe=_preview_and_state,
    describe=lambda num_made, num_steps: (
        f"lr_preview(optimizer, scheduler, num_steps={num_steps}) after {num_made} updates"
    ),
    imports="import copy",
    hints=[
        "scheduler.step() changes two things: the scheduler's count and the lr in each of the optimizer's groups.",
        "Read the lr first, then step: the next update uses the lr that stands in the group now.",
        "Save scheduler.state_dict() (a deep copy) and every group's lr before, and put both back after.",
    ],
    lesson="With a factor function none of this is needed: lr_curve calls the function and touches no scheduler.",
)
def lr_preview(optimizer, scheduler, num_steps: int) -> list[float]:
    """The lrs that the first param group would use in the next `num_steps` updates; afterwards all is as it was.

    optimizer : with one or more param groups; no update is to be made
    scheduler : its LambdaLR, perhaps in the middle of a run
    """
    saved, lrs = copy.deepcopy(scheduler.state_dict()), [group["lr"] for group in optimizer.param_groups]
    preview = []
    for _ in range(num_steps):
        preview.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    scheduler.load_state_dict(saved)
    for group, lr in zip(optimizer.param_groups, lrs, strict=True):
        group["lr"] = lr
    return preview


def _steps(optimizer, scheduler, num_steps: int) -> list[float]:
    lrs = []
    for _ in range(num_steps):
        lrs.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    return lrs


@lr_preview.wrong
def uses_up_the_schedule(optimizer, scheduler, num_steps):
    """The picture is right, but the scheduler has been stepped through: the training that follows starts at the end of
    the schedule, with its lowest lr."""
    return _steps(optimizer, scheduler, num_steps)


@lr_preview.wrong
def leaves_the_lr_behind(optimizer, scheduler, num_steps):
    """The scheduler's state is put back, the lr in the optimizer's groups is not: load_state_dict of a scheduler does
    not write it, so the next update uses the last lr of the preview."""
    saved = copy.deepcopy(scheduler.state_dict())
    lrs = _steps(optimizer, scheduler, num_steps)
    scheduler.load_state_dict(saved)
    return lrs


@lr_preview.wrong
def forgets_the_scheduler(optimizer, scheduler, num_steps):
    """The lrs are put back, the scheduler's count is not: one update goes well, then scheduler.step() jumps to where
    the preview ended."""
    before = [group["lr"] for group in optimizer.param_groups]
    lrs = _steps(optimizer, scheduler, num_steps)
    for group, lr in zip(optimizer.param_groups, before, strict=True):
        group["lr"] = lr
    return lrs


@lr_preview.wrong
def reads_after_the_step(optimizer, scheduler, num_steps):
    """The lr is read after scheduler.step(): the preview lacks the lr of the next update and shows every other one a
    step early."""
    return lr_preview.answer(optimizer, scheduler, num_steps + 1)[1:]
