"""Index and shard of a new batch: written under temporary names, published in the transaction that commits the batch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpath.array_types import ByteArray, Int64Array, TimeArray
from fastpath.format.blocks import BlockHasher
from fastpath.format.index_file import Extents, IndexedFile, write_index_to
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.batch_index import index_path, shard_path
from modyn_dagster.ingestion.batches.assemble import Assembled
from modyn_dagster.ingestion.sources.files import FileVersion
from modyn_dagster.storage import StagedFile, atomic_write, sweep_unfinished
from modyn_dagster.values.digest import new_hash


def write_index(
    path: Path,
    times: TimeArray,
    labels: Int64Array | None,
    targets: npt.NDArray[np.float64] | None,
    extents: Extents,
    files: Sequence[IndexedFile],
) -> str:
    """Write an index atomically; returns its checksum."""
    with atomic_write(path) as out:
        write_index_to(out, times, labels, targets, extents, files)
    return out.checksum


class StagedShard(StagedFile):
    """A shard that is written and not yet published.

    Attributes:
        hasher: computes the digests of its blocks.
        indexed: its entry in the index, after ``finish``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.hasher = BlockHasher()

    def write(self, data: bytes | memoryview) -> None:
        """Append. Raises ``WriteFailed``."""
        super().write(data)
        self.hasher.update(data)

    def finish(self) -> None:
        """Make everything written durable. Raises ``WriteFailed``."""
        super().finish()
        self.indexed = IndexedFile(None, self.size, self.checksum, self.hasher.digests().tobytes())


@contextmanager
def staged_shard(home: Path, dataset: str, ordinal: int, parts: Iterable[ByteArray] | None) -> Iterator[StagedShard | None]:
    """Write the shard of a batch, if it has one, before the transaction that publishes it. Unpublished, it is removed at the end.

    No lock is held meanwhile. Raises ``WriteFailed``, and the errors of computing the parts.
    """
    if parts is None:
        yield None
        return
    shard = StagedShard(home / shard_path(dataset, ordinal))
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
        layout: columns of the rows, in their order; empty where samples are files.
    """

    columns: Sequence[Column]
    assembled: Assembled
    files: Mapping[str, FileVersion]
    paths: Sequence[str]
    layout: tuple[str, ...] = ()


def sweep_remains(home: Path, dataset: str, shards: Mapping[int, StagedFile | None]) -> None:
    """Remove the remains of killed writers of some batches, whose rows are locked, by ordinal; their staged shards stay."""
    staged = [shard for shard in shards.values() if shard is not None]
    sweep_unfinished([*(home / index_path(dataset, ordinal) for ordinal in shards), *(shard.path for shard in staged)], staged)


def publish_files(
    home: Path, dataset: str, ordinal: int, content: BatchContent, labels: Int64Array | None, shard: StagedShard | None
) -> str:
    """Publish the shard of a batch, whose row is locked, and write its index; returns the checksum of the index.

    ``sweep_remains`` comes before.
    """
    if shard is not None:
        shard.publish(swept=True)
    assembled = content.assembled
    return write_index(
        home / index_path(dataset, ordinal),
        assembled.times,
        labels,
        assembled.targets,
        extents_of(content),
        indexed_files(content, shard),
    )


def extents_of(content: BatchContent) -> Extents:
    """Places of the samples of a batch."""
    assembled = content.assembled
    return Extents.of(assembled.file, assembled.offsets, assembled.lengths)


def indexed_files(content: BatchContent, shard: StagedShard | None) -> list[IndexedFile]:
    """Entries of the index for the files of a batch that are read in place, and for its finished shard."""
    versions = [(path, content.files[path]) for path in content.assembled.paths]
    files = [IndexedFile(path, version.state.size, version.checksum, version.blocks) for path, version in versions]
    return files if shard is None else [*files, shard.indexed]


def content_checksum(files: Mapping[str, FileVersion]) -> str:
    """Digest of the paths and checksums of all files read."""
    digest = new_hash()
    for path in sorted(files):
        digest.update(f"{path}\0{files[path].checksum}\n".encode())
    return digest.hexdigest()
