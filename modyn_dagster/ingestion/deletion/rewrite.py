"""Rewrite of index and shard of a batch without purged samples: staged first, published in a transaction."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int64Array
from fastpath.format.index_file import IndexedFile, write_index_to
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.layouts import layout_columns
from modyn_dagster.data.batch_index import index_path, open_index, rewrite_number, shard_path
from modyn_dagster.durability.incremental_fsync import HashingFile
from modyn_dagster.files.mounting import files_at
from modyn_dagster.ingestion.deletion.shard import checksums_of, ranges_of_strings, write_zeroed
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.storage import StagedFile, verify_checksum


class StagedIndex(NamedTuple):
    """Index that can be published: its path relative to the home folder, and its checksum."""

    path: str
    checksum: str


class Rewrite:
    """A context that stages the next index and shard of a batch, and removes them at the end unless they were published."""

    def __init__(self, home: Path, spec: DatasetSpec, dataset: DatasetRow, batch: BatchRow) -> None:
        """Open the current index. Raises ``CorruptFile``."""
        self._home, self._spec, self._dataset, self._batch = home, spec, dataset, batch
        self._index = open_index(home, batch)
        self._names = [file.path for file in self._index.files]
        self._rewrite = rewrite_number(str(batch.index_path))
        self._staged: list[StagedFile] = []
        self._discards = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._discards.close()

    def files_of(self, positions: Int64Array) -> dict[str | None, int]:
        """Number of samples by file; None is the shard."""
        numbers, _, _ = self._index.locate(positions)
        return {self._names[number]: int(n) for number, n in zip(*np.unique(numbers, return_counts=True), strict=True)}

    def checksums_of(self, positions: Int64Array) -> set[str]:
        """Digests of the samples whose bytes are in the shard, which is verified first."""
        if len(positions) == 0:
            return set()
        return checksums_of(self._verified_shard(), self._rows(positions))

    def stage(self, positions: Int64Array) -> StagedIndex | None:
        """Write index and shard without these samples; None for a batch without labels, targets and shard: it needs no rewrite.

        Raises ``CorruptFile`` when the shard was changed, and ``WriteFailed``.
        """
        index = self._index
        if None not in self._names and index.labels is None and index.targets is None:
            return None
        blocks = index.block_digests()
        files = [
            file if blocks is None else replace(file, blocks=blocks[number].tobytes()) for number, file in enumerate(index.files)
        ]
        if None in self._names:
            number = self._names.index(None)
            files[number] = self._write_shard(files[number], positions)
        path = index_path(self._dataset.name, self._batch.ordinal, self._rewrite + 1)
        labels, targets = _without(index.labels, positions, -1), _without(index.targets, positions, np.nan)
        with self._stage(path).as_file() as raw:
            out = HashingFile(raw)
            write_index_to(out, index.times, labels, targets, index.extents, files)
        return StagedIndex(path, out.checksum)

    @property
    def is_unpublished(self) -> bool:
        """True while all staged files can be published: no other purge of the batch has published."""
        return all(file.is_unpublished for file in self._staged)

    def publish(self) -> None:
        """Publish shard and index, in this order. Nobody else may be publishing them."""
        for file in self._staged:
            file.publish()

    def _write_shard(self, old: IndexedFile, positions: Int64Array) -> IndexedFile:
        rows = self._rows(positions)
        if self._spec.format.kind == "parquet":
            columns = layout_columns(self._dataset, self._batch.layout)
            rows = rows.joined_with(ranges_of_strings(self._verified_shard(), rows, columns))
        with self._stage(shard_path(self._dataset.name, self._batch.ordinal, self._rewrite + 1)).as_file() as raw:
            out = HashingFile(raw)
            with files_at(self._shard).using(self._shard, old.checksum):
                hasher = write_zeroed(self._shard, old.checksum, rows, out)
        blocks = None if old.blocks is None else hasher.digests().tobytes()
        return replace(old, checksum=out.checksum, blocks=blocks)

    def _stage(self, path: str) -> StagedFile:
        staged = StagedFile(self._home / path)
        self._discards.callback(staged.discard)
        self._staged.append(staged)
        return staged

    def _rows(self, positions: Int64Array) -> Ranges:
        numbers, offsets, lengths = self._index.locate(positions)
        in_shard = numbers == self._names.index(None)
        return Ranges(offsets[in_shard], lengths[in_shard])

    def _verified_shard(self) -> Path:
        """Path of the shard, after its checksum was verified."""
        verify_checksum(self._shard, self._index.file(self._names.index(None)).checksum)
        return self._shard

    @property
    def _shard(self) -> Path:
        return self._home / shard_path(self._dataset.name, self._batch.ordinal, self._rewrite)


def _without(values: npt.NDArray[Any] | None, positions: Int64Array, blank: float) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    kept = values.copy()
    kept[positions] = blank
    return kept
