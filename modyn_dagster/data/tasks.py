"""Tasks of a dataset as of a batch: number of classes, kind of task, and columns that are not features."""

from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.learning.transforms import kind_after
from modyn_dagster.spec.tasks.objectives import kind_of_objective
from modyn_dagster.spec.tasks.task import TASKS, task_name
from modyn_dagster.spec.training import TaskKind, TrainingSpec


def task_kind(training: TrainingSpec, dataset: DatasetSpec) -> TaskKind:
    """Kind of what the models of a dataset are compared with: classes, numbers, or that of a loss without labels.

    ``ConfigError`` for a dataset without a label and a loss that needs one.
    """
    if dataset.label is not None:
        kind = kind_after(training.label_transform, dataset.label.kind)
        return TASKS[task_name(training.task, kind)].truth
    objective = kind_of_objective(training.loss)
    if objective is None:
        raise ConfigError(f"dataset {dataset.name}", "label", "none", "training.loss compares outputs with a label")
    return objective


def n_classes(view: DatasetView) -> int:
    """Number of classes by the spec, or else by the batches of the view; at least two.

    Only batches up to the trigger count, so that a replay, which knows later classes, builds the same model. Where labels arrive
    later, or are delayed, those that had arrived by then count, also where a correction has replaced one.
    """
    label = view.spec.label
    if label is not None and label.classes is not None:
        return max(2, len(label.classes))
    if label is not None and label.n_classes is not None:
        return max(2, label.n_classes)
    if view.label_position is not None:
        return max(2, 1 + view.largest_class())
    index_of = {name: index for index, name in enumerate(view.row.class_names)}
    names = (name for batch in view.batches for name in batch.label_counts or {})
    return max(2, 1 + max((index_of[name] if index_of else int(name) for name in names), default=0))


def non_feature_columns(spec: DatasetSpec) -> frozenset[str]:
    """Columns with a role: id, time, label and attributes. ``features: numeric`` leaves them out."""
    columns = {*spec.attributes, *spec.id_columns}
    if spec.time.source == "column":
        columns.add(spec.time.column)
    if spec.label is not None and spec.label.from_.source == "column":
        columns.add(spec.label.from_.column)
    return frozenset(columns)
