"""The course's small network, and the scale of its input."""

from torch import nn

MEAN, STD = 0.2867, 0.3540  # of the 10,000 embedded training images, in [0, 1] units; a test computes them


def small_cnn() -> nn.Sequential:
    """9,226 parameters: two strided convolutions and a linear layer, images float (B, 1, 28, 28) -> logits (B, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, 10),
    )
