"""Stage ``evaluation``: predict the batches that a model has not predicted yet, then score the closed intervals."""

import logging
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.results.evaluations import (
    CellResult,
    EvaluationRow,
    find_addresses,
    list_evaluations,
    record_evaluations,
    remove_evaluations,
)
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.predictions import PredictionFileRow, list_predictions, record_predictions
from modyn_dagster.catalog.timings import Timing, record_timing
from modyn_dagster.errors import RunError, StalePredictions, WithdrawnModel
from modyn_dagster.evaluation.predictions.files import PredictionWriter
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.context import Stopwatch, TriggerContext
from modyn_dagster.pipeline.models import predictor_id, predictor_of
from modyn_dagster.pipeline.stages.evaluation.cells.closed_intervals import ScoredCells, score_closed_intervals
from modyn_dagster.pipeline.stages.evaluation.cells.late_cells import score_late_cells
from modyn_dagster.pipeline.stages.evaluation.damaged_predictions import read_linked, read_recorded
from modyn_dagster.pipeline.stages.evaluation.deletions_meanwhile import lock_out_deletions, remove_unrecorded, stale_files
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.prediction_files import (
    PredictedStretch,
    equal_predictions,
    link_predictions,
    missing_batches,
    predict,
)
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import StoredPredictions
from modyn_dagster.pipeline.stages.evaluation.stretch_parts import stretch_predictions
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Evaluated:
    """Result of an evaluation before it is committed.

    Attributes:
        files: rows of the prediction files that were written or linked.
        timings: of the written ones, for the cost ledger.
        cells: new and outdated cells.
    """

    files: list[dict[str, Any]] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    cells: ScoredCells = ScoredCells()  # noqa: RUF009 - frozen


def evaluate_model(
    context: TriggerContext, *, finished: bool, progress: Progress | None = None, evaluated: Evaluated | None = None
) -> tuple[list[EvaluationRow], bool]:
    """Evaluate the model of a trained trigger on the batches of the context's view.

    Returns all cells of the run, and whether any cell of this model is new. Only missing predictions are made, and only
    missing or outdated cells are scored, so another call is cheap. An interval is scored once stream time has passed its end,
    or the run has ``finished``. Predictions and scores of an equal model of another run are reused. What a worker has
    ``evaluated`` is committed instead, unless samples were deleted meanwhile.

    A deletion request that replaces or withdraws the model meanwhile evaluates what comes in its place, so nothing of this
    evaluation is kept then.
    """
    while True:
        try:
            return _commit(context, evaluated or _computed(context, finished=finished, progress=progress))
        except StalePredictions as error:
            logger.warning("%s", error)
            context, evaluated = replace(context, view=context.view.renewed()), None
        except WithdrawnModel as error:
            logger.warning("trigger %s: %s; its evaluation ends", context.trigger.partition_key, error)
            with context.platform.transaction() as conn:
                return list_evaluations(conn, context.run.id), False


def _computed(context: TriggerContext, *, finished: bool, progress: Progress | None) -> Evaluated:
    evaluated = Evaluated()
    try:
        compute_evaluation(context, evaluated, finished=finished, progress=progress)
    except BaseException:
        # The next call reuses the files.
        if evaluated.files:
            with suppress(StalePredictions, WithdrawnModel):
                _commit(context, replace(evaluated, cells=ScoredCells()))
        raise
    return evaluated


def compute_evaluation(
    context: TriggerContext, evaluated: Evaluated, *, finished: bool, progress: Progress | None = None
) -> None:
    """Write the missing prediction files of a model and score it; nothing is committed.

    Also where predicting or scoring fails, ``evaluated`` gets the rows of the files that were written.
    """
    model = context.model
    if model is None:
        raise RunError(f"trigger {context.trigger.partition_key} is {context.trigger.state}: there is no model to evaluate")
    data = evaluation_set(context)
    recorded = _read(context, model, data)
    if recorded.missing and model.removed_at is not None:
        # Retention removed it from its store: it predicts nothing more, and keeps the scores that it has.
        return
    reused = [link_predictions(context, model, data, missing.batches, missing.equal) for missing in recorded.missing]
    stretches = [missing.batches for missing, values in zip(recorded.missing, reused, strict=True) if values is None]
    rows = [values for values in reused if values is not None]
    evaluated.files += rows
    predicted: list[_Predicted] = []
    with PredictionWriter() as writer:
        try:
            if stretches:
                _predict(context, model, data, writer, stretches, predicted, progress)
            predictions = _concatenated(context, model, data, recorded.files, rows, predicted)
            score = score_closed_intervals if data.view.label_position is None else score_late_cells
            evaluated.cells = score(
                context, model, data, predictions, recorded.cells, lambda a: _known_results(context, a), finished=finished
            )
        finally:
            _await_files(context, predicted, evaluated)


def predict_batches(
    context: TriggerContext, model: ModelRow, data: EvaluationSet, stretches: Sequence[Sequence[BatchRow]]
) -> None:
    """Predict stretches of batches that a model has not predicted, and record their files; nothing is scored.

    Raises:
        StalePredictions: samples were deleted meanwhile; files that hold them are removed.
        WithdrawnModel: a deletion request has withdrawn the model; nothing is recorded.
    """
    evaluated, predicted = Evaluated(), list[_Predicted]()
    with PredictionWriter() as writer:
        try:
            _predict(context, model, data, writer, stretches, predicted, None)
        finally:
            _await_files(context, predicted, evaluated)
    _commit(context, evaluated)


@dataclass(frozen=True, slots=True)
class _Missing:
    """Consecutive batches without predictions, and files of equal models of other runs that cover them."""

    batches: Sequence[BatchRow]
    equal: Sequence[PredictionFileRow]


@dataclass(frozen=True, slots=True)
class _Recorded:
    """Catalog rows of a model before its evaluation."""

    files: Sequence[PredictionFileRow]
    cells: Sequence[EvaluationRow]
    missing: Sequence[_Missing]


@dataclass(frozen=True, slots=True)
class _Predicted:
    """A stretch whose file is being written, and the timing of its prediction, without the wait for the file."""

    stretch: PredictedStretch
    timing: Timing


def _read(context: TriggerContext, model: ModelRow, data: EvaluationSet) -> _Recorded:
    with context.platform.transaction() as conn:
        files = list_predictions(conn, context.trigger.id, predictor_id(model.hash, context.spec.training))
        cells = list_evaluations(conn, context.run.id, context.trigger.id, subsets=True)
        stretches = missing_batches(context, data, files)
        missing = [_Missing(batches, equal_predictions(conn, context, model, data, batches)) for batches in stretches]
    return _Recorded(files, cells, missing)


def _predict(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    writer: PredictionWriter,
    stretches: Sequence[Sequence[BatchRow]],
    predicted: list[_Predicted],
    progress: Progress | None,
) -> None:
    """Predict stretches of batches and add them to ``predicted``; their files are then still being written."""
    total = sum(int(batch.n_samples or 0) for stretch in stretches for batch in stretch)
    done = 0
    with closing(predictor_of(context.platform, context.run, model, data.view)) as predictor:
        for stretch in stretches:
            watch = Stopwatch("evaluate")
            parts = stretch_predictions(context, data, predictor, stretch)
            result = predict(context, model, data, predictor, writer, stretch, parts)
            predicted.append(_Predicted(result, watch.read()))
            done += sum(int(batch.n_samples or 0) for batch in stretch)
            if progress is not None:
                progress(done, total)


def _concatenated(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    files: Sequence[PredictionFileRow],
    reused: Sequence[dict[str, Any]],
    predicted: Sequence[_Predicted],
) -> StoredPredictions | None:
    """Concatenate all predictions of the model in key order; None where there are none."""
    recorded = (read_recorded(context, model, data, file) for file in files if file.removed_at is None)
    parts = [item.stretch.part for item in predicted]
    parts += [part for part in recorded if part is not None]
    parts += [read_linked(context, model, data, values) for values in reused]
    return StoredPredictions.of(parts) if parts else None


def _known_results(context: TriggerContext, addresses: Sequence[str]) -> dict[str, CellResult]:
    with context.platform.transaction() as conn:
        return find_addresses(conn, addresses)


def _await_files(context: TriggerContext, predicted: Sequence[_Predicted], evaluated: Evaluated) -> None:
    """Wait for files, and add their rows and timings; where one cannot be written, those before it."""
    for item in predicted:
        waiting = Stopwatch("evaluate")
        values = item.stretch.wait()
        n_bytes = files_at(path := context.platform.home / values["path"]).size(path) or 0
        waited = waiting.read(values["n_samples"], n_bytes)
        evaluated.files.append(values)
        evaluated.timings.append(replace(waited, seconds=item.timing.seconds + waited.seconds))


def _commit(context: TriggerContext, evaluated: Evaluated) -> tuple[list[EvaluationRow], bool]:
    """Commit an evaluation. Returns all cells of the run, and whether any cell of this model is new.

    Raises:
        StalePredictions: files hold samples that were deleted meanwhile; these are removed, and only the others committed.
        WithdrawnModel: nothing is committed, and the files are removed.
    """
    cells, files = evaluated.cells, evaluated.files
    try:
        with context.platform.transaction() as conn:
            if files or cells.rows:
                lock_out_deletions(conn, context, files)
            stale = [] if context.model is None else stale_files(conn, context, context.model, files)
            for values in files:
                if values not in stale:
                    record_predictions(conn, values)
            for timing in evaluated.timings:
                record_timing(conn, context.run.id, context.trigger.id, None, timing)
            if not stale:
                record_evaluations(conn, cells.rows)
                remove_evaluations(conn, cells.removed)
            run_cells = list_evaluations(conn, context.run.id)
    except WithdrawnModel:
        remove_unrecorded(context, files)
        raise
    if files:
        # Another process may have recorded the same batches in a file of another name, without samples deleted meanwhile.
        remove_unrecorded(context, files)
    if stale:
        raise StalePredictions(context.trigger.partition_key, len(stale))
    return run_cells, bool(cells.rows)
