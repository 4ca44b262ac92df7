"""Checks of a pipeline before its run starts: user code, samplers, labels, metrics and triggers, by pipeline and field."""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Final

from modyn_dagster.data.tasks import task_kind
from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.evaluation.composite.custom import check_composite_code
from modyn_dagster.evaluation.intervals.custom import check_interval_code
from modyn_dagster.evaluation.metrics.registry import check_metrics, find_metric, rule_of_task, task_in_words
from modyn_dagster.pipeline.label_delays import check_label_arrivals, check_label_delay, check_late_labels, labels_lag
from modyn_dagster.pipeline.tasks.refusals import asked_metrics, metric_errors, task_errors
from modyn_dagster.pipeline.tasks.unlabelled import label_refusals
from modyn_dagster.selection.online.samplers import check_selection
from modyn_dagster.selection.own.user_code import selection_code_errors
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.learning.models import LogisticRegressionSpec, MLPSpec
from modyn_dagster.spec.operation import ModelStoreSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import SimilarToUnlabelledSpec
from modyn_dagster.spec.tasks.metrics import estimated_metric
from modyn_dagster.spec.tasks.task import TaskName, task_name
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.spec.triggers.base import TriggerBase
from modyn_dagster.spec.triggers.decision import MisclassificationsRule
from modyn_dagster.spec.triggers.detector import CustomDetectorSpec
from modyn_dagster.spec.triggers.drift import BackendMetric
from modyn_dagster.spec.triggers.measured import CostTriggerSpec, DetectorTriggerSpec, DriftTriggerSpec, PerformanceTriggerSpec
from modyn_dagster.spec.triggers.trigger import nested_blocks
from modyn_dagster.training.data import check_ranks, check_task
from modyn_dagster.training.trainers.refusals import trainer_errors
from modyn_dagster.training.user_code import check_user_code
from modyn_dagster.triggering.user_code import user_code_errors

#: Module and package of other libraries with drift metrics.
_BACKENDS: Final = {"alibi": ("alibi_detect", "alibi-detect"), "evidently": ("evidently", "evidently")}
#: Detectors that read errors between 0 and 1.
_BINARY_DETECTORS: Final = frozenset({"ddm", "eddm", "hddm_a", "hddm_w"})


def check_trigger(pipeline: PipelineSpec, dataset: DatasetSpec, kind: TaskKind) -> None:
    """Check a trigger block, with all nested blocks, against the dataset's label (of ``kind``), its split and the model.

    Raises:
        ConfigError: a measurement is impossible on this dataset or model.
        MissingExtra: a required library is not installed.
    """
    source = f"pipeline {pipeline.name}"
    for field, block in nested_blocks(pipeline.trigger):
        if _calibrates(block):
            _require_classes(kind, source, field, block)
            _require_calibrate_share(dataset, pipeline.name, field)
        match block:
            case PerformanceTriggerSpec():
                _check_metric(block, task_name(pipeline.training.task, kind), source, field)
            case DetectorTriggerSpec():
                _check_detector(block, kind, source, field)
            case DriftTriggerSpec():
                _check_layer(block.features.layer, pipeline, source, f"{field}.features.layer")
                _check_backends(block, source, field)
            case CostTriggerSpec(signal="misclassifications"):
                _require_classes(kind, source, field, block)
            case _:
                pass


def _calibrates(block: TriggerBase) -> bool:
    match block:
        case CostTriggerSpec(signal="misclassifications", expected_accuracy="calibrate"):
            return True
        case (
            PerformanceTriggerSpec(label_free=True)
            | PerformanceTriggerSpec(decision=MisclassificationsRule(expected_accuracy="calibrate"))
        ):
            return True
        case _:
            return False


def _require_classes(kind: TaskKind, source: str, field: str, block: TriggerBase) -> None:
    if kind != "class":
        raise ConfigError(source, field, getattr(block, "kind", ""), f"{task_in_words(kind)}: accuracy is of classes")


def _require_calibrate_share(dataset: DatasetSpec, pipeline: str, field: str) -> None:
    if dataset.split.calibrate == 0:
        rule = f"must leave a `calibrate` share: {field} of pipeline {pipeline} measures there what accuracy to expect"
        raise ConfigError(f"dataset {dataset.name}", "split", dataset.split.model_dump(), rule)


def _check_metric(block: PerformanceTriggerSpec, task: TaskName, source: str, field: str) -> None:
    if not find_metric(block.metric).fits(task):
        raise ConfigError(source, f"{field}.metric", block.metric, rule_of_task(task))


def _check_detector(block: DetectorTriggerSpec, kind: TaskKind, source: str, field: str) -> None:
    if kind != "class" and (block.stream == "scores" or block.detector.name in _BINARY_DETECTORS):
        rule = f"{task_in_words(kind)}, which has neither 0/1 errors nor confidences; use another detector, on errors"
        raise ConfigError(source, f"{field}.detector.name", block.detector.name, rule)
    if not isinstance(block.detector, CustomDetectorSpec) and find_spec("river") is None:
        raise MissingExtra(source, f"{field}.detector.name", block.detector.name, package="river", extra="drift-river")


def _check_backends(block: DriftTriggerSpec, source: str, field: str) -> None:
    for name, metric in block.metrics.items():
        if isinstance(metric, BackendMetric):
            module, package = _BACKENDS[metric.backend]
            if find_spec(module) is None:
                place, extra = f"{field}.metrics.{name}.backend", f"drift-{metric.backend}"
                raise MissingExtra(source, place, metric.backend, package=package, extra=extra)


def _check_layer(layer: str | None, pipeline: PipelineSpec, source: str, field: str) -> None:
    model = pipeline.training.model
    if layer is None or not isinstance(model, LogisticRegressionSpec | MLPSpec):
        # Layers of other models are checked when they are measured.
        return
    # The layers of these models have numbers.
    n_layers = len(model.hidden) * (3 if model.dropout else 2) + 1 if isinstance(model, MLPSpec) else 0
    layers = [str(number) for number in range(n_layers)]
    if layer not in layers:
        rule = f"{model.name} has no such layer; known: {', '.join(layers) or 'none, leave `layer` out'}"
        raise ConfigError(source, field, layer, rule)


def check_similar_to_unlabelled(pipeline: PipelineSpec, dataset: DatasetSpec) -> None:
    """Check that some samples may be without a label, and that the model has the layer that embeddings come from.

    Raises ``ConfigError`` by pipeline and field.
    """
    source = f"pipeline {pipeline.name}"
    fields = ["strategy", *(f"schedule.{i}.strategy" for i in range(len(pipeline.selection.schedule)))]
    for field, strategy in zip(fields, pipeline.selection.strategies, strict=True):
        if not isinstance(strategy, SimilarToUnlabelledSpec):
            continue
        if not labels_lag(pipeline, dataset):
            rule = (
                f"compares with samples without a label, and all of dataset {dataset.name} have one (label.arrives); use uniform"
            )
            raise ConfigError(source, f"selection.{field}.kind", strategy.kind, rule)
        _check_layer(strategy.layer, pipeline, source, f"selection.{field}.layer")


def check_storage_code(block: ModelStoreSpec, *, source: str) -> None:
    """Call the factory of a user's choice of a storage strategy; does nothing without one.

    Raises:
        ImportPathError: the path cannot be imported, or its result cannot be called.
        ConfigError: the factory refused its config.
    """
    if block.factory is not None:
        from modyn_dagster.model_store.strategies.choosing import storage_choice

        storage_choice(block.factory, block.config, source=source)


def unlabelled_errors(pipeline: PipelineSpec, dataset: DatasetSpec) -> Iterator[ConfigError]:
    """Find all fields of a pipeline that need a label its dataset does not have; nothing where it has one."""
    if dataset.label is not None:
        return
    source = f"pipeline {pipeline.name}"
    yield from label_refusals(pipeline)
    try:
        check_task(pipeline.training, None, source=source)
        kind = task_kind(pipeline.training, dataset)
        for field, metric in asked_metrics(pipeline):
            if estimated_metric(metric) is None:
                check_metrics([metric], kind, source=source, field=field)
        check_trigger(pipeline, dataset, kind)
    except ConfigError as error:
        yield error


def check_pretrained(pipeline: PipelineSpec, dataset: DatasetSpec, folder: Path) -> None:
    """Compare a pretrained model with its files, in the project's folder, and with the names in its spec.

    Raises ``ConfigError``; does nothing for other models, so that these need no torch here.
    """
    if pipeline.training.is_pretrained:
        from modyn_dagster.training.pretrained.checks import require_fine_tunable

        require_fine_tunable(pipeline, dataset, folder)


def require_runnable(pipeline: PipelineSpec, dataset: DatasetSpec, folder: Path | None = None) -> None:
    """Import the user code of a pipeline, build its samplers, and check its metrics and triggers against the dataset.

    Files of pretrained models are looked for in ``folder``, that of the project; without it they are not checked.

    Raises:
        ImportPathError: user code fails to import or cannot be called.
        ConfigError: the dataset has no label, or one that does not fit the loss, a metric or the trigger.
    """
    source = f"pipeline {pipeline.name}"
    for error in unlabelled_errors(pipeline, dataset):
        raise error
    for error in (*selection_code_errors(pipeline.selection, source=source), *user_code_errors(pipeline.trigger, source=source)):
        raise error
    check_interval_code(pipeline.evaluation.intervals, source=source)
    check_composite_code(pipeline.evaluation.composite, source=source)
    check_storage_code(pipeline.model_store, source=source)
    given = None if dataset.label is None else dataset.label.kind
    check_selection(pipeline.selection, given or "none", source=source)
    check_label_delay(pipeline, dataset)
    check_similar_to_unlabelled(pipeline, dataset)
    check_label_arrivals(pipeline, dataset)
    if labels_lag(pipeline, dataset):
        check_late_labels(pipeline)
    check_user_code(pipeline.training, source=source)
    for error in trainer_errors(pipeline, dataset):
        raise error
    if folder is not None:
        check_pretrained(pipeline, dataset, folder)
    check_task(pipeline.training, given, source=source)
    check_ranks(pipeline.training, source=source)
    if pipeline.training.early_stopping is not None and dataset.split.calibrate == 0:
        rule = "watches samples that are not trained on: the dataset's `split` needs a share `calibrate`"
        raise ConfigError(source, "training.early_stopping", "(on)", rule)
    kind = task_kind(pipeline.training, dataset)
    for error in chain(task_errors(pipeline, dataset), metric_errors(pipeline, task_name(pipeline.training.task, kind))):
        raise error
    for metric in pipeline.evaluation.metrics:
        if estimated_metric(metric) is not None:
            _require_calibrate_share(dataset, pipeline.name, f"evaluation.metrics ({metric})")
    check_trigger(pipeline, dataset, kind)
