"""Work of several threads: batches of tensors worth a task, an inline executor, and pools of expensive objects."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import numpy as np

_Item = TypeVar("_Item")

#: Bytes. A thread needs some 100 us for them, and handing them over takes some 30.
_ENOUGH: Final = 1 << 20
#: Bytes of a whole model. With fewer, threads take longer to begin than they save (measured: 11 instead of 14 ms at 2.2 MB).
_WORTH_THREADS: Final = 8 << 20


def batches(items: Iterable[_Item], n_bytes: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Neighbours together, in order, until they are enough."""
    batch: list[_Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += n_bytes(item)
        if total >= _ENOUGH:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


class InlineExecutor(Executor):
    """Whoever submits something does it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Done when this returns, or its error known."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result is told
            future.set_exception(error)
        return future


def worth(pool: Executor, n_bytes: int) -> Executor:
    """What to hand work on so many bytes to."""
    return pool if n_bytes >= _WORTH_THREADS else InlineExecutor()


_Thing = TypeVar("_Thing")

#: Things of a kind that are kept: more than threads work at once are of no use.
_KEPT: Final = 16


class ObjectPool(Generic[_Thing]):
    """Things that ``make`` makes; each is with one borrower at a time. Threads share what is free."""

    def __init__(self, make: Callable[[], _Thing]) -> None:
        self._make = make
        self._free: deque[_Thing] = deque(maxlen=_KEPT)

    @contextmanager
    def lent(self) -> Iterator[_Thing]:
        """One of them, until the end of the block."""
        try:
            thing = self._free.pop()
        except IndexError:
            thing = self._make()
        try:
            yield thing
        finally:
            self._free.append(thing)


def memory(n_bytes: int) -> ObjectPool[memoryview]:
    """Uninitialised pieces of so many bytes."""
    return ObjectPool(lambda: np.empty(n_bytes, np.uint8).data)
