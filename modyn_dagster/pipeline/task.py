"""What the models of a dataset learn: its classes or its target, as known up to a batch."""

from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.view import DatasetView
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.spec.transforms import kind_after
from modyn_dagster.training import Task
from modyn_dagster.training.transforms.labels import numbered


def task_of(view: DatasetView, source: str) -> Task:
    """The task of a training on this view; ``source`` names the pipeline in the error when there are no labels."""
    label = view.spec.label
    if label is None:
        raise ConfigError(source, "dataset", view.spec.name, "has no label; training needs one")
    if label.kind == "target":
        return Task("target", exclude=not_features(view.spec))
    return Task("class", n_classes=n_classes(view), exclude=not_features(view.spec))


def by_number(training: TrainingSpec, view: DatasetView, source: str) -> TrainingSpec:
    """The spec with the classes of a label transform by their numbers; ``ConfigError`` for one that the dataset cannot have."""
    label = view.spec.label
    pinned = label is not None and label.classes is not None
    return numbered(training, view.row.class_names, pinned=pinned, source=source)


def learnt_kind(training: TrainingSpec, dataset: DatasetSpec) -> TaskKind:
    """What models learn of a dataset: classes, or a target."""
    return kind_after(training.label_transform, "class" if dataset.label is None else dataset.label.kind)


def n_classes(view: DatasetView) -> int:
    """Number of classes: as the spec says, else as many as the batches of the view have shown, and at least two.

    It depends on the batches up to the trigger alone, so that a replay, which knows later classes, builds the same model.
    """
    label = view.spec.label
    if label is not None and label.classes is not None:
        return max(2, len(label.classes))
    if label is not None and label.n_classes is not None:
        return max(2, label.n_classes)
    index_of = {name: index for index, name in enumerate(view.row.class_names)}
    seen = (name for batch in view.batches for name in batch.label_counts or {})
    return max(2, 1 + max((index_of[name] if index_of else int(name) for name in seen), default=0))


def not_features(spec: DatasetSpec) -> frozenset[str]:
    """Columns that ``features: numeric`` leaves out: time, label and attributes."""
    columns = set(spec.attributes)
    if spec.time.source == "column":
        columns.add(spec.time.column)
    if spec.label is not None and spec.label.from_.source == "column":
        columns.add(spec.label.from_.column)
    return frozenset(columns)
