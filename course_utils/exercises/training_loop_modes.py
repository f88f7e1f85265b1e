"""The exercise of chapter 05 about evaluation mode, and each module's own mode after it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import close_facts_differ
from course_utils.exercises.training_loop_modes_facts import SOUND_MODES, SOUND_NESTED, modes_facts, net_in_modes

_KINDS = {
    "training": "all of the model in training mode",
    "body": "the body in evaluation mode, the rest in training mode",
    "frozen": "a BatchNorm in evaluation mode, the rest in training mode",
    "head": "the head in training mode, the rest in evaluation mode",
    "shared": "a BatchNorm in evaluation mode that stands in two parts of the model, the rest in training mode",
}


@exercise(
    "training_loop-2",
    title="Evaluation mode, and back",
    difficulty="medium",
    minutes=10,
    cases=[(kind,) for kind in _KINDS],
    expected=[SOUND_MODES, *[SOUND_NESTED] * (len(_KINDS) - 1)],
    arrange=net_in_modes,
    probe=modes_facts,
    difference=close_facts_differ,
    describe=lambda kind: f"with evaluating(model), {_KINDS[kind]}",
    imports="from contextlib import contextmanager",
    hints=[
        "model.train() and model.eval() speak to all modules at once. Each module has a mode of its own, the flag "
        "module.training, and model.modules() goes through all of them. What has to be known before eval() is called?",
        "Keep pairs (module, mode) in a list, switch, `yield`, then set each flag again. An exception in the block "
        "comes out of the `yield`: what stands behind it must run in that case too.",
        "try: yield, finally: a loop over the pairs. Set module.training itself: module.train(mode) speaks to all that "
        "is inside the module as well.",
    ],
    lesson="It is eval_mode of this chapter. no_grad is another matter: it saves memory, and changes no mode.",
)
@contextmanager
def evaluating(model):
    """Evaluation mode in the block; after it every module has the mode again that it had before.

    Used as `with evaluating(model): ...`, once or one block in another.

    model : an nn.Module. Its modules may have different modes, as where a BatchNorm is frozen by
            its eval() and the rest trains; a module may stand in two parts of the model

    In the block all modules of this model are in evaluation mode, and nothing else is changed:
    gradients can be computed. An exception in the block comes out; the modes are put back before.

    A model in training mode with one BatchNorm in evaluation mode: in the block all modules are in
    evaluation mode, after it this BatchNorm still is, and all others are in training mode again.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _pairs(modules: Iterable[nn.Module]) -> list[tuple[nn.Module, bool]]:
    return [(module, module.training) for module in modules]


def _put_back(pairs: list[tuple[nn.Module, bool]]) -> None:
    for module, mode in pairs:
        module.training = mode


@contextmanager
def _block(model: nn.Module, end, *, on_errors: bool = True) -> Iterator[None]:
    """Evaluation mode; `end()` after the block, on errors too or not."""
    model.eval()
    try:
        yield
    except BaseException:
        if on_errors:
            end()
        raise
    end()


@evaluating.wrong
def wakes_everything(model):
    """model.train() at the end puts *every* module into training mode: a BatchNorm that was frozen for fine-tuning
    begins to move its statistics, after the first validation, and a model that was only in use now drops units."""
    return _block(model, model.train)


@evaluating.form_of("wakes_everything")
def wakes_everything_but_not_on_errors(model):
    return _block(model, model.train, on_errors=False)


@evaluating.wrong
def gives_all_modules_the_mode_of_the_outermost(model):
    """model.train(flag) at the end speaks to all modules, whether one flag was kept or each had its own: all get the
    mode of the outermost one, and a frozen BatchNorm is thawed by the first validation. Nothing fails; the fine-tuned
    model is worse. Keep the flag of each module, and set each alone: module.training = flag."""
    mode = model.training
    return _block(model, lambda: model.train(mode))


@evaluating.form_of("gives_all_modules_the_mode_of_the_outermost")
def keeps_the_top_flag_and_not_on_errors(model):
    mode = model.training
    return _block(model, lambda: model.train(mode), on_errors=False)


@evaluating.form_of("gives_all_modules_the_mode_of_the_outermost")
def wakes_it_where_the_top_was_awake(model):
    mode = model.training
    return _block(model, lambda: model.train() if mode else None)


@evaluating.wrong
def forgets_exceptions(model):
    """What stands behind the `yield` does not run when the block raises: after Ctrl-C in a validation, or a photo that
    cannot be read, the model stays in evaluation mode, and the cell that goes on trains without Dropout. `finally`
    runs in any case; `except Exception` does not see Ctrl-C, which is a KeyboardInterrupt."""
    pairs = _pairs(model.modules())
    return _block(model, lambda: _put_back(pairs), on_errors=False)


@evaluating.form_of("forgets_exceptions")
@contextmanager
def forgets_interrupts(model):
    pairs = _pairs(model.modules())
    model.eval()
    try:
        yield
    except Exception:
        _put_back(pairs)
        raise
    _put_back(pairs)


@evaluating.wrong
def looks_at_the_children_only(model):
    """model.children() are the modules one level down; what lies deeper gets its parent's mode, or keeps evaluation
    mode. In a ResNet every BatchNorm lies deeper. model.modules() goes through all, the model itself among them."""
    pairs = [(model, model.training), *_pairs(model.children())]
    return _block(model, lambda: [module.train(mode) for module, mode in pairs])


@evaluating.form_of("looks_at_the_children_only")
def puts_back_the_flags_of_the_children_only(model):
    pairs = [(model, model.training), *_pairs(model.children())]
    return _block(model, lambda: _put_back(pairs))


@evaluating.wrong
def forgets_the_model_itself(model):
    """The parts have their modes again, the model itself has not: `model.training` is False for ever, and a forward
    that asks for it (a loss returned in training only, a drop path) takes the wrong branch. modules() holds the model
    too."""
    pairs = [(module, module.training) for module in model.modules() if module is not model]
    return _block(model, lambda: _put_back(pairs))


@evaluating.wrong
def never_puts_back(model):
    """Nothing is put back, or only the flag of the outermost module: from the first validation on the run trains in
    evaluation mode, without Dropout and with BatchNorm's old statistics. The training loss looks better for it."""
    return _block(model, lambda: None)


@evaluating.form_of("never_puts_back")
def sets_the_top_flag_back(model):
    mode = model.training
    return _block(model, lambda: _put_back([(model, mode)]))


@evaluating.wrong
def speaks_to_the_inner_modules_twice(model):
    """module.train(), module.train(mode) and module.eval() set the mode of all that is inside, too: the outermost one
    wakes frozen parts or sends others to sleep, and where a module stands in two parts, the one that comes last
    decides. Set the flag of each module alone, module.training = mode."""
    pairs = _pairs(model.modules())
    return _block(model, lambda: [module.train(mode) for module, mode in pairs])


@evaluating.form_of("speaks_to_the_inner_modules_twice")
def wakes_those_that_were_awake(model):
    awake = [module for module in model.modules() if module.training]
    return _block(model, lambda: [module.train() for module in awake])


def _woken_but_for(model: nn.Module, frozen: list[nn.Module]) -> None:
    model.train()
    for module in frozen:
        module.eval()


@evaluating.form_of("speaks_to_the_inner_modules_twice")
def freezes_those_again_that_were_frozen(model):
    frozen = [module for module in model.modules() if not module.training]
    return _block(model, lambda: _woken_but_for(model, frozen))


@evaluating.form_of("speaks_to_the_inner_modules_twice")
def freezes_those_again_but_not_on_errors(model):
    frozen = [module for module in model.modules() if not module.training]
    return _block(model, lambda: _woken_but_for(model, frozen), on_errors=False)


@evaluating.form_of("gives_all_modules_the_mode_of_the_outermost")
def speaks_to_the_outer_modules_last(model):
    pairs = _pairs(model.modules())[::-1]
    return _block(model, lambda: [module.train(mode) for module, mode in pairs])


@evaluating.wrong
@contextmanager
def sets_the_top_flag_only(model):
    """model.training = False is the flag of the outermost module alone: Dropout and BatchNorm, for which it is done,
    stay in training mode, and the validation is one with dropped units. model.eval() speaks to all."""
    mode = model.training
    model.training = False
    try:
        yield
    finally:
        model.training = mode


@evaluating.wrong
@contextmanager
def swallows_the_exception(model):
    """The exception does not come out (`except: pass`, a `return` in `finally`, or a true value from __exit__): a
    validation that failed is taken for one that was done, and Ctrl-C does not stop the run."""
    pairs = _pairs(model.modules())
    model.eval()
    try:
        yield
    except BaseException:
        pass
    _put_back(pairs)


@evaluating.wrong
@contextmanager
def switches_gradients_off_too(model):
    """Gradients are switched off as well. Mode and gradients are two matters: saliency maps, adversarial examples and
    fine-tuning with a frozen BatchNorm need gradients in evaluation mode. Put torch.no_grad() beside it if wanted."""
    pairs = _pairs(model.modules())
    with torch.no_grad(), _block(model, lambda: _put_back(pairs)):
        yield


@evaluating.wrong
def notes_the_modes_on_the_modules(model):
    """The modes are noted in the model itself. A block inside another, as where a validation calls a function that
    evaluates too, overwrites the notes: after the outer block the model stays in evaluation mode. Keep them in a local
    variable, one list for each block."""
    for module in model.modules():
        module.noted = module.training

    def put_back():
        _put_back([(module, module.noted) for module in model.modules()])

    return _block(model, put_back)


class _SwitchesAtTheCall:
    def __init__(self, model: nn.Module) -> None:
        self.pairs = _pairs(model.modules())
        model.eval()

    def __enter__(self) -> None: ...

    def __exit__(self, *error) -> None:
        _put_back(self.pairs)


@evaluating.wrong
def switches_at_the_call(model):
    """The mode is switched when the object is made and not when the block is entered: made earlier, or never entered,
    it leaves the model in evaluation mode. Switch in __enter__, or in front of the `yield`."""
    return _SwitchesAtTheCall(model)


@evaluating.wrong
@contextmanager
def evaluates_a_copy(model):
    """A copy is in evaluation mode, the model of the caller is not: what the block calls by its own name still drops
    units. And the copy takes the memory of the weights once more."""
    yield copy.deepcopy(model).eval()


@evaluating.wrong
def forgets_the_decorator(model):
    """This is a generator function, and `with` fails on a generator with a TypeError. @contextmanager above the `def`
    makes a context manager of it: what stands before the `yield` runs at the beginning of the block, the rest at its
    end."""
    yield from ()
