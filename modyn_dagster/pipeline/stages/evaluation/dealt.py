"""Evaluations of many models, dealt to workers. They write prediction files and score; the caller commits."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.distributed.protocols import Pool, Resources
from modyn_dagster.errors import one_line
from modyn_dagster.pipeline.context import TriggerContext, trained_contexts
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.platform import worker_platform
from modyn_dagster.pipeline.stages.evaluation.prediction_files import missing_batches
from modyn_dagster.pipeline.stages.evaluation.stage import Evaluated, compute_evaluation
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set
from modyn_dagster.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelEvaluation:
    """Evaluation of one model of a run that has come to its end.

    Attributes:
        settings: of the process that commits.
        run_id: the run.
        trigger_id: trigger of the model.
        until: ordinal of the last batch of the view.
        title: name of the evaluation in errors.
    """

    settings: Settings
    run_id: int
    trigger_id: int
    until: int
    title: str

    def __str__(self) -> str:
        return self.title


def dealt_evaluations(contexts: Sequence[TriggerContext], pool: Pool | None) -> Iterator[Evaluated | None]:
    """Evaluate the models of finished triggers of a run, in order; None for each that the caller evaluates by itself.

    These are those that workers failed on, models on a GPU, and all of them if at most one has something to predict.
    """
    remaining = list(contexts)
    while pool is not None and _are_worth_it(remaining):
        results = pool.map(compute_in_worker, [_item(context) for context in remaining], Resources(cpus=remaining[0].run.threads))
        for context in list(remaining):
            try:
                evaluated = next(results)
            except Exception as error:  # noqa: BLE001 - the caller evaluates the model, and meets the error if it comes again
                logger.warning("the model of trigger %s is evaluated again: %s", context.trigger.partition_key, one_line(error))
                remaining.remove(context)
                yield None
                break
            remaining.remove(context)
            yield evaluated
    yield from (None for _ in remaining)


def compute_in_worker(item: ModelEvaluation) -> Evaluated:
    """Predict and score in a worker's process."""
    platform = worker_platform(item.settings)
    with platform.transaction() as conn:
        run = get_run(conn, item.run_id)
    view = platform.view(platform.spec_of(run).dataset, until=item.until)
    context = next(each for each in trained_contexts(platform, run, view) if each.trigger.id == item.trigger_id)
    evaluated = Evaluated()
    compute_evaluation(context, evaluated, finished=True)
    return evaluated


def _item(context: TriggerContext) -> ModelEvaluation:
    title = f"the evaluation of the model of trigger {context.trigger.partition_key}"
    return ModelEvaluation(context.platform.settings, context.run.id, context.trigger.id, context.view.last_ordinal, title)


def _are_worth_it(contexts: Sequence[TriggerContext]) -> bool:
    """Test that more than one model has batches to predict: without them an evaluation takes milliseconds."""
    if len(contexts) < 2 or contexts[0].spec.training.device != "cpu":
        return False
    data, missing = evaluation_set(contexts[0]), 0
    with contexts[0].platform.transaction() as conn:
        for context in contexts:
            predictor = predictor_id(str(context.model and context.model.hash), context.spec.training)
            missing += bool(missing_batches(context, data, list_predictions(conn, context.trigger.id, predictor)))
    return missing > 1
