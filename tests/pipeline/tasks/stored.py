"""Predictions that a replay has stored, read back."""

from collections.abc import Iterator, Mapping

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.evaluation.predictions.files import read_predictions
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.training.predictor_record import PredictorRecord
from tests.pipeline.world import World


def predictions_of(world: World, pipeline: str) -> Iterator[tuple[ModelRow, Predictions]]:
    """Every exact prediction file of a replay, with its model."""
    run = world.run(pipeline, "replay")
    with world.platform.transaction() as conn:
        models = {row.ordinal: row for row in list_models(conn, run.id)}
        files = [
            (models[trigger.ordinal], row)
            for trigger in world.triggers(run.id, "trained")
            for row in list_predictions(conn, trigger.id, models[trigger.ordinal].hash)
        ]
    assert files
    for model, row in files:
        yield model, read_predictions(world.platform.home / row.path, row.checksum)


def record_of(context: TriggerContext, model: ModelRow, dtypes: Mapping[str, str]) -> PredictorRecord:
    """Record of a model for serving, with the dtypes of the columns that it reads."""
    return PredictorRecord.of(
        context.spec.training,
        model.architecture,
        name="graded",
        model=model.hash,
        store=None,
        dtypes=dtypes,
        class_names=(),
        threads=1,
    )
