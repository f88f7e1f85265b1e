"""The checks before a training: a healthy model passes, each planted fault is found and explained, no trace is left."""

import copy
import math
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.optimizer_step import freeze
from course_utils.sanity_checks import RULES, overfit_one_batch, sanity_check
from tests.conftest import make_tiny_model

FAST = {"num_steps": 1}  # where the last check is not the point


def batch(num_examples=10, num_classes=3):
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(num_examples, 4, generator=generator)
    return inputs, torch.randint(num_classes, (num_examples,), generator=generator)


def failed(model, loss_fn=F.cross_entropy, data=None, **how):
    """Words of the failed checks by name, without the last, which needs many updates."""
    report = sanity_check(model, loss_fn, batch() if data is None else data, **(FAST | how))
    return {name: report[name].words for name in report.failed if name != "one batch" or "num_steps" in how}


class Net(nn.Module):
    """A body and a head, and something wrong in between."""

    def __init__(self, between=lambda hidden: hidden, before=lambda inputs: inputs, after=lambda outputs: outputs):
        super().__init__()
        self.between, self.before, self.after = between, before, after
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.after(self.head(self.between(self.body(self.before(inputs)).relu())))


# --- healthy


def healthy():
    inputs, targets = batch()
    with_norm = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    images = torch.randn(8, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    cnn = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3))
    tokens = torch.arange(40).view(8, 5) % 7
    tagger = nn.Sequential(nn.Embedding(7, 16), nn.Linear(16, 3), nn.Flatten(1), nn.Unflatten(1, (5, 3)))
    return {
        "tiny": (make_tiny_model(), F.cross_entropy, (inputs, targets)),
        "one example": (make_tiny_model(), F.cross_entropy, (inputs[:1], targets[:1])),
        "BatchNorm and dropout": (with_norm, nn.CrossEntropyLoss(), (inputs, targets)),
        "images": (cnn, nn.CrossEntropyLoss(label_smoothing=0.1), (images, targets[:8])),
        "log-probabilities": (Net(after=lambda o: o.log_softmax(1)), F.nll_loss, (inputs, targets)),
        "regression": (nn.Linear(4, 1), F.mse_loss, (inputs, inputs.sum(1, keepdim=True))),
        "whole amounts": (nn.Linear(4, 1), F.mse_loss, (inputs, inputs.sum(1, keepdim=True).round().long())),
        "probabilities": (Net(), F.cross_entropy, (inputs, F.one_hot(targets, 3).float())),
        "ignored": (Net(), F.cross_entropy, (inputs, torch.where(targets == 2, -100, targets))),
        "tokens": (nn.Sequential(tagger, Turned()), F.cross_entropy, (tokens, tokens % 3)),
        "two inputs": (Added(), F.cross_entropy, ({"left": inputs, "right": (inputs * 2,)}, targets)),
        "inside weights": (Net(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2])), (inputs, targets)),
    }


class Turned(nn.Module):
    def forward(self, inputs):
        return inputs.transpose(1, 2)  # (B, T, C) to (B, C, T)


class Added(Net):
    def forward(self, inputs):
        return super().forward(inputs["left"] + inputs["right"][0])


@pytest.mark.parametrize("name", healthy())
def test_a_healthy_model_passes(name):
    model, loss_fn, data = healthy()[name]
    report = sanity_check(model, loss_fn, data, optimizer=torch.optim.AdamW(model.parameters()), lr=0.03)
    assert report.passed and report.failed == [] and len(report.checks) == len(RULES) == 10
    assert report["one batch"].passed and report["gradients"].passed and report["optimizer"].passed


def test_the_words_of_a_passed_check_say_what_was_seen():
    report = sanity_check(make_tiny_model(), F.cross_entropy, batch())
    assert report["labels"] == ("labels", True, "int64, 3 of 3 classes in this batch")
    assert report["outputs"].words == "(10, 3) for 10 examples, finite, and the same again"
    assert "ln 3 = 1.10" in report["first loss"].words and "0.0" not in report["first loss"].words
    assert report["gradients"].words == "reach all 4 parameters that they should"
    assert report["examples apart"].words == "each example's outputs are its own"
    assert report["optimizer"] == ("optimizer", None, "pass optimizer=... to have it looked at")
    assert report["one batch"].words.startswith("the loss went from 1.1 to 0.3")


def test_the_report_prints_a_row_a_check_and_knows_its_names():
    report = sanity_check(Net(after=lambda o: o.softmax(1)), F.cross_entropy, batch(), **FAST)
    lines = repr(report).splitlines()
    assert [line[8:24].strip() for line in lines if line[0] != " "] == list(RULES)
    assert lines[0].startswith("ok      inputs") and max(map(len, lines)) <= 96
    assert "FAILED  logits" in repr(report) and "-       optimizer" in repr(report)
    with pytest.raises(KeyError, match="no check 'label': there are inputs, outputs"):
        report["label"]


# --- planted faults


def changed(place, value, dtype=None):
    inputs, targets = batch()
    targets = targets.to(dtype or targets.dtype)
    targets[place] = value
    return inputs, targets


@pytest.mark.parametrize(
    "data, said",
    [
        (lambda: (batch()[0], batch()[1] + 1), r"targets\[3\] is 3, and 3 classes are 0 to 2: labels that begin at 1"),
        (lambda: (batch()[0], batch()[1].clamp(1, 2) + 1), r"targets\[3\] is 3, .* begin at 1\? subtract 1; on"),
        (lambda: changed(slice(0, None), 4), r"targets\[0\] is 4, and 3 classes are 0 to 2; on"),
        (lambda: changed(4, 3), r"targets\[4\] is 3, and 3 classes are 0 to 2; on"),  # a 0 is among the others
        (lambda: changed(4, 7), r"targets\[4\] is 7, and 3 classes are 0 to 2; on a GPU"),
        (lambda: changed(6, -1), r"targets\[6\] is -1, and"),
        (lambda: changed(0, 0, torch.int32), r"must be int64, got int32: targets.long\(\)"),
        (lambda: changed(0, 0, torch.float32), r"must be int64: targets.long\(\); got outputs \(10, 3\), t"),
        (lambda: (batch()[0], batch()[1] * 0 - 100), "every target is -100, which the loss ignores"),
        (lambda: (batch()[0], batch()[1][:7]), r"a target of its own; got outputs \(10, 3\), targets \(7,\)"),
        (lambda: (batch()[0], batch()[1][:, None]), r"need outputs \(B, C, ...\) and targets \(B, ...\); got"),
        (lambda: (batch()[0], torch.ones(10, 3)), "no probabilities: a row does not add up to 1"),
        (lambda: (batch()[0], torch.full((10, 3), math.nan)), r"targets\[0, 0\] is nan: one update"),
    ],
)  # fmt: skip
def test_labels_that_the_loss_does_not_want_are_named_and_what_needs_them_is_not_run(data, said):
    report = sanity_check(make_tiny_model(), F.cross_entropy, data(), **FAST)
    assert report.failed == ["labels"]
    assert re.search(said, report["labels"].words)
    assert report["one batch"] == ("one batch", None, "not run: see labels") and report["first loss"].passed is None


def test_classes_of_the_data_are_compared_with_the_outputs():
    found = failed(make_tiny_model(), num_classes=10)
    assert found == {"labels": "the outputs are for 3 classes, the data has 10: mend the last layer"}
    assert failed(make_tiny_model(), num_classes=3) == {}


def test_one_output_tells_no_classes_apart():
    found = failed(nn.Linear(4, 1), data=(batch()[0], batch()[1].clamp(max=1)))
    assert found["labels"].startswith(
        "one output cannot tell classes apart: two or more, or float targets of its shape; g"
    )


def test_regression_outputs_that_would_be_compared_with_every_target():
    inputs, _ = batch()
    found = failed(nn.Linear(4, 1), F.mse_loss, (inputs, inputs.sum(1)))
    assert (
        found.keys() == {"labels"}
        and "each output with every target; got outputs (10, 1), targets (10,)" in found["labels"]
    )


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda x: x * 100, "root mean square"),
        (lambda x: x.index_fill(0, torch.tensor([3]), math.nan), r"inputs[3, 0] is nan"),
        (lambda x: x.index_fill(1, torch.tensor([2]), math.inf), r"inputs[0, 2] is inf"),
        (lambda x: torch.rand_like(x) / 255, "divided by 255 twice"),
        (lambda x: torch.ones_like(x) * -0.5, "all inputs are -0.5"),
        (lambda x: x.abs().mul(50).to(torch.uint8), "uint8, raw pixels"),
    ],
)
def test_inputs_that_are_not_finite_or_not_scaled(change, said):
    inputs, targets = batch()
    found = failed(make_tiny_model(), data=(change(inputs), targets))
    assert said in found["inputs"]


def test_inputs_of_0_to_255_make_the_first_loss_large_too():
    inputs, targets = batch()
    found = failed(make_tiny_model()[:1], data=(inputs.abs().mul(100), targets.clamp(max=2)))
    assert found.keys() == {"inputs", "first loss"} and "the model is sure of wrong answers" in found["first loss"]


def test_numbers_of_tokens_are_no_amounts_and_may_be_large():
    tokens = torch.arange(490, 500).view(10, 1)
    model = nn.Sequential(nn.Embedding(500, 4), nn.Flatten(), make_tiny_model())
    assert failed(model, data=(tokens, batch()[1])) == {}


def test_one_number_is_equal_to_nothing_else_and_so_no_fault():
    assert failed(nn.Linear(1, 3), data=(torch.tensor([[0.5]]), torch.tensor([1]))) == {}


@pytest.mark.parametrize("scale", [0.05, 1.0, 5.0])
def test_inputs_of_a_usual_scale_pass(scale):
    inputs, targets = batch()
    assert "inputs" not in failed(make_tiny_model(), data=(inputs * scale, targets))


def test_softmax_before_cross_entropy():
    data = batch()
    found = failed(Net(after=lambda o: o.softmax(1)), data=data, num_steps=60)
    assert "a softmax before cross entropy, which has its own. Its loss cannot fall below 0.55" in found["logits"]
    assert found.keys() == {"logits", "one batch"} and "the best of 3 rates" in found["one batch"]
    sure = F.one_hot(data[1], 3).float()
    assert F.cross_entropy(sure, data[1]).item() == pytest.approx(0.5514, abs=1e-4)  # the floor that the words name


def test_probabilities_of_exactly_0_are_probabilities_too():
    assert "a softmax before cross entropy" in failed(Net(after=lambda o: (1e4 * o).softmax(1)))["logits"]


def test_log_softmax_before_cross_entropy_changes_nothing_and_is_no_fault():
    assert failed(Net(after=lambda o: o.log_softmax(1))) == {}


def test_logits_for_a_loss_that_wants_log_probabilities():
    found = failed(Net(), F.nll_loss)
    assert "wants log-probabilities" in found["logits"] and "trained before" in found["first loss"]


@pytest.mark.parametrize(
    "model, said",
    [
        (lambda: Net(between=torch.detach), "none for body.weight, body.bias: forward does not use it, or detach"),
        (lambda: Net(between=lambda h: h * 0.0), "0 for body.weight, body.bias, head.weight, also after an update"),
        (lambda: Net(after=torch.detach), "the loss has no graph"),
        (lambda: Net(between=lambda h: (h - h).sqrt()), "not finite for body.weight, body.bias"),
    ],
)
def test_a_branch_that_gradients_do_not_reach(model, said):
    found = failed(model())
    assert found.keys() == {"gradients"} and said in found["gradients"]


def test_a_layer_that_forward_does_not_use_is_named_and_can_be_meant():
    model = Net()
    model.spare = nn.Linear(2, 2)
    assert "none for spare.weight, spare.bias:" in failed(model)["gradients"]
    assert failed(model, meant=["spare"]) == {} == failed(model, meant=["spare.weight", "spare.bias"])
    assert failed(model, meant="spare") == {}
    assert "none for spare.bias:" in failed(model, meant=["spare.weight"])["gradients"]
    for name in ("spar", ""):
        with pytest.raises(ValueError, match=rf"no '{name}': its parts are \['body', 'head', 'spare'\], and theirs as"):
            sanity_check(model, F.cross_entropy, batch(), meant=["spare", name])


def test_a_dead_relu_and_a_last_layer_that_starts_at_0_are_told_apart():
    dead, zero = Net(), Net()
    nn.init.constant_(dead.body.bias, -100.0)
    nn.init.zeros_(zero.head.weight)
    assert "also after an update: a ReLU that is never active (dead)" in failed(dead)["gradients"]
    words = failed(zero)["gradients"]
    assert words.startswith("0 for body.weight, body.bias, and no longer after one update: a layer behind starts at 0")
    assert sanity_check(zero, F.cross_entropy, batch(), meant=["body"], lr=0.03).passed


def test_what_is_frozen_by_accident_is_named_and_what_is_meant_is_not():
    model = Net()
    model.body.weight.requires_grad_(False)
    assert failed(model) == {
        "frozen": "body.weight: no update changes what is frozen; if it is meant to be, pass meant=(...)"
    }
    report = sanity_check(model, F.cross_entropy, batch(), meant=["body.weight"])
    assert report["frozen"] == ("frozen", True, "1 of 4 parameters, as meant")
    found = failed(Net().requires_grad_(False))
    assert "no parameter is trainable" in found["gradients"]
    report = sanity_check(Net().requires_grad_(False), F.cross_entropy, batch())
    assert report["one batch"] == ("one batch", None, "not run: see gradients")
    assert found["frozen"].startswith("body.weight, body.bias, head.weight, head.bias:")


def test_long_lists_of_names_are_cut():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)), nn.Linear(4, 3)).requires_grad_(False)
    assert "0.weight, 0.bias, 1.weight, 1.bias and 4 more: no update" in failed(model)["frozen"]


def replaced_head():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.head = nn.Linear(8, 3)
    return model, optimizer


def with_stranger():
    model = Net()
    return model, torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(2))], lr=0.1)


def with_lr(*rates):
    model = Net()
    parts = zip((model.body, model.head), rates, strict=True)
    return model, torch.optim.SGD([{"params": list(part.parameters()), "lr": lr} for part, lr in parts], lr=0.1)


@pytest.mark.parametrize(
    "make, said",
    [
        (replaced_head, "it does not hold head.weight, head.bias: build it after the model's last change"),
        (with_stranger, "it holds 1 tensors that are not the model's"),
        (lambda: with_lr(0.1, 0.0), "param group 1 has lr 0: its 2 parameters cannot learn"),
        (lambda: with_lr(torch.tensor(0.0), torch.tensor(0.1)), "param group 0 has lr 0"),
        (lambda: with_lr(0.1, 1e-6), None),
    ],
)
def test_an_optimizer_that_does_not_train_the_model(make, said):
    model, optimizer = make()
    found = failed(model, optimizer=optimizer)
    assert found.keys() == ({"optimizer"} if said else set()) and (said or "") in found.get("optimizer", "")


def test_a_frozen_layer_needs_no_place_in_the_optimizer():
    model = Net()
    freeze(model, "body")
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
    assert failed(model, optimizer=optimizer, meant=["body"]) == {}


MIXERS = {
    "transpose and reshape": lambda x: x.t().reshape(x.shape),
    "view across the batch": lambda x: x.contiguous().view(2, -1, 2).transpose(0, 1).reshape(x.shape),
    "mean over the batch": lambda x: x - x.mean(0),
    "softmax over the batch": lambda x: x.softmax(0),
    "neighbour": lambda x: x.roll(1, 0),
    "first example": lambda x: x + x[:1],
    "second example": lambda x: x + x[1:2],
}


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("num_examples", [2, 5, 10])
def test_a_reshape_or_a_mean_that_mixes_the_examples_is_found(name, num_examples):
    inputs, targets = batch(num_examples)
    assert "examples apart" in failed(Net(before=MIXERS[name]), data=(inputs, targets))


class Recurrent(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.layer, self.head = nn.GRU(2, 8, batch_first=batch_first), nn.Linear(8, 3)

    def forward(self, inputs):
        return self.head(self.layer(inputs.view(-1, 2, 2))[0][:, -1])


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_recurrent_layer_that_takes_time_for_the_batch_is_found(batch_first):
    found = failed(Recurrent(batch_first))
    assert found.keys() == (set() if batch_first else {"examples apart"})
    assert batch_first or "a layer lacks batch_first=True" in found["examples apart"]


def test_batchnorm_mixes_in_training_mode_only_and_the_words_say_so():
    model = nn.Sequential(nn.BatchNorm1d(4), make_tiny_model())
    words = sanity_check(model, F.cross_entropy, batch(), **FAST)["examples apart"].words
    assert words.endswith("in training mode 1 BatchNorm layers mix the batch, as they are meant to")
    model[0] = nn.BatchNorm1d(4, track_running_stats=False)  # mixes in evaluation mode too
    assert "examples apart" in failed(model)


@pytest.mark.parametrize(
    "after, said",
    [
        (lambda o: o.reshape(5, 6), r"10 examples give outputs (5, 6): a view or reshape takes the batch apart"),
        (lambda o: o.sum(), "10 examples give outputs ()"),
        (lambda o: o / 0 * 0, "outputs[0, 0] is nan: before any update"),
        (
            lambda o: F.dropout(o),
            "something draws in spite of eval(), such as F.dropout without training=self.training",
        ),
        (lambda o: o @ torch.ones(7), "RuntimeError: size mismatch"),
    ],
)
def test_outputs_that_do_not_fit_the_batch_and_a_forward_that_fails(after, said):
    report = sanity_check(Net(after=after), F.cross_entropy, batch())
    assert report.failed == ["outputs"] and said in report["outputs"].words
    assert report["labels"] == ("labels", None, "not run: see outputs")


def test_outputs_that_are_no_tensor_are_passed_over_and_training_is_still_looked_at():
    def loss_fn(outputs, targets):
        return F.cross_entropy(outputs["logits"], targets)

    report = sanity_check(Net(after=lambda o: {"logits": o}), loss_fn, batch())
    assert [check.name for check in report.checks if check.passed is None] == [
        "outputs", "examples apart", "labels", "logits", "optimizer",
    ]  # fmt: skip
    assert report.passed and report["one batch"].passed


def test_the_first_loss_is_compared_with_the_class_prior():
    model, (inputs, _) = make_tiny_model(), batch()
    targets = torch.tensor([0] * 9 + [1])
    with torch.no_grad():
        model[3].weight.zero_()
        model[3].bias.copy_(torch.tensor([0.9, 0.09, 0.01]).log())
    how = {"data": (inputs, targets), "meant": ["0"]}
    assert "a bias at the class prior (class_prior)?" in failed(model, **how)["first loss"]
    assert failed(model, **how, class_prior=[90, 9, 1]) == {}
    words = sanity_check(model, F.cross_entropy, (inputs, targets), class_prior=[0.9, 0.09, 0.01])["first loss"].words
    assert words.endswith("one that knows the class prior 0.36")  # -(0.9 ln 0.9 + 0.09 ln 0.09 + 0.01 ln 0.01)
    for prior in ([1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, -1.0]):
        assert (
            f"class_prior needs 3 shares or counts >= 0, got {prior}" in failed(model, class_prior=prior)["first loss"]
        )


def test_a_loss_that_is_not_finite():
    found = failed(Net(), lambda outputs, targets: (outputs - outputs).log().mean(), (batch()[0], torch.zeros(10, 3)))
    assert found["first loss"] == "the loss is -inf before any update: look at the loss's own logs, roots and divisions"


def test_targets_that_belong_to_no_input_cannot_be_learnt_by_a_model_that_sees_nothing():
    inputs, targets = batch()
    found = failed(Net(before=lambda x: x * 0 + 1), data=(inputs, targets), num_steps=50)
    assert "what cannot learn one batch by heart cannot learn more" in found["one batch"]


# --- one batch


def test_overfitting_gives_a_loss_before_the_first_update_and_after_each():
    model, (inputs, targets) = make_tiny_model(dropout=0.5), batch()
    losses = overfit_one_batch(model, F.cross_entropy, (inputs, targets), num_steps=5, lr=0.01)
    hand = make_tiny_model()  # without dropout
    adam, expected = torch.optim.Adam(hand.parameters(), lr=0.01), []
    for _ in range(6):
        adam.zero_grad()
        loss = F.cross_entropy(hand(inputs), targets)
        loss.backward()
        adam.step()
        expected.append(loss.item())
    assert losses == expected and losses[-1] < losses[0]


def test_overfitting_ends_where_the_loss_is_not_finite_and_needs_an_update():
    losses = overfit_one_batch(make_tiny_model(), F.mse_loss, (batch()[0], torch.zeros(10, 3)), lr=1e30, num_steps=9)
    assert len(losses) == 2 and not math.isfinite(losses[1])
    with pytest.raises(ValueError, match="num_steps needs 1 or more, got 0"):
        overfit_one_batch(make_tiny_model(), F.cross_entropy, batch(), num_steps=0)


def test_one_of_three_rates_is_enough():
    report = sanity_check(make_tiny_model(), F.cross_entropy, batch(), lr=0.3, num_steps=100)
    assert report.passed
    slow = sanity_check(make_tiny_model(), F.cross_entropy, batch(), lr=0.003, num_steps=100)
    assert slow.passed and slow["one batch"].words.endswith("lr 0.03")
    assert failed(make_tiny_model(), lr=1e-6, num_steps=30).keys() == {"one batch"}


# --- no trace


def everything(model, data, optimizer):
    tensors = [*model.parameters(), *model.buffers(), *data, *(param.grad for param in model.parameters())]
    modes = [module.training for module in model.modules()]
    state = copy.deepcopy(optimizer.state_dict())
    return (
        [tensor.detach().clone() for tensor in tensors],
        modes,
        state,
        torch.get_rng_state(),
        np.random.get_state()[1],
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_weights_buffers_modes_gradients_batch_optimizer_and_generators_are_as_before(training, fails):
    model = nn.Sequential(nn.ReLU(inplace=True), nn.BatchNorm1d(4), nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    data, optimizer = batch(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    F.cross_entropy(model(data[0].clone()), data[1]).backward()
    optimizer.step()
    model.train(training)
    model[1].eval()

    def loss_fn(outputs, targets):
        np.random.rand()
        if fails and outputs.requires_grad:
            raise KeyError("lost")
        return F.cross_entropy(outputs, targets)

    before = everything(model, data, optimizer)
    report = sanity_check(model, loss_fn, data, optimizer=optimizer, num_steps=5)
    assert ("KeyError: 'lost'" in report["gradients"].words) is fails
    overfit_one_batch(model, F.cross_entropy, data, num_steps=3)
    after = everything(model, data, optimizer)
    assert all(torch.equal(one, other) for one, other in zip(before[0], after[0], strict=True)) and len(before[0]) == 17
    assert before[1] == after[1] and torch.equal(before[3], after[3]) and (before[4] == after[4]).all()
    assert str(before[2]) == str(after[2])


def test_it_works_under_no_grad_and_on_a_wrapped_model_whose_frozen_layer_stays_in_evaluation():
    model = nn.Sequential(make_tiny_model(), nn.BatchNorm1d(3))
    model[1].eval()  # on purpose: training with it uses running statistics
    wrapped = nn.Module()
    wrapped._orig_mod = model
    with torch.no_grad():
        report = sanity_check(wrapped, F.cross_entropy, batch(), optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert report["gradients"].passed and report["optimizer"].passed and not torch.is_inference_mode_enabled()
    seen = []
    model[1].register_forward_hook(lambda module, args, output: seen.append(module.training))
    overfit_one_batch(model, F.cross_entropy, batch(), num_steps=1)
    assert seen == [False, False]


def test_a_model_in_evaluation_mode_is_looked_at_as_training_would_have_it():
    model = nn.Sequential(make_tiny_model(), nn.BatchNorm1d(3)).eval()
    modes = []
    model[1].register_forward_hook(lambda module, args, output: modes.append(module.training))
    overfit_one_batch(model, F.cross_entropy, batch(), num_steps=1)
    assert modes == [True, True] and not model.training
