"""Exact prediction files: Arrow IPC, written in a stream (or by a background thread) and memory-mapped for reading.

A file holds no run, path or date, so equal predictions are equal bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fastpath.format.skeleton import ARROW_ERRORS, Skeleton, open_arrow_file
from modyn_dagster.errors import CorruptFile, shortened
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.tasks.objectives import UnlabelledKind
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.storage import atomic_write

#: Bytes of a row beside its outputs, without bits that mark nulls.
_ROW_BYTES: Final = 28
#: Those of them that a row without a label lacks.
_TRUTH_BYTES: Final = 8
#: Bytes that Arrow reads of a file at most, beside its record batches: the footer, some of it twice.
_MOST_METADATA: Final = 1 << 16
T = TypeVar("T")
_TRUTH: Final[dict[str, pa.Field]] = {
    "class": pa.field("label", pa.int64()),
    "target": pa.field("target", pa.float64()),
}
#: Key of the metadata that names the task of predictions without labels.
_TASK: Final = b"task"


@dataclass(frozen=True, slots=True)
class WrittenPredictions:
    """Catalog row of a prediction file; the keys are None when it is empty."""

    checksum: str
    n_samples: int
    first_key: int | None
    last_key: int | None


def write_predictions(
    path: Path, parts: Iterable[Predictions], *, kind: TaskKind, n_outputs: int, n_targets: int = 0
) -> WrittenPredictions:
    """Write predictions as they arrive, one record batch per part; the file appears whole or not at all.

    Columns: ``key`` uint64, ``time`` timestamp[us, UTC], ``label`` int64 or ``target`` float64 (null: none), or ``targets``
    fixed_size_list<float64>[n_targets] (NaN: none) where the truth is several columns, ``outputs``
    fixed_size_list<float32>[n_outputs], ``loss`` float32 (null: none). A task without labels has no column of truth, and its name
    as ``task`` in the metadata of the schema. Raises ``WriteFailed`` when the write fails.
    """
    n_samples, first, last = 0, None, None
    schema = _schema(kind, n_outputs, n_targets)
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


def write_content(path: Path, content: bytes, keys: KeyArray) -> WrittenPredictions:
    """Write the content of a compact file for the samples with these keys, whole or not at all. Raises ``WriteFailed``."""
    with atomic_write(path) as file:
        file.write(content)
    first, last = (int(keys[0]), int(keys[-1])) if len(keys) else (None, None)
    return WrittenPredictions(file.checksum, len(keys), first, last)


def read_predictions(path: Path, checksum: str) -> Predictions:
    """Read all predictions of a file; ``CorruptFile`` for another checksum, or content that is never written.

    A right checksum does not make a file sound: columns, sizes and order are checked before values are used. Time and memory
    are bounded by the size of the file.
    """
    with files_at(path).verified(path, checksum) as place:
        try:
            file = _PredictionFile(path, place)
            table = file.read()
        except ARROW_ERRORS as error:
            raise CorruptFile(path, "predictions as Arrow IPC", str(error)) from error
    n_outputs = file.n_outputs
    return Predictions(
        file.kind,
        table["key"].to_numpy(),
        table["time"].to_numpy(),
        file.truth_of(table),
        pc.list_flatten(table["outputs"]).to_numpy().reshape(-1, n_outputs),
        pc.fill_null(table["loss"], float("nan")).to_numpy(),
    )


class _PredictionFile:
    """Mapped prediction file. Arrow is shown its metadata alone, so that no announced size becomes memory.

    Args:
        path: its path, for errors.
        place: where it is held for reading.

    Raises ``CorruptFile`` for other columns, and the errors of ``ARROW_ERRORS``.
    """

    def __init__(self, path: Path, place: Path) -> None:
        with place.open("rb") as file:
            content = mmap(file.fileno(), 0, access=ACCESS_READ)
        self._skeleton = Skeleton(content, is_stream=False)
        self._reader = open_arrow_file(self, self._skeleton)
        schema = self._reader.schema
        self.kind = _kind_of(schema)
        outputs = next((field.type for field in schema if field.name == "outputs"), None)
        self.n_outputs = outputs.list_size if isinstance(outputs, pa.FixedSizeListType) else 0
        targets = next((field.type for field in schema if field.name == "targets"), None)
        self._n_targets = targets.list_size if isinstance(targets, pa.FixedSizeListType) else 0
        if self.n_outputs < 1 or schema != _schema(self.kind, self.n_outputs, self._n_targets):
            raise CorruptFile(path, "the columns of predictions", shortened(str(schema), 1000))

    def read(self) -> pa.Table:
        """All rows, checked."""
        batches = list(self._batches())
        table = pa.Table.from_batches(batches, self._reader.schema)
        keys = table["key"].to_numpy()
        if not (keys[1:] > keys[:-1]).all():
            raise ValueError("keys that are not strictly ascending")
        if self.kind == "class" and len(table) and (pc.min(table["label"]).as_py() or 0) < 0:
            raise ValueError("a negative label")
        return table

    def truth_of(self, table: pa.Table) -> npt.NDArray[Any]:
        """Truth of all rows: -1 or NaN where there is none, zeros for a task without labels."""
        if self.kind not in _TRUTH:
            return np.zeros(len(table))
        if self._n_targets:
            return np.asarray(pc.list_flatten(table["targets"]).to_numpy().reshape(-1, self._n_targets))
        missing = -1 if self.kind == "class" else float("nan")
        return np.asarray(pc.fill_null(table[_TRUTH[self.kind].name], missing).to_numpy())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        skeleton, schema = self._skeleton, self._reader.schema
        row_bytes = _ROW_BYTES + 4 * self.n_outputs + 8 * max(0, self._n_targets - 1)
        row_bytes -= 0 if self.kind in _TRUTH else _TRUTH_BYTES
        room = skeleton.size()
        for i in range(self._reader.num_record_batches):
            batch = self._reader.get_batch(i)
            room -= batch.num_rows * row_bytes
            # A footer may name one batch thousands of times, and metadata of any size with each of them.
            if batch.num_rows == 0 or room < 0 or skeleton.n_read > 2 * skeleton.size() + _MOST_METADATA:
                raise ValueError(f"record batch {i} has {batch.num_rows} rows, more than fit into the file or none")
            real = pa.record_batch([skeleton.real(column) for column in batch.columns], schema=schema)
            real.validate(full=True)
            for name, column in zip(schema.names, real.columns):
                if column.null_count and not schema.field(name).nullable:
                    raise ValueError(f"column {name} has {column.null_count} nulls")
            yield real


def _schema(kind: TaskKind, n_outputs: int, n_targets: int) -> pa.Schema:
    truth = [_TRUTH[kind]] if kind in _TRUTH else []
    if n_targets:
        truth = [pa.field("targets", pa.list_(pa.field("item", pa.float64(), nullable=False), n_targets), nullable=False)]
    return pa.schema(
        [
            pa.field("key", pa.uint64(), nullable=False),
            pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
            *truth,
            pa.field("outputs", pa.list_(pa.field("item", pa.float32(), nullable=False), n_outputs), nullable=False),
            pa.field("loss", pa.float32()),
        ],
        None if kind in _TRUTH else {_TASK: kind.encode()},
    )


def _kind_of(schema: pa.Schema) -> TaskKind:
    """Task of a file. One that names none that is known counts as ``target``, whose column it then lacks."""
    named = (schema.metadata or {}).get(_TASK, b"").decode("utf-8", "replace")
    unlabelled: tuple[UnlabelledKind, ...] = get_args(UnlabelledKind)
    return next((kind for kind in unlabelled if kind == named), "class" if "label" in schema.names else "target")


def _record_batch(part: Predictions, schema: pa.Schema) -> pa.RecordBatch:
    outputs = schema.field("outputs").type
    columns = [
        pa.array(part.keys, schema.field("key").type),
        pa.array(part.times, schema.field("time").type),
        *([_truth_array(part, schema)] if part.kind in _TRUTH else []),
        pa.FixedSizeListArray.from_arrays(pa.array(part.outputs.reshape(-1), outputs.value_type), type=outputs),
        pa.array(part.losses, schema.field("loss").type, mask=np.isnan(part.losses)),
    ]
    return pa.record_batch(columns, schema=schema)


def _truth_array(part: Predictions, schema: pa.Schema) -> pa.Array:
    if part.truth.ndim > 1:
        kind = schema.field("targets").type
        return pa.FixedSizeListArray.from_arrays(pa.array(part.truth.reshape(-1), kind.value_type), type=kind)
    missing = part.truth < 0 if part.kind == "class" else np.isnan(part.truth)
    return pa.array(part.truth, schema.field(_TRUTH[part.kind].name).type, mask=missing)


class PredictionWriter:
    """One background thread that writes files in order; at most one file waits, so memory stays bounded.

    Leaving the block waits for all files. A failed write raises from its future only.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="predictions")
        self._last: Future[WrittenPredictions] | None = None

    def write(
        self, path: Path, parts: Sequence[Predictions], *, kind: TaskKind, n_outputs: int, n_targets: int = 0
    ) -> Future[WrittenPredictions]:
        """Run ``write_predictions`` in the thread, after waiting for the file before."""
        self._wait_for_previous()
        self._last = self._pool.submit(write_predictions, path, parts, kind=kind, n_outputs=n_outputs, n_targets=n_targets)
        return self._last

    def run(self, function: Callable[[Predictions], T], predictions: Predictions) -> Future[T]:
        """Run a function in the thread, behind what it has to do already."""
        return self._pool.submit(function, predictions)

    def write_bytes(self, path: Path, content: bytes, keys: KeyArray) -> Future[WrittenPredictions]:
        """Run ``write_content`` in the thread, after waiting for the file before."""
        self._wait_for_previous()
        self._last = self._pool.submit(write_content, path, content, keys)
        return self._last

    def _wait_for_previous(self) -> None:
        if self._last is not None:
            self._last.exception()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(wait=True)
