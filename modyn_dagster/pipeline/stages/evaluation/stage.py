"""The stage ``evaluation``: predict the evaluation samples a model has not seen yet, then score the closed intervals."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import ModelRow, find_model
from modyn_dagster.catalog.results.predictions import list_predictions, record_predictions
from modyn_dagster.catalog.timings import Timing, record_timing
from modyn_dagster.errors import RunError
from modyn_dagster.evaluation.predictions.files import PredictionWriter, read_predictions
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.models import predictor_id, predictor_of
from modyn_dagster.pipeline.stages.evaluation.cells import record_cells, score_closed_intervals
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.prediction_files import (
    PredictedStretch,
    missing_batches,
    predict,
    reuse_predictions,
)
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set

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
    data = evaluation_set(context)
    with PredictionWriter() as writer:
        predicted = _predict_missing(context, model, data, writer, progress)
        try:
            scored = score_closed_intervals(context, model, data, _all_of(context, model, predicted), finished=finished)
        finally:
            # Also where scoring fails: what was predicted is there for the next time. Rows of files go before those of cells.
            for each in predicted:
                _record(context, each)
    record_cells(context, scored)
    with context.platform.transaction() as conn:
        return list_evaluations(conn, context.run.id, context.trigger.id), bool(scored.rows)


@dataclass(frozen=True, slots=True)
class _Predicted:
    """A stretch, and what predicting it took; the time for which its file is waited comes on top."""

    stretch: PredictedStretch
    timing: Timing


def _predict_missing(
    context: TriggerContext, model: ModelRow, data: EvaluationSet, writer: PredictionWriter, progress: Progress | None
) -> list[_Predicted]:
    """Returns what was predicted just now, whose files are still being written."""
    with context.platform.transaction() as conn:
        files = list_predictions(conn, context.trigger.id, predictor_id(model.hash, context.spec.training))
    stretches = []
    for stretch in missing_batches(context, data, files):
        if (values := reuse_predictions(context, model, data, stretch)) is None:
            stretches.append(stretch)
        else:
            with context.platform.transaction() as conn:
                record_predictions(conn, values)
    made: list[_Predicted] = []
    if not stretches:
        return made
    total = sum(int(batch.n_samples or 0) for stretch in stretches for batch in stretch)
    done = 0
    with closing(predictor_of(context.platform, context.run, model, data.view)) as predictor:
        for stretch in stretches:
            watch = Stopwatch("evaluate")
            found = predict(context, model, data, predictor, writer, stretch)
            made.append(_Predicted(found, watch.read()))
            done += sum(int(batch.n_samples or 0) for batch in stretch)
            if progress is not None:
                progress(done, total)
    return made


def _record(context: TriggerContext, made: _Predicted) -> None:
    """Commit a file once it is written, with what it took."""
    waiting = Stopwatch("evaluate")
    values = made.stretch.wait()
    n_bytes = (context.platform.home / values["path"]).stat().st_size
    waited = waiting.read(values["n_samples"], n_bytes)
    with context.platform.transaction() as conn:
        record_predictions(conn, values)
        timing = replace(waited, seconds=made.timing.seconds + waited.seconds)
        record_timing(conn, context.run.id, context.trigger.id, None, timing)


def _all_of(context: TriggerContext, model: ModelRow, made: Sequence[_Predicted]) -> Predictions | None:
    """All that the model predicted, in key order: read from files but for what was made just now; None where that is nothing."""
    with context.platform.transaction() as conn:
        listed = list_predictions(conn, context.trigger.id, predictor_id(model.hash, context.spec.training))
        files = [file for file in listed if file.removed_at is None]
    parts = [read_predictions(context.platform.home / file.path, file.checksum) for file in files]
    parts += [each.stretch.predictions for each in made]
    if not parts:
        return None
    parts.sort(key=lambda part: int(part.keys[0]) if len(part) else 0)
    return Predictions.concat(parts)
