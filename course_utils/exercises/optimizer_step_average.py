"""The exercise of chapter 06 about a moving average of the weights, with all that has to be saved of it."""

from __future__ import annotations

import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.optimizer_step_average_facts import arranged, gather, sound_run
from course_utils.exercises.optimizer_step_average_forms import WithGraph, averaged, warm
from course_utils.exercises.optimizer_step_facts import close_facts_differ

# each step: weight, running mean, number of batches, skipped
_RUNS = [
    ([(0.0, 1.0, 0, False), (1.0, 2.0, 1, False)], 0.9),
    ([(2.0, 0.0, 3, False), (2.0, 0.0, 4, True), (4.0, 1.0, 5, False), (6.0, 1.0, 6, False)], 0.99),
    (
        [(1.0, 1.0, 0, False), (0.0, 3.0, 1, False), (0.0, 3.0, 2, False), (0.0, 3.0, 2, True), (8.0, 3.0, 3, False)],
        0.15,
    ),
    ([(0.0, 0.0, 0, False), (1.0, 1.0, 1, False), (1.0, 1.0, 2, False)], 0.05),
]


@exercise(
    "optimizer_step-5",
    title="A moving average of the weights",
    difficulty="hard",
    minutes=15,
    cases=_RUNS,
    expected=[
        sound_run([(0, 0.0, 1.0, 0), (1, 0.9, 1.9, 1)]),  # decay 1/10
        # decays 1/10 and 2/11: 0.2 + 3.6; then 2/11 * 3.8 + 9/11 * 6 and 2/11 * 0.9 + 9/11
        sound_run([(0, 2.0, 0.0, 3), (0, 2.0, 0.0, 3), (1, 3.8, 0.9, 5), (2, 61.6 / 11, 10.8 / 11, 6)]),
        # decays 1/10, then 0.15 twice: 2/11 and 3/12 are above it
        sound_run([(0, 1.0, 1.0, 0), (1, 0.1, 2.8, 1), (2, 0.015, 2.97, 2), (2, 0.015, 2.97, 2),
                   (3, 6.80225, 2.9955, 3)]),
        sound_run([(0, 0.0, 0.0, 0), (1, 0.95, 0.95, 1), (2, 0.9975, 0.9975, 2)]),  # 0.05 is below 1/10
    ],
    arrange=arranged,
    probe=gather,
    difference=close_facts_differ,
    describe=lambda run, decay: (
        f"update_average, decay={decay}, weights of the run {[row[0] for row in run]}"
        + (f", skipped {[number for number, row in enumerate(run) if row[3]]}" if any(r[3] for r in run) else "")
    ),
    hints=[
        "What must survive a stop of the run, besides the averages themselves, so that the next decay is the right "
        "one? All of it belongs into `ema`.",
        "model.state_dict() gives all names, parameters and buffers, but its tensors *are* those of the model: clone() "
        "them at the start. Whole numbers have no average: tensor.is_floating_point() tells them apart.",
        "With n = ema[\"num_updates\"], the decay is the smaller one of decay and (1 + n) / (10 + n); an average is "
        "changed in place by average.lerp_(now, 1 - d), a whole number by copy_.",
    ],
    lesson="`EMA` in course_utils.optimizer_step does this, and lends the average to the model for an evaluation.",
)  # fmt: skip
def update_average(ema: dict, model, decay: float, skipped: bool) -> None:
    """Keep a moving average of a model's weights: called before training, then after each step.

    ema     : {} before training. The call then fills it: ema["num_updates"] is 0 and ema["average"]
              is {name: tensor}, a copy of all that model.state_dict() holds. Later calls find in it
              what the ones before left, and change it; it is saved with the checkpoint, so nothing
              is kept anywhere else
    decay   : in [0, 1), the share that the average keeps
    skipped : True where the step was not made (an overflow): the call then changes nothing

    After a step that was made, with n updates before it, d is min(decay, (1 + n) / (10 + n)), and
    every average, of parameters and of buffers, becomes d * average + (1 - d) * present value.
    Tensors of whole numbers (BatchNorm's number of batches) are copied. Then num_updates is n + 1.
    The model is only read, and the averages carry no graph.

    A weight of 0.0 before training and 1.0 after the first step, with decay=0.9, gives the average
    0.1 * 0.0 + 0.9 * 1.0 = 0.9: the first update uses d = 1/10.
    """
    now = model.state_dict()
    if not ema:
        ema.update(num_updates=0, average={name: tensor.clone() for name, tensor in now.items()})
    elif not skipped:
        n = ema["num_updates"]
        d = min(decay, (1 + n) / (10 + n))
        for name, average in ema["average"].items():
            if average.is_floating_point():
                average.lerp_(now[name], 1 - d)
            else:
                average.copy_(now[name])
        ema["num_updates"] = n + 1


def _declare(name: str, *forms: dict) -> None:
    for how in forms:
        update_average.form_of(name)(lambda *given, how=how: averaged(*given, **how))


@update_average.wrong
def shares_the_weights(ema, model, decay, skipped):
    """The average holds the model's own tensors, as state_dict() hands them out: the optimizer moves both, the two are
    always equal, and an evaluation "with the average" is one of the present weights. Clone them at the start, and
    whole numbers at each step."""
    now = model.state_dict()
    if not ema:
        ema.update(num_updates=0, average=dict(now))
    else:
        update_average.answer(ema, model, decay, skipped)


@update_average.form_of("shares_the_weights")
def shares_the_weights_detached(ema, model, decay, skipped):
    averaged(ema, model, decay, skipped, start=torch.Tensor.detach)


_declare("shares_the_weights", {"ints": "shared"})


@update_average.wrong
def swaps_the_decay(ema, model, decay, skipped):
    """The two shares are exchanged: d is what the average *keeps*. With a decay of 0.999 the average would follow the
    present weights, a thousandth behind, and smooth nothing. (lerp_ takes the share of the new value, 1 - d.)"""
    averaged(ema, model, decay, skipped, swaps=True)


@update_average.wrong
def averages_whole_numbers(ema, model, decay, skipped):
    """A tensor of whole numbers is averaged like a weight. In place that is an error (a float cannot be put into it);
    otherwise it becomes a float, or is rounded down and stays behind. Such counters are copied: ask the tensor,
    is_floating_point(), and not its name."""
    averaged(ema, model, decay, skipped, ints="averaged")


_declare("averages_whole_numbers", {"is_float": lambda name, tensor: "num_batches" not in name})


def _in_place(ema, model, decay, skipped, take) -> None:
    """`take(average, present value, d)` for every tensor."""
    if not ema or skipped:
        return update_average.answer(ema, model, decay, skipped)
    for name, tensor in model.state_dict().items():
        take(ema["average"][name], tensor, warm(decay, ema["num_updates"]))
    ema["num_updates"] += 1
    return None


@update_average.form_of("averages_whole_numbers")
def averages_whole_numbers_by_mul(ema, model, decay, skipped):
    _in_place(ema, model, decay, skipped, lambda average, now, d: average.mul_(d).add_(now, alpha=1 - d))


@update_average.form_of("averages_whole_numbers")
def averages_whole_numbers_by_lerp(ema, model, decay, skipped):
    _in_place(ema, model, decay, skipped, lambda average, now, d: average.lerp_(now, 1 - d))


@update_average.wrong
def keeps_whole_numbers(ema, model, decay, skipped):
    """Tensors of whole numbers stay as they were at the start: the average has running statistics of now and a count of
    the beginning, which with momentum=None is what BatchNorm divides by. Copy them."""
    averaged(ema, model, decay, skipped, ints="kept")


@update_average.wrong
def leaves_the_buffers_out(ema, model, decay, skipped):
    """Only parameters are averaged: BatchNorm's running mean and variance are missing, or stay as they were at the
    start. Averaged weights are then evaluated with the statistics of an untrained model. Take what state_dict()
    holds."""
    averaged(ema, model, decay, skipped, tensors="parameters")


_declare("leaves_the_buffers_out", {"buffers": "kept"}, {"buffers": "kept", "ints": "kept"})


@update_average.wrong
def copies_the_buffers(ema, model, decay, skipped):
    """The running statistics are copied, not averaged: they are those of the present weights, not of the averaged ones.
    It is a choice that people make; this task asks for the average of every tensor of floats, of whatever dtype."""
    averaged(ema, model, decay, skipped, buffers="copied")


_declare("copies_the_buffers", {"is_float": lambda name, tensor: tensor.dtype == torch.float32})


@update_average.wrong
def counts_skipped_steps(ema, model, decay, skipped):
    """A skipped step is taken in like any other, or at least counted: a run that begins with ten overflows has left its
    warm-up before the first weight moved. The call then changes nothing."""
    averaged(ema, model, decay, skipped, heeds_skips=False)


@update_average.form_of("counts_skipped_steps")
def counts_skipped_steps_and_averages_others(ema, model, decay, skipped):
    update_average.answer(ema, model, decay, skipped)
    ema["num_updates"] += skipped


@update_average.wrong
def never_counts(ema, model, decay, skipped):
    """num_updates stays 0, so every update uses the first decay, 1/10: the "average" is the present weights with a
    tenth of the last ones, and `decay` is never reached."""
    averaged(ema, model, decay, skipped, adds=0)


@update_average.wrong
def counts_before_it_averages(ema, model, decay, skipped):
    """The counter moves before the decay is taken: the first update uses 2/11, not 1/10. n are the updates *before*
    this one. (Or the counter begins at 1, or the call before training averages too, where it is to fill `ema` only: a
    `return` is missing.)"""
    averaged(ema, model, decay, skipped, decay_of=lambda decay, n: warm(decay, n + 1))


@update_average.form_of("counts_before_it_averages")
def begins_to_count_at_1(ema, model, decay, skipped):
    averaged(ema, model, decay, skipped, begins=1)


_declare("counts_before_it_averages", {"fills_only": False})


@update_average.wrong
def has_no_warm_up(ema, model, decay, skipped):
    """`decay` is used from the first update on: the untrained start keeps a share of decay ** n, after 1,000 updates
    with 0.999 still 37 %. The smaller one of the two decays is asked for."""
    averaged(ema, model, decay, skipped, decay_of=lambda decay, n: decay)


@update_average.wrong
def takes_the_larger_decay(ema, model, decay, skipped):
    """max in place of min: the first updates use `decay`, so that the untrained start stays for long, and later ones
    more than it, up to 1: the average comes to a stop. The smaller one is asked for."""
    averaged(ema, model, decay, skipped, decay_of=lambda decay, n: max(decay, (1 + n) / (10 + n)))


@update_average.form_of("takes_the_larger_decay")
def warms_up_without_an_end(ema, model, decay, skipped):
    averaged(ema, model, decay, skipped, decay_of=lambda decay, n: (1 + n) / (10 + n))


@update_average.wrong
def begins_with_zeros(ema, model, decay, skipped):
    """The average begins with zeros, as Adam's moments do: until it has seen many updates it is too small, and a model
    with such weights computes something else. (Adam divides by a correction.) Begin with a copy."""
    averaged(ema, model, decay, skipped, start=torch.zeros_like)


@update_average.wrong
def keeps_the_graph(ema, model, decay, skipped):
    """The averages are computed with a graph: each one holds the one before it, so memory grows with every step, and
    they cannot be saved as plain weights. Read the values by state_dict(), detach(), or under torch.no_grad()."""
    averaged(ema, WithGraph(model), decay, skipped)


@update_average.wrong
def changes_the_model(ema, model, decay, skipped):
    """The average is written into the model (or computed in its tensors): training goes on from the average, and each
    step of the optimizer is undone by the share d, with 0.999 nearly all of it. The model is only read."""
    averaged(ema, model, decay, skipped)
    model.load_state_dict(ema["average"])


@update_average.form_of("changes_the_model")
@torch.no_grad()
def computes_in_the_models_tensors(ema, model, decay, skipped):
    if not ema or skipped:
        return update_average.answer(ema, model, decay, skipped)
    share = warm(decay, ema["num_updates"])
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            ema["average"][name] = tensor.mul_(1 - share).add_(ema["average"][name], alpha=share).clone()
        else:
            ema["average"][name] = tensor.clone()
    ema["num_updates"] += 1
    return None


@update_average.wrong
def fills_a_dict_of_its_own(ema, model, decay, skipped):
    """`ema = {...}` gives the name to a new dict, and the caller's stays empty: every call is the first one, and no
    average ever comes about. Change the dict that was handed in: ema["average"] = ..., or ema.update(...)."""
    update_average.answer(dict(ema), model, decay, skipped)


_OUTSIDE: dict = {}


@update_average.wrong
def keeps_the_counter_elsewhere(ema, model, decay, skipped):
    """The counter that decides is kept outside of `ema` (in a global variable, as an attribute of function or model):
    after a resume it begins anew, and the decay of 1/10 throws the average away; two models in one process share it."""
    number = _OUTSIDE.get("n", 0)
    if not ema:
        update_average.answer(ema, model, decay, skipped)
        _OUTSIDE["n"] = 0
    elif not skipped:
        averaged(ema, model, decay, skipped, decay_of=lambda decay, n: warm(decay, number))
        _OUTSIDE["n"] = number + 1


@update_average.form_of("keeps_the_counter_elsewhere")
def keeps_the_counter_with_the_model(ema, model, decay, skipped):
    if not ema:
        model.num_seen = 0
        update_average.answer(ema, model, decay, skipped)
    elif not skipped:
        averaged(ema, model, decay, skipped, decay_of=lambda decay, n: warm(decay, model.num_seen))
        model.num_seen += 1
