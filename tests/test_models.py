"""The course's small network."""

import pytest

from course_utils.datasets import load_fashion
from course_utils.models import MEAN, STD, small_cnn
from course_utils.transforms import channel_stats


def test_the_small_network_has_the_parameters_its_docstring_says():
    assert sum(param.numel() for param in small_cnn().parameters()) == 9226


def test_mean_and_std_are_those_of_the_training_images():
    stats = channel_stats(load_fashion("train"))
    assert float(stats.mean[0]) == pytest.approx(MEAN, abs=5e-5)
    assert float(stats.std[0]) == pytest.approx(STD, abs=5e-5)
