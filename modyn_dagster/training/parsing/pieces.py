"""Work on n samples cut into pieces for several threads."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TypeVar

from modyn_dagster.training.parsing.function import ParseFailed

T = TypeVar("T")


class Pieces:
    """Runs ``work(start, stop)`` on contiguous pieces, one per thread, and returns the results in order.

    With one thread the caller's own does it. The first failing piece, in the order of the samples, is the one that raises,
    and nothing runs any more then: callers may reuse the memory that pieces wrote to.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._open()

    def __call__(self, n: int, work: Callable[[int, int], T]) -> list[T]:
        """Results of all pieces of ``range(n)``."""
        if self._threads == 1 or n < 2:
            return [work(0, n)]
        edges = [n * i // self._threads for i in range(self._threads + 1)]
        cuts = [(start, stop) for start, stop in pairwise(edges) if start < stop]
        pool = self._own_pool()
        futures = [pool.submit(work, start, stop) for start, stop in cuts]
        wait(futures)
        return [_result(future, start) for future, (start, _) in zip(futures, cuts, strict=True)]

    def close(self) -> None:
        """Let the threads end; pieces that have not begun are given up."""
        if self._owner == os.getpid():
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _own_pool(self) -> ThreadPoolExecutor:
        if self._owner != os.getpid():
            # We were forked, and threads do not come along. Two callers at once may make one each: the other's ends by itself.
            self._open()
        return self._pool

    def _open(self) -> None:
        # Its threads start with the first work.
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="parse")
        self._owner = os.getpid()


def _result(future: Future[T], start: int) -> T:
    try:
        return future.result()
    except ParseFailed as error:
        position = None if error.position is None else start + error.position
        raise ParseFailed(position, error.reason) from error
