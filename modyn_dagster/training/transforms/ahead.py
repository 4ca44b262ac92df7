"""Work done ahead of whoever takes its results, in background threads and in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def done_ahead(work: Callable[[S], T], items: Iterable[S], *, threads: int, prefetch: int) -> Iterator[T]:
    """``work`` of every item, at most ``prefetch`` of them ahead; with none ahead there are no threads.

    Items are taken by the caller's thread. What ``work`` raises is raised where its result would be.
    """
    if prefetch == 0:
        yield from map(work, items)
        return
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="transform") as pool:
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
