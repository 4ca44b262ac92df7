"""File of labels that arrived after their samples: one Arrow IPC stream, rows in key order.

Columns are ``key`` (uint64), ``label`` (int64, a class index) or ``target`` (float64), ``known_at`` (timestamp in microseconds,
UTC) and ``digest`` (uint64, which breaks ties). Several rows of one key are in the order of ``known_at``, then of ``digest``. A
written file never changes; equal content gives equal bytes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.array_types import KeyArray, address_of
from fastpath.copies import opened_again
from fastpath.errors import CorruptFile
from fastpath.format.mapped_files import Expected, open_verified
from fastpath.format.skeleton import ARROW_ERRORS, Skeleton
from fastpath.kernels._take import copy_out

#: Class indices ``int64[n]`` or regression targets ``float64[n]``.
LabelArray = npt.NDArray[np.int64] | npt.NDArray[np.float64]

#: Kind of the labels of a dataset.
LabelKind = Literal["labels", "targets"]

_TIME: Final = pa.timestamp("us", tz="UTC")
_METADATA: Final = {"modyn_labels": "1"}
_VALUES: Final = {"label": pa.int64(), "target": pa.float64()}
_COLUMNS: Final[Mapping[LabelKind, str]] = {"labels": "label", "targets": "target"}
_ORDINAL_BITS: Final = 32


class LabelRows(NamedTuple):
    """Rows of a label file.

    Attributes:
        keys: ``uint64[n]``, ascending; a key may repeat.
        values: class indices ``int64[n]``, at least 0, or targets ``float64[n]``, no NaN.
        known_at: time at which each label was known, ``datetime64[us][n]``, UTC.
        digests: ``uint64[n]``; of two labels known at the same time, the smaller one wins.
    """

    keys: KeyArray
    values: LabelArray
    known_at: npt.NDArray[np.datetime64]
    digests: npt.NDArray[np.uint64]

    @property
    def kind(self) -> LabelKind:
        """Kind of the labels, by their dtype."""
        return "labels" if self.values.dtype == np.int64 else "targets"

    def sorted(self) -> Self:
        """The same rows in the order of the file; itself where they have it already."""
        return self if self._is_sorted() else self.take(np.lexsort((self.digests, self.known_at, self.keys)))

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> Self:
        """Some of the rows, by position, mask or slice."""
        return type(self)(self.keys[rows], self.values[rows], self.known_at[rows], self.digests[rows])

    def parts(self) -> list[list[int]]:
        """``[ordinal, first row, number of rows]`` of each batch that has rows; the keys ascend."""
        parts, first = list[list[int]](), 0
        while first < len(self.keys):
            ordinal = int(self.keys[first]) >> _ORDINAL_BITS
            end = int(np.searchsorted(self.keys, np.uint64((ordinal + 1) << _ORDINAL_BITS)))
            parts.append([ordinal, first, end - first])
            first = end
        return parts

    def problem(self) -> str | None:
        """Description of what is wrong with the rows; None for rows that a file may hold."""
        if not self._is_sorted():
            return "rows in another order than that of key, known_at and digest"
        if np.isnat(self.known_at).any():
            return "a row without the time at which its label was known"
        if self.kind == "labels" and (self.values < 0).any():
            return "a negative class index"
        return "a target that is no number" if self.kind == "targets" and np.isnan(self.values).any() else None

    def _is_sorted(self) -> bool:
        if (self.keys[1:] > self.keys[:-1]).all():
            return True
        known_at = self.known_at.view(np.int64)
        later = (self.keys[1:] > self.keys[:-1]) | (known_at[1:] > known_at[:-1])
        ordered = later | ((known_at[1:] == known_at[:-1]) & (self.digests[1:] >= self.digests[:-1]))
        return bool(ordered.all() and (self.keys[1:] >= self.keys[:-1]).all())


def write_label_rows(out: Any, rows: LabelRows) -> None:
    """Write a label file to a binary file; ``ValueError`` for rows that no file may hold (``LabelRows.sorted`` orders them)."""
    problem = rows.problem()
    if problem is not None:
        raise ValueError(f"label rows must be sound: {problem}")
    schema = _schema(_COLUMNS[rows.kind])
    times = pa.array(rows.known_at.astype("datetime64[us]").view(np.int64)).view(_TIME)
    columns = [pa.array(rows.keys), pa.array(rows.values), times, pa.array(rows.digests)]
    with pa.ipc.new_stream(out, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))


class LabelFile:
    """Mapped label file; ``open`` verifies it.

    Attributes:
        path: of the file.
        n: number of rows.
    """

    def __init__(self, path: Path, rows: LabelRows) -> None:
        self.path, self._rows = path, rows

    @classmethod
    def open(cls, path: Path, checksum: str | None = None) -> Self:
        """Map a file; with a checksum (hex BLAKE2b, 16 bytes) compare the whole file first. Raises ``CorruptFile``."""
        return opened_again(path, lambda: cls(path, _mapped(path, checksum)))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self._rows.keys)

    @property
    def kind(self) -> LabelKind:
        """Kind of the labels."""
        return self._rows.kind

    def rows(self, first: int = 0, n: int | None = None) -> LabelRows:
        """Private copy of ``n`` rows from ``first`` on, by default of all. Raises ``CorruptFile`` for rows that are unsound."""
        n = self.n - first if n is None else n
        if not (first >= 0 and n >= 0 and first + n <= self.n):
            raise CorruptFile(self.path, f"rows {first} to {first + n}", f"{self.n} rows")
        rows = LabelRows(*(_private(self.path, column[first : first + n]) for column in self._rows))
        problem = rows.problem()
        if problem is not None:
            raise CorruptFile(self.path, "a label file", problem)
        return rows


def _schema(column: str) -> pa.Schema:
    columns = [("key", pa.uint64()), (column, _VALUES[column]), ("known_at", _TIME), ("digest", pa.uint64())]
    return pa.schema([pa.field(name, dtype, nullable=False) for name, dtype in columns], metadata=_METADATA)


def _mapped(path: Path, checksum: str | None) -> LabelRows:
    content, _ = open_verified(Expected(path, None, checksum))
    try:
        skeleton = Skeleton(content, is_stream=True)
        with pa.PythonFile(skeleton, mode="r") as source, pa.ipc.open_stream(source) as reader:
            schema = reader.schema
            if not any(schema.equals(_schema(column), check_metadata=True) for column in _VALUES):
                raise CorruptFile(path, "columns key, label or target, known_at and digest", f"{schema}")
            batches = list(reader)
        if len(batches) != 1:
            raise CorruptFile(path, "one record batch", f"{len(batches)} record batches")
        [batch] = batches
        batch.validate()
        columns = [_values(column, skeleton) for column in batch.columns]
    except ARROW_ERRORS as error:
        raise CorruptFile(path, "a label file as Arrow IPC", str(error)) from error
    keys, values, known_at, digests = columns
    return LabelRows(keys, values, known_at.view("datetime64[us]"), digests)


def _values(column: pa.Array, skeleton: Skeleton) -> npt.NDArray[Any]:
    plain = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
    values: npt.NDArray[Any] = plain.to_numpy(zero_copy_only=True)
    values = skeleton.view(values) if len(values) else values
    if column.null_count or not values.flags.aligned:
        raise ValueError(f"{column.null_count} nulls, or values that are not aligned")
    return values


def _private(path: Path, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copy = np.empty(len(values), dtype=values.dtype)
    if len(values) and copy_out(address_of(values), copy.view(np.uint8)):
        raise CorruptFile(path, "a label file", "a file that was cut short while it was read")
    return copy
