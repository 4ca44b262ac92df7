"""Refusals of what needs labels, in pipelines on a dataset without any."""

from collections.abc import Iterator
from typing import Final

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.online import CLIBSpec, GDumbSpec, GSSSpec, MIRSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import BalancedSpec, SimilarToUnlabelledSpec, Strategy
from modyn_dagster.spec.tasks.metrics import estimated_metric
from modyn_dagster.spec.tasks.objectives import TokenTagsSpec
from modyn_dagster.spec.triggers.measured import CostTriggerSpec, PerformanceTriggerSpec
from modyn_dagster.spec.triggers.trigger import counting_labels, nested_blocks

_NONE: Final = "and the dataset has no label"


def label_refusals(pipeline: PipelineSpec) -> Iterator[ConfigError]:
    """Find everything but training, metrics and measured triggers that reads a label, or spans that no tag names, by field."""
    source = f"pipeline {pipeline.name}"
    for field, value, rule in (
        *_of_selection(pipeline),
        *_of_triggers(pipeline),
        *_of_evaluation(pipeline),
        *_of_spans(pipeline),
    ):
        yield ConfigError(source, field, value, rule)
    if pipeline.label_delay is not None:
        yield ConfigError(source, "label_delay", pipeline.label_delay.words(), f"delays labels, {_NONE}; leave it out")
    if pipeline.promotion is not None and pipeline.promotion.min_coverage != 0:
        rule = f"waits for labels, {_NONE}; leave it out"
        yield ConfigError(source, "promotion.min_coverage", pipeline.promotion.min_coverage, rule)


#: Field, value and rule of a refusal.
Refusal = tuple[str, object, str]


def _of_selection(pipeline: PipelineSpec) -> Iterator[Refusal]:
    for field, strategy in pipeline.selection.by_field.items():
        if (why := _reads_labels(strategy)) is not None:
            yield f"{field}.kind", strategy.kind, f"{why}, {_NONE}"
    if pipeline.selection.window_by == "label":
        yield "selection.window_by", "label", f"cuts windows by the arrival of labels, {_NONE}; leave it out"


def _reads_labels(strategy: Strategy) -> str | None:
    match strategy:
        case BalancedSpec(by="label"):
            return "balances labels (use `by` with trigger or an attribute)"
        case GDumbSpec() | CLIBSpec():
            return "balances classes"
        case GSSSpec() | MIRSpec():
            return "compares gradients or losses at labels"
        case SimilarToUnlabelledSpec():
            return "compares samples with and without labels"
        case _:
            return None


def _of_triggers(pipeline: PipelineSpec) -> Iterator[Refusal]:
    for field in counting_labels(pipeline.trigger):
        yield field, "labels", f"counts labels, {_NONE}; leave it out"
    for field, block in nested_blocks(pipeline.trigger):
        if isinstance(block, CostTriggerSpec) and block.signal == "misclassifications":
            yield f"{field}.signal", block.signal, f"counts wrong classes, {_NONE}; use latency"
        if isinstance(block, PerformanceTriggerSpec):
            if block.label_free:
                yield f"{field}.label_free", True, f"estimates metrics of classes, {_NONE}; measure a metric that needs none"
            for option, unset in (("min_coverage", 0), ("maturity", None)):
                value = getattr(block, option)
                if value != unset:
                    yield f"{field}.{option}", value, f"waits for labels, {_NONE}; leave it out"


def _of_evaluation(pipeline: PipelineSpec) -> Iterator[Refusal]:
    evaluation = pipeline.evaluation
    for metric in evaluation.metrics:
        if estimated_metric(metric) is not None:
            yield "evaluation.metrics", metric, f"estimates a metric of classes, {_NONE}"
    if evaluation.maturity is not None:
        yield "evaluation.maturity", evaluation.maturity, f"waits for labels, {_NONE}; leave it out"


def _of_spans(pipeline: PipelineSpec) -> Iterator[Refusal]:
    loss = pipeline.training.loss
    if not isinstance(loss, TokenTagsSpec) or loss.name_spans:
        return
    blocks = [each for each in nested_blocks(pipeline.trigger) if isinstance(each[1], PerformanceTriggerSpec)]
    named = [("evaluation.metrics", metric) for metric in pipeline.evaluation.metrics]
    for field, metric in [*named, *((f"{field}.metric", getattr(block, "metric", "")) for field, block in blocks)]:
        if metric.startswith("span_"):
            rule = "counts spans, and training.loss.tags name none (`O`, `B-...` and `I-...`); use token_accuracy"
            yield field, metric, rule
