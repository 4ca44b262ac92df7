"""The samples that the models of a run are judged on."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.data.samples import Samples
from modyn_dagster.data.view import DatasetView, Positions
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ORIGIN, KeyArray, key_of, keys_of

Times = npt.NDArray[np.datetime64]


class EvaluationSet:
    """Samples of a dataset as far as a view shows it: the ``evaluate`` side after a key, or all where the split has none.

    Attributes:
        view: of the dataset they are in.
        source: their dataset, and which side of its split where it is not the evaluation side.
        trained_on: whether models may have been trained on them: never where the split keeps evaluation apart.
        grows: whether more samples may come to count in batches that are predicted already.
        spans: first and last sample time of every training, where intervals between triggers follow another run.
    """

    grows = False
    spans: Sequence[tuple[np.datetime64, np.datetime64]] | None = None

    def __init__(self, view: DatasetView, *, origin: int = ORIGIN, trained_on: bool | None = None) -> None:
        self.view = view
        self.source: str = view.row.name
        self.trained_on = view.spec.split.evaluate == 0 if trained_on is None else trained_on
        self._origin = origin

    @property
    def batches(self) -> list[BatchRow]:
        """Those that hold such samples, in order."""
        return [batch for batch in self.view.batches if self.view.last_key_of(batch.ordinal) > self._origin]

    def positions(self, batch: BatchRow) -> Positions:
        """Positions of a batch that are predicted, deleted ones included."""
        return self.view.evaluation_positions(batch)

    def counts(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Which of the predicted samples are judged, deleted or not."""
        return np.ones(len(keys), dtype=np.bool_)

    def read(self, keys: KeyArray) -> Samples:
        """Samples by key."""
        return self.view.reader.read(keys)

    def first_time(self) -> np.datetime64 | None:
        """Time of the first sample, in key order; None while there is none."""
        for batch in self.batches:
            positions = self._places(batch)
            after = positions[positions > self._origin - key_of(batch.ordinal, 0)]
            if len(after):
                time: np.datetime64 = self.view.times(batch)[after[0]]
                return time
        return None

    def times(self, *, deleted: bool) -> Times:
        """Times of all that were deleted, or of all the others, ``datetime64[us][k]``."""
        times = [np.empty(0, dtype="datetime64[us]")]
        for batch in self.view.batches:
            gone = self.view.deleted.positions(batch.ordinal)
            if deleted and not len(gone):
                continue
            places = self._places(batch)
            times.append(self.view.times(batch)[places[np.isin(places, gone) == deleted]])
        return np.concatenate(times)

    def judged(self, predictions: Predictions) -> Predictions:
        """Those of the predicted samples that count: neither deleted nor outside."""
        return predictions.take(np.flatnonzero(self.counts(predictions.keys) & ~self.view.deleted.among(predictions.keys)))

    def _places(self, batch: BatchRow) -> Positions:
        positions = self.positions(batch)
        return positions[self.counts(keys_of(batch.ordinal, positions))]


class OtherDatasetEvaluation(EvaluationSet):
    """Another dataset, whose classes may stand in another order: by name they are those of the pipeline's own.

    A class that the pipeline's dataset does not have becomes one that no model knows.
    """

    def __init__(self, view: DatasetView, own: DatasetView) -> None:
        super().__init__(view, trained_on=False)
        ours, theirs = own.row.class_names, view.row.class_names
        place = {name: number for number, name in enumerate([*ours, *(name for name in theirs if name not in ours)])}
        self._classes = np.array([place[name] for name in theirs], dtype=np.int64) if list(ours) != list(theirs) else None

    def read(self, keys: KeyArray) -> Samples:
        """Samples by key, their classes numbered as those of the pipeline's dataset."""
        samples = super().read(keys)
        if self._classes is None or samples.labels is None:
            return samples
        known = samples.labels >= 0
        labels = np.where(known, self._classes[np.where(known, samples.labels, 0)], samples.labels)
        return replace(samples, labels=labels)
