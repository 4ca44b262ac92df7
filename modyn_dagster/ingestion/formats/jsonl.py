"""JSONL: one flat object per line, read where the line lies in the file and parsed by Arrow each time."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from fastpath.scan import find_lines
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.columns import Found, merge_columns, require_names
from modyn_dagster.ingestion.formats.base import ByteArray, Ranges
from modyn_dagster.ingestion.formats.jsonl_faults import explain
from modyn_dagster.ingestion.formats.parsed import Typed, agree, joined_columns, require_present
from modyn_dagster.ingestion.formats.tables import arrow_schema, found_columns
from modyn_dagster.ingestion.formats.text import after_bom, first_bad_byte, span_bytes, spans
from modyn_dagster.ingestion.source import LoadedFile
from modyn_dagster.ingestion.workers import in_order
from modyn_dagster.spec.dataset import JsonlFormat

T = TypeVar("T")

#: Bytes that one thread parses at a time.
_CHUNK: Final = 4 << 20
#: Bytes whose fields are inferred together where smaller runs disagree.
_LARGE_CHUNK: Final = 64 << 20
_BLOCK: Final = 1 << 20
_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")


@dataclass(frozen=True, slots=True)
class _Run(Generic[T]):
    """What a run of lines holds.

    Attributes:
        n_objects: their number.
        names: fields of any object.
        filled: fields that are not null throughout.
        nested: a field with more than one value in a cell; None.
        content: what is kept of the cells.
    """

    n_objects: int
    names: Sequence[str]
    filled: Collection[str]
    nested: str | None
    content: T

    @classmethod
    def of(cls, table: pa.Table, content: T) -> "_Run[T]":
        filled = {name for name in table.column_names if table[name].null_count < len(table)}
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
        """The lines without their breaks."""
        return self._lines

    def find_columns(self, keep: Collection[str] = ()) -> list[Found]:
        """Fields in order of first appearance; a field that some objects lack has missing values."""
        runs = self._infer(_CHUNK)
        if not agree(runs):
            runs = self._infer(_LARGE_CHUNK)
        return merge_columns(runs)

    def convert(self, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, pa.Array]:
        """Parse everything, keep what is wanted."""
        runs = self._read(columns, lambda table: Typed.of(table, columns, wanted), _CHUNK)
        names = {column.name for column in columns}
        filled = {name for run in runs for name in run.filled}
        absent = {name for name in names - filled if not self._mentions(name)}
        found = {name for run in runs for name in run.names} - absent
        require_names(self._path, sorted(found), sorted(names))
        parts = [run.content for run in runs]
        require_present(self._path, columns, parts)
        return joined_columns(columns, wanted, [part.kept for part in parts])

    def _infer(self, max_bytes: int) -> list[list[Found]]:
        """The columns of each run of lines; all in the same order, a field that a run lacks with nothing in it."""
        runs = self._read(None, found_columns, max_bytes)
        names = dict.fromkeys(name for run in runs for name in run.names)
        shown = [{found.name: found for found in run.content} for run in runs]
        return [[run.get(name, Found(name, "nothing", has_missing=True)) for name in names] for run in shown]

    def _mentions(self, name: str) -> bool:
        """Whether a field's name is in the text: Arrow adds a column of nulls for one that no object has."""
        return json.dumps(name).encode() in self._data.tobytes()

    def _read(self, columns: Sequence[Column] | None, keep: Callable[[pa.Table], T], max_bytes: int) -> list[_Run[T]]:
        """All runs of lines, several parsed at a time; None infers dtypes."""
        longest = int(self._lines.lengths.max())

        def parse(span: slice) -> _Run[T]:
            table = _read_objects(span_bytes(self._data, self._lines, span), columns, longest, "infer")
            return _Run.of(table, keep(table))

        try:
            runs = list(in_order(parse, spans(self._lines, max_bytes)))
        except pa.ArrowInvalid as error:
            raise explain(self._path, self._data, self._lines, columns) or DataError(self._path, str(error)) from error
        for run in runs:
            if run.nested is not None:
                raise DataError(self._path, "the value is nested, expected a flat object", column=run.nested)
        if sum(run.n_objects for run in runs) != len(self._lines):
            raise explain(self._path, self._data, self._lines, columns) or DataError(self._path, "a line holds several objects")
        return runs


class Jsonl:
    """The format ``jsonl``."""

    def __init__(self, spec: JsonlFormat) -> None:
        self._spec = spec

    def open(self, file: LoadedFile) -> JsonlFile:
        """Find the lines of a file; blank ones are skipped."""
        found = find_lines(file.data, after_bom(file.data))
        lines = Ranges(found.offsets, found.lengths)
        bad_byte = first_bad_byte(file.data)
        if bad_byte is not None:
            row = int(np.searchsorted(lines.offsets, bad_byte, side="right"))
            raise DataError(file.path, f"byte 0x{file.data[bad_byte]:02x} is not UTF-8", row=row)
        lines = _objects(file.path, file.data, lines)
        if len(lines) == 0:
            raise DataError(file.path, "the file is empty, expected one JSON object per line")
        return JsonlFile(file.path, file.data, lines)


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
