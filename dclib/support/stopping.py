"""How long work is stopped: by Ctrl-C, by SIGTERM, or by a time limit, each at a point from which it goes on."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopping(seconds: float | None = None) -> Iterator[Callable[[], bool]]:
    """Give a `should_stop` that turns true on Ctrl-C, on SIGTERM, or after so many seconds; a second Ctrl-C stops at once."""
    asked, end = threading.Event(), None if seconds is None else time.monotonic() + seconds
    old = {}

    def ask(number: int, frame: object) -> None:
        asked.set()
        if number == signal.SIGINT:
            os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked.is_set() or (end is not None and time.monotonic() >= end)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
