"""The race is fair (same start, batches and draws, any order of entries); its figures are worked out by hand."""

import functools
import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD

from course_utils.loaders import ResumableLoader
from course_utils.lr_race import Runners
from course_utils.schedules import Entry, Race, constant, exponential, lr_curve, race, race_steps, warmup_cosine
from course_utils.training_loop import evaluate

STEPS = 12
ENTRIES = {
    "constant": Entry(constant, 0.01),
    "exponential": Entry(functools.partial(exponential, gamma=0.1, decay_steps=STEPS), 0.03),
    "cosine": Entry(functools.partial(warmup_cosine, warmup_steps=2, total_steps=STEPS), 0.03),
}


def examples(num: int = 40) -> list:
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(4, generator=generator), int(torch.randint(3, (), generator=generator))) for _ in range(num)]


def network(dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def how(**changed) -> dict:
    return {"build": network, "dataset": examples(), "num_steps": STEPS, "batch_size": 8} | changed


def generators() -> list:
    return [torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())]


def test_all_entries_start_from_the_same_weights_and_another_seed_from_others():
    def start(runners, name):
        return nn.utils.parameters_to_vector(runners.trainers[name].model.parameters())

    runners, other = Runners(ENTRIES, **how(seed=1)), Runners(ENTRIES, **how(seed=2))
    assert torch.equal(start(runners, "constant"), start(runners, "cosine"))
    assert not torch.equal(start(runners, "constant"), start(other, "constant"))
    models = {id(trainer.model) for trainer in runners.trainers.values()}
    assert len(models) == len(ENTRIES)


def test_all_entries_see_the_same_batches_and_another_seed_others():
    seen: dict[int, list] = {}

    class Recording(nn.Linear):
        def forward(self, inputs):
            seen.setdefault(id(self), []).append(inputs.clone())
            return super().forward(inputs)

    by_seed = []
    for seed in (1, 2):
        seen.clear()
        runners = Runners(ENTRIES, **how(build=lambda: Recording(4, 3), seed=seed))
        assert len(list(runners)) == STEPS
        by_seed.append([torch.stack(batches) for batches in seen.values()])
    for same in by_seed:
        assert len(same) == len(ENTRIES) and same[0].shape == (STEPS, 8, 4)
        assert all(torch.equal(batches, same[0]) for batches in same)
    assert not torch.equal(by_seed[0][0], by_seed[1][0])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_neither_order_nor_company_of_entries_changes_a_bit(dropout):
    build = functools.partial(network, dropout)
    forth = race(ENTRIES, seeds=(0, 1), **how(build=build))
    back = race(dict(reversed(ENTRIES.items())), seeds=(1, 0), **how(build=build))
    alone = race({"cosine": ENTRIES["cosine"]}, seeds=(1,), **how(build=build))
    assert forth.losses == back.losses
    assert forth.losses["cosine"][1] == alone.losses["cosine"][1]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_race_leaves_the_global_generators_alone_and_does_not_depend_on_them(dropout):
    results = []
    for draws in (0, 3):
        torch.rand(draws + 1), random.random(), np.random.rand(draws + 1)
        before = generators()
        val_loader = ResumableLoader(examples(), batch_size=16, shuffle=False)
        results.append(race(ENTRIES, val_loader=val_loader, **how(build=functools.partial(network, dropout))))
        assert generators() == before
    assert results[0] == results[1]


def test_twins_make_the_same_run_also_with_dropout():
    twins = {"one": ENTRIES["cosine"], "two": ENTRIES["cosine"]}
    losses = race(twins, **how(build=functools.partial(network, 0.5))).losses
    assert losses["one"] == losses["two"]


def test_a_live_race_makes_the_same_steps_and_touches_no_generator_on_the_way():
    steps, before = race_steps(ENTRIES, **how(seed=4)), generators()
    rows = []
    for row in steps:
        rows.append(row)
        assert generators() == before
    whole = race(ENTRIES, seeds=(4,), **how())
    assert {name: [row[name]["loss"] for row in rows] for name in ENTRIES} == {n: whole.losses[n][4] for n in ENTRIES}


def test_a_live_race_refuses_dropout():
    with pytest.raises(ValueError, match="dropout draws from the generators that other cells use"):
        race_steps(ENTRIES, **how(build=functools.partial(network, 0.5)))


def test_the_recorded_lrs_are_the_planned_ones():
    result = race(ENTRIES, **how())
    for name, entry in ENTRIES.items():
        assert result.lrs[name] == lr_curve(entry.factor_fn, STEPS, base_lr=entry.lr)
        assert len(result.losses[name][0]) == STEPS


def test_the_accuracy_is_that_of_the_network_after_the_last_update():
    val_loader = ResumableLoader(examples(), batch_size=16, shuffle=False)
    result = race(ENTRIES, seeds=(0, 5), val_loader=val_loader, **how())
    runners = Runners(ENTRIES, **how(seed=5))
    assert len(list(runners)) == STEPS
    for name, trainer in runners.trainers.items():
        found = evaluate(trainer.model, val_loader, nn.functional.cross_entropy)
        assert (len(result.accuracy[name]), result.accuracy[name][1]) == (2, found.accuracy)


@pytest.mark.parametrize("wrong_lr", [1e30, math.inf])
def test_an_entry_that_diverges_is_out_and_the_others_go_on(wrong_lr):
    entries = {"wild": Entry(constant, wrong_lr), **ENTRIES}
    result = race(entries, **how(make_optimizer=SGD))
    calm = race(ENTRIES, **how(make_optimizer=SGD))
    assert {name: result.losses[name] for name in ENTRIES} == calm.losses
    assert math.isfinite(result.losses["wild"][0][0])
    assert result.losses["wild"][0][-1] == result.final_loss("wild")[0] == result.late_swing("wild")[0] == math.inf
    assert result.lrs["wild"] == [wrong_lr] * STEPS
    assert (result.wins("constant", "wild"), result.wins("wild", "constant")) == (1, 0)
    assert result.early_rank(share=1.0)[-1] == "wild"


def test_an_entry_that_starts_with_nan_is_out_from_the_first_update():
    def nan_loss(logits, targets):
        return logits.sum() * math.nan

    runners = Runners({"one": ENTRIES["constant"]}, **how(loss_fn=nan_loss, num_steps=2))
    rows = [row["one"] for row in runners]
    assert [(row["step"], row["loss"], row["lr"]) for row in rows] == [(1, math.inf, 0.01), (2, math.inf, 0.01)]
    assert runners.diverged == {"one"}


def test_a_race_that_cannot_be_fair_is_refused():
    model, generator = network(), torch.Generator().manual_seed(0)

    def own_generator():
        made = network()
        nn.init.normal_(made[0].weight, generator=generator)
        return made

    for build, words in ((lambda: model, "new model on each call"), (own_generator, "different weights")):
        with pytest.raises(ValueError, match=words):
            race(ENTRIES, **how(build=build))
    for changed in ({"num_steps": 0}, {"entries": {}}):
        with pytest.raises(ValueError, match="needs entries and num_steps >= 1"):
            race(changed.pop("entries", ENTRIES), **how(**changed))


# --- the figures, on tables made by hand ---------------------------------------------------------------------------

TABLE = Race(
    10,
    {
        "slow": {0: [9, 8, 7, 6, 5, 4, 4, 4, 4, 4], 1: [9, 8, 7, 6, 5, 4, 3, 3, 3, 1]},
        "fast": {0: [9, 3, 3, 3, 3, 3, 5, 5, 5, 3], 1: [9, 3, 3, 3, 3, 3, 5, 5, 5, 7]},
    },
)


def test_the_final_loss_is_the_mean_of_the_last_share_for_each_seed():
    assert TABLE.final_loss("slow") == [4, 1]
    assert TABLE.final_loss("fast", share=0.2) == [4, 6]
    assert TABLE.final_loss("fast", share=0.01) == [3, 7]


def test_the_late_swing_is_the_standard_deviation_of_the_last_share():
    assert TABLE.late_swing("slow") == pytest.approx([0.0, math.sqrt(2)])
    assert TABLE.late_swing("fast", share=0.4) == pytest.approx([1.0, 1.0])


def test_wins_count_the_seeds_with_the_lower_final_loss():
    assert (TABLE.wins("slow", "fast"), TABLE.wins("fast", "slow")) == (1, 1)
    assert TABLE.wins("slow", "slow") == 0


def test_the_early_rank_can_differ_from_the_late_one():
    assert TABLE.early_rank() == ["fast", "slow"]
    assert TABLE.early_rank(share=0.8) == ["slow", "fast"]
    assert TABLE.early_rank(share=0.0) == ["slow", "fast"]  # both 9 at the first update: in their order


def test_the_crossing_is_the_first_update_after_which_it_stays_below():
    assert TABLE.crossing("slow", "fast", window=1) == 6
    assert TABLE.crossing("fast", "slow", window=1) is None
    assert TABLE.crossing("slow", "slow", window=1) is None


def test_the_crossing_compares_means_over_the_window_and_ignores_a_passing_lead():
    runs = {"a": {0: [1, 5, 5, 1, 1, 1]}, "b": {0: [2, 2, 2, 2, 2, 2]}}
    assert Race(6, runs).crossing("a", "b", window=1) == 3
    assert Race(6, runs).crossing("a", "b", window=2) == 4  # means of a: 1, 3, 5, 3, 1, 1
    assert Race(6, runs).crossing("b", "a", window=6) == 1  # means of a: 1, 3, 11/3, 3, 13/5, 14/6
