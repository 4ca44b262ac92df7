"""Where samples lie: from keys to files, offsets and lengths, and from there to one buffer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastpath import gather_into
from modyn_dagster.errors import CorruptFile, UnknownKey
from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array
from modyn_dagster.ingestion.index import BatchIndex
from modyn_dagster.ingestion.mapped import Expected, MappedFiles
from modyn_dagster.ingestion.times import TimeArray
from modyn_dagster.keys import KeyArray, ordinals_of, positions_of


@dataclass(frozen=True)
class OpenBatch:
    """A batch that samples are read from: its index, and the files that the index points to."""

    index: BatchIndex
    files: list[Expected]


@dataclass(frozen=True)
class KeyPlaces:
    """Places and facts of n keys, in their order.

    Attributes:
        times: ``datetime64[us][n]``.
        labels: ``int64[n]``, zeros where the dataset has none.
        targets: ``float64[n]``, zeros where it has none.
        files: files that hold the samples.
        file: index into ``files``, ``int64[n]``.
        offsets, lengths: ``int64[n]`` each.
    """

    times: TimeArray
    labels: Int64Array
    targets: npt.NDArray[np.float64]
    files: list[Expected]
    file: Int64Array
    offsets: Int64Array
    lengths: Int64Array

    def gather(self, mapped: MappedFiles, separator: bytes) -> tuple[ByteArray, Int64Array]:
        """The samples' bytes in order, a separator after each: ``(buffer, offsets int64[n + 1])``."""
        return self.fetch(mapped, self.offsets, self.lengths, separator)

    def fetch(
        self, mapped: MappedFiles, offsets: Int64Array, lengths: Int64Array, separator: bytes = b""
    ) -> tuple[ByteArray, Int64Array]:
        """Other ranges of the files that hold the samples, one per sample."""
        bounds = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths + len(separator), out=bounds[1:])
        buffer = np.full(int(bounds[-1]), separator[0] if separator else 0, dtype=np.uint8)
        for number, mine in _groups(self.file):
            expected = self.files[number]
            try:
                gather_into(mapped.get(expected), offsets[mine], lengths[mine], buffer, bounds[mine])
            except ValueError as error:
                raise CorruptFile(expected.path, "samples where the index says", str(error)) from error
        return buffer, bounds


def locate_keys(keys: KeyArray, batch_of: Callable[[int], OpenBatch | None], dataset: str) -> KeyPlaces:
    """Find samples. Raises ``UnknownKey`` for the first key that no batch has."""
    n = len(keys)
    places = KeyPlaces(
        times=np.empty(n, dtype="datetime64[us]"),
        labels=np.zeros(n, dtype=np.int64),
        targets=np.zeros(n, dtype=np.float64),
        files=[],
        file=np.empty(n, dtype=np.int64),
        offsets=np.empty(n, dtype=np.int64),
        lengths=np.empty(n, dtype=np.int64),
    )
    positions = positions_of(keys)
    for ordinal, mine in _groups(ordinals_of(keys)):
        batch = batch_of(ordinal)
        unknown = positions[mine] >= (0 if batch is None else batch.index.n)
        if batch is None or unknown.any():
            raise UnknownKey(int(keys[mine[int(np.argmax(unknown))]]), dataset)
        file, places.offsets[mine], places.lengths[mine] = batch.index.locate(positions[mine])
        places.file[mine] = file.astype(np.int64) + len(places.files)
        places.files.extend(batch.files)
        places.times[mine] = batch.index.times[positions[mine]]
        if batch.index.labels is not None:
            places.labels[mine] = batch.index.labels[positions[mine]]
        if batch.index.targets is not None:
            places.targets[mine] = batch.index.targets[positions[mine]]
    return places


def _groups(values: Int64Array) -> Iterator[tuple[int, Int64Array]]:
    """Each distinct value with the indices at which it stands, both ascending."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-1))
    for group in np.split(order, starts[1:]):
        if len(group):
            yield int(values[group[0]]), group
