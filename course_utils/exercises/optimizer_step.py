"""Exercises of chapter 06: here freezing, and groups with an lr each; the others come in by import.

Order of the numbers: one window, the windows of a run, a step under float16, clipping, the average, the groups.
"""

from __future__ import annotations

from itertools import product

from torch import nn

from course_utils.exercises.declare import exercise
from course_utils.exercises.optimizer_step_average import update_average
from course_utils.exercises.optimizer_step_clip import clip_to_norm
from course_utils.exercises.optimizer_step_facts import close_facts_differ
from course_utils.exercises.optimizer_step_groups_facts import arranged, gather, sound_groups
from course_utils.exercises.optimizer_step_scaled import scaled_step
from course_utils.exercises.optimizer_step_window import accumulate_window
from course_utils.exercises.optimizer_step_windows import update_windows

__all__ = [
    "accumulate_window", "clip_to_norm", "fine_tuning_groups", "scaled_step", "update_average", "update_windows",
]  # fmt: skip

_STEM = ["stem.0.weight", "stem.0.bias", "stem.1.weight", "stem.1.bias"]
_BODY = ["body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"]
_HEAD = ["head.weight", "head.bias"]
_PLAIN, _SHARED = "of three children", "with a weight that two children share"
_BARE, _BEFORE = "with children without parameters", "with a bias that was frozen before"

_EXPECTED = [
    sound_groups([_BODY, _HEAD], [0.05, 0.1]),
    sound_groups([_STEM, _BODY, _HEAD], [0.001, 0.01, 0.1]),
    sound_groups([_STEM, _BODY, _HEAD], [0.25, 0.5, 1.0]),
    sound_groups([_BODY, _HEAD], [0.5, 1.0]),
    sound_groups([_STEM, _BODY, ["head.bias"]], [0.04, 0.2, 1.0]),
    sound_groups([[n for n in _BODY if n != "body.0.bias"], _HEAD], [0.5, 1.0]),
    sound_groups([_HEAD], [0.1]),
]
_GIVEN = [
    (_PLAIN, 1, 0.1, 0.5), (_PLAIN, 0, 0.1, 0.1), (_BARE, 0, 1.0, 0.5), (_BARE, 2, 1.0, 0.5), (_SHARED, 0, 1.0, 0.2),
    (_BEFORE, 1, 1.0, 0.5), (_PLAIN, 2, 0.1, 0.5),
]  # fmt: skip


@exercise(
    "optimizer_step-6",
    title="Freeze the first layers, and give the others an lr each",
    difficulty="medium",
    minutes=12,
    cases=[(*given, sound) for given, sound in zip(_GIVEN, _EXPECTED, strict=True)],
    expected=_EXPECTED,
    arrange=arranged,
    probe=gather,
    difference=close_facts_differ,
    describe=lambda kind, num_frozen, lr, factor, sound: (
        f"fine_tuning_groups(model, num_frozen={num_frozen}, lr={lr}, factor={factor}), a model {kind}"
    ),
    hints=[
        "Two things of a child move in training: its parameters, by gradients, and BatchNorm's running statistics, by "
        "the forward pass. Which call stops which?",
        "requires_grad_(False) and eval() are for the children to be frozen. For the groups: of every child, the "
        "parameters that have requires_grad now; remember which ones you have placed already.",
        "A set of id(param) knows what is placed. Collect the groups from the input on, and set the lrs when you know "
        "how many there are: reversed(groups) begins with the head.",
    ],
    lesson="model.train() would wake the frozen children up; `freeze` and `depth_groups` in "
    "course_utils.optimizer_step hold against that too, and name what no group covers.",
)
def fine_tuning_groups(model, num_frozen: int, lr: float, factor: float) -> list[dict]:
    """Freeze the first children of a model, and make param groups of the others for an optimizer.

    model      : an nn.Sequential; list(model) are its children from the input to the head, which is
                 the last one and has parameters. The caller has called model.train(), and does not
                 call it again. Some parameters may be frozen already; they stay so
    num_frozen : so many of the first children are frozen, 0 or more; not the head. No training
                 step may change anything in them, and their dropout is off
    lr, factor : the head's group has this lr, each group before it `factor` times the lr of the
                 one behind it
    returns    : [{"params": list of parameters, "lr": float}, ...] from the input to the head, one
                 group for each child that has trainable parameters, none for the other children

    Every trainable parameter stands in one group, once: one that two children share belongs to the
    first of them. Children that are not frozen stay in training mode.

    Four children, three linear layers and a ReLU behind the first, give with num_frozen=1, lr=0.1
    and factor=0.5 two groups, with the lrs 0.05 and 0.1.
    """
    for child in list(model)[:num_frozen]:
        child.requires_grad_(False)
        child.eval()
    groups, placed = [], set()
    for child in model:
        params = [p for p in child.parameters() if p.requires_grad and id(p) not in placed]
        placed.update(id(p) for p in params)
        if params:
            groups.append({"params": params})
    for depth, group in enumerate(reversed(groups)):
        group["lr"] = lr * factor**depth
    return groups


def _grouped(
    model,
    num_frozen,
    lr,
    factor,
    *,
    first=0,
    evaluates="frozen",
    gradients=True,
    takes="trainable",
    once=True,
    empty=False,
    lrs="geometric",
    counts="groups",
    only=slice(None),
) -> list[dict]:
    """The answer with its decisions as arguments.

    first     : added to num_frozen
    evaluates : which children go into evaluation mode, "frozen", "none", "all" or "norms" (of the frozen ones)
    takes     : "trainable", "all", or "thawed": those of the children that are not frozen, made trainable
    counts    : what the depth of an lr counts, "groups", "children" or "thawed" (those that are not frozen)
    only      : the children that get groups; "rest" for those that are not frozen
    """
    children = list(model)
    only = slice(num_frozen, None) if only == "rest" else only
    frozen = children[: max(num_frozen + first, 0)]
    for child in frozen:
        child.requires_grad_(not gradients)
    for child in {"frozen": frozen, "all": [model]}.get(evaluates, []):
        child.eval()
    groups, placed = [], set()
    numbered = children[num_frozen:] if counts == "thawed" else children
    for child in children[only]:
        params = list(child.parameters())
        if takes == "thawed" and child not in frozen:
            child.requires_grad_(True)
        if takes != "all":
            params = [p for p in params if p.requires_grad]
        params = [p for p in params if not once or id(p) not in placed]
        placed.update(map(id, params))
        if params or empty:
            groups.append({"params": params, "place": numbered.index(child) if child in numbered else 0})
    most = (len(groups) if counts == "groups" else len(numbered)) - 1
    for number, group in enumerate(groups):
        place = group.pop("place")
        depth = most - (number if counts == "groups" else place)
        group["lr"] = {
            "geometric": lr * factor**depth, "reversed": lr * factor ** (most - depth), "one": lr,
            "linear": lr * (1 - (1 - factor) * depth), "shifted": lr * factor ** (depth + 1),
            "two": lr * (factor if depth else 1), "inverse": lr / factor**depth,
        }[lrs]  # fmt: skip
    return groups


def _declare(name: str, *forms: dict) -> None:
    for how in forms:
        fine_tuning_groups.form_of(name)(lambda *given, how=how: _grouped(*given, **how))


@fine_tuning_groups.wrong
def stops_the_gradients_only(model, num_frozen, lr, factor):
    """requires_grad_(False) stops gradients, and BatchNorm's running statistics are moved by the forward pass: in
    training mode the "frozen" layers drift with every batch, and their dropout is on. What they compute in evaluation
    is another function after every epoch. They need eval() as well."""
    return _grouped(model, num_frozen, lr, factor, evaluates="none")


for _takes, _once, _counts in product(("trainable", "all"), (True, False), ("groups", "children")):
    _declare(
        "stops_the_gradients_only",
        {
            "evaluates": "none",
            "takes": _takes,
            "once": _once,
            "counts": _counts,
            "empty": _takes == "all",
            "only": "rest",
        },
    )


@fine_tuning_groups.wrong
def stops_the_statistics_only(model, num_frozen, lr, factor):
    """eval() stops statistics and dropout, not the gradients: the layers train on like all the others. Their parameters
    need requires_grad_(False)."""
    return _grouped(model, num_frozen, lr, factor, gradients=False)


@fine_tuning_groups.wrong
def evaluates_the_whole_model(model, num_frozen, lr, factor):
    """The whole model is in evaluation mode: the layers that train have no dropout, and their BatchNorm normalises by
    statistics of the old task, which never adapt. Only the frozen children."""
    return _grouped(model, num_frozen, lr, factor, evaluates="all")


@fine_tuning_groups.wrong
def reverses_the_lrs(model, num_frozen, lr, factor):
    """The lrs run the wrong way: the layers nearest to the input, which hold what was learnt before, move fastest, and
    the new head slowest. That forgets what fine-tuning was to keep."""
    return _grouped(model, num_frozen, lr, factor, lrs="reversed")


_declare("reverses_the_lrs", {"lrs": "inverse"})
_declare("reverses_the_lrs", *({"lrs": "reversed", "counts": counts} for counts in ("children", "thawed")))


@fine_tuning_groups.wrong
def gives_all_one_lr(model, num_frozen, lr, factor):
    """All groups have one lr (or all but the head one and the same): a factor for each step of depth is asked for."""
    return _grouped(model, num_frozen, lr, factor, lrs="one")


_declare("gives_all_one_lr", {"lrs": "two"})


@fine_tuning_groups.wrong
def lowers_the_lrs_by_steps_of_one_size(model, num_frozen, lr, factor):
    """The lr falls by the same amount from group to group: in a deep model it reaches 0, and below that the layers
    climb the loss. Multiply by `factor` once more for each group, lr * factor**depth."""
    return _grouped(model, num_frozen, lr, factor, lrs="linear")


@fine_tuning_groups.wrong
def begins_one_step_too_low(model, num_frozen, lr, factor):
    """The depth is counted from 1: the head has factor * lr, and no group has the lr that was asked for. The head's
    exponent is 0."""
    return _grouped(model, num_frozen, lr, factor, lrs="shifted")


@fine_tuning_groups.wrong
def counts_children_without_parameters(model, num_frozen, lr, factor):
    """The depth counts all children: a ReLU between two layers lowers the lr of everything before it by one more
    factor, and with many of them the first layers hardly move. Count groups."""
    return _grouped(model, num_frozen, lr, factor, counts="children")


_declare("counts_children_without_parameters", {"counts": "thawed"})


@fine_tuning_groups.wrong
def leaves_the_head_out(model, num_frozen, lr, factor):
    """The head is in no group: the new layer, on which everything depends, stays as it was drawn, and the rest learns
    to live with it. The loss falls all the same. Every trainable parameter needs a group."""
    return _grouped(model, num_frozen, lr, factor, only=slice(None, -1))


@fine_tuning_groups.wrong
def holds_a_parameter_twice(model, num_frozen, lr, factor):
    """A weight that two children share stands in two groups. An optimizer refuses that; where it does not, as in one
    that was put together from two, the weight is moved twice in every step. Remember what is placed, by id."""
    return _grouped(model, num_frozen, lr, factor, once=False)


@fine_tuning_groups.wrong
def holds_frozen_parameters(model, num_frozen, lr, factor):
    """Frozen parameters stand in the groups too: a gradient that is left from before the freezing is applied in the
    next step, weight decay and momentum with it, and the groups' lrs are shifted. Take those with requires_grad."""
    return _grouped(model, num_frozen, lr, factor, takes="all")


@fine_tuning_groups.form_of("holds_frozen_parameters")
def holds_parameters_that_were_frozen_before(model, num_frozen, lr, factor):
    for child in list(model)[:num_frozen]:
        child.requires_grad_(False)
        child.eval()
    return _grouped(model, 0, lr, factor, takes="all", only=slice(num_frozen, None))


@fine_tuning_groups.wrong
def thaws_what_was_frozen(model, num_frozen, lr, factor):
    """requires_grad_(True) is set on all of the children that train: what somebody froze on purpose (an embedding, a
    bias) begins to move. Leave requires_grad as it is there."""
    return _grouped(model, num_frozen, lr, factor, takes="thawed")


@fine_tuning_groups.wrong
def makes_empty_groups(model, num_frozen, lr, factor):
    """Children without trainable parameters have groups, with nothing in them, and take part in the count: the lrs of
    the others are too low, and a log of lrs shows layers that do not train."""
    return _grouped(model, num_frozen, lr, factor, empty=True)


@fine_tuning_groups.wrong
def freezes_one_too_many(model, num_frozen, lr, factor):
    """One child more than asked for is frozen: [: num_frozen + 1]. With 0 to freeze the first layer never trains."""
    return _grouped(model, num_frozen, lr, factor, first=1)


@fine_tuning_groups.wrong
def freezes_the_last_ones(model, num_frozen, lr, factor):
    """The children at the output are frozen: the part that has to learn the new task stands still, and the general part
    before it moves. The first ones are meant, [:num_frozen]. (And [-0:] is all of them.)"""
    children = list(model)
    for child in children[len(children) - num_frozen :]:
        child.requires_grad_(False)
        child.eval()
    return _grouped(model, 0, lr, factor)


def _frozen_norms(model: nn.Module, num_frozen: int) -> list[nn.Module]:
    return [m for child in list(model)[:num_frozen] for m in child.modules() if isinstance(m, nn.BatchNorm1d)]


@fine_tuning_groups.wrong
def leaves_dropout_on(model, num_frozen, lr, factor):
    """Only BatchNorm is in evaluation mode: the dropout of the frozen children goes on, so that the layers behind them
    see another frozen part in every step. Put the whole child into evaluation mode."""
    groups = _grouped(model, num_frozen, lr, factor, evaluates="none")
    for norm in _frozen_norms(model, num_frozen):
        norm.eval()
    return groups
