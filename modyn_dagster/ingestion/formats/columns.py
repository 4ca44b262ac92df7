"""Columns of row formats: what a file holds, what the dataset says, and whether they agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.arrow_rows import ARROW_TYPES
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass(frozen=True, slots=True)
class Found:
    """A column as one file shows it: ``dtype`` is a ``ColumnType`` or ``nothing``; ``has_missing`` when a cell is empty."""

    name: str
    dtype: str
    has_missing: bool = False

    def __or__(self, other: "Found") -> "Found":
        """The narrowest column that holds both."""
        return Found(self.name, _wider(self.dtype, other.dtype), self.has_missing or other.has_missing)

    def settled(self) -> Column:
        """The column to fix: integers with empty cells become float64 with NaN, a column of nothing else too."""
        numbers_are_missing = self.dtype == "nothing" or (self.dtype == "int64" and self.has_missing)
        return Column(self.name, "float64" if numbers_are_missing else self.dtype)


def _wider(one: str, other: str) -> str:
    if "nothing" in (one, other):
        return other if one == "nothing" else one
    if one == other:
        return one
    return "float64" if {one, other} == {"int64", "float64"} else "string"


def settle_columns(spec: DatasetSpec, files: Sequence[tuple[str, Sequence[Found]]]) -> tuple[Column, ...]:
    """Columns of a dataset from its first batch: ``(path, columns found)`` per file, in order.

    Integers here and fractions there are float64. Any other disagreement is the fault of the later file: what one file shows
    as numbers and another as text is more often an error than text.

    Raises ``SchemaMismatch`` naming both, ``DataError`` when a column that the spec pins does not exist.
    """
    pinned, label = _pinned_dtypes(spec), _class_column(spec)
    first_path, first = files[0]
    names = [column.name for column in first]
    for name in pinned:
        if name not in names:
            raise DataError(first_path, f"the file has no such column; it has {', '.join(names)}", column=name)
    settled = {column.name: column for column in first}
    for path, found in files:
        require_names(path, [column.name for column in found], names)
        for column in found:
            before = settled[column.name]
            if column.name not in pinned and not _agree(before.dtype, column.dtype, widen=column.name != label):
                raise SchemaMismatch(path, f"{column.name} {before.dtype}", f"{column.name} {column.dtype}")
            settled[column.name] = before | column
    # A class label that is missing is an error, not a NaN among floats: its column stays what its labels are.
    columns = (Found(c.name, c.dtype) if c.name == label else c for c in settled.values())
    return tuple(Column(c.name, pinned[c.name]) if c.name in pinned else c.settled() for c in columns)


def _agree(one: str, other: str, *, widen: bool) -> bool:
    numbers = {"int64", "float64"} if widen else set()
    return one == other or "nothing" in (one, other) or {one, other} == numbers


def merge_columns(parts: Sequence[Sequence[Found]]) -> list[Found]:
    """The narrowest columns that hold those of all parts, which stand in the same order."""
    return [reduce(Found.__or__, columns) for columns in zip(*parts)]


def require_names(path: str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Raise ``SchemaMismatch`` unless a file has just these columns."""
    if sorted(found) != sorted(expected):
        raise SchemaMismatch(path, ", ".join(expected), ", ".join(found))


def _class_column(spec: DatasetSpec) -> str | None:
    label = spec.label
    return label.from_.column if label is not None and label.kind == "class" and label.from_.source == "column" else None


def _pinned_dtypes(spec: DatasetSpec) -> dict[str, str]:
    """Dtypes the spec decides by what a column is for; ``format.columns`` has the last word."""
    pinned: dict[str, str] = {}
    if spec.time.source == "column" and spec.time.format is not None:
        pinned[spec.time.column] = "string"
    if spec.label is not None and spec.label.from_.source == "column":
        if spec.label.kind == "target":
            pinned[spec.label.from_.column] = "float64"
        elif spec.label.classes is not None:
            pinned[spec.label.from_.column] = "string"
        elif spec.label.n_classes is not None:
            pinned[spec.label.from_.column] = "int64"
    explicit = spec.format.columns if spec.format.kind in ("csv", "jsonl") else {}
    return pinned | explicit


def found_columns(table: pa.Table) -> list[Found]:
    """Columns of a table whose types Arrow inferred; what is no number and no truth value stays text."""
    return [Found(name, _dtype_of(table[name].type), table[name].null_count > 0) for name in table.column_names]


def _dtype_of(found: pa.DataType) -> str:
    if pa.types.is_null(found):
        return "nothing"
    return next((dtype for dtype, arrow_type in ARROW_TYPES.items() if arrow_type == found), "string")
