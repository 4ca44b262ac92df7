"""A model of the catalog at work."""

from typing import TYPE_CHECKING

from modyn_dagster.catalog.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.task import by_number
from modyn_dagster.pipeline.view import DatasetView
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.check import transform_paths
from modyn_dagster.training.source_digest import source_digest

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor


def predictor_id(model_hash: str, training: TrainingSpec) -> str:
    """Names what predicts: the weights, and the code of the transforms as it is now, where there are any.

    With other code a model predicts and is judged anew.
    """
    code = source_digest(path for _, path in transform_paths(training))
    return f"{model_hash}-{code}" if code else model_hash


def predictor_of(platform: Platform, run: RunRow, model: ModelRow, view: DatasetView) -> "Predictor":
    """The predictor of a model, on the device and with the threads that its run says; close it in the end."""
    # Imported here: torch comes with it, and the sensor, which asks what is missing, does without.
    from modyn_dagster.pipeline.weights import weights_of
    from modyn_dagster.training import build_predictor

    spec = platform.spec_of(run)
    training = by_number(spec.training, view, f"pipeline {run.pipeline}")
    # How many workers parse is not recorded with a model, nor are classes that came later; the run's spec says it.
    now = training.model_dump(mode="json", include={"parser", "label_transform"})
    return build_predictor(
        {**model.architecture, **now},
        weights_of(platform, spec, model.hash),
        device=training.device,
        threads=run.threads,
        source=f"pipeline {run.pipeline}",
        where=view.reader.store.where,
    )
