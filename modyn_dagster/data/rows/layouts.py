"""Layouts of rows while reading: bytes of batches that lack columns are parsed as they are, and the columns filled by rule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fastpath import Blobs, gather_into
from fastpath.array_types import Int64Array
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.catalog.layouts import layout_columns
from modyn_dagster.data.rows.arrow_rows import no_rows
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import FixedRowsFormat, ParquetFormat

Arrays = Mapping[str, npt.NDArray[Any]]
#: Parses the samples at some positions of a request: their bytes, and the columns of their rows.
Parse = Callable[[Int64Array, Blobs, Sequence[Column]], Arrays]
#: Columns of the rows of batches with another layout than the dataset's, by ordinal.
Layouts = Mapping[int, tuple[Column, ...]]

_NO_LAYOUTS: Final[Layouts] = {}


def layouts_of(row: DatasetRow, batches: Sequence[BatchRow]) -> Layouts:
    """Columns of the rows of each batch that has not all columns of the dataset in their order.

    Raises ``CatalogError`` for a batch whose layout is newer than the row.
    """
    columns = {number: layout_columns(row, number) for number in {batch.layout for batch in batches}}
    others = {number for number, of_layout in columns.items() if of_layout != (row.columns or ())}
    return {batch.ordinal: columns[batch.layout] for batch in batches if batch.layout in others} if others else _NO_LAYOUTS


class Filling:
    """Columns of samples from batches of different layouts, each filled with the value of its rule where a batch lacks it.

    Args:
        spec: of the dataset.
        columns: of the dataset.
        layouts: of batches.
    """

    def __init__(self, spec: DatasetSpec, columns: Sequence[Column], layouts: Layouts) -> None:
        self._columns = columns
        self._is_record = isinstance(spec.format, (FixedRowsFormat, ParquetFormat))
        self._values = {} if self._is_record and not isinstance(spec.format, ParquetFormat) else _values(spec, columns)
        self._layouts = list(dict.fromkeys(layouts.values()))
        self._ordinals = np.array(sorted(layouts), dtype=np.int64)
        self._layout_of = np.array([self._layouts.index(layouts[ordinal]) for ordinal in sorted(layouts)], dtype=np.int64)

    def columns_of(self, keys: KeyArray, raw: Blobs, parse: Parse) -> Arrays:
        """All columns of the dataset for samples in the order of their keys."""
        if len(self._ordinals) == 0:
            return parse(np.arange(len(keys)), raw, self._columns)
        if self._is_record:
            return self._texts_filled(keys, parse(np.arange(len(keys)), raw, self._columns))
        parts = []
        for columns, positions in self._parts(keys):
            everything = len(positions) == len(keys)
            part = parse(positions, raw if everything else _chosen(raw, positions), columns)
            full = {
                column.name: part[column.name] if column.name in part else self._filled(column, len(positions))
                for column in self._columns
            }
            if everything:
                return full
            parts.append((positions, full))
        return _merged(len(keys), self._columns, parts)

    def _texts_filled(self, keys: KeyArray, columns: Arrays) -> Arrays:
        """Columns of records that the store has widened, with the texts, which it cannot fill."""
        for layout, positions in self._parts(keys):
            present = {column.name for column in layout}
            for column in self._columns:
                if column.dtype == "string" and column.name not in present:
                    columns[column.name][positions] = self._values[column.name]
        return columns

    def _filled(self, column: Column, n: int) -> npt.NDArray[Any]:
        return np.full(n, self._values[column.name], dtype=no_rows([column])[column.name].dtype)

    def _parts(self, keys: KeyArray) -> Iterator[tuple[Sequence[Column], Int64Array]]:
        """Positions of the keys of each layout, with its columns."""
        ordinals = (keys >> np.uint64(32)).astype(np.int64)
        place = np.minimum(np.searchsorted(self._ordinals, ordinals), len(self._ordinals) - 1)
        kind = np.where(self._ordinals[place] == ordinals, self._layout_of[place], -1)
        for each in np.unique(kind).tolist():
            yield (self._columns if each < 0 else self._layouts[each]), np.flatnonzero(kind == each)


def _values(spec: DatasetSpec, columns: Sequence[Column]) -> dict[str, Any]:
    return {column.name: spec.absent[column.name].value_as(column.dtype) for column in columns if column.name in spec.absent}


def narrow_types(full: np.dtype[Any] | None, layouts: Layouts) -> dict[int, np.dtype[Any]]:
    """Types of the records of batches that lack fields, by ordinal; none where samples are no records."""
    if full is None:
        return {}
    return {ordinal: np.dtype([(column.name, full[column.name]) for column in columns]) for ordinal, columns in layouts.items()}


def field_values(spec: DatasetSpec, columns: Sequence[Column], full: np.dtype[Any] | None) -> dict[str, Any]:
    """Values of the fields of records that batches may lack; texts are none, as a record holds their place only."""
    if full is None:
        return {}
    if isinstance(spec.format, FixedRowsFormat):
        return {name: rule.filled_field(full[name]) for name, rule in spec.absent.items()}
    return {name: value for name, value in _values(spec, columns).items() if not isinstance(value, str)}


def _chosen(raw: Blobs, positions: Int64Array) -> Blobs:
    """Copy of some of the blobs."""
    lengths = np.diff(raw.offsets)[positions]
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    buffer = np.empty(int(offsets[-1]), dtype=np.uint8)
    gather_into(raw.buffer, raw.offsets[positions], lengths, buffer, offsets[:-1])
    return Blobs(buffer, offsets)


def _merged(n: int, columns: Sequence[Column], parts: Sequence[tuple[Int64Array, Arrays]]) -> Arrays:
    merged = {column.name: np.empty(n, dtype=no_rows([column])[column.name].dtype) for column in columns}
    for positions, arrays in parts:
        for name, values in arrays.items():
            merged[name][positions] = values
    return merged
