"""Training set on disk: an Arrow file with a record batch of keys and weights per partition.

An optional third column, ``chance``, holds the probability with which each sample was included in the set. Each record batch
has the digest of the bytes of its columns, one after the other (XXH3, 128 bits, hex), under ``xxh3`` in its custom metadata.
One more, empty record batch closes the file; its metadata hold, under ``partitions``, the length and the digest of all
partitions. The checksum of the set is the digest of that table, so a set is opened without reading its data, and each partition
is verified with its first use.
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

from fastpath.array_types import KeyArray, WeightArray, address_of
from fastpath.errors import CorruptFile
from fastpath.format.mapped_files import open_descriptor
from fastpath.format.skeleton import ARROW_ERRORS, Skeleton, open_arrow_file
from fastpath.kernels._take import copy_out

SCHEMA: Final = pa.schema([pa.field("key", pa.uint64(), nullable=False), pa.field("weight", pa.float32(), nullable=False)])
PROBABILITY_SCHEMA: Final = SCHEMA.append(pa.field("chance", pa.float32(), nullable=False))
DIGEST_FIELD: Final = b"xxh3"
TABLE_FIELD: Final = b"partitions"
#: Row of the table of partitions: number of samples, digest.
TABLE_DTYPE: Final = np.dtype([("n", "<u8"), ("digest", "V16")])

#: Bytes copied and hashed at once: they stay in the second-level cache.
_PIECE: Final = 1 << 20
_local = threading.local()


class Partition(NamedTuple):
    """Keys ``uint64[n]`` and weights ``float32[n]`` of one record batch, as read-only views of the mapped file."""

    keys: KeyArray
    weights: WeightArray


def checksum_of(table: bytes) -> str:
    """Checksum of a set with this table of partitions."""
    return f"xxh3:{xxhash.xxh3_128_hexdigest(table)}"


class TrainingSetFile:
    """Mapped training set.

    Raises ``CorruptFile`` for a file that is no training set, or has another checksum.

    Attributes:
        path: file of the set.
        sizes: samples of each partition, ``int64[m]``.
        checksum: checksum of the whole set.
        has_chances: whether the set has inclusion probabilities.
    """

    def __init__(self, path: Path, checksum: str | None = None) -> None:
        self.path = path
        self._map()
        try:
            self._read_footer()
            table = self._table()
        except ARROW_ERRORS as error:
            raise self.corrupt("a training set", str(error)) from error
        self.checksum = checksum_of(table)
        if checksum is not None and self.checksum != checksum:
            raise self.corrupt(f"checksum {checksum}", self.checksum)
        rows = np.frombuffer(table, dtype=TABLE_DTYPE)
        # As floats, whose sum does not overflow. The footer may name one record batch as thousands of partitions.
        n = rows["n"].astype(np.float64).sum()
        if n * sum(field.type.bit_width // 8 for field in self._reader.schema) > self._size:
            raise self.corrupt("partitions that fit into the file", f"{n:.0f} samples in {self._size} bytes")
        self.sizes = rows["n"].astype(np.int64)
        self._digests = rows["digest"]

    def read(self, i: int) -> Partition:
        """Read partition i and compare it with its digest. Raises ``CorruptFile``."""
        batch = self._record_batch(i)
        keys = self._values(i, batch.column(0), np.dtype(np.uint64))
        weights = self._values(i, batch.column(1), np.dtype(np.float32))
        digest = self._digest(i, keys, weights, *([self.chances(i)] if self.has_chances else []))
        expected = self._digests[i].tobytes()
        if digest != expected:
            raise self.corrupt(f"partition {i} with digest {expected.hex()}", digest.hex())
        return Partition(keys, weights)

    def first_key(self, i: int) -> int:
        """First key of a partition that has any, without comparing the partition with its digest. Raises ``CorruptFile``."""
        first = np.empty(1, np.uint64)
        keys = self._values(i, self._record_batch(i).column(0), np.dtype(np.uint64))
        if copy_out(address_of(keys), first.view(np.uint8)):
            raise self.corrupt(f"partition {i}", "a file that was cut short")
        return int(first[0])

    def chances(self, i: int) -> WeightArray:
        """Inclusion probabilities of partition i, ``float32[n]``; ``read`` verifies them with the keys and weights."""
        self.check_unchanged()
        try:
            column = self._reader.get_batch(i).column(2)
        except ARROW_ERRORS as error:
            raise self.corrupt(f"the chances of partition {i}", str(error)) from error
        if len(column) != int(self.sizes[i]):
            raise self.corrupt(f"{self.sizes[i]} chances in partition {i}", str(len(column)))
        return self._values(i, column, np.dtype(np.float32))

    def check_unchanged(self) -> None:
        """Raise ``CorruptFile`` for a file that was written to since it was opened; removing it does no harm."""
        version = _version(self._descriptor)
        if version != self._version:
            change = "it was written to" if version[0] == self._size else f"it has {version[0]} now"
            raise self.corrupt(f"{self._size} bytes, as when it was opened", change)

    def corrupt(self, expected: str, found: str) -> CorruptFile:
        """Error about this file."""
        return CorruptFile(self.path, expected, found)

    def _map(self) -> None:
        try:
            self._descriptor = open_descriptor(self.path)
            # Not at the interpreter's exit: threads may still read the file.
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
        self.has_chances = self._reader.schema.equals(PROBABILITY_SCHEMA)
        if not (self.has_chances or self._reader.schema.equals(SCHEMA)):
            raise ValueError(f"the columns {', '.join(map(str, self._reader.schema))}")
        last = self._reader.num_record_batches - 1
        closing = self._reader.get_batch_with_custom_metadata(last) if last >= 0 else None
        metadata = closing.custom_metadata if closing is not None else None
        if metadata is None or TABLE_FIELD not in metadata:
            raise ValueError("no table of partitions at its end")
        table = bytes.fromhex(metadata[TABLE_FIELD].decode("ascii"))
        if len(table) != last * TABLE_DTYPE.itemsize:
            raise ValueError(f"a table of {len(table)} bytes for {last} partitions")
        return table

    def _record_batch(self, i: int) -> pa.RecordBatch:
        self.check_unchanged()
        try:
            if self._process != os.getpid():
                # A thread of the parent process may hold the lock of its reader for ever.
                self._read_footer()
            batch = self._reader.get_batch(i)
            batch.validate()
        except ARROW_ERRORS as error:
            raise self.corrupt(f"partition {i}", str(error)) from error
        n = int(self.sizes[i])
        if batch.num_rows != n:
            raise self.corrupt(f"{n} samples in partition {i}", str(batch.num_rows))
        return batch

    def _values(self, i: int, column: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        # The file may hold anything: only checked facts of a batch are trusted.
        n = len(column)
        if n == 0:
            return np.empty(0, dtype=dtype)
        validity, data = column.buffers()
        try:
            if validity is not None or column.offset or data is None or data.size < n * dtype.itemsize:
                raise ValueError("nulls, or missing values")
            values = self._skeleton.view(np.frombuffer(data, dtype=dtype, count=n))
            if not values.flags.aligned:
                raise ValueError("values that are not aligned")
        except ValueError as error:
            raise self.corrupt(f"{n} plain values in each column of partition {i}", str(error)) from error
        return values

    def _digest(self, i: int, *columns: npt.NDArray[Any]) -> bytes:
        hashed = xxhash.xxh3_128()
        piece = _scratch()
        for column in columns:
            address = address_of(column)
            for start in range(0, column.nbytes, _PIECE):
                part = piece[: min(_PIECE, column.nbytes - start)]
                if copy_out(address + start, part):
                    raise self.corrupt(f"partition {i}", "a file that was cut short")
                hashed.update(part.data)
        return hashed.digest()


def _scratch() -> npt.NDArray[np.uint8]:
    if not hasattr(_local, "piece"):
        _local.piece = np.empty(_PIECE, dtype=np.uint8)
    piece: npt.NDArray[np.uint8] = _local.piece
    return piece


def _version(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def check_columns(keys: KeyArray, weights: WeightArray) -> None:
    """Raise ``ValueError`` unless these are ``uint64[n]`` and ``float32[n]``."""
    for name, array, dtype in (("keys", keys, np.uint64), ("weights", weights, np.float32)):
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} must be {np.dtype(dtype)}[n], not {type(array).__name__}")
        if array.dtype != dtype or array.ndim != 1:
            raise ValueError(f"{name} must be {np.dtype(dtype)}[n], not {array.dtype}{list(array.shape)}")
    if len(keys) != len(weights):
        raise ValueError(f"there must be a weight for each key: {len(keys)} keys, {len(weights)} weights")
