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

from fastpath._extents import check_extents
from fastpath._files import MappedFile
from fastpath._take import copy_out
from fastpath.errors import CorruptFile
from fastpath.extents import Extents, Int64Array
from fastpath.skeleton import Skeleton
from fastpath.verified import Expected, Version, open_verified

__all__ = ["BatchIndex", "Extents", "IndexedFile", "Int64Array", "TimeArray", "write_index_to"]

TimeArray = npt.NDArray[np.datetime64]

_VERSION: Final = b"1"
_TIME: Final = pa.timestamp("us", tz="UTC")
_SAMPLES: Final = {"time": _TIME, "label": pa.int64(), "target": pa.float64()}
_RUNS: Final = {"start": pa.int64(), "file": pa.int32(), "offset": pa.int64(), "stride": pa.int64(), "length": pa.int64()}
_FILES: Final = {"path": pa.string(), "size": pa.int64(), "checksum": pa.string()}
_REQUIRED: Final = {"time", "file", "offset", "length", "path", "size", "checksum"}
#: What Arrow raises for bytes that are not what it expects.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file that holds samples: ``path`` relative to the dataset's root, None for the batch's own shard."""

    path: str | None
    size: int
    checksum: str


def write_index_to(
    out: Any,
    times: TimeArray,
    labels: Int64Array | None,
    targets: npt.NDArray[np.float64] | None,
    extents: Extents,
    files: Sequence[IndexedFile],
) -> None:
    """Write an index to a binary file; the arguments are the fields of ``BatchIndex``."""
    samples = {"time": pa.array(times.view(np.int64)).view(_TIME), "label": labels, "target": targets}
    runs = {"start": extents.start, "file": extents.file, "offset": extents.offset}
    runs |= {"stride": extents.stride, "length": extents.length}
    _write_stream(out, samples, _SAMPLES)
    _write_stream(out, runs, _RUNS)
    _write_stream(out, {name: [getattr(file, name) for file in files] for name in _FILES}, _FILES)


def _write_stream(out: Any, columns: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> None:
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items() if values is not None}
    batch = pa.record_batch(list(arrays.values()), names=list(arrays))
    batch = batch.replace_schema_metadata({b"modyn_index": _VERSION})
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)


@dataclass(frozen=True)
class BatchIndex:
    """An index, mapped: arrays are views of the file, read-only.

    What Python reads after it was opened is private instead: the files, their sizes, and the extent where there is one only.
    So whatever is written to the mapped file later, only kernels meet it, who survive that.

    Attributes:
        path: of the index file.
        content: its mapped bytes.
        version: what the file was when it was mapped.
        times: ``datetime64[us][n]``, ascending.
        labels: class indices ``int64[n]``; None where the dataset has no classes.
        targets: ``float64[n]``; None where it has no regression target.
        extents: where the samples lie; all of them inside files of ``sizes``.
        sizes: of the files in bytes, ``int64``.
        width: the length in bytes that all samples have; None where they differ, or where there are none.
    """

    path: Path
    content: MappedFile
    version: Version
    times: TimeArray
    labels: Int64Array | None
    targets: npt.NDArray[np.float64] | None
    extents: Extents
    sizes: Int64Array
    width: int | None
    _files: pa.RecordBatch

    @classmethod
    def open(cls, path: Path, checksum: str | None = None) -> Self:
        """Map an index; with a checksum (hex BLAKE2b, 16 bytes) the whole file is verified first. Raises ``CorruptFile``.

        Without one only the structure is checked: that everything it says is possible.
        """
        content, version = open_verified(Expected(path, None, checksum))
        try:
            skeleton = Skeleton(content, is_stream=True)
            with pa.PythonFile(skeleton, mode="r") as source:
                samples, runs = (_read_stream(source, types) for types in (_SAMPLES, _RUNS))
                rest = private_copy(path, np.frombuffer(memoryview(content), dtype=np.uint8)[skeleton.tell() :])
            columns = {name: _values(samples, name, skeleton) for name in _SAMPLES}
            extents = Extents(**{name: _values(runs, name, skeleton) for name in _RUNS})
            extents = _private(path, extents) if len(extents.file) == 1 else extents
            with pa.BufferReader(pa.py_buffer(rest)) as source:
                files = _read_stream(source, _FILES)
            sizes = _values(files, "size")
            files.validate(full=True)
            if files.column("checksum").null_count:
                raise ValueError("a file has no checksum")
        except _UNREADABLE as error:
            raise CorruptFile(path, "the index of a batch", str(error)) from error
        times = columns["time"].view("datetime64[us]")
        width = _checked(path, len(times), extents, sizes)
        return cls(path, content, version, times, columns["label"], columns["target"], extents, sizes, width, files)

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.times)

    @property
    def files(self) -> tuple[IndexedFile, ...]:
        """What ``locate`` points to."""
        return tuple(self.file(i) for i in range(len(self.sizes)))

    def file(self, i: int) -> IndexedFile:
        """One of the files."""
        return IndexedFile(*(self._files[name][i].as_py() for name in _FILES))

    def locate(self, positions: Int64Array) -> tuple[npt.NDArray[np.int32], Int64Array, Int64Array]:
        """Where samples lie: index into ``files``, byte offset and length, each ``[k]``; positions below ``n``."""
        return self.extents.locate(positions)

    def place(self, position: int) -> tuple[int, int]:
        """The file and the offset of one sample, whatever was written over the mapped index. Raises ``CorruptFile``."""
        file, offset, _ = _private(self.path, self.extents).locate(np.array([position]))
        if not 0 <= file[0] < len(self.sizes):
            raise CorruptFile(self.path, f"one of {len(self.sizes)} files", f"file {file[0]}")
        return int(file[0]), int(offset[0])


def private_copy(path: Path, values: npt.NDArray[Any]) -> Any:
    """A copy of an array of a mapped index; raises ``CorruptFile`` when the file was cut short."""
    copy = np.empty(len(values), dtype=values.dtype)
    if copy_out(values.__array_interface__["data"][0], copy.view(np.uint8)):
        raise CorruptFile(path, "the index of a batch", "that it was cut short while it was read")
    return copy


def _private(path: Path, extents: Extents) -> Extents:
    named: dict[str, Any] = {name: getattr(extents, name) for name in _RUNS}
    copies: dict[str, Any] = {name: None if values is None else private_copy(path, values) for name, values in named.items()}
    return Extents(**copies)


def _read_stream(source: pa.NativeFile, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    reader = pa.ipc.open_stream(source)
    if reader.schema.metadata != {b"modyn_index": _VERSION}:
        raise ValueError(f"expected an index of version {_VERSION.decode()}, found metadata {reader.schema.metadata}")
    # To the end marker, so that the next stream begins where this one ends.
    batches = list(reader)
    if len(batches) != 1:
        raise ValueError(f"a stream of an index has one record batch, found {len(batches)}")
    [batch] = batches
    batch.validate()
    names = batch.schema.names
    if len(set(names)) < len(names) or any(types.get(field.name) != field.type for field in batch.schema):
        raise ValueError(f"expected columns of {dict(types)}, found {batch.schema}")
    if missing := (_REQUIRED & set(types)) - set(names):
        raise ValueError(f"columns {sorted(missing)} are missing")
    return batch


def _values(batch: pa.RecordBatch, name: str, skeleton: Skeleton | None = None) -> Any:
    """A column as it lies in the file, or in the file of this skeleton; None where the stream has none of this name."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    column = column.view(pa.int64()) if name == "time" else column
    values = column.to_numpy(zero_copy_only=True)
    if skeleton is not None and len(values):
        values = skeleton.place(values)
    if column.null_count or not values.flags.aligned:
        raise ValueError(f"column {name} has {column.null_count} nulls or is not aligned")
    return values


def _checked(path: Path, n: int, extents: Extents, sizes: Int64Array) -> int | None:
    """The common length of samples. Raises ``CorruptFile`` when an extent leads out of its file or the runs are in disorder."""
    runs = [len(values) for values in (extents.start, extents.stride) if values is not None]
    if len(runs) == 1 or (not runs and len(extents.file) != n) or (n > 0 and len(extents.file) == 0):
        raise CorruptFile(path, f"extents of {n} samples", f"{len(extents.file)} extents, {len(runs)} of start and stride")
    broken, shortest, longest = check_extents(
        extents.file, extents.offset, extents.length, extents.start, extents.stride, n, sizes
    )
    if broken != -1:
        raise CorruptFile(path, "extents inside their files, in order", f"extent {broken} outside" if broken >= 0 else "no data")
    return shortest if shortest == longest and n > 0 else None
