"""Keys to delete: from a list of keys or ids, a file, a condition, or one source file."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import numpy as np
import sqlalchemy as sa

from fastpath.array_types import Int64Array
from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow, FileFacts, batches_of_file, source_files
from modyn_dagster.catalog.datasets import DatasetRow, sample
from modyn_dagster.data.batch_index import open_index, rewrite_number, shard_path
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.deletion.fields import fields_of
from modyn_dagster.ingestion.deletion.named import END, keys_of_ids_text, keys_of_text
from modyn_dagster.ingestion.deletion.shard import mapped_bytes
from modyn_dagster.ingestion.deletion.where import parse_where
from modyn_dagster.ingestion.sources.files import natural_key
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.storage import verify_checksum
from modyn_dagster.values.digest import bytes_digest

#: Ways to choose samples.
Choice = Literal["keys", "ids", "file", "source_file", "where"]

_FETCHED: Final = 100_000


def chosen_keys(conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, by: Choice, text: str) -> KeyArray:
    """Keys that a person has chosen: by ``keys``, ``ids``, a ``file`` of keys, a ``source_file``, or a condition (``where``).

    Raises the errors of the function for each.
    """
    match by:
        case "keys":
            return keys_of_text(conn, dataset, text)
        case "ids":
            return keys_of_ids_text(conn, spec, dataset, text)
        case "file":
            return keys_of_file(Path(text))
        case "source_file":
            return keys_of_source_file(conn, home, spec, dataset, text)
        case "where":
            return keys_where(conn, spec, dataset, text)


def keys_of_file(path: Path) -> KeyArray:
    """Keys of a text file, one per line, or of the column ``key`` of a CSV file, in the order of the file.

    Raises ``DataError`` for a row without a key.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return np.fromiter(_keys_in_rows(path, csv.reader(file)), dtype=np.uint64)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(str(path), f"cannot be read: {error}") from error


def keys_where(conn: sa.Connection, spec: DatasetSpec, dataset: DatasetRow, text: str) -> KeyArray:
    """Keys of the samples that meet a condition (``parse_where``), ascending."""
    condition = parse_where(text, fields_of(spec, dataset))
    statement = sa.select(sample.c.key).where(sample.c.dataset_id == dataset.id, condition)
    result = conn.execution_options(yield_per=_FETCHED).execute(statement).scalars()
    chunks = [np.array(chunk, dtype=np.uint64) for chunk in result.partitions()]
    return np.sort(np.concatenate([np.empty(0, np.uint64), *chunks]))


def _keys_in_rows(path: Path, lines: Iterable[list[str]]) -> Iterator[int]:
    rows = ((number, row) for number, row in enumerate(lines, 1) if any(cell.strip() for cell in row))
    _, first = next(rows, (0, [""]))
    header, column = [cell.strip() for cell in first], 0
    if "key" in header:
        column = header.index("key")
    elif len(header) > 1 or not _is_key(header[0]):
        raise DataError(str(path), f"must have one key per line, or a column 'key'; it begins with {header}")
    else:
        yield int(header[0])
    for number, row in rows:
        text = row[column].strip() if column < len(row) else ""
        if not _is_key(text):
            raise DataError(str(path), f"must be a key, a whole number, found {text!r}", row=number, column="key")
        yield int(text)


def _is_key(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < END


def keys_of_source_file(conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, path: str) -> KeyArray:
    """Keys of all samples of a file, ascending.

    The index names files that are read in place. A small file that was packed is identified by its bytes.

    Args:
        conn: of the ``modyn`` database.
        home: folder with the indexes and shards.
        spec: of the dataset.
        dataset: its row.
        path: of the file, relative to the dataset's root, as it was ingested.

    Raises:
        DataError: no batch has ingested the file, it has no samples, or they cannot be distinguished from those of other files
            in the same shard.
    """
    batches = batches_of_file(conn, dataset.id, path)
    if not batches:
        raise DataError(path, f"no batch of dataset {dataset.name} has ingested this file; give its path relative to the root")
    parts = [keys_of(batch.ordinal, _positions(conn, home, spec, dataset, batch, path)) for batch in batches]
    keys: KeyArray = np.concatenate(parts)
    if len(keys) == 0:
        raise DataError(path, f"dataset {dataset.name} has read this file, but it has no samples, or they were purged")
    return keys


def _positions(conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, batch: BatchRow, path: str) -> Int64Array:
    index = open_index(home, batch)
    file, offsets, lengths = index.locate(np.arange(index.n))
    names = [indexed.path for indexed in index.files]
    if path in names:
        return np.flatnonzero(file == names.index(path))
    packed = np.flatnonzero(file == names.index(None)) if None in names else np.empty(0, dtype=np.int64)
    recorded = source_files(conn, batch.id)
    if spec.format.kind != "files":
        return _all_rows(spec, batch, recorded, path, packed)
    shard = home / shard_path(dataset.name, batch.ordinal, rewrite_number(str(batch.index_path)))
    [record] = [other for other in recorded if other.path == path]
    candidates: Int64Array = packed[lengths[packed] == record.size]
    if len(candidates):
        verify_checksum(shard, index.files[names.index(None)].checksum)
        content = mapped_bytes(shard)
        extents = [content[offsets[i] : offsets[i] + lengths[i]] for i in candidates]
        matches = [bytes_digest(extent.tobytes()) == record.checksum for extent in extents]
        candidates = candidates[np.array(matches, dtype=bool)]
    return _pick_file(batch, index, recorded, record, candidates)


def _all_rows(spec: DatasetSpec, batch: BatchRow, recorded: list[FileFacts], path: str, packed: Int64Array) -> Int64Array:
    """Positions of converted or copied rows. They do not record their file, so the batch must have only one."""
    manifests = batch.source["paths"] if spec.batches.kind == "manifest" else []
    others = [other.path for other in recorded if other.path != path and other.path not in manifests]
    if path in manifests:
        return packed[:0]
    if others:
        raise DataError(
            path,
            f"its rows were copied to one shard with those of {len(others)} other files of batch {batch.partition_key!r} and "
            "cannot be distinguished; delete them by --keys or --where",
        )
    return packed


def _pick_file(
    batch: BatchRow, index: BatchIndex, recorded: list[FileFacts], record: FileFacts, positions: Int64Array
) -> Int64Array:
    """Position of a file among the samples with its bytes, which other files may share."""
    identical = sorted((other.path for other in recorded if other.checksum == record.checksum), key=natural_key)
    if len(identical) == 1 or len(positions) == 0:
        return positions
    # Samples of equal times are in the order of their paths.
    if len(identical) != len(positions) or len(np.unique(index.times[positions])) > 1:
        keys = ", ".join(map(str, keys_of(batch.ordinal, positions[:5]).tolist()))
        problem = f"{len(identical)} files of its batch have the same bytes and cannot be distinguished"
        raise DataError(record.path, f"{problem}; delete one of the keys {keys} by --keys")
    return positions[[identical.index(record.path)]]
