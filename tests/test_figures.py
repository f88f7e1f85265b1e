"""Figures: words always, equal bytes, labels that stay apart, colours that stay apart in grey."""

import base64
import io
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from PIL import Image

from course_utils import figures
from course_utils.figures import SERIES, axes, image_grid, label_line, png_bytes, show, spread


def line_plot(ends=(0.5,)):
    fig, ax = axes(title="it falls", xlabel="step", ylabel="loss")
    for number, end in enumerate(ends):
        ax.plot([0, 10], [1, end], **SERIES[number].style)
        label_line(ax, 10, end, f"line {number}", SERIES[number].color)
    return fig


def test_the_picture_comes_once_and_its_words_in_an_output_of_their_own(outputs):
    show(line_plot(), "loss falls & ends below 1: True")
    picture, caption = outputs
    assert (
        set(picture) == {"image/png", "text/plain"} and picture["text/plain"] == "[figure: its words follow]"
    )
    assert Image.open(io.BytesIO(base64.b64decode(picture["image/png"]))).size == (500, 300)
    assert caption["text/plain"] == "[figure] loss falls & ends below 1: True"
    assert caption["text/html"] == "<p><em>loss falls &amp; ends below 1: True</em></p>"


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_a_figure_without_words_is_refused(alt, outputs):
    with pytest.raises(ValueError, match="show needs alt"):
        show(line_plot(), alt)
    assert outputs == []


def test_equal_figures_give_equal_bytes_and_a_changed_one_gives_others():
    assert png_bytes(line_plot()) == png_bytes(line_plot()) != png_bytes(line_plot([0.6]))


def test_a_line_plot_is_a_small_palette_picture_on_pure_white():
    data = png_bytes(line_plot())
    picture = Image.open(io.BytesIO(data))
    assert picture.mode == "P" and len(data) < 12_000
    assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_in_a_terminal_the_words_are_printed_and_no_display_library_is_loaded():
    code = (
        "import sys; from course_utils import figures\n"
        "assert not {'matplotlib', 'IPython', 'torch'} & set(sys.modules)\n"
        "fig, ax = figures.axes(title='t', xlabel='x', ylabel='y'); figures.show(fig, 'a line')\n"
        "assert not {'IPython', 'matplotlib.pyplot'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[figure] a line\n", "")


@pytest.mark.parametrize(
    "positions, low, expected",
    [
        ([10, 11, 40], -100, [8.5, 12.5, 40]),
        ([11, 10, 40], -100, [12.5, 8.5, 40]),
        ([0, 0, 0], -100, [-4, 0, 4]),
        ([0, 3, 6], -100, [-1, 3, 7]),
        ([0, 0, 9], 0, [0, 4, 9]),
        ([5], 0, [5]),
        ([], 0, []),
    ],
)
def test_labels_are_spread_as_worked_out_by_hand(positions, low, expected):
    assert spread(positions, 4, low=low) == pytest.approx(expected)


def test_labels_of_lines_that_end_together_do_not_overlap():
    fig = line_plot([0.5, 0.5, 0.505, 0.51])
    png_bytes(fig)
    boxes = [text.get_window_extent() for text in fig.axes[0].texts]
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_the_control_labels_left_where_they_are_do_overlap(monkeypatch):
    monkeypatch.setattr(figures, "_separate_labels", lambda fig: None)
    fig = line_plot([0.5, 0.51])
    png_bytes(fig)
    one, other = (text.get_window_extent() for text in fig.axes[0].texts)
    assert one.overlaps(other)


def luminance(color):
    """Of WCAG 2: 0 is black, 1 is white."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_every_colour_stands_out_from_white():
    colors = [figures.RIGHT, figures.WRONG, figures.REFERENCE, *(series.color for series in SERIES)]
    assert {color: contrast for color in colors if (contrast := 1.05 / (luminance(color) + 0.05)) < 3} == {}


def test_lines_of_a_series_differ_in_more_than_colour():
    assert (
        len({series.dashes for series in SERIES})
        == len({series.marker for series in SERIES})
        == len(SERIES)
        == 6
    )


def test_first_lines_of_a_series_differ_in_grey():
    shades = [(luminance(series.color) + 0.05) for series in SERIES]
    assert all(max(a, b) / min(a, b) > 1.25 for a, b in zip(shades, shades[1:], strict=False))


def test_an_image_grid_takes_grey_and_colour_and_keeps_their_brightness():
    images = [
        np.full((1, 8, 8), 200, np.uint8),
        np.full((3, 8, 8), 0.5, np.float32),
        np.zeros((8, 8), np.uint8),
    ]
    fig = image_grid(images, ["grey", "colour", "black"], columns=2)
    picture = np.asarray(Image.open(io.BytesIO(png_bytes(fig))).convert("RGB"))
    shown = [picture[int(y), int(x)].tolist() for x, y in centers(fig, picture.shape[0])]
    np.testing.assert_allclose(shown, [[200] * 3, [128] * 3, [0] * 3], atol=2)


def centers(fig, height):
    for ax in fig.axes[:3]:
        x, y = ax.bbox.get_points().mean(0)
        yield x, height - y


@pytest.mark.parametrize(
    "images, titles, words",
    [
        ([], [], "got 0 images and 0 titles"),
        ([np.zeros((8, 8))], ["a", "b"], "got 1 images and 2 titles"),
        ([np.zeros((4, 8, 8))], ["a"], r"got \(4, 8, 8\)"),
        ([np.full((8, 8), -0.5)], ["a"], "undo the normalisation"),
    ],
)
def test_an_image_grid_says_what_it_needs(images, titles, words):
    with pytest.raises(ValueError, match=words):
        image_grid(images, titles)
