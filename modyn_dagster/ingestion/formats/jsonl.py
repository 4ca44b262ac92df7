"""JSONL files: one flat object per line, parsed by Arrow; errors name line and field."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from fastpath.array_types import ByteArray
from fastpath.arrays.lines import find_lines
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.arrow_rows import read_objects
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.base import Ranges, after_bom, first_bad_byte, span_bytes, spans
from modyn_dagster.ingestion.formats.columns import ObservedColumn, merge_columns, observed_columns, require_names
from modyn_dagster.ingestion.formats.parsed import TypedRows, joined_columns, require_present, runs_agree
from modyn_dagster.ingestion.sources.files import LoadedFile
from modyn_dagster.parallel_map import map_in_threads
from modyn_dagster.spec.formats import JsonlFormat

_INT64 = range(-(2**63), 2**63)


def explain(path: str, data: ByteArray, lines: Ranges, columns: Sequence[Column] | None) -> DataError | None:
    """The first error, found by parsing line by line; None if there is none."""
    expected = {column.name: column.dtype for column in columns or ()}
    try:
        for row, value in enumerate(_parsed(path, data, lines), 1):
            for name, cell in value.items():
                _check_cell(path, row, name, cell, expected)
    except SchemaMismatch:
        raise
    except DataError as fault:
        return _whole_column(path, data, lines, expected, fault) or fault
    return None


def _parsed(path: str, data: ByteArray, lines: Ranges) -> Iterator[Mapping[str, Any]]:
    for row in range(len(lines)):
        pairs = _pairs(path, data, lines, row)
        fields = dict(pairs)
        if len(fields) < len(pairs):
            [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
            raise DataError(path, "the object has this field twice", row=row + 1, column=name)
        yield fields


def _pairs(path: str, data: ByteArray, lines: Ranges, row: int) -> list[tuple[str, Any]]:
    """Fields of the object in a line, in order; ``row`` counts from 0."""
    text = data[lines.offsets[row] : lines.offsets[row] + lines.lengths[row]].tobytes()
    try:
        pairs: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list)
    except ValueError as error:
        raise DataError(path, f"the line is not one JSON object: {error}", row=row + 1) from None
    except RecursionError:
        raise DataError(path, "a value is nested thousands of times, expected a flat object", row=row + 1) from None
    return pairs


def _check_cell(path: str, row: int, name: str, cell: Any, expected: dict[str, str]) -> None:
    """Check the dtype of a cell. Where the dataset has none, the first value of a column decides it."""
    if cell is None:
        return
    kind = _kind(cell)
    if kind == "nested":
        raise DataError(path, "the value is nested, expected a flat object", row=row, column=name)
    dtype = expected.setdefault(name, "float64" if kind == "int64" else kind)
    if kind != dtype and (kind, dtype) != ("int64", "float64"):
        raise DataError(path, f"{cell!r} is not {dtype}", row=row, column=name)


def _kind(cell: Any) -> str:
    if isinstance(cell, bool):
        return "bool"
    if isinstance(cell, int):
        return "int64" if cell in _INT64 else "float64"
    return {float: "float64", str: "string"}.get(type(cell), "nested")


def _whole_column(
    path: str, data: ByteArray, lines: Ranges, expected: Mapping[str, str], fault: DataError
) -> SchemaMismatch | None:
    """The mismatch to report for a column that is entirely of another dtype."""
    if fault.column is None:
        return None
    cells = (row.get(fault.column) for row in _parsed(path, data, lines))
    kinds = {_kind(cell) for cell in cells if cell is not None}
    observed = "float64" if kinds == {"int64", "float64"} else kinds.pop() if len(kinds) == 1 else "nested"
    dtype = expected.get(fault.column, observed)
    if "nested" in (observed, dtype) or observed == dtype:
        return None
    return SchemaMismatch(path, f"{fault.column} {dtype}", f"{fault.column} {observed}")


T = TypeVar("T")

#: Bytes that one thread parses at a time.
CHUNK_BYTES: Final = 4 << 20
#: Bytes whose fields are inferred together if smaller runs disagree.
_LARGE_CHUNK: Final = 64 << 20
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_BRACKET: Final = ord("[")
#: Brackets of a line that Arrow may parse, whatever they enclose.
_MOST_BRACKETS: Final = 500


@dataclass(frozen=True, slots=True)
class _Run(Generic[T]):
    """Parsed run of lines.

    Attributes:
        n_objects: number of objects.
        names: fields of any object.
        filled: fields that are not null in all objects.
        nested: a field with a nested value; None if there is none.
        content: derived from the cells.
    """

    n_objects: int
    names: Sequence[str]
    filled: Collection[str]
    nested: str | None
    content: T

    @classmethod
    def of(cls, table: pa.Table, content: T) -> "_Run[T]":
        filled = {name for name, values in zip(table.column_names, table.itercolumns()) if values.null_count < len(table)}
        nested = next((field.name for field in table.schema if pa.types.is_nested(field.type)), None)
        return cls(len(table), table.column_names, filled, nested, content)


class JsonlFile:
    """One JSONL file, cut into lines."""

    def __init__(self, path: str, data: ByteArray, lines: Ranges) -> None:
        self._path, self._data, self._lines = path, data, lines

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def ranges(self) -> Ranges:
        """Extents of the lines without their line breaks."""
        return self._lines

    def find_columns(self, keep: Collection[str] = ()) -> list[ObservedColumn]:
        """Infer fields, in order of first appearance. A field that some objects lack has missing values."""
        runs = self._infer(CHUNK_BYTES)
        if not runs_agree(runs):
            runs = self._infer(_LARGE_CHUNK)
        return merge_columns(runs)

    def table(self, columns: Sequence[Column]) -> None:
        """None: rows are read from the bytes of the file."""

    def present(self, columns: Sequence[Column], optional: Collection[str]) -> list[Column]:
        """The columns without the optional ones that no object has, in the dataset's order."""
        lacking = self._not_mentioned(optional)
        if lacking != set(optional):
            # The name of a field may also stand in a text.
            lacking = set(optional) - {name for run in self._infer(CHUNK_BYTES) for name in (column.name for column in run)}
        return [column for column in columns if column.name not in lacking]

    def convert(self, columns: Sequence[Column], names: Collection[str]) -> dict[str, pa.Array]:
        """Check all cells and keep some columns."""
        runs = self._read(columns, lambda table: TypedRows.of(table, columns, names), CHUNK_BYTES)
        expected = {column.name for column in columns}
        filled = {name for run in runs for name in run.filled}
        absent = self._not_mentioned(expected - filled)
        observed = {name for run in runs for name in run.names} - absent
        require_names(self._path, sorted(observed), sorted(expected))
        parts = [run.content for run in runs]
        require_present(self._path, columns, parts)
        return joined_columns(columns, names, [part.kept for part in parts])

    def _infer(self, max_bytes: int) -> list[list[ObservedColumn]]:
        """Columns of each run of lines, in the same order; a field that a run lacks is an empty column."""
        runs = self._read(None, observed_columns, max_bytes)
        names = dict.fromkeys(name for run in runs for name in run.names)
        observed = [{column.name: column for column in run.content} for run in runs]
        return [[run.get(name, ObservedColumn(name, "nothing", has_missing=True)) for name in names] for run in observed]

    def _not_mentioned(self, names: Collection[str]) -> set[str]:
        """Names of fields that no object has: Arrow adds a column of nulls for one that it was told to read.

        Without escapes a name stands in the text as it is, so a search is enough to tell that it does not.
        """
        if not names:
            return set()
        text = self._data.tobytes()
        if b"\\" in text:
            return set(names) - {column.name for run in self._infer(CHUNK_BYTES) for column in run}
        return {name for name in names if json.dumps(name, ensure_ascii=False).encode() not in text}

    def _read(self, columns: Sequence[Column] | None, keep: Callable[[pa.Table], T], max_bytes: int) -> list[_Run[T]]:
        """Parse all runs of lines, in threads. Without ``columns`` dtypes are inferred."""
        longest = int(self._lines.lengths.max())

        def parse(span: slice) -> _Run[T]:
            table = read_objects(span_bytes(self._data, self._lines, span), columns, longest, "infer")
            return _Run.of(table, keep(table))

        try:
            runs = list(map_in_threads(parse, spans(self._lines, max_bytes)))
        except pa.ArrowInvalid as error:
            raise explain(self._path, self._data, self._lines, columns) or DataError(self._path, str(error)) from error
        for run in runs:
            if run.nested is not None:
                raise DataError(self._path, "the value is nested, expected a flat object", column=run.nested)
        if sum(run.n_objects for run in runs) != len(self._lines):
            raise explain(self._path, self._data, self._lines, columns) or DataError(self._path, "a line holds several objects")
        return runs


class Jsonl:
    """Row format ``jsonl``."""

    def __init__(self, spec: JsonlFormat) -> None:
        self._spec = spec

    def open(self, file: LoadedFile) -> JsonlFile:
        """Find the lines of a file; blank ones are skipped."""
        extents = find_lines(file.data, after_bom(file.data))
        lines = Ranges(extents.offsets, extents.lengths)
        bad_byte = first_bad_byte(file.data)
        if bad_byte is not None:
            row = int(np.searchsorted(lines.offsets, bad_byte, side="right"))
            raise DataError(file.path, f"byte 0x{file.data[bad_byte]:02x} is not UTF-8", row=row)
        lines = _objects(file.path, file.data, lines)
        _require_shallow(file.path, file.data, lines)
        if len(lines) == 0:
            raise DataError(file.path, "the file is empty, expected one JSON object per line")
        return JsonlFile(file.path, file.data, lines)


def _require_shallow(path: str, data: ByteArray, lines: Ranges) -> None:
    """Raise ``DataError`` for values so deeply nested that Arrow's parser would use up its stack, and end the process.

    Lines with few brackets hold none. Others are parsed, as the brackets may stand in texts.
    """
    brackets = sum(int(np.count_nonzero(data == bracket)) for bracket in (_OPEN, _BRACKET))
    if brackets - len(lines) <= _MOST_BRACKETS:
        return
    before = np.cumsum((data == _OPEN) | (data == _BRACKET))
    per_line = before[lines.offsets + lines.lengths - 1] - before[lines.offsets]
    for row in np.flatnonzero(per_line > _MOST_BRACKETS):
        for name, value in _pairs(path, data, lines, int(row)):
            if isinstance(value, list):
                raise DataError(path, "the value is nested, expected a flat object", row=int(row) + 1, column=name)


def _objects(path: str, data: ByteArray, lines: Ranges) -> Ranges:
    """Lines that begin with ``{`` and end with ``}``. If there are as many objects as lines, each line is one object."""
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
