"""What is dear to make and cheap to keep, lent out: memory that the system fills with zeros first, contexts of a compressor."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

import numpy as np

_Thing = TypeVar("_Thing")

#: Things of a kind that are kept: more than threads work at once are of no use.
_KEPT: Final = 16


class Lending(Generic[_Thing]):
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


def memory(n_bytes: int) -> Lending[memoryview]:
    """Uninitialised pieces of so many bytes."""
    return Lending(lambda: np.empty(n_bytes, np.uint8).data)
