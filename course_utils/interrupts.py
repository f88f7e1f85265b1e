"""Stop at the next step boundary: Ctrl-C and SIGTERM become a request that a loop looks at.

It knows no training. Only the main thread may handle signals; in any other thread nothing is changed.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopRequest:
    """`requested` is None, or the name of the signal that asked to stop."""

    requested: str | None = None


@contextmanager
def stop_at_boundary() -> Iterator[StopRequest]:
    """Inside the block the first Ctrl-C or SIGTERM sets `requested`; a second one acts at once, as without the block.

    The handlers that were there before are put back at the end.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[int, signal.Handlers] = {}

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(number: int, frame: object) -> None:
        stop.requested = signal.Signals(number).name
        put_back()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(number)
            if handler not in (None, signal.SIG_IGN):  # None: C code's, cannot be put back; ignored on purpose: nohup
                before[number] = handler
                signal.signal(number, request)
        yield stop
    finally:
        put_back()
