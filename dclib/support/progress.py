"""Long work: a bar with a forecast on a terminal, a plain line now and then elsewhere; and how it is stopped."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

LINE_SECONDS = 30.0
BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


class Progress:
    """A bar of steps; used as a context manager.

    Args:
        what: a few words on what is done.
        steps: how many steps there are, or how long each takes, in any unit.
        hidden: for a process that works for another, which shows it.
    """

    def __init__(self, what: str, steps: int | Sequence[int], hidden: bool = False):
        from tqdm import tqdm

        self.what, self.sizes = what, [1] * steps if isinstance(steps, int) else list(steps)
        self.total, self.done, self.first = len(self.sizes), 0, 0
        self.timed, self.spent, self.ahead = 0, 0.0, sum(self.sizes)  # the size of the steps timed, their seconds, the size left
        self.lines = not hidden and not sys.stderr.isatty()
        self.bar = tqdm(total=self.total, desc=what, dynamic_ncols=True, bar_format=BAR, disable=hidden or self.lines)
        self.start = self.last = self.lap = time.monotonic()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type | None, *rest: object) -> None:
        self.bar.close()
        if kind is None and self.first < self.total:
            early = ", stopped early" if self.done < self.total else ""
            self._line(f"{self.done} of {self.total} in {clock(time.monotonic() - self.start)}{early}")

    def skip(self, done: int) -> None:
        """Count `done` steps as done earlier, so that the forecast leaves them out."""
        self.done = self.first = done
        self.ahead = sum(self.sizes[done:])
        self.bar.reset(self.total)
        self.bar.initial = done
        self.bar.update(done)

    def begin(self) -> None:
        """Start the clock of the next step anew: the forecast leaves out the time before."""
        self.lap = time.monotonic()

    def step(self, note: str = "") -> None:
        """Count one step; `note` is a few words on how it goes, such as the loss."""
        now, size = time.monotonic(), self.sizes[self.done]
        if self.done == self.first + 1:
            self.timed, self.spent = 0, 0.0  # the first step may have compiled: it counts only as long as it is alone
        self.done, self.ahead, self.timed = self.done + 1, self.ahead - size, self.timed + size
        self.spent, self.lap = self.spent + now - self.lap, now
        forecast = ", ".join(filter(None, (f"{clock(self.spent / self.timed * self.ahead)} left", note)))
        self.bar.set_postfix_str(forecast, refresh=False)
        self.bar.update()
        if now - self.last >= LINE_SECONDS and self.done < self.total:
            self.last = now
            self._line(f"{self.done} of {self.total}, {forecast}")

    def follow(self, note: Callable[[Any], str], *looks: Callable[[Any], None]) -> dict[str, Callable[[Any], None]]:
        """The callbacks of a resumable work that count its steps.

        Args:
            note: what stands beside the bar after a step.
            looks: called after each step, too.
        """

        def on_step(work: Any) -> None:
            self.step(note(work))
            for look in looks:
                look(work)

        return {"on_step": on_step, "on_resume": lambda work: self.skip(work.k)}

    def _line(self, text: str) -> None:
        if self.lines:
            print(f"{self.what}: {text}", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Write a duration as people say it: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def stopping(seconds: float | None = None) -> Iterator[Callable[[], bool]]:
    """Give a `should_stop` that turns true on Ctrl-C, on SIGTERM, or after so many seconds; a second Ctrl-C stops at once."""
    asked, end = threading.Event(), None if seconds is None else time.monotonic() + seconds
    old = {}

    def ask(number: int, frame: object) -> None:
        asked.set()
        if number == signal.SIGINT:
            os.write(2, b"\nstopping; Ctrl-C again stops at once\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked.is_set() or (end is not None and time.monotonic() >= end)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
