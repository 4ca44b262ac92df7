"""The index of a batch: times, labels and places of its samples, one Arrow file that is mapped and never parsed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.array_types import Int64Array, TimeArray
from fastpath.errors import CorruptFile
from fastpath.format.index_file import FILES, RUNS, SAMPLES, Extents, IndexedFile, read_stream, values_of, write_index_to
from fastpath.format.mapped_files import Expected, Version, open_verified
from fastpath.format.skeleton import Skeleton
from fastpath.kernels._extents import check_extents
from fastpath.kernels._files import MappedFile
from fastpath.kernels._take import copy_out

__all__ = ["BatchIndex", "Extents", "IndexedFile", "Int64Array", "TimeArray", "write_index_to"]

#: What Arrow raises for bytes that are not what it expects.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError)


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
                samples, runs = (read_stream(source, types) for types in (SAMPLES, RUNS))
                rest = private_copy(path, np.frombuffer(memoryview(content), dtype=np.uint8)[skeleton.tell() :])
            columns = {name: values_of(samples, name, skeleton) for name in SAMPLES}
            extents = Extents(**{name: values_of(runs, name, skeleton) for name in RUNS})
            extents = _private(path, extents) if len(extents.file) == 1 else extents
            with pa.BufferReader(pa.py_buffer(rest)) as source:
                files = read_stream(source, FILES)
            sizes = values_of(files, "size")
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
        return IndexedFile(*(self._files[name][i].as_py() for name in FILES))

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
    named: dict[str, Any] = {name: getattr(extents, name) for name in RUNS}
    copies: dict[str, Any] = {name: None if values is None else private_copy(path, values) for name, values in named.items()}
    return Extents(**copies)


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
