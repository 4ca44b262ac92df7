"""Evaluation samples of a run."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.data.known_batches import BatchColumns
from modyn_dagster.data.samples import Samples
from modyn_dagster.data.view import DatasetView, Positions
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ORIGIN, KeyArray, key_of, keys_of
from modyn_dagster.spec.tasks.task import TaskSpec

Times = npt.NDArray[np.datetime64]


class EvaluationSet:
    """Evaluation samples of a view: the ``evaluate`` side of its split after a key, or all samples where the split has none.

    Attributes:
        view: view of their dataset.
        source: name of their dataset, and the side of its split where it is not the evaluation side.
        trained_on: whether models may have been trained on them; never true where the split has an evaluation side.
        may_gain_samples: whether batches that are predicted already may gain evaluation samples.
        spans: first and last sample time of every training, where intervals between triggers follow another run.
        newest_labels: position in the sequence of arrivals up to which labels count; None for those that are there.
        task: spec of the task of the pipeline's models, which their losses follow from.
    """

    may_gain_samples = False
    spans: Sequence[tuple[np.datetime64, np.datetime64]] | None = None
    newest_labels: int | None = None
    task: TaskSpec | None = None

    def __init__(self, view: DatasetView, *, origin: int = ORIGIN, trained_on: bool | None = None) -> None:
        self.view = view
        self.source: str = view.row.name
        self.trained_on = view.spec.split.evaluate == 0 if trained_on is None else trained_on
        self._origin = origin

    @property
    def batches(self) -> Sequence[BatchRow]:
        """Batches that may hold evaluation samples, in order."""
        return self.view.batches[self._begin :]

    @property
    def columns(self) -> BatchColumns:
        """Facts of ``batches``, one element per batch."""
        return self.view.columns.tail(self._begin)

    @property
    def _begin(self) -> int:
        """Number of batches that end at or before the origin."""
        return int(np.searchsorted(self.view.columns.last_keys, self._origin, side="right"))

    @property
    def newest_label_position(self) -> int | None:
        """Position in the sequence of arrivals that final scores are as of; None where labels arrive with their samples."""
        position = self.view.label_position
        if position is None or self.newest_labels is None:
            return self.view.newest_label_position
        return max(position, self.newest_labels)

    def positions(self, batch: BatchRow) -> Positions:
        """Return the positions of a batch that are predicted, including deleted ones."""
        return self.view.evaluation_positions(batch)

    def is_evaluated(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Return a mask of the predicted samples that are evaluated, deleted or not."""
        return np.ones(len(keys), dtype=np.bool_)

    def read(self, keys: KeyArray) -> Samples:
        """Read samples by key; without labels where these arrive later: files of predictions hold none of them.

        A simulated delay is none of these files, which pipelines with other delays share.
        """
        return self.view.reader_without_late_labels.read(keys)

    def times_and_labels(self, keys: KeyArray) -> tuple[Times, npt.NDArray[np.int64]]:
        """Return the times and classes of samples as ``read`` does, from the indexes alone; the dataset has classes."""
        store = self.view.reader_without_late_labels.store
        labels = store.labels(keys)
        if labels is None:
            labels = np.full(len(keys), -1)
        return store.timestamps(keys), self._numbered(labels.astype(np.int64, copy=False))

    def _numbered(self, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return class numbers of the pipeline's dataset."""
        return labels

    def first_time(self) -> np.datetime64 | None:
        """Return the time of the first sample in key order; None while there is none."""
        for batch in self.batches:
            positions = self._evaluated_positions(batch)
            after = positions[positions > self._origin - key_of(batch.ordinal, 0)]
            if len(after):
                time: np.datetime64 = self.view.times(batch)[after[0]]
                return time
        return None

    def times(self, *, deleted: bool) -> Times:
        """Return the times of the deleted samples, or of the present ones, ``datetime64[us][k]``."""
        times = [np.empty(0, dtype="datetime64[us]")]
        with_deletions = self.view.deleted.ordinals
        for batch in self.view.batches_at(with_deletions) if deleted else self.view.batches:
            removed = self.view.deleted.positions(batch.ordinal)
            positions = self._evaluated_positions(batch)
            times.append(self.view.times(batch)[positions[np.isin(positions, removed) == deleted]])
        return np.concatenate(times)

    def evaluated(self, predictions: Predictions) -> Predictions:
        """Filter predictions: drop deleted samples and samples that are not evaluated.

        Where labels arrive later, samples get those that have arrived up to ``newest_label_position``.
        """
        kept = np.flatnonzero(self.is_evaluated(predictions.keys) & ~self.view.deleted.among(predictions.keys))
        position = self.newest_label_position
        return predictions.take(kept) if position is None else self.relabelled(predictions.take(kept), position)

    def relabelled(self, predictions: Predictions, position: int) -> Predictions:
        """Return predictions with the labels known at a position in the sequence of arrivals, and their losses."""
        truth = self.view.labelled_as_of(position).labels_at(predictions.keys)
        losses = sample_losses(predictions.outputs, truth, predictions.kind, self.task)
        return replace(predictions, truth=truth, losses=losses)

    def _evaluated_positions(self, batch: BatchRow) -> Positions:
        positions = self.positions(batch)
        return positions[self.is_evaluated(keys_of(batch.ordinal, positions))]


class OtherDatasetEvaluation(EvaluationSet):
    """Samples of another dataset, with their classes matched by name to those of the pipeline's dataset.

    A class that the pipeline's dataset lacks gets a number that no model predicts.
    """

    def __init__(self, view: DatasetView, own: DatasetView) -> None:
        super().__init__(view, trained_on=False)
        ours, theirs = own.row.class_names, view.row.class_names
        numbers = {name: number for number, name in enumerate([*ours, *(name for name in theirs if name not in ours)])}
        self._classes = np.array([numbers[name] for name in theirs], dtype=np.int64) if list(ours) != list(theirs) else None

    def read(self, keys: KeyArray) -> Samples:
        """Read samples by key, with class numbers of the pipeline's dataset."""
        samples = super().read(keys)
        return samples if samples.labels is None else replace(samples, labels=self._numbered(samples.labels))

    def _numbered(self, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if self._classes is None:
            return labels
        labelled = labels >= 0
        return np.where(labelled, self._classes[np.where(labelled, labels, 0)], labels)
