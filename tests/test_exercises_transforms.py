"""What readers of chapter 02 try: sound answers of another form are right, and mistakes are known in several forms.

That every declared exercise keeps its promises is tested in test_exercises.py.
"""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import one_hot
from torch.utils.data import Subset
from torchvision.transforms import v2

from course_utils.exercises import answer
from course_utils.exercises.machinery import exercises_of
from tests.reader_answers import judged


def test_chapter_02_has_six_exercises_of_three_levels():
    levels = [e.difficulty for e in exercises_of("transforms").values()]
    assert len(levels) == 6 and set(levels) == {"easy", "medium", "hard"}


# transforms-1: the range


def _guesses(image):
    image = image.float()
    if image.max() > 1:
        image = image / 255
    return image


def _checks(image, *, widths=torch.is_floating_point, little=0.0, before=lambda x: x):
    if image.dtype in (torch.uint8, torch.uint16):
        return image.float() / torch.iinfo(image.dtype).max
    image = before(image)
    if widths(image) and ((image >= -little) & (image <= 1 + little)).all():
        return image.float()
    raise ValueError(f"{image.dtype} has no known range")


@pytest.mark.parametrize(
    "given, mistake",
    [
        (_guesses, "guesses_from_the_values"),
        (lambda x: x.float() / 255 if x.max() > 1 else x.float(), "guesses_from_the_values"),
        (lambda x: _checks(x, little=1e-3), "allows_a_little_more"),
        (lambda x: _checks(x, before=lambda x: x.float()), None),
        (
            lambda x: _checks(x, widths=lambda x: x.dtype in (torch.float32, torch.float64)),
            "knows_two_widths_of_floats",
        ),
        (lambda x: v2.functional.to_dtype(x, torch.float32, scale=True), None),
        (lambda x: (x.float() - x.float().min()) / (x.float().max() - x.float().min()), "scales_by_its_own_values"),
    ],
    ids=["the classic guess", "a guess of its own", "a tolerance", "float first", "two widths", "v2", "stretched"],
)
def test_ranges_that_are_nearly_right_are_refused(given, mistake):
    status, found, _ = judged("transforms-1", lambda image: given(image))
    assert status in ("wrong", "raised") and (mistake is None or found == mistake)


def test_every_width_of_floats_is_right():
    assert judged("transforms-1", lambda image: _checks(image))[0] == "right"


# transforms-2: the axes


@pytest.mark.parametrize(
    "given, mistake",
    [
        (lambda a: torch.from_numpy(a).reshape(a.shape[2], *a.shape[:2]), None),
        (lambda a: torch.from_numpy(a.copy()).permute(2, 1, 0), "swaps_height_and_width"),
        (lambda a: torch.from_numpy(a.copy()).permute(2, 0, 1), "forgets_grey"),
    ],
    ids=["reshape", "all axes", "no grey"],
)
def test_axes_that_are_nearly_right_are_refused(given, mistake):
    assert judged("transforms-2", lambda array: given(array))[1] == mistake


def test_reshaping_in_the_usual_form_is_recognised_although_mirrored_arrays_stop_it():
    def to_chw(array):
        height, width, channels = array.shape
        return torch.from_numpy(array).reshape(channels, height, width)

    assert judged("transforms-2", to_chw)[1] == "reshapes"


def test_numpys_transpose_is_as_good_as_permute():
    def to_chw(array):
        array = array[..., None] if array.ndim == 2 else array
        return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))

    assert judged("transforms-2", to_chw)[0] == "right"


# transforms-3: statistics


def _sums(batches, pixels=lambda b: b[:, 0].numel(), dtype=torch.float64, least=0.0):
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        batch = batch.to(dtype)
        count, total = count + pixels(batch), total + batch.sum((0, 2, 3))
        squares = squares + batch.square().sum((0, 2, 3))
    return total / count, (squares / count - (total / count) ** 2).clamp(min=least).sqrt()


def _welford(batches):
    """Chan's update: means and squared deviations of two parts are joined."""
    count, mean, deviations = 0, 0.0, 0.0
    for batch in batches:
        pixels = batch.double().transpose(0, 1).flatten(1)
        number, own = pixels.shape[1], pixels.mean(1)
        step = own - mean
        mean = mean + step * number / (count + number)
        deviations = deviations + (pixels - own[:, None]).square().sum(1) + step**2 * count * number / (count + number)
        count += number
    return mean, (deviations / count).sqrt()


def _of_variances(batches):
    total, mean, variance = 0, 0.0, 0.0
    for batch in batches:
        number = batch[:, 0].numel()
        total, mean = total + number, mean + number * batch.mean((0, 2, 3))
        variance = variance + number * batch.var((0, 2, 3), correction=0)
    return mean / total, (variance / total).sqrt()


def _twice(batches):
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + batch[:, 0].numel(), total + batch.double().sum((0, 2, 3))
    for batch in batches:
        squares = squares + (batch - total / count).square().sum((0, 2, 3))
    return total / count, (squares / count) ** 0.5


def _lists(batches):
    pixels = []
    for batch in batches:
        pixels.append(batch.transpose(0, 1).flatten(1).double().tolist())
    joined = torch.tensor([sum(channel, []) for channel in zip(*pixels, strict=True)], dtype=torch.float64)
    return joined.mean(1), joined.std(1, correction=0)


def _growing(batches):
    pixels = None
    for batch in batches:
        flat = batch.double().transpose(0, 1).flatten(1)
        pixels = flat if pixels is None else torch.cat([pixels, flat], 1)
    return pixels.mean(1), pixels.std(1, correction=0)


def _cat(batches):
    pixels = torch.cat([batch.double().transpose(0, 1).flatten(1) for batch in batches], 1)
    return pixels.mean(1), pixels.std(1, correction=0)


def _means_of_batches(batches):
    pairs = [(b.mean((0, 2, 3)), b.std((0, 2, 3))) for b in map(torch.Tensor.double, batches)]
    return tuple(torch.stack(values).mean(0) for values in zip(*pairs, strict=True))


@pytest.mark.parametrize("given", [_sums, _welford], ids=["sums", "joined by Chan's update"])
def test_sound_statistics_are_right(given):
    assert judged("transforms-3", lambda batches: given(batches))[0] == "right"


@pytest.mark.parametrize(
    "given, mistake",
    [
        (_cat, "keeps_all_batches"),
        (_growing, "keeps_all_batches"),
        (_lists, "keeps_all_batches"),
        (lambda b: _sums(b, pixels=torch.numel), "counts_the_pixels_of_all_channels"),
        (lambda b: _sums(b, least=-torch.inf), "takes_the_root_of_what_rounding_left"),
        (lambda b: _sums(b, dtype=torch.float32), "sums_in_float32"),
        (_of_variances, "averages_the_stds"),
        (_twice, "reads_the_batches_twice"),
        (_means_of_batches, "averages_the_results_of_the_batches"),
    ],
    ids=["cat", "growing", "lists", "numel", "no clamp", "float32", "variances", "twice", "means of batches"],
)
def test_statistics_that_are_nearly_right_are_recognised(given, mistake):
    assert judged("transforms-3", lambda batches: given(batches))[:2] == ("wrong", mistake)


def test_the_answer_gives_a_constant_channel_no_nan():
    batches = [torch.full((1, 1, 7, 13), grey / 255) for grey in (47,)] * 5
    assert not answer("transforms-3")(iter(batches))[1].isnan().any()


# transforms-4: views


class _View:
    def __init__(self, dataset, indices, change):
        self.dataset, self.indices, self.change, self.known = dataset, indices, change, {}

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, place):
        return self.change(self, *self.dataset[self.indices[place]])


def _of(change):
    def two_views(dataset, train_indices, val_indices, augment, plain):
        return tuple(
            _View(dataset, indices, lambda view, image, target, f=f: change(view, f, image, target))
            for indices, f in ((train_indices, augment), (val_indices, plain))
        )

    return two_views


def test_a_wrapping_class_is_right():
    assert judged("transforms-4", _of(lambda view, f, image, target: (f(image), target)))[0] == "right"


@pytest.mark.parametrize(
    "change, mistake",
    [
        (lambda view, f, image, target: f(image), "forgets_the_target"),
        (lambda view, f, image, target: view.known.setdefault(target, (f(image), target)), "has_images_of_its_own"),
        (lambda view, f, image, target: f((image, target)), "transforms_the_pair"),
    ],
    ids=["no target", "kept, and transformed anew", "the pair"],
)
def test_views_that_are_nearly_right_are_recognised(change, mistake):
    status, found, text = judged("transforms-4", _of(change))
    assert status != "right" and found == mistake and "not enough values to unpack" not in text


def test_remembering_is_not_taken_for_transforming_at_the_start():
    def remembers(view, f, image, target):
        if target not in view.known:
            view.known[target] = (f(image), target)
        return view.known[target]

    status, mistake, text = judged("transforms-4", _of(remembers))
    assert mistake == "remembers_what_was_transformed" and "transforms act at each reading: False" in text


def test_two_views_without_transforms_are_not_said_to_have_set_any():
    def untouched(dataset, train_indices, val_indices, augment, plain):
        return Subset(dataset, train_indices), Subset(dataset, val_indices)

    assert "Neither transform is ever applied. If you set" in judged("transforms-4", untouched)[2]


def test_one_view_in_place_of_two_is_told():
    def one(dataset, train_indices, val_indices, augment, plain):
        train = copy.copy(dataset)
        train.transform = augment
        return Subset(train, train_indices)

    assert "what is returned: one result (a Subset), and not (train, val)" in judged("transforms-4", one)[2]


# transforms-5: boxes


def _flip(edges, image=lambda x: x.flip(-1)):
    def flip_with_box(x, box):
        return image(x), edges(x.shape[1], x.shape[2], *box)

    return lambda image, box: flip_with_box(image, box)


@pytest.mark.parametrize(
    "given, mistake",
    [
        (_flip(lambda h, w, a, b, c, d: [w - c + 1, b, w - a + 1, d]), "adds_a_pixel"),
        (_flip(lambda h, w, a, b, c, d: [w - c - 1, b, w - a, d]), "corrects_one_edge_by_a_pixel"),
        (_flip(lambda h, w, a, b, c, d: [a, h - d, c, h - b], lambda x: x.flip(1)), "turns_both_upside_down"),
        (_flip(lambda h, w, a, b, c, d: [w - c, b, w - a, d], lambda x: x[:, :, ::-1]),
         "steps_backwards_through_a_tensor"),
    ],
    ids=["W - x + 1", "one edge", "upside down", "step -1"],
)  # fmt: skip
def test_boxes_that_are_nearly_right_are_recognised(given, mistake):
    assert judged("transforms-5", given)[:2] == ("wrong", mistake)


def test_the_image_alone_is_told_to_be_half_of_the_result():
    text = judged("transforms-5", lambda image, box: image.flip(-1))[2]
    assert "expected a tuple (the image, the box), got a tensor of shape (1, 1, 2)" in text


def test_a_wrong_pixel_is_told_as_one_of_the_image():
    assert "the image: at [0, 0, 0]: expected 1, got 0" in judged("transforms-5", lambda image, box: (
        image, answer("transforms-5")(image, box)[1]))[2]  # fmt: skip


# transforms-6: MixUp


def _mix(images, rows, share, partner):
    return share * images + (1 - share) * partner(images), share * rows + (1 - share) * partner(rows)


@pytest.mark.parametrize(
    "given, mistake",
    [
        (lambda x, t, s, n: _mix(x, one_hot(t).float(), s, lambda v: v.roll(1, 0)), "forgets_the_number_of_classes"),
        (lambda x, t, s, n: (s * x + (1 - s) * x.roll(1, 0), t), "mixes_the_images_only"),
        (lambda x, t, s, n: _mix(x, one_hot(t, n).float(), s, lambda v: v.roll(-1, 0)), "mixes_with_other_partners"),
    ],
    ids=["no num_classes", "hard targets", "the next one"],
)
def test_mixtures_that_are_nearly_right_are_recognised(given, mistake):
    def mix_pairs(images, targets, share, num_classes):
        return given(images, targets, share, num_classes)

    assert judged("transforms-6", mix_pairs)[:2] == ("wrong", mistake)


def test_a_loop_that_overwrites_partners_is_recognised():
    def loops(images, targets, share, num_classes):
        mixed, rows = images.clone(), one_hot(targets, num_classes).float()
        for i in range(len(images)):
            mixed[i] = share * mixed[i] + (1 - share) * mixed[i - 1]
        return mixed, share * rows + (1 - share) * rows.roll(1, 0)

    assert judged("transforms-6", loops)[1] == "mixes_with_what_was_mixed"


def test_a_mean_without_its_std_is_told():
    text = judged("transforms-3", lambda batches: _sums(batches)[0])[2]
    assert "and not (mean, std)" in text
