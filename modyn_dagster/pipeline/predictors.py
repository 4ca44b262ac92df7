"""A model of the catalog at work."""

from typing import TYPE_CHECKING

from modyn_dagster.catalog.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.view import DatasetView

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor


def predictor_of(platform: Platform, run: RunRow, model: ModelRow, view: DatasetView) -> "Predictor":
    """The predictor of a model, on the device and with the threads that its run says; close it in the end."""
    # Imported here: torch comes with it, and the sensor, which asks what is missing, does without.
    from modyn_dagster.pipeline.weights import weights_of
    from modyn_dagster.training import build_predictor

    spec = platform.spec_of(run)
    training = spec.training
    # How many workers parse is not recorded with a model; the run's spec says it.
    parser = training.model_dump(mode="json", include={"parser"})
    return build_predictor(
        {**model.architecture, **parser},
        weights_of(platform, spec, model.hash),
        device=training.device,
        threads=run.threads,
        source=f"pipeline {run.pipeline}",
        where=view.reader.store.where,
    )
