"""Plans of cells: subsets of the samples, and the address of every cell that is to have a result."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.evaluation.cells import cell_address, data_versions
from modyn_dagster.evaluation.intervals.generation import Interval
from modyn_dagster.evaluation.metrics.registry import metric_code
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinals_of, positions_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.stages.evaluation.cells.estimates import Calibration, without_truth
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.spec.tasks.metrics import estimated_metric

Intervals = Sequence[Interval[np.datetime64]]
#: Subset of all samples.
ALL: Final = ""
#: Beginning of the names of slices by label.
_BY_LABEL: Final = "label="


@dataclass(frozen=True, slots=True)
class CellPlan:
    """A cell that is to have a result: subset, number of the interval, metric, and the counts of its samples."""

    subset: str
    interval: int
    metric: str
    address: str
    n_samples: int
    n_deleted: int


def subsets_of(context: TriggerContext, data: EvaluationSet, predictions: Predictions) -> Mapping[str, Predictions]:
    """Split predictions into the slices of the spec, by ``name=value``, beside all of them; skip samples without a value."""
    subsets = {ALL: predictions}
    for name in context.spec.evaluation.slices:
        values = slice_values(context, data, predictions, name)
        present = np.flatnonzero(values != None)  # noqa: E711 - of every element
        texts, groups = np.unique(values[present].astype(str), return_inverse=True)
        for number, text in enumerate(texts.tolist()):
            subsets[f"{name}={text}"] = predictions.take(present[groups == number])
    return subsets


def slice_values(context: TriggerContext, data: EvaluationSet, predictions: Predictions, name: str) -> npt.NDArray[np.object_]:
    """Return the values of a slice for some predictions, ``object[n]``; None for a sample without one."""
    return _labels(context, predictions) if name == "label" else _attribute(data, name, predictions)


def _labels(context: TriggerContext, predictions: Predictions) -> npt.NDArray[np.object_]:
    """Return the names of the samples' classes, or their numbers where they have no names."""
    # Classes that a label transform makes have no names.
    plain = context.spec.training.label_transform is None
    names = np.array([*context.view.row.class_names] if plain else [], dtype=object)
    truth = predictions.truth.astype(np.int64)
    values = np.array([str(label) for label in truth.tolist()], dtype=object)
    named = (truth >= 0) & (truth < len(names))
    values[named] = names[truth[named]]
    values[truth < 0] = None
    return values


def _attribute(data: EvaluationSet, name: str, predictions: Predictions) -> npt.NDArray[np.object_]:
    values = np.full(len(predictions), None, dtype=object)
    ordinals = ordinals_of(predictions.keys)
    for batch in data.view.batches_at(np.unique(ordinals).tolist()):
        rows = np.flatnonzero(ordinals == batch.ordinal)
        values[rows] = data.view.attribute(name, batch)[positions_of(predictions.keys[rows])]
    return values


def count_in(data: EvaluationSet, intervals: Intervals, *, deleted: bool) -> list[int]:
    """Count the deleted samples of each interval, or the present ones."""
    return count_times(data.times(deleted=deleted), intervals)


def cell_plans(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    subsets: Mapping[str, Predictions],
    intervals: Intervals,
    contents: Mapping[int, str | None],
    calibration: Calibration | None,
    *,
    waits: bool = False,
) -> list[CellPlan]:
    """Plan the cells of a model: every metric on every interval of all samples, and of slices where they have samples.

    Args:
        context: of the model's trigger.
        model: whose predictions are scored.
        data: the evaluation samples.
        subsets: predictions by subset.
        intervals: closed ones.
        contents: digest of each batch, by ordinal.
        calibration: of the model; None where nothing is estimated.
        waits: the scores wait for older samples, so that their addresses must not be those of scores with the same labels.
    """
    spec = context.spec.evaluation
    # Bits of predictions depend not only on weights, but also on how samples are read and on the number of threads.
    name = predictor_id(model.hash, context.spec.training)
    predictor = json.dumps([name, context.run.spec["training"], context.run.threads], sort_keys=True)
    settings: list[float] = [spec.min_samples, spec.confidence.level, spec.confidence.resamples]
    covered: list[object] = [*settings, *([spec.min_coverage] if spec.min_coverage else []), *(["waits"] if waits else [])]
    codes = {metric: metric_code(metric) for metric in spec.metrics}
    deleted = count_in(data, intervals, deleted=True)
    plans = []

    def add(subset: str, predictions: Predictions, metrics: Sequence[str], settings: Sequence[object]) -> None:
        versions = data_versions(predictions, intervals, data.view.row.name, contents)
        counts = count_times(predictions.times, intervals)
        for i, (version, n_samples, n_deleted) in enumerate(zip(versions, counts, deleted, strict=True)):
            if subset == ALL or n_samples:
                for metric in metrics:
                    address = cell_address(predictor, intervals[i], metric, version, settings, code=codes[metric])
                    plans.append(CellPlan(subset, i, metric, address, n_samples, n_deleted))

    for subset, predictions in subsets.items():
        add(subset, predictions, [metric for metric in spec.metrics if estimated_metric(metric) is None], covered)
        # Slices by label are made of labels, which an estimate must not see.
        if calibration is not None and not subset.startswith(_BY_LABEL):
            add(subset, without_truth(predictions), estimated_metrics(context), [*settings, calibration.version])
    return plans


def estimated_metrics(context: TriggerContext) -> list[str]:
    """Metrics of the spec that are estimated without labels."""
    return [metric for metric in context.spec.evaluation.metrics if estimated_metric(metric) is not None]


def wanted_estimates(plans: Sequence[CellPlan]) -> dict[tuple[str, int], dict[str, str]]:
    """Metrics to estimate, with the addresses of their cells, by subset and interval."""
    wanted: dict[tuple[str, int], dict[str, str]] = {}
    for plan in plans:
        if metric := estimated_metric(plan.metric):
            wanted.setdefault((plan.subset, plan.interval), {})[metric] = plan.address
    return wanted


def count_times(times: npt.NDArray[np.datetime64], intervals: Intervals) -> list[int]:
    """Count the times in each interval."""
    times = np.sort(times)
    starts, ends = (np.array([getattr(i, side) for i in intervals], dtype="datetime64[us]") for side in ("start", "end"))
    return [int(n) for n in np.searchsorted(times, ends) - np.searchsorted(times, starts)]
