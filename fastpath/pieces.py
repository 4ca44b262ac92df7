"""Large requests in pieces, over a few plain threads."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

#: Fewer keys are not worth another thread.
_LEAST: Final = 1 << 13


class Workers:
    """Threads that start when a request first wants them. Those of a parent process are not here after a fork."""

    def __init__(self) -> None:
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """No threads, and a new lock: after a fork that of the parent may be held by a thread that is not here."""
        self._returned = threading.Condition()
        self._pool: _Pool | None = None

    def run(self, n: int, most: int, threads: int, work: Callable[[int, int], None]) -> None:
        """``work(start, stop)`` for pieces that make up ``range(n)``, of at most ``most`` each, in up to ``threads`` threads.

        Returns or raises when all have ended; raises the error of the first piece that has one.
        """
        threads = max(1, min(threads, n // _LEAST))
        step = min(most, -(-n // threads)) if n else 1
        bounds = [(start, min(start + step, n)) for start in range(0, n, step)]
        if threads == 1 or len(bounds) == 1:
            for start, stop in bounds:
                work(start, stop)
            return
        request = _Request(work)
        with self._lent(threads) as executor:
            try:
                futures = [executor.submit(request.do, start, stop) for start, stop in bounds]
                wait(futures)
            finally:
                # Nobody may write to the caller's arrays after this returns, nor when the user interrupts it.
                request.end()
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads, once requests in flight are done with them; a later request starts new ones."""
        with self._returned:
            pool, self._pool = self._pool, None
            while pool is not None and pool.users:
                self._returned.wait()
        if pool is not None:
            pool.executor.shutdown()

    @contextmanager
    def _lent(self, threads: int) -> Iterator[ThreadPoolExecutor]:
        with self._returned:
            pool = self._pool
            if pool is None or pool.threads < threads:
                # Threads of a smaller one end when the last request lets go of it.
                pool = self._pool = _Pool(threads)
            pool.users += 1
        try:
            yield pool.executor
        finally:
            with self._returned:
                pool.users -= 1
                self._returned.notify_all()


class _Request:
    """Pieces of one request. An executor may still begin one that it could not find a thread for, and raised an error about."""

    def __init__(self, work: Callable[[int, int], None]) -> None:
        self._work, self._ended, self._running = work, False, 0
        self._changed = threading.Condition()

    def do(self, start: int, stop: int) -> None:
        """A piece, unless the request has ended."""
        with self._changed:
            if self._ended:
                return
            self._running += 1
        try:
            self._work(start, stop)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Begin no more pieces, and wait for those that run."""
        with self._changed:
            self._ended = True
            while self._running:
                self._changed.wait()


class _Pool:
    def __init__(self, threads: int) -> None:
        self.threads, self.users = threads, 0
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="fastpath")


_all: "weakref.WeakSet[Workers]" = weakref.WeakSet()


def _forget_all() -> None:
    for workers in _all:
        workers.forget()


os.register_at_fork(after_in_child=_forget_all)
