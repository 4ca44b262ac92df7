"""Lineage of models: the samples that a model was trained on, by batch, and the models it was made from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from modyn_dagster.catalog.batches import batch_keys
from modyn_dagster.catalog.results.training_sets import TrainingSetUse, training_sets_of_models
from modyn_dagster.errors import StorageError, UnknownName
from modyn_dagster.keys import ordinals_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.selection import TrainingSet


@dataclass(frozen=True, slots=True)
class BatchCount:
    """Number of a training set's samples that came with a batch."""

    ordinal: int
    batch: str
    n_samples: int


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """Training set of a model, or of one that it was made from.

    Attributes:
        used: the training set, its trigger and its model.
        batches: samples by batch, ascending; empty where the file cannot be read.
        why_unknown: reason for that, otherwise empty.
    """

    used: TrainingSetUse
    batches: Sequence[BatchCount]
    why_unknown: str = ""


def trained_on(platform: Platform, model_hash: str) -> list[TrainedOn]:
    """List the training sets of a model, then those of the models whose weights it began with, the nearest first.

    Triggers of several runs may have trained one model. Raises ``UnknownName`` where no trigger names it.
    """
    sets: list[TrainedOn] = []
    met: set[str] = set()
    waiting = [model_hash]
    while waiting:
        with platform.transaction() as conn:
            rows = training_sets_of_models(conn, waiting)
        if not met and not rows:
            raise UnknownName("model of a trigger", model_hash)
        met.update(waiting)
        sets += [_read(platform, row) for row in rows]
        waiting = sorted({base for row in rows for base in (row.previous_hash, row.initial_hash) if base is not None} - met)
    return sets


def counts_by_batch(training_set: TrainingSet) -> Iterator[tuple[int, int]]:
    """Ordinals of batches and numbers of samples of a set whose keys are ascending; one pass over its partitions."""
    pending: tuple[int, int] | None = None
    for part in training_set.partitions():
        for ordinal, n in zip(*np.unique(ordinals_of(part.keys), return_counts=True), strict=True):
            if pending is not None and pending[0] == ordinal:
                pending = int(ordinal), pending[1] + int(n)
                continue
            if pending is not None:
                yield pending
            pending = int(ordinal), int(n)
    if pending is not None:
        yield pending


def _read(platform: Platform, row: TrainingSetUse) -> TrainedOn:
    try:
        counts = list(counts_by_batch(TrainingSet.open(platform.home / row.path, row.checksum)))
    except StorageError as error:
        return TrainedOn(row, [], str(error))
    with platform.transaction() as conn:
        names = batch_keys(conn, row.dataset_id, [ordinal for ordinal, _ in counts])
    return TrainedOn(row, [BatchCount(ordinal, names.get(ordinal, "removed"), n) for ordinal, n in counts])
