"""Ordered maps over threads, for work that releases the interpreter's lock: parsing, hashing, reading files."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: More threads would take cores from other ingestions that run at the same time.
_MOST_THREADS: Final = 4


def n_workers() -> int:
    """Threads that one ingestion uses: one per core of this process, at most four."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


def map_in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Map with the threads of an ingestion, at most two results per thread ahead. A single item is done without threads.

    Errors and an early stop are treated as by ``map_ahead``.
    """
    remaining = iter(items)
    first = list(islice(remaining, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    threads = n_workers()
    yield from map_ahead(work, chain(first, remaining), threads=threads, prefetch=2 * threads - 1)


def map_ahead(work: Callable[[Item], Result], items: Iterable[Item], *, threads: int, prefetch: int) -> Iterator[Result]:
    """Map in the order of the items, working ahead of the caller.

    Items are taken by the caller's thread. An error is raised in place of its item's result; items not begun by then, or when
    the caller stops, never run.

    Args:
        work: runs in a thread.
        items: to work on.
        threads: number of threads.
        prefetch: results that are unfinished or waiting for the caller, at most; with 0 there are no threads.
    """
    if prefetch == 0:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
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
