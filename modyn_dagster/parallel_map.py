"""Work in threads that run without the interpreter's lock (parsing, hashing, reading files): begun ahead, taken in order."""

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
    """``map`` in the threads of an ingestion: at most two results per thread unfinished or waiting to be taken.

    A single item needs no thread. Errors and the end are as of ``map_ahead``.
    """
    remaining = iter(items)
    first = list(islice(remaining, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    threads = n_workers()
    yield from map_ahead(work, chain(first, remaining), threads=threads, prefetch=2 * threads - 1)


def map_ahead(work: Callable[[In], Out], items: Iterable[In], *, threads: int, prefetch: int) -> Iterator[Out]:
    """``work`` of every item in their order, at most ``prefetch`` of them ahead; with none ahead there are no threads.

    Items are taken by the caller's thread. The first error in the order of the items is raised where its result would be; what
    was not begun by then, or when the caller stops, never runs.
    """
    if prefetch == 0:
        yield from map(work, items)
        return
    waiting: deque[Future[Out]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="ahead") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > prefetch:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
