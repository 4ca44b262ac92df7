"""Whether a pipeline can run at all: found out before a run starts, naming pipeline and field."""

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics import check_metrics
from modyn_dagster.pipeline.ready_trigger import check_trigger
from modyn_dagster.selection.check import check_selection
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.transforms import kind_after
from modyn_dagster.training.check import check_task, check_user_code


def require_runnable(pipeline: PipelineSpec, dataset: DatasetSpec) -> None:
    """Import the user code of a pipeline, build its samplers, and hold what it watches and judges by against the dataset.

    Raises:
        ImportPathError: user code fails to import or cannot be called.
        ConfigError: the dataset has no label, or one that loss, metrics or trigger are not for.
    """
    source = f"pipeline {pipeline.name}"
    if dataset.label is None:
        raise ConfigError(source, "dataset", dataset.name, "has no label; training needs one")
    check_selection(pipeline.selection, dataset.label.kind, source=source)
    check_user_code(pipeline.training, source=source)
    check_task(pipeline.training, dataset.label.kind, source=source)
    if pipeline.training.early_stopping is not None and dataset.split.calibrate == 0:
        rule = "watches samples that are not trained on: the dataset's `split` needs a share `calibrate`"
        raise ConfigError(source, "training.early_stopping", "(on)", rule)
    kind = kind_after(pipeline.training.label_transform, dataset.label.kind)
    check_metrics(pipeline.evaluation.metrics, kind, source=source)
    check_trigger(pipeline, dataset, kind)
