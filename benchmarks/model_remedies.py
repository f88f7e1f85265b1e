"""The model side of the record `remedies`: what a step costs in time and memory, each way beside the plain one.

It knows no files: the photos are random numbers, since their content changes no time.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from benchmarks.costs import compared, digits, milliseconds, peak_bytes, state_bytes
from benchmarks.timing import interleaved
from course_utils.machine import usable_cpus
from course_utils.profiling import bytes_for_backward, checkpointed
from course_utils.randomness import isolated_rng, seed_generators

BATCH_SIZE, SMALL_BATCH, SIDE, WIDTH, NUM_TENSORS, TENSOR_SIDE = 32, 8, 64, 16, 300, 32
LOSS_FN = nn.functional.cross_entropy


def photo_net(width: int) -> nn.Sequential:
    """Six convolutions, every second one with stride 2, then mean and linear: float (B, 3, H, W) -> logits (B, 10).

    72,730 parameters at a width of 16, in 15 layers one after the other.
    """
    layers: list[nn.Module] = []
    widths = (3, width, width, 2 * width, 2 * width, 4 * width, 4 * width)
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        layers += [nn.Conv2d(before, after, 3, stride=1 + number % 2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def even_net(width: int) -> nn.Sequential:
    """Twelve convolutions that all keep the size: each layer's output is as large as any other's."""
    widths = (3, *[width] * 12)
    layers = [layer for two in itertools.pairwise(widths) for layer in (nn.Conv2d(*two, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


@dataclass(frozen=True)
class Way:
    """One way to make a step.

    micro_batches : that the batch is cut into; their gradients are added up
    segments      : of activation checkpointing; None for none
    dtype         : of autocast; float16 with a gradient scaler
    """

    words: str
    net: Callable[[int], nn.Sequential] = photo_net
    batch_size: int = BATCH_SIZE
    side: int = SIDE
    width: int = WIDTH
    micro_batches: int = 1
    segments: int | None = None
    channels_last: bool = False
    fused: bool = False
    dtype: torch.dtype | None = None
    threads: int = 1


STEPS = {
    "plain": Way("float32, AdamW as it is by default, one thread"),
    "2 micro-batches": Way("accumulation: two of 16, one update", micro_batches=2),
    "4 micro-batches": Way("accumulation: four of 8, one update", micro_batches=4),
    "half resolution": Way("photos of 32 x 32 in the place of 64 x 64", side=SIDE // 2),
    "half width": Way("half the channels in each layer: a quarter of the parameters", width=WIDTH // 2),
    "checkpoint 1": Way("checkpointed(model, 1): the only segment is the last one, which is kept", segments=1),
    "checkpoint 2": Way("checkpointed(model, 2)", segments=2),
    "checkpoint 4": Way("checkpointed(model, 4)", segments=4),
    "channels_last": Way("model and photos in memory_format=torch.channels_last", channels_last=True),
    "fused AdamW": Way("AdamW(fused=True); the model has 14 tensors", fused=True),
    "2 threads": Way("torch.set_num_threads(2), where there are two cores", threads=2),
}
EVEN = Way("even_net, photos of 32 x 32", net=even_net, side=SIDE // 2)
CHECKPOINTS = {
    "plain": EVEN,
    **{
        f"checkpoint {number}": replace(EVEN, words=f"in {number} segments", segments=number)
        for number in (2, 4, 6, 12)
    },
}
PRECISIONS = {
    "float32": Way("as plain, batch of 8", batch_size=SMALL_BATCH),
    "bfloat16": Way("torch.autocast to bfloat16", batch_size=SMALL_BATCH, dtype=torch.bfloat16),
    "float16": Way("torch.autocast to float16, with GradScaler", batch_size=SMALL_BATCH, dtype=torch.float16),
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": functools.partial(torch.optim.AdamW, lr=1e-4),
    "SGD, momentum 0.9": functools.partial(torch.optim.SGD, lr=1e-4, momentum=0.9),
}
FORMS: dict[str, dict[str, bool]] = {
    "default": {},
    "for-loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}


class Training:
    """A model, an optimizer and one batch, used again and again; what is drawn is a function of the way alone."""

    def __init__(self, way: Way) -> None:
        self.way, layout = way, torch.channels_last if way.channels_last else torch.contiguous_format
        with isolated_rng():
            seed_generators(0)
            self.model = way.net(way.width).to(memory_format=layout)
            images = torch.randn(way.batch_size, 3, way.side, way.side).contiguous(memory_format=layout)
            targets = torch.randint(10, (way.batch_size,))
        self.forward = self.model if way.segments is None else checkpointed(self.model, way.segments)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **({"fused": True} if way.fused else {}))
        self.scaler = torch.amp.GradScaler("cpu", enabled=way.dtype is torch.float16)
        size = way.batch_size // way.micro_batches
        self.micro_batches = list(zip(images.split(size), targets.split(size), strict=True))

    def loss(self, number: int = 0) -> torch.Tensor:
        """Of one micro-batch, divided by how many there are."""
        images, targets = self.micro_batches[number]
        with torch.autocast("cpu", dtype=self.way.dtype or torch.bfloat16, enabled=self.way.dtype is not None):
            return LOSS_FN(self.forward(images), targets) / self.way.micro_batches

    def backward(self) -> None:
        """Gradients of the whole batch."""
        for number in range(self.way.micro_batches):
            self.scaler.scale(self.loss(number)).backward()

    def update(self) -> None:
        """Backward and the optimizer's step; gradients stay."""
        self.backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def step(self) -> None:
        """As in a loop, with the way's threads."""
        torch.set_num_threads(self.way.threads)
        try:
            self.optimizer.zero_grad()
            self.update()
        finally:
            torch.set_num_threads(1)

    def gradient(self) -> torch.Tensor:
        """All of it, in one vector; float64."""
        self.optimizer.zero_grad()
        self.backward()
        return torch.cat([param.grad.flatten() for param in self.model.parameters()]).double() / self.scaler.get_scale()

    def peak_bytes(self) -> int:
        """In a later step, beyond parameters, optimizer state and batch."""
        self.step()
        self.optimizer.zero_grad()
        return peak_bytes(self.update)


def counted(way: Way, plain: Way) -> dict[str, Any]:
    """What needs no clock: bytes, and how far the gradient is from the plain one of the same model and photos."""
    training = Training(way)
    found = {"words": way.words, "kept_bytes": bytes_for_backward(training.loss), "peak_bytes": training.peak_bytes()}
    if (way.side, way.width) != (plain.side, plain.width):
        return found | {"gradient_error": None}
    exact, own = Training(plain).gradient(), Training(way).gradient()
    return found | {"gradient_error": digits(float((own - exact).norm() / exact.norm()))}


def steps(ways: dict[str, Way], *, rounds: int) -> dict[str, dict[str, Any]]:
    """A row for each way that this machine can go; the first is what the others are compared with."""
    ways = {name: way for name, way in ways.items() if way.threads <= usable_cpus()}
    plain = next(iter(ways.values()))
    times = interleaved({name: Training(way).step for name, way in ways.items()}, rounds=rounds)
    return compared({name: counted(way, plain) | milliseconds(times[name]) for name, way in ways.items()})


def _parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(TENSOR_SIDE, TENSOR_SIDE, generator=generator)) for _ in range(NUM_TENSORS)]
    for param in params:
        param.grad = torch.randn(TENSOR_SIDE, TENSOR_SIDE, generator=generator)
    return params


def optimizers(name: str, *, rounds: int) -> dict[str, dict[str, Any]]:
    """A row for each form of one optimizer, its step alone."""
    made = {form: OPTIMIZERS[name](_parameters(), **how) for form, how in FORMS.items()}
    times = interleaved({form: optimizer.step for form, optimizer in made.items()}, rounds=rounds, calls=3)
    rows = {
        form: milliseconds(times[form])
        | {"state_bytes": state_bytes(optimizer), "peak_bytes": peak_bytes(optimizer.step)}
        for form, optimizer in made.items()
    }
    return compared(rows)


def units() -> dict[str, bool | None]:
    """Whether oneDNN says that this CPU computes in 16 bits itself; None where this torch does not ask it so."""
    asked = {"bfloat16": "_is_mkldnn_bf16_supported", "float16": "_is_mkldnn_fp16_supported"}
    return {name: _answer(operation) for name, operation in asked.items()}


def _answer(operation: str) -> bool | None:
    try:
        return bool(getattr(torch.ops.mkldnn, operation)())
    except (AttributeError, RuntimeError):
        return None


def quick(way: Way) -> Way:
    """The same with few small photos."""
    return replace(way, batch_size=4, side=way.side // 4, width=max(2, way.width // 4))
