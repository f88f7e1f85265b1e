"""The checks worth doing before a training: seconds that save a night. They leave no trace in the model.

It runs the rules of `sanity_rules` and `sanity_training` in their order and puts what they say into a report.
`training_loop` re-exports its names.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from course_utils import sanity_rules, sanity_training
from course_utils.evaluation import unwrap
from course_utils.randomness import generators_put_back
from course_utils.sanity_rules import Case, Fault, NotMeant
from course_utils.sanity_training import case_of, overfit_one_batch

__all__ = ["Check", "SanityReport", "overfit_one_batch", "sanity_check"]

# a rule, and those that it needs to hold
RULES: dict[str, tuple[Callable[[Case], str], tuple[str, ...]]] = {
    "inputs": (sanity_rules.inputs, ()),
    "outputs": (sanity_rules.outputs, ()),
    "examples apart": (sanity_rules.apart, ("outputs",)),
    "labels": (sanity_rules.labels, ("outputs",)),
    "logits": (sanity_training.logits, ("outputs", "labels")),
    "first loss": (sanity_training.first_loss, ("outputs", "labels")),
    "gradients": (sanity_training.gradients, ("outputs", "labels")),
    "frozen": (sanity_training.frozen, ()),
    "optimizer": (sanity_training.optimizer, ()),
    "one batch": (sanity_training.one_batch, ("outputs", "labels", "gradients")),
}


class Check(NamedTuple):
    """One row: `passed` is None where the check was not run; `words` say what was seen, or is wrong and what helps."""

    name: str
    passed: bool | None
    words: str


class SanityReport:
    """What `sanity_check` found: a `Check` a row in `checks`, by its name as `report["labels"]`; it prints as a table.

    passed : has no check failed?
    failed : the names of those that have
    """

    def __init__(self, checks: Sequence[Check]) -> None:
        self.checks = list(checks)

    def __getitem__(self, name: str) -> Check:
        found = {check.name: check for check in self.checks}
        if name not in found:
            raise KeyError(f"no check {name!r}: there are {', '.join(found)}")
        return found[name]

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.checks if check.passed is False]

    @property
    def passed(self) -> bool:
        return not self.failed

    def __repr__(self) -> str:
        marks = {True: "ok", False: "FAILED", None: "-"}
        rows = [(f"{marks[check.passed]:<8}{check.name:<16}", check.words) for check in self.checks]
        indent = " " * len(rows[0][0])
        return "\n".join(textwrap.fill(start + words, 96, subsequent_indent=indent) for start, words in rows)


def sanity_check(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    batch: tuple[Any, Any],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    num_classes: int | None = None,
    class_prior: Sequence[float] | None = None,
    meant: str | Sequence[str] = (),
    num_steps: int = 100,
    lr: float = 3e-3,
) -> SanityReport:
    """Look at model, loss and one batch as they are before the first update; what is wrong is a row, not an error.

    batch       : (inputs, targets) as the training loader gives them, of at least two examples; 16 to 64 will do
    optimizer   : looked at where it is given: does it hold what trains, with an lr above 0?
    num_classes : of the data; left out, the model's outputs are believed
    class_prior : shares or counts of the classes, where the last layer's bias starts with them
    meant       : names of parameters or modules that are frozen, or start without a gradient, on purpose
    num_steps, lr : as in `overfit_one_batch`; it ends at 0.3 of the first loss, and tries 10 and 0.1 times the lr too
    raises      : ValueError for a name in `meant` that the model does not have

    A copy of the model is run and trained: weights, buffers, modes, gradients and generators are as before.
    """
    meant = _known(model, (meant,) if isinstance(meant, str) else tuple(meant))
    how = {"optimizer": optimizer, "num_classes": num_classes, "class_prior": class_prior, "meant": meant}
    checks: dict[str, Check] = {}
    with generators_put_back(), torch.enable_grad():
        case = case_of(model, loss_fn, batch, num_steps=num_steps, lr=lr, **how)
        for name, (rule, needs) in RULES.items():
            failed = [need for need in needs if checks[need].passed is False]
            checks[name] = Check(name, None, f"not run: see {failed[0]}") if failed else _checked(name, rule, case)
    return SanityReport([*checks.values()])


def _known(model: nn.Module, names: tuple[str, ...]) -> tuple[str, ...]:
    known = dict(unwrap(model).named_parameters()) | dict(unwrap(model).named_modules())
    if unknown := [name for name in names if name not in known or not name]:
        children = [name for name, _ in unwrap(model).named_children()]
        raise ValueError(
            f"the model has no {unknown[0]!r}: its parts are {children}, and theirs as named_parameters() names them"
        )
    return names


def _checked(name: str, rule: Callable[[Case], str], case: Case) -> Check:
    try:
        return Check(name, True, rule(case))
    except NotMeant as why:
        return Check(name, None, str(why))
    except Fault as fault:
        return Check(name, False, str(fault))
    except Exception as error:  # the model's or the loss's own: a row of the report
        return Check(name, False, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
