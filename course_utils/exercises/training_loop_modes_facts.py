"""What a context manager for evaluation is asked: models of several modes, and the facts that are gathered."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from course_utils.exercises.training_loop_layers import linear

_BEFORE, _INSIDE, _AFTER = "the modes before the block is entered", "the modes in the block", "the modes after it"
_THROWN = "the modes after a block that raised"
_RAISED, _STOPPED = "an exception in the block", "the modes after a block that Ctrl-C stopped"
_INNER = "the modes after the inner of two nested blocks, still in the outer one"
_OUTER = "the modes after the outer of two nested blocks"
_GRADIENTS = "gradients in the block"
_ITSELF = "the model itself"
AS_BEFORE, ALL_EVALUATION = "as before", "all in evaluation"


class _Stop(Exception):
    """Raised in the block."""


def net_in_modes(kind: str) -> tuple[nn.Module]:
    """A model of two parts; `kind` says which modules are in training mode."""
    norm = nn.BatchNorm1d(2)
    again = norm if kind == "shared" else nn.BatchNorm1d(2)
    model = nn.Sequential()
    model.add_module("body", nn.Sequential(linear(2, 2), norm))
    model.add_module("head", nn.Sequential(again, nn.Dropout(0.5)))
    model.train(kind != "head")
    if kind in ("frozen", "shared"):
        norm.eval()
    if kind == "head":
        model.head.train()
    if kind == "body":
        model.body.eval()
    model.came_in = modes_of(model)
    return (model,)


def modes_of(model: nn.Module) -> dict[str, bool]:
    return {name or _ITSELF: module.training for name, module in model.named_modules()}


def _against(before: dict[str, bool], model: nn.Module) -> str:
    """AS_BEFORE, or the modules whose mode is another one."""
    changed = {name: mode for name, mode in modes_of(model).items() if mode != before[name]}
    told = [_listed(changed, mode, words) for mode, words in ((True, "training"), (False, "evaluation"))]
    return "; ".join(filter(None, told)) or AS_BEFORE


def _listed(modes: dict[str, bool], mode: bool, words: str) -> str:
    names = [name for name, found in modes.items() if found is mode]
    return f"in {words} and not as before: {', '.join(names)}" if names else ""


def _evaluation(model: nn.Module) -> str:
    still = [name for name, training in modes_of(model).items() if training]
    return f"{', '.join(still)} in training" if still else ALL_EVALUATION


def _gradients(model: nn.Module) -> str:
    if not torch.is_grad_enabled():
        return "switched off"
    return "on" if all(p.requires_grad for p in model.parameters()) else "the weights do not require any"


def modes_facts(fn: Callable, result, model: nn.Module) -> dict:
    """The modes around a block, around one that raises, and of two blocks one in the other.

    Not the last of a model that is in training mode throughout: it would be the first to show simpler mistakes.
    """
    before, nested = model.came_in, not all(model.came_in.values())
    facts = {_BEFORE: _against(before, model)}
    with result:
        facts |= {_INSIDE: _evaluation(model), _GRADIENTS: _gradients(model)}
    facts[_AFTER] = _against(before, model)
    return facts | _of_a_block_that_raises(fn, _anew(model)) | (_of_two_blocks(fn, _anew(model)) if nested else {})


def _anew(model: nn.Module) -> nn.Module:
    """A copy in the modes in which the model came."""
    twin = copy.deepcopy(model)
    for name, module in twin.named_modules():
        module.training = model.came_in[name or _ITSELF]
    return twin


def _of_a_block_that_raises(fn: Callable, model: nn.Module) -> dict:
    """Ctrl-C is tried only where an Exception was dealt with: or who swallows the one would have to do with both."""
    facts = _of_an_exception(fn, model)
    sound = all(facts[name] == SOUND_MODES[name] for name in facts)
    return facts | {_STOPPED: _of_an_interrupt(fn, _anew(model)) if sound else "not looked at"}


def _of_an_interrupt(fn: Callable, model: nn.Module) -> str:
    interrupt = KeyboardInterrupt()
    try:
        with fn(model):
            raise interrupt
    except KeyboardInterrupt as error:
        if error is not interrupt:  # the reader's own Ctrl-C
            raise
    return _against(model.came_in, model)


def _of_an_exception(fn: Callable, model: nn.Module) -> dict:
    came = "swallowed: the lines after the block run as if nothing had happened"
    try:
        with fn(model):
            raise _Stop
    except _Stop:
        came = "comes out"
    except Exception as error:
        came = f"another one comes out, {type(error).__name__}"
    return {_RAISED: came, _THROWN: _against(model.came_in, model)}


def _of_two_blocks(fn: Callable, model: nn.Module) -> dict:
    with fn(model):
        with fn(model):
            pass
        between = _evaluation(model)
    return {_INNER: between, _OUTER: _against(model.came_in, model)}


SOUND_MODES = {_BEFORE: AS_BEFORE, _INSIDE: ALL_EVALUATION, _GRADIENTS: "on", _AFTER: AS_BEFORE}
SOUND_MODES |= {_RAISED: "comes out", _THROWN: AS_BEFORE, _STOPPED: AS_BEFORE}
SOUND_NESTED = SOUND_MODES | {_INNER: ALL_EVALUATION, _OUTER: AS_BEFORE}
