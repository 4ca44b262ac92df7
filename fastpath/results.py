"""What requests come with and what their samples are copied to, checked once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpath._blobs import copy_ranges
from fastpath.attempts import KeyArray
from fastpath.errors import StoreError
from fastpath.extents import Int64Array
from fastpath.requests import Copy
from fastpath.rows import Blobs, ByteArray
from fastpath.scratch import Scratch

# Annotations of inner functions are evaluated at each call of the outer one; names are cheap.
AddressArray = npt.NDArray[np.uint64]
#: Memory for blobs, or what gives it when it is told how many bytes they take.
BlobBuffer = ByteArray | Callable[[int], ByteArray]


def checked_keys(keys: KeyArray) -> KeyArray:
    """Contiguous keys; raises ``ValueError`` for anything but ``uint64[n]``."""
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise ValueError(f"keys must be uint64[n], not {keys.dtype}{list(keys.shape)}")
    return np.ascontiguousarray(keys)


def blob_copy(bounds: Int64Array, separator: ByteArray, out: BlobBuffer | None) -> tuple[Copy, Blobs]:
    """Turns lengths in ``bounds[1:]`` into bounds; what copies a piece, and where it copies to."""
    lengths = bounds[1:].copy()
    np.cumsum(lengths + len(separator), out=bounds[1:])
    size = int(bounds[-1])
    memory = out(size) if callable(out) else np.empty(size, dtype=np.uint8) if out is None else out
    if memory.dtype != np.uint8 or memory.ndim != 1 or len(memory) < size or not is_open(memory):
        raise ValueError(f"out must be writable, contiguous uint8[{size}] or more, not {memory.dtype}{list(memory.shape)}")
    buffer = memory[:size]

    def copy(first: int, bases: AddressArray, scratch: Scratch, n: int) -> int:
        if not np.array_equal(scratch.length[:n], lengths[first : first + n]):
            raise StoreError("an index was written over while its samples were read; open the store again")
        return copy_ranges(bases, scratch.file, scratch.offset, bounds[first : first + n + 1], separator, buffer)

    return copy, Blobs(buffer, bounds)


def is_open(array: npt.NDArray[Any]) -> bool:
    """Whether a kernel can write to it."""
    return array.flags.c_contiguous and array.flags.writeable
