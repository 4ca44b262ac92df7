"""Shared workers: large requests cut into pieces for a few plain threads, and a count of current users."""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from fastpath.threads.forks import reset_after_fork

#: Seconds between two looks: a use that is garbage-collected notifies nobody.
_PATIENCE: Final = 0.05


class Use:
    """One use of a shared object."""

    __slots__ = ("__weakref__",)


class Users:
    """Current uses of a shared object. A use that an interrupt keeps from ending vanishes with the frame that held it.

    Attributes:
        lock: held while a use begins or ends, so a fork can happen while a thread of the parent holds it.
    """

    def __init__(self) -> None:
        # Reentrant: garbage may be collected, and `wait` called, while the same thread holds the lock.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._uses: weakref.WeakSet[Use] = weakref.WeakSet()

    def __len__(self) -> int:
        return len(self._uses)

    def enter(self) -> Use:
        """Begin a use."""
        use = Use()
        with self.lock:
            self._uses.add(use)
        return use

    def leave(self, use: Use) -> None:
        """End a use."""
        with self.lock:
            self._uses.discard(use)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until no use is left."""
        with self.lock:
            while self._uses:
                self._changed.wait(_PATIENCE)


#: Smallest number of keys for which another thread pays.
MIN_KEYS: Final = 1 << 13


class Workers:
    """Threads that start with the first large request. A forked process starts threads of its own."""

    def __init__(self) -> None:
        self.forget()
        reset_after_fork(self.forget)

    def forget(self) -> None:
        """Drop the threads and renew the lock: in a forked process a thread of the parent may hold the old one for ever."""
        self._lock = threading.RLock()
        self._pool: _Pool | None = None

    def run(self, n: int, max_piece: int, threads: int, work: Callable[[int, int], None]) -> None:
        """Call ``work(start, stop)`` for pieces of ``range(n)``, of at most ``max_piece`` each, in up to ``threads`` threads.

        Returns or raises when all pieces have ended; raises the error of the first piece that failed.
        """
        threads = max(1, min(threads, n // MIN_KEYS))
        step = min(max_piece, -(-n // threads)) if n else 1
        bounds = [(start, min(start + step, n)) for start in range(0, n, step)]
        if threads == 1 or len(bounds) == 1:
            for start, stop in bounds:
                work(start, stop)
            return
        request = _Request(work, bounds)
        with self._executor(threads - 1) as executor:
            helpers = [_Helper(request) for _ in range(threads - 1)]
            try:
                for helper in helpers:
                    executor.submit(helper.help)
                # The caller works, too: the first piece begins before any other thread wakes up.
                request.share(Exception)
            finally:
                # No thread may write to the caller's arrays after the return, even after an interrupt.
                request.end(helpers)
        request.check()

    def close(self) -> None:
        """End the threads once requests in flight are done; a later request starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.users.wait()
            pool.executor.shutdown()

    @contextmanager
    def _executor(self, threads: int) -> Iterator[ThreadPoolExecutor]:
        with self._lock:
            pool = self._pool
            if pool is None or pool.threads < threads:
                # Threads of a smaller pool end when the last request releases it.
                pool = self._pool = _Pool(threads)
            use = pool.users.enter()
        try:
            yield pool.executor
        finally:
            pool.users.leave(use)


class _Request:
    """Pieces of one request. No method waits for a lock that an interrupt could leave locked."""

    def __init__(self, work: Callable[[int, int], None], bounds: list[tuple[int, int]]) -> None:
        self._work, self._bounds = work, bounds
        # An iterator over a range gives each element to one thread only.
        self._pending = iter(range(len(bounds)))
        self._errors: dict[int, BaseException] = {}
        self._ended = False

    def share(self, caught: type[BaseException]) -> None:
        """Work on pending pieces until none is left or the request has ended; ``check`` raises the caught errors."""
        for piece in self._pending:
            if self._ended:
                return
            try:
                self._work(*self._bounds[piece])
            except caught as error:
                self._errors[piece] = error

    def end(self, helpers: "Sequence[_Helper]") -> None:
        """Begin no more pieces, and wait for those of the helpers; interrupts are raised afterwards."""
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
        """Raise the error of the first piece that failed."""
        if not self._errors:
            return
        error = self._errors[min(self._errors)]
        self._errors.clear()
        try:
            raise error
        finally:
            # The traceback refers to this frame, and so to the caller's arrays: a cycle would keep them.
            del error


class _Helper:
    """Share of one thread in a request."""

    def __init__(self, request: _Request) -> None:
        self._request = request
        self._is_cancelled = False
        self._busy = threading.Lock()

    def help(self) -> None:
        """Work on the request, unless it has ended."""
        with self._busy:
            if not self._is_cancelled:
                self._request.share(BaseException)

    def is_over(self) -> bool:
        """True if the helper has ended or will not begin."""
        self._is_cancelled = True
        return not self._busy.locked()

    def wait(self) -> None:
        """Wait for the current piece."""
        with self._busy:
            pass


class _Pool:
    def __init__(self, threads: int) -> None:
        self.threads, self.users = threads, Users()
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="fastpath")
