"""The stage ``evaluation``: predict the evaluation samples a model has not seen yet, then score the closed intervals."""

from collections.abc import Callable
from contextlib import closing

from modyn_dagster.catalog.evaluations import EvaluationRow, list_evaluations, list_predictions, record_predictions
from modyn_dagster.catalog.models import ModelRow, find_model
from modyn_dagster.catalog.timings import record_timing
from modyn_dagster.errors import RunError
from modyn_dagster.evaluation.predictions import Predictions
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.judged_on import JudgedOn
from modyn_dagster.pipeline.judged_training import judged_on
from modyn_dagster.pipeline.predictors import predictor_id, predictor_of
from modyn_dagster.pipeline.score import score_closed_intervals
from modyn_dagster.pipeline.stored import missing_batches, predict, take_over

Progress = Callable[[int, int], None]


def evaluate_model(
    context: TriggerContext, *, finished: bool, progress: Progress | None = None
) -> tuple[list[EvaluationRow], bool]:
    """Judge the model of a trained trigger on the batches of the context's view.

    Returns all its cells, and whether any of them is new. Only missing predictions are made and only missing or outdated
    cells are scored, so calling it again is cheap. An interval is scored once stream time has passed its end, or the run
    has ``finished``. What an equal model of another run has predicted or was given as a score is taken over.
    """
    with context.platform.transaction() as conn:
        model = find_model(conn, context.trigger.id)
    if model is None:
        raise RunError(f"trigger {context.trigger.partition_key} is {context.trigger.state}: there is no model to evaluate")
    data = judged_on(context)
    made = _predict_missing(context, model, data, progress)
    n_scored = score_closed_intervals(context, model, data, made, finished=finished)
    with context.platform.transaction() as conn:
        return list_evaluations(conn, context.run.id, context.trigger.id), n_scored > 0


def _predict_missing(
    context: TriggerContext, model: ModelRow, data: JudgedOn, progress: Progress | None
) -> dict[str, Predictions]:
    """Returns what was predicted just now, by path: it need not be read again."""
    with context.platform.transaction() as conn:
        files = list_predictions(conn, context.trigger.id, predictor_id(model.hash, context.spec.training))
    stretches = []
    for stretch in missing_batches(context, data, files):
        if (values := take_over(context, model, data, stretch)) is None:
            stretches.append(stretch)
        else:
            with context.platform.transaction() as conn:
                record_predictions(conn, values)
    made: dict[str, Predictions] = {}
    if not stretches:
        return made
    total = sum(int(batch.n_samples or 0) for stretch in stretches for batch in stretch)
    done = 0
    with closing(predictor_of(context.platform, context.run, model, data.view)) as predictor:
        for stretch in stretches:
            watch = Stopwatch("evaluate")
            values, predictions = predict(context, model, data, predictor, stretch)
            if predictions is not None:
                made[values["path"]] = predictions
            n_bytes = (context.platform.home / values["path"]).stat().st_size
            with context.platform.transaction() as conn:
                record_predictions(conn, values)
                timing = watch.read(values["n_samples"], n_bytes)
                record_timing(conn, context.run.id, context.trigger.id, None, timing)
            done += sum(int(batch.n_samples or 0) for batch in stretch)
            if progress is not None:
                progress(done, total)
    return made
