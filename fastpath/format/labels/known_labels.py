"""Labels known at a position in the sequence of arrivals, merged from label files batch by batch.

Every sample has one label or none: among its rows the latest ``known_at`` wins, then the smallest digest, in whatever order the
files came. A sample without a row may have a default label from an age on. -1 and NaN stand for a sample without a label.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from fastpath.errors import CorruptFile
from fastpath.format.labels.label_file import LabelArray, LabelFile, LabelKind, LabelRows

#: Labels as they are kept: class indices in the narrowest type that holds them, targets as they are.
_Narrow = npt.NDArray[np.signedinteger[Any]] | npt.NDArray[np.float64]

#: Samples of a batch: a range, or positions ``int64[k]``.
Chosen = slice | npt.NDArray[np.int64]

_POSITION_MASK: Final = np.uint64((1 << 32) - 1)
#: Bytes of merged labels that stay in memory; a store keeps those of the batches that it has open.
_MOST_BYTES: Final = 64_000_000
_MOST_FILES: Final = 256


@dataclass(frozen=True, slots=True)
class LabelPart:
    """Rows of one batch in a label file.

    Attributes:
        path: of the file.
        checksum: of the file, hex BLAKE2b of 16 bytes; None skips the comparison.
        first: first row.
        n: number of rows.
    """

    path: Path
    checksum: str | None
    first: int
    n: int


@dataclass(frozen=True, slots=True)
class Defaults:
    """Default label of samples without a row.

    Attributes:
        value: class index or target.
        n_closed: number of samples at the beginning of each batch that have it, by ordinal: samples of a batch are ordered by
            time. A batch without any has no entry.
    """

    value: float
    n_closed: Mapping[int, int]


class LabelsAsOf(Protocol):
    """Labels of a dataset known at one position. They can be sent to another process."""

    @property
    def kind(self) -> LabelKind:
        """``labels`` (class indices) or ``targets``."""

    def of(self, ordinal: int, n: int) -> LabelArray:
        """Labels of the ``n`` samples of a batch, ``int64[n]`` (-1: none) or ``float64[n]`` (NaN: none)."""

    def take(self, ordinal: int, n: int, chosen: Chosen) -> LabelArray:
        """Labels of some of the ``n`` samples of a batch: ``int64[k]`` or ``float64[k]``."""


@dataclass(frozen=True)
class KnownLabels:
    """Labels of a dataset known at one position.

    Attributes:
        kind: ``labels`` (class indices) or ``targets``.
        parts: rows of each batch that were known, by ordinal; a batch without any has no entry.
        defaults: default label at the position; None where a sample without a row has no label.
    """

    kind: LabelKind
    parts: Mapping[int, Sequence[LabelPart]]
    defaults: Defaults | None = None

    def of(self, ordinal: int, n: int) -> LabelArray:
        """Labels of the ``n`` samples of a batch, ``int64[n]`` (-1: none) or ``float64[n]`` (NaN: none), read-only.

        Raises ``CorruptFile`` for a file that is missing or damaged, or holds labels of samples that the batch does not have.
        """
        values = _widened(self._merged(ordinal, n))
        values.flags.writeable = False
        return values

    def take(self, ordinal: int, n: int, chosen: Chosen) -> LabelArray:
        """Labels of some of the ``n`` samples of a batch; arrays and errors as of ``of``."""
        return _widened(self._merged(ordinal, n)[chosen])

    def version(self, ordinal: int) -> int:
        """Number that grows with the position whenever labels of a batch can have changed."""
        return len(self.parts.get(ordinal, ())) + self._default(ordinal)[0]

    def _merged(self, ordinal: int, n: int) -> _Narrow:
        return _MERGED.of((tuple(self.parts.get(ordinal, ())), self.kind, ordinal, n, *self._default(ordinal)))

    def _default(self, ordinal: int) -> tuple[int, float]:
        """Number of samples with the default label at the beginning of a batch, and this label."""
        n_closed = 0 if self.defaults is None else self.defaults.n_closed.get(ordinal, 0)
        return n_closed, 0 if self.defaults is None or n_closed == 0 else self.defaults.value


@lru_cache(maxsize=_MOST_FILES)
def _opened(path: Path, checksum: str | None) -> LabelFile:
    return LabelFile.open(path, checksum)


def _merged(parts: Sequence[LabelPart], kind: LabelKind, ordinal: int, n: int, n_closed: int, default: float) -> _Narrow:
    is_class = kind == "labels"
    values: LabelArray = np.full(n, -1, np.int64) if is_class else np.full(n, np.nan, np.float64)
    # Any row replaces it, whenever it was known.
    values[:n_closed] = default
    # One part alone, the usual case, needs no comparison of times.
    known_at = np.full(n, np.iinfo(np.int64).min) if len(parts) > 1 else None
    digests = np.zeros(n, np.uint64) if len(parts) > 1 else None
    for part in parts:
        rows = _winners(_rows(part, kind, ordinal, n))
        positions = (rows.keys & _POSITION_MASK).astype(np.int64)
        if known_at is None or digests is None:
            values[positions] = rows.values
            continue
        times, before = rows.known_at.view(np.int64), known_at[positions]
        better = (times > before) | ((times == before) & (rows.digests < digests[positions]))
        positions = positions[better]
        values[positions], known_at[positions] = rows.values[better], times[better]
        digests[positions] = rows.digests[better]
    return values.astype(np.min_scalar_type(-1 - int(values.max(initial=0)))) if values.dtype == np.int64 else values


def _widened(values: _Narrow) -> LabelArray:
    """Kept labels in the types that callers get."""
    if np.issubdtype(values.dtype, np.integer):
        return values.astype(np.int64, copy=False)
    return values.astype(np.float64, copy=False)


#: Arguments of ``_merged``.
_Merge = tuple[tuple[LabelPart, ...], LabelKind, int, int, int, float]


class MergedLabels:
    """Least-recently-used cache of merged labels, bounded by their bytes. Thread-safe.

    Args:
        most_bytes: of all arrays but the newest, which always stays.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._arrays: OrderedDict[_Merge, _Narrow] = OrderedDict()
        self._lock = Lock()

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays."""
        with self._lock:
            return sum(values.nbytes for values in self._arrays.values())

    def of(self, merge: _Merge) -> _Narrow:
        """Labels merged now or before, for the arguments of ``_merged``, in the narrowest type."""
        with self._lock:
            values = self._arrays.pop(merge, None)
            if values is not None:
                self._arrays[merge] = values
                return values
        values = _merged(*merge)
        with self._lock:
            self._arrays[merge] = values
            n_bytes = sum(each.nbytes for each in self._arrays.values())
            while n_bytes > self._most_bytes and len(self._arrays) > 1:
                n_bytes -= self._arrays.popitem(last=False)[1].nbytes
        return values


_MERGED: Final = MergedLabels()


def _rows(part: LabelPart, kind: LabelKind, ordinal: int, n: int) -> LabelRows:
    file = _opened(part.path, part.checksum)
    if file.kind != kind:
        raise CorruptFile(part.path, kind, file.kind)
    rows = file.rows(part.first, part.n)
    if part.n and not ordinal << 32 <= int(rows.keys[0]) <= int(rows.keys[-1]) < (ordinal << 32) + n:
        raise CorruptFile(part.path, f"labels of the {n} samples of batch {ordinal}", f"keys {rows.keys[0]} to {rows.keys[-1]}")
    return rows


def _winners(rows: LabelRows) -> LabelRows:
    """The row of each key that counts: of the last ``known_at`` the first one, as digests ascend."""
    begins_key = np.concatenate(([True], rows.keys[1:] != rows.keys[:-1]))
    if begins_key.all():
        return rows
    begins_time = begins_key | np.concatenate(([True], rows.known_at[1:] != rows.known_at[:-1]))
    # The last beginning of a time before the next key begins.
    starts = np.flatnonzero(begins_time)
    ends_key = np.concatenate((begins_key[starts[1:]], [True]))
    chosen = starts[ends_key]
    return rows.take(chosen)
