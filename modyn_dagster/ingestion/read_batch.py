"""Reading all files of a batch: bytes, columns and pieces, with the checksum of everything that was read."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.ingestion.columns import settle_columns
from modyn_dagster.ingestion.file_pieces import file_piece
from modyn_dagster.ingestion.formats import row_format
from modyn_dagster.ingestion.formats.base import OpenRows
from modyn_dagster.ingestion.members import Members
from modyn_dagster.ingestion.piece import Piece
from modyn_dagster.ingestion.row_pieces import row_piece
from modyn_dagster.ingestion.source import FileState, LoadedFile, Source
from modyn_dagster.spec.dataset import DatasetSpec

#: Called with the number of files read so far and their total.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Which state of a file was read."""

    state: FileState
    checksum: str


@dataclass(frozen=True)
class ReadBatch:
    """A batch as its files say it.

    Attributes:
        columns: the dataset's, or those its first batch settles; empty where samples are files.
        pieces: the samples, in natural order of their files.
        files: everything that was read, by path: samples, manifests, sidecars.
    """

    columns: tuple[Column, ...]
    pieces: list[Piece]
    files: Mapping[str, FileVersion]


class BatchReader:
    """Reads batches of one dataset. Slices of a bulk import share files: ``uses`` says how often each will be asked for, and
    its piece is kept until then."""

    def __init__(
        self, source: Source, spec: DatasetSpec, *, uses: Mapping[str, int] | None = None, progress: Progress | None = None
    ) -> None:
        self._source, self._spec, self._progress = source, spec, progress
        self._uses = Counter(uses or {})
        self._kept: dict[str, tuple[Piece, FileVersion]] = {}

    def read(self, dataset: DatasetRow, members: Members) -> ReadBatch:
        """All samples of these files. Raises ``DataError`` for the first that is bad."""
        files = {manifest.path: _version(manifest) for manifest in members.manifests}
        if self._spec.format.kind == "files":
            piece = self._read_files(dataset, members, files)
            return ReadBatch((), [piece], files)
        if dataset.columns is None:
            return self._read_first(members, files)
        pieces = []
        for done, path in enumerate(members.paths, 1):
            piece, files[path] = self._read_rows(dataset.columns, path, members.times)
            pieces.append(piece)
            self._report(done, members)
        return ReadBatch(dataset.columns, pieces, files)

    def open(self, path: str) -> tuple[LoadedFile, OpenRows]:
        """A file of rows and its rows."""
        assert self._spec.format.kind != "files"  # noqa: S101 - narrows the type
        loaded = self._source.load(path)
        return loaded, row_format(self._spec.format).open(loaded)

    def _read_files(self, dataset: DatasetRow, members: Members, files: dict[str, FileVersion]) -> Piece:
        def load(path: str) -> LoadedFile:
            loaded = self._source.load(path)
            files[path] = _version(loaded)
            self._report(min(len(files), len(members.paths)), members)
            return loaded

        decided = None if dataset.columns is None else not dataset.class_names
        return file_piece(self._spec, members, load, in_place=self._source.in_place, as_integers=decided)

    def _read_first(self, members: Members, files: dict[str, FileVersion]) -> ReadBatch:
        """Columns first, from all files of the batch, then their rows."""
        opened = [self.open(path) for path in members.paths]
        found = [(loaded.path, rows.find_columns()) for loaded, rows in opened]
        columns = settle_columns(self._spec, found)
        pieces = []
        for done, (loaded, rows) in enumerate(opened, 1):
            pieces.append(self._piece(columns, loaded, rows, members.times))
            files[loaded.path] = _version(loaded)
            self._report(done, members)
        return ReadBatch(columns, pieces, files)

    def _read_rows(self, columns: Sequence[Column], path: str, times: Mapping[str, np.datetime64]) -> tuple[Piece, FileVersion]:
        kept = self._kept.pop(path, None)
        if kept is None:
            loaded, rows = self.open(path)
            kept = self._piece(columns, loaded, rows, times), _version(loaded)
        self._uses[path] -= 1
        if self._uses[path] > 0:
            self._kept[path] = kept
        return kept

    def _piece(self, columns: Sequence[Column], loaded: LoadedFile, rows: OpenRows, times: Mapping[str, np.datetime64]) -> Piece:
        return row_piece(self._spec, columns, loaded, rows, times, in_place=self._source.in_place)

    def _report(self, done: int, members: Members) -> None:
        if self._progress is not None:
            self._progress(done, len(members.paths))


def _version(loaded: LoadedFile) -> FileVersion:
    return FileVersion(loaded.state, loaded.checksum)
