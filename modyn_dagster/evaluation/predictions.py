"""Predict once, ask anything: the outputs of one model for every sample, in memory and as a file.

Files are Arrow IPC, streamed in and memory-mapped out. They hold no run, path or date: equal predictions are equal bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.errors import ConfigError, CorruptFile, WrongShape
from modyn_dagster.evaluation.blocks import BLOCK, BatchRange, Block, Positions, fixed_blocks
from modyn_dagster.evaluation.losses import sample_losses
from modyn_dagster.evaluation.reading import Read, read_blocks
from modyn_dagster.ingestion.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.storage import atomic_write, verify_checksum

_TRUTH: Final[dict[TaskKind, pa.Field]] = {
    "class": pa.field("label", pa.int64()),
    "target": pa.field("target", pa.float64()),
}

Predict = Callable[[Samples], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Predictions:
    """Outputs of one model, one row per sample.

    Attributes:
        kind: of the truth.
        keys: ``uint64[n]``.
        times: ``datetime64[us][n]``, UTC.
        truth: classes ``int64[n]``, -1 where a sample has no label, or targets ``float64[n]``, NaN where it has none.
        outputs: ``float32[n, k]``: logits, or the regression value.
        losses: cross-entropy or squared error ``float32[n]``; NaN where there is no truth to compare with.
    """

    kind: TaskKind
    keys: KeyArray
    times: npt.NDArray[np.datetime64]
    truth: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    outputs: npt.NDArray[np.float32]
    losses: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: npt.NDArray[np.int64] | slice) -> Self:
        """These rows, in this order."""
        return type(self)(self.kind, self.keys[rows], self.times[rows], self.truth[rows], self.outputs[rows], self.losses[rows])

    @classmethod
    def empty(cls, kind: TaskKind, n_outputs: int) -> Self:
        """Of no sample."""
        truth: npt.NDArray[Any] = np.empty(0, np.int64 if kind == "class" else np.float64)
        times = np.empty(0, "datetime64[us]")
        return cls(kind, np.empty(0, np.uint64), times, truth, np.empty((0, n_outputs), np.float32), np.empty(0, np.float32))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Several stretches of the stream one after the other; at least one, all of one model."""
        columns = zip(*((p.keys, p.times, p.truth, p.outputs, p.losses) for p in parts), strict=True)
        return cls(parts[0].kind, *(np.concatenate(column) for column in columns))


def predict_range(
    predict: Predict,
    read: Read,
    batches: Iterable[BatchRange | tuple[int, int, Positions | None]],
    *,
    kind: TaskKind,
    block: int = BLOCK,
) -> Iterator[Predictions]:
    """Outputs for the wanted samples of some batches, in key order, a bounded number of samples at a time.

    Every forward pass sees one whole fixed block, so a sample's outputs have the same bits whatever else is asked for.
    """
    blocks = chain.from_iterable(fixed_blocks(*batch, block=block) for batch in batches)
    for group in read_blocks(read, blocks):
        parts = [_forward(predict, each, samples, kind) for each, samples in group]
        keys, times, truth, outputs = (np.concatenate(column) for column in zip(*parts, strict=True))
        yield Predictions(kind, keys, times, truth, outputs, sample_losses(outputs, truth, kind))


@dataclass(frozen=True, slots=True)
class WrittenPredictions:
    """What the catalog notes about a file; the keys are None when it is empty."""

    checksum: str
    n_samples: int
    first_key: int | None
    last_key: int | None


def write_predictions(path: Path, parts: Iterable[Predictions], *, kind: TaskKind, n_outputs: int) -> WrittenPredictions:
    """Write predictions as they come, one record batch per part; the file appears whole or not at all.

    Columns: ``key`` uint64, ``time`` timestamp[us, UTC], ``label`` int64 or ``target`` float64 (null: none), ``outputs``
    fixed_size_list<float32>[n_outputs], ``loss`` float32 (null: none). Raises ``WriteFailed`` when the disk refuses.
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
    """All predictions of a file; ``CorruptFile`` unless it has this checksum and is a file of predictions."""
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


def _forward(
    predict: Predict, block: Block, samples: Samples, kind: TaskKind
) -> tuple[KeyArray, npt.NDArray[np.datetime64], npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Keys, times, truth and outputs of the wanted rows of a block."""
    outputs = predict(samples)
    if outputs.ndim != 2 or len(outputs) != len(samples):
        raise WrongShape([len(samples), "n_outputs"], outputs.shape, what="the predictor")
    truth = samples.labels if kind == "class" else samples.targets
    if truth is None:
        raise ConfigError("evaluation", "dataset", kind, "the samples have no such label to judge by")
    rows = slice(None) if len(block.rows) == len(samples) else block.rows
    return samples.keys[rows], samples.times[rows], truth[rows], outputs[rows]


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
        pa.array(part.truth, schema.field(2).type, mask=missing),
        pa.FixedSizeListArray.from_arrays(pa.array(part.outputs.reshape(-1), outputs.value_type), type=outputs),
        pa.array(part.losses, schema.field("loss").type, mask=np.isnan(part.losses)),
    ]
    return pa.record_batch(columns, schema=schema)
