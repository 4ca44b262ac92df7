"""Prediction files: Arrow IPC, written in a stream (or by a background thread) and memory-mapped for reading.

A file holds no run, path or date, so equal predictions are equal bytes.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.errors import CorruptFile
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.storage import atomic_write, verify_checksum

_TRUTH: Final[dict[TaskKind, pa.Field]] = {
    "class": pa.field("label", pa.int64()),
    "target": pa.field("target", pa.float64()),
}


@dataclass(frozen=True, slots=True)
class WrittenPredictions:
    """Catalog row of a prediction file; the keys are None when it is empty."""

    checksum: str
    n_samples: int
    first_key: int | None
    last_key: int | None


def write_predictions(path: Path, parts: Iterable[Predictions], *, kind: TaskKind, n_outputs: int) -> WrittenPredictions:
    """Write predictions as they arrive, one record batch per part; the file appears whole or not at all.

    Columns: ``key`` uint64, ``time`` timestamp[us, UTC], ``label`` int64 or ``target`` float64 (null: none), ``outputs``
    fixed_size_list<float32>[n_outputs], ``loss`` float32 (null: none). Raises ``WriteFailed`` when the write fails.
    """
    n_samples, first, last = 0, None, None
    schema = _schema(kind, n_outputs)
    with atomic_write(path) as file:
        with pa.ipc.new_file(file, schema) as writer:
            for part in parts:
                if len(part) == 0:
                    continue
                writer.write_batch(_record_batch(part, schema))
                n_samples += len(part)
                first = int(part.keys[0]) if first is None else first
                last = int(part.keys[-1])
        return WrittenPredictions(file.checksum, n_samples, first, last)


def read_predictions(path: Path, checksum: str) -> Predictions:
    """Read all predictions of a file; ``CorruptFile`` for another checksum or another kind of file."""
    verify_checksum(path, checksum)
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
    except pa.ArrowInvalid as error:
        raise CorruptFile(path, "predictions as Arrow IPC", str(error)) from error
    kind: TaskKind = "class" if "label" in table.column_names else "target"
    if "outputs" not in table.column_names or table.schema != _schema(kind, table.schema.field("outputs").type.list_size):
        raise CorruptFile(path, "the columns of predictions", str(table.schema))
    n_outputs = table.schema.field("outputs").type.list_size
    return Predictions(
        kind,
        table["key"].to_numpy(),
        table["time"].to_numpy(),
        pc.fill_null(table[_TRUTH[kind].name], -1 if kind == "class" else float("nan")).to_numpy(),
        pc.list_flatten(table["outputs"]).to_numpy().reshape(-1, n_outputs),
        pc.fill_null(table["loss"], float("nan")).to_numpy(),
    )


def _schema(kind: TaskKind, n_outputs: int) -> pa.Schema:
    return pa.schema(
        [
            pa.field("key", pa.uint64(), nullable=False),
            pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
            _TRUTH[kind],
            pa.field("outputs", pa.list_(pa.field("item", pa.float32(), nullable=False), n_outputs), nullable=False),
            pa.field("loss", pa.float32()),
        ]
    )


def _record_batch(part: Predictions, schema: pa.Schema) -> pa.RecordBatch:
    outputs = schema.field("outputs").type
    missing = part.truth < 0 if part.kind == "class" else np.isnan(part.truth)
    columns = [
        pa.array(part.keys, schema.field("key").type),
        pa.array(part.times, schema.field("time").type),
        pa.array(part.truth, schema.field(_TRUTH[part.kind].name).type, mask=missing),
        pa.FixedSizeListArray.from_arrays(pa.array(part.outputs.reshape(-1), outputs.value_type), type=outputs),
        pa.array(part.losses, schema.field("loss").type, mask=np.isnan(part.losses)),
    ]
    return pa.record_batch(columns, schema=schema)


class PredictionWriter:
    """One background thread that writes files in order; at most one file waits, so memory stays bounded.

    Leaving the block waits for all files. A failed write raises from its future only.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="predictions")
        self._last: Future[WrittenPredictions] | None = None

    def write(self, path: Path, parts: Sequence[Predictions], *, kind: TaskKind, n_outputs: int) -> Future[WrittenPredictions]:
        """Run ``write_predictions`` in the thread, after waiting for the file before."""
        self._wait_for_previous()
        self._last = self._pool.submit(write_predictions, path, parts, kind=kind, n_outputs=n_outputs)
        return self._last

    def _wait_for_previous(self) -> None:
        if self._last is not None:
            self._last.exception()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(wait=True)
