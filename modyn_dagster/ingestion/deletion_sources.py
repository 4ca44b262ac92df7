"""The keys of the samples that came from one source file."""

import hashlib
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from fastpath.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow, FileFacts
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.source_files import batches_of_file, source_files
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array
from modyn_dagster.ingestion.order import natural_key
from modyn_dagster.ingestion.places import rewrite_of, shard_of
from modyn_dagster.ingestion.purge_shard import mapped_bytes
from modyn_dagster.ingestion.storage_errors import storage_errors
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.storage import verify_checksum


def keys_of_source_file(conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, path: str) -> KeyArray:
    """Keys of all samples of a file (``path`` relative to the dataset's root, as it was ingested), ascending.

    Files that are read where they lie are named by the index; a small file that was packed is found by its bytes.

    Raises ``DataError`` when no batch has ingested the file, it holds no samples, or they cannot be told from those of other
    files that were copied to the same shard.
    """
    batches = batches_of_file(conn, dataset.id, path)
    if not batches:
        raise DataError(path, f"no batch of dataset {dataset.name} has ingested this file; name it as it lies below the root")
    found = [keys_of(batch.ordinal, _positions(conn, home, spec, dataset, batch, path)) for batch in batches]
    keys: KeyArray = np.concatenate(found)
    if len(keys) == 0:
        raise DataError(
            path, f"dataset {dataset.name} has read this file, but none of its samples lies in it, or they were purged"
        )
    return keys


def _positions(conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, batch: BatchRow, path: str) -> Int64Array:
    with storage_errors():
        index = BatchIndex.open(home / str(batch.index_path), batch.index_checksum)
    file, offsets, lengths = index.locate(np.arange(index.n))
    names = [each.path for each in index.files]
    if path in names:
        return np.flatnonzero(file == names.index(path))
    packed = np.flatnonzero(file == names.index(None)) if None in names else np.empty(0, dtype=np.int64)
    recorded = source_files(conn, batch.id)
    if spec.format.kind != "files":
        return _all_rows(spec, batch, recorded, path, packed)
    shard = home / shard_of(dataset.name, batch.ordinal, rewrite_of(str(batch.index_path)))
    [mine] = [each for each in recorded if each.path == path]
    candidates: Int64Array = packed[lengths[packed] == mine.size]
    if len(candidates):
        verify_checksum(shard, index.files[names.index(None)].checksum)
        content = mapped_bytes(shard)
        same = [_checksum(content[offsets[i] : offsets[i] + lengths[i]]) == mine.checksum for i in candidates]
        candidates = candidates[np.array(same, dtype=bool)]
    return _mine(batch, index, recorded, mine, candidates)


def _all_rows(spec: DatasetSpec, batch: BatchRow, recorded: list[FileFacts], path: str, packed: Int64Array) -> Int64Array:
    """Rows that were converted or copied do not say which file they came from: only one file can be told."""
    manifests = batch.source["paths"] if spec.batches.kind == "manifest" else []
    others = [each.path for each in recorded if each.path != path and each.path not in manifests]
    if path in manifests:
        return packed[:0]
    if others:
        raise DataError(
            path,
            f"its rows were copied to one shard with those of {len(others)} other files of batch {batch.partition_key!r} and "
            "cannot be told apart; delete them by --keys or --where",
        )
    return packed


def _mine(batch: BatchRow, index: BatchIndex, recorded: list[FileFacts], mine: FileFacts, positions: Int64Array) -> Int64Array:
    """Of samples with the bytes of a file, the one that is the file: others may have the same bytes."""
    twins = sorted((each.path for each in recorded if each.checksum == mine.checksum), key=natural_key)
    if len(twins) == 1 or len(positions) == 0:
        return positions
    # Equal times stand in the order of their paths.
    if len(twins) != len(positions) or len(np.unique(index.times[positions])) > 1:
        keys = ", ".join(map(str, keys_of(batch.ordinal, positions[:5]).tolist()))
        problem = f"{len(twins)} files of its batch hold the same bytes and cannot be told apart"
        raise DataError(mine.path, f"{problem}; delete by --keys which of {keys} is meant")
    return positions[[twins.index(mine.path)]]


def _checksum(content: ByteArray) -> str:
    return hashlib.blake2b(content.tobytes(), digest_size=16).hexdigest()
