import math

import pytest
import torch

from course_utils.best import Best, copied
from course_utils.evaluation import Evaluation
from tests.conftest import make_tiny_model


def seen(best, *accuracies, model=None):
    """What `see` returned, and `stalled`, after each validation."""
    model = make_tiny_model() if model is None else model
    marks = []
    for step, accuracy in enumerate(accuracies, start=1):
        better = best.see(Evaluation(1.0, accuracy, None, 10), step, model)
        marks.append(("better" if better else "", "stalled" if best.stalled else ""))
    return marks


def test_the_best_goes_by_accuracy_and_the_first_of_equal_ones_stays():
    best = Best()
    assert best.metric is None and best.model is None
    assert [mark for mark, _ in seen(best, 0.5, 0.4, 0.6, 0.6)] == ["better", "", "better", ""]
    assert best.metric == {"accuracy": 0.6, "loss": 1.0, "step": 3}


def test_without_an_accuracy_the_best_goes_by_loss():
    best = Best()
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        best.see(Evaluation(loss, None, None, 10), step, make_tiny_model())
    assert best.metric == {"accuracy": None, "loss": 1.0, "step": 1}


def test_an_accuracy_of_zero_is_a_first_best():
    best = Best()
    assert seen(best, 0.0) == [("better", "")] and best.metric["accuracy"] == 0.0
    assert not best.see(Evaluation(0.1, 0.0, None, 10), 2, make_tiny_model())  # a smaller loss does not count


def test_the_best_model_is_a_copy_and_the_naive_way_keeps_the_last():
    model, best = make_tiny_model(), Best()
    naive = shallow = None
    for accuracy in (0.9, 0.5):
        if best.see(Evaluation(1.0, accuracy, None, 10), 1, model):
            naive, shallow = model.state_dict(), model.state_dict().copy()
            expected = model[0].weight.detach().clone()
        with torch.no_grad():
            model[0].weight.add_(1.0)  # training goes on
    assert torch.equal(best.model["0.weight"], expected)
    assert torch.equal(naive["0.weight"], shallow["0.weight"]) and torch.equal(naive["0.weight"], model[0].weight)


def test_the_copy_is_on_the_cpu_with_the_models_own_names():
    compiled = torch.nn.Module()
    compiled._orig_mod = make_tiny_model()
    best = Best()
    seen(best, 0.5, model=compiled)
    assert list(best.model) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert not any(tensor.requires_grad for tensor in best.model.values())
    found = copied({"a": torch.ones(2), "_extra_state": "kept"})
    assert found["_extra_state"] == "kept" and found["a"].device.type == "cpu"


def test_the_model_is_not_kept_where_it_is_not_wanted():
    best = Best(keep_model=False)
    seen(best, 0.5)
    assert best.metric["step"] == 1 and best.model is None


@pytest.mark.parametrize(
    "patience, min_delta, accuracies, stalled_at",
    [
        (1, 0.0, [0.5, 0.5], 2),
        (2, 0.0, [0.5, 0.4, 0.6, 0.5, 0.6], 5),
        (2, 0.1, [0.5, 0.55, 0.625, 0.65], None),  # 0.625 is progress over 0.5, though not over 0.55
        (2, 0.125, [0.5, 0.55, 0.625], 3),  # exactly min_delta more is no progress
        (3, 0.0, [0.5, 0.4, 0.3], None),
        (None, 0.0, [0.5] * 50, None),
    ],
)
def test_stalled_after_patience_validations_without_progress(patience, min_delta, accuracies, stalled_at):
    marks = [mark for _, mark in seen(Best(patience=patience, min_delta=min_delta), *accuracies)]
    assert (marks.index("stalled") + 1 if "stalled" in marks else None) == stalled_at


def test_a_small_gain_is_the_best_although_it_is_no_progress():
    best = Best(patience=2, min_delta=0.1)
    assert seen(best, 0.5, 0.55, 0.58) == [("better", ""), ("better", ""), ("better", "stalled")]
    assert best.metric["step"] == 3


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_state_goes_on_counting_where_it_was(cut):
    accuracies = [0.5, 0.6, 0.55, 0.58, 0.6]
    whole, first, second = (Best(patience=3, min_delta=0.05) for _ in range(3))
    expected = seen(whole, *accuracies)
    marks = seen(first, *accuracies[:cut])
    second.load_state_dict(first.state_dict())
    assert marks + seen(second, *accuracies[cut:]) == expected and expected[-1][1] == "stalled"
    assert second.metric["accuracy"] == whole.metric["accuracy"] and second.model.keys() == whole.model.keys()


@pytest.mark.parametrize(
    "how", [{"patience": 0}, {"min_delta": -0.1}, {"min_delta": math.nan}, {"min_delta": math.inf}]
)
def test_settings_that_mean_nothing_are_refused(how):
    name, value = next(iter(how.items()))
    with pytest.raises(ValueError, match=f"{name} needs .*{value}"):
        Best(**how)
