"""The stage ``evaluation``: predict the evaluation samples a model has not seen yet, then score the closed intervals."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.evaluations import (
    EvaluationRow,
    PredictionFileRow,
    list_evaluations,
    list_predictions,
    record_predictions,
)
from modyn_dagster.catalog.models import ModelRow, find_model
from modyn_dagster.catalog.timings import record_timing
from modyn_dagster.errors import RunError
from modyn_dagster.evaluation.blocks import BatchRange
from modyn_dagster.evaluation.predictions import predict_range, write_predictions
from modyn_dagster.keys import key_of, ordinal_of
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.paths import predictions_path
from modyn_dagster.pipeline.predictors import predictor_of
from modyn_dagster.pipeline.score import score_closed_intervals
from modyn_dagster.pipeline.view import DatasetView
from modyn_dagster.pipeline.wanted import wanted_batches

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor

Progress = Callable[[int, int], None]


def evaluate_model(
    context: TriggerContext, *, finished: bool, progress: Progress | None = None
) -> tuple[list[EvaluationRow], bool]:
    """Judge the model of a trained trigger on the batches of the context's view.

    Returns all its cells, and whether any of them is new. Only missing predictions are made and only missing or outdated
    cells are scored, so calling it again is cheap. An interval is scored once stream time has passed its end, or the run
    has ``finished``.
    """
    with context.platform.transaction() as conn:
        model = find_model(conn, context.trigger.id)
    if model is None:
        raise RunError(f"trigger {context.trigger.partition_key} is {context.trigger.state}: there is no model to evaluate")
    _predict_missing(context, model, progress)
    n_scored = score_closed_intervals(context, model, finished=finished)
    with context.platform.transaction() as conn:
        return list_evaluations(conn, context.run.id, context.trigger.id), n_scored > 0


def missing_batches(context: TriggerContext, files: Sequence[PredictionFileRow]) -> list[list[BatchRow]]:
    """Stretches of consecutive batches that the model is to predict and no file covers; each becomes one file."""
    covered = [(ordinal_of(file.first_key), ordinal_of(file.last_key)) for file in files]
    stretches: list[list[BatchRow]] = []
    open_stretch = False
    wanted = {batch.ordinal for batch in wanted_batches(context)}
    for batch in context.view.batches:
        missing = batch.ordinal in wanted and not any(first <= batch.ordinal <= last for first, last in covered)
        if missing and open_stretch:
            stretches[-1].append(batch)
        elif missing:
            stretches.append([batch])
        open_stretch = missing
    return stretches


def _predict_missing(context: TriggerContext, model: ModelRow, progress: Progress | None) -> None:
    with context.platform.transaction() as conn:
        files = list_predictions(conn, context.trigger.id)
    stretches = missing_batches(context, files)
    if not stretches:
        return
    total = sum(int(batch.n_samples or 0) for stretch in stretches for batch in stretch)
    done = 0
    with closing(predictor_of(context.platform, context.run, model, context.view)) as predictor:
        for stretch in stretches:
            watch = Stopwatch("evaluate")
            values = _predict_stretch(context, model, predictor, stretch)
            with context.platform.transaction() as conn:
                record_predictions(conn, values)
                record_timing(conn, context.run.id, context.trigger.id, None, watch.read(values["n_samples"]))
            done += sum(int(batch.n_samples or 0) for batch in stretch)
            if progress is not None:
                progress(done, total)


def _predict_stretch(
    context: TriggerContext, model: ModelRow, predictor: "Predictor", stretch: Sequence[BatchRow]
) -> dict[str, Any]:
    first = key_of(stretch[0].ordinal, 0)
    last = context.view.last_key_of(stretch[-1].ordinal)
    relative = predictions_path(context.run.id, context.trigger.ordinal, first, last)
    label = context.view.spec.label
    kind = "class" if label is None else label.kind
    ranges = [_range(context.view, batch) for batch in stretch]
    parts = predict_range(predictor, context.view.reader.read, ranges, kind=kind)
    written = write_predictions(context.platform.home / relative, parts, kind=kind, n_outputs=predictor.n_outputs)
    return {
        "trigger_id": context.trigger.id,
        "model_hash": model.hash,
        "first_key": first,
        "last_key": last,
        "n_samples": written.n_samples,
        "path": relative,
        "checksum": written.checksum,
    }


def _range(view: DatasetView, batch: BatchRow) -> BatchRange:
    """The evaluation samples of a batch that are still there."""
    deleted = view.deleted.positions(batch.ordinal).astype(np.int64)
    return BatchRange(batch.ordinal, int(batch.n_samples or 0), view.evaluation_positions(batch), deleted)
