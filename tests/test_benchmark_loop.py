"""The records of chapters 05 and 06: their pure parts, what is stated of them, that all loops do one work."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from benchmarks import clipping, forgotten_eval, framework_loops, optimism, precision, records
from benchmarks import frameworks as framework_record
from benchmarks.catalogue_tasks import Examples
from benchmarks.pieces import Uncached
from benchmarks.rows import frameworks
from course_utils.datasets import ArrayDataset

SPREAD = {"mean", "stdev", "each"}


@pytest.fixture
def few_examples(monkeypatch):
    """300 examples of noise in the place of every part: enough to see that a benchmark runs."""
    generator = torch.Generator().manual_seed(0)
    images, targets = torch.randn(300, 1, 28, 28, generator=generator), torch.arange(300) % 10
    found = ArrayDataset(images, targets, classes=tuple("abcdefghij"))
    for module in (forgotten_eval, optimism, precision):
        monkeypatch.setattr(module, "data", lambda part: found)
    monkeypatch.setattr("benchmarks.trainings.data", lambda part: found)
    monkeypatch.setattr(optimism, "NUM_TRAIN", 100)
    small = {"SIZES": (50,), "ONE_DRAW_EXAMPLES": 50, "FIRST_LOOK": 1, "LOOK_EVERY": 1, "NUM_CANDIDATES": 4}
    for name, value in small.items():
        monkeypatch.setattr(optimism, name, value)
    monkeypatch.setattr(forgotten_eval, "NUM_TEST", 64)
    monkeypatch.setattr(forgotten_eval, "NUM_PASS", 64)
    optimism.features.cache_clear()
    yield found
    optimism.features.cache_clear()


@pytest.fixture
def few_captions(monkeypatch):
    letters = torch.arange(64 * 33).view(64, 33) % 7
    monkeypatch.setattr(clipping, "captions", lambda part: Examples(letters[:, :-1], letters[:, 1:]))
    monkeypatch.setattr(clipping, "alphabet", lambda: list("abcdefg"))
    clipping.val_batches.cache_clear()
    yield
    clipping.val_batches.cache_clear()


@pytest.fixture
def quick_result(few_examples, few_captions, tmp_path, monkeypatch, capsys):
    """What `--quick` prints; it stores nothing."""
    monkeypatch.setattr(records, "RECORDS", tmp_path)

    def result(module):
        module.main(["--quick"])
        assert not list(tmp_path.iterdir())
        return json.loads(capsys.readouterr().out)

    return result


def test_a_quick_forgotten_eval_gives_passes_of_nets_with_batchnorm(quick_result, monkeypatch):
    monkeypatch.setattr(forgotten_eval, "NETS", dict.fromkeys(("plain", "BatchNorm1d"), ""))
    found = quick_result(forgotten_eval)
    assert set(found) == {"plain", "BatchNorm1d"} and not found["plain"]["passes"]
    assert set(found["BatchNorm1d"]["passes"]) == set(forgotten_eval.ORDERS)


def test_a_quick_optimism_gives_every_kind(quick_result):
    assert set(quick_result(optimism)["results"]) == set(optimism.KINDS)


def test_a_quick_clipping_gives_a_verdict(quick_result):
    found = quick_result(clipping)
    assert set(found["verdict"]["RNN"]["SGD"]["best"]) == set(clipping.CLIPS)
    assert set(found["cosines"]["RNN"]) == set(clipping.BOUNDS)


def test_a_quick_precision_gives_every_way_and_operation(quick_result):
    found = quick_result(precision)
    assert set(found["results"]) == set(precision.WAYS) and set(found["operations"]) == set(precision.OPERATIONS)


def test_the_nets_of_forgotten_eval_differ_in_the_layers_that_they_name():
    kinds = {net: [type(layer) for layer in forgotten_eval.build(net)] for net in forgotten_eval.NETS}
    assert [kinds[net].count(nn.BatchNorm2d) for net in kinds] == [0, 2, 0, 2, 0]
    assert [kinds[net].count(nn.Dropout) for net in kinds] == [0, 0, 1, 1, 0]


def test_sorted_examples_are_the_shuffled_ones(few_examples):
    (shuffled, mixed), (ordered, classes) = (
        forgotten_eval.examples("val", order, 100) for order in forgotten_eval.ORDERS
    )
    assert torch.equal(classes, mixed.sort().values) and not torch.equal(classes, mixed)
    assert torch.equal(ordered.sum((1, 2, 3)).sort().values, shuffled.sum((1, 2, 3)).sort().values)


def test_a_shift_is_counted_in_running_deviations():
    before, after = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
    before.running_var.copy_(torch.tensor([4.0, 1.0]))
    after.running_mean.copy_(torch.tensor([2.0, -3.0]))
    assert forgotten_eval.shift(before, after) == 2.0


def test_what_a_forgotten_eval_costs_depends_on_layers_batch_and_order():
    lost = {
        net: {order: {size: row["lost"]["mean"] for size, row in sizes.items()} for order, sizes in of.items()}
        for net, of in ((net, found["train_mode"]) for net, found in records.load("forgotten_eval")["results"].items())
    }
    assert not any(loss for sizes in lost["plain"].values() for loss in sizes.values())
    assert all(0.01 < loss < 0.05 for sizes in lost["dropout"].values() for loss in sizes.values())
    assert abs(lost["BatchNorm"]["shuffled"]["64"]) < 0.01 < lost["BatchNorm"]["sorted by class"]["64"] < 0.05
    assert abs(lost["BatchNorm1d"]["shuffled"]["256"]) < 0.02 and lost["BatchNorm1d"]["sorted by class"]["64"] > 0.4


def test_a_pass_in_train_mode_changes_statistics_and_no_weight_and_is_forgotten_after_100_updates():
    results = records.load("forgotten_eval")["results"]
    for net, found in results.items():
        passes = [row for sizes in found["passes"].values() for row in sizes.values()]
        assert bool(passes) == ("BatchNorm" in net)
        assert all(row["weights_changed"] == 0 and row["shift"]["mean"] > 0.005 for row in passes)
    worst = results["BatchNorm1d"]["passes"]["sorted by class"]["8"]["lost_after"]
    assert min(worst["0"]["each"]) > 0.03 and max(map(abs, worst["100"]["each"])) < 0.005


def test_candidates_trained_side_by_side_move_as_one_alone_would(few_examples):
    candidates = optimism.Candidates("settings", torch.Generator().manual_seed(1))
    candidates.drop.zero_()
    alone = [weight[3].detach().clone().requires_grad_() for weight in candidates.weights]
    how = {"lr": float(candidates.lr[3]), "momentum": 0.9, "weight_decay": float(candidates.decay[3])}
    optimizer = torch.optim.SGD(alone, **how)
    inputs, targets = torch.randn(4, 5, 196), torch.arange(20).view(4, 5) % 10
    for _ in range(3):
        candidates.update(inputs, targets)
        optimizer.zero_grad()
        hidden = (inputs[3] @ alone[0] + alone[1]).relu()
        nn.functional.cross_entropy(hidden @ alone[2] + alone[3], targets[3]).backward()
        optimizer.step()
    for batched, own in zip(candidates.weights, alone, strict=True):
        assert torch.allclose(batched[3], own, atol=1e-5)


def test_a_draw_chooses_by_the_first_part_and_judges_by_the_others():
    left_out, test = torch.zeros(64, 100, dtype=torch.bool), torch.zeros(64)
    left_out[5], test[5] = True, 0.7
    rows = optimism.chosen(left_out, test, 50, torch.Generator().manual_seed(0))
    assert len(rows) == len(optimism.COUNTS) and rows[-1] == pytest.approx({"val": 1.0, "test": 0.7, "once": 1.0})


@pytest.mark.parametrize("kind", optimism.KINDS)
def test_the_best_of_64_on_200_examples_is_optimistic_and_a_part_looked_at_once_is_not(kind):
    found = records.load("optimism")["results"][kind]
    best = found["200"]["64"]
    assert best["optimism"]["mean"] > 4 * best["optimism"]["stdev"] / math.sqrt(20) and best["optimism"]["mean"] > 0.02
    assert abs(best["once"]["mean"]) < best["optimism"]["mean"] / 5
    assert found["50"]["64"]["optimism"]["mean"] > 3 * found["1000"]["64"]["optimism"]["mean"]
    by_count = [found["200"][str(count)]["optimism"]["mean"] for count in optimism.COUNTS]
    assert (
        by_count == sorted(by_count)
        and abs(by_count[0]) < 0.005
        and all(len(best[name]["each"]) == 20 for name in best)
    )


def test_entries_at_a_bound_are_counted_over_all_gradients():
    assert clipping.share_at([torch.tensor([0.5, -0.5, 0.1]), torch.tensor([[0.2]])], 0.5) == 0.5


def test_a_verdict_names_the_best_lr_and_where_none_diverged():
    def row(mean, diverged=0):
        return {"val_loss": {"mean": mean, "stdev": 0.0, "each": [mean, mean]}, "diverged": diverged}

    found = clipping.verdict({"none": {"0.1": row(2.0), "1": row(3.0, 2)}, "norm": {"0.1": row(2.2), "1": row(1.95)}})
    assert found["best"]["norm"]["lr"] == 1.0 and found["usable"] == {"none": [0.1], "norm": [1.0]}
    assert found["lower"]["norm"]["mean"] == pytest.approx(0.05) and found["inside"] == {"none": False, "norm": False}


@pytest.mark.parametrize("net", records.load("clipping")["results"])
def test_at_its_best_lr_each_way_to_clip_ends_with_the_same_loss_as_none(net):
    record = records.load("clipping")
    assert set(record["results"]) <= set(clipping.NETS)
    for judged in record["verdict"][net].values():
        losses = [best["val_loss"]["mean"] for best in judged["best"].values()]
        assert max(losses) - min(losses) < 0.05


def test_at_a_large_lr_a_small_norm_saves_the_plain_network():
    record = records.load("clipping")
    large = {clip: lrs["3.0"] for clip, lrs in record["results"]["RNN"]["SGD"].items()}
    assert large["none"]["diverged"] == large["norm 1"]["diverged"] == 5 and large["norm 0.25"]["diverged"] == 0
    assert large["norm 0.25"]["val_loss"]["mean"] < 1 < record["setup"]["guessing"] - 1


@pytest.mark.parametrize("net", records.load("clipping")["results"])
def test_the_norm_keeps_the_direction_and_the_value_turns_it(net):
    found = records.load("clipping")["cosines"][net]
    assert all(found[bound]["least"] > 0.9999 for bound in list(clipping.BOUNDS)[:2])
    by_bound = [found[f"value {bound}"]["cosine"]["mean"] for bound in ("0.1", "0.01", "0.001")]
    assert by_bound == sorted(by_bound, reverse=True) and by_bound[-1] < 0.9


def test_a_skipped_step_is_an_overflow_and_leaves_the_weights(few_examples):
    training = precision.Training(precision.WAYS["float16"], 0)
    training.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    before = [param.clone() for param in training.model.parameters()]
    training.step(few_examples.images[:8], few_examples.targets[:8])
    assert training.skipped == [1] and all(map(torch.equal, before, training.model.parameters()))


def test_here_16_bits_cost_no_accuracy_and_save_no_time():
    record = records.load("precision")
    assert set(record["results"]) == set(precision.WAYS) and record["units"] == {"bfloat16": False, "float16": False}
    plain = record["results"]["float32"]
    for way, found in record["results"].items():
        assert abs(found["accuracy_gap"]["mean"]) < 0.01 and len(found["accuracy"]["each"]) == 5
        if way != "float32":
            assert found["over_first"] > 1.5 and found["kept_bytes"] < 0.6 * plain["kept_bytes"]
    assert all(record["operations"]["matmul 256 x 256"][dtype]["over_first"] > 10 for dtype in ("bfloat16", "float16"))


def test_a_scale_that_fits_skips_no_update_and_one_that_is_too_large_the_first_ones():
    results = records.load("precision")["results"]
    assert results["float16"]["skipped"]["each"] == [0] * 5 and results["float16"]["scale"] == 2.0**16
    too_large = results["float16, scale from 2**32"]
    assert too_large["skipped_at"][:8] == list(range(1, 9)) and too_large["scale"] < 2.0**20
    assert max(too_large["skipped"]["each"]) < 30 and too_large["gradient_error"] is None


def test_every_framework_that_is_there_ends_with_the_weights_of_the_inlined_loop():
    times, weights = frameworks.timed(frameworks.make_batches(4), rounds=2)
    assert set(times) == set(framework_loops.present()) >= {"inlined loop", "barest loop", "Trainer"}
    for name, of in weights.items():
        assert torch.equal(of, weights["inlined loop"]) == (name != "barest loop")


def test_the_frameworks_record_has_every_loop_and_all_did_the_same_work():
    record = records.load("frameworks")
    assert set(record["loops"]) == set(framework_loops.FITS)
    assert all(row["same_weights"] == (loop != "barest loop") for loop, row in record["loops"].items())
    assert set(record["packages"]) == {"lightning", "pytorch-ignite", "accelerate"}
    over = {loop: row["by_round"]["median"] for loop, row in record["loops"].items()}
    assert over["barest loop"] < 1 == over["inlined loop"] and over["Trainer"] < 1.05 < over["Lightning"] - 0.05


def test_a_loop_is_compared_within_each_round(monkeypatch):
    seconds = {"inlined loop": [0.002, 0.004, 0.001], "Trainer": [0.004, 0.004, 0.003]}
    monkeypatch.setattr(
        framework_record, "measured", lambda *how: {"times": seconds, "same": dict.fromkeys(seconds, True)}
    )
    found = framework_record.report(Uncached(), pieces=1, rounds=3)["loops"]
    assert found["Trainer"]["by_round"] == {"low": 1.5, "median": 2.0, "high": 2.5}  # of 2, 1, 3
    assert found["inlined loop"]["extra_us"] == 0.0 and found["Trainer"]["extra_us"] == 2_000.0
    assert found["Trainer"]["over_inlined"] == 3.0 and found["Trainer"]["median_over_inlined"] == 2.0


def test_a_framework_that_is_missing_is_named_and_left_out(monkeypatch, capsys):
    monkeypatch.setattr(framework_loops, "find_spec", lambda module: None)
    rows = frameworks.measure(quick=True)
    assert [row.name.split(" by ")[1] for row in rows] == [
        f"Trainer over {other} loop, within rounds" for other in ("inlined", "barest")
    ]
    assert "Ignite is left out: pip install pytorch-ignite" in capsys.readouterr().err


def test_loops_take_turns_and_one_that_raises_is_heard():
    made, loaders = [], {name: framework_loops.TurnLoader([("x",)], 6, 2) for name in "ab"}

    def loop(name):
        for _ in loaders[name]:
            made.append(name)

    for name, loader in loaders.items():
        loader.start(lambda name=name: loop(name))
    for _ in range(3):
        for loader in loaders.values():
            loader.turn()
    assert "".join(made) == "aabb" * 3 and [len(loader.seconds) for loader in loaders.values()] == [2, 2]
    with pytest.raises(ZeroDivisionError):
        framework_loops.TurnLoader([("x",)], 2, 1).start(lambda: 1 / 0)
    failing = framework_loops.TurnLoader([("x",)], 2, 1)
    failing.start(lambda: [1 / 0 for _ in failing])
    with pytest.raises(ZeroDivisionError):
        failing.turn()
