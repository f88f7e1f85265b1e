"""The exercise of chapter 06 about a step under float16: scale, unscale, clip, step, update."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from course_utils.exercises.declare import exercise
from course_utils.exercises.optimizer_step_facts import close_facts_differ
from course_utils.exercises.optimizer_step_scaled_facts import arranged, gather, run_facts, state_after

_CASES = [
    ([[3.0, 4.0]], 1.0, 2.0**16, 2000),
    ([[0.3, 0.4], [30.0, 40.0]], 1.0, 1024.0, 2000),
    ([[1e36, 1.0], [0.3, 0.4]], 1.0, 1024.0, 2000),
    ([[0.3, 0.4], [0.6, 0.8], [0.1, 0.2]], 2.0, 512.0, 1),
    ([[math.nan, 1.0], [math.inf, 0.0], [6.0, 8.0]], 5.0, 64.0, 2),
    ([[0.3, 0.4], [math.inf, 0.0], [0.0, 0.0]], 1.0, 512.0, 2),
]
_CLIPPED = 1 / (1 + 2e-7)  # max_norm / (norm + 1e-6) times the norm of 5


@exercise(
    "optimizer_step-3",
    title="A step under float16, and whether it was skipped",
    difficulty="hard",
    minutes=15,
    cases=_CASES,
    expected=[
        run_facts([state_after([-0.6 * _CLIPPED, -0.8 * _CLIPPED], 65536.0, False, 1)]),
        run_facts([state_after([-0.3, -0.4], 1024.0, False, 1), state_after([-0.6, -0.8], 1024.0, False, 2)]),
        run_facts([state_after([0.0, 0.0], 512.0, True, 0), state_after([-0.3, -0.4], 512.0, False, 1)]),
        run_facts([
            state_after([-0.3, -0.4], 1024.0, False, 1),
            state_after([-0.6, -0.8], 2048.0, False, 2),
            state_after([-0.625, -0.85], 4096.0, False, 3),
        ]),
        run_facts([
            state_after([0.0, 0.0], 32.0, True, 0),
            state_after([0.0, 0.0], 16.0, True, 0),
            state_after([-3.0, -4.0], 16.0, False, 1),
        ]),
        run_facts([  # two good steps, and not in a row; the second one moves nothing
            state_after([-0.3, -0.4], 512.0, False, 1),
            state_after([-0.3, -0.4], 256.0, True, 1),
            state_after([-0.3, -0.4], 256.0, False, 2),
        ]),
    ],
    arrange=arranged,
    probe=gather,
    difference=close_facts_differ,
    describe=lambda script, max_norm, scale, growth_interval: (
        f"scaled_step, max_norm={max_norm}, gradients {' then '.join(map(str, script))}, a scale of {scale:g}"
        + (f" that doubles after {growth_interval} good steps" if growth_interval < 2000 else "")
    ),
    imports="import torch",
    hints=[
        "The scale belongs to the gradients between two moments: backward() makes them too large, and one call of the "
        "scaler divides it out again. On which side of it does max_norm mean what it says?",
        "In order: zero_grad; the scaled loss's backward; unscale_; clip; scaler.step, which calls the optimizer's "
        "or not; update. Neither step says which it was.",
        "The norm that clip_grad_norm_ hands back knows: it is inf or NaN exactly where the scaler skips. (Or compare "
        "the scale before and behind update(): it falls after a skipped step, and only then.)",
    ],
    lesson="A skipped step is no step: schedule, average and step counter wait. `update` says it in report.skipped.",
)  # fmt: skip
def scaled_step(loss, model, optimizer, scaler, scheduler, max_norm: float) -> bool:
    """One step with a loss scale; True where it was skipped because a gradient overflowed.

    loss      : the loss of this step, with its graph (under float16 it came out of autocast)
    scaler    : a torch.amp.GradScaler, used in earlier steps of this run. Its scale halves after a
                skipped step and doubles after `growth_interval` good ones in a row
    scheduler : its step() is called once after each step that was made, not after a skipped one
    max_norm  : bounds the norm of the true gradients, those of `loss`, over all parameters
    returns   : True (skipped) or False (made)

    The step begins with the backward pass; old gradients may still be there, and do not belong to
    it. Where a gradient is inf or NaN the weights stay, and the scaler lowers its scale.

    Gradients of 3 and 4 have the norm 5: with max_norm=1 and lr 1 the weights fall by 0.6 and 0.8,
    whatever the scale is, and the result is False.
    """
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    skipped = not bool(torch.isfinite(norm))
    if not skipped:
        scheduler.step()
    return skipped


def _stepped(
    loss,
    model,
    optimizer,
    scaler,
    scheduler,
    max_norm,
    *,
    zero="first",
    scales=True,
    clip="behind",
    unscales=1,
    steps="scaler",
    updates=1,
    tell="norm",
    moves="made",
) -> Any:
    """The answer with its decisions as arguments.

    clip  : "behind" unscale_, "before" it, "value", "each" parameter, "late" (behind the step) or "never"
    tell  : how a skipped step is told: "norm", "lower", "changed", "same", "no higher", "late", "returned", "loss",
            "weights" (they did not move), "made"
    steps : "scaler", "optimizer", or "updated" (the scaler, behind its update)
    moves : when the scheduler moves: "made", "always", "never", or "told" (where the answer believes in a step)
    """
    if zero == "first":
        optimizer.zero_grad()
    before, finite = scaler.get_scale(), math.isfinite(loss.item())
    weights = [p.detach().clone() for p in model.parameters()]
    (scaler.scale(loss) if scales else loss).backward()
    if clip == "before":
        clip_grad_norm_(model.parameters(), max_norm)
    for _ in range(unscales):
        scaler.unscale_(optimizer)
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    skips = not math.isfinite(norm)
    if clip == "behind":
        clip_grad_norm_(model.parameters(), max_norm)
    elif clip == "value":
        clip_grad_value_(model.parameters(), max_norm)
    elif clip == "each":
        for param in model.parameters():
            clip_grad_norm_([param], max_norm)
    if zero == "last":
        optimizer.zero_grad()
    if steps == "updated":
        scaler.update()
    came = optimizer.step() if steps == "optimizer" else scaler.step(optimizer)
    for _ in range(updates):
        scaler.update()
    if zero == "behind":
        optimizer.zero_grad()
    still = all(map(torch.equal, weights, model.parameters()))
    now = scaler.get_scale()
    told = {
        "norm": skips, "lower": now < before, "changed": now != before, "same": now == before, "late": False,
        "returned": came is None, "loss": not finite, "made": not skips, "no higher": now <= before, "weights": still,
    }[tell]  # fmt: skip
    if moves == "always" or (moves == "made" and not skips) or (moves == "told" and not told):
        scheduler.step()
    return told


def _declare(name: str, *forms: dict) -> None:
    for how in forms:
        scaled_step.form_of(name)(lambda *run, how=how: _stepped(*run, **how))


@scaled_step.wrong
def clips_before_unscaling(loss, model, optimizer, scaler, scheduler, max_norm):
    """max_norm is compared with gradients that still carry the scale: a norm of 5 counts as 327,680 and is cut down to
    1; then the scale is divided out as well, and the weights move by 0.000015. The run looks stable and learns nothing.
    First scaler.unscale_(optimizer), then clip."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, clip="before")


_declare("clips_before_unscaling", {"clip": "before", "moves": "always"})
for _tell in ("lower", "changed", "late", "returned"):
    _declare("clips_before_unscaling", {"clip": "before", "tell": _tell, "moves": "told"})


@scaled_step.wrong
def unscales_twice(loss, model, optimizer, scaler, scheduler, max_norm):
    """unscale_ is called twice before one update(): dividing once more would make the gradients too small, so the
    scaler refuses, as in a loop that unscales after every micro-batch: once a window, before clipping. (Where update()
    stands before scaler.step it has forgotten the first time, and divides again.)"""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, unscales=2)


_declare("unscales_twice", {"steps": "updated", "updates": 0})


@scaled_step.wrong
def never_updates_the_scale(loss, model, optimizer, scaler, scheduler, max_norm):
    """update() is missing: the scaler does not learn how the step went. Its scale never falls, so what overflows once
    overflows for ever, and the next unscale_ is refused, because for the scaler this step is still going on."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, updates=0)


_declare("never_updates_the_scale", {"updates": 0, "tell": "lower", "moves": "told"})


@scaled_step.wrong
def moves_the_schedule_on_a_skipped_step(loss, model, optimizer, scaler, scheduler, max_norm):
    """scheduler.step() is called also where no step was made: a run that begins with ten skipped steps has used up ten
    steps of its warm-up before the first weight moves. Ask first whether it was skipped."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, moves="always")


@scaled_step.wrong
def takes_any_change_for_a_skip(loss, model, optimizer, scaler, scheduler, max_norm):
    """The scale is compared by `!=`. It also changes when it *grows*, after `growth_interval` good steps: such a step
    is reported as skipped, and schedule and average miss it, one in 2,000 by default. A skip is a scale that fell,
    `<`."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, tell="changed", moves="told")


_declare("takes_any_change_for_a_skip", {"tell": "changed"})


@scaled_step.wrong
def takes_an_unchanged_scale_for_a_skip(loss, model, optimizer, scaler, scheduler, max_norm):
    """An unchanged scale is read as a skipped step, and it is what every ordinary good step leaves behind. The scale
    falls after a skip, stays after most good steps, and grows after many."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, tell="same", moves="told")


_declare("takes_an_unchanged_scale_for_a_skip", {"tell": "same"}, {"tell": "no higher"})
_declare("takes_an_unchanged_scale_for_a_skip", {"tell": "no higher", "moves": "told"})


@scaled_step.wrong
def believes_what_step_returns(loss, model, optimizer, scaler, scheduler, max_norm):
    """scaler.step returns what optimizer.step returns, and that is None in either case: every step is taken for a
    skipped one, the schedule never moves. Ask the norm of the gradients, or the scale."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, tell="returned", moves="told")


_declare("believes_what_step_returns", {"tell": "returned"})


@scaled_step.wrong
def asks_the_loss_or_the_weights(loss, model, optimizer, scaler, scheduler, max_norm):
    """The loss decides whether the step was skipped. It is finite in nearly every overflow: it is the *gradient*, times
    the scale, that leaves the range. (Nor do weights tell that did not move: with a gradient or an lr of 0, as in the
    first step of many warm-ups, a step that was made moves nothing.)"""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, tell="loss", moves="told")


_declare("asks_the_loss_or_the_weights", {"tell": "loss"}, {"tell": "weights"}, {"tell": "weights", "moves": "told"})


@scaled_step.wrong
def never_reports_a_skip(loss, model, optimizer, scaler, scheduler, max_norm):
    """Every step counts as made: the scale is read too late, when update() has changed it already, or not at all. Read
    it before update() and behind it."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, tell="late", moves="told")


_declare("never_reports_a_skip", {"tell": "late"})


@scaled_step.wrong
def reports_made_steps(loss, model, optimizer, scaler, scheduler, max_norm):
    """It is the other way round: True for a step that was made. Whoever asks `if skipped: continue` then passes over
    each good step. True is asked for where it was skipped."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, tell="made")


@scaled_step.wrong
def steps_without_the_scaler(loss, model, optimizer, scaler, scheduler, max_norm):
    """optimizer.step() is called directly: inf and NaN reach the weights in the first overflow, and from then on every
    output is NaN. scaler.step(optimizer) looks at the gradients first and leaves the step out."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, steps="optimizer")


_declare("steps_without_the_scaler", *(
    {"steps": "optimizer", "scales": False, "unscales": 0, "updates": 0, "moves": moves} for moves in ("made", "always")
))  # fmt: skip


@scaled_step.wrong
def forgets_to_scale(loss, model, optimizer, scaler, scheduler, max_norm):
    """backward() is called on the loss itself and the scale is divided out all the same: the gradients are 65,536 times
    too small, after float16 has lost the small ones to 0. scaler.scale(loss).backward()."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, scales=False)


_declare("forgets_to_scale", {"scales": False, "unscales": 0, "tell": "lower", "moves": "told"})


@scaled_step.wrong
def never_clips(loss, model, optimizer, scaler, scheduler, max_norm):
    """The norm of all true gradients is not clipped (or only behind the step, or each parameter for itself): one bad
    batch moves the weights by more than max_norm allows. Between unscale_ and scaler.step is the place."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, clip="never")


_declare("never_clips", {"clip": "never", "tell": "lower", "moves": "told"}, {"clip": "never", "unscales": 0})
_declare("never_clips", {"clip": "each"}, {"clip": "each", "tell": "lower", "moves": "told"})


@scaled_step.wrong
def keeps_old_gradients(loss, model, optimizer, scaler, scheduler, max_norm):
    """Old gradients stay and are added to: after a skipped step they are inf or NaN, so that every step after it is
    skipped as well, until the scale is 0. Clear them before the backward pass: behind the step is too late for those
    that are there when the first step begins."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, zero="never")


_declare("keeps_old_gradients", {"zero": "behind"}, {"zero": "behind", "tell": "lower", "moves": "told"})


@scaled_step.wrong
def keeps_a_bad_step_from_the_scaler(loss, model, optimizer, scaler, scheduler, max_norm, halves=False):
    """Where the norm is not finite scaler.step and update() are left out: the scale never falls, so the same batch
    overflows again, and the next unscale_ is refused. (update(scale / 2) lowers it and leaves the count of good steps
    in a row as it was.) The scaler has to see the bad step to its end."""
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    if not torch.isfinite(clip_grad_norm_(model.parameters(), max_norm)):
        if halves:
            scaler.update(scaler.get_scale() / 2)
        return True
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    return False


@scaled_step.form_of("keeps_a_bad_step_from_the_scaler")
def halves_the_scale_by_hand(loss, model, optimizer, scaler, scheduler, max_norm):
    return keeps_a_bad_step_from_the_scaler(loss, model, optimizer, scaler, scheduler, max_norm, halves=True)


@scaled_step.wrong
def clears_before_the_step(loss, model, optimizer, scaler, scheduler, max_norm):
    """zero_grad() stands between the backward pass and the step: the scaler finds no gradient to look at, and no weight
    ever moves. It belongs before the backward pass."""
    return _stepped(loss, model, optimizer, scaler, scheduler, max_norm, zero="last")
