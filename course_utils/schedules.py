"""Learning-rate schedules: pure functions from step to factor, and what ties them to an optimizer.

A factor function knows no optimizer, so you can plot it, test it, or hand it to `LambdaLR`. Bind its arguments with
`functools.partial`: that can be pickled, and a lambda cannot. `find_lr`, `race`, `plateau_step` and the param
groups have modules of their own.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer, lr_scheduler

from course_utils.lr_finder import LRRange, find_lr
from course_utils.lr_race import Entry, Race, race, race_steps
from course_utils.param_groups import check_optimizer_covers, decay_groups
from course_utils.plateau import plateau_step

__all__ = [
    "Entry", "LRRange", "Race", "check_optimizer_covers", "constant", "decay_groups", "exponential", "find_lr",
    "lr_curve", "make_scheduler", "plateau_step", "race", "race_steps", "step_decay", "updates_in_run",
    "warm_restarts", "warmup_cosine",
]  # fmt: skip

FactorFn = Callable[[int], float]


def _check_counts(least: int, **counts: Any) -> None:
    """raises : ValueError that names the first of `counts` that is no whole number, or is below `least`"""
    for name, value in counts.items():
        try:
            too_low = operator.index(value) < least
        except TypeError:
            raise ValueError(
                f"{name} must be a whole number, got {value!r}: give a count, such as int(share * total_steps)"
            ) from None
        if too_low:
            raise ValueError(f"{name} must be {least} or more, got {value}")


def _plain(step: int, size: int, other: int = 1) -> bool:
    """Whether there is nothing to check, asked at every update: the check itself would cost as much as the cosine."""
    return type(step) is type(size) is type(other) is int and step >= 0


def constant(step: int) -> float:
    """The base lr, always.

    step    : optimizer updates already made (0-based)
    returns : 1.0
    raises  : ValueError for a step that is no whole number, or below 0; so do all the functions below
    """
    _check_counts(0, step=step)
    return 1.0


def exponential(step: int, *, gamma: float, decay_steps: int = 1) -> float:
    """Multiply by `gamma` every `decay_steps` updates, smoothly in between.

    step        : optimizer updates already made (0-based)
    gamma       : factor left after `decay_steps` updates, in (0, 1]
    decay_steps : updates; with 1 this is `torch.optim.lr_scheduler.ExponentialLR`
    returns     : multiplier of each param group's base lr, in (0, 1]
    raises      : ValueError unless 0 < gamma <= 1 and decay_steps is a whole number >= 1
    """
    if not 0 < gamma <= 1 or decay_steps < 1:
        raise ValueError(f"need 0 < gamma <= 1 and decay_steps >= 1, got gamma={gamma}, decay_steps={decay_steps}")
    if not _plain(step, decay_steps):
        _check_counts(0, step=step, decay_steps=decay_steps)
    return gamma ** (step / decay_steps)


def step_decay(step: int, *, step_size: int, gamma: float = 0.1) -> float:
    """Multiply by `gamma` after every `step_size` updates, and stay flat in between.

    step      : optimizer updates already made (0-based)
    step_size : updates, not epochs
    returns   : multiplier of each param group's base lr, in (0, 1]
    raises    : ValueError unless 0 < gamma <= 1 and step_size is a whole number >= 1

    Equal to `torch.optim.lr_scheduler.StepLR`.
    """
    if not 0 < gamma <= 1 or step_size < 1:
        raise ValueError(f"need 0 < gamma <= 1 and step_size >= 1, got gamma={gamma}, step_size={step_size}")
    if not _plain(step, step_size):
        _check_counts(0, step=step, step_size=step_size)
    return gamma ** (step // step_size)


def warmup_cosine(step: int, *, warmup_steps: int, total_steps: int, min_factor: float = 0.0) -> float:
    """Rise linearly to 1, then follow half a cosine down to `min_factor`, and stay there.

    step         : optimizer updates already made (0-based; a micro-batch is not a step)
    warmup_steps : updates spent rising, a count and no share; update 0 uses 1 / warmup_steps, never 0
    total_steps  : updates in the run; `min_factor` is reached at step == total_steps and kept after it
    min_factor   : share of the base lr at the end, in [0, 1]
    returns      : multiplier of each param group's base lr, in [0, 1]
    raises       : ValueError unless 0 <= warmup_steps < total_steps, both whole numbers, and 0 <= min_factor <= 1

    Source: Loshchilov & Hutter, SGDR (arXiv:1608.03983); warm-up from Goyal et al. (arXiv:1706.02677).
    """
    if not 0 <= warmup_steps < total_steps or not 0 <= min_factor <= 1:
        raise ValueError(
            "need 0 <= warmup_steps < total_steps and 0 <= min_factor <= 1, got "
            f"warmup_steps={warmup_steps}, total_steps={total_steps}, min_factor={min_factor}"
        )
    if not _plain(step, warmup_steps, total_steps):
        _check_counts(0, step=step, warmup_steps=warmup_steps, total_steps=total_steps)
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))  # without min it would rise again
    return min_factor + (1 - min_factor) * (1 + math.cos(math.pi * progress)) / 2


def warm_restarts(step: int, *, cycle_steps: int, cycle_mult: int = 1, min_factor: float = 0.0) -> float:
    """Half a cosine from 1 towards `min_factor`, again and again; each cycle `cycle_mult` times as long as the last.

    step        : optimizer updates already made (0-based)
    cycle_steps : updates in the first cycle
    min_factor  : what a cycle falls towards; its last update is one step above it, as in torch's own class
    returns     : multiplier of each param group's base lr, in [0, 1]
    raises      : ValueError unless cycle_steps >= 1 and cycle_mult >= 1, both whole, and 0 <= min_factor <= 1

    Equal to `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`. Source: SGDR (arXiv:1608.03983).
    """
    if cycle_steps < 1 or cycle_mult < 1 or not 0 <= min_factor <= 1:
        raise ValueError(
            "need cycle_steps >= 1, cycle_mult >= 1 and 0 <= min_factor <= 1, got "
            f"cycle_steps={cycle_steps}, cycle_mult={cycle_mult}, min_factor={min_factor}"
        )
    if not _plain(step, cycle_steps, cycle_mult):
        _check_counts(0, step=step, cycle_steps=cycle_steps, cycle_mult=cycle_mult)
    length = cycle_steps
    if cycle_mult == 1:
        step %= length  # what the loop would do, without walking through every cycle of a long run
    while step >= length:
        step, length = step - length, length * cycle_mult
    return min_factor + (1 - min_factor) * (1 + math.cos(math.pi * step / length)) / 2


def lr_curve(
    factor_fn: FactorFn, total_steps: int, *, base_lr: float | Sequence[float]
) -> list[float] | list[list[float]]:
    """The lr of each update of a run, computed without a scheduler: drawing it uses nothing up.

    base_lr : of one param group, or of several: a list, a tuple, an array or a tensor of one dimension
    returns : total_steps lrs; for several groups one such list each
    raises  : ValueError for total_steps below 1 or no whole number
    """
    _check_counts(1, total_steps=total_steps)
    if isinstance(base_lr, Sequence) or getattr(base_lr, "ndim", 0):
        return [lr_curve(factor_fn, total_steps, base_lr=lr) for lr in base_lr]
    return [float(base_lr) * float(factor_fn(step)) for step in range(total_steps)]


class LambdaLR(lr_scheduler.LambdaLR):
    """Torch's own, but a NumPy factor leaves a float: `torch.load(weights_only=True)` refuses a NumPy lr."""

    def get_lr(self) -> list:
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base_lr * float(factor_fn(self.last_epoch)) for base_lr, factor_fn in pairs]


def make_scheduler(optimizer: Optimizer, factor_fn: FactorFn) -> LambdaLR:
    """A `LambdaLR` that multiplies each param group's base lr by `factor_fn(step)`.

    Call its `step()` once after each optimizer update that was made: not per micro-batch, not for a skipped update.

    factor_fn : step -> a real number (a NumPy number will do, a tensor will not)
    raises    : ValueError where factor_fn is no function, or the first update would have lr 0 (a warm-up of
                step / warmup_steps does that), where factor_fn(0) is not a finite number, or where the optimizer is in
                the middle of another schedule
    """
    if not callable(factor_fn):
        raise ValueError(
            f"factor_fn must be a function from step to factor, got {factor_fn!r}: bind arguments with "
            "functools.partial; for a function per param group, build torch's LambdaLR yourself"
        )
    first = factor_fn(0)
    if not isinstance(first, numbers.Real) or not math.isfinite(first):
        raise ValueError(f"factor_fn(0) must be a finite number, got {first!r}")
    if first <= 0:
        raise ValueError(
            f"factor_fn(0) is {first}: the first update would change nothing; a warm-up starts at 1 / warmup_steps"
        )
    _refuse_second_schedule(optimizer, first)
    return LambdaLR(optimizer, factor_fn)


def _refuse_second_schedule(optimizer: Optimizer, first: float) -> None:
    """A scheduler starts from `initial_lr`, which the one before left in the group: an lr set since would be lost."""
    for place, group in enumerate(optimizer.param_groups):
        lr, start = float(group["lr"]), float(group.get("initial_lr", group["lr"]))
        if "initial_lr" in group and not math.isclose(lr, start * first, rel_tol=1e-6):
            raise ValueError(
                f"param group {place} is in the middle of a schedule that began at {start}: another scheduler would "
                f"change its lr from {lr} to {start * first}. Build the scheduler once, right after the optimizer and "
                "before any state is loaded; for a new plan in mid-run, delete 'initial_lr' from every group first"
            )


def updates_in_run(
    num_examples: int,
    *,
    batch_size: int,
    num_epochs: int,
    accumulate: int = 1,
    world_size: int = 1,
    drop_last: bool = False,
) -> int:
    """Optimizer updates in a run: what `total_steps` of a schedule must be.

    num_examples : in an epoch, over all ranks
    batch_size   : examples of a micro-batch on one rank
    accumulate   : micro-batches an update; an epoch's last window may hold fewer and is an update all the same
    raises       : ValueError for a size below 1 or no whole number, and where drop_last leaves no batch
    """
    sizes = {"num_examples": num_examples, "batch_size": batch_size, "num_epochs": num_epochs}
    _check_counts(1, **sizes, accumulate=accumulate, world_size=world_size)
    micro_batches, rest = divmod(num_examples, batch_size * world_size)
    if rest and not drop_last:
        micro_batches += 1
    if not micro_batches:
        raise ValueError(
            f"drop_last=True leaves no batch: {num_examples} examples are fewer than the {batch_size} x {world_size} "
            "of one batch on every rank; use a smaller batch_size or drop_last=False"
        )
    return num_epochs * math.ceil(micro_batches / accumulate)
