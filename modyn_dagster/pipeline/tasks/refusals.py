"""Settings of a pipeline that do not go with its task, found before anything runs."""

from collections.abc import Iterator
from typing import Final

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.evaluation.metrics.registry import check_metrics, find_metric, rule_of_task
from modyn_dagster.pipeline.tasks.several_columns import several_errors
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.learning.downsampling import PolicySpec
from modyn_dagster.spec.learning.transforms import GroupedLabels, LabelTransform, OwnLabels, kind_after
from modyn_dagster.spec.online import GSSSpec, MIRSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.sources import LabelSpec
from modyn_dagster.spec.tasks.task import (
    TASKS,
    OrdinalTask,
    QuantilesTask,
    RankingTask,
    SeveralColumns,
    TaskName,
    task_name,
    truth_width,
)
from modyn_dagster.spec.triggers.measured import PerformanceTriggerSpec
from modyn_dagster.spec.triggers.trigger import nested_blocks

#: Fewer classes have no order to speak of.
_FEWEST_RANKS: Final = 3
#: Metrics of the interval from the lowest quantile to the highest.
_OF_INTERVALS: Final = ("coverage", "interval_width")


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
    if isinstance(task, QuantilesTask):
        yield from _quantile_errors(pipeline, task, source)
    if isinstance(task, SeveralColumns | RankingTask):
        yield from several_errors(pipeline, dataset, task)
    yield from metric_errors(pipeline, kind)
    for field, block in nested_blocks(pipeline.trigger):
        if isinstance(block, PerformanceTriggerSpec) and not find_metric(block.metric).fits(kind):
            yield ConfigError(source, f"{field}.metric", block.metric, rule_of_task(kind))
    yield from _downsampling_errors(pipeline, kind, source)


def metric_errors(pipeline: PipelineSpec, task: TaskName) -> Iterator[ConfigError]:
    """Errors of metrics of evaluation and promotion that do not fit a task, or cannot be imported."""
    n_targets = max(1, truth_width(pipeline.training.task))
    for field, metric in asked_metrics(pipeline):
        _, of_target, target = metric.partition("_output_")
        if of_target and ":" not in metric and int(target) >= n_targets:
            rule = f"is of target {target}, and they are 0 to {n_targets - 1}"
            yield ConfigError(f"pipeline {pipeline.name}", field, metric, rule)
        try:
            check_metrics([metric], task, source=f"pipeline {pipeline.name}", field=field)
        except (ConfigError, ImportPathError) as error:
            yield error


def asked_metrics(pipeline: PipelineSpec) -> Iterator[tuple[str, str]]:
    """Metrics of evaluation and promotion with their fields."""
    yield from (("evaluation.metrics", metric) for metric in pipeline.evaluation.metrics)
    promotion = pipeline.promotion
    if promotion is not None:
        rules = [promotion.metric, *(rule.metric for rule in promotion.guardrails.metrics)]
        rules += [] if promotion.rollback is None else [promotion.rollback.metric]
        yield from (("promotion", metric) for metric in rules if metric is not None)


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


def _quantile_errors(pipeline: PipelineSpec, task: QuantilesTask, source: str) -> Iterator[ConfigError]:
    performance = [each for each in nested_blocks(pipeline.trigger) if isinstance(each[1], PerformanceTriggerSpec)]
    named = [*asked_metrics(pipeline), *((f"{field}.metric", getattr(block, "metric", "")) for field, block in performance)]
    for field, metric in named:
        if metric.startswith("pinball_") and metric != task.pinball:
            yield ConfigError(source, field, metric, f"must name the quantiles of the task: {task.pinball}")
        if metric in _OF_INTERVALS and len(task.quantiles) == 1:
            yield ConfigError(source, field, metric, "is of an interval, and one quantile is none: give two or more")
    deciding = [("evaluation.score", pipeline.evaluation.score_metric)]
    if pipeline.promotion is not None and pipeline.promotion.metric is not None:
        deciding.append(("promotion.metric", pipeline.promotion.metric))
    for field, metric in deciding:
        if metric in _OF_INTERVALS:
            rule = f"says nothing of how good a model is by itself, as wide intervals cover more: use {task.pinball}"
            yield ConfigError(source, field, metric, rule)
    for field, strategy in pipeline.selection.by_field.items():
        if isinstance(strategy, GSSSpec | MIRSpec):
            rule = "compares gradients of the squared error, and quantiles have another loss: use uniform or sliding_window"
            yield ConfigError(source, f"{field}.kind", strategy.kind, rule)


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
