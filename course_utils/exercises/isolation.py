"""Run foreign code so that the kernel is afterwards as it was before.

It knows no exercise. Libraries that are not loaded are left alone, so nothing is imported here on purpose.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import warnings
from collections.abc import Iterator

SEED = 0


@contextlib.contextmanager
def isolated() -> Iterator[io.StringIO]:
    """Generators seeded alike for every call, then restored; what is printed goes into the yielded buffer.

    Restored: the generators of `random`, NumPy and torch, grad mode, default dtype, number of threads, warning filters.
    Warnings inside are dropped: they are the reader's next lesson, not this one's result.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_python_and_numpy_generators())
        stack.enter_context(_torch_state())
        yield stack.enter_context(contextlib.redirect_stdout(io.StringIO()))


@contextlib.contextmanager
def _python_and_numpy_generators() -> Iterator[None]:
    numpy = sys.modules.get("numpy")
    before = random.getstate(), numpy and numpy.random.get_state()
    random.seed(SEED)
    if numpy:
        numpy.random.seed(SEED)
    try:
        yield
    finally:
        random.setstate(before[0])
        if numpy:
            numpy.random.set_state(before[1])


@contextlib.contextmanager
def _torch_state() -> Iterator[None]:
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = (torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())
    gpu_before = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    torch.default_generator.manual_seed(SEED)  # `torch.manual_seed` would also seed a GPU that wakes up later
    torch.set_grad_enabled(True)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        torch.set_grad_enabled(before[1])
        torch.set_default_dtype(before[2])
        if torch.get_num_threads() != before[3]:
            torch.set_num_threads(before[3])
        if gpu_before is not None:
            torch.cuda.set_rng_state_all(gpu_before)
