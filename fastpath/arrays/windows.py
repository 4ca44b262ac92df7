"""Search for keyed marks of windows of 16 bytes, at every offset of some bytes.

The mark of a window of two little-endian words a and b is the upper half of ``k0 + a * k1 + b * k2`` modulo 2**64 (multilinear
hashing; Lemire and Kaser, Strongly universal string hashing is fast, 2014). It is a filter: equal marks are no proof, and a mark
has 32 bits, so that it tells little of its window even to those who know the key.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import ByteArray, Int64Array
from fastpath.kernels import _windows

#: Bytes of a window.
WIDTH: Final = 16
#: Bits of the filter per mark: of the windows without a searched mark, one of 4,000 passes both of its lookups.
_BITS_PER_MARK: Final = 64
_FEWEST_BITS, _MOST_BITS = 16, 28
#: Windows that pass, per call of the kernel.
_ROOM: Final = 65_536
_SCATTER: Final = np.uint32(0x9E3779B1)

Marks = npt.NDArray[np.uint32]
Key = npt.NDArray[np.uint64]


def window_marks(windows: ByteArray, key: Key) -> Marks:
    """Marks of windows.

    Args:
        windows: ``uint8[n, 16]``.
        key: three numbers, ``uint64[3]``.

    Returns:
        ``uint32[n]``.

    Examples:
        >>> window_marks(np.arange(32, dtype=np.uint8).reshape(2, 16), np.array([1, 3, 5], np.uint64)).tolist()
        [1280069672, 3422552224]
    """
    words = np.ascontiguousarray(windows).view("<u8")
    sums: npt.NDArray[np.uint64] = key[0] + words[:, 0] * key[1] + words[:, 1] * key[2]
    return (sums >> np.uint64(32)).astype(np.uint32)


class WindowSearch:
    """Searches bytes for windows that have one of some marks. Thread-safe.

    Args:
        marks: ``uint32[n]``, in any order.
        key: of the marks, ``uint64[3]``.
    """

    def __init__(self, marks: Marks, key: Key) -> None:
        self._marks, self._key = np.unique(marks), np.ascontiguousarray(key, dtype=np.uint64)
        size = int(np.clip(int(np.ceil(np.log2(max(len(self._marks), 1) * _BITS_PER_MARK))), _FEWEST_BITS, _MOST_BITS))
        self._shift = 32 - size
        places = np.concatenate((self._marks, self._marks * _SCATTER)) >> np.uint32(self._shift)
        self._bits = np.zeros(1 << size >> 3, dtype=np.uint8)
        np.bitwise_or.at(self._bits, places >> np.uint32(3), np.uint8(1) << (places & np.uint32(7)).astype(np.uint8))

    def find(self, data: ByteArray) -> Iterator[tuple[Int64Array, Marks]]:
        """Positions of windows with a searched mark, ascending, and their marks.

        Args:
            data: ``uint8[n]``, contiguous; may be read-only.
        """
        positions, marks = np.empty(_ROOM, dtype=np.int64), np.empty(_ROOM, dtype=np.uint32)
        at = 0
        while len(self._marks) and at + WIDTH <= len(data):
            n, at = _windows.candidates(data, at, self._key, self._bits, self._shift, positions, marks)
            place = np.searchsorted(self._marks, marks[:n])
            same = self._marks[np.minimum(place, len(self._marks) - 1)] == marks[:n]
            if same.any():
                yield positions[:n][same], marks[:n][same]
