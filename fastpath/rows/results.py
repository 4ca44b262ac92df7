"""Results of requests: fixed rows, blobs and places, and the validated copies that fill them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpath.array_types import ByteArray, Int64Array, KeyArray, address_of
from fastpath.errors import StoreError
from fastpath.kernels._blobs import copy_ranges
from fastpath.kernels._columns import gather_columns
from fastpath.rows.attempts import Scratch
from fastpath.rows.prefetching import MANY_ROWS, prefetching_gains
from fastpath.rows.requests import Copy


@dataclass(frozen=True, slots=True)
class FixedRows:
    """Samples of equal width, one behind the other: ``rows uint8[n, width]``, contiguous."""

    rows: ByteArray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return self.rows.shape[1]

    def view(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """View of the bytes as records, ``[n]`` of a dtype of ``width`` bytes."""
        if dtype.itemsize != self.width:
            raise ValueError(f"{dtype} has {dtype.itemsize} bytes, a sample has {self.width}")
        return self.rows.reshape(-1).view(dtype)

    def separated(self, separator: bytes) -> "Blobs":
        """Blobs with a separator behind each sample."""
        n = len(self)
        ends = np.broadcast_to(np.frombuffer(separator, dtype=np.uint8), (n, len(separator)))
        rows = np.concatenate((self.rows, ends), axis=1) if separator else self.rows
        return Blobs(rows.reshape(-1), rows.shape[1] * np.arange(n + 1, dtype=np.int64))

    def __getitem__(self, i: int) -> ByteArray:
        """View of one sample, ``uint8[width]``."""
        row: ByteArray = self.rows[i]
        return row


@dataclass(frozen=True, slots=True)
class Blobs:
    """Samples of any length: sample i is ``buffer[offsets[i]:offsets[i + 1]]``, its separator included.

    Attributes:
        buffer: ``uint8``.
        offsets: ``int64[n + 1]``, ascending from 0.
    """

    buffer: ByteArray
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def separated(self, separator: bytes) -> "Blobs":
        """Copy with a separator behind each sample."""
        if not separator:
            return self
        offsets = self.offsets + len(separator) * np.arange(len(self.offsets))
        buffer = np.empty(int(offsets[-1]), dtype=np.uint8)
        base = np.array([address_of(self.buffer)], dtype=np.uint64)
        everywhere = np.zeros(len(self), dtype=np.int32)
        copy_ranges(base, everywhere, self.offsets, offsets, np.frombuffer(separator, dtype=np.uint8), buffer, 1)
        return Blobs(buffer, offsets)

    def within(self, out: "BlobBuffer") -> "Blobs":
        """Copy into memory as ``blob_copy`` takes it. Raises ``ValueError`` for memory that is too short or not writable."""
        memory = _blob_memory(out, int(self.offsets[-1]))
        memory[:] = self.buffer
        return Blobs(memory, self.offsets)

    def __getitem__(self, i: int) -> ByteArray:
        """View of one sample."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        i %= len(self)
        return self.buffer[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[ByteArray]:
        bounds = self.offsets.tolist()
        return (self.buffer[start:stop] for start, stop in pairwise(bounds))


class Place(NamedTuple):
    """Place of one sample in a file."""

    dataset: str
    key: int
    path: str
    offset: int
    length: int


# Aliases: annotations of inner functions are evaluated at each call of the outer one.
AddressArray = npt.NDArray[np.uint64]
#: Memory for blobs, or a function from the number of bytes to such memory.
BlobBuffer = ByteArray | Callable[[int], ByteArray]

_ADDRESS_ONLY: Final = np.array([1, 0], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ColumnCopy:
    """Copy of pieces of rows to columns by ``gather_columns``; the class is a ``requests.Copy``.

    ``memory`` owns the addresses in ``outputs``, as long as any thread still writes to them.
    """

    span: tuple[int, int]
    operations: Int64Array
    outputs: Int64Array
    memory: object

    def __call__(self, first: int, bases: AddressArray, scratch: Scratch, n: int, threads: int) -> int:
        """Copy the n keys from ``first`` in up to ``threads`` threads."""
        outputs = self.outputs + first * self.outputs[:, 1:] * _ADDRESS_ONLY
        ahead = n < MANY_ROWS or prefetching_gains()
        return gather_columns(bases, scratch.file[:n], scratch.offset[:n], *self.span, self.operations, outputs, threads, ahead)


def checked_keys(keys: KeyArray) -> KeyArray:
    """Contiguous, aligned keys; raises ``ValueError`` for anything but ``uint64[n]``."""
    if not isinstance(keys, np.ndarray):
        raise ValueError(f"keys must be uint64[n], not {type(keys).__name__}")
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise ValueError(f"keys must be uint64[n], not {keys.dtype}{list(keys.shape)}")
    return np.require(keys, requirements=("C", "A"))


def blob_copy(bounds: Int64Array, separator: ByteArray, out: BlobBuffer | None) -> tuple[Copy, Blobs]:
    """Copy function for blobs, and the blobs it fills; turns the lengths in ``bounds[1:]`` into bounds."""
    lengths = bounds[1:].copy()
    np.cumsum(lengths + len(separator), out=bounds[1:])
    size = int(bounds[-1])
    buffer = np.empty(size, dtype=np.uint8) if out is None else _blob_memory(out, size)

    def copy(first: int, bases: AddressArray, scratch: Scratch, n: int, threads: int) -> int:
        if not np.array_equal(scratch.length[:n], lengths[first : first + n]):
            raise StoreError("an index was written over while its samples were read; open the store again")
        return copy_ranges(bases, scratch.file, scratch.offset, bounds[first : first + n + 1], separator, buffer, threads)

    return copy, Blobs(buffer, bounds)


def _blob_memory(out: BlobBuffer, size: int) -> ByteArray:
    memory = out(size) if callable(out) else out
    if memory.dtype != np.uint8 or memory.ndim != 1 or len(memory) < size or not is_writable_buffer(memory):
        raise ValueError(f"out must be writable, contiguous uint8[{size}] or more, not {memory.dtype}{list(memory.shape)}")
    return memory[:size]


def is_writable_buffer(array: npt.NDArray[Any]) -> bool:
    """True if a kernel can write to the array."""
    return array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
