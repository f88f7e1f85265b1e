"""The exercise of chapter 07 about a scheduler in the training loop."""

from __future__ import annotations

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


def _loop(num_micro_batches: int, accumulate: int, num_made: int) -> tuple:
    """A model of one weight, an lr that halves with each step, of which `num_made` are made, and micro-batches of two
    examples."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = _RecordingSGD(model.parameters(), lr=0.08)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for _ in range(num_made):
        optimizer.step()  # without gradients: the weight stays
        scheduler.step()
    optimizer.lrs.clear()
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
    cases=[(1, 1, 0), (2, 1, 0), (4, 2, 0), (6, 3, 0), (4, 2, 2)],
    expected=[
        {"lr of each update": [0.08], "scheduler.last_epoch after it": 1, "weight after it": 1.8},  # 1 + 0.08 * 10
        *[None] * 4,
    ],
    arrange=_loop,
    observe=_lrs_and_weight,
    describe=lambda num, accumulate, num_made: (
        f"train_epoch, number of micro-batches {num}, accumulate={accumulate}"
        + (f", after an epoch of {num_made} updates" if num_made else "")
    ),
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
def passes_a_number_to_step(model, optimizer, scheduler, micro_batches, accumulate):
    """Only ReduceLROnPlateau's step takes a number, the metric. Every other scheduler takes it for the count to jump
    to: with a loss the lr becomes a function of the loss, and `i // accumulate` begins anew in every epoch, so the
    schedule goes over its first part again and again. Write scheduler.step()."""
    for _, loss, complete in _windows(model, micro_batches, accumulate):
        if complete:
            optimizer.step()
            scheduler.step(loss)
            optimizer.zero_grad()


@train_epoch.form_of("passes_a_number_to_step")
def passes_the_number_of_the_update(model, optimizer, scheduler, micro_batches, accumulate):
    for number, _, complete in _windows(model, micro_batches, accumulate):
        if complete:
            optimizer.step()
            scheduler.step(number // accumulate)
            optimizer.zero_grad()


@train_epoch.form_of("passes_a_number_to_step")
def passes_the_number_of_the_window(model, optimizer, scheduler, micro_batches, accumulate):
    for number, _, complete in _windows(model, micro_batches, accumulate):
        if complete:
            optimizer.step()
            scheduler.step((number - 1) // accumulate)
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
