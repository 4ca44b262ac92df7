"""Pieces of a batch: samples of one file of rows, or of all small files, which are read in bounded groups."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.data.arrow_rows import ByteArray, Int64Array
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.ingestion.formats.times import TimeArray
from modyn_dagster.ingestion.sources.files import FileState, FileVersion, require_stable
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.parallel_map import map_in_threads

#: What one thread reads at a time: bytes, and files.
_GROUP_BYTES: Final = 4 << 20
_GROUP_FILES: Final = 64


@dataclass(frozen=True)
class SmallFiles:
    """Files known by their size and time of change, whose bytes are not read yet.

    Attributes:
        source: where they lie.
        paths: of the files.
        states: as they were looked at; a file that has another when it is read is an error.
        record: told the version of every file that was read.
    """

    source: Source
    paths: Sequence[str]
    states: Sequence[FileState]
    record: Callable[[str, FileVersion], None]

    def read(self, order: Int64Array, besides: Int64Array) -> Iterator[ByteArray]:
        """The bytes of some files, by their place in ``paths``, in this order; memory is bounded by a few groups.

        ``besides`` are files whose version is recorded at the end and nothing else. Raises ``DataError`` for one that changed.
        """
        for group in map_in_threads(self._load, self._groups(order)):
            for path, version, data in group:
                self.record(path, version)
                yield data
        for i in besides:
            self.record(self.paths[i], self.source.version(self.paths[i]))

    def _groups(self, order: Int64Array) -> Iterator[Int64Array]:
        sizes = np.array([state.size for state in self.states], dtype=np.int64)[order]
        # Counted from the start of all: a group ends where the next multiple of its size is reached.
        full = (np.cumsum(sizes) - sizes) // _GROUP_BYTES
        counted = np.arange(len(order)) // _GROUP_FILES
        ends = np.flatnonzero((np.diff(full) != 0) | (np.diff(counted) != 0)) + 1
        yield from np.split(order, ends) if len(order) else ()

    def _load(self, group: Int64Array) -> list[tuple[str, FileVersion, ByteArray]]:
        loaded = [self.source.load(self.paths[i]) for i in group]
        for i, file in zip(group, loaded):
            require_stable(file.path, file.state == self.states[i])
        return [(file.path, file.version, file.data) for file in loaded]


@dataclass(frozen=True)
class Piece:
    """n samples in (file, row) order: rows of one file, or one sample from each of n files.

    Attributes:
        paths: files they come from, in natural order.
        times: ``datetime64[us][n]``.
        labels: classes, or None.
        targets: ``float64[n]``, or None.
        attributes: JSON texts (Arrow ``large_string``), or None.
        in_place: ``bool[n]``: read from the source file; the others are copied to the batch's shard.
        ranges: where the bytes lie, in the source file or in ``payload``; None where ``payload`` is a table.
        payload: what goes to the shard: bytes, the rows of a converted table, or files that are read when it is written.
    """

    paths: tuple[str, ...]
    times: TimeArray
    labels: ClassLabels | None
    targets: npt.NDArray[np.float64] | None
    attributes: pa.Array | None
    in_place: npt.NDArray[np.bool_]
    ranges: Ranges | None
    payload: ByteArray | pa.Table | SmallFiles | None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def path_of(self) -> Int64Array:
        """Index into ``paths``, ``int64[n]``, ascending."""
        return np.arange(len(self)) if len(self.paths) > 1 else np.zeros(len(self), dtype=np.int64)

    @property
    def rows(self) -> Int64Array:
        """Row in its file from 0, ``int64[n]``."""
        return np.zeros(len(self), dtype=np.int64) if len(self.paths) > 1 else np.arange(len(self))


def joined(parts: list[Any]) -> Any:
    """Columns of several pieces one after the other; None where the dataset has no such column."""
    if parts[0] is None or len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
