"""Aligned memory, and rings of buffers that are reused once nothing refers to them."""

import sys
import threading
from collections.abc import Callable
from typing import Final

import numpy as np

from fastpath.array_types import ByteArray, address_of

ALIGNMENT: Final = 64


def rounded_up(n_bytes: int) -> int:
    """Next multiple of 64: offset at which another array may begin.

    >>> rounded_up(65)
    128
    """
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def aligned_bytes(n: int) -> ByteArray:
    """Uninitialised ``uint8[n]`` that begins at a cache line, so that large results are written past the caches.

    >>> aligned_bytes(3).ctypes.data % 64
    0
    """
    memory = new_memory(n + ALIGNMENT)
    start = -address_of(memory) % ALIGNMENT
    return memory[start : start + n]


def new_memory(n_bytes: int) -> ByteArray:
    """Uninitialised ``uint8[n_bytes]`` of this process."""
    return np.empty(n_bytes, dtype=np.uint8)


class Ring:
    """Slabs of memory for batches, reused when nothing refers to them.

    A slab is free when only the ring refers to it. Arrays keep the memory they are views of, as do memoryviews of them and the
    tensors of ``torch.from_numpy``, so a slab is never overwritten while any part of it is in use. If all slabs are in use, the
    ring makes a new one and forgets the one that was given out first: memory is ``slots`` slabs and those still in use.

    Args:
        slots: number of slabs that the ring keeps.
        allocate: function that returns ``uint8[n]`` or more, for example page-locked, and need not keep it.
    """

    def __init__(self, slots: int, allocate: Callable[[int], ByteArray] = new_memory) -> None:
        self.slots, self._allocate = slots, allocate
        self._lock = threading.Lock()
        self._slabs: list[_Slab] = []
        self._size = ALIGNMENT

    def take(self, n_bytes: int) -> ByteArray:
        """A free slab of ``n_bytes`` or more, with any content, that begins at a multiple of 64."""
        with self._lock:
            self._size = max(self._size, n_bytes)
            slab = self._free() or self._new()
            # The last slab of the list was given out last, and may still be in the caches.
            self._slabs.append(slab)
            del self._slabs[: -self.slots]
            return slab.bytes

    def __len__(self) -> int:
        """Number of slabs that the ring keeps, free or in use: ``slots`` at most."""
        return len(self._slabs)

    def _free(self) -> "_Slab | None":
        for i in reversed(range(len(self._slabs))):
            if self._slabs[i].is_free():
                slab = self._slabs.pop(i)
                return slab if len(slab.bytes) >= self._size else None
        return None

    def _new(self) -> "_Slab":
        return _Slab(self._allocate(self._size + ALIGNMENT), self._size)


class _Slab:
    def __init__(self, memory: ByteArray, size: int) -> None:
        start = -address_of(memory) % ALIGNMENT
        # Views of views refer to the first array of the chain. The allocator does not know this one, so its references count.
        self._owner = np.frombuffer(memory.data, dtype=np.uint8)
        self.bytes = self._owner[start : start + size]

    def is_free(self) -> bool:
        return self.references() <= _IDLE

    def references(self) -> int:
        return sys.getrefcount(self.bytes) + sys.getrefcount(self._owner)


#: References to an unused slab; interpreters differ.
_IDLE: Final = _Slab(new_memory(2 * ALIGNMENT), ALIGNMENT).references()
