"""One transaction: index and shard on disk, samples in Postgres, the batch closed. All of it or nothing."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchFacts, BatchRow, FileFacts, lock_batch, mark_ingested, owners_of
from modyn_dagster.catalog.datasets import DatasetRow, append_class_names, lock_dataset, set_columns
from modyn_dagster.catalog.moments import as_timestamp
from modyn_dagster.catalog.samples import SampleRows, copy_samples
from modyn_dagster.errors import DuplicateFile
from modyn_dagster.ingestion.assemble import Assembled
from modyn_dagster.ingestion.attributes import as_bytes
from modyn_dagster.ingestion.formats.base import Int64Array
from modyn_dagster.ingestion.index import Extents, IndexedFile, write_index
from modyn_dagster.ingestion.labels import ClassLabels
from modyn_dagster.ingestion.places import index_of, shard_of
from modyn_dagster.ingestion.read_batch import FileVersion, ReadBatch
from modyn_dagster.ingestion.split import TRAIN, side_of
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.storage import HashingFile, atomic_write, sweep_unfinished


@dataclass(frozen=True)
class Content:
    """A batch ready to be committed: what was read, in order, and the files that hold samples."""

    read: ReadBatch
    assembled: Assembled
    paths: Sequence[str]


def commit_batch(
    conn: sa.Connection, home: Path, spec: DatasetSpec, dataset: DatasetRow, batch: BatchRow, content: Content
) -> bool:
    """Ingest an open batch in the transaction of ``conn``.

    Returns False, with nothing done, when another process closed the batch or settled the dataset's columns since it was
    read: look again. Raises ``DuplicateFile`` when another batch has ingested one of the files.
    """
    assembled = content.assembled
    if _needs_lock(spec, dataset, assembled.labels):
        current = lock_dataset(conn, dataset.id)
        if current.columns != dataset.columns:
            return False
        dataset = current
    if lock_batch(conn, batch.id).state != "open":
        return False
    for path, owner in owners_of(conn, batch, content.paths).items():
        raise DuplicateFile(path, owner)
    if dataset.columns is None:
        set_columns(conn, dataset.id, content.read.columns)
    names = _class_names(conn, dataset, assembled.labels)
    labels = class_indices(assembled.labels, names)
    checksum = write_files(home, spec.name, batch.ordinal, content, labels)
    keys = keys_of(batch.ordinal, np.arange(len(assembled.times)))
    attributes = None if assembled.attributes is None else as_bytes(assembled.attributes)
    copy_samples(conn, dataset.id, SampleRows(keys, assembled.times, labels, assembled.targets, attributes))
    facts = _facts(spec, batch.ordinal, content, labels, names, checksum)
    mark_ingested(conn, batch, facts, _file_facts(content.read.files, set(assembled.paths)))
    return True


def write_files(home: Path, dataset: str, ordinal: int, content: Content, labels: Int64Array | None) -> str:
    """Write shard and index of a batch, whose row is locked; returns the checksum of the index."""
    index, shard = home / index_of(dataset, ordinal), home / shard_of(dataset, ordinal)
    for path in (index, shard):
        sweep_unfinished(path)
    assembled, versions = content.assembled, content.read.files
    files = [IndexedFile(path, versions[path].state.size, versions[path].checksum) for path in assembled.paths]
    if assembled.shard:
        with atomic_write(shard) as out:
            files.append(_write_shard(out, assembled))
    extents = Extents.of(assembled.file, assembled.offsets, assembled.lengths)
    return write_index(index, assembled.times, labels, assembled.targets, extents, files)


def class_indices(labels: ClassLabels | None, names: Sequence[str]) -> Int64Array | None:
    """Class indices ``int64[n]``: names by their place in ``names``, integers as they are."""
    if labels is None or isinstance(labels, np.ndarray):
        return labels
    found = pc.index_in(labels, value_set=pa.array(names, pa.string()))
    indices: Int64Array = found.cast(pa.int64()).to_numpy()
    return indices


def content_checksum(files: Mapping[str, FileVersion]) -> str:
    """Digest of the paths and checksums of everything that was read."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(f"{path}\0{files[path].checksum}\n".encode())
    return digest.hexdigest()


def _needs_lock(spec: DatasetSpec, dataset: DatasetRow, labels: ClassLabels | None) -> bool:
    """Whether the commit adds to the dataset, or has to see the files of every other batch."""
    is_new = isinstance(labels, pa.Array) and any(name not in dataset.class_names for name in pc.unique(labels).to_pylist())
    return dataset.columns is None or is_new or spec.batches.kind != "file"


def _class_names(conn: sa.Connection, dataset: DatasetRow, labels: ClassLabels | None) -> tuple[str, ...]:
    if not isinstance(labels, pa.Array):
        return dataset.class_names
    distinct: list[str] = pc.unique(labels).to_pylist()  # in order of first appearance
    new = [name for name in distinct if name not in dataset.class_names]
    return append_class_names(conn, dataset, new) if new else dataset.class_names


def _write_shard(out: HashingFile, assembled: Assembled) -> IndexedFile:
    for part in assembled.shard:
        out.write(part.data)
    return IndexedFile(None, out.tell(), out.checksum)


def _facts(
    spec: DatasetSpec, ordinal: int, content: Content, labels: Int64Array | None, names: Sequence[str], checksum: str
) -> BatchFacts:
    times = content.assembled.times
    train = side_of(keys_of(ordinal, np.arange(len(times))), spec.split) == TRAIN
    return BatchFacts(
        n_samples=len(times),
        n_train=int(train.sum()),
        time_min=as_timestamp(times[0]),
        time_max=as_timestamp(times[-1]),
        train_time_max=as_timestamp(times[train].max()) if train.any() else None,
        label_counts=_label_counts(labels, names),
        index_path=index_of(spec.name, ordinal),
        index_checksum=checksum,
        content_checksum=content_checksum(content.read.files),
    )


def _label_counts(labels: Int64Array | None, names: Sequence[str]) -> dict[str, int]:
    if labels is None:
        return {}
    values, counts = np.unique(labels, return_counts=True)
    return {names[value] if names else str(value): int(n) for value, n in zip(values, counts)}


def _file_facts(files: Mapping[str, FileVersion], in_place: set[str]) -> list[FileFacts]:
    return [
        FileFacts(path, version.state.size, version.state.mtime_ns if path in in_place else None, version.checksum)
        for path, version in files.items()
    ]
