"""Members of a batch: one file, the files of a directory, or those listed by a manifest (a CSV file with a column ``file``)."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.containment import contained
from modyn_dagster.ingestion.formats.csv import CsvFile
from modyn_dagster.ingestion.formats.csv_rows import find_rows
from modyn_dagster.ingestion.formats.times import parse_times
from modyn_dagster.ingestion.sources.files import NOT_TEXT, LoadedFile, natural_key
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.dataset import DatasetSpec

FILE_COLUMN: Final = "file"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Parsed manifest.

    Attributes:
        loaded: the file of the manifest.
        paths: the listed files, in the order of the rows.
        times: by path; empty unless the spec takes times from manifests.
        labels: texts by path; empty unless the spec takes labels from manifests.
    """

    loaded: LoadedFile
    paths: Sequence[str]
    times: Mapping[str, np.datetime64]
    labels: Mapping[str, str]


def read_manifest(source: Source, spec: DatasetSpec, path: str) -> Manifest:
    """Read and check a manifest. Raises ``DataError`` naming its row and column."""
    loaded = source.load(path)
    rows = find_rows(path, loaded.data, ",")
    table = CsvFile(rows)
    texts = {name: Column(name, "string") for name in rows.names}
    _require(path, rows.names, FILE_COLUMN)
    paths = _paths(source, path, table.convert(list(texts.values()), [FILE_COLUMN])[FILE_COLUMN])
    times: Mapping[str, np.datetime64] = {}
    labels: Mapping[str, str] = {}
    if spec.time.source == "manifest":
        _require(path, rows.names, spec.time.column)
        dtypes = {column.name: column.resolved() for column in table.find_columns()}
        chosen = texts if spec.time.format is not None else texts | {spec.time.column: _number_or_text(dtypes[spec.time.column])}
        values = table.convert(list(chosen.values()), [spec.time.column])[spec.time.column]
        read = parse_times(values, format=spec.time.format, unit=spec.time.unit, file=path, column=spec.time.column)
        times = dict(zip(paths, read))
    if spec.label is not None and spec.label.from_.source == "manifest":
        column = spec.label.from_.column
        _require(path, rows.names, column)
        values = table.convert(list(texts.values()), [column])[column]
        labels = dict(zip(paths, _labels(path, column, values)))
    return Manifest(loaded, paths, times, labels)


def _require(path: str, names: Sequence[str], column: str) -> None:
    if column not in names:
        raise DataError(path, f"the manifest has no such column; it has {', '.join(names)}", column=column)


def _number_or_text(column: Column) -> Column:
    return column if column.dtype in ("int64", "float64") else Column(column.name, "string")


def _paths(source: Source, manifest: str, values: pa.Array) -> list[str]:
    rows: dict[str, int] = {}
    for row, text in enumerate(values.to_pylist(), 1):
        pure = PurePosixPath(text)
        path = str(pure)
        problem = ""
        if not text or pure.is_absolute() or ".." in pure.parts:
            problem = "is not a path below the dataset's root"
        elif path in rows:
            problem = f"is listed twice, first in row {rows[path]}"
        else:
            problem = _refusal(source, path)
        if problem:
            raise DataError(manifest, f"{text!r} {problem}", row=row, column=FILE_COLUMN)
        rows[path] = row
    return list(rows)


def _refusal(source: Source, path: str) -> str:
    """Reason for which a file cannot be read; empty if it can."""
    try:
        source.state(path)
    except DataError as error:
        return error.message
    return ""


def _labels(manifest: str, column: str, values: pa.Array) -> list[str]:
    texts = [text.strip() for text in values.to_pylist()]
    if "" in texts:
        raise DataError(manifest, "the label is missing", row=texts.index("") + 1, column=column)
    return texts


#: Suffixes of files that a writer has not finished.
_UNFINISHED: Final = (".tmp", ".part", ".crdownload", "~")


@dataclass(frozen=True)
class Members:
    """Files of a batch.

    Attributes:
        paths: files that hold samples, in natural order.
        times: by path, if a manifest has them.
        labels: texts by path, if a manifest has them.
        manifests: the files that were read for them.
    """

    paths: list[str]
    times: Mapping[str, np.datetime64] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    manifests: Sequence[LoadedFile] = ()

    def only(self, paths: Sequence[str]) -> "Members":
        """Only some of the files. Raises ``DataError`` for one that is no longer a member."""
        members = set(self.paths)
        for path in paths:
            if path not in members:
                raise DataError(path, "is no longer part of the directory or manifest it was imported from")
        return replace(self, paths=sorted(paths, key=natural_key))


def resolve_members(source: Source, spec: DatasetSpec, units: Sequence[str]) -> Members:
    """Resolve the units (files, directories or manifests, by the spec) that announced a batch to files.

    Raises ``DataError`` for a directory without samples, a bad manifest, or a file that two manifests list.
    """
    if spec.batches.kind == "file":
        return Members(sorted(units, key=natural_key))
    if spec.batches.kind == "directory":
        samples = [path for unit in units for path in _samples_below(source, spec, unit)]
        return Members(sorted(samples, key=natural_key))
    times: dict[str, np.datetime64] = {}
    labels: dict[str, str] = {}
    paths: dict[str, str] = {}
    manifests = [read_manifest(source, spec, unit) for unit in units]
    for manifest in manifests:
        for path in manifest.paths:
            if path in paths:
                raise DataError(manifest.loaded.path, f"{path!r} is listed by {paths[path]!r} too")
            paths[path] = manifest.loaded.path
        times |= manifest.times
        labels |= manifest.labels
    return Members(sorted(paths, key=natural_key), times, labels, [manifest.loaded for manifest in manifests])


def members_of(source: Source, spec: DatasetSpec, announced: Mapping[str, Any]) -> Members:
    """Files of a registered batch. A slice of a bulk import has only some files of its directories or manifests."""
    members = resolve_members(source, spec, announced["paths"])
    return members if "files" not in announced else members.only(announced["files"])


def involved_paths(source: Source, spec: DatasetSpec, units: Sequence[str]) -> list[str]:
    """All files whose errors may fail these units, so that a change of one is worth another attempt."""
    involved = set(units) if spec.batches.kind != "directory" else set()
    # An unreadable manifest or directory is at fault itself.
    with suppress(DataError), contained(units[0]):
        if spec.batches.kind == "directory":
            involved |= {path for unit in units for path in source.folder(unit)}
        elif spec.batches.kind == "manifest":
            paths = resolve_members(source, spec, units).paths
            involved |= {*paths, *(sidecar for path in paths if (sidecar := sidecar_of(spec, path)))}
    return sorted(involved or units, key=natural_key)


def is_unfinished(path: str) -> bool:
    """Test a path for a hidden part or a temporary suffix, which marks a file as not ready to read."""
    parts = path.removeprefix(NOT_TEXT).split("/")
    return any(part.startswith(".") for part in parts) or parts[-1].endswith(_UNFINISHED)


def sidecar_of(spec: DatasetSpec, path: str) -> str | None:
    """File with the label of a sample; None unless the dataset has sidecar files."""
    if spec.label is None or spec.label.from_.source != "sidecar":
        return None
    return str(PurePosixPath(path).with_suffix(spec.label.from_.suffix))


def _samples_below(source: Source, spec: DatasetSpec, directory: str) -> list[str]:
    marker = spec.batches.ready if spec.batches.kind == "directory" else ""
    paths = [path for path in source.folder(directory) if PurePosixPath(path).name != marker and not is_unfinished(path)]
    if spec.format.kind == "files":
        paths = [path for path in paths if path.endswith(tuple(spec.format.suffixes))]
    if not paths:
        raise DataError(directory, "the directory holds no files of samples")
    return paths
