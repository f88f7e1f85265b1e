"""Call a function and end it when its time is up: standard library only; Linux, macOS and Windows; from any thread.

It knows no exercise. A watcher thread sends an exception into the calling thread, so a line costs nothing extra.
What it cannot end is one long call into C (`time.sleep(1000)`, `list(itertools.count())`): that ends when it returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import time
from collections.abc import Callable

_AGAIN_SECONDS = 0.05
_POLL_SECONDS = 0.0002
_POLITE_TRIES = 4
_RETRIES = 20


class StillRunning(Exception):
    """The function did not return in time."""


class _TimeIsUp(BaseException):
    """Sent into the calling thread; no `Exception`, so `except Exception` in a reader's loop does not swallow it."""


def call_with_limit(fn: Callable, *args, seconds: float, **kwargs):
    """`fn(*args, **kwargs)`, ended after about `seconds`.

    seconds : wall time; a bare `except:` in the loop delays the end by a fraction of a second
    returns : what `fn` returns; what `fn` raises is raised
    raises  : StillRunning when the time is up
    """
    caller, wake, gone = threading.get_ident(), threading.Lock(), []
    wake.acquire()
    watcher = threading.Thread(target=_watch, args=(caller, wake, gone, seconds), name="time limit", daemon=True)
    end = functools.partial(_end, caller, watcher, wake, gone)
    try:
        watcher.start()
        try:
            return fn(*args, **kwargs)
        finally:
            end()
    except _TimeIsUp:  # it may arrive in the `finally` above, or here, so ending is tried again
        try:
            _insist(end)
        except _TimeIsUp:  # before the `try` inside, or at its loop's jump
            _insist(end)
        raise StillRunning(f"still running after {seconds:g} s") from None


def _end(caller: int, watcher: threading.Thread, wake: threading.Lock, gone: list) -> None:
    """Have the watcher go. May be interrupted anywhere and called again, so it holds no lock until nothing can come."""
    with contextlib.suppress(RuntimeError):  # it was released before
        wake.release()
    while not gone:
        time.sleep(_POLL_SECONDS)
    if gone[0]:  # nothing more is sent; what was sent last and not received is taken back
        _send(caller, None)  # only then: under a profiler or a debugger this call alone stops Python 3.11 for ever
    watcher.join()


def _insist(end: Callable[[], None]) -> None:
    for _ in range(_RETRIES):
        try:
            end()
            return
        except _TimeIsUp:
            pass


def _watch(caller: int, wake: threading.Lock, gone: list, seconds: float) -> None:
    sent = True
    try:
        sent = _send_until_woken(caller, wake, seconds)
    finally:
        gone.append(sent)


def _send_until_woken(caller: int, wake: threading.Lock, seconds: float) -> bool:
    """Wait, then send until woken: an exception may be lost in a `__del__`, a `finally`, a bare `except:`. True where
    something was sent."""
    if wake.acquire(timeout=seconds):
        return False
    for _ in range(_POLITE_TRIES):
        _send(caller, _TimeIsUp)
        if wake.acquire(timeout=_AGAIN_SECONDS):
            return True
    twice = _sends_another(caller)
    while not wake.acquire(timeout=_AGAIN_SECONDS):
        _send(caller, twice)
    return True


def _sends_another(caller: int) -> type[BaseException]:
    """An exception against `while True: try: ... except: pass`, which swallows whatever reaches the `try`.

    Python makes the instance in the receiving thread, on the way to the handler; making it sends the next exception.
    That one waits for the next check of the interpreter, which is the loop's jump back: behind the handler, and outside
    the `try`. `__init__` is a C function, because a Python function would make such a check itself.
    """
    send_next = functools.partial(_SET_ASYNC_EXC, caller, _TimeIsUp)
    return type("_TimeIsUpTwice", (_TimeIsUp,), {"__init__": staticmethod(send_next)})


_SET_ASYNC_EXC = ctypes.PYFUNCTYPE(None, ctypes.c_ulong, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


def _send(thread_id: int, exception: type[BaseException] | None) -> None:
    """Raise `exception` in a thread at its next bytecode; `None` takes back what is still pending."""
    sent = ctypes.py_object(exception) if exception else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), sent)
