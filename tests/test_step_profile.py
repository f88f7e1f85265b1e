"""One profiled step as a table: the arithmetic on events written by hand, then a real one."""

import os
import time

import pytest
import torch

from course_utils import step_profile
from course_utils.profiling import profile_step
from course_utils.step_profile import table_of

EVENTS = [("aten::add", 4, 1.0), ("aten::mm", 3, 6.0), ("aten::empty", 9, 0.0), ("aten::sum", 1, 1.0), ("opt", 1, 2.0)]


def test_the_longest_come_first_and_the_rest_is_added_up():
    found = table_of(EVENTS, top=2)
    assert [(row.name, row.calls, row.self_ms, row.share) for row in found.rows] == [
        ("aten::mm", 3, 6.0, 0.6),
        ("opt", 1, 2.0, 0.2),
    ]
    assert (found.num_others, found.others_share, found.total_ms, found.device) == (2, 0.2, 10.0, "CPU")
    assert str(found).splitlines() == [
        "operation  calls  self CPU ms   share",
        "aten::mm       3        6.000   60.0%",
        "opt            1        2.000   20.0%",
        "2 others                        20.0%",
        "",
        "aten::mm (3 calls) takes 60% of 10 ms.",
    ]


def test_it_can_be_read_aloud_to_half_of_the_time():
    even = [("a", 1, 1.0), ("b", 2, 1.0), ("c", 1, 1.0), ("d", 1, 1.0)]
    assert table_of(even, top=4).sentence() == "a (1 call), b (2 calls) take 50% of 4 ms."
    assert table_of(even, top=1).sentence() == "a (1 call) takes 25% of 4 ms."


def test_a_real_step_has_its_operations_and_leaves_no_line_file_or_variable(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    calls, matrix, before = [], torch.ones(64, 64), torch.get_rng_state()
    found = profile_step(lambda: calls.append(matrix @ matrix @ matrix))
    assert {row.name: row.calls for row in found.rows}["aten::mm"] == 2 and len(calls) == 2
    assert os.listdir(tmp_path) == [] and "KINETO_LOG_LEVEL" not in os.environ
    assert torch.equal(torch.get_rng_state(), before) and capfd.readouterr() == ("", "")


def test_a_step_without_operations_and_a_table_without_rows_are_refused():
    with pytest.raises(ValueError, match="no operation of torch"):
        profile_step(lambda: None)
    with pytest.raises(ValueError, match="top >= 1, got 0"):
        profile_step(lambda: torch.ones(3), top=0)


def test_milliseconds_are_milliseconds_the_device_is_awaited_and_eight_rows_are_shown(monkeypatch):
    awaited, took = [], []
    monkeypatch.setattr(step_profile, "wait_for_device", lambda: awaited.append(len(took)))

    def step():
        began = time.perf_counter()
        x = torch.rand(300, 300)
        for name in ("exp", "sin", "cos", "tanh", "abs", "neg", "floor", "ceil", "sqrt"):
            getattr(x, name)()
        took.append((time.perf_counter() - began) * 1e3)

    found = profile_step(step)
    assert len(found.rows) == 8 and found.num_others >= 2 and awaited == [2]
    assert 0 < found.total_ms <= took[1]  # self times do not overlap: together they fit into the step
