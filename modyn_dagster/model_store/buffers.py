"""Memory for a chunk, lent within a thread: what the operating system gives anew has to be filled with zeros first."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from modyn_dagster.model_store.codec import CHUNK


class _Free(threading.local):
    def __init__(self) -> None:
        self.buffers: list[memoryview] = []


_free = _Free()


@contextmanager
def lent(n_bytes: int) -> Iterator[memoryview]:
    """Uninitialised memory, a chunk at most, until the end of the block."""
    buffer = _free.buffers.pop() if _free.buffers else np.empty(CHUNK, np.uint8).data
    try:
        yield buffer[:n_bytes]
    finally:
        _free.buffers.append(buffer)
