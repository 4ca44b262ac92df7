"""Samples by key, in any order, out of mapped files."""

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from fastpath import Blobs, FixedRows, SampleStore
from modyn_dagster.catalog.batches import mtimes_in_place, visible_batches
from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.data.arrow_rows import ByteArray, Int64Array
from modyn_dagster.data.deleted_lists import DeletedLists
from modyn_dagster.data.row_decoding import record_dtype, row_decoder
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.storage import local_folder


class SampleReader:
    """Parsed samples of the batches it was given. Every method may be called from several threads.

    Args:
        spec: of the dataset.
        columns: of the dataset, ``DatasetRow.columns``.
        root: the dataset's files, where they are read in place.
        home: the folder with the shards.
        indexes: index files by batch ordinal; opened when first needed.
        checksums: of the index files by ordinal, verified when they are opened.
        modified: mtimes in nanoseconds that source files had when they were ingested, by path. A file without one is read
            once to compare its checksum.
        deleted: files with the lists of deleted positions, by ordinal of the batches that have one.
        threads: how many share a large request.

    Attributes:
        store: the samples' bytes by key; raises the errors of ``fastpath``.
    """

    def __init__(  # noqa: PLR0913 - all but the first two are given by name
        self,
        spec: DatasetSpec,
        columns: Sequence[Column] | None,
        *,
        root: str,
        home: Path,
        indexes: Mapping[int, Path],
        checksums: Mapping[int, str] | None = None,
        modified: Mapping[str, int] | None = None,
        deleted: Mapping[int, Path] | None = None,
        threads: int = 1,
    ) -> None:
        self._spec, self._columns = spec, tuple(columns or ())
        self._decoder = row_decoder(spec.format)
        self.store = SampleStore.open(
            indexes,
            dataset=spec.name,
            root=local_folder(root),
            home=home,
            checksums=checksums,
            modified=modified,
            deleted=deleted or {},
            dtype=record_dtype(spec.format, self._columns),
            threads=threads,
        )

    @cached_property
    def resident(self) -> "SampleReader":
        """The same samples, out of copies of their files in this process's memory, which this reader keeps."""
        reader = copy.copy(self)
        reader.store = self.store.resident()
        return reader

    def read(self, keys: KeyArray) -> Samples:
        """Samples in the order of ``keys`` (``uint64[n]``); a key may come several times.

        Rows come as parsed ``columns``, files as ``blobs``.

        Raises:
            UnknownKey: no such sample in these batches.
            DeletedKey: a sample was deleted.
            CorruptFile: a file is gone, or was changed after it was ingested.
        """
        return self._parsed(keys, self.store.read_blobs(keys, separator=self._separator))

    def read_blobs(self, keys: KeyArray) -> list[bytes]:
        """The bytes of each sample: of its file, or of its row without the line break."""
        return _split(self.store.read_blobs(keys))

    def decode(self, keys: KeyArray, raw: FixedRows | Blobs) -> Samples:
        """What ``read`` gives, from bytes that ``store.read`` gave for the same keys."""
        return self._parsed(keys, raw.separated(self._separator))

    def _parsed(self, keys: KeyArray, raw: Blobs) -> Samples:
        """Samples from their bytes with separators."""

        def fetch(offsets: Int64Array, lengths: Int64Array) -> tuple[ByteArray, Int64Array]:
            found = self.store.read_ranges(keys, offsets, lengths)
            return found.buffer, found.offsets

        label = self._spec.label
        found: Any = self.store.labels(keys)
        return Samples(
            keys,
            self.store.timestamps(keys),
            labels=found if label is not None and label.kind == "class" else None,
            targets=found if label is not None and label.kind == "target" else None,
            columns={} if self._decoder is None else self._decoder.decode(self._columns, raw.buffer, raw.offsets, fetch),
            blobs=_split(raw) if self._decoder is None else None,
        )

    @property
    def _separator(self) -> bytes:
        return b"" if self._decoder is None else self._decoder.separator


def open_reader(conn: sa.Connection, row: DatasetRow, spec: DatasetSpec, root: str, home: Path) -> SampleReader:
    """A reader of all batches that pipelines see now; indexes are verified when they are first used."""
    batches = visible_batches(conn, row.id)
    return SampleReader(
        spec,
        row.columns,
        root=root,
        home=home,
        indexes={batch.ordinal: home / str(batch.index_path) for batch in batches},
        checksums={batch.ordinal: str(batch.index_checksum) for batch in batches},
        modified=mtimes_in_place(conn, row.id),
        deleted=DeletedLists(home, spec.name, batches).verified_paths(),
    )


def _split(blobs: Blobs) -> list[bytes]:
    data = blobs.buffer.tobytes()
    return [data[start:stop] for start, stop in pairwise(blobs.offsets.tolist())]
