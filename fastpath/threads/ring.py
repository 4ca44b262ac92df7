"""Aligned memory, and rings of buffers that are used again once nobody refers to them."""

import sys
import threading
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import ByteArray

ALIGNMENT: Final = 64


def aligned(n_bytes: int) -> int:
    """Rounded up to a multiple of 64: where the next array may begin."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def new_memory(n_bytes: int) -> ByteArray:
    """Uninitialised ``uint8[n_bytes]`` of this process."""
    return np.empty(n_bytes, dtype=np.uint8)


class Ring:
    """Slabs of bytes for whoever fills them with arrays and hands those on.

    A slab is free when only the ring refers to it. Arrays keep what they are views of, as do memoryviews of them and the
    tensors of ``torch.from_numpy``; so who keeps any part of a slab keeps it from being written to again. If all are in use a
    new one is made and the ring forgets the one that was given out longest ago: memory is ``slots`` slabs and what is kept.

    ``allocate(n)`` gives ``uint8[n]`` or more, page-locked for example, and need not keep it.
    """

    def __init__(self, slots: int, allocate: Callable[[int], ByteArray] = new_memory) -> None:
        self.slots, self._allocate = slots, allocate
        self._lock = threading.Lock()
        self._slabs: list[_Slab] = []
        self._size = ALIGNMENT

    def take(self, n_bytes: int) -> ByteArray:
        """A free slab of ``n_bytes`` or more that begins at a multiple of 64; its content is anything."""
        with self._lock:
            self._size = max(self._size, n_bytes)
            slab = self._free() or self._new()
            # The last in the list is the one that was given out last, and is warm.
            self._slabs.append(slab)
            del self._slabs[: -self.slots]
            return slab.bytes

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
        start = -int(memory.__array_interface__["data"][0]) % ALIGNMENT
        # Views of views refer to the first array of the chain: to this one, which whoever allocated the memory does not know.
        self._owner = np.frombuffer(memory.data, dtype=np.uint8)
        self.bytes = self._owner[start : start + size]

    def is_free(self) -> bool:
        return self.references() <= _IDLE

    def references(self) -> int:
        return sys.getrefcount(self.bytes) + sys.getrefcount(self._owner)


#: References to a slab that nobody uses; interpreters differ.
_IDLE: Final = _Slab(new_memory(2 * ALIGNMENT), ALIGNMENT).references()


def aligned_bytes(n: int) -> npt.NDArray[np.uint8]:
    """Uninitialised memory that begins at a cache line: large results are then written past the caches."""
    memory = np.empty(n + ALIGNMENT, dtype=np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + n]
