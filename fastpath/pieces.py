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
        request = _Request(work, bounds)
        with self._lent(threads - 1) as executor:
            try:
                futures = [executor.submit(request.share) for _ in range(threads - 1)]
                # Whoever asks works too: nobody waits for a thread to wake up before the first piece is begun.
                request.share()
                wait(futures)
            finally:
                # Nobody may write to the caller's arrays after this returns, nor when the user interrupts it.
                request.end()
        for future in futures:
            future.result()
        request.check()

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
    """Pieces of one request. An executor may still begin to share it after it could not find a thread, and raised an error."""

    def __init__(self, work: Callable[[int, int], None], bounds: list[tuple[int, int]]) -> None:
        self._work, self._bounds, self._next = work, bounds, 0
        self._errors: dict[int, Exception] = {}
        self._running = 0
        self._changed = threading.Condition()

    def share(self) -> None:
        """Do pieces that nobody has begun, until there are none or the request has ended."""
        while (piece := self._begin()) is not None:
            try:
                self._work(*self._bounds[piece])
            except Exception as error:  # noqa: BLE001  raised by `check`
                self._errors[piece] = error
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def end(self) -> None:
        """Begin no more pieces, and wait for those that run."""
        with self._changed:
            self._next = len(self._bounds)
            while self._running:
                self._changed.wait()

    def check(self) -> None:
        """Raise the error of the first piece that has one."""
        if self._errors:
            raise self._errors[min(self._errors)]

    def _begin(self) -> int | None:
        with self._changed:
            if self._next == len(self._bounds):
                return None
            self._running += 1
            self._next += 1
            return self._next - 1


class _Pool:
    def __init__(self, threads: int) -> None:
        self.threads, self.users = threads, 0
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="fastpath")


_all: "weakref.WeakSet[Workers]" = weakref.WeakSet()


def _forget_all() -> None:
    for workers in _all:
        workers.forget()


os.register_at_fork(after_in_child=_forget_all)
