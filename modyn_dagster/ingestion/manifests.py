"""Manifests: a CSV file with a column ``file``, and where the dataset says so times and labels of those files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.csv import CsvFile
from modyn_dagster.ingestion.formats.csv_rows import find_rows
from modyn_dagster.ingestion.source import LoadedFile, Source
from modyn_dagster.ingestion.times import parse_times
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
