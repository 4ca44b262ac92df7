"""Stages of a trigger as plain functions, for Dagster ops and for replays; and the finish of a run."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.promotions import list_promotions
from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import get_trigger, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.errors import CorruptFile, RunError, SelectionError, StorageError
from modyn_dagster.evaluation.promotion.verdicts import champion_verdicts
from modyn_dagster.pipeline import checks
from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.context import TriggerContext, load_context, trained_contexts
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.evaluation.dealt import dealt_evaluations, with_equal_labels
from modyn_dagster.pipeline.stages.evaluation.stage import Evaluated, evaluate_model
from modyn_dagster.pipeline.stages.evaluation.stage import Progress as EvaluationProgress
from modyn_dagster.pipeline.stages.model.model_saving import stored_exactly
from modyn_dagster.pipeline.stages.model.stage import Ahead, train_model
from modyn_dagster.pipeline.stages.training_set.checks import only_train_samples, training_set_checks, training_set_not_empty
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.training import FastPath

logger = logging.getLogger(__name__)

StageName = Literal["training_set", "model", "evaluation"]


@dataclass(frozen=True)
class StageResult:
    """Result of a stage: the content of one asset of a trigger partition, and its checks.

    Attributes:
        stage: name of the asset.
        context: the trigger's context after the stage.
        row: catalog row of the asset, or the cells of an evaluation.
        checks: results of the asset's checks.
        fresh: whether the stage made or changed it; otherwise it was read from the catalog.
    """

    stage: StageName
    context: TriggerContext
    row: TrainingSetRow | ModelRow | list[EvaluationRow]
    checks: list[CheckResult]
    fresh: bool = True

    @property
    def partition_key(self) -> str:
        """Partition key of the trigger."""
        return self.context.trigger.partition_key


def training_set_stage(context: TriggerContext) -> StageResult:
    """Select and write the training set of a claimed trigger, after the preflight check of its pipeline."""
    require_runnable(context.spec, context.view.spec, context.platform.project.folder)
    row = select_training_set(context)
    return _training_set(replace(context, training_set=row), row)


def model_stage(
    context: TriggerContext,
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
    ahead: Ahead | None = None,
) -> StageResult | None:
    """Train and commit the model of a claimed trigger; None when it was skipped because nothing was selected."""
    trained = train_model(context, progress, fast_path, ahead)
    return None if trained is None or trained.model is None else _model(trained, trained.model)


def model_stage_again(
    context: TriggerContext,
    claim: Callable[[], TriggerContext],
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
) -> StageResult | None:
    """Do ``model_stage`` after a transient error: a commit that was under way when it was met may have taken place.

    Then the recorded model is returned, or None for a skipped trigger. A check of a trained trigger is done again.

    Args:
        context: the one whose model stage met the error.
        claim: claims the trigger again.
        progress: called at every step of the training.
        fast_path: settings of its reads.
    """
    if context.trigger.state != "trained":
        with context.platform.transaction() as conn:
            current = get_trigger(conn, context.trigger.id)
            if current.state == "skipped":
                return None
            if current.state == "trained":
                run = get_run(conn, current.run_id)
                context = load_context(conn, context.platform, run, current, context.view)
        if context.model is not None:
            return _model(context, context.model)
    return model_stage(claim(), progress, fast_path)


def evaluation_stage(
    context: TriggerContext, *, finished: bool, progress: EvaluationProgress | None = None, evaluated: Evaluated | None = None
) -> StageResult:
    """Evaluate the model of a trained trigger on the context's view, or commit what a worker has ``evaluated``."""
    run_cells, changed = evaluate_model(context, finished=finished, progress=progress, evaluated=evaluated)
    return replace(_evaluation(context, run_cells), fresh=changed)


def recorded_stages(context: TriggerContext) -> list[StageResult]:
    """Read the results of a trigger's stages from the catalog, for events that a kill swallowed."""
    with context.platform.transaction() as conn:
        run_cells = list_evaluations(conn, context.run.id)
    results = []
    if context.training_set is not None and context.training_set.removed_at is None:
        results += _recorded_training_set(context, context.training_set)
    if context.model is not None:
        results.append(_model(context, context.model))
    if any(cell.trigger_id == context.trigger.id for cell in run_cells):
        results.append(_evaluation(context, run_cells))
    return [replace(result, fresh=False) for result in results]


def _training_set(context: TriggerContext, row: TrainingSetRow) -> StageResult:
    training_set = open_training_set(context, row)
    leakage = only_train_samples(context.view, training_set)
    results = [training_set_not_empty(row), leakage, *training_set_checks(row, training_set)]
    return StageResult("training_set", context, row, results)


def _recorded_training_set(context: TriggerContext, row: TrainingSetRow) -> list[StageResult]:
    """Read a training set of the past. A damaged one is selected again; where that fails, the launch goes on without it."""
    try:
        return [_training_set(context, row)]
    except CorruptFile as error:
        logger.warning("%s: it is selected again", error)
    try:
        select_training_set(context)
        return [_training_set(context, row)]
    except (RunError, StorageError, SelectionError) as error:
        logger.warning("the training set of trigger %s is not shown: %s", context.trigger.partition_key, error)
        return []


def _model(context: TriggerContext, row: ModelRow) -> StageResult:
    store = context.platform.models_of(context.spec)
    return StageResult("model", context, row, [checks.loss_finite(row), stored_exactly(store, row)])


def _evaluation(context: TriggerContext, run_cells: Sequence[EvaluationRow]) -> StageResult:
    cells = [cell for cell in run_cells if cell.trigger_id == context.trigger.id]
    enough = checks.enough_evaluation_samples(context.spec.evaluation, cells)
    models = [model.ordinal for model in context.models]
    with context.platform.transaction() as conn:
        events = list_promotions(conn, context.run.id)
    verdicts = champion_verdicts(context.spec, models, run_cells, events)
    verdict = next(verdict for verdict in verdicts if verdict.trigger == context.trigger.ordinal)
    return StageResult("evaluation", context, cells, [enough, checks.champion_check(verdict)])


def finish_evaluations(platform: Platform, run: RunRow, view: DatasetView, pool: Pool | None = None) -> Iterator[StageResult]:
    """Evaluate every model of a run on all its intervals up to the end of a view, the open last one included.

    Models, and parts of the last ones, are dealt to the workers of a pool, if there is one; this process commits.
    """
    if platform.spec_of(run).evaluation.matrix == "lazy":
        return
    contexts = with_equal_labels([replace(context, pool=pool) for context in trained_contexts(platform, run, view)])
    for context, evaluated in zip(contexts, dealt_evaluations(contexts, finished=True), strict=True):
        yield evaluation_stage(context, finished=True, evaluated=evaluated)


def finish_run(platform: Platform, run_id: int) -> RunRow:
    """Mark a run as finished."""
    with platform.transaction() as conn:
        run = get_run(conn, run_id, lock=True)
        if run.state == "finished":
            return run
        unfinished = unfinished_trigger(conn, run_id)
        if unfinished is not None:
            raise RunError(f"{run.title} still has to train trigger {unfinished.partition_key}; let it end first")
        return move_run(conn, run, state="finished", finished_at=sa.func.now())


def finish_live_run(platform: Platform, run: RunRow) -> Iterator[StageResult]:
    """End a live run for good: finish it, then evaluate its models on everything it has seen."""
    finished = finish_run(platform, run.id)
    view = platform.view_of(run, until=finished.last_ordinal)
    yield from finish_evaluations(platform, finished, view)
