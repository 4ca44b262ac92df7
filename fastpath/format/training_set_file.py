"""A training set on disk: an Arrow file with a record batch of keys and weights per partition.

A third column, which most sets do without, holds the chance with which each sample got into the set. Each record batch has the
digest of the bytes of its columns, one after the other (XXH3, 128 bits, hex) under ``xxh3`` in its custom
metadata. One more, empty record batch closes the file; its metadata hold, under ``partitions``, the length and the digest of all
partitions, and the checksum of the set is the digest of that table. So a set is opened without reading its data, and each
partition is compared with the checksum when it is touched first.
"""

import os
import threading
import weakref
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from fastpath.array_types import KeyArray, WeightArray
from fastpath.errors import CorruptFile
from fastpath.format.skeleton import Skeleton, open_arrow_file
from fastpath.kernels._take import copy_out

SCHEMA: Final = pa.schema([pa.field("key", pa.uint64(), nullable=False), pa.field("weight", pa.float32(), nullable=False)])
CHANCE_SCHEMA: Final = SCHEMA.append(pa.field("chance", pa.float32(), nullable=False))
DIGEST_FIELD: Final = b"xxh3"
TABLE_FIELD: Final = b"partitions"
#: One row of the table of partitions: number of samples, digest.
TABLE_DTYPE: Final = np.dtype([("n", "<u8"), ("digest", "V16")])

#: Bytes copied and hashed at once: they stay in the second level cache.
_PIECE: Final = 1 << 20
#: What Arrow raises for bytes that are not what it expects.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError)
_own = threading.local()


class Partition(NamedTuple):
    """Keys ``uint64[n]`` and weights ``float32[n]`` of one record batch; inside, read-only views of its mapping."""

    keys: KeyArray
    weights: WeightArray


def checksum_of(table: bytes) -> str:
    """The checksum of a set whose table of partitions has these bytes."""
    return f"xxh3:{xxhash.xxh3_128_hexdigest(table)}"


class TrainingSetFile:
    """A mapped file. ``sizes int64[m]`` are the samples of each partition, ``checksum`` that of the whole.

    Raises ``CorruptFile`` when the file is none of a training set, or not the one of this checksum.
    """

    def __init__(self, path: Path, checksum: str | None = None) -> None:
        self.path = path
        self._map()
        try:
            self._read_footer()
            table = self._table()
        except _UNREADABLE as error:
            raise self.corrupt("a training set", str(error)) from error
        self.checksum = checksum_of(table)
        if checksum is not None and self.checksum != checksum:
            raise self.corrupt(f"checksum {checksum}", self.checksum)
        rows = np.frombuffer(table, dtype=TABLE_DTYPE)
        # No partition is larger than the file: their sum does not overflow.
        if (rows["n"] > self._size).any():
            raise self.corrupt("partitions that fit into the file", f"one of {rows['n'].max()} samples")
        self.sizes = rows["n"].astype(np.int64)
        self._digests = rows["digest"]

    def read(self, i: int) -> Partition:
        """Partition i, compared with its digest. Raises ``CorruptFile``."""
        self.check_unchanged()
        try:
            if self._process != os.getpid():
                # The reader of the parent may be locked, by a thread that is not here.
                self._read_footer()
            batch = self._reader.get_batch(i)
            batch.validate()
        except _UNREADABLE as error:
            raise self.corrupt(f"partition {i}", str(error)) from error
        n = int(self.sizes[i])
        if batch.num_rows != n:
            raise self.corrupt(f"{n} samples in partition {i}", str(batch.num_rows))
        keys = self._values(i, batch.column(0), np.dtype(np.uint64))
        weights = self._values(i, batch.column(1), np.dtype(np.float32))
        digest = self._digest(i, keys, weights, *([self.chances(i)] if self.has_chances else []))
        expected = self._digests[i].tobytes()
        if digest != expected:
            raise self.corrupt(f"partition {i} with digest {expected.hex()}", digest.hex())
        return Partition(keys, weights)

    def chances(self, i: int) -> WeightArray:
        """The chances of partition i, ``float32[n]``, of a file that has some; ``read`` compares them with the digest."""
        self.check_unchanged()
        try:
            column = self._reader.get_batch(i).column(2)
        except _UNREADABLE as error:
            raise self.corrupt(f"the chances of partition {i}", str(error)) from error
        if len(column) != int(self.sizes[i]):
            raise self.corrupt(f"{self.sizes[i]} chances in partition {i}", str(len(column)))
        return self._values(i, column, np.dtype(np.float32))

    def check_unchanged(self) -> None:
        """Raise ``CorruptFile`` when somebody wrote to the file since it was opened; that it is gone does no harm."""
        found = _version(self._descriptor)
        if found != self._version:
            what = "it was written to" if found[0] == self._size else f"it has {found[0]} now"
            raise self.corrupt(f"{self._size} bytes, as when it was opened", what)

    def corrupt(self, expected: str, found: str) -> CorruptFile:
        """The error that says what is wrong with this file."""
        return CorruptFile(self.path, expected, found)

    def _map(self) -> None:
        try:
            # A pipe in place of a file would wait for a writer for ever.
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            # Not at the interpreter's exit: threads may still look at the file.
            weakref.finalize(self, os.close, self._descriptor).atexit = False
            self._version = _version(self._descriptor)
            self._mapped = mmap(self._descriptor, 0, access=ACCESS_READ)
        except (OSError, ValueError) as error:
            raise self.corrupt("a training set", getattr(error, "strerror", None) or str(error)) from error
        self._size = len(self._mapped)

    def _read_footer(self) -> None:
        self._skeleton = Skeleton(self._mapped, is_stream=False)
        self._reader = open_arrow_file(self, self._skeleton)
        self._process = os.getpid()

    def _table(self) -> bytes:
        self.has_chances = self._reader.schema.equals(CHANCE_SCHEMA)
        if not (self.has_chances or self._reader.schema.equals(SCHEMA)):
            raise ValueError(f"the columns {', '.join(map(str, self._reader.schema))}")
        last = self._reader.num_record_batches - 1
        found = self._reader.get_batch_with_custom_metadata(last) if last >= 0 else None
        metadata = found.custom_metadata if found is not None else None
        if metadata is None or TABLE_FIELD not in metadata:
            raise ValueError("no table of partitions at its end: an earlier version may have written it; select again")
        table = bytes.fromhex(metadata[TABLE_FIELD].decode("ascii"))
        if len(table) != last * TABLE_DTYPE.itemsize:
            raise ValueError(f"a table of {len(table)} bytes for {last} partitions")
        return table

    def _values(self, i: int, column: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        # What stands in the file may be anything: nothing is believed of a batch but what was looked at.
        n = len(column)
        if n == 0:
            return np.empty(0, dtype=dtype)
        validity, data = column.buffers()
        try:
            if validity is not None or column.offset or data is None or data.size < n * dtype.itemsize:
                raise ValueError("nulls, or values that are not there")
            values = self._skeleton.place(np.frombuffer(data, dtype=dtype, count=n))
            if not values.flags.aligned:
                raise ValueError("values that are not aligned")
        except ValueError as error:
            raise self.corrupt(f"{n} plain values in each column of partition {i}", str(error)) from error
        return values

    def _digest(self, i: int, *columns: npt.NDArray[Any]) -> bytes:
        hashed = xxhash.xxh3_128()
        piece = _scratch()
        for column in columns:
            address = column.__array_interface__["data"][0]
            for start in range(0, column.nbytes, _PIECE):
                part = piece[: min(_PIECE, column.nbytes - start)]
                if copy_out(address + start, part):
                    raise self.corrupt(f"partition {i}", "that the file was cut short")
                hashed.update(part.data)
        return hashed.digest()


def _scratch() -> npt.NDArray[np.uint8]:
    if not hasattr(_own, "piece"):
        _own.piece = np.empty(_PIECE, dtype=np.uint8)
    piece: npt.NDArray[np.uint8] = _own.piece
    return piece


def _version(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


def check_columns(keys: KeyArray, weights: WeightArray) -> None:
    """Raise ``ValueError`` unless these are ``uint64[n]`` and ``float32[n]``."""
    for name, array, dtype in (("keys", keys, np.uint64), ("weights", weights, np.float32)):
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} must be {np.dtype(dtype)}[n], not {type(array).__name__}")
        if array.dtype != dtype or array.ndim != 1:
            raise ValueError(f"{name} must be {np.dtype(dtype)}[n], not {array.dtype}{list(array.shape)}")
    if len(keys) != len(weights):
        raise ValueError(f"there must be a weight for each key: {len(keys)} keys, {len(weights)} weights")
