"""Metrics on stored outputs: a number, or the reason why there is none.

They work on raw outputs in float64 and are written out in numpy: torchmetrics' own take float32 sums and 0.2 ms a call,
which a matrix of models and intervals pays a hundred thousand times. Tests hold them to scikit-learn and torchmetrics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.losses import cross_entropy
from modyn_dagster.spec.evaluation import MetricName
from modyn_dagster.spec.training import TaskKind

Outputs = npt.NDArray[np.float32]
#: Classes ``int64[n]`` or targets ``float64[n]``.
Truth = npt.NDArray[Any]

#: ``(outputs [n, k], truth [n])`` with n >= 1, all labelled and finite, to a value or the reason there is none.
Metric = Callable[[Outputs, Truth], float | str]


@dataclass(frozen=True, slots=True)
class Score:
    """The result of a metric.

    Attributes:
        value: None where it is undefined; never NaN or infinite.
        n: samples (or intervals) it was computed from.
        undefined: why there is no value; None where there is one.
        n_unlabelled: samples left out because they have no label.
    """

    value: float | None
    n: int
    undefined: str | None = None
    n_unlabelled: int = 0


def score(metric: MetricName, outputs: Outputs, truth: Truth, *, min_samples: int = 1) -> Score:
    """Judge outputs ``float32[n, k]`` by the truth: classes (below 0: unlabelled) or targets (NaN: unlabelled)."""
    labelled = truth >= 0 if METRICS[metric].kind == "class" else np.isfinite(truth)
    n, n_unlabelled = int(labelled.sum()), int(len(truth) - labelled.sum())
    if n_unlabelled:
        outputs, truth = outputs[labelled], truth[labelled]
    found = _value(metric, outputs, truth, min_samples)
    if isinstance(found, str):
        return Score(None, n, found, n_unlabelled)
    return Score(found, n, None, n_unlabelled)


def check_metrics(metrics: Sequence[MetricName], kind: TaskKind, *, source: str) -> None:
    """``ConfigError`` for a metric of another task than the dataset's label."""
    for metric in metrics:
        if METRICS[metric].kind != kind:
            allowed = ", ".join(name for name, entry in METRICS.items() if entry.kind == kind)
            raise ConfigError(source, "evaluation.metrics", metric, f"the dataset's label is a {kind}: use {allowed}")


def _value(metric: MetricName, outputs: Outputs, truth: Truth, min_samples: int) -> float | str:
    if len(truth) == 0:
        return "no labelled samples"
    if len(truth) < min_samples:
        return f"{len(truth)} labelled samples, at least {min_samples} are needed"
    broken = int((~np.isfinite(outputs)).any(axis=1).sum())
    if broken:
        return f"the model's outputs are not finite for {broken} of {len(truth)} samples"
    with np.errstate(over="ignore"):
        found = METRICS[metric].compute(outputs, truth)
    return found if isinstance(found, str) or np.isfinite(found) else "its value is beyond the range of numbers"


def _accuracy(outputs: Outputs, truth: Truth) -> float | str:
    return float(np.mean(outputs.argmax(axis=1) == truth))


def _f1(outputs: Outputs, truth: Truth) -> float | str:
    """Of class 1 where there are two classes, else the mean over classes that occur in the truth or the predictions."""
    predicted = outputs.argmax(axis=1)
    n_classes = max(outputs.shape[1], int(truth.max()) + 1)
    hits = np.bincount(predicted[predicted == truth], minlength=n_classes)
    seen = np.bincount(predicted, minlength=n_classes) + np.bincount(truth, minlength=n_classes)
    if n_classes == 2:
        return float(2 * hits[1] / seen[1]) if seen[1] else "neither a sample nor a prediction of class 1"
    return float(np.mean(2 * hits[seen > 0] / seen[seen > 0]))


def _log_loss(outputs: Outputs, truth: Truth) -> float | str:
    return _beyond(outputs, truth) or float(cross_entropy(outputs, truth).mean())


def _roc_auc(outputs: Outputs, truth: Truth) -> float | str:
    """Of class 1 against 0; for more classes the mean over those that occur of each against the rest."""
    classes = np.unique(truth)
    if len(classes) < 2:
        return f"all samples are of class {classes[0]}"
    if beyond := _beyond(outputs, truth):
        return beyond
    if outputs.shape[1] == 2:
        return _area(_log_odds(outputs, 1), truth == 1)
    return float(np.mean([_area(_log_odds(outputs, int(c)), truth == c) for c in classes]))


def _mae(outputs: Outputs, truth: Truth) -> float | str:
    return float(np.abs(outputs[:, 0] - truth).mean())


def _mse(outputs: Outputs, truth: Truth) -> float | str:
    return float(np.square(outputs[:, 0] - truth).mean())


def _r2(outputs: Outputs, truth: Truth) -> float | str:
    spread = np.square(truth - truth.mean()).sum()
    if truth.min() == truth.max() or spread == 0:
        return f"all targets are {truth[0]:g}"
    return float(1 - np.square(outputs[:, 0] - truth).sum() / spread)


def _beyond(outputs: Outputs, truth: Truth) -> str:
    largest = int(truth.max())
    return f"a sample is of class {largest}, the model knows {outputs.shape[1]} classes" if largest >= outputs.shape[1] else ""


def _log_odds(outputs: Outputs, positive: int) -> npt.NDArray[np.float64]:
    """Orders samples as the probability of a class does, without its ties at 0 and 1.

    Rows that differ by a constant, or in the order of the other classes, are ties to the last bit.
    """
    logits = outputs.astype(np.float64)
    rest = np.sort(np.delete(logits, positive, axis=1), axis=1)
    top = rest[:, -1]
    others = np.log(np.exp(rest - top[:, None]).sum(axis=1))
    return np.asarray(logits[:, positive] - top - others)


def _area(scores: npt.NDArray[np.float64], positive: npt.NDArray[np.bool_]) -> float:
    """Probability that a positive sample ranks above a negative one, ties counting half (Mann, Whitney 1947)."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    n = int(positive.sum())
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(scores) - n)))


@dataclass(frozen=True, slots=True)
class MetricEntry:
    """A metric, and what it judges."""

    kind: TaskKind
    compute: Metric


METRICS: Final[Mapping[MetricName, MetricEntry]] = {
    "accuracy": MetricEntry("class", _accuracy),
    "roc_auc": MetricEntry("class", _roc_auc),
    "f1": MetricEntry("class", _f1),
    "log_loss": MetricEntry("class", _log_loss),
    "mae": MetricEntry("target", _mae),
    "mse": MetricEntry("target", _mse),
    "r2": MetricEntry("target", _r2),
}
