"""Prediction files of a trigger's model: missing stretches, links to files of equal models, and new files."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.predictions import PredictionFileRow, same_predictions
from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.data.samples import Samples
from modyn_dagster.evaluation.predictions.blocks import BatchRange
from modyn_dagster.evaluation.predictions.compact_file import SUFFIXES, form_of
from modyn_dagster.evaluation.predictions.files import PredictionWriter, WrittenPredictions
from modyn_dagster.evaluation.predictions.forward import Predictions, predict_range
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray, key_of, ordinal_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.platform import deletions_of, predictions_path
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import model_batches
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import StoredPart, compact_part, compacted, form_for

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor


def missing_batches(context: TriggerContext, data: EvaluationSet, files: Sequence[PredictionFileRow]) -> list[list[BatchRow]]:
    """Return the stretches of consecutive batches that the model is to predict and no file covers; each becomes one file."""
    return uncovered_stretches(data, model_batches(context, data), files)


def uncovered_stretches(data: EvaluationSet, due: Sequence[BatchRow], files: Sequence[PredictionFileRow]) -> list[list[BatchRow]]:
    """Return the stretches of consecutive batches, of those due, that no file covers."""
    covered = [(ordinal_of(file.first_key), ordinal_of(file.last_key)) for file in files]
    stretches: list[list[BatchRow]] = []
    # Batches of a dataset that pipelines do not see, such as failed ones, part no stretch.
    places = np.searchsorted(data.view.columns.ordinals, [batch.ordinal for batch in due]).tolist()
    previous = None
    for place, batch in zip(places, due, strict=True):
        if any(first <= batch.ordinal <= last for first, last in covered):
            continue
        if previous is not None and place == previous + 1:
            stretches[-1].append(batch)
        else:
            stretches.append([batch])
        previous = place
    return stretches


def equal_predictions(
    conn: sa.Connection, context: TriggerContext, model: ModelRow, data: EvaluationSet, stretch: Sequence[BatchRow]
) -> list[PredictionFileRow]:
    """List the files of the form due that equal models of other runs have made of the same batches."""
    form = form_for(context, model)
    predictor = predictor_id(model.hash, context.spec.training)
    files = same_predictions(conn, predictor, data.source, *_ends(data, stretch))
    runs = {run_id: get_run(conn, run_id) for _, run_id in files}
    return [file for file, run_id in files if form_of(file.path) == form and _predicts_alike(runs[run_id], context.run)]


def link_predictions(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    stretch: Sequence[BatchRow],
    files: Sequence[PredictionFileRow],
) -> dict[str, Any] | None:
    """Link the first of some equal files that is present to a path of this model, and return its row; None without one."""
    first, last = _ends(data, stretch)
    predictor = predictor_id(model.hash, context.spec.training)
    suffix = SUFFIXES[form_for(context, model)]
    for file in files:
        version = deletions_of(file.path)
        target = predictions_path(context.run.id, context.trigger.ordinal, predictor, first, last, suffix, version)
        if _link(context.platform.home / file.path, context.platform.home / target):
            written = WrittenPredictions(file.checksum, file.n_samples, first, last)
            return _row(context, model, data, stretch, target, written)
    return None


@dataclass(frozen=True, slots=True)
class PredictedStretch:
    """Predictions of consecutive batches, while their file is being written.

    Attributes:
        part: predictions as the file gives them back.
        wait: waits for the file, and returns its row; ``WriteFailed`` when the disk refuses.
    """

    part: StoredPart
    wait: Callable[[], dict[str, Any]]


def predict(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    predictor: "Predictor",
    writer: PredictionWriter,
    stretch: Sequence[BatchRow],
    predicted: Iterable[Predictions],
) -> PredictedStretch:
    """Take the predictions of some batches, part after part, and start writing their file."""
    name = predictor_id(model.hash, context.spec.training)
    form, kind = form_for(context, model), predictor.kind
    ends, version = _ends(data, stretch), sum(batch.deleted_version for batch in stretch)
    relative = predictions_path(context.run.id, context.trigger.ordinal, name, *ends, SUFFIXES[form], version)
    path = context.platform.home / relative
    if form == "compact":
        # Encoded while the next samples are predicted.
        encoded = [writer.run(compacted, part) for part in predicted]
        part, content = compact_part(data, stretch, [each.result() for each in encoded])
        written = writer.write_bytes(path, content, part.predictions.keys)
    else:
        parts = list(predicted)
        part = StoredPart(Predictions.concat([Predictions.empty(kind, predictor.n_outputs, predictor.n_targets), *parts]))
        sizes = {"n_outputs": predictor.n_outputs, "n_targets": predictor.n_targets}
        written = writer.write(path, parts, kind=kind, **sizes)

    def wait() -> dict[str, Any]:
        return _row(context, model, data, stretch, relative, written.result())

    return PredictedStretch(part, wait)


def ranges_of(data: EvaluationSet, stretch: Sequence[BatchRow]) -> Iterable[BatchRange]:
    """Return the positions to predict in some batches, without deleted ones."""
    for batch in stretch:
        deleted = data.view.deleted.positions(batch.ordinal).astype(np.int64)
        yield BatchRange(batch.ordinal, int(batch.n_samples or 0), data.positions(batch), deleted)


def predicted_blocks(
    predictor: "Predictor", data: EvaluationSet, stretch: Sequence[BatchRow], begin: int = 0, end: int | None = None
) -> Iterator[Predictions]:
    """Predict the samples of some batches, or of a range of their blocks, as ``predict_range`` does."""
    ranges = ranges_of(data, stretch)
    read = partial(_judged, predictor, data)
    yield from predict_range(predictor, read, ranges, kind=predictor.kind, task=predictor.task, begin=begin, end=end)


def _judged(predictor: "Predictor", data: EvaluationSet, keys: KeyArray) -> Samples:
    return predictor.judged(data.read(keys))


def _row(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    stretch: Sequence[BatchRow],
    path: str,
    written: WrittenPredictions,
) -> dict[str, Any]:
    first, last = _ends(data, stretch)
    return {
        "trigger_id": context.trigger.id,
        "model_hash": predictor_id(model.hash, context.spec.training),
        "first_key": first,
        "last_key": last,
        "n_samples": written.n_samples,
        "path": path,
        "checksum": written.checksum,
        "source": data.source,
    }


def _ends(data: EvaluationSet, stretch: Sequence[BatchRow]) -> tuple[int, int]:
    return key_of(stretch[0].ordinal, 0), data.view.last_key_of(stretch[-1].ordinal)


def _predicts_alike(run: RunRow, other: RunRow) -> bool:
    """Check that two runs read the same samples and compute alike, so that equal weights give bit-identical outputs."""
    reads_alike = run.spec["training"] == other.spec["training"] and run.hole_set_id == other.hole_set_id
    return reads_alike and run.threads == other.threads


def _link(existing: Path, path: Path) -> bool:
    """Store a file under a second name; removing either leaves the other. False where the existing file is missing."""
    try:
        files_at(path).link(existing, path)
    except OSError:
        return False
    return True
