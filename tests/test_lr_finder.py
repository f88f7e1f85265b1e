"""The range test leaves no trace, to the bit; and what it finds is worked out by hand."""

import copy
import functools
import math
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.utils.data import DataLoader

from course_utils.loaders import ResumableLoader
from course_utils.lr_finder import no_trace
from course_utils.randomness import seed_everything
from course_utils.schedules import LRRange, constant, find_lr, make_scheduler, warmup_cosine
from course_utils.training_loop import Trainer

LOSS_FN = nn.CrossEntropyLoss()


class Net(nn.Module):
    """Draws from all three generators; BatchNorm; a frozen layer with its own mode; a buffer that forward replaces."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3))
        self.frozen = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).requires_grad_(False)
        self.head = nn.Linear(6, 3)
        self.register_buffer("average", torch.zeros(6))

    def forward(self, inputs):
        hidden = self.frozen(self.body(inputs)) * (1 + 0.01 * random.random() + 0.01 * np.random.rand())
        self.average = 0.9 * self.average + 0.1 * hidden.detach().mean(0)
        return self.head(hidden)


class Noisy(torch.utils.data.Dataset):
    """50 examples that draw from all three global generators."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        noise = random.random() + np.random.rand() + float(torch.rand(()))
        return torch.full((4,), index / 50) + 0.1 * noise * torch.arange(4), index % 3


def loader_at(offset=8):
    loader = ResumableLoader(Noisy(), batch_size=8, seed=3)
    loader.set_position(1, offset)
    return loader


OPTIMIZERS = {
    "sgd": lambda groups: SGD(groups, lr=0.05),
    "momentum": lambda groups: SGD(groups, lr=0.05, momentum=0.9, nesterov=True),
    "adamw": lambda groups: AdamW(groups, lr=0.01, amsgrad=True),
    "fused": lambda groups: AdamW(groups, lr=0.01, fused=True),
    "tensor lr": lambda groups: Adam(groups, lr=torch.tensor(0.01), foreach=False),
}


def new_run(kind: str, *, filled: bool, scheduled: bool):
    """Model, optimizer, scheduler and loader in the middle of a run (`filled`) or before it."""
    model = Net()
    groups = [{"params": [*model.body.parameters(), *model.frozen.parameters()]}, {"params": model.head.parameters()}]
    optimizer = OPTIMIZERS[kind](groups)
    if kind != "tensor lr":
        optimizer.param_groups[1]["lr"] = 0.02
    plan = functools.partial(warmup_cosine, warmup_steps=3, total_steps=30)
    scheduler = make_scheduler(optimizer, plan) if scheduled else None
    loader = loader_at()
    model.train()
    model.frozen.eval()
    if filled:
        train(model, optimizer, scheduler, loader, 3)
    return model, optimizer, scheduler, loader


def train(model, optimizer, scheduler, loader, num_steps: int) -> None:
    """Plain updates that draw from the global generator; the last gradients stay."""
    for _, (inputs, targets) in zip(range(num_steps), loader, strict=False):
        optimizer.zero_grad()
        LOSS_FN(model(inputs), targets).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def generators():
    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


def snapshot(model, optimizer, scheduler, loader) -> dict:
    """All that a range test could change, copied."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return copy.deepcopy(
        {
            "weights": dict(model.state_dict()),
            "grads": [param.grad for param in model.parameters()],
            "state": [optimizer.state[p] if p in optimizer.state else None for p in params],
            "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
            "other": [optimizer._opt_called] if hasattr(optimizer, "_opt_called") else [],
            "scheduler": scheduler and {k: v for k, v in scheduler.state_dict().items() if k != "lr_lambdas"},
            "loader": loader.state_dict() if hasattr(loader, "state_dict") else None,
            "modes": [module.training for module in model.modules()],
            "generators": generators(),
        }
    )


def identities(model, optimizer) -> list[int]:
    """The objects themselves: whoever holds one must still hold what the model uses."""
    held = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()), optimizer.state]
    held += [value for entries in optimizer.state.values() for value in entries.values()]
    held += [group["lr"] for group in optimizer.param_groups] + optimizer.param_groups
    return [id(thing) for thing in held]


def same(a, b) -> bool:
    """Equal to the bit, types included, at any depth."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def differing(a: dict, b: dict) -> list[str]:
    return [name for name in a if not same(a[name], b[name])]


EVERY_RUN = pytest.mark.parametrize("filled", [False, True], ids=["new", "running"])
EVERY_OPTIMIZER = pytest.mark.parametrize("kind", OPTIMIZERS)


@EVERY_OPTIMIZER
@EVERY_RUN
@pytest.mark.parametrize("scheduled", [False, True], ids=["alone", "scheduled"])
def test_find_lr_leaves_no_trace(kind, filled, scheduled):
    run = new_run(kind, filled=filled, scheduled=scheduled)
    before, objects = snapshot(*run), identities(*run[:2])
    found = find_lr(run[0], run[1], LOSS_FN, run[3], num_steps=20)
    assert len(found.losses) > 3
    assert differing(before, snapshot(*run)) == []
    assert identities(*run[:2]) == objects


@EVERY_OPTIMIZER
@EVERY_RUN
def test_find_lr_leaves_no_trace_when_the_loss_raises_in_the_middle(kind, filled):
    run = new_run(kind, filled=filled, scheduled=True)
    before, objects = snapshot(*run), identities(*run[:2])
    calls = []

    def failing(logits, targets):
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("the fifth loss")
        return LOSS_FN(logits, targets)

    with pytest.raises(RuntimeError, match="the fifth loss"):
        find_lr(run[0], run[1], failing, run[3], num_steps=20)
    assert differing(before, snapshot(*run)) == []
    assert identities(*run[:2]) == objects


@EVERY_OPTIMIZER
@EVERY_RUN
def test_training_goes_on_as_if_there_had_been_no_range_test(kind, filled):
    ends = []
    for searched in (False, True):
        seed_everything(5)
        run = new_run(kind, filled=filled, scheduled=True)
        if searched:
            find_lr(run[0], run[1], LOSS_FN, run[3], num_steps=20)
        train(*run, 4)
        ends.append(snapshot(*run))
    assert differing(*ends) == []


@pytest.mark.parametrize("part", ["weights", "grads", "state", "groups", "generators", "modes", "loader", "other"])
def test_the_snapshot_of_these_tests_notices_each_kind_of_trace(part):
    model, optimizer, scheduler, loader = run = new_run("momentum", filled=True, scheduled=True)
    before = snapshot(*run)
    with torch.no_grad():
        leave = {
            "weights": lambda: model.frozen[1].running_mean.add_(1e-7),
            "grads": lambda: model.head.weight.grad.mul_(1.0001),
            "state": lambda: optimizer.state[model.head.weight]["momentum_buffer"].mul_(1.0001),
            "groups": lambda: optimizer.param_groups[1].update(lr=0.1),
            "generators": lambda: np.random.rand(),
            "modes": lambda: model.train(),
            "loader": lambda: next(iter(loader)),
            "other": lambda: setattr(optimizer, "_opt_called", False),
        }
        leave[part]()
    assert differing(before, snapshot(*run)) == [part]


@pytest.mark.parametrize("order_is_right", [True, False])
def test_torchs_warning_about_the_order_of_steps_is_neither_lost_nor_added(order_is_right):
    model, optimizer, scheduler, loader = new_run("momentum", filled=False, scheduled=True)
    find_lr(model, optimizer, LOSS_FN, loader, num_steps=5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if order_is_right:
            optimizer.step()
        scheduler.step()
    assert [str(w.message)[:40] for w in caught] == (
        [] if order_is_right else ["Detected call of `lr_scheduler.step()` b"]
    )


def test_a_running_iteration_of_the_loader_goes_on():
    model, optimizer, _, loader = new_run("sgd", filled=False, scheduled=False)
    expected = [inputs for inputs, _ in loader_at()]
    batches = iter(loader)
    got = [next(batches)[0]]
    find_lr(model, optimizer, LOSS_FN, loader, num_steps=12)
    got += [inputs for inputs, _ in batches]
    assert same(got, expected)


def test_any_loader_with_a_state_is_put_back_also_when_the_loss_raises():
    class Counting:
        """Three batches; the position is part of a dict that it changes in place."""

        def __init__(self):
            self.state = {"taken": 0}

        def __iter__(self):
            for _ in range(3):
                self.state["taken"] += 1
                yield torch.randn(4, 4), torch.tensor([0, 1, 2, 0])

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = dict(state)

    model, optimizer, _, _ = new_run("sgd", filled=False, scheduled=False)
    loader = Counting()
    loader.state["taken"] = 7
    find_lr(model, optimizer, LOSS_FN, loader, num_steps=10)
    assert loader.state == {"taken": 7}
    with pytest.raises(ZeroDivisionError):
        find_lr(model, optimizer, lambda logits, targets: 1 / 0, loader, num_steps=10)
    assert loader.state == {"taken": 7}


def test_a_loss_with_parameters_and_buffers_leaves_no_trace():
    class Centers(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, logits, targets):
            self.calls += 1
            return self.scale * LOSS_FN(logits, targets)

    model, optimizer, _, loader = new_run("sgd", filled=False, scheduled=False)
    loss_fn = Centers()
    find_lr(model, optimizer, loss_fn, loader, num_steps=5)
    assert (loss_fn.calls.item(), loss_fn.scale.grad, loss_fn.scale.item()) == (0.0, None, 1.0)


def test_layers_that_were_frozen_on_purpose_stay_so_during_the_test():
    model, optimizer, _, loader = new_run("sgd", filled=False, scheduled=False)
    seen = set()
    model.frozen[1].register_forward_hook(lambda module, *_: seen.add((module.training, model.training)))
    find_lr(model, optimizer, LOSS_FN, loader, num_steps=5)
    assert seen == {(False, True)}


def test_a_model_in_evaluation_mode_is_trained_and_put_back():
    model, optimizer, _, loader = new_run("sgd", filled=False, scheduled=False)
    model.eval()
    seen = set()
    model.body[1].register_forward_hook(lambda module, *_: seen.add(module.training))
    find_lr(model, optimizer, LOSS_FN, loader, num_steps=5)
    assert seen == {True}
    assert not any(module.training for module in model.modules())


def test_no_trace_also_puts_back_new_entries_of_a_group():
    model, optimizer, _, _ = new_run("sgd", filled=False, scheduled=False)
    before = [dict(group) for group in optimizer.param_groups]
    with no_trace(model, optimizer):
        make_scheduler(optimizer, constant)
        optimizer.param_groups[0]["weight_decay"] = 9.0
    assert [dict(group) for group in optimizer.param_groups] == before


# --- what it finds -------------------------------------------------------------------------------------------------


def scripted(losses: list[float], **how) -> LRRange:
    """The range test with the losses given; the model's weight is 1 and gets no gradient that matters."""
    model = nn.Linear(1, 1, bias=False)
    values = iter(losses)

    def loss_fn(outputs, targets):
        return 0 * outputs.sum() + next(values)

    batch = (torch.ones(1, 1), torch.ones(1, 1))
    how = {"min_lr": 1e-4, "max_lr": 1.0, "num_steps": 5, "smoothing": 0.0} | how
    return find_lr(model, SGD(model.parameters(), lr=1.0), loss_fn, [batch], **how)


def test_lrs_grow_geometrically_from_end_to_end():
    assert scripted([1.0] * 5).lrs == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1, 1.0])


def test_the_suggestion_is_a_tenth_of_the_lr_at_the_lowest_loss():
    found = scripted([4.0, 3.0, 2.0, 3.0, 3.5])
    assert found.suggestion == pytest.approx(1e-3)
    assert (found.diverged, found.losses) == (False, [4.0, 3.0, 2.0, 3.0, 3.5])


def test_the_average_forgets_and_its_start_is_corrected():
    found = scripted([4.0, 2.0, 1.0], smoothing=0.5, num_steps=3)
    assert found.smoothed == pytest.approx([4.0, (0.5 * 4 + 2) / 1.5, (0.25 * 4 + 0.5 * 2 + 1) / 1.75])


@pytest.mark.parametrize(
    "losses, diverged_after",
    [([1.0, 0.5, 2.01, 9.0, 9.0], 3), ([1.0, 0.5, 1.99, 1.9, 1.9], None), ([1.0, math.nan], 1), ([math.inf], 0),
     ([-1.0, -2.0, -1.9, -1.8, 5.0], 5), ([-1.0, -2.0, -1.0, -1.0, 3.9], None)],
)  # fmt: skip
def test_it_stops_where_the_loss_is_four_times_its_lowest_or_not_finite(losses, diverged_after):
    found = scripted(losses)
    assert found.diverged == (diverged_after is not None)
    assert (
        len(found.losses) == len(found.lrs) == len(found.smoothed) == (5 if diverged_after is None else diverged_after)
    )
    assert all(map(math.isfinite, found.losses))


def test_a_loss_that_never_falls_gives_no_suggestion():
    found = scripted([1.0, 1.1, 1.2, 1.3, 1.4])
    assert (found.suggestion, found.diverged) == (None, False)
    assert "never fell below its first value: lower min_lr (0.0001)" in found.advice
    assert scripted([math.nan])[:-1] == ([], [], [], None, True)
    assert "first loss or gradient was not finite" in scripted([math.nan]).advice


def test_a_loss_still_falling_at_the_last_lr_gives_no_suggestion_but_a_word():
    found = scripted([5.0, 4.0, 3.0, 2.0, 1.0])
    assert (found.suggestion, found.diverged) == (None, False)
    assert found.advice == "The loss was still falling at the last lr (1): raise max_lr."


def test_the_lowest_loss_just_before_divergence_is_a_point_to_divide_by_ten():
    found = scripted([5.0, 4.0, 3.0, math.inf])
    assert (found.suggestion, found.diverged) == (pytest.approx(1e-3), True)
    assert found.advice == "A tenth of 0.01, the lr at the lowest smoothed loss."


def test_batches_without_any_target_give_no_suggestion_but_a_word():
    model, optimizer, _, _ = new_run("sgd", filled=False, scheduled=False)
    ignored = (torch.randn(4, 4), torch.full((4,), -100))
    assert find_lr(model, optimizer, LOSS_FN, [ignored], num_steps=3) == LRRange(
        [], [], [], None, False, "No batch had a target that counts: look at the targets."
    )


def test_on_a_parabola_it_finds_the_lr_beyond_which_updates_overshoot():
    """Loss w^2: w becomes (1 - 2 lr) w, so it shrinks for lr < 1 and grows for lr > 1."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = SGD(model.parameters(), lr=1.0)
    batch = (torch.ones(1, 1), torch.zeros(1, 1))
    found = find_lr(model, optimizer, nn.MSELoss(), [batch], min_lr=0.5, max_lr=8.0, num_steps=9, smoothing=0.0)
    w, expected = model.weight.item(), []
    for lr in found.lrs:
        expected.append(w**2)
        w *= 1 - 2 * lr
    assert found.losses == pytest.approx(expected, rel=1e-5, abs=1e-12)


def test_groups_keep_their_ratio():
    model, optimizer, _, loader = new_run("sgd", filled=False, scheduled=True)
    seen = []
    optimizer.register_step_pre_hook(lambda opt, *_: seen.append([group["lr"] for group in opt.param_groups]))
    found = find_lr(model, optimizer, LOSS_FN, loader, num_steps=6, max_lr=0.1)
    assert len(found.lrs) == 6
    assert [first for first, _ in seen] == found.lrs
    assert [second / first for first, second in seen] == pytest.approx([0.4] * 6)


def test_a_batch_without_targets_says_nothing_and_costs_one_lr():
    model, optimizer, _, _ = new_run("sgd", filled=False, scheduled=False)
    full = (torch.randn(4, 4), torch.tensor([0, 1, 2, 0]))
    ignored = (torch.randn(4, 4), torch.full((4,), -100))
    found = find_lr(model, optimizer, LOSS_FN, [full, ignored], num_steps=6, max_lr=0.1)
    assert found.lrs == pytest.approx([1e-5 * 1e4 ** (i / 5) for i in (0, 2, 4)])
    assert all(map(math.isfinite, found.smoothed))


@pytest.mark.parametrize("loader", [DataLoader(Noisy(), batch_size=8), iter([]), (b for b in [])])
def test_a_loader_whose_position_cannot_be_put_back_is_refused(loader):
    model, optimizer, _, _ = run = new_run("sgd", filled=False, scheduled=False)
    before = snapshot(*run)
    with pytest.raises(ValueError, match="needs a loader that has state_dict .* or a list of batches, got"):
        find_lr(model, optimizer, LOSS_FN, loader)
    assert differing(before, snapshot(*run)) == []


@pytest.mark.parametrize(
    "how",
    [{"min_lr": 0.0}, {"min_lr": 2.0}, {"num_steps": 1}, {"smoothing": 1.0}, {"diverge": 1.0}, {"max_lr": math.nan}],
)
def test_a_range_that_is_none_is_an_error(how):
    name, value = next(iter(how.items()))
    with pytest.raises(ValueError, match=f"{name}={value}"):
        scripted([1.0] * 5, **how)


def test_no_batch_at_all_and_an_lr_of_zero_are_errors():
    model, optimizer, _, loader = new_run("sgd", filled=False, scheduled=False)
    with pytest.raises(ValueError, match="gives no batch"):
        find_lr(model, optimizer, LOSS_FN, [])
    optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(ValueError, match="must be above 0"):
        find_lr(model, optimizer, LOSS_FN, loader)


def test_the_trainer_makes_the_same_run_with_and_without_a_range_test():
    ends = []
    for searched in (False, True):
        model, optimizer, scheduler, loader = new_run("adamw", filled=False, scheduled=True)
        trainer = Trainer(model, optimizer, LOSS_FN, scheduler=scheduler, seed=7)
        trainer.fit(loader, num_steps=3)
        if searched:
            find_lr(model, optimizer, LOSS_FN, loader, num_steps=20)
        trainer.fit(loader, num_steps=12)
        ends.append({"model": dict(model.state_dict()), "losses": [row["loss"] for row in trainer.history]})
    assert differing(*ends) == []
