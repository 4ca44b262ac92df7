"""Samples by key, in any order, out of mapped files."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy.typing as npt
import sqlalchemy as sa

from modyn_dagster.catalog.batches import mtimes_in_place, visible_batches
from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.errors import CorruptFile, DataError, StorageError
from modyn_dagster.ingestion.formats import row_format
from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array
from modyn_dagster.ingestion.index import BatchIndex, IndexedFile
from modyn_dagster.ingestion.key_places import KeyPlaces, OpenBatch, locate_keys
from modyn_dagster.ingestion.mapped import Expected, MappedFiles
from modyn_dagster.ingestion.places import shard_of
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.ingestion.source import LocalSource, open_source
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.dataset import DatasetSpec


class SampleReader:
    """Reads samples of the batches it was given. One reader is for one thread at a time.

    Args:
        spec: of the dataset.
        columns: of the dataset, ``DatasetRow.columns``.
        root: the dataset's files, where they are read in place.
        home: the folder with the shards.
        indexes: index files by batch ordinal; opened when first needed.
        checksums: of the index files by ordinal, verified when they are opened.
        modified: mtimes in nanoseconds that source files had when they were ingested, by path. A file without one is read
            once to compare its checksum.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        columns: Sequence[Column] | None,
        *,
        root: str,
        home: Path,
        indexes: Mapping[int, Path],
        checksums: Mapping[int, str] | None = None,
        modified: Mapping[str, int] | None = None,
    ) -> None:
        self._spec, self._columns, self._root, self._home = spec, tuple(columns or ()), root, home
        self._indexes, self._checksums, self._modified = indexes, checksums or {}, modified or {}
        self._batches: dict[int, OpenBatch] = {}
        self._mapped = MappedFiles()
        self._format = None if spec.format.kind == "files" else row_format(spec.format)

    def read(self, keys: KeyArray) -> Samples:
        """Samples in the order of ``keys`` (``uint64[n]``); a key may come several times.

        Rows come as parsed ``columns``, files as ``blobs``.

        Raises:
            UnknownKey: no such sample in these batches.
            CorruptFile: a file is gone, or was changed after it was ingested.
        """
        places = self._locate(keys)
        if self._format is None:
            return self._samples(keys, places, {}, _split(*places.gather(self._mapped, b"")))
        rows, offsets = places.gather(self._mapped, self._format.separator)
        columns = self._format.decode(self._columns, rows, offsets, partial(places.fetch, self._mapped))
        return self._samples(keys, places, columns, None)

    def read_blobs(self, keys: KeyArray) -> list[bytes]:
        """The bytes of each sample: of its file, or of its row without the line break."""
        return _split(*self._locate(keys).gather(self._mapped, b""))

    def _samples(
        self, keys: KeyArray, places: KeyPlaces, columns: Mapping[str, npt.NDArray[Any]], blobs: list[bytes] | None
    ) -> Samples:
        label = self._spec.label
        return Samples(
            keys,
            places.times,
            labels=places.labels if label is not None and label.kind == "class" else None,
            targets=places.targets if label is not None and label.kind == "target" else None,
            columns=columns,
            blobs=blobs,
        )

    def _locate(self, keys: KeyArray) -> KeyPlaces:
        return locate_keys(keys, self._batch, self._spec.name)

    def _batch(self, ordinal: int) -> OpenBatch | None:
        if ordinal not in self._indexes:
            return None
        if ordinal not in self._batches:
            index = BatchIndex.open(self._indexes[ordinal], self._checksums.get(ordinal))
            self._batches[ordinal] = OpenBatch(index, [self._expected(ordinal, file) for file in index.files])
        return self._batches[ordinal]

    def _expected(self, ordinal: int, file: IndexedFile) -> Expected:
        if file.path is None:
            return Expected(self._home / shard_of(self._spec.name, ordinal), file.size, file.checksum, None)
        try:
            path = self._source.locate(file.path)
        except DataError as error:
            raise CorruptFile(file.path, "a file below the dataset's root", error.message) from error
        return Expected(path, file.size, file.checksum, self._modified.get(file.path))

    @cached_property
    def _source(self) -> LocalSource:
        source = open_source(self._root, {})
        if not isinstance(source, LocalSource):
            where = "files that are read in place lie in a local folder; restore the root they were ingested from"
            raise StorageError(f"dataset {self._spec.name}: root {self._root!r}: {where}")
        return source


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
    )


def _split(buffer: ByteArray, offsets: Int64Array) -> list[bytes]:
    data = buffer.tobytes()
    return [data[start:stop] for start, stop in pairwise(offsets)]
