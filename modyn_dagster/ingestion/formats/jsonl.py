"""JSONL: one flat object per line, read where the line lies in the file and parsed by Arrow each time."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as arrow_json

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.columns import Found, require_names
from modyn_dagster.ingestion.formats.base import ByteArray, Fetch, Int64Array, Ranges
from modyn_dagster.ingestion.formats.jsonl_faults import explain
from modyn_dagster.ingestion.formats.tables import arrow_schema, as_arrays, filled, found_columns, no_rows
from modyn_dagster.ingestion.formats.text import after_bom, first_bad_byte, line_breaks, lines_between, span_bytes, spans
from modyn_dagster.ingestion.source import LoadedFile
from modyn_dagster.spec.dataset import JsonlFormat

_CHUNK: Final = 64 << 20
_BLOCK: Final = 1 << 20
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")


class JsonlFile:
    """One JSONL file, cut into lines."""

    def __init__(self, path: str, data: ByteArray, lines: Ranges) -> None:
        self._path, self._data, self._lines = path, data, lines

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def ranges(self) -> Ranges:
        """The lines without their breaks."""
        return self._lines

    def find_columns(self) -> list[Found]:
        """Fields in order of first appearance; a field that some objects lack has missing values."""
        chunks = [found_columns(table) for table in self._read(None)]
        names = dict.fromkeys(found.name for chunk in chunks for found in chunk)
        return [self._merged(name, chunks) for name in names]

    def convert(self, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, pa.Array]:
        """Parse everything, keep what is wanted."""
        tables = self._read(columns)
        names = {column.name for column in columns}
        absent = {name for name in names if self._is_absent(name, tables)}
        found = {name for table in tables for name in table.column_names} - absent
        require_names(self._path, sorted(found), sorted(names))
        table = filled(self._path, columns, pa.concat_tables(tables))
        return {name: table[name].combine_chunks() for name in wanted}

    def _merged(self, name: str, chunks: Sequence[Sequence[Found]]) -> Found:
        absent = Found(name, "nothing", has_missing=True)
        merged = Found(name, "nothing")
        for chunk in chunks:
            merged |= next((found for found in chunk if found.name == name), absent)
        return merged

    def _is_absent(self, name: str, tables: Sequence[pa.Table]) -> bool:
        """Arrow adds a column of nulls for a field that no object has; then its name is nowhere in the text."""
        if any(table[name].null_count < len(table) for table in tables):
            return False
        return json.dumps(name).encode() not in self._data.tobytes()

    def _read(self, columns: Sequence[Column] | None) -> list[pa.Table]:
        longest = int(self._lines.lengths.max())
        chunks = (span_bytes(self._data, self._lines, span) for span in spans(self._lines, _CHUNK))
        try:
            tables = [_read_objects(chunk, columns, longest, "infer") for chunk in chunks]
        except pa.ArrowInvalid as error:
            raise explain(self._path, self._data, self._lines, columns) or DataError(self._path, str(error)) from error
        for table in tables:
            nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
            if nested:
                raise DataError(self._path, "the value is nested, expected a flat object", column=nested[0])
        if sum(map(len, tables)) != len(self._lines):
            raise explain(self._path, self._data, self._lines, columns) or DataError(self._path, "a line holds several objects")
        return tables


class Jsonl:
    """The format ``jsonl``."""

    separator = b"\n"

    def __init__(self, spec: JsonlFormat) -> None:
        self._spec = spec

    def open(self, file: LoadedFile) -> JsonlFile:
        """Find the lines of a file; blank ones are skipped."""
        lines = lines_between(after_bom(file.data), line_breaks(file.data), len(file.data))
        bad_byte = first_bad_byte(file.data)
        if bad_byte is not None:
            row = int(np.searchsorted(lines.offsets, bad_byte, side="right"))
            raise DataError(file.path, f"byte 0x{file.data[bad_byte]:02x} is not UTF-8", row=row)
        lines = _objects(file.path, file.data, lines)
        if len(lines) == 0:
            raise DataError(file.path, "the file is empty, expected one JSON object per line")
        return JsonlFile(file.path, file.data, lines)

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Parse lines from anywhere in the dataset; they were checked when they were ingested."""
        if len(offsets) == 1:
            return no_rows(columns)
        return as_arrays(columns, _read_objects(rows, columns, int(np.diff(offsets).max()), "ignore"))


def _read_objects(
    data: ByteArray, columns: Sequence[Column] | None, longest: int, unexpected: Literal["infer", "ignore"]
) -> pa.Table:
    schema = None if columns is None else arrow_schema(columns)
    # One more block than a line needs: a block may begin in the middle of one.
    read = arrow_json.ReadOptions(use_threads=False, block_size=max(_BLOCK, 2 * longest + 2))
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    return arrow_json.read_json(pa.BufferReader(pa.py_buffer(np.ascontiguousarray(data))), read, parse)


def _objects(path: str, data: ByteArray, lines: Ranges) -> Ranges:
    """Lines that begin with ``{`` and end with ``}``; with as many objects as lines, each line is one object."""
    first, last = data[lines.offsets], data[lines.offsets + lines.lengths - 1]
    offsets, lengths = lines.offsets.copy(), lines.lengths.copy()
    for line in np.flatnonzero((first != _OPEN) | (last != _CLOSE)):
        text = data[offsets[line] : offsets[line] + lengths[line]].tobytes()
        stripped = text.strip(b" \t")
        if stripped and not (stripped.startswith(b"{") and stripped.endswith(b"}")):
            row = int(np.count_nonzero(lengths[: line + 1]))
            raise DataError(path, f"the line is not one JSON object: {text[:100].decode(errors='replace')!r}", row=row)
        offsets[line] += len(text) - len(text.lstrip(b" \t")) if stripped else 0
        lengths[line] = len(stripped)
    return Ranges(offsets[lengths > 0], lengths[lengths > 0])
