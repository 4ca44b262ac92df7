"""Sound files of each kind, and the parts that impossible ones are made of."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa

from fastpath import TrainingSetWriter
from fastpath.format.deletions import write_deleted
from fastpath.format.index_file import Extents, IndexedFile, write_index_to
from fastpath.format.training_set_file import SCHEMA
from tests.fastpath.made_store import digest

FILES = [IndexedFile("a/b.csv", 10_000, "c1"), IndexedFile(None, 10_000, "c2")]


def times(n: int) -> np.ndarray:
    return (np.arange(n) * 10).astype("datetime64[us]")


def write_index(
    path: Path, extents: Extents, n: int, targets: np.ndarray | None = None, files: list[IndexedFile] | None = None
) -> str:
    labels = np.arange(n) if targets is None else None
    with path.open("wb") as out:
        write_index_to(out, times(n), labels, targets, extents, FILES if files is None else files)
    return digest(path.read_bytes())


def records(n: int) -> Extents:
    return Extents.of(np.zeros(n, np.int32), np.arange(n) * 8, np.full(n, 8))


def one(file: int = 0, offset: int = 0, length: int = 1) -> Extents:
    return Extents(np.array([file], np.int32), np.array([offset]), np.array([length]))


def runs(*of: tuple[int, int, int, int]) -> Extents:
    start, offset, length, stride = (np.array(column) for column in zip(*of))
    return Extents(np.zeros(len(of), np.int32), offset, length, start, stride)


def write_one_row(path: Path, name: str | None, size: int, length: int = 8) -> None:
    extents = Extents(np.zeros(1, np.int32), np.zeros(1, np.int64), np.array([length], np.int64))
    with path.open("wb") as out:
        write_index_to(out, np.zeros(1, "datetime64[us]"), None, None, extents, [IndexedFile(name, size, "x")])


def stream(
    columns: dict[str, pa.Array], metadata: dict[str, str] | None, batches: int = 1, compression: str | None = None
) -> bytes:
    batch = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


VERSION = {"modyn_index": "1"}
SAMPLES = {"time": pa.array([0], pa.timestamp("us", tz="UTC")), "label": pa.array([1], pa.int64())}
RUNS = {"file": pa.array([0], pa.int32()), "offset": pa.array([0], pa.int64()), "length": pa.array([1], pa.int64())}
HELD = {"path": pa.array(["a"]), "size": pa.array([5], pa.int64()), "checksum": pa.array(["c"])}


KEYS = np.arange(0, 21_000, 7, dtype=np.uint64)
WEIGHTS = (np.arange(3_000) / 3).astype(np.float32)


def training_set(size: int = 1_000) -> tuple[bytes, str]:
    """Content and checksum of a training set in partitions of so many samples."""
    out = io.BytesIO()
    with TrainingSetWriter(out) as writer:
        for start in range(0, len(KEYS), size):
            writer.write(KEYS[start : start + size], WEIGHTS[start : start + size])
    return out.getvalue(), writer.checksum


CONTENT, CHECKSUM = training_set()


def write_table(path: Path, table: str) -> None:
    """A training set of one sample without a digest, and any table of partitions."""
    columns = [pa.array([1], pa.uint64()), pa.array([1], pa.float32())]
    write_arrow_file(path, SCHEMA, columns, {"partitions": table})


def write_arrow_file(path: Path, schema: pa.Schema, columns: list[pa.Array], metadata: dict[str, str] | None = None) -> None:
    with path.open("wb") as out, pa.ipc.new_file(out, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema), custom_metadata=metadata)


def write_announced(path: Path, n_there: int, n_announced: int, compression: str | None = None) -> None:
    """A training set of one partition whose table announces another number of samples, or as many."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with path.open("wb") as out, pa.ipc.new_file(out, SCHEMA, options=options) as writer:
        writer.write_batch(pa.record_batch([pa.array(KEYS[:n_there]), pa.array(WEIGHTS[:n_there])], schema=SCHEMA))
        nothing = pa.record_batch([pa.array([], pa.uint64()), pa.array([], pa.float32())], schema=SCHEMA)
        table = n_announced.to_bytes(8, "little").hex() + "00" * 16
        writer.write_batch(nothing, custom_metadata={"partitions": table})


def list_of_deleted(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    write_deleted(out, values)
    return out.getvalue()
