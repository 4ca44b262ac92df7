"""Files that become a shard: read in bounded groups, in any order, by a few threads."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array
from modyn_dagster.ingestion.loaded import require_same
from modyn_dagster.ingestion.source import FileState, FileVersion, Source
from modyn_dagster.ingestion.workers import in_order

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
        for group in in_order(self._load, self._groups(order)):
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
            require_same(file.path, file.state == self.states[i])
        return [(file.path, file.version, file.data) for file in loaded]
