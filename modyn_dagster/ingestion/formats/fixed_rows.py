"""Binary records of a NumPy structured dtype, read in place."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.catalog.layouts import field_code
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.ingestion.formats.columns import ObservedColumn
from modyn_dagster.ingestion.sources.files import LoadedFile
from modyn_dagster.spec.formats import FixedRowsFormat


class FixedRowsFile:
    """One file of records."""

    def __init__(self, path: str, records: npt.NDArray[Any], header_bytes: int) -> None:
        self._path, self._records, self._header_bytes = path, records, header_bytes

    def __len__(self) -> int:
        return len(self._records)

    @property
    def ranges(self) -> Ranges:
        """Extents of the records, one after the other."""
        width = self._records.dtype.itemsize
        offsets = self._header_bytes + width * np.arange(len(self._records), dtype=np.int64)
        return Ranges(offsets, np.full(len(self._records), width, dtype=np.int64))

    def find_columns(self, keep: Collection[str] = ()) -> list[ObservedColumn]:
        """Fields of the spec's dtype."""
        dtype = self._records.dtype
        return [ObservedColumn(name, field_code(dtype[name])) for name in dtype.names or ()]

    def present(self, columns: Sequence[Column], optional: Collection[str]) -> list[Column]:
        """All columns, in the order of the record: every file has all fields of the spec."""
        by_name = {column.name: column for column in columns}
        return [by_name[name] for name in self._records.dtype.names or ()]

    def table(self, columns: Sequence[Column]) -> None:
        """None: rows are read from the bytes of the file."""

    def convert(self, columns: Sequence[Column], names: Collection[str]) -> dict[str, pa.Array]:
        """Some fields, which must be scalars. The others need no check: all bytes are valid numbers."""
        return {name: self._field(name) for name in names}

    def _field(self, name: str) -> pa.Array:
        values = np.ascontiguousarray(self._records[name])
        values = values.astype(values.dtype.newbyteorder("="))
        target = {"i": pa.int64(), "u": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "S": pa.string(), "U": pa.string()}
        kind = values.dtype.kind
        if values.ndim > 1 or (kind not in target and kind != "M"):
            raise DataError(self._path, f"a field of dtype {values.dtype} cannot be a time, label or attribute", column=name)
        try:
            if kind == "M":
                return pa.array(self._microseconds(name, values))
            return pa.array(values.astype(np.float64) if kind == "f" else values).cast(target[kind])
        except (pa.ArrowInvalid, ValueError) as error:
            raise DataError(self._path, f"cannot be read as {target[kind]}: {error}", column=name) from error

    def _microseconds(self, name: str, times: npt.NDArray[np.datetime64]) -> npt.NDArray[np.datetime64]:
        """Times of any unit; shorter units are truncated, and NumPy would let longer ones overflow in silence."""
        converted = times.astype("datetime64[us]")
        unit, _ = np.datetime_data(times.dtype)
        changed = ~np.isnat(times) & (converted.astype(times.dtype) != times)
        if unit not in ("ns", "ps", "fs", "as") and changed.any():
            row = int(np.argmax(changed))
            problem = f"the time {times[row].astype(np.int64)} (in {unit}) is not in the years 1 to 9999"
            raise DataError(self._path, problem, row=row + 1, column=name)
        return converted


class FixedRows:
    """Row format ``fixed_rows``."""

    def __init__(self, spec: FixedRowsFormat) -> None:
        self._dtype = np.dtype([(name, code) for name, code in spec.dtype])
        self._header_bytes = spec.header_bytes

    def open(self, file: LoadedFile) -> FixedRowsFile:
        """Raises ``DataError`` when the file does not hold whole records."""
        body = len(file.data) - self._header_bytes
        width = self._dtype.itemsize
        if body <= 0:
            raise DataError(file.path, f"the file is empty, expected {self._header_bytes} bytes of header and records of {width}")
        if body % width:
            problem = f"the file is truncated: the last record has {body % width} of {width} bytes"
            raise DataError(file.path, problem, row=body // width + 1)
        return FixedRowsFile(file.path, file.data[self._header_bytes :].view(self._dtype), self._header_bytes)
