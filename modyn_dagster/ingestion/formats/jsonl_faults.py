"""What is wrong with a JSONL file that Arrow refused: the row, the field, and whether it is a value or the whole column."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.base import ByteArray, Ranges

_INT64 = range(-(2**63), 2**63)


def explain(path: str, data: ByteArray, lines: Ranges, columns: Sequence[Column] | None) -> DataError | None:
    """The first fault, found by reading line by line; None when Python finds none."""
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
        text = data[lines.offsets[row] : lines.offsets[row] + lines.lengths[row]].tobytes()
        try:
            pairs = json.loads(text, object_pairs_hook=list)
        except ValueError as error:
            raise DataError(path, f"the line is not one JSON object: {error}", row=row + 1) from None
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise DataError(path, "the object has this field twice", row=row + 1, column=name)
        yield dict(pairs)


def _check_cell(path: str, row: int, name: str, cell: Any, expected: dict[str, str]) -> None:
    """Without a dtype from the dataset the first value of a column decides it."""
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
    """The mismatch to report when the column holds nothing but values of another dtype."""
    if fault.column is None:
        return None
    cells = (row.get(fault.column) for row in _parsed(path, data, lines))
    kinds = {_kind(cell) for cell in cells if cell is not None}
    found = "float64" if kinds == {"int64", "float64"} else kinds.pop() if len(kinds) == 1 else "nested"
    dtype = expected.get(fault.column, found)
    if "nested" in (found, dtype) or found == dtype:
        return None
    return SchemaMismatch(path, f"{fault.column} {dtype}", f"{fault.column} {found}")
