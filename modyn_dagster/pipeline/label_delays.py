"""Labels that a pipeline may see later than its samples: they arrive later, or a delay of them is simulated."""

from modyn_dagster.data.delays.draws import class_number
from modyn_dagster.data.label_files import arrive_later
from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import EvaluateSplit
from modyn_dagster.spec.learning.label_delay import ColumnDelay, DistributionDelay
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.sources import LabelSpec
from modyn_dagster.spec.triggers.trigger import counting_labels


def labels_lag(pipeline: PipelineSpec, dataset: DatasetSpec) -> bool:
    """True where a pipeline may see samples before their labels."""
    return arrive_later(dataset) or pipeline.label_delay is not None


def lag_in_words(pipeline: PipelineSpec) -> str:
    """Reason why a pipeline may see samples before their labels."""
    if pipeline.label_delay is not None:
        return "the pipeline sees its labels later (label_delay)"
    return "the dataset's labels arrive later (label.arrives)"


def check_late_labels(pipeline: PipelineSpec) -> None:
    """Refuse the parts of a pipeline that scores with labels as they arrive cannot have.

    Raises ``ConfigError`` by pipeline and field.
    """
    source, late = f"pipeline {pipeline.name}", lag_in_words(pipeline)
    evaluation = pipeline.evaluation
    if pipeline.training.label_transform is not None:
        rule = f"{late}, and stored predictions are scored with them as they are; let the label files have the final classes"
        raise ConfigError(source, "training.label_transform", "(on)", rule)
    if not isinstance(evaluation.data, EvaluateSplit):
        rule = f"{late}; evaluate on the split of the dataset (leave `data` out)"
        raise ConfigError(source, "evaluation.data", evaluation.data.model_dump(mode="json"), rule)
    if "label" in evaluation.slices:
        rule = f"{late}; as known and final such a slice has other samples, and a cell counts one set of them; use attributes"
        raise ConfigError(source, "evaluation.slices", evaluation.slices, rule)


def check_label_arrivals(pipeline: PipelineSpec, dataset: DatasetSpec) -> None:
    """Refuse windows and counts by the arrival of labels unless a pipeline may see samples before their labels.

    Raises ``ConfigError`` by pipeline and field.
    """
    if labels_lag(pipeline, dataset):
        return
    source = f"pipeline {pipeline.name}"
    why = (
        f"is the same where labels come with their samples, as in dataset {dataset.name} (label.arrives), unless the "
        "pipeline has a label_delay: leave it out"
    )
    if pipeline.selection.window_by == "label":
        raise ConfigError(source, "selection.window_by", "label", why)
    for field in counting_labels(pipeline.trigger):
        raise ConfigError(source, field, "labels", why)


def check_label_delay(pipeline: PipelineSpec, dataset: DatasetSpec) -> None:
    """Check the simulated delay of a pipeline against the label and the attributes of its dataset.

    Raises ``ConfigError`` by field: labels arrive later already, there is no such attribute, or no such class.
    """
    delay, label, source = pipeline.label_delay, dataset.label, f"pipeline {pipeline.name}"
    if delay is None or label is None:
        return
    if arrive_later(dataset):
        rule = (
            f"labels of dataset {dataset.name} arrive later as it is (label.arrives), and a delay is simulated on labels that "
            "come with their samples; remove it"
        )
        raise ConfigError(source, "label_delay", delay.words(), rule)
    if isinstance(delay, ColumnDelay) and delay.attribute not in dataset.attributes:
        rule = f"must be one of the attributes of dataset {dataset.name}: {', '.join(dataset.attributes) or 'it has none'}"
        raise ConfigError(source, "label_delay.attribute", delay.attribute, rule)
    for name in delay.by_class if isinstance(delay, DistributionDelay) else ():
        _check_class(label, name, source, dataset.name)


def _check_class(label: LabelSpec, name: str, source: str, dataset: str) -> None:
    field = f"label_delay.by_class.{name}"
    if label.kind == "target":
        raise ConfigError(source, field, name, f"the label of dataset {dataset} is a target, which has no classes; remove it")
    try:
        class_number(label, name)
    except ValueError:
        rule = f"must be a class of dataset {dataset}, which pins none: give its label `classes` or `n_classes`"
        if label.classes is not None:
            rule = f"must be one of the classes of dataset {dataset}: {', '.join(label.classes)}"
        elif label.n_classes is not None:
            rule = f"must be a class of dataset {dataset}, 0 to {label.n_classes - 1}"
        raise ConfigError(source, field, name, rule) from None
