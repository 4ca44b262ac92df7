"""Pieces of a batch: the samples of one file of rows, or of many small files, which are read in bounded groups."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.array_types import ByteArray, Int64Array, TimeArray
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.ingestion.formats.labels import ClassLabels
from modyn_dagster.ingestion.sources.files import FileState, FileVersion, require_stable
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.parallel_map import map_in_threads

#: Bytes and files that one thread reads at a time.
GROUP_BYTES: Final = 4 << 20
GROUP_FILES: Final = 64


@dataclass(frozen=True)
class SmallFiles:
    """Files whose states are known and whose bytes are not read yet.

    Attributes:
        source: of the files.
        paths: of the files.
        states: of the files; reading a file with another state is an error.
        record: called with path and version of every file that was read.
    """

    source: Source
    paths: Sequence[str]
    states: Sequence[FileState]
    record: Callable[[str, FileVersion], None]

    def read(self, order: Int64Array, unread: Int64Array) -> Iterator[ByteArray]:
        """Read files one by one; memory is bounded by a few groups.

        Args:
            order: indexes into ``paths``.
            unread: indexes of files whose versions are recorded at the end, without their bytes.

        Raises:
            DataError: a file changed.
        """
        for group in map_in_threads(self._load, self._groups(order)):
            for path, version, data in group:
                self.record(path, version)
                yield data
        for i in unread:
            self.record(self.paths[i], self.source.version(self.paths[i]))

    def _groups(self, order: Int64Array) -> Iterator[Int64Array]:
        sizes = np.array([state.size for state in self.states], dtype=np.int64)[order]
        # A group ends at each multiple of the group sizes, counted from the first file.
        by_bytes = (np.cumsum(sizes) - sizes) // GROUP_BYTES
        by_count = np.arange(len(order)) // GROUP_FILES
        ends = np.flatnonzero((np.diff(by_bytes) != 0) | (np.diff(by_count) != 0)) + 1
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
        paths: of their files, in natural order.
        times: ``datetime64[us][n]``.
        labels: classes, or None.
        targets: ``float64[n]``, or None.
        attributes: JSON texts (Arrow ``large_string``), or None.
        in_place: ``bool[n]``, true for samples read from the source file; the others are copied to the batch's shard.
        ranges: of the samples' bytes, in the source file or in ``payload``; None where ``payload`` is a table.
        payload: content of the shard: bytes, a converted table, or files to read when the shard is written.
        layout: columns of the rows, in their order; empty where samples are files.
        ids: of the samples (Arrow ``string``); None where the dataset has none.
    """

    paths: tuple[str, ...]
    times: TimeArray
    labels: ClassLabels | None
    targets: npt.NDArray[np.float64] | None
    attributes: pa.Array | None
    in_place: npt.NDArray[np.bool_]
    ranges: Ranges | None
    payload: ByteArray | pa.Table | SmallFiles | None
    layout: tuple[str, ...] = ()
    ids: pa.Array | None = None

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


def concatenate(parts: list[Any]) -> Any:
    """Concatenate a column of several pieces; None where the dataset has no such column."""
    if parts[0] is None or len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)
