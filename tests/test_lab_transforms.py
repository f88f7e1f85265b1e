"""Chapter 02's experiment: the copied code is what ran, a slider leaves other draws alone, the goal, the page."""

import random
import re

import numpy as np
import pytest
import torch

from course_utils.labs.transforms import augmentation_lab, each_alone, picture_of, reached, words
from course_utils.labs.transforms_view import (
    NOTHING,
    NUM_PHOTOS,
    SLIDERS,
    Pipeline,
    View,
    code,
    look,
    pipeline,
    stages,
    studio_photos,
)
from course_utils.randomness import BatchKey
from course_utils.reference_model import reference_photos, still_recognised

pytestmark = pytest.mark.usefixtures("no_run_is_left")

EVERY = {"flip": 0.5, "crop": 0.6, "turn": 15, "light": 0.3, "hue": 0.1, "blur": 1.0, "erase": 0.1}
RECIPE = {"crop": 0.9, "turn": 5, "light": 0.1, "hue": 0.15}  # reaches the goal
TOKENS = {"crop": 0.9, "light": 0.3, "hue": 0.05, "blur": 0.5}  # one strong kind and three notches


@pytest.fixture(scope="module")
def photos():
    """A dozen photos: enough for everything but the goal."""
    return studio_photos(16)


# --- the code to copy -----------------------------------------------------------------------------------------


def evaluated(text):
    from torchvision.transforms import v2

    return eval(text, {"v2": v2})  # what a reader does who copies it


def test_the_code_is_python_that_makes_the_same_transforms():
    copied = evaluated(code(EVERY)).transforms
    assert [repr(one) for one in copied] == [repr(one) for one in pipeline(EVERY).transforms.values()]
    assert len(copied) == 7


@pytest.mark.parametrize("settings", [{}, {"light": 0.3}, RECIPE, EVERY])
def test_the_code_evaluated_gives_the_pixels_that_the_lab_showed(photos, settings):
    copied = evaluated(code(settings))
    named = dict(zip(stages(settings), getattr(copied, "transforms", []), strict=True))
    key = BatchKey(2, 0, 0, list(range(len(photos))), [0] * len(photos))
    oracle = photos.replace_transforms(Pipeline(named), None).take(key)[0]
    assert torch.equal(look(settings, photos=photos, seed=2).images, oracle)


def test_a_setting_of_rounded_steps_is_written_as_it_is_shown():
    assert code({"light": 0.1 + 0.2}) == "v2.Compose([\n    v2.ColorJitter(brightness=0.3, contrast=0.3),\n])"
    assert code(NOTHING) == code({}) == "v2.Identity()"


@pytest.mark.parametrize("name", list(SLIDERS))
def test_each_slider_switches_on_one_transform_that_changes_photos(photos, name):
    _, off, low, high, _ = SLIDERS[name]
    assert stages({name: off}) == {} and list(stages({name: low + high - off})) == [name]
    view = look({name: low + high - off}, photos=photos)
    assert view.change > 1 and list(view.alone) == [name] and view.images.dtype == torch.uint8


# --- what is computed -----------------------------------------------------------------------------------------


def test_without_a_setting_nothing_changes_and_every_photo_is_recognised(photos):
    view = look({}, photos=photos)
    assert torch.equal(view.images, photos.images) and (view.change, view.share, view.kinds) == (0.0, 1.0, 0)


def test_the_photos_are_those_that_the_model_names_right():
    everything = reference_photos(16)
    known = still_recognised(None, everything).recognised[0]
    assert torch.equal(studio_photos(16).images, everything.images[known]) and 0 < known.sum() < 16


def test_a_slider_leaves_the_draws_of_the_others_alone(photos):
    turned, both = (look(settings, photos=photos) for settings in ({"turn": 30}, {"flip": 1.0, "turn": 30}))
    flipped = look({"flip": 1.0}, photos=photos).images
    assert torch.equal(flipped, photos.images.flip(-1))
    alone = photos.replace_transforms(lambda image: pipeline({"turn": 30})(image.flip(-1)), None)
    key = BatchKey(0, 0, 0, list(range(len(photos))), [0] * len(photos))
    assert torch.equal(both.images, alone.take(key)[0]) and not torch.equal(both.images, turned.images)


def test_a_photo_is_changed_alike_whatever_its_company(photos):
    from course_utils.datasets import ArrayDataset

    few = ArrayDataset(photos.images[:3], photos.targets[:3], classes=photos.classes)
    assert torch.equal(look(EVERY, photos=few).images, look(EVERY, photos=photos).images[:3])
    assert not torch.equal(look(EVERY, photos=few, seed=1).images, look(EVERY, photos=few).images)


def made(classes, guesses, *alone, change=0):
    before = torch.zeros(len(classes), 3, 2, 2, dtype=torch.uint8)
    kinds = {name: (each, 0.9) for name, each in zip(SLIDERS, alone, strict=False)}
    return View({}, before, before + change, classes, guesses, kinds)


def test_the_numbers_are_those_worked_out_by_hand():
    view = made(["bag", "coat", "bag"], ["bag", "bag", "bag"], 5.0, 4.9, change=3)
    assert (view.recognised, view.share, view.change, view.kinds) == (2, 2 / 3, 3.0, 1)
    assert words(view).endswith(
        "67% (2 of 3) \u00b7 mean pixel change 3.0 of 255 \u00b7 kinds that change 5 or more: 1"
    )
    assert each_alone(view).endswith(
        "flip: change 5.0, 90% recognised \u00b7 crop: change 4.9 (does not count), 90% recognised"
    )


def test_each_kind_alone_is_what_its_slider_does_by_itself(photos):
    both = look({"flip": 1.0, "turn": 30}, photos=photos)
    flipped, turned = look({"flip": 1.0}, photos=photos), look({"turn": 30}, photos=photos)
    assert both.alone == {"flip": (flipped.change, flipped.share), "turn": (turned.change, turned.share)}
    assert flipped.change == (photos.images.flip(-1).float() - photos.images.float()).abs().mean().item()
    assert look({"turn": 30}, photos=photos, seed=1).alone != turned.alone and both.kinds == 2


@pytest.mark.parametrize(
    "right, alone, yes",
    [(17, [5] * 4, True), (16, [5] * 4, False), (20, [5, 5, 5, 4.9], False), (20, [90, 0.3, 2.0, 4.0], False)],
)
def test_the_goal_is_four_kinds_that_each_change_5_and_85_per_cent(right, alone, yes):
    assert reached(made(["bag"] * 20, ["bag"] * right + ["coat"] * (20 - right), *alone)) is yes


def test_mild_changes_of_four_kinds_reach_the_goal_with_every_seed():
    views = [look(RECIPE, photos=studio_photos(), seed=seed) for seed in range(5)]
    assert all(map(reached, views)) and len(views[0].classes) > NUM_PHOTOS / 2


@pytest.mark.parametrize(
    "settings",
    [{}, {"light": 0.9}, TOKENS, {"flip": 0.5, "crop": 0.6, "turn": 15, "light": 0.3}, {**RECIPE, "erase": 0.4}],
)
def test_nothing_one_kind_tokens_or_the_usual_strengths_do_not(settings):
    assert not reached(look(settings, photos=studio_photos()))


def test_a_name_that_is_no_slider_is_refused(photos):
    with pytest.raises(ValueError, match="settings must be of flip, crop, .*; got rotate"):
        look({"rotate": 3}, photos=photos)


# --- the page -------------------------------------------------------------------------------------------------


def knob(lab, name):
    label = SLIDERS[name][0] if name in SLIDERS else name
    return next(knob for knob in lab.knobs if knob.description == label)


def test_each_knob_reaches_the_pipeline(photos):
    lab = augmentation_lab(num_photos=16)
    assert lab.result.settings == NOTHING
    knob(lab, "light").value, knob(lab, "turn").value, knob(lab, "Draws").value = 0.3, 15, 3
    oracle = look({"light": 0.3, "turn": 15}, photos=photos, seed=3)
    assert torch.equal(lab.result.images, oracle.images) and lab.result.guesses == oracle.guesses
    assert "v2.RandomRotation(degrees=15)" in lab.figure.value and lab.error is None


def test_no_slider_computes_while_it_is_dragged():
    sliders = [knob for knob in augmentation_lab(num_photos=16).knobs if hasattr(knob, "continuous_update")]
    assert len(sliders) == 7 and not any(slider.continuous_update for slider in sliders)


def test_the_lab_begins_without_its_goal_and_reaches_it_by_its_sliders():
    lab = augmentation_lab()
    assert not lab.reached and "100%" in lab.status.value
    for name, value in RECIPE.items():
        assert not lab.reached
        knob(lab, name).value = value
    assert lab.reached and "\u2713 reached" in lab.note.value


def test_the_picture_shows_each_photo_twice_with_the_verdict_in_words(photos):
    text = picture_of(look({}, photos=photos))
    shown = min(12, len(photos))
    assert text.count("<img") == 2 * shown and text.count("\u2713") == shown and text.count("as it was") == shown
    wrong = picture_of(made(["<bag>"], ["coat"]))
    assert (
        "\u2717 coat?" in wrong
        and "<bag>" not in wrong
        and 'alt="&lt;bag&gt; after the transforms: named coat"' in wrong
    )


def test_it_disturbs_no_generator(photos):
    def state():
        return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())

    before = state()
    look(EVERY, photos=photos)
    knob(augmentation_lab(num_photos=16), "light").value = 0.5
    assert state() == before


def test_the_still_twin_is_a_decided_fact(outputs):
    augmentation_lab()._ipython_display_()
    assert [out["text/plain"][:8] for out in outputs] == ["[live ex", "[figure:", "[figure]"]
    assert re.search("which also have black corners, it recognises fewer", outputs[2]["text/plain"])


def test_without_ipywidgets_the_still_twin_stands_alone(fresh_python):
    code = (
        "import sys; sys.modules['ipywidgets'] = None\n"
        "from course_utils.labs.transforms import augmentation_lab\n"
        "lab = augmentation_lab(num_photos=16); lab._ipython_display_(); lab.refresh()\n"
        "assert lab.box is None and lab.error is None and lab.result.share == 1, lab.error"
    )
    done = fresh_python.run(code)
    assert done.stderr == "" and len(done.stdout.splitlines()) == 2
