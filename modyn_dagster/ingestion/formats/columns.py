"""Columns of row formats: as observed in files, as pinned by the spec, and as resolved for the dataset."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.catalog.layouts import declared_dtype, widened
from modyn_dagster.data.rows.arrow_rows import ARROW_TYPES
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import NAN

#: Names that a message lists.
_LISTED: Final = 3


@dataclass(frozen=True, slots=True)
class ObservedColumn:
    """A column of one file; ``dtype`` is a ``ColumnType`` or ``nothing``, ``has_missing`` tells of empty cells."""

    name: str
    dtype: str
    has_missing: bool = False

    def __or__(self, other: "ObservedColumn") -> "ObservedColumn":
        """The narrowest column that can hold both."""
        return ObservedColumn(self.name, _wider(self.dtype, other.dtype), self.has_missing or other.has_missing)

    def resolved(self) -> Column:
        """The column of the dataset. Integers with empty cells become float64 with NaN, as does an entirely empty column."""
        numbers_are_missing = self.dtype == "nothing" or (self.dtype == "int64" and self.has_missing)
        return Column(self.name, "float64" if numbers_are_missing else self.dtype)


def _wider(one: str, other: str) -> str:
    if "nothing" in (one, other):
        return other if one == "nothing" else one
    if one == other:
        return one
    return "float64" if {one, other} == {"int64", "float64"} else "string"


def resolve_columns(spec: DatasetSpec, files: Sequence[tuple[str, Sequence[ObservedColumn]]]) -> tuple[Column, ...]:
    """Resolve the columns of a dataset from the files of its first batch.

    Integers in one file and fractions in another make a column float64. Any other difference is an error of the later file:
    a column of numbers in one file and of text in another is more often a mistake than text.

    Args:
        spec: of the dataset.
        files: path and observed columns of each file, in order.

    Raises:
        SchemaMismatch: two files differ; names both dtypes.
        DataError: a file lacks a column that the spec pins.
    """
    pinned, label = _pinned_dtypes(spec), _class_column(spec)
    first_path, first = files[0]
    names = [column.name for column in first]
    for name in names:
        if "\0" in name:
            raise DataError(first_path, f"the name of the column {name[:200]!r} has a null character")
    for name in pinned:
        if name not in names and name not in spec.absent:
            raise DataError(first_path, f"the file has no such column; it has {', '.join(names)}", column=name)
    # Behind the others, in the order of the rules, whichever of them this file has.
    names = [*(name for name in names if name not in spec.absent), *spec.absent]
    found: dict[str, ObservedColumn | None] = dict.fromkeys(names) | {column.name: column for column in first}
    for path, columns in files:
        present = [column.name for column in columns]
        require_names(path, [*present, *(name for name in spec.absent if name not in present)], names)
        for column in columns:
            before = found[column.name] or column
            if column.name not in pinned and not _same_kind(before.dtype, column.dtype, widen=column.name != label):
                raise SchemaMismatch(path, f"{column.name} {before.dtype}", f"{column.name} {column.dtype}")
            found[column.name] = before | column
    # A missing class label is an error, not a NaN, so empty cells do not widen the column of labels.
    resolved = (ObservedColumn(c.name, c.dtype) if c.name == label else c for c in found.values() if c is not None)
    typed = [Column(c.name, pinned[c.name]) if c.name in pinned else c.resolved() for c in resolved]
    place = {name: i for i, name in enumerate(names)}
    all_columns = widened(spec, [_with_room_for_fill(spec, column, first_path) for column in typed])
    return tuple(sorted(all_columns, key=lambda column: place[column.name]))


def _with_room_for_fill(spec: DatasetSpec, column: Column, path: str) -> Column:
    """The column, as float64 where files have integers and the rule of the spec a fraction."""
    rule = spec.absent.get(column.name)
    if rule is None or spec.format.kind == "fixed_rows":
        return column
    fraction = isinstance(rule.fill, float) or rule.fill == NAN
    if column.dtype == "int64" and fraction and declared_dtype(spec, column.name) is None:
        return Column(column.name, "float64")
    try:
        rule.value_as(column.dtype)
    except ValueError as error:
        raise DataError(
            path, f"`absent.{column.name}.fill` {rule.fill!r} {error}; correct the rule", column=column.name
        ) from error
    return column


def _same_kind(one: str, other: str, *, widen: bool) -> bool:
    numbers = {"int64", "float64"} if widen else set()
    return one == other or "nothing" in (one, other) or {one, other} == numbers


def merge_columns(parts: Sequence[Sequence[ObservedColumn]]) -> list[ObservedColumn]:
    """The narrowest columns that can hold those of all parts, which are in the same order."""
    return [reduce(ObservedColumn.__or__, columns) for columns in zip(*parts)]


def require_names(path: str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Raise ``SchemaMismatch``, naming missing and new columns and what to do, unless a file has exactly these columns."""
    if sorted(found) != sorted(expected):
        raise SchemaMismatch(path, ", ".join(expected), ", ".join(found), "; ".join(_remedies(found, expected)))


def _remedies(found: Sequence[str], expected: Sequence[str]) -> Iterator[str]:
    known, there = set(expected), set(found)
    missing = [name for name in expected if name not in there]
    new = [name for name in found if name not in known]
    if missing:
        rule = f"`absent: {{{missing[0][:100]}: {{fill: VALUE}}}}`"
        yield f"{_listed(missing)} missing: deliver the file with it, or add {rule} to the dataset's spec, VALUE for such files"
    if new:
        rule = f"`absent: {{{new[0][:100]}: {{fill: VALUE}}}}`"
        yield f"{_listed(new)} new: remove it from the file, or add {rule} to the dataset's spec, VALUE for all earlier samples"


def _listed(names: Sequence[str]) -> str:
    """Some names and a verb.

    >>> _listed(["a"]), _listed(["a", "b", "c", "d", "e"])
    ('a is', 'a, b, c and 2 more are')
    """
    shown = ", ".join(name[:100] for name in names[:_LISTED])
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{shown}{more} {'is' if len(names) == 1 else 'are'}"


def _class_column(spec: DatasetSpec) -> str | None:
    label = spec.label
    if label is None or label.kind != "class" or label.from_.source != "column" or label.arrives == "later":
        return None
    return label.from_.column


def _pinned_dtypes(spec: DatasetSpec) -> dict[str, str]:
    """Dtypes that the spec decides by the role of a column; ``format.columns`` takes precedence."""
    pinned: dict[str, str] = {}
    if spec.time.source == "column" and spec.time.format is not None:
        pinned[spec.time.column] = "string"
    if spec.label is not None and spec.label.from_.source == "column":
        if spec.label.kind == "target":
            pinned[spec.label.from_.column] = "float64"
        elif spec.label.classes is not None:
            pinned[spec.label.from_.column] = "string"
        elif spec.label.n_classes is not None:
            # A missing label is NaN, where it may come later.
            pinned[spec.label.from_.column] = "int64" if spec.label.arrives == "with_sample" else "float64"
    explicit = spec.format.columns if spec.format.kind in ("csv", "jsonl") else {}
    return pinned | explicit | {name: str(rule.dtype) for name, rule in spec.absent.items() if rule.dtype is not None}


def observed_columns(table: pa.Table) -> list[ObservedColumn]:
    """Columns of a table with inferred types. Everything but numbers and truth values is text."""
    # By position: Arrow looks through all names for one of them, and a file may have very many.
    return [
        ObservedColumn(name, _dtype_of(values.type), values.null_count > 0)
        for name, values in zip(table.column_names, table.itercolumns())
    ]


def _dtype_of(inferred: pa.DataType) -> str:
    if pa.types.is_null(inferred):
        return "nothing"
    return next((dtype for dtype, arrow_type in ARROW_TYPES.items() if arrow_type == inferred), "string")
