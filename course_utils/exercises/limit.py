"""Call a function and end it when its time is up: standard library only; Linux, macOS and Windows; from any thread.

It knows no exercise. A watcher thread sends an exception into the calling thread, so a line costs nothing extra.
What it cannot end is one long call into C (`time.sleep(1000)`, `list(itertools.count())`): that ends when it returns.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

_AGAIN_SECONDS = 0.05
_POLITE_TRIES = 20
_FAST_SECONDS = 20


class StillRunning(Exception):
    """The function did not return in time."""


class _TimeIsUp(BaseException):
    """Sent into the calling thread; no `Exception`, so `except Exception` in a reader's loop does not swallow it."""


def call_with_limit(fn: Callable, *args, seconds: float, **kwargs):
    """`fn(*args, **kwargs)`, ended after about `seconds`.

    seconds : wall time; a bare `except:` in the loop delays the end by one to two seconds
    returns : what `fn` returns; what `fn` raises is raised
    raises  : StillRunning when the time is up
    """
    caller, over = threading.get_ident(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(caller, over, seconds), name="time limit", daemon=True)

    def end() -> None:
        over.set()
        watcher.join()
        _send(caller, None)  # the watcher is gone; what it sent last and nobody received is taken back

    try:
        watcher.start()
        try:
            return fn(*args, **kwargs)
        finally:
            end()
    except _TimeIsUp:  # it may arrive in the `finally` above, so everything ends once more
        end()
        raise StillRunning(f"still running after {seconds:g} s") from None


def _watch(caller: int, over: threading.Event, seconds: float) -> None:
    """Wait, then send until the call is over: one exception may be lost in a `__del__` or a `finally`."""
    if over.wait(seconds):
        return
    for _ in range(_POLITE_TRIES):
        _send(caller, _TimeIsUp)
        if over.wait(_AGAIN_SECONDS):
            return
    _send_fast(caller, over)


def _send_fast(caller: int, over: threading.Event) -> None:
    """Against `while True: try: ... except: pass`: hit the jump after its handler."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-7)
    try:
        give_up = time.monotonic() + _FAST_SECONDS
        while not over.is_set() and time.monotonic() < give_up:
            _send(caller, _TimeIsUp)
    finally:
        sys.setswitchinterval(interval)


def _send(thread_id: int, exception: type[BaseException] | None) -> None:
    """Raise `exception` in a thread at its next bytecode; `None` takes back what is still pending."""
    sent = ctypes.py_object(exception) if exception else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), sent)
