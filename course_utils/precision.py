"""Mixed precision, looked at: what autocast keeps in float32, what float16 loses, how a loss scale moves.

It knows tensors and functions; it makes no optimizer step of a model. `optimizer_step` re-exports its names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

Operation = Callable[[torch.Tensor], torch.Tensor]

OPERATIONS: dict[str, Operation] = {  # each takes one (4, 4) tensor with values in (0, 1)
    "matmul": lambda x: x @ x,
    "linear": lambda x: F.linear(x, x),
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None]),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "add": lambda x: x + x,
    "relu": F.relu,
    "gelu": F.gelu,
    "sigmoid": torch.sigmoid,
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None], 2),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "sum": torch.sum,
    "mean": torch.mean,
    "cumsum": lambda x: x.cumsum(0),
    "norm": lambda x: x.norm(),
    "exp": torch.exp,
    "log": torch.log,
    "pow": lambda x: x.pow(3),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.int64, device=x.device)),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, x),
}


def autocast_policy(
    operations: Mapping[str, Operation] | None = None, *, dtype: torch.dtype, device: str = "cpu"
) -> dict[str, str]:
    """In which type autocast runs each operation on this device, found by running it with both types.

    operations : name -> function of one (4, 4) tensor with values in (0, 1); `OPERATIONS` when left out
    dtype      : torch.bfloat16 or torch.float16
    returns    : name -> "lower" (float32 comes out in `dtype`), "float32" (`dtype` comes out in float32), "as it
                 comes", or "not there" where PyTorch has it for one of the types only

    The lists differ between devices and versions, so ask the one you train on.
    """
    operations = OPERATIONS if operations is None else operations
    values = torch.rand(4, 4, generator=torch.Generator().manual_seed(0)).clamp(0.1, 0.9).to(device)
    return {name: _policy_of(operation, values, dtype) for name, operation in operations.items()}


def _policy_of(operation: Operation, values: torch.Tensor, dtype: torch.dtype) -> str:
    with torch.autocast(values.device.type, dtype=dtype), torch.no_grad():
        try:
            of_float32, of_lower = operation(values).dtype, operation(values.to(dtype)).dtype
        except (RuntimeError, NotImplementedError):
            return "not there"
    if of_float32 is dtype:
        return "lower"
    return "float32" if of_lower is torch.float32 else "as it comes"


class Call(NamedTuple):
    """One operation as it really ran: its name, the types of its tensors, and the type of what came out."""

    name: str
    takes: tuple[torch.dtype, ...]
    gives: torch.dtype


def calls_of(fn: Callable[[], Any]) -> list[Call]:
    """The operations on floating-point tensors that `fn` runs, in order: casts ("_to_copy") and backward too.

    Under autocast it shows what was cast, how often, and that backward runs in the types that forward chose. Views
    are left out.
    """
    with _Recorder() as recorder:
        fn()
    return recorder.calls


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        gives = _floating_types([result])
        if gives and not func.is_view and func.overloadpacket.__name__ != "detach":
            self.calls.append(Call(func.overloadpacket.__name__, _floating_types(args), gives[0]))
        return result


def _floating_types(values: Iterable[Any]) -> tuple[torch.dtype, ...]:
    found: list[torch.dtype] = []
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            found.append(value.dtype)
        elif isinstance(value, (list, tuple)):
            found += _floating_types(value)
    return tuple(found)


class Float32Island(nn.Module):
    """A module that computes in float32 inside a region of autocast: for a layer whose sums or powers overflow.

    Its float16 and bfloat16 inputs are cast up (in a call's own arguments, not inside lists), autocast is off inside,
    and what comes out is float32. Parameters get `inside.` before their names.
    """

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = [_float32(value) for value in args], {name: _float32(value) for name, value in kwargs.items()}
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        with torch.autocast(tensors[0].device.type if tensors else "cpu", enabled=False):
            return self.inside(*args, **kwargs)


def _float32(value: Any) -> Any:
    is_half = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if is_half else value


class Lost(NamedTuple):
    """Shares of the numbers that were neither 0 nor inf nor NaN, and are 0 or inf after the cast."""

    to_zero: float
    to_inf: float


def share_lost(values: torch.Tensor, *, scale: float = 1.0, dtype: torch.dtype = torch.float16) -> Lost:
    """What a cast to `dtype` loses of `values` times `scale`: why gradients are scaled, and why not by too much.

    values : float32, any shape
    raises : ValueError without a number that is finite and not 0
    """
    kept = values[torch.isfinite(values) & (values != 0)]
    if not kept.numel():
        raise ValueError("share_lost needs at least one number that is finite and not 0")
    cast = (kept.double() * scale).to(dtype)
    return Lost(*(float(lost.double().mean()) for lost in (cast == 0, torch.isinf(cast))))


class ScaleRow(NamedTuple):
    """One step of a scaled run: the scale it used, the gradient that came out, and whether the step was skipped."""

    step: int
    scale: float
    gradient: float
    skipped: bool


def scale_history(
    gradients: Iterable[float],
    *,
    init_scale: float = 2.0**16,
    growth_interval: int = 2000,
    growth_factor: float = 2.0,
    backoff_factor: float = 0.5,
) -> list[ScaleRow]:
    """How a `GradScaler` moves its scale over a run: a real scaler, and gradients from a script instead of a model.

    gradients : the gradient of each step as float32 would have it; it passes through float16 multiplied by the scale,
                as in a scaled backward pass (inf above 65,504, 0 below about 3e-8)
    returns   : one row a step; `gradient` is divided by the scale again
    """
    how = {"growth_factor": growth_factor, "backoff_factor": backoff_factor, "growth_interval": growth_interval}
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, **how)
    weight = nn.Parameter(torch.zeros(()))
    optimizer, rows = torch.optim.SGD([weight], lr=0.0), []
    for step, gradient in enumerate(gradients, 1):
        scale = scaler.get_scale()
        weight.grad = scaler.scale(torch.tensor(float(gradient))).half().float()
        scaler.unscale_(optimizer)
        rows.append(ScaleRow(step, scale, float(weight.grad), not math.isfinite(weight.grad)))
        scaler.step(optimizer)
        scaler.update()
    return rows
