"""Preview of a dataset: columns and faults of the first rows of its files, as ingestion would find them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.tasks import non_feature_columns
from modyn_dagster.errors import DataError, UnexpectedFault
from modyn_dagster.ingestion.batches.file_pieces import file_piece
from modyn_dagster.ingestion.batches.members import Members, resolve_members
from modyn_dagster.ingestion.batches.row_pieces import labels_of, times_of
from modyn_dagster.ingestion.containment import contained, contained_in_memory
from modyn_dagster.ingestion.discovery import find_units
from modyn_dagster.ingestion.formats import row_format
from modyn_dagster.ingestion.formats.base import OpenRows
from modyn_dagster.ingestion.formats.columns import ObservedColumn, resolve_columns
from modyn_dagster.ingestion.preview.heads import head_of
from modyn_dagster.ingestion.sources.files import LoadedFile
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import CsvFormat, FilesFormat

#: Batches looked at: so many of the oldest and as many of the newest.
_UNITS: Final = 10
#: Files looked at of a batch that has several.
_FILES: Final = 5
_NUMBER_OR_NOTHING: Final = r"(?i)^\s*([-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?(nan|inf|infinity))?\s*$"


@dataclass(frozen=True)
class Head:
    """First rows of a file, its columns as observed in them, and the times of files, from the manifest."""

    loaded: LoadedFile
    rows: OpenRows
    observed: Sequence[ObservedColumn]
    times: Mapping[str, np.datetime64]

    def first_text(self, column: str) -> DataError | None:
        """The first row whose cell of a column is no number; None where all are, or cells are not text."""
        with suppress(DataError):
            texts = self.rows.convert([Column(each.name, "string") for each in self.observed], [column])[column]
            wrong = pc.invert(pc.match_substring_regex(texts, _NUMBER_OR_NOTHING)).to_numpy(zero_copy_only=False)
            if wrong.any():
                row = int(np.argmax(wrong))
                return DataError(self.loaded.path, f"{texts[row].as_py()!r} is no number", row=row + 1, column=column)
        return None

    def n_values(self, columns: Sequence[Column], name: str) -> int:
        """Number of different values of a column in these rows; 0 where they cannot be read, or lack it."""
        with suppress(DataError):
            present = self.rows.present(columns, {column.name for column in columns} - {each.name for each in self.observed})
            if name in {column.name for column in present}:
                return len(pc.unique(self.rows.convert(present, [name])[name]))
        return 0


@dataclass(frozen=True)
class Preview:
    """Findings in the first rows of a dataset's files.

    Attributes:
        n_files: files looked at.
        columns: of the dataset, as far as these rows tell; empty where samples are files, or no file is sound.
        faults: every one with what to do.
        heads: of the files that can be cut into rows.
    """

    n_files: int
    columns: Sequence[Column]
    faults: Sequence[DataError]
    heads: Sequence[Head]


def preview(source: Source, spec: DatasetSpec) -> Preview:
    """Look at the first rows of the oldest and the newest files; nothing is registered.

    Raises ``StorageError`` for a missing root, ``OSError`` for one that cannot be read.
    """
    units = find_units(source, spec)
    chosen = units if len(units) <= 2 * _UNITS else [*units[:_UNITS], *units[-_UNITS:]]
    faults: list[DataError] = []
    heads: list[Head] = []
    n_files = 0
    for unit in chosen:
        try:
            with contained(unit):
                members = resolve_members(source, spec, [unit])
        except DataError as error:
            faults.append(_with_remedy(error, "correct it or remove it"))
            continue
        for path in members.paths[:_FILES]:
            n_files += 1
            try:
                with contained(path):
                    if isinstance(spec.format, FilesFormat):
                        file_piece(spec, spec.format, members.only([path]), source, lambda *_: None, as_integers=None)
                    else:
                        heads.append(_head(source, spec, path, members))
            except DataError as error:
                faults.append(_with_remedy(error, "correct the file or remove it"))
    columns, differing = _resolved(spec, heads)
    if columns:
        for head in heads:
            differs = [differing[path] for path in [head.loaded.path] if path in differing]
            faults += list(_row_faults(spec, columns, head)) or differs
        faults += _missing_columns(spec, columns, heads[0].loaded.path)
    else:
        faults += differing.values()
    return Preview(n_files, columns, faults, heads)


def _head(source: Source, spec: DatasetSpec, path: str, members: Members) -> Head:
    assert spec.format.kind != "files"  # noqa: S101 - narrows the type
    loaded = head_of(source, spec.format, path)
    with contained_in_memory(path):
        rows = row_format(spec.format).open(loaded)
        return Head(loaded, rows, rows.find_columns(), members.times)


def _resolved(spec: DatasetSpec, heads: Sequence[Head]) -> tuple[Sequence[Column], Mapping[str, DataError]]:
    """Columns of the files that agree, and the faults of the others by path."""
    differing: dict[str, DataError] = {}
    while sound := [(each.loaded.path, each.observed) for each in heads if each.loaded.path not in differing]:
        try:
            return resolve_columns(spec, sound), differing
        except DataError as error:
            differing[error.file] = _with_remedy(error, "correct the file, or name the dtype under `format.columns`")
    return (), differing


def _missing_columns(spec: DatasetSpec, columns: Sequence[Column], path: str) -> Iterator[DataError]:
    names = [column.name for column in columns]
    for name in sorted(non_feature_columns(spec) - {*names}):
        message = f"the file has no such column; it has {', '.join(names)}"
        yield _with_remedy(DataError(path, message, column=name), f"correct {_role(spec, name)} of dataset {spec.name}")


def _row_faults(spec: DatasetSpec, columns: Sequence[Column], head: Head) -> Iterator[DataError]:
    """Every column with a bad cell, then a label or a time that cannot be used."""
    path, bad = head.loaded.path, set[str]()
    roles = non_feature_columns(spec) & {column.name for column in columns}
    while True:
        typed = [Column(column.name, "string") if column.name in bad else column for column in columns]
        try:
            with contained_in_memory(path):
                present = head.rows.present(typed, spec.absent.keys())
                parsed = head.rows.convert(present, roles & {column.name for column in present})
            break
        except DataError as error:
            yield _with_remedy(error, "correct the file, or name the dtype under `format.columns`")
            # In CSV every cell can be read as text, so the other columns can be looked at.
            if error.column is None or error.column in bad or not isinstance(spec.format, CsvFormat):
                return
            bad.add(error.column)
    yield from _role_faults(spec, head, {name: values for name, values in parsed.items() if name not in bad})


def _role_faults(spec: DatasetSpec, head: Head, parsed: Mapping[str, pa.Array]) -> Iterator[DataError]:
    label = spec.label.from_.column if spec.label is not None and spec.label.from_.source == "column" else None
    if label is not None and label in parsed:
        try:
            labels_of(spec, parsed, head.loaded.path)
        except DataError as error:
            yield _with_remedy(error, f"correct the file, or `label` of dataset {spec.name}")
    if spec.time.source != "column" or spec.time.column in parsed:
        try:
            times_of(spec, head.loaded, parsed, len(head.rows), head.times)
        except DataError as error:
            yield _with_remedy(error, f"correct the file, or `time` of dataset {spec.name}")


def _role(spec: DatasetSpec, column: str) -> str:
    if spec.time.source == "column" and spec.time.column == column:
        return "`time.column`"
    return "`attributes`" if column in spec.attributes else "`label.from.column`"


def _with_remedy(error: DataError, remedy: str) -> DataError:
    if isinstance(error, UnexpectedFault):
        return error
    return DataError(error.file, f"{error.message}; {remedy}", row=error.row, column=error.column)
