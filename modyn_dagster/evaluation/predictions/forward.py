"""Outputs of one model for samples of the stream, computed block by block."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.evaluation.predictions.blocks import BLOCK, BatchRange, Block, Positions, Read, fixed_blocks, read_blocks
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.tasks.task import TaskSpec
from modyn_dagster.spec.training import TaskKind

Predict = Callable[[Samples], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Predictions:
    """Outputs of one model, one row per sample.

    Attributes:
        kind: task: class, target, or that of a loss without labels.
        keys: ``uint64[n]``.
        times: ``datetime64[us][n]``, UTC.
        truth: classes ``int64[n]``, -1 for samples without a label, or targets ``float64[n]``, NaN for samples without one;
            of several columns ``float64[n, columns]``; zeros for a task without labels.
        outputs: ``float32[n, k]``: logits, the predicted target, or the measures of a task without labels.
        losses: by ``sample_losses``, ``float32[n]``; NaN without truth.
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
        """Select rows, in the given order."""
        return type(self)(self.kind, self.keys[rows], self.times[rows], self.truth[rows], self.outputs[rows], self.losses[rows])

    @classmethod
    def empty(cls, kind: TaskKind, n_outputs: int, n_targets: int = 0) -> Self:
        """Predictions of no sample; ``n_targets`` are the columns of the truth, where it is several."""
        shape = (0, n_targets) if n_targets else (0,)
        truth: npt.NDArray[Any] = np.empty(shape, np.int64 if kind == "class" else np.float64)
        times = np.empty(0, "datetime64[us]")
        return cls(kind, np.empty(0, np.uint64), times, truth, np.empty((0, n_outputs), np.float32), np.empty(0, np.float32))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Concatenate predictions of one model, at least one."""
        columns = zip(*((p.keys, p.times, p.truth, p.outputs, p.losses) for p in parts), strict=True)
        return cls(parts[0].kind, *(np.concatenate(column) for column in columns))


def predict_range(
    predict: Predict,
    read: Read,
    batches: Iterable[BatchRange | tuple[int, int, Positions | None]],
    *,
    kind: TaskKind,
    task: TaskSpec | None = None,
    block: int = BLOCK,
    begin: int = 0,
    end: int | None = None,
) -> Iterator[Predictions]:
    """Predict the requested samples of some batches, in key order, a bounded number of samples at a time.

    Every forward pass sees one whole fixed block, so the outputs of a sample have the same bits in every request. ``begin`` and
    ``end`` choose some of the blocks by their number; from a multiple of ``READ_BLOCKS`` on, the yielded parts are those of a
    request of all blocks.
    """
    blocks = islice(chain.from_iterable(fixed_blocks(*batch, block=block) for batch in batches), begin, end)
    for group in read_blocks(read, blocks):
        parts = [_forward(predict, part, samples, kind) for part, samples in group]
        keys, times, truth, outputs = (np.concatenate(column) for column in zip(*parts, strict=True))
        yield Predictions(kind, keys, times, truth, outputs, sample_losses(outputs, truth, kind, task))


def _forward(
    predict: Predict, block: Block, samples: Samples, kind: TaskKind
) -> tuple[KeyArray, npt.NDArray[np.datetime64], npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Keys, times, truth and outputs of the requested rows of a block."""
    outputs = predict(samples)
    if outputs.ndim != 2 or len(outputs) != len(samples):
        raise WrongShape([len(samples), "n_outputs"], outputs.shape, what="the predictor")
    truth = samples.labels if kind == "class" else samples.targets
    if truth is None:
        raise ConfigError("evaluation", "dataset", kind, "the samples have no such label to score against")
    rows = slice(None) if len(block.rows) == len(samples) else block.rows
    return samples.keys[rows], samples.times[rows], truth[rows], outputs[rows]
