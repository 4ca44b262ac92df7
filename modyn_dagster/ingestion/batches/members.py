"""Members of a batch: one file, the files of a directory, or those that a manifest (a CSV file with a column ``file``) names."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

import numpy as np
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.csv import CsvFile
from modyn_dagster.ingestion.formats.csv_rows import find_rows
from modyn_dagster.ingestion.formats.times import parse_times
from modyn_dagster.ingestion.sources.files import LoadedFile, natural_key
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.dataset import DatasetSpec

FILE_COLUMN: Final = "file"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says.

    Attributes:
        loaded: the manifest itself.
        paths: the files it names, in its order.
        times: by path; empty where times come from elsewhere.
        labels: texts by path; empty where labels come from elsewhere.
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
        dtypes = {found.name: found.settled() for found in table.find_columns()}
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


def _number_or_text(found: Column) -> Column:
    return found if found.dtype in ("int64", "float64") else Column(found.name, "string")


def _paths(source: Source, manifest: str, values: pa.Array) -> list[str]:
    seen: dict[str, int] = {}
    for row, text in enumerate(values.to_pylist(), 1):
        pure = PurePosixPath(text)
        path = str(pure)
        problem = ""
        if not text or pure.is_absolute() or ".." in pure.parts:
            problem = "is not a path below the dataset's root"
        elif path in seen:
            problem = f"is listed twice, first in row {seen[path]}"
        else:
            problem = _refusal(source, path)
        if problem:
            raise DataError(manifest, f"{text!r} {problem}", row=row, column=FILE_COLUMN)
        seen[path] = row
    return list(seen)


def _refusal(source: Source, path: str) -> str:
    """Why a file cannot be read, empty when it can."""
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


_UNFINISHED: Final = (".tmp", ".part", ".crdownload", "~")


@dataclass(frozen=True)
class Members:
    """The files of a batch.

    Attributes:
        paths: files that hold samples, in natural order.
        times: by path, where a manifest gives them.
        labels: texts by path, where a manifest gives them.
        manifests: as they were read.
    """

    paths: list[str]
    times: Mapping[str, np.datetime64] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    manifests: Sequence[LoadedFile] = ()

    def restricted(self, paths: Sequence[str]) -> "Members":
        """Only these files. Raises ``DataError`` for one that is no longer there."""
        known = set(self.paths)
        for path in paths:
            if path not in known:
                raise DataError(path, "is no longer part of the directory or manifest it was imported from")
        return replace(self, paths=sorted(paths, key=natural_key))


def resolve_members(source: Source, spec: DatasetSpec, units: Sequence[str]) -> Members:
    """The files of the units that a batch was announced by: files, directories or manifests, as the spec says.

    Raises ``DataError`` for a directory without samples, a bad manifest, or a file that two manifests name.
    """
    if spec.batches.kind == "file":
        return Members(sorted(units, key=natural_key))
    if spec.batches.kind == "directory":
        found = [path for unit in units for path in _samples_below(source, spec, unit)]
        return Members(sorted(found, key=natural_key))
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
    """The files of a batch; a slice of a bulk import takes only some files of its directories or manifests."""
    members = resolve_members(source, spec, announced["paths"])
    return members if "files" not in announced else members.restricted(announced["files"])


def involved_paths(source: Source, spec: DatasetSpec, units: Sequence[str]) -> list[str]:
    """Every file that these units may fail for, as far as can be told: whose change is worth another try."""
    involved = set(units) if spec.batches.kind != "directory" else set()
    # A manifest or directory that cannot be read is at fault itself.
    with suppress(DataError):
        if spec.batches.kind == "directory":
            involved |= {path for unit in units for path in source.folder(unit)}
        elif spec.batches.kind == "manifest":
            paths = resolve_members(source, spec, units).paths
            involved |= {*paths, *(sidecar for path in paths if (sidecar := sidecar_of(spec, path)))}
    return sorted(involved or units, key=natural_key)


def is_unfinished(path: str) -> bool:
    """Whether a name says that the file is not meant to be read: hidden, or with a temporary suffix."""
    parts = path.split("/")
    return any(part.startswith(".") for part in parts) or parts[-1].endswith(_UNFINISHED)


def sidecar_of(spec: DatasetSpec, path: str) -> str | None:
    """The file with the label of a sample, where the dataset has such files."""
    if spec.label is None or spec.label.from_.source != "sidecar":
        return None
    return str(PurePosixPath(path).with_suffix(spec.label.from_.suffix))


def _samples_below(source: Source, spec: DatasetSpec, directory: str) -> list[str]:
    marker = spec.batches.ready if spec.batches.kind == "directory" else ""
    found = [path for path in source.folder(directory) if PurePosixPath(path).name != marker and not is_unfinished(path)]
    if spec.format.kind == "files":
        found = [path for path in found if path.endswith(tuple(spec.format.suffixes))]
    if not found:
        raise DataError(directory, "the directory holds no files of samples")
    return found
