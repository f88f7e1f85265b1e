"""The exercise of chapter 05 about the best model of a run, kept while the run goes on."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping

import torch
from torch import nn

from course_utils.exercises.compare import difference
from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import Said, close_facts_differ
from course_utils.exercises.wording import kind

_BEST, _KIND, _NAMES = "the best after each epoch, as (epoch, loss)", "the state that is kept", "the names in it"
_WEIGHTS, _GRAPH = "the state that is kept at the end is", "its tensors"
_LATER = "when the model is trained on, the kept state"
_A_STATE_DICT, _ALL, _PLAIN, _STAYS = "a state dict", "those of model.state_dict()", "without a graph", "stays"


class _Net(nn.Module):
    """A weight and a running mean (a buffer), both epoch + 1 after each epoch of training."""

    def __init__(self, losses: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("running_mean", torch.zeros(2))
        self.register_buffer("num_updates", torch.tensor(0))
        self.losses = losses

    def train_to(self, epoch: int) -> None:
        """As an optimizer does it: in the tensors that are there; a gradient is left behind."""
        with torch.no_grad():
            for tensor in self.state_dict().values():
                tensor.fill_(epoch + 1)
        self.weight.grad = torch.ones(2)


def _first_epoch(losses: list[float]) -> tuple:
    model = _Net(losses)
    model.train_to(0)
    return None, model, losses[0], 0


def _best_facts(fn: Callable, result, best, model: _Net, loss: float, epoch: int) -> dict:
    """The rest of the run, with the result of each call given to the next; then what has been kept."""
    kept, seen = result, [_told(result)]
    for epoch, loss in enumerate(model.losses[1:], start=1):
        model.train_to(epoch)
        kept = fn(kept, model, loss, epoch)
        seen.append(_told(kept))
    other = next((told for told in seen if isinstance(told, str)), None)
    return {_BEST: Said(other, f"{other} came back") if other else seen} | _state_facts(kept, model)


def _told(best) -> tuple | str | None:
    """(epoch, loss), or what it is if it is no such dict."""
    if best is None:
        return None
    if not isinstance(best, Mapping):
        return kind(best)
    missing = [name for name in ("loss", "epoch", "state") if name not in best]
    return f"a dict without {missing[0]!r}" if missing else (best["epoch"], best["loss"])


def _state_facts(kept, model: _Net) -> dict:
    state = kept.get("state") if isinstance(kept, Mapping) else None
    if not isinstance(state, Mapping):
        return {_KIND: kind(state)}
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    graph = any(tensor.grad_fn is not None for tensor in tensors.values())
    lacking = [name for name in model.state_dict() if name not in tensors]
    facts = {_KIND: _A_STATE_DICT, _NAMES: f"{lacking[0]} is not there" if lacking else _ALL}
    facts |= {_WEIGHTS: _of_epochs(tensors), _GRAPH: "with a graph" if graph else _PLAIN}
    before = copy.deepcopy({name: tensor.detach() for name, tensor in tensors.items()})
    model.train_to(98)
    now = {name: tensor.detach() for name, tensor in tensors.items()}
    return facts | {_LATER: "changes with it" if difference(before, now, rel=0, abs_=0) else _STAYS}


def _of_epochs(tensors: dict[str, torch.Tensor]) -> str:
    epochs = sorted({int(tensor.max()) - 1 for tensor in tensors.values()})
    return "that of epoch " + " and ".join(map(str, epochs))


def _sound(*best: tuple | None) -> dict:
    facts = {_BEST: list(best), _KIND: _A_STATE_DICT, _NAMES: _ALL}
    return facts | {_WEIGHTS: f"that of epoch {best[-1][0]}", _GRAPH: _PLAIN, _LATER: _STAYS}


@exercise(
    "training_loop-4",
    title="The best model, kept",
    difficulty="medium",
    minutes=10,
    cases=[
        ([0.5],),
        ([0.75, 0.5],),
        ([0.5, 0.25, 0.75, 0.375],),
        ([0.5, 0.25, 0.25, 0.5],),
        ([0.5, 0.25, math.nan, 0.375],),
        ([math.nan, 0.5, 0.25, 0.375],),
        ([0.5, 0.0, 0.25],),
    ],
    expected=[
        _sound((0, 0.5)),
        _sound((0, 0.75), (1, 0.5)),
        _sound((0, 0.5), (1, 0.25), (1, 0.25), (1, 0.25)),
        _sound((0, 0.5), (1, 0.25), (1, 0.25), (1, 0.25)),
        _sound((0, 0.5), (1, 0.25), (1, 0.25), (1, 0.25)),
        _sound(None, (1, 0.5), (2, 0.25), (2, 0.25)),
        _sound((0, 0.5), (1, 0.0), (1, 0.0)),
    ],
    arrange=_first_epoch,
    probe=_best_facts,
    difference=close_facts_differ,
    describe=lambda losses: f"best = keep_best(best, model, loss, epoch), once an epoch, with the losses {losses}",
    imports="import copy\nimport math",
    hints=[
        "model.state_dict() is a dict of the model's own tensors: training goes on in these very tensors. What has to "
        "be done so that the weights of today are there tomorrow, and the running statistics of BatchNorm with them?",
        "Decide first: a NaN is never the best, the first loss that is a number always is, and then only a lower one. "
        "Where nothing is better, hand back what came in.",
        "copy.deepcopy of the state dict copies every tensor; so does value.clone() for each of its entries. A copy of "
        "the dict alone, dict(state) or state.copy(), holds the same tensors.",
    ],
    lesson="On a GPU, copy to the CPU: value.detach().to('cpu', copy=True). (.cpu() copies nothing that is there.)",
)
def keep_best(best, model, loss: float, epoch: int):
    """The best epoch so far and its weights; called after each validation, while training goes on.

    best    : what the call before returned; None at first
    model   : an nn.Module as it is after this epoch; it is trained on afterwards
    loss    : its validation loss, a finite number or NaN; lower is better, of equal ones the first
              stays the best. NaN is never the best, not even where there is none yet
    epoch   : 0, 1, ...
    returns : None while no loss was a number, else a dict: "loss" and "epoch" of the best, and
              "state", the state dict (parameters and buffers) that the model had then. Whatever
              is done to the model later, it stays as it is, and it holds no graph

    Losses 0.5, 0.25, 0.75: after all three calls the result is that of epoch 1, {"loss": 0.25,
    "epoch": 1, "state": ...}, with the weights before the training of epoch 2.
    """
    if math.isnan(loss) or (best is not None and loss >= best["loss"]):
        return best
    return {"loss": loss, "epoch": epoch, "state": copy.deepcopy(model.state_dict())}


def _kept(best, model, loss, epoch, *, better=lambda loss, lowest: loss < lowest, state=None, nan=False):
    """The answer with its decisions as arguments; `nan`: a first loss that is NaN is taken like any other."""
    state = state or (lambda model: copy.deepcopy(model.state_dict()))
    if (math.isnan(loss) and not nan) if best is None else not better(loss, best["loss"]):
        return best
    return {"loss": loss, "epoch": epoch, "state": state(model)}


def _form(mistake: str, **how) -> None:
    keep_best.form_of(mistake)(lambda best, model, loss, epoch: _kept(best, model, loss, epoch, **how))


@keep_best.wrong
def keeps_a_reference(best, model, loss, epoch):
    """The tensors are the model's own: state_dict() copies nothing, nor do dict(...), .copy(), .detach() or, for what
    is on the CPU already, .cpu(). Training goes on in them, and the "best" weights are those of the last epoch."""
    return _kept(best, model, loss, epoch, state=lambda model: model.state_dict())


_form("keeps_a_reference", state=lambda model: model.state_dict(), nan=True)
_form("keeps_a_reference", state=lambda model: model.state_dict(), better=lambda loss, lowest: loss <= lowest)


@keep_best.wrong
def keeps_the_later_of_equals(best, model, loss, epoch):
    """`<=` lets a later epoch with the same loss take the place: a state is copied for nothing, and the result hangs on
    the epoch at which the run was ended. The first of equal ones is asked for."""
    return _kept(best, model, loss, epoch, better=lambda loss, lowest: loss <= lowest)


_form("keeps_the_later_of_equals", better=lambda loss, lowest: loss <= lowest, nan=True)


@keep_best.wrong
def lets_nan_win(best, model, loss, epoch):
    """A NaN takes the place of a loss, since `loss >= best` and `loss > best` are false for it. The weights of a broken
    validation are kept, and whatever comes later is compared with NaN. Ask math.isnan first."""
    return _kept(best, model, loss, epoch, better=lambda loss, lowest: not loss >= lowest, nan=True)


_form("lets_nan_win", better=lambda loss, lowest: not loss >= lowest)
_form("lets_nan_win", better=lambda loss, lowest: not loss > lowest, nan=True)
_form("lets_nan_win", better=lambda loss, lowest: math.isnan(loss) or loss < lowest, nan=True)


@keep_best.wrong
def takes_a_first_nan(best, model, loss, epoch):
    """The first loss is taken without a look: if it is NaN nothing is ever lower, since every comparison with NaN is
    false. After a hundred good epochs the best is still that of the first one."""
    return _kept(best, model, loss, epoch, nan=True)


@keep_best.wrong
def forgets_the_buffers(best, model, loss, epoch):
    """Only parameters are kept. Buffers, as the running statistics of BatchNorm, are of the last epoch when the best is
    loaded, or load_state_dict refuses because they are missing. state_dict() holds both."""
    return _kept(best, model, loss, epoch, state=lambda model: {"weight": model.weight.detach().clone()})


_form("forgets_the_buffers", state=lambda model: {"weight": model.weight.clone()})
_form("forgets_the_buffers", state=lambda model: {"weight": model.weight})
_form("forgets_the_buffers", state=lambda model: {"weight": model.weight.detach()})
_form("forgets_the_buffers", state=lambda model: copy.deepcopy(dict(model.named_parameters())))
_form("forgets_the_buffers", state=lambda model: [p.detach().clone() for p in model.parameters()])


@keep_best.wrong
def keeps_the_graph(best, model, loss, epoch):
    """The parameters were cloned with their graph (clone() of something that requires grad is a node of it): each of
    these tensors holds on to the model's own parameter, and deepcopy refuses them. Use state_dict(), or detach()."""
    state = lambda model: {  # noqa: E731
        **{name: parameter.clone() for name, parameter in model.named_parameters()},
        **{name: buffer.clone() for name, buffer in model.named_buffers()},
    }
    return _kept(best, model, loss, epoch, state=state)


@keep_best.wrong
def keeps_the_whole_model(best, model, loss, epoch):
    """A copy of the whole model is kept, not its state: hooks and whatever else hangs on the model are copied with it,
    it cannot be given to load_state_dict, and a file of it opens only where its class has the same name and place."""
    return _kept(best, model, loss, epoch, state=copy.deepcopy)


_form("keeps_the_whole_model", state=lambda model: model)


@keep_best.wrong
def takes_the_highest(best, model, loss, epoch):
    """The highest loss wins, as an accuracy would: the worst epoch of the run is kept."""
    return _kept(best, model, loss, epoch, better=lambda loss, highest: loss > highest)


_form("takes_the_highest", better=lambda loss, highest: loss > highest, nan=True)


@keep_best.wrong
def copies_after_every_epoch(best, model, loss, epoch):
    """Loss and epoch are those of the best, the weights are those of the last epoch: the copy is made whether it is
    better or not. The figure in the table and the file beside it do not belong together."""
    best = _kept(best, model, loss, epoch)
    return best and best | {"state": copy.deepcopy(model.state_dict())}


@keep_best.wrong
def keeps_the_last_epoch(best, model, loss, epoch):
    """Whatever comes last is kept: that is a checkpoint for going on, not the best. After the overfitted end of a run
    the good weights of its middle are gone."""
    return {"loss": loss, "epoch": epoch, "state": copy.deepcopy(model.state_dict())}


_form("keeps_the_last_epoch", better=lambda loss, lowest: True)


@keep_best.wrong
def keeps_the_first_epoch(best, model, loss, epoch):
    """The first epoch that comes is kept for good: nothing replaces it, or `best` is changed in a name of the
    function's own that nobody hands back."""
    return _kept(best, model, loss, epoch, better=lambda loss, lowest: False)


_form("keeps_the_first_epoch", better=lambda loss, lowest: False, nan=True)


@keep_best.wrong
def loses_the_best_where_nothing_is_better(best, model, loss, epoch):
    """Where the loss is not lower, None comes back: `best = keep_best(best, ...)` has then lost the best, and the next
    epoch, however bad, is the best again. Hand back what came in."""
    found = _kept(best, model, loss, epoch)
    return None if found is best else found


@keep_best.form_of("loses_the_best_where_nothing_is_better")
def hands_back_inside_the_if_alone(best, model, loss, epoch):
    found = _kept(best, model, loss, epoch, nan=True)
    return None if found is best else found


@keep_best.form_of("loses_the_best_where_nothing_is_better")
def loses_the_best_for_a_nan_alone(best, model, loss, epoch):
    return None if math.isnan(loss) else _kept(best, model, loss, epoch)


@keep_best.wrong
def takes_a_loss_of_0_for_none(best, model, loss, epoch):
    """A best loss of 0.0 counts as none at all: `if best["loss"]` and `best["loss"] or ...` are false for the number 0,
    as for None, and whatever comes next takes its place. Ask `is None`."""
    return _kept(best if best and best["loss"] else None, model, loss, epoch)


@keep_best.form_of("takes_a_loss_of_0_for_none")
def takes_a_loss_of_0_for_none_and_a_nan_for_a_loss(best, model, loss, epoch):
    return _kept(best if best and best["loss"] else None, model, loss, epoch, nan=True)


@keep_best.wrong
def asks_none_for_its_loss(best, model, loss, epoch):
    """At the first call there is no best yet: best is None, and None has no ["loss"]. Ask `best is None` before the
    comparison."""
    if loss < best["loss"]:
        return _kept(None, model, loss, epoch)
    return best


@keep_best.wrong
def gives_the_state_alone(best, model, loss, epoch):
    """Only the state dict comes back: the next call does not know any more which loss it has to better. Loss, epoch and
    state belong into one dict."""
    return copy.deepcopy(model.state_dict())
