"""Settings of a pipeline that read one label per sample, and do not go with a truth of several columns or with groups."""

from collections.abc import Iterator

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.torch_metrics import is_torchmetric
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import OtherDataset
from modyn_dagster.spec.online import CLIBSpec, GSSSpec, MIRSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.tasks.metrics import estimated_metric
from modyn_dagster.spec.tasks.task import MultiLabelTask, RankingTask, SeveralColumns
from modyn_dagster.spec.triggers.measured import CostTriggerSpec, DetectorTriggerSpec
from modyn_dagster.spec.triggers.trigger import nested_blocks
from modyn_dagster.training.refusals.several_columns import in_words


def several_errors(pipeline: PipelineSpec, dataset: DatasetSpec, task: SeveralColumns | RankingTask) -> Iterator[ConfigError]:
    """Errors of fields that do not go with a truth of several columns, or with groups, by pipeline and field.

    The dataset's label stays what selection, statistics and triggers by amount or time know.
    """
    source, why = f"pipeline {pipeline.name}", in_words(task)
    yield from _label_errors(dataset, task, source)
    if pipeline.label_delay is not None:
        rule = f"delays one label, and {why}: remove it"
        yield ConfigError(source, "label_delay", pipeline.label_delay.words(), rule)
    if pipeline.promotion is not None:
        rule = f"tests losses of one label per sample, and {why}: remove it"
        yield ConfigError(source, "promotion", "(on)", rule)
    if isinstance(pipeline.evaluation.data, OtherDataset):
        rule = f"takes one label of another dataset, and {why}: evaluate on this one"
        yield ConfigError(source, "evaluation.data.kind", "dataset", rule)
    if "label" in pipeline.evaluation.slices:
        rule = f"are of one label, and {why}: slice by an attribute"
        yield ConfigError(source, "evaluation.slices", "label", rule)
    for metric in pipeline.evaluation.metrics:
        if is_torchmetric(metric):
            rule = f"is given one target per sample, and {why}: use a function of your own, of [n, columns]"
            yield ConfigError(source, "evaluation.metrics", metric, rule)
        if estimated_metric(metric) is not None:
            yield ConfigError(source, "evaluation.metrics", metric, "estimates are of one class per sample: remove it")
    for field, block in nested_blocks(pipeline.trigger):
        if isinstance(block, DetectorTriggerSpec):
            rule = f"reads one error per sample, and {why}: use a performance or a drift trigger"
            yield ConfigError(source, f"{field}.detector.name", block.detector.name, rule)
        if isinstance(block, CostTriggerSpec) and block.signal == "misclassifications":
            rule = f"counts one class per sample, and {why}: use latency"
            yield ConfigError(source, f"{field}.signal", block.signal, rule)
    for field, strategy in pipeline.selection.by_field.items():
        if isinstance(strategy, GSSSpec | MIRSpec | CLIBSpec):
            rule = f"compares losses or gradients of one label, and {why}: use another strategy"
            yield ConfigError(source, f"{field}.kind", strategy.kind, rule)


def _label_errors(dataset: DatasetSpec, task: SeveralColumns | RankingTask, source: str) -> Iterator[ConfigError]:
    label = dataset.label
    if label is None:
        return
    field, columns = ("group", task.group) if isinstance(task, RankingTask) else ("columns", task.columns)
    if label.arrives == "later":
        needs = "a group" if isinstance(task, RankingTask) else "several columns at once"
        rule = f"labels of dataset {dataset.name} arrive later, one per sample, and the task needs {needs}"
        yield ConfigError(source, f"training.task.{field}", columns, rule)
    elif label.from_.source != "column":
        rule = f"must be {'a column' if field == 'group' else 'columns'} of dataset {dataset.name}, whose label comes from "
        yield ConfigError(source, f"training.task.{field}", columns, rule + label.from_.source)
    elif isinstance(task, RankingTask):
        if label.from_.column == task.group:
            rule = f"is the label of dataset {dataset.name}, which is the relevance: name the column of the lists"
            yield ConfigError(source, "training.task.group", task.group, rule)
    elif label.from_.column != task.columns[0]:
        rule = f"must begin with {label.from_.column}, the label of dataset {dataset.name}"
        yield ConfigError(source, "training.task.columns", task.columns, rule)
    if isinstance(task, MultiLabelTask) and label.n_classes != len((0, 1)):
        rule = f"needs labels 0 and 1: give the label of dataset {dataset.name} `n_classes: 2`"
        yield ConfigError(source, "training.task.kind", "multi_label", rule)
