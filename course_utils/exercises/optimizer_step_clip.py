"""The exercise of chapter 06 about clipping a gradient to a norm, by hand."""

from __future__ import annotations

import math

from torch.nn.utils import clip_grad_norm_

from course_utils.exercises.declare import exercise
from course_utils.exercises.optimizer_step_clip_facts import Parameters, gather, sound_clipping
from course_utils.exercises.optimizer_step_clip_forms import (
    at_most_one,
    clip,
    clip_in_one_loop,
    norms_of,
    root_of_squares,
)
from course_utils.exercises.optimizer_step_facts import close_facts_differ

_CASES = [
    ([[3.0], [4.0]], 1.0),
    ([[0.3, 0.0], [0.4]], 1.0),
    ([[3.0, 0.0], None, [0.0, 4.0]], 2.5),
    ([[0.0, 0.0], [0.0]], 1.0),
    ([[1.0, -2.0, 2.0], [-4.0]], 0.5),
    ([[-6.0], [2.0], [3.0]], 7.5),
    ([None], 1.0),
]


@exercise(
    "optimizer_step-4",
    title="Clip to a norm by hand",
    difficulty="medium",
    minutes=10,
    cases=_CASES,
    expected=[
        sound_clipping(5.0, [[0.6], [0.8]]),
        sound_clipping(0.5, [[0.3, 0.0], [0.4]]),
        sound_clipping(5.0, [[1.5, 0.0], None, [0.0, 2.0]]),
        sound_clipping(0.0, [[0.0, 0.0], [0.0]]),
        sound_clipping(5.0, [[0.1, -0.2, 0.2], [-0.4]]),
        sound_clipping(7.0, [[-6.0], [2.0], [3.0]]),
        sound_clipping(0.0, [None]),
    ],
    arrange=lambda gradients, max_norm: (Parameters(gradients), max_norm),
    probe=gather,
    difference=close_facts_differ,
    describe=lambda gradients, max_norm: f"clip_to_norm(parameters, max_norm={max_norm}), gradients {gradients}",
    imports="import math",
    hints=[
        "All gradients of the model are *one* long vector, cut into pieces. Its length is one number, and so is the "
        "factor that all pieces are multiplied by. What has to be known before the first one is touched?",
        "Collect the gradients in a list first. The norm is the root of the sum of all squares. Is it finite? Is it "
        "above max_norm? Only then is there anything to multiply.",
        "A sum of squares over the gradients, then math.sqrt and math.isfinite; a gradient is changed in place with "
        "gradient.mul_(factor), where the factor is max_norm over the norm.",
    ],
    lesson="One NaN makes the norm NaN: looking at one number sees a bad gradient anywhere in the model.",
)
def clip_to_norm(parameters, max_norm: float) -> float:
    """Clip the gradients of all parameters together to a norm, and hand back the norm before.

    parameters : parameters as model.parameters() gives them: they can be gone through once. A .grad
                 may be None: no backward pass reached this parameter
    max_norm   : above 0
    returns    : the 2-norm over the gradients of all parameters together, before clipping, a float;
                 0.0 where there are none
    raises     : FloatingPointError where that norm is not finite; all gradients are as before then

    Where the norm is above max_norm every gradient is multiplied by max_norm / norm, in its .grad:
    the direction stays. Otherwise they stay as they are. clip_grad_norm_ is not to be called.

    Gradients of 3 and 4 have the norm 5; with max_norm=1 they become 0.6 and 0.8, and 5.0 is
    returned.
    """
    gradients = [param.grad for param in parameters if param.grad is not None]
    norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
    if not math.isfinite(norm):
        raise FloatingPointError(f"the norm of the gradients is {norm}")
    if norm > max_norm:
        for gradient in gradients:
            gradient.mul_(max_norm / norm)
    return norm


def _declare(name: str, *forms: dict) -> None:
    for how in forms:
        clip_to_norm.form_of(name)(lambda parameters, max_norm, how=how: clip(parameters, max_norm, **how))


@clip_to_norm.wrong
def clips_each_parameter(parameters, max_norm):
    """Each parameter is clipped for itself: a layer with a large gradient and one with a small gradient come out
    equally long, so the direction of the step is another one, and a model of 100 parameters still moves by up to 10
    times max_norm. All gradients are one vector with one norm."""
    held = list(parameters)
    norm = root_of_squares([p.grad for p in held if p.grad is not None])
    if not math.isfinite(norm):
        raise FloatingPointError
    for param in held:
        clip([param], max_norm)
    return norm


@clip_to_norm.form_of("clips_each_parameter")
def clips_each_parameter_and_checks_nothing(parameters, max_norm):
    held = list(parameters)
    norm = root_of_squares([p.grad for p in held if p.grad is not None])
    for param in held:
        clip([param], max_norm, checks="never")
    return norm


for _checks in (True, False):
    clip_to_norm.form_of("clips_each_parameter")(lambda ps, most, checks=_checks: clip_in_one_loop(ps, most, checks))


for _checks in ("all", "first", "never"):

    @clip_to_norm.form_of("clips_each_parameter")
    def clips_each_parameter_and_returns_the_last_norm(parameters, max_norm, checks=_checks):
        held = [p for p in parameters if p.grad is not None]
        if checks == "all":
            clip(held, max_norm, factor=lambda norm, most: 1.0)
        return [0.0, *(clip([param], max_norm, checks=checks) for param in held)][-1]


@clip_to_norm.wrong
def divides_by_the_norm_alone(parameters, max_norm):
    """Every gradient is divided by the norm and max_norm is not used for it: whatever is asked for, what comes out has
    the norm 1. The factor is max_norm / norm."""
    return clip(parameters, max_norm, factor=lambda norm, most: 1 / norm if norm > most else 1.0)


_declare("divides_by_the_norm_alone", {"factor": lambda norm, most: 1 / norm if norm else 1.0})


@clip_to_norm.wrong
def scales_small_gradients_up(parameters, max_norm):
    """Gradients are multiplied also where the norm is below max_norm: near the end of a run, where they are small, the
    steps do not become shorter. max_norm is an upper bound: the factor is at most 1."""
    return clip(parameters, max_norm, factor=lambda norm, most: most / (norm + 1e-6))


_declare(
    "scales_small_gradients_up",
    {"factor": lambda norm, most: most / norm if norm else 1.0},
    {"factor": lambda norm, most: most / (norm + 1e-6), "checks": "never"},
    {"factor": lambda norm, most: most / norm},
)


@clip_to_norm.wrong
def divides_by_a_norm_of_0(parameters, max_norm):
    """max_norm / norm is computed before the two are compared: where all gradients are 0 it divides by 0, an error in
    Python and, with tensors, inf, of which 0 * inf makes NaN. Compare first, or add a small number: norm + 1e-6."""
    return clip(parameters, max_norm, factor=lambda norm, most: min(1.0, most / norm))


@clip_to_norm.form_of("divides_by_a_norm_of_0")
def divides_a_tensor_by_a_norm_of_0(parameters, max_norm):
    return clip(parameters, max_norm, factor=lambda norm, most: most / norm if norm else math.nan)


@clip_to_norm.wrong
def lets_nan_through(parameters, max_norm):
    """A norm that is NaN is not above max_norm and not below it: nothing is clipped, nothing is said, and the step puts
    NaN into the weights. An inf makes the factor 0: the others become 0, and inf * 0 is NaN. Ask math.isfinite first.
    (clip_grad_norm_ does so only with error_if_nonfinite=True.)"""
    return clip(parameters, max_norm, checks="never")


_declare(
    "lets_nan_through",
    {"checks": "never", "factor": lambda norm, most: min(1.0, most / (norm + 1e-6))},
    {"checks": "never", "factor": lambda norm, most: min(most / (norm + 1e-6), 1.0)},
)


@clip_to_norm.form_of("lets_nan_through")
def clips_by_the_library(parameters, max_norm):
    return float(clip_grad_norm_(parameters, max_norm))


@clip_to_norm.form_of("lets_nan_through")
def sees_nan_and_passes_inf(parameters, max_norm):
    held = list(parameters)
    if any(p.grad is not None and p.grad.isnan().any() for p in held):
        raise FloatingPointError
    return clip(held, max_norm, checks="never")


@clip_to_norm.form_of("lets_nan_through")
def returns_where_the_norm_is_not_finite(parameters, max_norm):
    held = list(parameters)
    norm = root_of_squares([p.grad for p in held if p.grad is not None])
    return clip(held, max_norm) if math.isfinite(norm) else norm


@clip_to_norm.wrong
def raises_too_late(parameters, max_norm):
    """The error comes after the gradients were multiplied: whoever catches it, to look for the layer that began it,
    finds NaN or 0 everywhere. Ask before anything is touched."""
    return clip(parameters, max_norm, checks="late")


_declare("raises_too_late", {"checks": "late", "factor": lambda norm, most: min(1.0, most / (norm + 1e-6))})


@clip_to_norm.wrong
def passes_over_what_is_not_finite(parameters, max_norm):
    """NaN and inf are left out of the norm, or made 0: the step is made with what is left of a gradient that is broken,
    and the fault behind it shows nowhere. It is to be refused."""
    held = list(parameters)
    for param in held:
        if param.grad is not None:
            param.grad.nan_to_num_(0.0, 0.0, 0.0)
    return clip(held, max_norm)


@clip_to_norm.form_of("passes_over_what_is_not_finite")
def passes_over_gradients_that_are_not_finite(parameters, max_norm):
    return clip([p for p in parameters if p.grad is not None and p.grad.isfinite().all()], max_norm)


@clip_to_norm.wrong
def returns_the_norm_afterwards(parameters, max_norm):
    """What is returned is the norm behind the clipping: it is never above max_norm, so the curve that is to show a run
    that becomes unstable stays flat. Return the norm that was there before."""
    return clip(parameters, max_norm, given="after")


@clip_to_norm.wrong
def adds_the_norms(parameters, max_norm):
    """The norms of the parameters are added up. The length of 3 and 4 together is 5, not 7: more is clipped than asked
    for, and the more the finer a model is cut into parameters. Add the squares, then take the root."""
    return clip(parameters, max_norm, norm_of=lambda gradients: sum(norms_of(gradients)))


_declare(
    "adds_the_norms",
    {"norm_of": lambda gradients: sum(norms_of(gradients)), "checks": "never"},
    {"norm_of": lambda gradients: sum(float(g.abs().sum()) for g in gradients)},
)


@clip_to_norm.wrong
def takes_the_largest(parameters, max_norm):
    """The largest of the norms (or of the numbers) is taken for the norm of all: it is too small, so the step is longer
    than max_norm allows, up to the root of the number of parameters."""
    return clip(parameters, max_norm, norm_of=lambda gradients: max(norms_of(gradients)))


_declare(
    "takes_the_largest", {"norm_of": lambda gradients: max([float(g.abs().max()) for g in gradients], default=0.0)}
)


@clip_to_norm.wrong
def forgets_the_root(parameters, max_norm):
    """The sum of the squares is taken for the norm, 25 in place of 5: with large gradients it clips far too much, with
    small ones not at all. The norm is the root of it."""
    return clip(parameters, max_norm, norm_of=lambda gradients: sum(float(g.square().sum()) for g in gradients))


@clip_to_norm.wrong
def clips_the_values(parameters, max_norm):
    """Each number is cut to at most max_norm: large ones shrink and small ones stay, so the step points elsewhere, and
    the norm may still be above the bound. One factor for all keeps the direction."""
    held = [p for p in parameters if p.grad is not None]
    norm = root_of_squares([p.grad for p in held])
    if not math.isfinite(norm):
        raise FloatingPointError
    for param in held:
        param.grad.clamp_(-max_norm, max_norm)
    return norm


@clip_to_norm.form_of("clips_the_values")
def clips_the_values_and_checks_nothing(parameters, max_norm):
    held = [p for p in parameters if p.grad is not None]
    norm = root_of_squares([p.grad for p in held])
    for param in held:
        param.grad.clamp_(-max_norm, max_norm)
    return norm


@clip_to_norm.wrong
def uses_the_parameters_up(parameters, max_norm):
    """`parameters` is gone through twice, and model.parameters() can be gone through once: the second loop finds
    nothing to do. The norm is right and nothing is clipped, without an error. Put what you need into a list first."""
    return clip(parameters, max_norm, reads_twice=True)


_declare("uses_the_parameters_up", {"reads_twice": True, "checks": "never"})


@clip_to_norm.wrong
def stumbles_over_no_gradient(parameters, max_norm):
    """A parameter without a gradient has None under .grad, not 0: a frozen layer, or a head that this batch did not
    use, ends the run with an AttributeError. Pass over it."""
    held = list(parameters)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in held))
    return clip(held, max_norm) if norm >= 0 else norm


@clip_to_norm.form_of("stumbles_over_no_gradient")
def stumbles_over_no_norm(parameters, max_norm):
    return [p.grad.norm() for p in parameters] and 0.0


@clip_to_norm.wrong
def changes_a_copy(parameters, max_norm):
    """A new tensor is made, as by `gradient = gradient * factor`, and goes nowhere: the one under .grad, which the
    optimizer reads, is as long as before. Multiply in place, with mul_, or put the new one under .grad."""
    return clip([p for p in parameters if p.grad is not None], max_norm, factor=lambda norm, most: 1.0)


@clip_to_norm.wrong
def clips_the_weights(parameters, max_norm):
    """The *weights* are measured or multiplied, not their gradients: the model itself shrinks in every step. What is to
    be bounded is the step, and that is made of p.grad."""
    held = [p for p in parameters if p.grad is not None]
    norm = root_of_squares([p.grad for p in held])
    if not math.isfinite(norm):
        raise FloatingPointError
    for param in held:
        param.data.mul_(at_most_one(norm, max_norm))
    return norm


@clip_to_norm.form_of("clips_the_weights")
def measures_the_weights(parameters, max_norm):
    held = list(parameters)
    norm = root_of_squares([p.detach() for p in held])
    clip(held, max_norm, norm_of=lambda gradients: norm)
    return norm
