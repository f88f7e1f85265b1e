"""The exercise of chapter 05 about checks before a training: why a model would not train."""

from __future__ import annotations

import copy

import torch

from course_utils.evaluation import eval_mode
from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import close_facts_differ
from course_utils.exercises.training_loop_checks_facts import FOUND, faulty_run, found_faults, sound_faults

_BODY, _HEAD = ["body.weight", "norm.bias", "norm.weight"], ["head.bias", "head.weight"]
_CASES = {
    ("", (0, 2, 1, 0)): ([], [], []),
    ("cut", (0, 2, 1, 0)): (_BODY, [], []),
    ("replaced", (0, 2, 1, 0)): ([], _HEAD, []),
    ("", (3, 2, 1, 3)): (None, [], [3]),
    ("frozen", (0, 2, 1, 0)): ([], [], []),
    ("dead", (0, 2, 1, 0)): (["body.weight", "head.weight", "norm.bias", "norm.weight"], [], []),
    ("cut, old", (0, 2, 1, 0)): (_BODY, [], []),
    ("replaced", (4, -1, 1, 4)): (None, _HEAD, [-1, 4]),
    ("tiny", (2, 2, 2, 2)): ([], [], []),
}
_WORDS = {
    "cut": "a head that gets a detached tensor",
    "replaced": "a head that was replaced after the optimizer was made",
    "frozen": "a body that is frozen on purpose",
    "dead": "units that are never active",
    "old": "gradients left over from an earlier use",
    "tiny": "a sound model with gradients of about 1e-10",
}


def _words(faults: str, targets: tuple) -> str:
    found = " and ".join(_WORDS[fault] for fault in faults.split(", ") if fault)
    return f"find_faults, {found or 'a sound model'}, targets {list(targets)}, num_classes=3"


@exercise(
    "training_loop-5",
    title="Why it would not train",
    difficulty="hard",
    minutes=20,
    cases=list(_CASES),
    expected=[sound_faults(*found) for found in _CASES.values()],
    arrange=lambda faults, targets: faulty_run(faults, list(targets)),
    observe=found_faults,
    difference=close_facts_differ,
    describe=_words,
    imports="import copy",
    hints=[
        "Three questions, and an order: with a target out of range no loss can be computed, so look at the targets "
        "first. Which of the other two questions needs a backward pass, and which must be asked of the model itself?",
        "Run forward and backward on copy.deepcopy(model): names are the same, and nothing of the model moves. The "
        "optimizer holds the parameters of the model, not of the copy: compare by id(parameter).",
        "After forward, loss and backward of the copy, a trainable parameter got nothing if its grad is None or has no "
        "entry other than 0: `p.grad is None or not p.grad.any()`. Frozen ones (requires_grad False) are left out.",
    ],
    lesson="sanity_check of this chapter asks these and more, and says what helps. It takes seconds.",
)
def find_faults(model, optimizer, loss_fn, inputs, targets, num_classes: int) -> dict:
    """Look, before a training, for three reasons why a part of it would not train.

    model     : an nn.Module in training mode; a frozen part may be in evaluation mode
    optimizer : a torch.optim.Optimizer with any number of param groups
    loss_fn   : loss_fn(model(inputs), targets) is a number; for a target out of range it raises
    targets   : int64 (B,), classes 0 ... num_classes - 1 if all is well
    returns   : a dict of three sorted lists, empty where all is well:
                "no_gradient"      names of trainable parameters whose gradient, after one backward
                                   pass of this batch in either mode, is None or 0 everywhere; None
                                   in place of the list if a target is out of range
                "not_in_optimizer" names of trainable parameters that no group holds
                "bad_targets"      the targets that are no class, each once

    Trainable are parameters with requires_grad. Whatever was found: weights, buffers and modes of
    the model are as they came, and no gradient of this check is left behind in it.

    Targets [3, 2, 1, 3] with num_classes=3 and nothing else amiss give {"no_gradient": None,
    "not_in_optimizer": [], "bad_targets": [3]}: they count from 1.
    """
    bad = sorted({target for target in targets.tolist() if not 0 <= target < num_classes})
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    outside = sorted(name for name, p in trainable if id(p) not in held)
    silent = None
    if not bad:
        twin = copy.deepcopy(model)
        loss_fn(twin(inputs), targets).backward()
        grads = [(name, p.grad) for name, p in twin.named_parameters() if p.requires_grad]
        silent = sorted(name for name, grad in grads if grad is None or not grad.any())
    return {"no_gradient": silent, "not_in_optimizer": outside, "bad_targets": bad}


def _silent(model, loss_fn, inputs, targets, *, frozen=False, got=lambda grad: grad is not None and grad.any()) -> list:
    """Names without a gradient, after a backward pass of this very model."""
    loss_fn(model(inputs), targets).backward()
    return sorted(n for n, p in model.named_parameters() if (frozen or p.requires_grad) and not got(p.grad))


def _outside(model, optimizer, *, frozen=False, groups=slice(None), same=lambda p, q: p is q) -> list[str]:
    held = [p for group in optimizer.param_groups[groups] for p in group["params"]]
    named = [(n, p) for n, p in model.named_parameters() if frozen or p.requires_grad]
    return sorted(n for n, p in named if not any(same(p, q) for q in held))


def _bad(targets, num_classes, *, good=lambda target, num_classes: 0 <= target < num_classes) -> list[int]:
    return sorted({target for target in targets.tolist() if not good(target, num_classes)})


def _faults(
    model, optimizer, loss_fn, inputs, targets, num_classes, *, twin=copy.deepcopy, after=lambda model: None, bad=None,
    first=False, unseen=None, silent=None, outside=None, of_the_twin=False, retold=lambda bad: bad,
) -> dict:  # fmt: skip
    """The answer with its decisions as arguments; `first`: the loss is computed before the targets are looked at."""
    wrong, names, used = _bad(targets, num_classes, **(bad or {})), unseen, model
    if of_the_twin or first or not wrong:
        used = twin(model)
    if first or not wrong:
        names = _silent(used, loss_fn, inputs, targets, **(silent or {}))
        after(used)
    found = _outside(used if of_the_twin else model, optimizer, **(outside or {}))
    return dict(zip(FOUND, (names, found, retold(wrong)), strict=True))


def _form(mistake: str, **how) -> None:
    find_faults.form_of(mistake)(
        lambda model, optimizer, loss_fn, inputs, targets, num_classes: _faults(
            model, optimizer, loss_fn, inputs, targets, num_classes, **how
        )
    )


def _itself(model):
    return model


def _cleared(model):
    model.zero_grad()
    return model


def _in_evaluation_mode(model):
    return _cleared(model.eval())


@find_faults.wrong
def computes_the_loss_first(model, optimizer, loss_fn, inputs, targets, num_classes):
    """The loss is computed before the targets are looked at: cross_entropy raises an IndexError, and the check for the
    very fault never runs. On a GPU it is a "device-side assert", after which the whole process is of no use."""
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, first=True)


_form("computes_the_loss_first", first=True, twin=_cleared)
_form("computes_the_loss_first", first=True, twin=_cleared, after=_cleared)


@find_faults.wrong
def leaves_traces(model, optimizer, loss_fn, inputs, targets, num_classes):
    """The pass is made with the model itself: BatchNorm's statistics move by this batch, the gradients of the check go
    into the first update, and old ones pass for its own. A check that changes the run is a new fault. Use a copy."""
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, twin=_cleared)


_form("leaves_traces", twin=_cleared, after=_cleared)
_form("leaves_traces", twin=lambda model: _cleared(model).train())
_form("leaves_traces", twin=_itself)
_form("leaves_traces", twin=_itself, after=_cleared)
_form("leaves_traces", twin=_in_evaluation_mode, after=lambda model: model.train())


@find_faults.form_of("leaves_traces")
def leaves_its_gradients(model, optimizer, loss_fn, inputs, targets, num_classes):
    with eval_mode(model):
        return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, twin=_cleared)


@find_faults.form_of("leaves_traces")
def leaves_its_gradients_among_old_ones(model, optimizer, loss_fn, inputs, targets, num_classes):
    with eval_mode(model):
        return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, twin=_itself)


@find_faults.wrong
def reads_old_gradients(model, optimizer, loss_fn, inputs, targets, num_classes):
    """Gradients that were there before are not taken away: a parameter that gets none still shows the one of an earlier
    use, and the cut is not seen. The check is right in a fresh kernel, and wrong in a notebook that was used."""
    with eval_mode(model):
        return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, twin=_itself, after=_cleared)


@find_faults.wrong
def leaves_another_mode(model, optimizer, loss_fn, inputs, targets, num_classes):
    """The model is put into evaluation mode, so that no statistics move. Left in it, the first epoch trains without
    Dropout; after model.train() what was frozen is awake. Put each module's own mode back, or use a copy."""
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, twin=_in_evaluation_mode, after=_cleared)


_form("leaves_another_mode", twin=_in_evaluation_mode)
_form("leaves_another_mode", twin=_in_evaluation_mode, after=lambda model: _cleared(model.train()))


@find_faults.wrong
def overlooks_zeros(model, optimizer, loss_fn, inputs, targets, num_classes):
    """Only None counts as no gradient. Behind a ReLU whose units are never active, or a factor of 0, there is a
    gradient of zeros: nothing moves there either."""
    got = {"got": lambda grad: grad is not None}
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, silent=got)


@find_faults.wrong
def fails_for_none(model, optimizer, loss_fn, inputs, targets, num_classes):
    """A parameter that the loss does not reach has no gradient at all, None: .abs() and .any() of it fail, and instead
    of the name of the fault there is an AttributeError. Ask `is None` first."""
    got = {"got": lambda grad: grad.abs().sum() > 0}
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, silent=got)


for _got in (lambda grad: grad.any(), lambda grad: grad.norm() > 0):
    _form("fails_for_none", silent={"got": _got})


@find_faults.wrong
def asks_another_question_than_all_zeros(model, optimizer, loss_fn, inputs, targets, num_classes):
    """ "0 everywhere" is asked otherwise, and sound parameters are reported: all() fails where one unit is inactive;
    sum() is 0 where entries cancel out, as over the classes in the bias before cross entropy; max() is 0 where no entry
    is positive; a threshold, or allclose, takes small entries for 0. It is `not grad.any()`."""
    got = {"got": lambda grad: grad is not None and grad.all()}
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, silent=got)


for _got in (
    lambda grad: grad is not None and grad.sum() != 0,
    lambda grad: grad is not None and grad.max() > 0,
    lambda grad: grad is not None and grad.norm() > 1e-7,  # and allclose, which has a tolerance of 1e-8
):
    _form("asks_another_question_than_all_zeros", silent={"got": _got})


@find_faults.wrong
def asks_for_the_copy(model, optimizer, loss_fn, inputs, targets, num_classes):
    """The copy's parameters are looked for in the optimizer. It holds those of the model, so that every parameter of
    every model is reported. Ask with the model itself."""
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, of_the_twin=True)


@find_faults.wrong
def compares_what_parameters_look_like(model, optimizer, loss_fn, inputs, targets, num_classes):
    """Parameters are compared by what they look like and not by which they are. A replaced head has shape, name and
    number of the old one, and the fault is not seen. `p in list` and == compare the entries: other shapes are an error,
    and equal entries are another parameter all the same. Compare id(p), ask with `is`, or use a set."""
    same = {"same": lambda p, q: p.shape == q.shape}
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, outside=same)


_form("compares_what_parameters_look_like", outside={"same": lambda p, q: True})
for _first, _all in ((False, False), (True, False), (False, True), (True, True)):
    _form("compares_what_parameters_look_like", first=_first, outside={"same": lambda p, q: p in [q], "frozen": _all})


@find_faults.wrong
def looks_at_one_group(model, optimizer, loss_fn, inputs, targets, num_classes):
    """Only the first param group is read: what is in the others is reported though it is trained, and a check that
    cries wolf is soon switched off. Go through all of optimizer.param_groups."""
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, outside={"groups": slice(1)})


@find_faults.wrong
def reports_frozen_parameters(model, optimizer, loss_fn, inputs, targets, num_classes):
    """Frozen parameters are reported: they are not to be trained. In fine-tuning that is nearly all of the model, and
    the one name that matters drowns among them. Leave out those without requires_grad."""
    frozen = {"frozen": True}
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, silent=frozen, outside=frozen)


_form("reports_frozen_parameters", silent={"frozen": True})
_form("reports_frozen_parameters", outside={"frozen": True})


@find_faults.wrong
def takes_num_classes_for_a_class(model, optimizer, loss_fn, inputs, targets, num_classes):
    """num_classes itself passes for a class: with `<=` labels that count from 1, the most common fault of all, are not
    seen, and the loss raises. The last class is num_classes - 1."""
    good = {"good": lambda target, num_classes: 0 <= target <= num_classes}
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, bad=good)


_form("takes_num_classes_for_a_class", bad={"good": lambda target, num_classes: target <= num_classes})
_form("takes_num_classes_for_a_class", retold=lambda bad: [target for target in bad if target != 3])


@find_faults.wrong
def forgets_negative_targets(model, optimizer, loss_fn, inputs, targets, num_classes):
    """Only targets that are too large are looked for. -1 is what many tables write for "no label"; the loss raises for
    it, and as an index it is the last class. A class is 0 or more."""
    good = {"good": lambda target, num_classes: target < num_classes}
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, bad=good)


@find_faults.wrong
def calls_unseen_sound(model, optimizer, loss_fn, inputs, targets, num_classes):
    """With a bad target there was no backward pass, and the list of parameters without a gradient is empty: "all is
    well" is said of what was never looked at. None says that it was not."""
    return _faults(model, optimizer, loss_fn, inputs, targets, num_classes, unseen=[])


@find_faults.wrong
def tells_one_fault_only(model, optimizer, loss_fn, inputs, targets, num_classes):
    """After the first fault the others are not looked for: each costs another start, and behind a cut graph a head that
    the optimizer does not hold stays hidden. Tell all three."""
    found = find_faults.answer(model, optimizer, loss_fn, inputs, targets, num_classes)
    found["not_in_optimizer"] = [] if found["no_gradient"] or found["bad_targets"] else found["not_in_optimizer"]
    return found


@find_faults.form_of("tells_one_fault_only")
def tells_what_the_optimizer_lacks_first(model, optimizer, loss_fn, inputs, targets, num_classes):
    found = find_faults.answer(model, optimizer, loss_fn, inputs, targets, num_classes)
    if found["not_in_optimizer"]:
        found |= {"no_gradient": [], "bad_targets": []}
    return found


def _unmoved(model, optimizer, loss_fn, inputs, targets) -> list[str]:
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    loss_fn(model(inputs), targets).backward()
    optimizer.step()
    trainable = ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
    return sorted(name for name, parameter in trainable if torch.equal(before[name], parameter))


@find_faults.wrong
def looks_at_what_an_update_moves(model, optimizer, loss_fn, inputs, targets, num_classes):
    """An update is made, and what did not move is reported: no gradient and no optimizer look alike, momentum and
    weight decay move what has none, and the model has been trained. Look at the gradients."""
    bad = _bad(targets, num_classes)
    model.zero_grad()
    silent = None if bad else _unmoved(model, optimizer, loss_fn, inputs, targets)
    return dict(zip(FOUND, (silent, _outside(model, optimizer), bad), strict=True))


@find_faults.form_of("looks_at_what_an_update_moves")
def looks_at_what_an_update_of_a_copy_moves(model, optimizer, loss_fn, inputs, targets, num_classes):
    bad = _bad(targets, num_classes)
    twin, other = copy.deepcopy((model, optimizer))
    silent = None if bad else _unmoved(twin, other, loss_fn, inputs, targets)
    return dict(zip(FOUND, (silent, _outside(model, optimizer), bad), strict=True))
