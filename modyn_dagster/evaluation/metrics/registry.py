"""Metrics on stored outputs: a number, or the reason why there is none.

They work on raw outputs in float64 and are written out in numpy: torchmetrics' own take float32 sums and 0.2 ms a call,
which a matrix of models and intervals pays a hundred thousand times. Tests hold them to scikit-learn and torchmetrics.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Final

import numpy as np

from modyn_dagster.code_digest import code_digest
from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.evaluation.metrics import classification, ranking, regression
from modyn_dagster.evaluation.metrics.evaluation_samples import CellFailed, EvaluationSamples, Outputs, Truth
from modyn_dagster.evaluation.metrics.torch_metrics import is_torchmetric, kind_of, torchmetric
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.training import TaskKind

#: ``(judged samples, slice of at least one of them)``, all finite, to a value or the reason there is none.
Metric = Callable[[EvaluationSamples, slice], float | str]

_PARAMETERS: Final = re.compile(r"(?P<base>[a-z0-9_]+?)(?:_top(?P<k>\d+))?(?:_class_(?P<positive>\d+))?")


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a metric.

    Attributes:
        value: None where it is undefined; never NaN or infinite.
        n: samples (or intervals) it was computed from.
        undefined: why there is no value; None where there is one.
        n_unlabelled: samples left out because they have no label.
        failed: something is wrong (a metric that raises, a label outside the classes), not only too little to judge by.
    """

    value: float | None
    n: int
    undefined: str | None = None
    n_unlabelled: int = 0
    failed: bool = False

    @property
    def reason(self) -> str | None:
        """Why there is no value, beginning with ``failed:`` where something is wrong."""
        return f"failed: {self.undefined}" if self.failed else self.undefined


@dataclass(frozen=True, slots=True)
class MetricEntry:
    """A metric, and what it judges; None: whatever there is."""

    kind: TaskKind | None
    compute: Metric


METRICS: Final[Mapping[str, MetricEntry]] = {
    "accuracy": MetricEntry("class", classification.accuracy),
    "roc_auc": MetricEntry("class", ranking.roc_auc),
    "pr_auc": MetricEntry("class", ranking.pr_auc),
    "f1": MetricEntry("class", classification.f1),
    "f1_macro": MetricEntry("class", partial(classification.f1, average="macro")),
    "f1_micro": MetricEntry("class", partial(classification.f1, average="micro")),
    "f1_weighted": MetricEntry("class", partial(classification.f1, average="weighted")),
    "log_loss": MetricEntry("class", classification.log_loss),
    "brier": MetricEntry("class", classification.brier),
    "calibration_error": MetricEntry("class", classification.calibration_error),
    "mae": MetricEntry("target", regression.mae),
    "mse": MetricEntry("target", regression.mse),
    "r2": MetricEntry("target", regression.r2),
}


def find_metric(name: str) -> MetricEntry:
    """A metric by its name (``accuracy_top5``, ``f1_class_3``) or import path.

    Raises ``ConfigError`` for a name there is not, ``ImportPathError`` for a path that cannot be imported or called.
    """
    if ":" in name:
        function = import_callable(name, source="evaluation", field="metrics")
        of_torch = is_torchmetric(name)
        return MetricEntry(kind_of(name), torchmetric(name, function)) if of_torch else MetricEntry(None, _imported(function))
    if name in METRICS:
        return METRICS[name]
    match = _PARAMETERS.fullmatch(name)
    entry = METRICS.get(match["base"]) if match else None
    if match is None or entry is None:
        raise ConfigError("evaluation", "metrics", name, f"must be one of {', '.join(METRICS)}, or an import path")
    given = {key: int(value) for key, value in match.groupdict().items() if key != "base" and value is not None}
    return MetricEntry(entry.kind, partial(entry.compute, **given))


def metric_code(name: str) -> str:
    """A digest of the code of a metric of one's own, the version of torchmetrics for one of its; empty for those of ``METRICS``.

    Raises ``ImportPathError`` for a path that cannot be imported or called; torchmetrics is not imported.
    """
    if is_torchmetric(name):
        return version("torchmetrics")
    return code_digest(import_callable(name, source="evaluation", field="metrics")) if ":" in name else ""


def score(metric: str, outputs: Outputs, truth: Truth, *, min_samples: int = 1) -> Score:
    """Judge outputs ``float32[n, k]`` by the truth: classes (below 0: unlabelled) or targets."""
    judged, n_unlabelled = labelled_samples(outputs, truth)
    return score_slice(find_metric(metric), judged, slice(0, len(judged)), n_unlabelled, min_samples=min_samples)


def labelled_samples(outputs: Outputs, truth: Truth) -> tuple[EvaluationSamples, int]:
    """The samples that have a label, and how many have none."""
    labelled = is_labelled(truth)
    n_unlabelled = int(len(truth) - labelled.sum())
    return (
        EvaluationSamples(outputs[labelled], truth[labelled]) if n_unlabelled else EvaluationSamples(outputs, truth)
    ), n_unlabelled


def is_labelled(truth: Truth) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which samples have a label, ``bool[n]``: classes from 0 on, and every target: one that is NaN is a fault, not a gap."""
    return np.ones(len(truth), dtype=np.bool_) if truth.dtype.kind == "f" else np.asarray(truth >= 0)


def score_slice(entry: MetricEntry, judged: EvaluationSamples, part: slice, n_unlabelled: int, *, min_samples: int) -> Score:
    """Judge one slice of rows; whatever a metric raises is the reason why this cell has no value."""
    n = part.stop - part.start
    try:
        found = _too_little(judged, part, min_samples) or _value(entry, judged, part)
    except CellFailed as failure:
        return Score(None, n, str(failure), n_unlabelled, failed=True)
    if isinstance(found, str):
        return Score(None, n, found, n_unlabelled)
    return Score(found, n, None, n_unlabelled)


def check_metrics(metrics: Sequence[str], kind: TaskKind, *, source: str) -> None:
    """``ConfigError`` for a metric of another task than the dataset's label, or one that cannot be imported."""
    for metric in metrics:
        try:
            entry = find_metric(metric)
        except ImportPathError as error:
            raise ImportPathError(source, "evaluation.metrics", metric, error.rule) from error
        if entry.kind not in (None, kind):
            allowed = ", ".join(name for name, other in METRICS.items() if other.kind == kind)
            raise ConfigError(source, "evaluation.metrics", metric, f"the dataset's label is a {kind}: use {allowed}")


def _too_little(judged: EvaluationSamples, part: slice, min_samples: int) -> str:
    n = part.stop - part.start
    if n == 0:
        return "no labelled samples"
    if n < min_samples:
        return f"{n} labelled samples, at least {min_samples} are needed"
    broken = int(judged.broken[part.stop] - judged.broken[part.start])
    return f"the model's outputs are not finite for {broken} of {n} samples" if broken else ""


def _value(entry: MetricEntry, judged: EvaluationSamples, part: slice) -> float | str:
    if judged.truth.dtype.kind == "f" and not np.isfinite(judged.truth[part]).all():
        raise CellFailed("a target is NaN" if np.isnan(judged.truth[part]).any() else "a target is infinite")
    with np.errstate(over="ignore"):
        found = entry.compute(judged, part)
    return found if isinstance(found, str) or np.isfinite(found) else "its value is beyond the range of numbers"


def _imported(function: Callable[..., float]) -> Metric:
    def compute(judged: EvaluationSamples, part: slice) -> float | str:
        try:
            return float(function(judged.outputs[part], judged.truth[part]))
        except Exception as error:
            raise CellFailed(f"{type(error).__name__}: {error}") from error

    return compute
