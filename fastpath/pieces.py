"""Large requests in pieces, over a few plain threads."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

#: Fewer keys are not worth another thread.
_LEAST: Final = 1 << 13


class Workers:
    """Threads that start when a request first wants them. Those of a parent process are not here after a fork."""

    def __init__(self) -> None:
        self._started: tuple[int, int, ThreadPoolExecutor] | None = None

    def run(self, n: int, most: int, threads: int, work: Callable[[int, int], None]) -> None:
        """``work(start, stop)`` for pieces that make up ``range(n)``, of at most ``most`` each, in up to ``threads`` threads.

        Returns when all have ended; raises the error of the first piece that has one.
        """
        threads = max(1, min(threads, n // _LEAST))
        step = min(most, -(-n // threads)) if n else 1
        bounds = [(start, min(start + step, n)) for start in range(0, n, step)]
        if threads == 1 or len(bounds) == 1:
            for start, stop in bounds:
                work(start, stop)
            return
        executor = self._executor(threads)
        futures = [executor.submit(work, start, stop) for start, stop in bounds]
        # All of them: nobody may write to the caller's arrays after this returns.
        wait(futures)
        for future in futures:
            future.result()

    def close(self) -> None:
        """Let the threads end; a later request starts new ones."""
        started, self._started = self._started, None
        if started is not None and started[0] == os.getpid():
            started[2].shutdown()

    def _executor(self, threads: int) -> ThreadPoolExecutor:
        started = self._started
        if started is None or started[0] != os.getpid() or started[1] < threads:
            started = self._started = os.getpid(), threads, ThreadPoolExecutor(threads, thread_name_prefix="fastpath")
        return started[2]
