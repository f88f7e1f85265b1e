"""The exercise of chapter 02 about the mean and standard deviation of each channel, batch by batch."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import torch

from course_utils.exercises.declare import exercise

STEP = 2.0**-13  # its square is lost in float32 beside 0.75**2


class _Once(Iterator):
    """Batches that can be read once, and how many of them were alive at the same time."""

    def __init__(self, batches: list) -> None:
        self._waiting, self._given, self.most = list(batches), [], 0

    def __next__(self) -> torch.Tensor:
        if not self._waiting:
            raise StopIteration
        batch = torch.tensor(self._waiting.pop(0), dtype=torch.float32).unsqueeze(2)
        self._given.append(weakref.ref(batch))
        self.most = max(self.most, sum(each() is not None for each in self._given))
        return batch


def _statistics(result, batches: _Once) -> dict:
    mean, std = result
    return _found(mean, std, batches.most > 2)


def _found(mean, std, kept: bool = False) -> dict:
    mean, std = (torch.as_tensor(values).double() for values in (mean, std))
    return {"mean": mean, "std": std, "more than two batches in memory at once": kept}


# A batch is a list of images, an image a list of channels, a channel the pixels of one row.
_SMALL = [[[[0.0, 1.0], [0.25, 0.75]]]]
_RAGGED = [[[[0.0, 1.0]], [[0.0, 1.0]]], [[[1.0, 1.0]]]]
_SIZES = [[[[0.0, 0.0, 0.0, 0.0]]], [[[1.0]]]]
_FOUR = [[[[value, value], [0.0, 1.0]]] for value in (0.0, 1.0, 0.0, 1.0)]
_NARROW = [[[[0.75, 0.75 + STEP]]], [[[0.75, 0.75 + STEP]]]]


@exercise(
    "transforms-3",
    title="Mean and standard deviation, batch by batch",
    difficulty="hard",
    minutes=18,
    cases=[(_SMALL,), (_RAGGED,), (_SIZES,), (_FOUR,), (_NARROW,)],
    expected=[
        _found([0.5, 0.5], [0.5, 0.25]),
        _found([2 / 3], [(2 / 9) ** 0.5]),
        _found([0.2], [0.4]),
        _found([0.5, 0.5], [0.5, 0.5]),
        _found([0.75 + STEP / 2], [STEP / 2]),
    ],
    arrange=lambda batches: (_Once(batches),),
    observe=_statistics,
    describe=lambda batches: (
        "channel_mean_std(batches), batches of the shapes "
        + ", ".join(str((len(b), len(b[0]), 1, len(b[0][0]))) for b in batches)
    ),
    imports="import torch",
    hints=[
        "Which numbers about a batch can be added up over batches, so that a batch of 1 image counts less than one of "
        "32? A mean cannot.",
        "The number of pixels a channel, the sum of the values and the sum of their squares can: sums over the axes "
        "(0, 2, 3) leave one number for each channel. Add them up, and keep no batch.",
        "At the end mean = total / count and std = (squares / count - mean**2).sqrt(). The difference cancels: with "
        "float32 sums nothing of a small std is left. So batch.double() first.",
    ],
    lesson="Sums can be added over batches and machines; means and standard deviations cannot.",
)
def channel_mean_std(batches):
    """Mean and standard deviation of each channel over all pixels of all images.

    batches : iterator of float32 (B, C, H, W) in [0, 1], to be read once; B, H and W may differ
              from batch to batch. The data do not fit into memory: keep no batch
    returns : (mean, std), float (C,) each; every pixel counts the same, and the variance is
              divided by the number of pixels, not by one less
    """
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        pixels = batch.double()
        count += pixels[:, 0].numel()
        total = total + pixels.sum((0, 2, 3))
        squares = squares + pixels.square().sum((0, 2, 3))
    mean = total / count
    return mean, (squares / count - mean**2).sqrt()


def _moments(parts: Iterator[torch.Tensor], weight: Callable[[torch.Tensor], float], correction: int = 0) -> tuple:
    """Of parts (N, C, H, W), each weighted: the mean of their means, mean squares, stds and variances."""
    total, sums = 0, [0.0] * 4
    for part in parts:
        pixels = part.double().transpose(0, 1).flatten(1)
        variance = pixels.var(1, correction=correction)
        own = (pixels.mean(1), pixels.square().mean(1), variance.sqrt(), variance)
        total, sums = total + weight(part), [s + weight(part) * value for s, value in zip(sums, own, strict=True)]
    return tuple(value / total for value in sums)


def _images(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
    return (batch[place : place + 1] for batch in batches for place in range(len(batch)))


def _alike(part: torch.Tensor) -> int:
    return 1


def _pixels(part: torch.Tensor) -> int:
    return part[:, 0].numel()


def _std(mean: torch.Tensor, mean_square: torch.Tensor) -> torch.Tensor:
    return (mean_square - mean**2).sqrt()


@channel_mean_std.wrong
def counts_all_batches_alike(batches):
    """The batches' own results are averaged, so a last batch of 1 image counts as much as a full one of 32: each of its
    pixels has 32 times the weight. Add up sums and counts, and divide once at the end."""
    mean, mean_square, _, _ = _moments(batches, _alike)
    return mean, _std(mean, mean_square)


@channel_mean_std.form_of("counts_all_batches_alike")
def counts_all_batches_alike_and_averages_the_stds(batches):
    mean, _, std, _ = _moments(batches, _alike)
    return mean, std


@channel_mean_std.form_of("counts_all_batches_alike")
def counts_all_batches_alike_and_averages_torchs_stds(batches):
    mean, _, std, _ = _moments(batches, _alike, correction=1)
    return mean, std


@channel_mean_std.wrong
def averages_the_stds(batches):
    """The standard deviation is an average of those of single batches or images: it tells the contrast inside them. How
    far they lie from one another has gone missing, and images that are each of one grey would have a std of 0."""
    mean, _, std, _ = _moments(batches, _pixels)
    return mean, std


@channel_mean_std.form_of("averages_the_stds")
def averages_torchs_stds(batches):
    total, mean, std = 0, 0.0, 0.0
    for batch in batches:
        total, mean = total + _pixels(batch), mean + batch.double().sum((0, 2, 3))
        std = std + _pixels(batch) * batch.double().std((0, 2, 3))
    return mean / total, std / total


@channel_mean_std.form_of("averages_the_stds")
def averages_the_variances(batches):
    mean, _, _, variance = _moments(batches, _pixels)
    return mean, variance.sqrt()


@channel_mean_std.form_of("averages_the_stds")
def averages_the_stds_of_the_images(batches):
    mean, _, std, _ = _moments(_images(batches), _alike)
    return mean, std


@channel_mean_std.form_of("averages_the_stds")
def averages_torchs_stds_of_the_images(batches):
    mean, _, std, _ = _moments(_images(batches), _alike, correction=1)
    return mean, std


@channel_mean_std.wrong
def reads_the_batches_twice(batches):
    """The batches are read twice, for the mean and then for the distances from it; but an iterator is empty after the
    first reading, so the second adds up nothing. One pass is enough: add up values and squares together."""
    mean = _moments(batches, _pixels)[0]
    distances = torch.zeros_like(mean)
    for batch in batches:
        distances += (batch - mean[:, None, None]).square().sum((0, 2, 3))
    return mean, distances.sqrt()


@channel_mean_std.form_of("reads_the_batches_twice")
def reads_the_batches_twice_and_has_no_tensor_then(batches):
    mean, distances = _moments(batches, _pixels)[0], 0.0
    return mean, distances.sqrt()


@channel_mean_std.wrong
def counts_all_images_alike(batches):
    """Each image counts the same, whatever its size, or the count is one of images and not of pixels: a pixel of a
    small image then weighs more than one of a large image. Count the pixels of each channel."""
    mean, mean_square, _, _ = _moments(batches, len)
    return mean, _std(mean, mean_square)


@channel_mean_std.form_of("counts_all_images_alike")
def divides_the_sums_by_the_number_of_images(batches):
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + len(batch), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.double().square().sum((0, 2, 3))
    return total / count, _std(total / count, squares / count)


@channel_mean_std.wrong
def divides_by_one_less(batches):
    """The variance is divided by the number of pixels less one, as torch.std does by itself. The task says: by the
    number of pixels. With a million pixels nobody sees it, with two the std is 1.41 times too large."""
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + _pixels(batch), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.double().square().sum((0, 2, 3))
    mean = total / count
    return mean, ((squares - count * mean**2) / (count - 1)).sqrt()


@channel_mean_std.wrong
def sums_in_float32(batches):
    """The sums are float32, and mean of squares minus square of mean is a small difference of two large numbers: of
    about seven digits none may be left, so a narrow channel gets a std that is far off, 0 or NaN. Sum in float64."""
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + _pixels(batch), total + batch.sum((0, 2, 3))
        squares = squares + batch.square().sum((0, 2, 3))
    mean = total / count
    return mean.double(), _std(mean, squares / count).double()


@channel_mean_std.form_of("sums_in_float32")
def squares_in_float32(batches):
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + _pixels(batch), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.square().double().sum((0, 2, 3))
    return total / count, _std(total / count, squares / count)


@channel_mean_std.wrong
def mixes_the_channels(batches):
    """All channels have got one common mean and std: a colour cast stays in the data, and a channel of small contrast
    stays small. Sum over the axes 0, 2 and 3; axis 1, the channels, stays."""
    mean, mean_square, _, _ = _moments(batches, _pixels)
    common = mean.mean().expand(len(mean)).clone()
    return common, _std(common, mean_square.mean())


@channel_mean_std.wrong
def returns_the_variance(batches):
    """The second result is the variance, the square of the standard deviation: normalising would divide by 0.04 where
    0.2 is meant. The root is missing."""
    mean, std = channel_mean_std.answer(batches)
    return mean, std**2


@channel_mean_std.wrong
def keeps_all_batches(batches):
    """The numbers are right, but all batches are in memory at once: a list of them, or torch.cat, needs room for the
    whole data set. Keep what was added up, and no batch."""
    kept = list(batches)
    return channel_mean_std.answer(iter(kept))
