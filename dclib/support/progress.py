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


class Progress:
    """A bar of `total` steps; used as a context manager.

    Args:
        what: a few words on what is done.
        total: how many steps there are.
        hidden: for a process that works for another, which shows it.
    """

    BAR: str | None = None  # tqdm's own, with its forecast

    def __init__(self, what: str, total: int, hidden: bool = False):
        from tqdm import tqdm

        self.what, self.total, self.done, self.first = what, total, 0, 0
        self.lines = not hidden and not sys.stderr.isatty()
        self.bar = tqdm(total=total, desc=what, dynamic_ncols=True, bar_format=self.BAR, disable=hidden or self.lines)
        self.start = self.last = self.warm = time.monotonic()

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
        self.bar.reset(self.total)
        self.bar.initial = done
        self.bar.update(done)

    def step(self, note: str = "") -> None:
        """Count one step; `note` is a few words on how it goes, such as the loss."""
        self.done += 1
        if self.done == self.first + 1:
            self.warm = time.monotonic()
        self.bar.set_postfix_str(self._beside(note), refresh=False)
        self.bar.update()
        if time.monotonic() - self.last >= LINE_SECONDS and self.done < self.total:
            self.last = time.monotonic()
            self._line(f"{self.done} of {self.total}, {clock(self._left())} left{', ' if note else ''}{note}")

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

    def _beside(self, note: str) -> str:
        return note

    def _left(self) -> float:
        """Seconds left at the pace so far, without the first step where there are more: it may have compiled."""
        steps, start = self.done - self.first - 1, self.warm
        if not steps:
            steps, start = 1, self.start
        return (self.last - start) / steps * (self.total - self.done)

    def _line(self, text: str) -> None:
        if self.lines:
            print(f"{self.what}: {text}", file=sys.stderr, flush=True)


class Uneven(Progress):
    """A bar of steps of unequal sizes; the time between a step and the next `begin` is left out of its forecast.

    Args:
        what, hidden: as for `Progress`.
        sizes: how long each step takes, in any unit.
    """

    BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"

    def __init__(self, what: str, sizes: Sequence[int], hidden: bool = False):
        super().__init__(what, len(sizes), hidden)
        self.sizes, self.spent = list(sizes), 0.0
        self.begin()

    def begin(self) -> None:
        """Start the clock of the next step."""
        self.lap = time.monotonic()

    def step(self, note: str = "") -> None:
        """Count one step."""
        self.spent += time.monotonic() - self.lap
        self.begin()
        super().step(note)

    def _beside(self, note: str) -> str:
        return f"{clock(self._left())} left{', ' if note else ''}{note}"

    def _left(self) -> float:
        return self.spent / sum(self.sizes[: self.done]) * sum(self.sizes[self.done :])


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
            os.write(2, b"\nstopping after this step; Ctrl-C again stops at once\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked.is_set() or (end is not None and time.monotonic() >= end)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
