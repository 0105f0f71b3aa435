"""Lanes: on a CPU, independent pieces of work run side by side, each in a Python thread whose operations use one core.

torch spreads every operation over all cores and waits for the slowest. The operations of small batches are so short that most of
the time goes into waiting and into moving data between cores; independent pieces (classes, parts of a batch, networks) finish
sooner with one core each. On a GPU, or with one thread, there is one lane: the caller's thread.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor


def count(device: torch.device) -> int:
    """Return the number of lanes: on a CPU the number of torch's threads, on a GPU one."""
    return torch.get_num_threads() if device.type == "cpu" else 1


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes, "lane", initializer=torch.set_num_threads, initargs=(1,))


def each(
    function: Callable[[Any], Any], items: Iterable[Any], lanes: int, give_up: Callable[[], None] = lambda: None
) -> Iterator[Any]:
    """Call a function with each item, in all lanes at a time, and yield its results in the order of the items.

    A call begins only when a lane is free, so that a caller who gives up waits for the running calls and for no others.

    Args:
        function: changes nothing that other calls use, and draws only from its own generators.
        items: its arguments, one for each call.
        lanes: from `count`; with one lane the function is called in this thread.
        give_up: called on an error, or when the caller wants no more results; it tells running calls to end.
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
        for future in running:  # wait, so that no call works on tensors that the caller takes back
            future.cancel() or future.exception()


def parts(x: Tensor, lanes: int) -> list[Tensor]:
    """Cut a batch into one part for each lane, or fewer if it is small."""
    return list(x.tensor_split(max(1, min(lanes, len(x)))))
