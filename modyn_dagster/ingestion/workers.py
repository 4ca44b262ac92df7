"""A few short-lived threads for work that runs without the interpreter's lock: parsing, hashing, reading files."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")

#: More threads of one ingestion would take cores from others that run at the same time.
_MOST: Final = 4


def n_workers() -> int:
    """Threads that one ingestion uses: the cores this process may run on, at most four."""
    return min(_MOST, len(os.sched_getaffinity(0)))


def in_order(work: Callable[[In], Out], items: Iterable[In]) -> Iterator[Out]:
    """``map`` in threads: results in the order of the items, at most two per thread unfinished or waiting to be taken.

    The first error in the order of the items is raised; what was not begun by then never runs.
    """
    remaining = iter(items)
    first = list(islice(remaining, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    threads = n_workers()
    waiting: deque[Future[Out]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="ingest") as pool:
        try:
            for item in chain(first, remaining):
                waiting.append(pool.submit(work, item))
                if len(waiting) == 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
