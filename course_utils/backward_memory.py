"""What a forward pass keeps for its backward pass, in bytes: counted, not estimated.

It knows no loop and no data. Re-exported by `profiling`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.checkpoint import checkpoint_sequential

from course_utils.live_bytes import peak_bytes
from course_utils.speed_limit import times_of


class SavedTensor(NamedTuple):
    """Memory that is kept: the shape and dtype of the first tensor that was saved in it, and all its bytes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int


def tensors_for_backward(fn: Callable[[], torch.Tensor]) -> list[SavedTensor]:
    """What autograd keeps between the forward pass in `fn` and its backward pass, in the order of saving.

    fn      : runs once; a forward pass that returns its loss (or any tensors, in dicts, lists and tuples)
    returns : one entry for each piece of memory: tensors that share one count once, with all its bytes, since the
              smallest view keeps all of it alive
    raises  : ValueError where `fn` returns no tensor that backward could start from

    Not counted are parameters and buffers of the modules that run, and other leaf tensors that require gradients: they
    are there anyway. The inputs are counted where an operation saves them.
    """
    saved: list[torch.Tensor] = []  # held: memory that is given back and used again would count as one

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.detach())  # the tensor itself would keep its graph, which keeps it: never freed
        return saved[-1]

    with _modules_that_run() as modules, saved_tensors_hooks(pack, lambda tensor: tensor):
        result = fn()
    starts = [tensor.grad_fn for tensor in _tensors(result) if tensor.grad_fn is not None]
    if not starts:
        raise ValueError(
            "fn returned no tensor with a graph: it must return its loss, without detach(), item() or no_grad()"
        )
    there = {_memory(tensor) for module in modules for tensor in (*module.parameters(False), *module.buffers(False))}
    there |= {_memory(leaf) for leaf in _leaves(starts)}
    found: dict[Any, SavedTensor] = {}
    for tensor in saved:
        kept = SavedTensor(tuple(tensor.shape), tensor.dtype, tensor.untyped_storage().nbytes())
        if _memory(tensor) not in there and kept.nbytes:
            found.setdefault(_memory(tensor), kept)
    return list(found.values())


def bytes_for_backward(fn: Callable[[], torch.Tensor]) -> int:
    """Bytes that autograd keeps between the forward pass in `fn` and its backward: `tensors_for_backward` added up."""
    return sum(tensor.nbytes for tensor in tensors_for_backward(fn))


def checkpointed(model: nn.Sequential, num_segments: int) -> nn.Module:
    """The same model, the same parameters; forward keeps the segments' inputs only, backward runs the segments again.

    num_segments : of about equal length; the last one is kept whole, since backward begins with it
    raises       : ValueError for another model, or a number of segments that does not fit

    Outputs and gradients are the same to the bit, dropout too: its generator's state is kept with a segment. BatchNorm
    sees each batch twice, so its running statistics differ. Made of `torch.utils.checkpoint`.
    """
    if not isinstance(model, nn.Sequential) or not 1 <= num_segments <= len(model):
        raise ValueError(
            f"checkpointed needs an nn.Sequential and 1 to len(model) segments, got {type(model).__name__} and "
            f"num_segments={num_segments}"
        )
    return _Checkpointed(model, num_segments)


class _Checkpointed(nn.Module):
    def __init__(self, model: nn.Sequential, num_segments: int) -> None:
        super().__init__()
        self.model, self.num_segments = model, num_segments

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return checkpoint_sequential(self.model, self.num_segments, inputs, use_reentrant=False)


@dataclass(frozen=True)
class MemoryRow:
    """One way to run a step: bytes kept for backward; of forward and backward together peak and median milliseconds."""

    name: str
    kept_bytes: int
    peak_bytes: int
    step_ms: float


class MemoryTable(tuple[MemoryRow, ...]):
    """Rows of `compare_memory`; prints as a table, shares are of the first row."""

    def __str__(self) -> str:
        width, first = max(len(row.name) for row in self), self[0]
        lines = [f"{'':{width}}  kept for backward (MiB)   share  peak (MiB)   share      ms   share"]
        for row in self:
            kept = f"{row.kept_bytes / 2**20:23.3f}  {row.kept_bytes / max(1, first.kept_bytes):6.0%}"
            peak = f"{row.peak_bytes / 2**20:10.3f}  {row.peak_bytes / max(1, first.peak_bytes):6.0%}"
            lines.append(f"{row.name:{width}}  {kept}  {peak}  {row.step_ms:6.2f}  {row.step_ms / first.step_ms:6.0%}")
        return "\n".join(lines)


def compare_memory(ways: dict[str, Callable[[], torch.Tensor]], *, seconds: float = 1.0) -> MemoryTable:
    """Bytes kept, the peak and the milliseconds of forward and backward, for several ways to compute one loss.

    ways    : name -> forward pass that returns its loss, one number; it runs some times
    seconds : for each way
    returns : a `MemoryTable`; gradients are computed and given back: no parameter's `.grad` changes
    raises  : ValueError without a way, or where one returns no tensor that backward could start from
    """
    if not ways:
        raise ValueError("compare_memory needs at least one way: {'plain': forward}")
    return MemoryTable(_row(name, fn, seconds) for name, fn in ways.items())


def _row(name: str, fn: Callable[[], torch.Tensor], seconds: float) -> MemoryRow:
    kept = bytes_for_backward(fn)
    leaves = list(_leaves([fn().grad_fn]))

    def both() -> Any:
        return torch.autograd.grad(fn(), leaves, allow_unused=True)

    return MemoryRow(name, kept, peak_bytes(both), max(1e3 * statistics.median(times_of(both, seconds)), 1e-4))


@contextmanager
def _modules_that_run() -> Iterator[set[nn.Module]]:
    modules: set[nn.Module] = set()
    handle = register_module_forward_pre_hook(lambda module, inputs: modules.add(module))
    try:
        yield modules
    finally:
        handle.remove()


def _memory(tensor: torch.Tensor) -> tuple[torch.device, int]:
    return tensor.device, tensor.untyped_storage().data_ptr()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _leaves(starts: list[Any]) -> Iterator[torch.Tensor]:
    """The tensors that backward would put gradients into."""
    seen, ahead = set(starts), list(starts)
    while ahead:
        node = ahead.pop()
        if hasattr(node, "variable"):
            yield node.variable
        following = {next_node for next_node, _ in node.next_functions if next_node is not None}
        ahead += following - seen
        seen |= following
