"""Index of a batch: times, labels and places of its samples, one Arrow file that is mapped and never parsed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.array_types import Int64Array, TimeArray, address_of
from fastpath.copies import opened_again
from fastpath.errors import CorruptFile
from fastpath.format.blocks import Digests, n_blocks
from fastpath.format.index_file import BLOCKS, FILES, RUNS, SAMPLES, Extents, IndexedFile, read_stream, values_of
from fastpath.format.mapped_files import Expected, Version, open_verified
from fastpath.format.skeleton import ARROW_ERRORS, Skeleton
from fastpath.kernels._extents import check_extents
from fastpath.kernels._files import MappedFile
from fastpath.kernels._take import copy_out


@dataclass(frozen=True)
class BatchIndex:
    """Mapped index: arrays are read-only views of the file.

    Values that Python reads after opening are private copies instead: the files, their sizes, and a single extent. If the mapped
    file is overwritten later, only kernels read the damage, and they survive it.

    Attributes:
        path: index file.
        content: mapped bytes of the file.
        version: version of the mapped file.
        times: ``datetime64[us][n]``, ascending.
        labels: class indices ``int64[n]``; None for a dataset without classes.
        targets: ``float64[n]``; None for a dataset without a regression target.
        extents: places of the samples, all inside files of ``sizes``.
        sizes: bytes of the files, ``int64``.
        width: common length of all samples in bytes; None where they differ, or where there are none.
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
    _blocks_at: int

    @classmethod
    def open(cls, path: Path, checksum: str | None = None) -> Self:
        """Map an index; with a checksum (hex BLAKE2b, 16 bytes) verify the whole file first. Raises ``CorruptFile``.

        Without a checksum only the structure is checked: all values must be possible.
        """
        return opened_again(path, lambda: cls._open(path, checksum))

    @classmethod
    def _open(cls, path: Path, checksum: str | None) -> Self:
        content, version = open_verified(Expected(path, None, checksum))
        try:
            skeleton = Skeleton(content, is_stream=True)
            with pa.PythonFile(skeleton, mode="r") as source:
                samples, runs = (read_stream(source, types) for types in (SAMPLES, RUNS))
                files_at = skeleton.tell()
                rest = private_copy(path, np.frombuffer(memoryview(content), dtype=np.uint8)[files_at:])
            columns = {name: values_of(samples, name, skeleton) for name in SAMPLES}
            extents = Extents(**{name: values_of(runs, name, skeleton) for name in RUNS})
            extents = _private(path, extents) if len(extents.file) == 1 else extents
            listed = Skeleton(rest, is_stream=True)
            with pa.PythonFile(listed, mode="r") as source:
                files = read_stream(source, FILES)
                blocks_at = files_at + listed.tell()
            files = pa.record_batch([listed.real(column) for column in files.columns], schema=files.schema)
            files.validate(full=True)
            sizes = values_of(files, "size")
            if files.column("checksum").null_count:
                raise ValueError("a file has no checksum")
        except ARROW_ERRORS as error:
            raise CorruptFile(path, "the index of a batch", str(error)) from error
        times = columns["time"].view("datetime64[us]")
        width = _checked(path, len(times), extents, sizes)
        return cls(path, content, version, times, columns["label"], columns["target"], extents, sizes, width, files, blocks_at)

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.times)

    @property
    def files(self) -> tuple[IndexedFile, ...]:
        """Files that ``locate`` refers to."""
        return tuple(self.file(i) for i in range(len(self.sizes)))

    def file(self, i: int) -> IndexedFile:
        """File with this number."""
        return IndexedFile(*(self._files[name][i].as_py() for name in FILES))

    def block_digests(self) -> list[Digests] | None:
        """Digests of the blocks of each file, ``uint64[n_blocks]``; None for an index without them. Raises ``CorruptFile``."""
        rest = private_copy(self.path, np.frombuffer(memoryview(self.content), dtype=np.uint8)[self._blocks_at :])
        if len(rest) == 0:
            return None
        try:
            listed = Skeleton(rest, is_stream=True)
            with pa.PythonFile(listed, mode="r") as source:
                digests = values_of(read_stream(source, BLOCKS), "xxh3", listed)
        except ARROW_ERRORS as error:
            raise CorruptFile(self.path, "digests of blocks", str(error)) from error
        counts = [n_blocks(size) for size in self.sizes.tolist()]
        if len(digests) != sum(counts):
            raise CorruptFile(self.path, f"digests of {sum(counts)} blocks", str(len(digests)))
        return np.split(digests, np.cumsum(counts)[:-1])

    def positions_in(self, file: int, start: int, stop: int) -> tuple[int, int] | None:
        """First and last position whose bytes lie in ``start`` to ``stop`` of a file; None where there is none."""
        files, offsets, lengths = self.locate(np.arange(self.n))
        found = np.flatnonzero((files == file) & (offsets < stop) & (offsets + lengths > start))
        return (int(found[0]), int(found[-1])) if len(found) else None

    def locate(self, positions: Int64Array) -> tuple[npt.NDArray[np.int32], Int64Array, Int64Array]:
        """Places of samples: index into ``files``, byte offset and length, each ``[k]``; positions below ``n``."""
        return self.extents.locate(positions)

    def locate_one(self, position: int) -> tuple[int, int]:
        """File and offset of one sample, safe even if the mapped index was overwritten. Raises ``CorruptFile``."""
        file, offset, _ = _private(self.path, self.extents).locate(np.array([position]))
        if not 0 <= file[0] < len(self.sizes):
            raise CorruptFile(self.path, f"one of {len(self.sizes)} files", f"file {file[0]}")
        return int(file[0]), int(offset[0])


def private_copy(path: Path, values: npt.NDArray[Any]) -> Any:
    """Copy of an array of a mapped index; raises ``CorruptFile`` for a file that was cut short."""
    copy = np.empty(len(values), dtype=values.dtype)
    if copy_out(address_of(values), copy.view(np.uint8)):
        raise CorruptFile(path, "the index of a batch", "a file that was cut short while it was read")
    return copy


def _private(path: Path, extents: Extents) -> Extents:
    named: dict[str, Any] = {name: getattr(extents, name) for name in RUNS}
    copies: dict[str, Any] = {name: None if values is None else private_copy(path, values) for name, values in named.items()}
    return Extents(**copies)


def _checked(path: Path, n: int, extents: Extents, sizes: Int64Array) -> int | None:
    """Common length of the samples. Raises ``CorruptFile`` for an extent outside its file, and for runs out of order."""
    runs = [len(values) for values in (extents.start, extents.stride) if values is not None]
    if len(runs) == 1 or (not runs and len(extents.file) != n) or (n > 0 and len(extents.file) == 0):
        raise CorruptFile(path, f"extents of {n} samples", f"{len(extents.file)} extents, {len(runs)} of start and stride")
    broken, shortest, longest = check_extents(
        extents.file, extents.offset, extents.length, extents.start, extents.stride, n, sizes
    )
    if broken != -1:
        raise CorruptFile(path, "extents inside their files, in order", f"extent {broken} outside" if broken >= 0 else "no data")
    return shortest if shortest == longest and n > 0 else None
