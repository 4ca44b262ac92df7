"""Settings of a pipeline that do not go with its task, found before anything runs."""

from collections.abc import Iterator
from typing import Final, get_args

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.evaluation.metrics.registry import check_metrics, find_metric, rule_of_task
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import MetricName
from modyn_dagster.spec.learning.downsampling import PolicySpec
from modyn_dagster.spec.learning.tasks import TASKS, OrdinalTask, TaskName, task_name
from modyn_dagster.spec.learning.transforms import GroupedLabels, LabelTransform, OwnLabels, kind_after
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.sources import LabelSpec
from modyn_dagster.spec.triggers.measured import PerformanceTriggerSpec
from modyn_dagster.spec.triggers.trigger import nested_blocks

#: Fewer classes have no order to speak of.
_FEWEST_RANKS: Final = 3


def task_of(pipeline: PipelineSpec, dataset: DatasetSpec) -> TaskName | None:
    """Task of the models of a pipeline; None where the dataset has no label."""
    if dataset.label is None:
        return None
    return task_name(pipeline.training.task, kind_after(pipeline.training.label_transform, dataset.label.kind))


def task_errors(pipeline: PipelineSpec, dataset: DatasetSpec) -> Iterator[ConfigError]:
    """Errors of labels, metrics, triggers and downsampling that do not go with the task; none without a task of its own.

    A task for the other kind of label is left to ``check_task``.
    """
    task, kind = pipeline.training.task, task_of(pipeline, dataset)
    if task is None or kind is None or dataset.label is None:
        return
    if TASKS[kind].label != kind_after(pipeline.training.label_transform, dataset.label.kind):
        return
    source = f"pipeline {pipeline.name}"
    if isinstance(task, OrdinalTask):
        yield from _order_errors(dataset.label, pipeline.training.label_transform, source)
    yield from metric_errors(pipeline, kind)
    for field, block in nested_blocks(pipeline.trigger):
        if isinstance(block, PerformanceTriggerSpec) and not find_metric(block.metric).fits(kind):
            yield ConfigError(source, f"{field}.metric", block.metric, rule_of_task(kind, get_args(MetricName)))
    yield from _downsampling_errors(pipeline, kind, source)


def metric_errors(pipeline: PipelineSpec, task: TaskName) -> Iterator[ConfigError]:
    """Errors of metrics of evaluation and promotion that do not fit a task, or cannot be imported."""
    promotion = pipeline.promotion
    asked = [("evaluation.metrics", metric) for metric in pipeline.evaluation.metrics]
    if promotion is not None:
        rules = [promotion.metric, *(rule.metric for rule in promotion.guardrails.metrics)]
        rules += [] if promotion.rollback is None else [promotion.rollback.metric]
        asked += [("promotion", metric) for metric in rules if metric is not None]
    for field, metric in asked:
        try:
            check_metrics([metric], task, source=f"pipeline {pipeline.name}", field=field)
        except (ConfigError, ImportPathError) as error:
            yield error


def _order_errors(label: LabelSpec, transform: LabelTransform | None, source: str) -> Iterator[ConfigError]:
    if isinstance(transform, GroupedLabels):
        n_ranks = len(transform.groups)
    elif isinstance(transform, OwnLabels):
        n_ranks = transform.n_classes or 0
    elif transform is not None:
        n_ranks = 2
    elif label.classes is None and label.n_classes is None:
        rule = "needs the order of the classes: give the dataset's label `classes`, the lowest first, or `n_classes`"
        yield ConfigError(source, "training.task.kind", "ordinal", rule)
        return
    else:
        n_ranks = len(label.classes or ()) or label.n_classes or 0
    if n_ranks < _FEWEST_RANKS:
        rule = f"needs {_FEWEST_RANKS} classes or more, and there are {n_ranks}: leave `task` out"
        yield ConfigError(source, "training.task.kind", "ordinal", rule)


def _downsampling_errors(pipeline: PipelineSpec, task: TaskName, source: str) -> Iterator[ConfigError]:
    for field, policy in _policies(pipeline):
        reason = TASKS[task].refused_downsampling.get(policy.policy) if isinstance(policy.policy, str) else None
        if reason is not None:
            yield ConfigError(source, f"{field}.policy", str(policy.policy), f"{reason}; the task is {task}")


def _policies(pipeline: PipelineSpec) -> Iterator[tuple[str, PolicySpec]]:
    block, field = pipeline.training.downsampling, "training.downsampling"
    if block is None:
        return
    yield field, block
    for i, policy in enumerate(block.schedule):
        yield f"{field}.schedule.{i}", policy
