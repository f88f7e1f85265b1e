"""The memory that lives while something runs, from the events of torch's own allocator: counted, not estimated.

It knows no model. Re-exported by `profiling`.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from torch.profiler import ProfilerActivity, profile

from course_utils.step_clock import wait_for_device
from course_utils.step_profile import without_its_log


def live_bytes(fn: Callable[[], Any], *, prepare: bool = True) -> list[int]:
    """Bytes that torch's allocator has handed out and not got back, beyond those before: 0, then one for each event.

    fn      : a forward pass, or a whole step; it runs twice, and the second time is counted
    prepare : False counts the first and only run, with what it makes for later ones: an optimizer's state, gradients

    An event hands memory out or takes it back, in the order in which it happens. Also counted is what an operation
    needs for itself alone and no tensor shows. Not counted are Python's objects and files, and memory from before that
    `fn` gives back (torch may say so on stderr). With a GPU its memory is counted too (written, not run).

    `torch.distributed._tools.mem_tracker.MemTracker` sorts the memory by modules; it sees the results of operations,
    not what is allocated inside them, and needs a torch with `torch.distributed`.
    """
    if prepare:
        fn()  # the first one keeps what it prepared
    gc.collect()  # else what others left could be given back in between
    with without_its_log(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        fn()
        wait_for_device()
    events = found.profiler.kineto_results.events()
    return list(accumulate((event.nbytes() for event in events if event.name() == "[memory]"), initial=0))


def peak_bytes(fn: Callable[[], Any], *, prepare: bool = True) -> int:
    """The most of `live_bytes`: what has to be there at one time, beyond what is there before."""
    return max(live_bytes(fn, prepare=prepare))
