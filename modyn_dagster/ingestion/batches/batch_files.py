"""Index and shard of a new batch: written under temporary names, published in the transaction that commits the batch."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastpath.array_types import TimeArray
from fastpath.format.index_file import Extents, IndexedFile, write_index_to
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.arrow_rows import ByteArray, Int64Array
from modyn_dagster.data.batch_index import index_of, shard_of
from modyn_dagster.ingestion.batches.assemble import Assembled
from modyn_dagster.ingestion.sources.files import FileVersion
from modyn_dagster.storage import StagedFile, atomic_write, sweep_unfinished


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


@contextmanager
def staged_shard(home: Path, dataset: str, ordinal: int, parts: Iterable[ByteArray] | None) -> Iterator[StagedFile | None]:
    """Write a batch's shard, if it has one, before the transaction that gives it its name; gone after the block otherwise.

    Nobody waits for a lock meanwhile. Raises what making the parts raises, and ``WriteFailed``.
    """
    if parts is None:
        yield None
        return
    shard = StagedFile(home / shard_of(dataset, ordinal))
    try:
        for part in parts:
            shard.write(part.data)
        shard.finish()
        yield shard
    finally:
        shard.discard()


@dataclass(frozen=True)
class Content:
    """A batch ready to be committed.

    Attributes:
        columns: of the dataset, as the batch shows them; empty where samples are files.
        assembled: the samples in order.
        files: everything that was read, by path; small files once they are in the shard.
        paths: the files that hold samples.
    """

    columns: Sequence[Column]
    assembled: Assembled
    files: Mapping[str, FileVersion]
    paths: Sequence[str]


def write_files(
    home: Path, dataset: str, ordinal: int, content: Content, labels: Int64Array | None, shard: StagedFile | None
) -> str:
    """Give the shard of a batch, whose row is locked, its name, and write the index; returns the checksum of the index."""
    assembled = content.assembled
    files = [IndexedFile(path, content.files[path].state.size, content.files[path].checksum) for path in assembled.paths]
    if shard is not None:
        shard.publish()
        files.append(IndexedFile(None, shard.size, shard.checksum))
    index = home / index_of(dataset, ordinal)
    sweep_unfinished(index)
    extents = Extents.of(assembled.file, assembled.offsets, assembled.lengths)
    return write_index(index, assembled.times, labels, assembled.targets, extents, files)


def content_checksum(files: Mapping[str, FileVersion]) -> str:
    """Digest of the paths and checksums of everything that was read."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(files):
        digest.update(f"{path}\0{files[path].checksum}\n".encode())
    return digest.hexdigest()
