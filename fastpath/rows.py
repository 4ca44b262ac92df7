"""Samples as a store hands them out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastpath._blobs import copy_ranges

ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FixedRows:
    """n samples of equal width, one behind the other: ``rows uint8[n, width]``, contiguous."""

    rows: ByteArray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return self.rows.shape[1]

    def view(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The same bytes as records, ``[n]`` of a dtype of ``width`` bytes."""
        if dtype.itemsize != self.width:
            raise ValueError(f"{dtype} has {dtype.itemsize} bytes, a sample has {self.width}")
        return self.rows.reshape(-1).view(dtype)

    def separated(self, separator: bytes) -> "Blobs":
        """The same with a separator behind each."""
        n = len(self)
        ends = np.broadcast_to(np.frombuffer(separator, dtype=np.uint8), (n, len(separator)))
        rows = np.concatenate((self.rows, ends), axis=1) if separator else self.rows
        return Blobs(rows.reshape(-1), rows.shape[1] * np.arange(n + 1, dtype=np.int64))

    def __getitem__(self, i: int) -> ByteArray:
        """One sample, ``uint8[width]``, a view."""
        row: ByteArray = self.rows[i]
        return row


@dataclass(frozen=True, slots=True)
class Blobs:
    """n samples of any length: sample i is ``buffer[offsets[i]:offsets[i + 1]]``, its separator included.

    Attributes:
        buffer: ``uint8``.
        offsets: ``int64[n + 1]``, ascending from 0.
    """

    buffer: ByteArray
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def separated(self, separator: bytes) -> "Blobs":
        """The same with a separator behind each."""
        if not separator:
            return self
        offsets = self.offsets + len(separator) * np.arange(len(self.offsets))
        buffer = np.empty(int(offsets[-1]), dtype=np.uint8)
        base = np.array([self.buffer.__array_interface__["data"][0]], dtype=np.uint64)
        everywhere = np.zeros(len(self), dtype=np.int32)
        copy_ranges(base, everywhere, self.offsets, offsets, np.frombuffer(separator, dtype=np.uint8), buffer)
        return Blobs(buffer, offsets)

    def __getitem__(self, i: int) -> ByteArray:
        """One sample, a view."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"sample {i} of {len(self)}")
        i %= len(self)
        return self.buffer[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[ByteArray]:
        bounds = self.offsets.tolist()
        return (self.buffer[start:stop] for start, stop in pairwise(bounds))


class Place(NamedTuple):
    """Where one sample lies."""

    dataset: str
    key: int
    path: str
    offset: int
    length: int
