"""The exercise of chapter 02 about the mean and standard deviation of each channel, batch by batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.transforms_statistics_facts import Once, found, statistics

STEP = 2.0**-13  # its square is lost in float32 beside 0.75**2


# A batch is a list of images, an image a list of channels, a channel the pixels of one row.
_SMALL = [[[[0.0, 1.0], [0.25, 0.75]]]]
_RAGGED = [[[[0.0, 1.0]], [[0.0, 1.0]]], [[[1.0, 1.0]]]]
_SIZES = [[[[0.0, 0.0, 0.0, 0.0]]], [[[1.0]]]]
_FOUR = [[[[value, value], [0.0, 1.0]]] for value in (0.0, 1.0, 0.0, 1.0)]
_GREYS = [torch.tensor(grey / 255).item() for grey in range(4, 256, 8)]  # where rounding leaves some below 0
_CONSTANT = [[[[grey] * 91 for grey in _GREYS]]] * 5
_NARROW = [[[[0.75, 0.75 + STEP]]], [[[0.75, 0.75 + STEP]]]]


@exercise(
    "transforms-3",
    title="Mean and standard deviation, batch by batch",
    difficulty="hard",
    minutes=18,
    cases=[(_SMALL,), (_RAGGED,), (_SIZES,), (_FOUR,), (_NARROW,), (_CONSTANT,)],
    expected=[
        found([0.5, 0.5], [0.5, 0.25]),
        found([2 / 3], [(2 / 9) ** 0.5]),
        found([0.2], [0.4]),
        found([0.5, 0.5], [0.5, 0.5]),
        found([0.75 + STEP / 2], [STEP / 2]),
        found(_GREYS, [0.0] * len(_GREYS)),
    ],
    arrange=lambda batches: (Once(batches),),
    probe=statistics,
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
        "At the end mean = total / count and std = (squares / count - mean**2).clamp(min=0).sqrt(). The difference "
        "cancels: with float32 sums nothing of a small std is left, so batch.double() first; and rounding may leave it "
        "below 0, where the root is nan.",
    ],
    lesson="Sums can be added over batches and machines; means and standard deviations cannot.",
)
def channel_mean_std(batches):
    """Mean and standard deviation of each channel over all pixels of all images.

    batches : iterator of float32 (B, C, H, W) in [0, 1], to be read once; B, H and W may differ
              from batch to batch. The data do not fit into memory: keep no batch, and no pixels
    returns : (mean, std), float (C,) each; every pixel counts the same, and the variance is
              divided by the number of pixels, not by one less. A constant channel has std 0
    """
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        pixels = batch.double()
        count += pixels[:, 0].numel()
        total = total + pixels.sum((0, 2, 3))
        squares = squares + pixels.square().sum((0, 2, 3))
    mean = total / count
    variance = (squares / count - mean**2).clamp(min=0)  # rounding may leave it below 0
    return mean, variance.sqrt()


def _moments(
    parts: Iterator[torch.Tensor], weight: Callable[[torch.Tensor], float], correction: int = 0, dtype=torch.float64
) -> tuple:
    """Of parts (N, C, H, W), each weighted: the mean of their means, mean squares, stds and variances."""
    total, sums = 0, [0.0] * 4
    for part in parts:
        pixels = part.to(dtype).transpose(0, 1).flatten(1)
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


def _std(mean: torch.Tensor, mean_square: torch.Tensor, least: float = 0.0) -> torch.Tensor:
    return (mean_square - mean**2).clamp(min=least).sqrt()


def _also_unclamped(mistake: str) -> Callable:
    """The mistake, and the same one with a root of what rounding has left below 0."""
    known = channel_mean_std.form_of(mistake) if mistake in channel_mean_std.wrong_answers else channel_mean_std.wrong

    def register(fn: Callable) -> Callable:
        known(fn)
        channel_mean_std.form_of(mistake)(functools.partial(fn, least=-torch.inf))
        return fn

    return register


@_also_unclamped("counts_all_batches_alike")
def counts_all_batches_alike(batches, least=0.0):
    """The batches' own results are averaged, so a last batch of 1 image counts as much as a full one of 32: each of its
    pixels has 32 times the weight. Add up sums and counts, and divide once at the end."""
    mean, mean_square, _, _ = _moments(batches, _alike)
    return mean, _std(mean, mean_square, least)


@channel_mean_std.form_of("counts_all_batches_alike")
def counts_all_batches_alike_and_averages_the_stds(batches):
    mean, _, std, _ = _moments(batches, _alike)
    return mean, std


@channel_mean_std.wrong
def averages_the_results_of_the_batches(batches):
    """Mean and std of each batch are averaged. That is wrong three times: torch.std divides by one less, as a single
    batch shows; the last, smaller batch counts as much as a full one; and how far the batches lie from one another has
    gone missing. Add up sums, squares and counts."""
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
def averages_the_variances_in_float32(batches):
    mean, _, _, variance = _moments(batches, _pixels, dtype=torch.float32)
    return mean, variance.sqrt()


for _dtype in (torch.float32, torch.float64):
    for _correction in (0, 1):
        for _alone in (True, False):

            @channel_mean_std.form_of("averages_the_stds")
            def averages_the_variances_of_parts(batches, dtype=_dtype, correction=_correction, alone=_alone):
                parts, weight = (_images(batches), _alike) if alone else (batches, _pixels)
                mean, _, _, variance = _moments(parts, weight, correction, dtype)
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


@channel_mean_std.form_of("reads_the_batches_twice")
def reads_the_batches_twice_and_takes_the_root_of_nothing(batches):
    return _moments(batches, _pixels)[0], 0.0


@channel_mean_std.form_of("reads_the_batches_twice")
def reads_the_batches_twice_and_gives_a_number_to_torch(batches):
    return _moments(batches, _pixels)[0], torch.sqrt(0.0)


@_also_unclamped("counts_the_pixels_of_all_channels")
def counts_the_pixels_of_all_channels(batches, least=0.0):
    """numel() counts the numbers of all channels: with three of them the mean is a third of what it should be. A
    channel has batch[:, 0].numel() pixels, or B * H * W."""
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + batch.numel(), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.double().square().sum((0, 2, 3))
    return total / count, _std(total / count, squares / count, least)


@channel_mean_std.wrong
def takes_the_root_of_what_rounding_left(batches):
    """In a channel of one grey, mean of squares and square of mean should be equal; rounding leaves a difference of
    1e-17, above 0 or below, and the root of what is below is nan. Cut it off: .clamp(min=0), before the root."""
    mean, mean_square, _, _ = _moments(batches, _pixels)
    return mean, _std(mean, mean_square, -torch.inf)


@channel_mean_std.form_of("takes_the_root_of_what_rounding_left")
def takes_the_root_of_what_rounding_left_of_sums(batches):
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + _pixels(batch), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.double().square().sum((0, 2, 3))
    return total / count, _std(total / count, squares / count, -torch.inf)


@_also_unclamped("counts_all_images_alike")
def counts_all_images_alike(batches, least=0.0):
    """Each image counts the same, whatever its size, or the count is one of images and not of pixels: a pixel of a
    small image then weighs more than one of a large image. Count the pixels of each channel."""
    mean, mean_square, _, _ = _moments(batches, len)
    return mean, _std(mean, mean_square, least)


@_also_unclamped("counts_all_images_alike")
def divides_the_sums_by_the_number_of_images(batches, least=0.0):
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + len(batch), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.double().square().sum((0, 2, 3))
    return total / count, _std(total / count, squares / count, least)


@_also_unclamped("divides_by_one_less")
def divides_by_one_less(batches, least=0.0):
    """The variance is divided by the number of pixels less one, as torch.std does by itself. The task says: by the
    number of pixels. With a million pixels nobody sees it, with two the std is 1.41 times too large."""
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + _pixels(batch), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.double().square().sum((0, 2, 3))
    mean = total / count
    return mean, ((squares - count * mean**2) / (count - 1)).clamp(min=least).sqrt()


@_also_unclamped("sums_in_float32")
def sums_in_float32(batches, least=0.0):
    """The sums are float32, and mean of squares minus square of mean is a small difference of two large numbers: of
    about seven digits none may be left, so a narrow channel gets a std that is far off, 0 or NaN. Sum in float64."""
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + _pixels(batch), total + batch.sum((0, 2, 3))
        squares = squares + batch.square().sum((0, 2, 3))
    mean = total / count
    return mean.double(), _std(mean, squares / count, least).double()


@_also_unclamped("sums_in_float32")
def squares_in_float32(batches, least=0.0):
    count, total, squares = 0, 0.0, 0.0
    for batch in batches:
        count, total = count + _pixels(batch), total + batch.double().sum((0, 2, 3))
        squares = squares + batch.square().double().sum((0, 2, 3))
    return total / count, _std(total / count, squares / count, least)


@_also_unclamped("mixes_the_channels")
def mixes_the_channels(batches, least=0.0):
    """All channels have got one common mean and std: a colour cast stays in the data, and a channel of small contrast
    stays small. Sum over the axes 0, 2 and 3; axis 1, the channels, stays."""
    mean, mean_square, _, _ = _moments(batches, _pixels)
    common = mean.mean().expand(len(mean)).clone()
    return common, _std(common, mean_square.mean(), least)


@channel_mean_std.wrong
def returns_the_variance(batches):
    """The second result is the variance, the square of the standard deviation: normalising would divide by 0.04 where
    0.2 is meant. The root is missing."""
    mean, std = channel_mean_std.answer(batches)
    return mean, std**2


@channel_mean_std.wrong
def keeps_all_batches(batches):
    """The numbers are right, but all pixels are in memory at once: a list of batches or of numbers, or torch.cat, needs
    room for the whole data set. Keep what was added up, and nothing else."""
    kept = list(batches)
    return channel_mean_std.answer(iter(kept))


@channel_mean_std.form_of("keeps_all_batches")
def keeps_all_pixels(batches):
    pixels = torch.cat([batch.double().transpose(0, 1).flatten(1) for batch in batches], 1)
    return pixels.mean(1), pixels.std(1, correction=0)


@channel_mean_std.form_of("keeps_all_batches")
def keeps_all_batches_and_deviates_by_one_pass(batches):
    pixels = torch.cat([batch.transpose(0, 1).flatten(1) for batch in batches], 1)
    return pixels.mean(1), pixels.std(1, correction=0)
