"""The index of a batch: times, labels and places of its samples, one Arrow file that is mapped and never parsed.

The file holds three Arrow IPC streams, one after the other: ``samples`` (a row per sample, in key order), ``extents`` (runs
of samples at equal distances in one file) and ``files`` (what the extents point to). Equal content, equal bytes: no date,
no run id, and no paths but those of source files relative to the dataset's root.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.errors import CorruptFile
from modyn_dagster.storage import atomic_write, verify_checksum

Int64Array = npt.NDArray[np.int64]
TimeArray = npt.NDArray[np.datetime64]

_VERSION: Final = b"1"
_TIME: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file that holds samples: ``path`` relative to the dataset's root, None for the batch's own shard."""

    path: str | None
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Extents:
    """Runs of samples: run r is samples ``start[r]`` to ``start[r + 1]``, the i-th of them at ``offset[r] + i * stride[r]``.

    All are ``int64[runs]``; ``start`` and ``stride`` are None when every sample is a run of its own.
    """

    file: npt.NDArray[np.int32]
    offset: Int64Array
    length: Int64Array
    start: Int64Array | None = None
    stride: Int64Array | None = None

    @classmethod
    def of(cls, file: npt.NDArray[np.int32], offset: Int64Array, length: Int64Array) -> Self:
        """The runs that places of single samples make: same file, same length, one right behind the other."""
        behind = (file[1:] == file[:-1]) & (length[1:] == length[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
        start = np.flatnonzero(np.concatenate(([True], ~behind)))
        if len(start) == len(file):
            return cls(file, offset, length)
        return cls(file[start], offset[start], length[start], start, length[start])

    def locate(self, positions: Int64Array) -> tuple[npt.NDArray[np.int32], Int64Array, Int64Array]:
        """File, offset and length of samples."""
        if self.start is None or self.stride is None:
            return self.file[positions], self.offset[positions], self.length[positions]
        run = np.searchsorted(self.start, positions, side="right") - 1
        offset = self.offset[run] + (positions - self.start[run]) * self.stride[run]
        return self.file[run], offset, self.length[run]


def write_index(
    path: Path,
    times: TimeArray,
    labels: Int64Array | None,
    targets: npt.NDArray[np.float64] | None,
    extents: Extents,
    files: Sequence[IndexedFile],
) -> str:
    """Write an index atomically; returns its checksum."""
    samples: dict[str, pa.Array] = {"time": pa.array(times.view(np.int64)).view(_TIME)}
    if labels is not None:
        samples["label"] = pa.array(labels)
    if targets is not None:
        samples["target"] = pa.array(targets)
    runs = {"start": extents.start, "file": extents.file, "offset": extents.offset}
    runs |= {"stride": extents.stride, "length": extents.length}
    tables = (
        samples,
        {name: pa.array(values) for name, values in runs.items() if values is not None},
        {
            "path": pa.array([file.path for file in files], pa.string()),
            "size": pa.array([file.size for file in files], pa.int64()),
            "checksum": pa.array([file.checksum for file in files], pa.string()),
        },
    )
    with atomic_write(path) as out:
        for columns in tables:
            _write_stream(out, columns)
    return out.checksum


def _write_stream(out: Any, columns: Mapping[str, pa.Array]) -> None:
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    batch = batch.replace_schema_metadata({b"modyn_index": _VERSION})
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)


@dataclass(frozen=True)
class BatchIndex:
    """An index, mapped: arrays are views of the file, read-only.

    Attributes:
        path: of the index file.
        times: ``datetime64[us][n]``, ascending.
        labels: class indices ``int64[n]``; None where the dataset has no classes.
        targets: ``float64[n]``; None where it has no regression target.
        files: what ``locate`` points to.
    """

    path: Path
    times: TimeArray
    labels: Int64Array | None
    targets: npt.NDArray[np.float64] | None
    files: tuple[IndexedFile, ...]
    _extents: Extents

    @classmethod
    def open(cls, path: Path, checksum: str | None = None) -> Self:
        """Map an index; with a checksum the whole file is verified first. Raises ``CorruptFile``.

        Without one only the structure is checked: leave it out for a file that was just written or verified.
        """
        if checksum is not None:
            verify_checksum(path, checksum)
        try:
            with pa.memory_map(str(path)) as source:
                samples, runs, files = [_read_stream(source) for _ in range(3)]
        except (pa.ArrowInvalid, StopIteration, OSError) as error:
            raise CorruptFile(path, "the index of a batch", str(error) or "a stream without its record batch") from error
        found = samples.schema.metadata
        if found != {b"modyn_index": _VERSION}:
            raise CorruptFile(path, f"an index of version {_VERSION.decode()}", f"metadata {found}")
        return cls(
            path,
            samples["time"].view(pa.int64()).to_numpy().view("datetime64[us]"),
            _column(samples, "label"),
            _column(samples, "target"),
            tuple(IndexedFile(**row) for row in files.to_pylist()),
            Extents(**{name: runs[name].to_numpy() for name in runs.schema.names}),
        )

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.times)

    def locate(self, positions: Int64Array) -> tuple[npt.NDArray[np.int32], Int64Array, Int64Array]:
        """Where samples lie: index into ``files``, byte offset and length, each ``[k]``; positions below ``n``."""
        return self._extents.locate(positions)


def _read_stream(source: Any) -> pa.RecordBatch:
    reader = pa.ipc.open_stream(source)
    batch = reader.read_next_batch()
    # The end marker, so that the next stream begins where this one ends.
    if next(iter(reader), None) is not None:
        raise pa.ArrowInvalid("a stream of an index has one record batch, found more")
    return batch


def _column(samples: pa.RecordBatch, name: str) -> Any:
    return samples[name].to_numpy() if name in samples.schema.names else None
