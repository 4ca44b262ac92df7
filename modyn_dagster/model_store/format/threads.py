"""Work of several threads: batches of tensors large enough for a task, an inline executor, and pools of expensive objects."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

import numpy as np

_Item = TypeVar("_Item")

#: Bytes of a task: a thread works on them for some 100 us, and submitting the task takes some 30.
_TASK_BYTES: Final = 1 << 20
#: Bytes of a whole model below which threads take longer to start than they save (measured: 11 instead of 14 ms at 2.2 MB).
_MIN_POOLED_BYTES: Final = 8 << 20


def batches(items: Iterable[_Item], n_bytes: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Group neighbours, in order, into batches of at least 1 MiB."""
    batch: list[_Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += n_bytes(item)
        if total >= _TASK_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


class InlineExecutor(Executor):
    """Executor that runs each task in the submitting thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the task and return its finished future."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - ``result`` raises it
            future.set_exception(error)
        return future


def executor_for(pool: Executor, n_bytes: int) -> Executor:
    """The pool for work on so many bytes, or an inline executor for little work."""
    return pool if n_bytes >= _MIN_POOLED_BYTES else InlineExecutor()


_Object = TypeVar("_Object")

#: Idle objects that a pool keeps: no more threads work at once.
_MAX_IDLE: Final = 16


class ObjectPool(Generic[_Object]):
    """Pool of objects that ``make`` creates; each has one borrower at a time, and all threads share the idle ones."""

    def __init__(self, make: Callable[[], _Object]) -> None:
        self._make = make
        self._free: deque[_Object] = deque(maxlen=_MAX_IDLE)

    @contextmanager
    def borrow(self) -> Iterator[_Object]:
        """An idle or new object, until the end of the block."""
        try:
            item = self._free.pop()
        except IndexError:
            item = self._make()
        try:
            yield item
        finally:
            self._free.append(item)


def buffers(n_bytes: int) -> ObjectPool[memoryview]:
    """Pool of uninitialised buffers of ``n_bytes``."""
    return ObjectPool(lambda: np.empty(n_bytes, np.uint8).data)
