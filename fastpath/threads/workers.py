"""Shared workers: large requests cut into pieces for a few plain threads, and marks of current users."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

#: Seconds after which to look again: nobody says that a mark was lost.
_PATIENCE: Final = 0.05


class Mark:
    """One use."""

    __slots__ = ("__weakref__",)


class Users:
    """Marks of those who use it. One that an interrupt keeps from being given back vanishes with the frame that held it."""

    def __init__(self) -> None:
        # The same thread may take it again: garbage may be collected, and `wait` called, while it is held.
        self._lock = threading.RLock()
        self._left = threading.Condition(self._lock)
        self._marks: weakref.WeakSet[Mark] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._marks)

    def enter(self) -> Mark:
        """From now on it is used."""
        mark = Mark()
        with self._lock:
            self._marks.add(mark)
        return mark

    def leave(self, mark: Mark) -> None:
        """This use is over."""
        with self._lock:
            self._marks.discard(mark)
            self._left.notify_all()

    def wait(self) -> None:
        """Until nobody uses it."""
        with self._lock:
            while self._marks:
                self._left.wait(_PATIENCE)


#: Fewer keys are not worth another thread.
_LEAST: Final = 1 << 13


class Workers:
    """Threads that start when a request first wants them. Those of a parent process are not here after a fork."""

    def __init__(self) -> None:
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """No threads, and a new lock: after a fork that of the parent may be held by a thread that is not here."""
        self._lock = threading.RLock()
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
            helpers = [_Helper(request) for _ in range(threads - 1)]
            try:
                for helper in helpers:
                    executor.submit(helper.help)
                # Whoever asks works too: nobody waits for a thread to wake up before the first piece is begun.
                request.share(Exception)
            finally:
                # Nobody may write to the caller's arrays after this returns, nor when the user interrupts it.
                request.end(helpers)
        request.check()

    def close(self) -> None:
        """End the threads, once requests in flight are done with them; a later request starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.users.wait()
            pool.executor.shutdown()

    @contextmanager
    def _lent(self, threads: int) -> Iterator[ThreadPoolExecutor]:
        with self._lock:
            pool = self._pool
            if pool is None or pool.threads < threads:
                # Threads of a smaller one end when the last request lets go of it.
                pool = self._pool = _Pool(threads)
            user = pool.users.enter()
        try:
            yield pool.executor
        finally:
            pool.users.leave(user)


class _Request:
    """Pieces of one request. Nothing here waits for a lock that an interrupt could leave taken."""

    def __init__(self, work: Callable[[int, int], None], bounds: list[tuple[int, int]]) -> None:
        self._work, self._bounds = work, bounds
        # The next element of an iterator over a range goes to one thread only.
        self._left = iter(range(len(bounds)))
        self._errors: dict[int, BaseException] = {}
        self._ended = False

    def share(self, caught: type[BaseException]) -> None:
        """Do pieces that nobody has begun, until there are none or the request has ended; ``check`` raises what was caught."""
        for piece in self._left:
            if self._ended:
                return
            try:
                self._work(*self._bounds[piece])
            except caught as error:
                self._errors[piece] = error

    def end(self, helpers: "Sequence[_Helper]") -> None:
        """Begin no more pieces, and wait for those of helpers; interrupts are raised after that."""
        self._ended, interrupt = True, None
        for helper in helpers:
            while True:
                try:
                    if helper.is_over():
                        break
                    helper.wait()
                except KeyboardInterrupt as error:
                    interrupt = error
        if interrupt is not None:
            raise interrupt

    def check(self) -> None:
        """Raise the error of the first piece that has one."""
        if not self._errors:
            return
        error = self._errors[min(self._errors)]
        self._errors.clear()
        try:
            raise error
        finally:
            # Its traceback leads to this frame, and so to what the request writes to: no circle of these.
            del error


class _Helper:
    """A thread's part in a request."""

    def __init__(self, request: _Request) -> None:
        self._request = request
        self._called_off = False
        self._busy = threading.Lock()

    def help(self) -> None:
        """Share the request, unless it is over by now."""
        with self._busy:
            if not self._called_off:
                self._request.share(BaseException)

    def is_over(self) -> bool:
        """Whether it does nothing more: it has ended, or will not begin any more."""
        self._called_off = True
        return not self._busy.locked()

    def wait(self) -> None:
        """Until what it is at is done."""
        with self._busy:
            pass


class _Pool:
    def __init__(self, threads: int) -> None:
        self.threads, self.users = threads, Users()
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="fastpath")


_all: "weakref.WeakSet[Workers]" = weakref.WeakSet()


def _reset_after_fork() -> None:
    for workers in _all:
        workers.forget()


os.register_at_fork(after_in_child=_reset_after_fork)
