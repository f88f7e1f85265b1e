"""Memory that lives at one time: the curve and its peak, each number worked out by hand."""

import torch
from torch import nn

from course_utils.profiling import bytes_for_backward, checkpointed, live_bytes, peak_bytes


def some_steps():
    a = torch.empty(1000)  # 4000 bytes
    b = torch.empty(500)  # 2000
    del a
    c = torch.empty(250)  # 1000
    del b, c


def test_the_curve_goes_up_with_what_is_made_and_down_with_what_is_given_back():
    assert live_bytes(some_steps) == [0, 4000, 6000, 2000, 3000, 1000, 0]
    assert peak_bytes(some_steps) == 6000


def test_what_the_first_run_makes_for_later_ones_is_counted_only_where_that_is_asked_for():
    for prepare, curve in ((True, [0]), (False, [0, 4000])):
        kept = []
        assert live_bytes(lambda kept=kept: kept or kept.append(torch.empty(1000)), prepare=prepare) == curve


def test_a_view_is_no_memory_and_an_operation_in_place_needs_none():
    kept = torch.ones(1000)
    assert live_bytes(lambda: kept.view(10, 100)[2:].zero_()) == [0]


def step_of(model, rows=1000):
    weight = torch.ones(rows, 8, requires_grad=True)
    return lambda: torch.autograd.grad(model(weight + 0).sum(), weight)


def test_forward_lives_in_what_is_kept_and_the_input_that_its_caller_holds():
    model, weight = nn.Sequential(*[nn.Sigmoid() for _ in range(6)]), torch.ones(1000, 8, requires_grad=True)
    assert bytes_for_backward(lambda: model(weight + 0).sum()) == 6 * 32_000  # each one's result
    assert peak_bytes(lambda: model(weight + 0).sum()) == 7 * 32_000  # at the last one: the first one's input too
    assert peak_bytes(lambda: None) == 0


def test_checkpointing_lowers_the_peak_of_equal_layers_and_not_where_one_segment_holds_most():
    equal = nn.Sequential(*[nn.Sigmoid() for _ in range(16)])
    assert peak_bytes(step_of(checkpointed(equal, 4))) < 0.7 * peak_bytes(step_of(equal))

    class Narrow(nn.Module):
        def forward(self, inputs):
            return inputs[:10].sigmoid()

    early = nn.Sequential(*[nn.Sigmoid() for _ in range(4)], *[Narrow() for _ in range(12)])
    plain, cheap = (peak_bytes(step_of(model)) for model in (early, checkpointed(early, 4)))
    assert cheap > 0.9 * plain
    assert bytes_for_backward(lambda: checkpointed(early, 4)(torch.ones(1000, 8, requires_grad=True) + 0).sum()) < (
        0.5 * bytes_for_backward(lambda: early(torch.ones(1000, 8, requires_grad=True) + 0).sum())
    )
