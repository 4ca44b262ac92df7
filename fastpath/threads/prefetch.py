"""Prefetching: background threads make items ahead of the consumer, in order."""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

#: Seconds to wait for threads to end; they may be in the middle of an item.
_PATIENCE: Final = 1.0
_CLOSED: Final = "the stream was closed while it was iterated, or an exception ended the iteration"


class Prefetched(Iterator[T]):
    """Results of ``make(number)`` for each of ``numbers``, in order, by ``threads`` threads at most ``ahead`` items ahead.

    The threads start with the first item. They end after the last item, after an exception (which is raised at the place of its
    item), with ``close``, when the iterator is garbage, and before the interpreter exits.
    """

    def __init__(self, make: Callable[[int], T], numbers: range, *, ahead: int, threads: int) -> None:
        self._work = _Work(make, numbers, ahead, threads)
        # The threads refer to the work only, so that this iterator can become garbage while they run.
        weakref.finalize(self, self._work.close).atexit = False

    def __next__(self) -> T:
        return self._work.take()

    def close(self) -> None:
        """End the threads and wait for them."""
        self._work.close()
        self._work.join(time.monotonic() + _PATIENCE)


class OnDemand(Iterator[T]):
    """Results of ``make(number)`` without threads: each item is made when the consumer asks for it."""

    def __init__(self, make: Callable[[int], T], numbers: range) -> None:
        self._make, self._numbers = make, iter(numbers)
        self._closed = False

    def __next__(self) -> T:
        if self._closed:
            raise RuntimeError(_CLOSED)
        number = next(self._numbers)
        # An exception in `make` leaves the iteration closed.
        self._closed = True
        item = self._make(number)
        self._closed = False
        return item

    def close(self) -> None:
        """End the iteration."""
        self._closed = True


class _Work(Generic[T]):
    """State shared by the threads and the consumer."""

    def __init__(self, make: Callable[[int], T], numbers: range, ahead: int, threads: int) -> None:
        self._make, self._numbers, self._ahead = make, numbers, ahead
        self._process = os.getpid()
        self._claimed = self._taken = 0
        self._made: dict[int, T | _Failure] = {}
        self._closed = False
        # Reentrant: garbage may be collected, and `close` called, while the same thread holds the lock.
        self._lock = threading.RLock()
        self._room, self._ready = threading.Condition(self._lock), threading.Condition(self._lock)
        self._n_threads, self._threads = min(threads, len(numbers)), list[threading.Thread]()
        self._started = False

    def take(self) -> T:
        if os.getpid() != self._process:
            raise RuntimeError("this iteration began in another process, where its threads are; iterate anew in this one")
        if self._closed:
            raise RuntimeError(_CLOSED)
        if self._taken == len(self._numbers):
            raise StopIteration
        self._start()
        item = self._wait()
        if isinstance(item, _Failure):
            self.close()
            self.join(time.monotonic() + _PATIENCE)
            error = item.error
            try:
                raise error
            finally:
                # The traceback refers to this frame, and so to everything the iteration holds: no reference cycle.
                del item, error
        return item

    def close(self) -> None:
        # In a forked process a thread of the parent may hold the lock for ever.
        if os.getpid() == self._process:
            with self._lock:
                self._closed = True
                self._made.clear()
                self._room.notify_all()
                self._ready.notify_all()

    def join(self, deadline: float) -> None:
        """Wait for the threads, until that monotonic time at most."""
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self) -> None:
        if not self._started and not self._closed:
            self._started = True
            _working.add(self)
            # Created here: threads that never start would form a reference cycle with this object.
            names = (f"prefetch-{i}" for i in range(self._n_threads))
            self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
            try:
                for thread in self._threads:
                    thread.start()
            except BaseException:
                # The consumer would wait for ever for items of threads that did not start.
                self.close()
                self.join(time.monotonic() + _PATIENCE)
                raise

    def _wait(self) -> "T | _Failure":
        with self._lock:
            while self._taken not in self._made:
                if self._closed:
                    raise RuntimeError(_CLOSED)
                self._ready.wait()
            item = self._made.pop(self._taken)
            self._taken += 1
            self._room.notify()
            return item

    def _run(self) -> None:
        while (at := self._claim()) is not None:
            # The item gets no name here: the thread would keep it alive while it waits.
            self._put(at, self._attempt(self._numbers[at]))

    def _claim(self) -> int | None:
        with self._lock:
            while not self._closed and self._claimed < len(self._numbers) and self._claimed - self._taken >= self._ahead:
                self._room.wait()
            if self._closed or self._claimed == len(self._numbers):
                return None
            self._claimed += 1
            return self._claimed - 1

    def _attempt(self, number: int) -> "T | _Failure":
        try:
            return self._make(number)
        except BaseException as error:  # noqa: BLE001  raised again where the item is taken
            return _Failure(error)

    def _put(self, at: int, item: "T | _Failure") -> None:
        with self._lock:
            if self._closed:
                return
            self._made[at] = item
            if isinstance(item, _Failure):
                # The iteration ends at the failure: later items are not needed.
                self._claimed = len(self._numbers)
                self._room.notify_all()
            self._ready.notify()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


_working: "weakref.WeakSet[_Work[Any]]" = weakref.WeakSet()


def _end_all() -> None:
    # A thread inside a kernel would crash when the interpreter frees its memory.
    for work in list(_working):
        work.close()
    deadline = time.monotonic() + _PATIENCE
    for work in list(_working):
        work.join(deadline)


atexit.register(_end_all)
