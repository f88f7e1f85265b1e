import math

import pytest
import torch

from course_utils import machine
from course_utils.machine import check_machine, container_quota, environment, fit_threads, usable_cpus


def cgroup(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "text, cores", [("200000 100000", 2.0), ("150000 100000", 1.5), ("max 100000", math.inf), ("odd", math.inf)]
)
def test_the_container_quota_is_read_from_cpu_max(tmp_path, text, cores):
    assert container_quota(cgroup(tmp_path, cpu_dot_max=text)) == cores


@pytest.mark.parametrize("quota, cores", [("300000", 3.0), ("-1", math.inf)])
def test_the_container_quota_is_read_from_the_older_pair_of_files(tmp_path, quota, cores):
    files = {"cpu__cpu_dot_cfs_quota_us": quota, "cpu__cpu_dot_cfs_period_us": "100000"}
    assert container_quota(cgroup(tmp_path, **files)) == cores


def test_without_cgroup_files_there_is_no_quota(tmp_path):
    assert container_quota(tmp_path) == math.inf


@pytest.mark.parametrize(
    "allowed, quota, usable", [(64, 2.0, 2), (64, 1.5, 1), (64, 0.5, 1), (2, 8.0, 2), (4, math.inf, 4)]
)
def test_usable_cpus_is_the_smaller_of_affinity_and_quota_and_at_least_one(monkeypatch, allowed, quota, usable):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(allowed)), raising=False)
    monkeypatch.setattr(machine, "container_quota", lambda: quota)
    assert usable_cpus() == usable


def test_where_there_is_no_affinity_call_the_core_count_is_used(monkeypatch):
    monkeypatch.delattr(machine.os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 6)
    monkeypatch.setattr(machine, "container_quota", lambda: math.inf)
    assert usable_cpus() == 6


@pytest.mark.parametrize("num_workers, max_threads, threads", [(0, 1, 1), (0, 8, 4), (2, 8, 2), (2, 1, 1), (9, 8, 1)])
def test_fit_threads_sets_what_the_workers_leave(monkeypatch, num_workers, max_threads, threads):
    monkeypatch.setattr(machine, "usable_cpus", lambda: 4)
    assert fit_threads(num_workers, max_threads=max_threads) == threads == torch.get_num_threads()


@pytest.mark.parametrize("num_workers, max_threads", [(-1, 1), (0, 0)])
def test_fit_threads_names_a_wrong_value(num_workers, max_threads):
    with pytest.raises(ValueError, match=f"num_workers={num_workers}, max_threads={max_threads}"):
        fit_threads(num_workers, max_threads=max_threads)


def test_the_environment_holds_plain_values_that_a_checkpoint_can_carry(tmp_path):
    now = environment()
    assert {type(value) for value in now.values()} == {str, int}
    assert {"torch", "device", "usable_cpus", "num_threads", "start_method"} <= now.keys()
    torch.save(now, tmp_path / "environment.pt")
    assert torch.load(tmp_path / "environment.pt", weights_only=True) == now


def test_the_machine_check_says_what_to_do_about_what_is_not_right(monkeypatch):
    monkeypatch.setattr(machine, "_free_memory_gib", lambda: 0.5)
    torch.set_num_threads(2)
    wrong = {finding.topic: finding.advice for finding in check_machine() if not finding.ok}
    assert wrong.keys() == {"Torch threads", "Free memory"}
    assert "fit_threads()" in wrong["Torch threads"] and "close other programs" in wrong["Free memory"]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("number, fits", [((3, 10), False), ((3, 11), True), ((3, 14), True), ((3, 15), False)])
def test_the_machine_check_knows_which_python_fits(number, fits):
    assert machine._judge_python(number).ok is fits
