"""Prediction files that are damaged or missing: the same model predicts the same samples again.

An evaluation goes on with what it predicts, so a damaged file stops no later launch; a repair takes the recorded bytes alone.
"""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.predictions import PredictionFileRow, mark_predictions_removed, replace_predictions
from modyn_dagster.errors import CorruptFile, NotReproducible
from modyn_dagster.evaluation.predictions.files import WrittenPredictions, read_predictions, write_predictions
from modyn_dagster.evaluation.predictions.forward import Predictions, predict_range
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.prediction_files import ranges_of
from modyn_dagster.storage import replace_durably, temporary_name

logger = logging.getLogger(__name__)


def read_recorded(context: TriggerContext, model: ModelRow, data: EvaluationSet, file: PredictionFileRow) -> Predictions | None:
    """Read a recorded file. A damaged one is predicted again, and recorded again if it has other bytes now.

    Returns None where retention has removed the model: its predictions then count as removed, too, and its scores stay.
    """
    path = context.platform.home / file.path
    try:
        return read_predictions(path, file.checksum)
    except CorruptFile as error:
        logger.warning("%s: trigger %s predicts the samples again", error, context.trigger.partition_key)
    if model.removed_at is not None:
        logger.warning("model %s was removed by retention: its scores stay, without these predictions", model.hash)
        with context.platform.transaction() as conn:
            mark_predictions_removed(conn, [file.id])
        return None
    with _predicted_again(context, model, data, file.path, file.first_key, file.last_key) as again:
        replace_durably(again.temporary, path)
        if again.written.checksum != file.checksum:
            _warn_of_other_bytes(path)
            with context.platform.transaction() as conn:
                replace_predictions(conn, file.id, checksum=again.written.checksum, n_samples=again.written.n_samples)
        return again.predictions


def read_linked(context: TriggerContext, model: ModelRow, data: EvaluationSet, values: dict[str, Any]) -> Predictions:
    """Read a file that was linked from an equal model's and is not recorded yet; a damaged one is predicted again."""
    path = context.platform.home / values["path"]
    try:
        return read_predictions(path, values["checksum"])
    except CorruptFile as error:
        logger.warning("%s: trigger %s predicts the samples again", error, context.trigger.partition_key)
    with _predicted_again(context, model, data, values["path"], values["first_key"], values["last_key"]) as again:
        replace_durably(again.temporary, path)
        if again.written.checksum != values["checksum"]:
            _warn_of_other_bytes(path)
            values |= {"checksum": again.written.checksum, "n_samples": again.written.n_samples}
        return again.predictions


def remake_prediction_file(context: TriggerContext, model: ModelRow, data: EvaluationSet, file: PredictionFileRow) -> None:
    """Predict the samples of a file again and replace it, if that gives the recorded bytes; else ``NotReproducible``."""
    with _predicted_again(context, model, data, file.path, file.first_key, file.last_key) as again:
        if again.written.checksum != file.checksum:
            raise NotReproducible(Path(file.path).name, file.checksum, again.written.checksum, doing="predicted again")
        replace_durably(again.temporary, context.platform.home / file.path)


class _Again(NamedTuple):
    """Predictions that were made again, and the durable file of them beside the damaged one."""

    predictions: Predictions
    written: WrittenPredictions
    temporary: Path


@contextmanager
def _predicted_again(
    context: TriggerContext, model: ModelRow, data: EvaluationSet, path: str, first_key: int, last_key: int
) -> Iterator[_Again]:
    """Predict what a file holds; the new file is removed after the block unless it was renamed."""
    first, last = ordinal_of(first_key), ordinal_of(last_key)
    stretch = [batch for batch in data.view.batches if first <= batch.ordinal <= last]
    temporary = temporary_name(context.platform.home / path)
    try:
        predictor = predictor_of(context.platform, context.run, model, data.view)
    except CorruptFile as error:
        remedy = "; `modyn-dagster repair` makes it again where it can"
        raise CorruptFile(error.path, error.expected, error.found + remedy) from error
    with closing(predictor):
        kind, n_outputs = predictor.kind, predictor.n_outputs
        ranges = ranges_of(data, stretch)
        parts = list(predict_range(predictor, lambda keys: predictor.judged(data.read(keys)), ranges, kind=kind))
    try:
        written = write_predictions(temporary, parts, kind=kind, n_outputs=n_outputs)
        yield _Again(Predictions.concat([Predictions.empty(kind, n_outputs), *parts]), written, temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _warn_of_other_bytes(path: Path) -> None:
    logger.warning(
        "%s has other bytes now: samples were deleted since, or code, libraries or hardware changed; recorded scores stay", path
    )
