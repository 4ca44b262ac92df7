"""What requests come with and what their samples are copied to, checked once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fastpath._blobs import copy_ranges
from fastpath._columns import gather_columns
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

_ADDRESS_ONLY: Final = np.array([1, 0], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ColumnCopy:
    """Copies pieces of rows to columns (``requests.Copy``), as ``gather_columns`` is told by these.

    ``memory`` is what the addresses in ``outputs`` lie in: it lives as long as any thread still writes to them.
    """

    span: tuple[int, int]
    operations: Int64Array
    outputs: Int64Array
    memory: object

    def __call__(self, first: int, bases: AddressArray, scratch: Scratch, n: int) -> int:
        """Copy the n keys from ``first``."""
        here = self.outputs + first * self.outputs[:, 1:] * _ADDRESS_ONLY
        return gather_columns(bases, scratch.file[:n], scratch.offset[:n], *self.span, self.operations, here)


def checked_keys(keys: KeyArray) -> KeyArray:
    """Contiguous, aligned keys; raises ``ValueError`` for anything but ``uint64[n]``."""
    if not isinstance(keys, np.ndarray):
        raise ValueError(f"keys must be uint64[n], not {type(keys).__name__}")
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise ValueError(f"keys must be uint64[n], not {keys.dtype}{list(keys.shape)}")
    return np.require(keys, requirements=("C", "A"))


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
    return array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
