"""Work side by side on a CPU: one thread of Python for each core, and within it one for each operation.

torch spreads every operation over all cores and waits for the slowest at its end. Small batches have many short operations, so
that much of the time is waiting and data move between cores; pieces that do not depend on each other (classes, parts of a
batch, networks) are done sooner one on each core. On a GPU, or with one thread, there is one lane, which is the caller.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor


def count(device: torch.device) -> int:
    """How many lanes there are: on a CPU as many as torch has threads, else one."""
    return torch.get_num_threads() if device.type == "cpu" else 1


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes, "lane", initializer=torch.set_num_threads, initargs=(1,))


def each(
    function: Callable[[Any], Any], items: Iterable[Any], lanes: int, give_up: Callable[[], None] = lambda: None
) -> Iterator[Any]:
    """Call a function with each item, as many at a time as there are lanes, and yield what it returns in the items' order.

    No call begins before there is a lane for it, so that a caller who gives up waits for those that run and no others.

    Args:
        function: leaves alone what other calls use, and draws from generators of its own only.
        items: what it is called with, one by one.
        lanes: from `count`; one, and it is called here.
        give_up: called when the caller wants no more results or an error comes up; tells the calls that still run to end.
    """
    if lanes == 1:
        yield from map(function, items)
        return
    items, running = iter(items), []
    try:
        running.extend(_pool(lanes).submit(function, item) for item in islice(items, lanes))
        while running:
            yield running.pop(0).result()
            running.extend(_pool(lanes).submit(function, item) for item in islice(items, 1))
    except BaseException:
        give_up()
        raise
    finally:
        _settle(running)


def _settle(running: Sequence[Future]) -> None:
    """Wait for what still runs, so that nobody is at work on tensors that the caller takes back."""
    for future in running:
        future.cancel() or future.exception()


def parts(x: Tensor, lanes: int) -> list[Tensor]:
    """Cut a batch into as many parts as there are lanes, or fewer where it is small."""
    return list(x.tensor_split(max(1, min(lanes, len(x)))))
