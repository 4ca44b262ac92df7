"""Models of a pipeline: learning task, identity of predictions, and the predictor of a catalog row."""

from typing import TYPE_CHECKING

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.data.tasks import n_classes, non_feature_columns, task_kind
from modyn_dagster.data.view import DatasetView
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task
from modyn_dagster.training.transforms.labels import numbered
from modyn_dagster.training.user_code import transform_paths
from modyn_dagster.values.digest import source_digest

if TYPE_CHECKING:
    from modyn_dagster.training import Predictor


def task_of(training: TrainingSpec, view: DatasetView) -> Task:
    """Return the task of a training on a view."""
    label = view.spec.label
    if label is None:
        return Task(task_kind(training, view.spec), exclude=non_feature_columns(view.spec))
    if label.kind == "target":
        return Task("target", exclude=non_feature_columns(view.spec))
    return Task("class", n_classes=n_classes(view), exclude=non_feature_columns(view.spec))


def with_class_numbers(training: TrainingSpec, view: DatasetView, source: str) -> TrainingSpec:
    """Replace class names in a label transform by their numbers; ``ConfigError`` for a class that the dataset cannot have."""
    label = view.spec.label
    pinned = label is not None and label.classes is not None
    return numbered(training, view.row.class_names, pinned=pinned, source=source)


def predictor_id(model_hash: str, training: TrainingSpec) -> str:
    """Identify predictions by the weights and the current code of the transforms; with other code a model predicts again."""
    code = source_digest(path for _, path in transform_paths(training))
    return f"{model_hash}-{code}" if code else model_hash


def predictor_of(platform: Platform, run: RunRow, model: ModelRow, view: DatasetView) -> "Predictor":
    """Build the predictor of a model, with the device and threads of its run; close it in the end."""
    # Imported here: it imports torch, which the sensor does not need to find missing predictions.
    from modyn_dagster.pipeline.weights import weights_of
    from modyn_dagster.training import build_predictor

    spec = platform.spec_of(run)
    training = with_class_numbers(spec.training, view, f"pipeline {run.pipeline}")
    # The number of parser workers and classes that came later are not recorded with a model, so the run's spec gives them.
    current = training.model_dump(mode="json", include={"parser", "label_transform"})
    return build_predictor(
        {**model.architecture, **current},
        weights_of(platform, spec, model.hash),
        device=training.device,
        threads=run.threads,
        source=f"pipeline {run.pipeline}",
        where=view.reader.store.where,
    )
