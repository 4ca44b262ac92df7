"""Evaluation on training data: the training sets of a run, or all samples between its triggers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, list_training_sets
from modyn_dagster.catalog.runs import RunRow, choose_run
from modyn_dagster.data.label_files import arrive_later
from modyn_dagster.data.split import TRAIN
from modyn_dagster.data.view import DatasetView, Positions
from modyn_dagster.errors import ConfigError, RunError
from modyn_dagster.keys import ORIGIN, KeyArray
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet, OtherDatasetEvaluation
from modyn_dagster.selection.training_set import TrainingSet
from modyn_dagster.spec.evaluation import EvaluateSplit, OtherDataset, TrainingSetData, TriggerSpanData

_NOTHING: Final = np.empty(0, dtype=np.uint64)


def evaluation_set(context: TriggerContext) -> EvaluationSet:
    """Return the evaluation samples of a run, as far as the context's view reaches; they are the same for all its triggers.

    Raises:
        RunError: retention has removed a training set that they consist of.
    """
    data = _samples_of(context)
    data.newest_labels, data.task = context.newest_labels, context.spec.training.task
    return data


def newest_labels(context: TriggerContext) -> int | None:
    """Return the newest complete arrival of labels of the evaluation samples; None where labels arrive with their samples."""
    match context.spec.evaluation.data:
        case EvaluateSplit():
            return context.view.newest_label_position
        case OtherDataset():
            # One whose labels arrive later is refused.
            return None
        case TrainingSetData(pipeline=name) | TriggerSpanData(pipeline=name):
            return _view_of_stream(context, name).newest_label_position


def _samples_of(context: TriggerContext) -> EvaluationSet:
    match context.spec.evaluation.data:
        case EvaluateSplit():
            return EvaluationSet(context.view, origin=context.run.origin)
        case OtherDataset(dataset=name):
            if arrive_later(context.platform.dataset(name)):
                rule = "labels of that dataset arrive later (label.arrives); evaluate on one whose labels come with its samples"
                raise ConfigError(f"pipeline {context.run.pipeline}", "evaluation.data.dataset", name, rule)
            return OtherDatasetEvaluation(context.platform.view(name), context.view)
        case TrainingSetData(pipeline=name) | TriggerSpanData(pipeline=name) as data:
            run, models, sets = _training_history(context, name, with_sets=isinstance(data, TrainingSetData))
            view = _view_of_stream(context, name)
            if isinstance(data, TrainingSetData):
                return TrainingSetEvaluation(context.platform.home, context.view, view, models, sets)
            return TriggerSpanEvaluation(context.view, view, models, ORIGIN if run is None else run.origin)


def _view_of_stream(context: TriggerContext, pipeline: str | None) -> DatasetView:
    """Return the dataset of another pipeline, or of the context's own."""
    own = context.spec.dataset
    dataset = own if pipeline in (None, context.run.pipeline) else context.platform.pipeline(pipeline).dataset
    return context.view if dataset == own else context.platform.view(dataset)


class TrainingStreamEvaluation(EvaluationSet):
    """Training samples of a run. The whole training stream is predicted, so new training sets need no new pass."""

    may_gain_samples = True

    def __init__(self, own: DatasetView, view: DatasetView, models: Sequence[ModelRow]) -> None:
        super().__init__(view, trained_on=own.row.id == view.row.id)
        self.source = f"{view.row.name} train"
        self.spans = [(as_datetime64(model.train_start), as_datetime64(model.train_end)) for model in models]

    def positions(self, batch: BatchRow) -> Positions:
        """Return the train side of a batch."""
        return self.view.positions_on(batch, TRAIN)


class TrainingSetEvaluation(TrainingStreamEvaluation):
    """Samples that were selected for any model of a run."""

    def __init__(
        self,
        home: Path,
        own: DatasetView,
        view: DatasetView,
        models: Sequence[ModelRow],
        training_sets: Mapping[int, TrainingSetRow],
    ) -> None:
        super().__init__(own, view, models)
        self._selected = _keys(home, models, training_sets)

    def is_evaluated(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Return a mask of the keys that some model was trained on."""
        rows = np.searchsorted(self._selected, keys)
        selected = rows < len(self._selected)
        selected[selected] = self._selected[rows[selected]] == keys[selected]
        return selected


class TriggerSpanEvaluation(TrainingStreamEvaluation):
    """Samples from the origin of a run up to its newest trained trigger."""

    def __init__(self, own: DatasetView, view: DatasetView, models: Sequence[ModelRow], origin: int) -> None:
        super().__init__(own, view, models)
        self._origin = origin
        self._last = max((model.key for model in models), default=origin)

    def is_evaluated(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Return a mask of the keys between the origin and the newest trained trigger."""
        signed = keys.astype(np.int64)
        return (signed > self._origin) & (signed <= self._last)


def _training_history(
    context: TriggerContext, pipeline: str | None, *, with_sets: bool
) -> tuple[RunRow | None, Sequence[ModelRow], dict[int, TrainingSetRow]]:
    """Read run, models and, on request, training sets by trigger id: of the context's run, or of another pipeline's."""
    is_own = pipeline is None or pipeline == context.run.pipeline
    run, models, sets = context.run if is_own else None, context.models, dict[int, TrainingSetRow]()
    if is_own and not with_sets:
        return run, models, sets
    with context.platform.transaction() as conn:
        if not is_own:
            run = choose_run(conn, str(pipeline))
            models = [] if run is None else list_models(conn, run.id)
        if with_sets and run is not None:
            sets = {row.trigger_id: row for row in list_training_sets(conn, run.id)}
    return run, models, sets


def _keys(home: Path, models: Sequence[ModelRow], training_sets: Mapping[int, TrainingSetRow]) -> KeyArray:
    """Read the keys of all training sets, ascending and unique."""
    parts = [_NOTHING]
    for model in models:
        row = training_sets.get(model.trigger_id)
        if row is None or row.removed_at is not None:
            raise RunError(
                f"evaluation.data: retention removed the training set of trigger {model.ordinal} of run {model.run_id}"
            )
        parts += [part.keys for part in TrainingSet.open(home / row.path, row.checksum).partitions()]
    return np.unique(np.concatenate(parts))
