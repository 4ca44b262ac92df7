"""Predictions of the models that a gate compares: those on disk, and those that are missing for it, made and recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.predictions import PredictionFileRow, list_predictions
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import RunError, StalePredictions
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import key_of, ordinal_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.stages.evaluation.damaged_predictions import read_recorded
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.prediction_files import uncovered_stretches
from modyn_dagster.pipeline.stages.evaluation.stage import predict_batches
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import StoredPredictions
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set

#: Batches that a replay predicts for a gate at once when it begins with a model; then twice as many each time.
_FIRST_STRETCH: Final = 8


@dataclass(slots=True)
class _Held:
    """Predictions of one model in memory: for all evaluation samples of some consecutive batches."""

    model: ModelRow
    view: DatasetView
    first: int
    last: int
    predictions: Predictions
    stretch: int


class GatePredictions:
    """Predictions of a run's models by the batches that they are asked for. Those of the models in question stay in memory.

    Args:
        ahead: predict batches after those that are asked for, as a replay does, whose batches are all there.
    """

    def __init__(self, *, ahead: bool) -> None:
        self._ahead = ahead
        self._held: dict[int, _Held] = {}

    def keep(self, triggers: Sequence[int]) -> None:
        """Forget the predictions of other models."""
        self._held = {trigger: held for trigger, held in self._held.items() if trigger in triggers}

    def of(self, context: TriggerContext, first: int, last: int) -> Predictions:
        """Return the predictions of a trigger's model for the evaluation samples of batches, by ordinal, in key order.

        Those that are missing are made and recorded. Deleted samples are left out.

        Raises:
            RunError: retention has removed the model, and it has not predicted all of them.
        """
        model = context.model
        if model is None:
            raise RunError(f"trigger {context.trigger.partition_key} has no model whose predictions could be tested")
        held = self._held.get(context.trigger.ordinal)
        known = held is not None and held.model.hash == model.hash and held.view is context.view
        if held is None or not known or first < held.first or last > held.last:
            held = self._read(context, model, first, last, held if known else None)
            self._held[context.trigger.ordinal] = held
        keys = held.predictions.keys
        rows = np.searchsorted(keys, np.array([key_of(first, 0), key_of(last + 1, 0)], np.uint64))
        return held.predictions.take(np.arange(int(rows[0]), int(rows[1])))

    def _read(self, context: TriggerContext, model: ModelRow, first: int, last: int, held: _Held | None) -> _Held:
        stretch = _FIRST_STRETCH if held is None else held.stretch
        data = evaluation_set(context)
        first = first if held is None else min(first, held.first)
        last = last if held is None else max(last, held.last)
        if self._ahead:
            later = [batch.ordinal for batch in data.batches if batch.ordinal > last][:stretch]
            last = later[-1] if later else last
        while True:
            missing = _missing(context, model, data, first, last)
            if not missing:
                break
            if model.removed_at is not None:
                where = f"{context.run.title}: model {model.hash[:12]} of trigger {context.trigger.ordinal}"
                raise RunError(f"{where} was removed by retention before its test was over; let retention.models keep it")
            try:
                predict_batches(context, model, data, missing)
            except StalePredictions:
                # Samples were deleted meanwhile: their files are gone, and the next look has a view without them.
                continue
        return _Held(model, context.view, first, last, _read_files(context, model, data, first, last), 2 * stretch)


def _missing(context: TriggerContext, model: ModelRow, data: EvaluationSet, first: int, last: int) -> list[list[BatchRow]]:
    """Stretches of consecutive batches that the model has not predicted."""
    due = [batch for batch in data.batches if first <= batch.ordinal <= last]
    return uncovered_stretches(data, due, _files(context, model))


def _files(context: TriggerContext, model: ModelRow) -> list[PredictionFileRow]:
    with context.platform.transaction() as conn:
        rows = list_predictions(conn, context.trigger.id, predictor_id(model.hash, context.spec.training))
    return [row for row in rows if row.removed_at is None]


def _read_files(context: TriggerContext, model: ModelRow, data: EvaluationSet, first: int, last: int) -> Predictions:
    files = _files(context, model)
    wanted = [row for row in files if ordinal_of(row.first_key) <= last and ordinal_of(row.last_key) >= first]
    parts = [part for row in wanted if (part := read_recorded(context, model, data, row)) is not None]
    if not parts:
        return _none_of(context, model)
    return data.evaluated(StoredPredictions.of(parts).predictions)


def _none_of(context: TriggerContext, model: ModelRow) -> Predictions:
    """No predictions, of the form that a model's would have."""
    label, architecture = context.view.spec.label, model.architecture
    if label is None:
        return Predictions.empty(architecture["task"], int(architecture["n_measures"]))
    return Predictions.empty("target" if label.kind == "target" else "class", int(architecture["n_outputs"]))
