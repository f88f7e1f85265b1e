"""Exercises of chapter 07 about a scheduler in use: in the loop, and in a preview."""

from __future__ import annotations

import copy

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
    """Train on all micro-batches: one update from the mean gradient of each `accumulate` of them.

    scheduler     : a LambdaLR whose lr is a function of the number of updates made
    micro_batches : list of (inputs, targets), all of one size; its length is a multiple of
                    `accumulate`; the loss is mse_loss
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


def _train(model, optimizer, scheduler, micro_batches, *, share, due=lambda number: True, clears=True) -> None:
    """One pass with the decisions as arguments: the loss times `share`, an update where `due`, zero_grad where due or
    (`clears` False) after every micro-batch."""
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        (mse_loss(model(inputs), targets) * share).backward()
        if due(number):
            optimizer.step()
            scheduler.step()
        if due(number) or not clears:
            optimizer.zero_grad()


@train_epoch.wrong
def updates_after_every_micro_batch(model, optimizer, scheduler, micro_batches, accumulate):
    """There is no accumulation: every micro-batch makes an update, `accumulate` times as many as asked for, each from a
    smaller batch, and the schedule runs `accumulate` times too fast."""
    _train(model, optimizer, scheduler, micro_batches, share=1)


@train_epoch.form_of("updates_after_every_micro_batch")
def updates_after_every_micro_batch_with_a_share(model, optimizer, scheduler, micro_batches, accumulate):
    _train(model, optimizer, scheduler, micro_batches, share=1 / accumulate)


@train_epoch.wrong
def adds_the_losses(model, optimizer, scheduler, micro_batches, accumulate):
    """The loss is not divided by `accumulate`: backward() *adds* to the gradient, so the update uses the sum and not
    the mean, and the step is `accumulate` times too large."""
    _train(model, optimizer, scheduler, micro_batches, share=1, due=lambda number: number % accumulate == 0)


@train_epoch.wrong
def clears_after_every_micro_batch(model, optimizer, scheduler, micro_batches, accumulate):
    """zero_grad() runs for every micro-batch: the update sees the gradient of the last one alone, and the work of the
    others is thrown away. Clear after the update, once a window."""
    due = lambda number: number % accumulate == 0  # noqa: E731
    _train(model, optimizer, scheduler, micro_batches, share=1 / accumulate, due=due, clears=False)


@train_epoch.form_of("clears_after_every_micro_batch")
def clears_after_every_micro_batch_without_a_share(model, optimizer, scheduler, micro_batches, accumulate):
    due = lambda number: number % accumulate == 0  # noqa: E731
    _train(model, optimizer, scheduler, micro_batches, share=1, due=due, clears=False)


@train_epoch.wrong
def counts_from_zero(model, optimizer, scheduler, micro_batches, accumulate):
    """Counted from 0, `i % accumulate == 0` is true for the very first micro-batch: the first update has one gradient
    only, and the last micro-batches never make one. Count from 1, or ask for (i + 1) % accumulate."""
    due = lambda number: (number - 1) % accumulate == 0  # noqa: E731
    _train(model, optimizer, scheduler, micro_batches, share=1 / accumulate, due=due)


@train_epoch.form_of("counts_from_zero")
def counts_from_zero_without_a_share(model, optimizer, scheduler, micro_batches, accumulate):
    due = lambda number: (number - 1) % accumulate == 0  # noqa: E731
    _train(model, optimizer, scheduler, micro_batches, share=1, due=due)


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
    """The lrs that the first param group would use in the next `num_steps` updates.

    Afterwards optimizer and scheduler are as they were.

    optimizer : with one or more param groups; no update is to be made
    scheduler : its LambdaLR, perhaps in the middle of a run
    """
    saved = copy.deepcopy(scheduler.state_dict())
    lrs = [group["lr"] for group in optimizer.param_groups]
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
    """The scheduler is as it was, the lr in the optimizer's groups is not: load_state_dict of a scheduler does not
    write it, and a copy made by copy.copy drives the same optimizer. The next update uses the preview's last lr."""
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


@lr_preview.form_of("reads_after_the_step")
def reads_after_the_step_and_leaves_it_so(optimizer, scheduler, num_steps):
    return _steps(optimizer, scheduler, num_steps + 1)[1:]


@lr_preview.wrong
def steps_a_copy_that_drives_another_optimizer(optimizer, scheduler, num_steps):
    """All is as it was, but the lr that is read never moves: copied on its own, the copied scheduler drives its own
    copy of the optimizer. Copy both in one call, or read from copied_scheduler.optimizer."""
    return [optimizer.param_groups[0]["lr"]] * num_steps


@lr_preview.wrong
def copies_the_optimizer_alone(optimizer, scheduler, num_steps):
    """The scheduler still drives the optimizer that it was made with: the lr read from the copy never moves, and the
    real schedule is used up."""
    copied = copy.deepcopy(optimizer)
    for _ in range(num_steps):
        scheduler.step()
    return [copied.param_groups[0]["lr"]] * num_steps
