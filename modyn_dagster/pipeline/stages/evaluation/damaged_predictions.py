"""Prediction files that are damaged or missing: the same model predicts the same samples again.

An evaluation goes on with what it predicts, so a damaged file stops no later launch; a repair takes the recorded bytes alone.
"""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.predictions import PredictionFileRow, mark_predictions_removed
from modyn_dagster.durability.names import temporary_name
from modyn_dagster.errors import CorruptFile, NotReproducible
from modyn_dagster.evaluation.predictions.compact_file import form_of
from modyn_dagster.evaluation.predictions.files import WrittenPredictions, write_content, write_predictions
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.stages.evaluation.deletions_meanwhile import replace_file
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.prediction_files import predicted_blocks
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import (
    PredictionFile,
    StoredPart,
    compact_part,
    compacted,
    read_stored,
)
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set
from modyn_dagster.storage import replace_durably

logger = logging.getLogger(__name__)


def read_recorded(context: TriggerContext, model: ModelRow, data: EvaluationSet, row: PredictionFileRow) -> StoredPart | None:
    """Read a recorded file. A damaged one is predicted again, and recorded again if it has other bytes now.

    Returns None where retention has removed the model: its predictions then count as removed, too, and its scores stay.
    """
    file = PredictionFile(row.path, row.checksum, row.first_key, row.last_key)
    data = _reaching(context, data, file)
    try:
        return read_stored(context.platform.home, data, file)
    except CorruptFile as error:
        logger.warning("%s: trigger %s predicts the samples again", error, context.trigger.partition_key)
    if model.removed_at is not None:
        logger.warning("model %s was removed by retention: its scores stay, without these predictions", model.hash)
        with context.platform.transaction() as conn:
            mark_predictions_removed(conn, [row.id])
        return None
    again = _put_in_place(context, model, data, file)
    replace_file(context, row, again.written)
    return again.part


def read_linked(context: TriggerContext, model: ModelRow, data: EvaluationSet, values: dict[str, Any]) -> StoredPart:
    """Read a file that was linked from an equal model's and is not recorded yet; a damaged one is predicted again."""
    file = PredictionFile(*(values[name] for name in PredictionFile._fields))
    try:
        return read_stored(context.platform.home, data, file)
    except CorruptFile as error:
        logger.warning("%s: trigger %s predicts the samples again", error, context.trigger.partition_key)
    again = _put_in_place(context, model, data, file)
    values |= {"checksum": again.written.checksum, "n_samples": again.written.n_samples}
    return again.part


def remake_prediction_file(context: TriggerContext, model: ModelRow, data: EvaluationSet, row: PredictionFileRow) -> None:
    """Predict the samples of a file again and replace it, if that gives the recorded bytes; else ``NotReproducible``."""
    file = PredictionFile(row.path, row.checksum, row.first_key, row.last_key)
    with _predicted_again(context, model, _reaching(context, data, file), file) as again:
        if again.written.checksum != file.checksum:
            raise NotReproducible(Path(file.path).name, file.checksum, again.written.checksum, doing="predicted again")
        replace_durably(again.temporary, context.platform.home / file.path)


class _Again(NamedTuple):
    """Predictions that were made again, and the durable file of them beside the damaged one."""

    part: StoredPart
    written: WrittenPredictions
    temporary: Path


def _reaching(context: TriggerContext, data: EvaluationSet, file: PredictionFile) -> EvaluationSet:
    """Return evaluation samples that reach as far as a file, which another process may have written of a newer view."""
    if ordinal_of(file.last_key) <= data.view.last_ordinal:
        return data
    return evaluation_set(replace(context, view=context.platform.view_of(context.run)))


def _put_in_place(context: TriggerContext, model: ModelRow, data: EvaluationSet, file: PredictionFile) -> _Again:
    """Predict what a file holds, and replace it."""
    path = context.platform.home / file.path
    with _predicted_again(context, model, data, file) as again:
        replace_durably(again.temporary, path)
        if again.written.checksum != file.checksum:
            logger.warning(
                "%s has other bytes now: samples were deleted since, or code, libraries or hardware changed",
                path,
            )
        return again


@contextmanager
def _predicted_again(context: TriggerContext, model: ModelRow, data: EvaluationSet, file: PredictionFile) -> Iterator[_Again]:
    """Predict what a file holds, in its form; the new file is removed after the block unless it was renamed."""
    first, last = ordinal_of(file.first_key), ordinal_of(file.last_key)
    stretch = [batch for batch in data.view.batches if first <= batch.ordinal <= last]
    temporary = temporary_name(context.platform.home / file.path)
    try:
        predictor = predictor_of(context.platform, context.run, model, data.view)
    except CorruptFile as error:
        remedy = "; `modyn-dagster repair` makes it again where it can"
        raise CorruptFile(error.path, error.expected, error.found + remedy) from error
    with closing(predictor):
        kind, n_outputs, n_targets = predictor.kind, predictor.n_outputs, predictor.n_targets
        parts = list(predicted_blocks(predictor, data, stretch))
    try:
        if form_of(file.path) == "compact":
            part, content = compact_part(data, stretch, map(compacted, parts))
            written = write_content(temporary, content, part.predictions.keys)
        else:
            part = StoredPart(Predictions.concat([Predictions.empty(kind, n_outputs, n_targets), *parts]))
            written = write_predictions(temporary, parts, kind=kind, n_outputs=n_outputs, n_targets=n_targets)
        yield _Again(part, written, temporary)
    finally:
        temporary.unlink(missing_ok=True)
