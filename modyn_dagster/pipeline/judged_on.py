"""The samples that the models of a run are judged on."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.evaluation.predictions import Predictions
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.view import DatasetView, Positions


class JudgedOn:
    """Which samples of which dataset, as far as a trigger's context sees.

    Attributes:
        view: of the dataset they are in.
        source: their dataset, and which side of its split where it is not the evaluation side.
        origin: only samples after this key.
        trained_on: whether models may have been trained on them: never where the split keeps evaluation apart.
    """

    def __init__(self, context: TriggerContext) -> None:
        self.view: DatasetView = context.view
        self.source = context.view.row.name
        self.origin = context.run.origin
        self.trained_on = context.view.spec.split.evaluate == 0

    @property
    def batches(self) -> list[BatchRow]:
        """Those that hold such samples, in order."""
        return [batch for batch in self.view.batches if self.view.last_key_of(batch.ordinal) > self.origin]

    def positions(self, batch: BatchRow) -> Positions:
        """Positions of a batch that are predicted, deleted ones included."""
        return self.view.evaluation_positions(batch)

    def first_time(self) -> np.datetime64 | None:
        """Time of the first sample, in key order; None while there is none."""
        return self.view.first_evaluation_time(self.origin)

    def deleted_times(self) -> npt.NDArray[np.datetime64]:
        """Times of all of them that are deleted, ``datetime64[us][k]``."""
        times = [np.empty(0, dtype="datetime64[us]")]
        for batch in self.view.batches:
            deleted = self.view.deleted.positions(batch.ordinal)
            if len(deleted):
                places = np.intersect1d(self.positions(batch), deleted)
                times.append(self.view.times(batch)[places[self.counts(keys_of(batch.ordinal, places))]])
        return np.concatenate(times)

    def judged(self, predictions: Predictions) -> Predictions:
        """Those of the predicted samples that count: neither deleted nor outside."""
        return predictions.take(np.flatnonzero(self.counts(predictions.keys) & ~self.view.deleted.among(predictions.keys)))

    def counts(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Which of the predicted samples are judged, deleted or not."""
        return np.ones(len(keys), dtype=np.bool_)
