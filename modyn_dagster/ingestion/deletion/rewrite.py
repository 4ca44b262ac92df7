"""The next pair of index and shard of a batch, without what is purged: written aside first, published when it is to count."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastpath.format.index import BatchIndex
from fastpath.format.index_file import IndexedFile, write_index_to
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.data.arrow_rows import Int64Array
from modyn_dagster.data.batch_index import index_of, rewrite_of, shard_of
from modyn_dagster.incremental_fsync import HashingFile
from modyn_dagster.ingestion.deletion import shard
from modyn_dagster.ingestion.deletion.shard import Ranges, ranges_of_strings, write_zeroed
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.storage import StagedFile, verify_checksum


class StagedIndex(NamedTuple):
    """An index that can be published: its path relative to the home folder, and its checksum."""

    path: str
    checksum: str


class Rewrite:
    """A context: what it staged and did not publish is gone after it."""

    def __init__(self, home: Path, spec: DatasetSpec, dataset: DatasetRow, batch: BatchRow) -> None:
        """Open the index that counts. Raises ``CorruptFile``."""
        self._home, self._spec, self._dataset, self._batch = home, spec, dataset, batch
        self._index = BatchIndex.open(home / str(batch.index_path), batch.index_checksum)
        self._names = [file.path for file in self._index.files]
        self._rewrite = rewrite_of(str(batch.index_path))
        self._staged: list[StagedFile] = []
        self._discards = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._discards.close()

    def files_of(self, positions: Int64Array) -> dict[str | None, int]:
        """The files that hold samples, None for our shard, and how many of them."""
        numbers, _, _ = self._index.locate(positions)
        return {self._names[number]: int(n) for number, n in zip(*np.unique(numbers, return_counts=True), strict=True)}

    def checksums_of(self, positions: Int64Array) -> set[str]:
        """Digests of those samples whose bytes lie in the shard, once the shard is known to be what it was."""
        if len(positions) == 0:
            return set()
        return shard.checksums_of(self._verified_shard(), self._rows(positions))

    def stage(self, positions: Int64Array) -> StagedIndex | None:
        """Write the next pair without these samples; None where a batch keeps neither labels nor bytes, and has nothing to hide.

        Raises ``CorruptFile`` when the shard is not what it was, and ``WriteFailed``.
        """
        index = self._index
        if None not in self._names and index.labels is None and index.targets is None:
            return None
        files = list(index.files)
        if None in self._names:
            number = self._names.index(None)
            files[number] = self._write_shard(files[number], positions)
        path = index_of(self._dataset.name, self._batch.ordinal, self._rewrite + 1)
        labels, targets = _without(index.labels, positions, -1), _without(index.targets, positions, np.nan)
        with self._stage(path).as_file() as raw:
            out = HashingFile(raw)
            write_index_to(out, index.times, labels, targets, index.extents, files)
        return StagedIndex(path, out.checksum)

    @property
    def is_unpublished(self) -> bool:
        """Whether all that was staged can be published: no other purge of the batch did."""
        return all(file.is_unpublished for file in self._staged)

    def publish(self) -> None:
        """Give shard and index their names, in this order; nobody else may be publishing them now."""
        for file in self._staged:
            file.publish()

    def _write_shard(self, old: IndexedFile, positions: Int64Array) -> IndexedFile:
        rows = self._rows(positions)
        if self._spec.format.kind == "parquet":
            rows = rows.and_those(ranges_of_strings(self._verified_shard(), rows, self._dataset.columns or ()))
        with self._stage(shard_of(self._dataset.name, self._batch.ordinal, self._rewrite + 1)).as_file() as raw:
            out = HashingFile(raw)
            write_zeroed(self._shard, old.checksum, rows, out)
        return replace(old, checksum=out.checksum)

    def _stage(self, path: str) -> StagedFile:
        staged = StagedFile(self._home / path)
        self._discards.callback(staged.discard)
        self._staged.append(staged)
        return staged

    def _rows(self, positions: Int64Array) -> Ranges:
        numbers, offsets, lengths = self._index.locate(positions)
        mine = numbers == self._names.index(None)
        return Ranges(offsets[mine], lengths[mine])

    def _verified_shard(self) -> Path:
        """The shard; what the index and its own rows say of it can be relied on."""
        verify_checksum(self._shard, self._index.file(self._names.index(None)).checksum)
        return self._shard

    @property
    def _shard(self) -> Path:
        return self._home / shard_of(self._dataset.name, self._batch.ordinal, self._rewrite)


def _without(values: npt.NDArray[Any] | None, positions: Int64Array, blank: float) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    kept = values.copy()
    kept[positions] = blank
    return kept
