"""Evaluations of many models, dealt to workers. They write prediction files and score; the caller commits."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import one_line
from modyn_dagster.pipeline.context import TriggerContext, context_in_worker
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import with_full_matrix
from modyn_dagster.pipeline.stages.evaluation.prediction_files import missing_batches
from modyn_dagster.pipeline.stages.evaluation.stage import Evaluated, compute_evaluation
from modyn_dagster.pipeline.stages.evaluation.stretch_parts import stretch_parts, usable_workers
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set, newest_labels
from modyn_dagster.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelEvaluation:
    """Evaluation of one model of a run.

    Attributes:
        settings: of the process that commits.
        run_id: the run.
        trigger_id: trigger of the model.
        until: ordinal of the last batch of the view.
        finished: whether the run has come to its end, which closes its last intervals.
        full: evaluate on every interval, whatever the spec says.
        newest_labels: position in the sequence of arrivals up to which labels count; None where labels arrive with their samples.
        title: name of the evaluation in errors.
    """

    settings: Settings
    run_id: int
    trigger_id: int
    until: int
    finished: bool
    full: bool
    newest_labels: int | None
    title: str

    def __str__(self) -> str:
        return self.title


def with_equal_labels(contexts: Sequence[TriggerContext]) -> list[TriggerContext]:
    """Return the contexts of one evaluation with labels up to the same arrival, the newest one that is complete now.

    Otherwise each process would read the newest labels when it comes to a model, and labels that arrive during the evaluation
    would count for some models alone.
    """
    of_runs = {context.run.id: context for context in contexts}
    newest = {run_id: newest_labels(context) for run_id, context in of_runs.items()}
    return [replace(context, newest_labels=newest[context.run.id]) for context in contexts]


def dealt_evaluations(contexts: Sequence[TriggerContext], *, finished: bool) -> Iterator[Evaluated | None]:
    """Evaluate models of a run in the workers of their contexts, in order; None for each that the caller evaluates by itself.

    As many models as workers are evaluated at a time. Fewer than that, the last ones with batches to predict, are left to the
    caller where their stretches can be divided among all workers, as are those that workers failed on, and all where there is
    no pool, the models are on a GPU, or nothing can be done at the same time.
    """
    try:
        whole = _dealt_whole(contexts)
    except Exception as error:  # noqa: BLE001 - the caller evaluates all models, and meets the error if it comes again
        logger.warning("models are evaluated one after the other: %s", one_line(error))
        whole = set()
    remaining = [context for context in contexts if context.trigger.id in whole]
    results: Iterator[Evaluated] | None = None
    for context in contexts:
        if context.trigger.id not in whole or context.pool is None:
            yield None
            continue
        if results is None:
            items = [_item(each, finished) for each in remaining]
            results = context.pool.map(compute_in_worker, items, Resources(cpus=context.run.threads))
        remaining.remove(context)
        try:
            evaluated = next(results)
        except Exception as error:  # noqa: BLE001 - the caller evaluates the model, and meets the error if it comes again
            logger.warning("the model of trigger %s is evaluated again: %s", context.trigger.partition_key, one_line(error))
            results = None
            yield None
        else:
            yield evaluated


def compute_in_worker(item: ModelEvaluation) -> Evaluated:
    """Predict and score in a worker's process."""
    found = context_in_worker(item.settings, item.run_id, item.trigger_id, item.until)
    context = replace(found, newest_labels=item.newest_labels)
    evaluated = Evaluated()
    compute_evaluation(with_full_matrix(context) if item.full else context, evaluated, finished=item.finished)
    return evaluated


def _item(context: TriggerContext, finished: bool) -> ModelEvaluation:
    title = f"the evaluation of the model of trigger {context.trigger.partition_key}"
    full, until = context.spec.evaluation.matrix == "full", context.view.last_ordinal
    place = (context.platform.settings, context.run.id, context.trigger.id, until)
    return ModelEvaluation(*place, finished, full, context.newest_labels, title)


def _dealt_whole(contexts: Sequence[TriggerContext]) -> set[int]:
    """Triggers whose models are evaluated by one worker each: without anything to predict an evaluation takes milliseconds."""
    workers = usable_workers(contexts[0]) if len(contexts) > 1 else 0
    if workers == 0 or len({context.run.id for context in contexts}) > 1:
        return set()
    data, missing = evaluation_set(contexts[0]), dict[int, list[list[BatchRow]]]()
    with contexts[0].platform.transaction() as conn:
        for context in contexts:
            predictor = predictor_id(str(context.model and context.model.hash), context.spec.training)
            if stretches := missing_batches(context, data, list_predictions(conn, context.trigger.id, predictor)):
                missing[context.trigger.id] = stretches
    last = [context for context in contexts if context.trigger.id in missing][len(missing) - len(missing) % workers :]
    divided = {
        context.trigger.id
        for context in last
        if any(stretch_parts(context, data, stretch) for stretch in missing[context.trigger.id])
    }
    return {context.trigger.id for context in contexts} - divided if len(missing) - len(divided) > 1 else set()
