"""Rows of batches that lack fields of the store's type: read as they are, then widened with a value in place of each."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpath.array_types import ByteArray, Int64Array, KeyArray, address_of
from fastpath.kernels._columns import gather_columns
from fastpath.rows.columns import Arrays, Columns


class Widening:
    """Types of narrow rows by batch, and the values of the fields that they lack.

    Attributes:
        dtype: structured type of a full row.

    Args:
        dtype: structured type of a full row.
        narrow: types of the rows of batches that lack some of its fields, by ordinal.
        fill: values of fields by name; others are zero.

    Raises:
        ValueError: a narrow type has a field that the full one lacks, or has with another type, or a value does not fit.

    Examples:
        >>> widening = Widening(np.dtype("i1, i1"), {3: np.dtype("i1")}, {})
        Traceback (most recent call last):
        ValueError: batch 3: rows of int8 are no part of rows of [('f0', 'i1'), ('f1', 'i1')]
    """

    def __init__(self, dtype: np.dtype[Any], narrow: Mapping[int, np.dtype[Any]], fill: Mapping[str, Any]) -> None:
        for ordinal, each in narrow.items():
            if not each.names or any(name not in (dtype.names or ()) or each[name] != dtype[name] for name in each.names):
                raise ValueError(f"batch {ordinal}: rows of {each} are no part of rows of {dtype}")
        self.dtype = dtype
        self._types = list(dict.fromkeys(narrow.values()))
        self._ordinals = np.array(sorted(narrow), dtype=np.int64)
        self._type_of = np.array([self._types.index(narrow[ordinal]) for ordinal in sorted(narrow)], dtype=np.int64)
        self._blank = np.zeros(1, dtype=dtype)
        for name, value in fill.items():
            self._blank[name] = value

    def is_needed(self, keys: KeyArray) -> bool:
        """True if any of the keys has a narrow row."""
        return any(dtype is not None for dtype, _ in self.parts(keys))

    def parts(self, keys: KeyArray) -> list[tuple[np.dtype[Any] | None, Int64Array]]:
        """Positions of the keys of each type of rows; None is the full type."""
        ordinals = (keys >> np.uint64(32)).astype(np.int64)
        place = np.minimum(np.searchsorted(self._ordinals, ordinals), len(self._ordinals) - 1)
        kind = np.where(self._ordinals[place] == ordinals, self._type_of[place], -1)
        return [(None if each < 0 else self._types[each], np.flatnonzero(kind == each)) for each in np.unique(kind).tolist()]

    def widened(self, rows: ByteArray, narrow: np.dtype[Any]) -> ByteArray:
        """Full rows ``uint8[n, width]`` of narrow ones."""
        wide = np.repeat(self._blank, len(rows))
        records = rows.reshape(-1).view(narrow)
        for name in narrow.names or ():
            wide[name] = records[name]
        return wide.view(np.uint8).reshape(len(rows), self.dtype.itemsize)


def columns_of_rows(rows: ByteArray, columns: Columns, out: Arrays) -> None:
    """Fill in columns of rows in memory, ``uint8[n, width]``, contiguous, with the kernel that reads them from files."""
    n, width = rows.shape
    bases = np.array([address_of(rows)], dtype=np.uint64)
    places = columns.places(n, out)
    files, offsets = np.zeros(n, dtype=np.int32), width * np.arange(n, dtype=np.int64)
    gather_columns(bases, files, offsets, *columns.span, columns.operations, places, 1, True)
