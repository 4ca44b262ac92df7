"""Index file of a batch: Arrow IPC streams, one after the other.

``samples`` has a row per sample, in key order; ``extents`` the runs of samples at equal distances in one file; ``files`` the
files that the extents refer to. A fourth stream, ``blocks``, has the digests of the blocks of these files, one file after the
other (``fastpath.format.blocks``); older indexes end without it. Equal content gives equal bytes: there is no date, no run id,
and no path but those of source files relative to the dataset's root.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.array_types import Int64Array, TimeArray
from fastpath.format.skeleton import Skeleton


@dataclass(frozen=True, slots=True)
class Extents:
    """Runs of samples: run r is samples ``start[r]`` to ``start[r + 1]``, the i-th of them at ``offset[r] + i * stride[r]``.

    All are ``int64[runs]``, ``file`` ``int32[runs]``; ``start`` and ``stride`` are None when every sample is a run of its own.
    """

    file: npt.NDArray[np.int32]
    offset: Int64Array
    length: Int64Array
    start: Int64Array | None = None
    stride: Int64Array | None = None

    @classmethod
    def of(cls, file: npt.NDArray[np.int32], offset: Int64Array, length: Int64Array) -> Self:
        """Merge the places of single samples into runs: same file, same length, one right behind the other."""
        behind = (file[1:] == file[:-1]) & (length[1:] == length[:-1]) & (offset[1:] == offset[:-1] + length[:-1])
        start = np.flatnonzero(np.concatenate(([True], ~behind)))
        if len(start) >= len(file):
            return cls(file, offset, length)
        return cls(file[start], offset[start], length[start], start, length[start])

    def locate(self, positions: Int64Array) -> tuple[npt.NDArray[np.int32], Int64Array, Int64Array]:
        """File, offset and length of samples."""
        if self.start is None or self.stride is None:
            return self.file[positions], self.offset[positions], self.length[positions]
        run = np.searchsorted(self.start, positions, side="right") - 1
        offset = self.offset[run] + (positions - self.start[run]) * self.stride[run]
        return self.file[run], offset, self.length[run]


_VERSION: Final = b"1"
_TIME: Final = pa.timestamp("us", tz="UTC")
#: The columns of the three streams.
SAMPLES: Final = {"time": _TIME, "label": pa.int64(), "target": pa.float64()}
RUNS: Final = {"start": pa.int64(), "file": pa.int32(), "offset": pa.int64(), "stride": pa.int64(), "length": pa.int64()}
FILES: Final = {"path": pa.string(), "size": pa.int64(), "checksum": pa.string()}
BLOCKS: Final = {"xxh3": pa.uint64()}
_REQUIRED: Final = {"time", "file", "offset", "length", "path", "size", "checksum", "xxh3"}


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """File that holds samples.

    Attributes:
        path: relative to the dataset's root; None for the batch's own shard.
        checksum: hex BLAKE2b, 16 bytes.
        blocks: little-endian digests of its blocks, 8 bytes each; None where they are not known.
    """

    path: str | None
    size: int
    checksum: str
    blocks: bytes | None = None


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
    _write_stream(out, samples, SAMPLES)
    _write_stream(out, runs, RUNS)
    _write_stream(out, {name: [getattr(file, name) for file in files] for name in FILES}, FILES)
    blocks = [file.blocks for file in files if file.blocks is not None]
    if len(blocks) == len(files):
        _write_stream(out, {"xxh3": np.frombuffer(b"".join(blocks), dtype="<u8")}, BLOCKS)


def _write_stream(out: Any, columns: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> None:
    arrays = {name: pa.array(values, types[name]) for name, values in columns.items() if values is not None}
    batch = pa.record_batch(list(arrays.values()), names=list(arrays))
    batch = batch.replace_schema_metadata({b"modyn_index": _VERSION})
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)


def read_stream(source: pa.NativeFile, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """Record batch of the next stream. ``ValueError`` unless it has this version and columns of these types."""
    reader = pa.ipc.open_stream(source)
    if reader.schema.metadata != {b"modyn_index": _VERSION}:
        raise ValueError(f"expected an index of version {_VERSION.decode()}, found metadata {reader.schema.metadata}")
    # Read to the end marker: the next stream begins behind it.
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


def values_of(batch: pa.RecordBatch, name: str, skeleton: Skeleton | None = None) -> Any:
    """Column as an array over the file, or over the file of this skeleton; None for a column that the stream lacks."""
    if name not in batch.schema.names:
        return None
    column = batch.column(name)
    column = column.view(pa.int64()) if name == "time" else column
    values = column.to_numpy(zero_copy_only=True)
    if skeleton is not None and len(values):
        values = skeleton.view(values)
    if column.null_count or not values.flags.aligned:
        raise ValueError(f"column {name} has {column.null_count} nulls or is not aligned")
    return values
