"""The mistakes that chapter 04 shows: each really misleads or fails, and what the chapter does instead does not."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset, default_collate

from course_utils import naive_loaders as naive
from course_utils.collate import collate_boxes, pad_sequences
from course_utils.loaders import ResumableLoader
from course_utils.sampling import EpochBatches
from course_utils.worker_pool import as_it_is

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def seeded():
    return torch.Generator().manual_seed(0)


def error_of(loader):
    """Type and text of the error, without frames that would keep the loader alive until it is collected as a cycle."""
    try:
        list(loader)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        return f"{type(error).__name__}: {error}"
    return "none"


# --- position -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers, counted", [(0, 30), (2, 70)])
def test_a_sampler_counts_what_is_under_way_and_the_loader_what_it_handed_over(num_workers, counted):
    dataset, position = naive.Slow(100, 0), {}

    def counting():
        for key in EpochBatches(100, batch_size=10, seed=0):
            position["offset"] = key.start + len(key)
            yield key

    plain = DataLoader(naive.MadeByKey(dataset), batch_sampler=counting(), collate_fn=as_it_is, num_workers=num_workers)
    ours = ResumableLoader(dataset, batch_size=10, seed=0, num_workers=num_workers)
    for loader in (plain, ours):
        for _, _batch in zip(range(3), loader, strict=False):
            pass
    assert position["offset"] == counted and ours.state_dict()["offset"] == 30


# --- collate --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "examples, error",
    [
        ([Image.new("RGB", (4, 4))] * 2, TypeError),
        ([None, None], TypeError),
        ([torch.zeros(3, 4, 4), torch.zeros(3, 5, 4)], RuntimeError),
        ([[1, 2, 3], [4, 5]], RuntimeError),
    ],
)
def test_the_default_refuses_pil_images_none_and_unequal_sizes(examples, error):
    with pytest.raises(error):
        default_collate(examples)


def test_the_default_leaves_strings_and_stacks_arrays():
    assert default_collate(["shirt", "bag"]) == ["shirt", "bag"]
    assert torch.equal(default_collate([np.zeros(3)] * 2), torch.zeros(2, 3, dtype=torch.float64))


def test_the_default_makes_floats_64_bits_wide_and_loses_a_key_that_the_first_example_lacks():
    assert default_collate([0.5, 1.5]).dtype == torch.float64
    assert list(default_collate([{"x": 1}, {"x": 2, "weight": 0.5}])) == ["x"]


def test_a_mean_over_a_padded_row_counts_the_padding():
    batch = pad_sequences([torch.tensor([5.0, 5, 5, 5]), torch.tensor([5.0, 5])])
    assert batch.values.mean(1).tolist() == [5.0, 2.5]
    assert ((batch.values * batch.mask).sum(1) / batch.lengths).tolist() == [5.0, 5.0]


def test_boxes_of_a_batch_do_not_stack_and_stay_a_list():
    examples = [
        (torch.zeros(3, 8, 8), {"boxes": torch.zeros(n, 4), "labels": torch.zeros(n, dtype=torch.int64)})
        for n in (1, 2, 0)
    ]
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate(examples)
    assert [len(target["boxes"]) for target in collate_boxes(examples)[1]] == [1, 2, 0]


# --- randomness -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator, equal", [(None, False), (seeded, True)])
def test_one_more_layer_changes_the_order_unless_the_loader_has_its_own_generator(generator, equal):
    orders = []
    for num_layers in (1, 2):
        torch.manual_seed(0)
        nn.Sequential(*(nn.Linear(4, 4) for _ in range(num_layers)))
        loader = DataLoader(range(20), shuffle=True, generator=generator and generator())
        orders.append(torch.cat(list(loader)).tolist())
    assert (orders[0] == orders[1]) == equal


def test_the_order_is_equal_for_any_number_of_workers_and_what_is_drawn_is_not():
    orders, drawn = [], []
    for num_workers in (0, 1, 2):
        rows = list(DataLoader(naive.Draws(8), shuffle=True, num_workers=num_workers, generator=seeded()))
        drawn.append([row[1].item() for row in rows])
        orders.append(list(RandomSampler(range(8), generator=seeded())))
    assert drawn[0] != drawn[1] != drawn[2] and orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("generator, equal", [(None, [True, False]), (seeded, [True, True])])
def test_a_dataset_that_draws_changes_later_orders_without_workers_unless_the_loader_has_its_own_generator(
    generator, equal
):
    dataset, orders = naive.GlobalGenerator(torch.ones(20, 1), torch.arange(20)), []
    for num_workers in (0, 1):
        torch.manual_seed(0)
        how = {"batch_size": 10, "shuffle": True, "num_workers": num_workers}
        loader = DataLoader(dataset, generator=generator and generator(), **how)
        orders.append([torch.cat([numbers for _, numbers in loader]).tolist() for _ in range(2)])
    assert [none == one for none, one in zip(*orders, strict=True)] == equal


@pytest.mark.parametrize("generator, moved", [(None, True), (seeded, False)])
def test_beginning_an_iteration_draws_from_the_global_generator_unless_the_loader_has_its_own(generator, moved):
    before = torch.get_rng_state()
    iter(DataLoader([0], generator=generator and generator()))
    assert torch.equal(before, torch.get_rng_state()) is not moved


def test_a_mean_of_batch_means_moves_with_the_order_and_the_whole_does_not():
    right = TensorDataset((torch.arange(10) < 3).float())
    means, wholes = set(), set()
    for order in (range(10), range(9, -1, -1)):
        parts = [part for (part,) in DataLoader(right, batch_size=4, sampler=order)]
        means.add(sum(part.mean().item() for part in parts) / len(parts))
        wholes.add(torch.cat(parts).mean().item())
    assert len(means) == 2 and len(wholes) == 1


# --- workers --------------------------------------------------------------------------------------------------


def test_a_plain_loaders_error_names_no_file_and_ours_does():
    raising = naive.Misbehaving(8, 5, "raises")
    plain = error_of(DataLoader(raising, batch_size=2, num_workers=2))
    ours = error_of(ResumableLoader(raising, batch_size=2, num_workers=2))
    assert all(told.startswith("OSError") and "image file is truncated" in told for told in (plain, ours))
    assert "005.jpg" not in plain and "while making example 5: photos/005.jpg" in ours


def test_a_hung_worker_is_told_only_with_a_timeout():
    hanging = naive.Misbehaving(2, 1, "hangs")
    with pytest.raises(RuntimeError, match="timed out after 1 second"):
        list(DataLoader(hanging, num_workers=1, timeout=1))


def test_a_class_of_main_cannot_be_imported_by_a_worker_that_starts_anew():
    code = """if True:
        from multiprocessing import get_context
        class Photos: pass
        def main():
            child = get_context("spawn").Process(target=print, args=(Photos(),))
            child.start(); child.join(); print(child.exitcode)
        main()
    """
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "1" and "Can't get attribute 'Photos' on <module '__main__'" in ran.stderr


@pytest.mark.parametrize("guard, exit_code", [("True", "1"), ("__name__ == '__main__'", "0")])
def test_a_script_that_starts_workers_needs_its_guard(tmp_path, guard, exit_code):
    script = tmp_path / "train.py"
    script.write_text(f"""from multiprocessing import get_context
if {guard}:
    child = get_context("spawn").Process(target=int)
    child.start(); child.join(); print(child.exitcode)
""")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == exit_code
    assert ("An attempt has been made to start a new process before" in ran.stderr) is (exit_code == "1")


@pytest.mark.parametrize(
    "make, how, told",
    [
        (DataLoader, {}, "8 batches"),
        (DataLoader, {"persistent_workers": True, "timeout": 1}, "exited unexpectedly"),
        (ResumableLoader, {"persistent_workers": True}, "3 batches"),
    ],
)
def test_after_a_stop_a_plain_loop_begins_again_a_persistent_one_fails_and_ours_goes_on(make, how, told):
    loader = make(naive.Slow(8, 0), batch_size=1, num_workers=2, **how)
    for _batch in itertools.islice(loader, 5):
        pass
    for worker in multiprocessing.active_children():
        os.kill(worker.pid, signal.SIGINT)
        worker.join(0.2)
    assert told in naive.said(lambda: f"{len(list(loader))} batches")


def test_a_breakpoint_in_a_worker_finds_no_input_and_quits(capfd):
    assert error_of(DataLoader(naive.Misbehaving(2, 1, "stops"), num_workers=1)).startswith("BdbQuit")


def test_a_worker_prints_its_number(capfd):
    list(DataLoader(naive.Misbehaving(2, 1, "prints"), num_workers=1))
    assert "printed in worker 0" in capfd.readouterr().out
    assert naive.Misbehaving(2, 1, "prints")[1] == 1 and "printed in the main process" in capfd.readouterr().out


def test_a_worker_that_dies_is_told():
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(ResumableLoader(naive.Misbehaving(4, 1, "dies"), batch_size=2, num_workers=1, timeout=30))
