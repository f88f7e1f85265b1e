"""The exercise of chapter 07 about looking ahead in a schedule."""

from __future__ import annotations

import copy

import torch
from torch import nn

from course_utils.exercises.declare import exercise


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


def _from_the_start(optimizer, scheduler, num_steps: int) -> list[float]:
    return [scheduler.base_lrs[0] * scheduler.lr_lambdas[0](step) for step in range(num_steps)]


@lr_preview.wrong
def previews_from_the_start(optimizer, scheduler, num_steps):
    """The preview begins at step 0 and not where the scheduler stands: in mid-run it shows lrs that have long been
    used. scheduler.last_epoch counts the steps made; the lr of the next update stands in the group."""
    return _from_the_start(optimizer, scheduler, num_steps)


@lr_preview.form_of("previews_from_the_start")
def previews_from_the_start_with_a_new_scheduler(optimizer, scheduler, num_steps):
    lrs = _from_the_start(optimizer, scheduler, num_steps + 1)
    for group, base_lr in zip(optimizer.param_groups, scheduler.base_lrs, strict=True):
        group["lr"] = base_lr * lrs[-1] / scheduler.base_lrs[0]
    return lrs[:-1]


@lr_preview.wrong
def goes_back_to_the_start(optimizer, scheduler, num_steps):
    """After the preview the schedule is put back to step 0 and not to where it stood: in mid-run the training that
    follows starts the plan anew. Save what was there before, and put that back."""
    lrs = _steps(optimizer, scheduler, num_steps)
    scheduler.last_epoch = 0
    for group, base_lr in zip(optimizer.param_groups, scheduler.base_lrs, strict=True):
        group["lr"] = base_lr
    return lrs


@lr_preview.form_of("goes_back_to_the_start")
def sets_only_the_count_back_to_the_start(optimizer, scheduler, num_steps):
    before = [group["lr"] for group in optimizer.param_groups]
    lrs = _steps(optimizer, scheduler, num_steps)
    scheduler.last_epoch = 0
    for group, lr in zip(optimizer.param_groups, before, strict=True):
        group["lr"] = lr
    return lrs
