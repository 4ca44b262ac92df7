"""Evaluation on training data: the training sets of a run, or all samples between its triggers."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.runs import RunRow, choose_run
from modyn_dagster.data.split import TRAIN
from modyn_dagster.data.view import DatasetView, Positions
from modyn_dagster.errors import RunError
from modyn_dagster.keys import ORIGIN, KeyArray
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet, OtherDatasetEvaluation
from modyn_dagster.selection.training_set import TrainingSet
from modyn_dagster.spec.evaluation import EvaluateSplit, OtherDataset, TrainingSetData, TriggerSpanData

_NOTHING: Final = np.empty(0, dtype=np.uint64)


def evaluation_set(context: TriggerContext) -> EvaluationSet:
    """What the models of a context's run are judged on, as far as the context sees; it is the same for all triggers of the run.

    Raises:
        RunError: training sets that retention has removed.
    """
    match context.spec.evaluation.data:
        case EvaluateSplit():
            return EvaluationSet(context.view, origin=context.run.origin)
        case OtherDataset(dataset=name):
            return OtherDatasetEvaluation(context.platform.view(name), context.view)
        case TrainingSetData(pipeline=name) | TriggerSpanData(pipeline=name) as data:
            run, view = _run_and_view(context, name)
            with context.platform.transaction() as conn:
                models = [] if run is None else list_models(conn, run.id)
            if isinstance(data, TrainingSetData):
                return TrainingSetEvaluation(context.platform, context.view, view, models)
            return TriggerSpanEvaluation(context.view, view, models, ORIGIN if run is None else run.origin)


class TrainingStreamEvaluation(EvaluationSet):
    """Training samples of a run. All of its stream's are predicted, so that new training sets need no new pass."""

    grows = True

    def __init__(self, own: DatasetView, view: DatasetView, models: Sequence[ModelRow]) -> None:
        super().__init__(view, trained_on=own.row.id == view.row.id)
        self.source = f"{view.row.name} train"
        self.spans = [(as_datetime64(model.train_start), as_datetime64(model.train_end)) for model in models]

    def positions(self, batch: BatchRow) -> Positions:
        """The train side of a batch."""
        return self.view.positions_on(batch, TRAIN)


class TrainingSetEvaluation(TrainingStreamEvaluation):
    """Those that were selected for any of the models."""

    def __init__(self, platform: Platform, own: DatasetView, view: DatasetView, models: Sequence[ModelRow]) -> None:
        super().__init__(own, view, models)
        self._selected = _keys(platform, models)

    def counts(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Which of these keys some model was trained on."""
        places = np.searchsorted(self._selected, keys)
        found = places < len(self._selected)
        found[found] = self._selected[places[found]] == keys[found]
        return found


class TriggerSpanEvaluation(TrainingStreamEvaluation):
    """All from the run's begin to the last one that its newest model could be trained on."""

    def __init__(self, own: DatasetView, view: DatasetView, models: Sequence[ModelRow], origin: int) -> None:
        super().__init__(own, view, models)
        self._origin = origin
        self._last = max((model.key for model in models), default=origin)

    def counts(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Which of these keys lie between the begin and the newest trigger."""
        signed = keys.astype(np.int64)
        return (signed > self._origin) & (signed <= self._last)


def _run_and_view(context: TriggerContext, pipeline: str | None) -> tuple[RunRow | None, DatasetView]:
    if pipeline is None or pipeline == context.run.pipeline:
        return context.run, context.view
    with context.platform.transaction() as conn:
        run = choose_run(conn, pipeline)
    dataset = context.platform.pipeline(pipeline).dataset
    return run, context.view if dataset == context.spec.dataset else context.platform.view(dataset)


def _keys(platform: Platform, models: Sequence[ModelRow]) -> KeyArray:
    """Keys of all their training sets, ascending, each once."""
    parts = [_NOTHING]
    for model in models:
        with platform.transaction() as conn:
            row = find_training_set(conn, model.trigger_id)
        if row is None or row.removed_at is not None:
            raise RunError(
                f"evaluation.data: retention removed the training set of trigger {model.ordinal} of run {model.run_id}"
            )
        parts += [part.keys for part in TrainingSet.open(platform.home / row.path, row.checksum).partitions()]
    return np.unique(np.concatenate(parts))
