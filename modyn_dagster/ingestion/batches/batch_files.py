"""Index and shard of a new batch: written under temporary names, published in the transaction that commits the batch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastpath.array_types import ByteArray, Int64Array
from fastpath.format.index_file import Extents, IndexedFile, write_index_to
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.batch_index import index_path, shard_path
from modyn_dagster.incremental_fsync import HashingFile
from modyn_dagster.ingestion.batches.assemble import Assembled
from modyn_dagster.ingestion.sources.files import FileVersion
from modyn_dagster.storage import StagedFile, atomic_write, sweep_unfinished
from modyn_dagster.values.digest import new_hash


@contextmanager
def staged_shard(home: Path, dataset: str, ordinal: int, parts: Iterable[ByteArray] | None) -> Iterator[StagedFile | None]:
    """Write the shard of a batch, if it has one, before the transaction that publishes it. Unpublished, it is removed at the end.

    No lock is held meanwhile. Raises ``WriteFailed``, and the errors of computing the parts.
    """
    if parts is None:
        yield None
        return
    shard = StagedFile(home / shard_path(dataset, ordinal))
    try:
        for part in parts:
            shard.write(part.data)
        shard.finish()
        yield shard
    finally:
        shard.discard()


@dataclass(frozen=True)
class BatchContent:
    """Content of a batch, ready to be committed.

    Attributes:
        columns: of the dataset, by this batch; empty where samples are files.
        assembled: the samples in order.
        files: all files read, by path; small files once they are in the shard.
        paths: of the files with samples.
    """

    columns: Sequence[Column]
    assembled: Assembled
    files: Mapping[str, FileVersion]
    paths: Sequence[str]


def sweep_remains(home: Path, dataset: str, shards: Mapping[int, StagedFile | None]) -> None:
    """Remove the remains of killed writers of some batches, whose rows are locked, by ordinal; their staged shards stay."""
    staged = [shard for shard in shards.values() if shard is not None]
    sweep_unfinished([*(home / index_path(dataset, ordinal) for ordinal in shards), *(shard.path for shard in staged)], staged)


def publish_files(
    home: Path, dataset: str, ordinal: int, content: BatchContent, labels: Int64Array | None, shard: StagedFile | None
) -> str:
    """Publish the shard of a batch, whose row is locked, and write its index; returns the checksum of the index.

    ``sweep_remains`` comes before.
    """
    if shard is not None:
        shard.publish(swept=True)
    with atomic_write(home / index_path(dataset, ordinal)) as out:
        write_batch_index(out, content, labels, shard)
    return out.checksum


def write_batch_index(out: HashingFile, content: BatchContent, labels: Int64Array | None, shard: StagedFile | None) -> None:
    """Write the index of a batch to a binary file; its shard is finished."""
    assembled = content.assembled
    files = [IndexedFile(path, content.files[path].state.size, content.files[path].checksum) for path in assembled.paths]
    if shard is not None:
        files.append(IndexedFile(None, shard.size, shard.checksum))
    extents = Extents.of(assembled.file, assembled.offsets, assembled.lengths)
    write_index_to(out, assembled.times, labels, assembled.targets, extents, files)


def content_checksum(files: Mapping[str, FileVersion]) -> str:
    """Digest of the paths and checksums of all files read."""
    digest = new_hash()
    for path in sorted(files):
        digest.update(f"{path}\0{files[path].checksum}\n".encode())
    return digest.hexdigest()
