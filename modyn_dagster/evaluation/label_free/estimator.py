"""Estimates of scores without labels (CBPE), with intervals for the scores that the labels will give."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.label_free.expectation import Expected, expected_f1, expected_roc_auc, mean_over_classes
from modyn_dagster.evaluation.label_free.recalibration import Outputs, Recalibration, log_shares, recalibrated
from modyn_dagster.evaluation.metrics.calibration import expected_accuracy
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.metrics.groups import Slices
from modyn_dagster.evaluation.metrics.losses import Float64
from modyn_dagster.evaluation.metrics.registry import find_metric
from modyn_dagster.reproducibility.randomness import rng_for

#: Draws of an interval; where fewer of them have a score, there is no interval.
DRAWS: Final = 400
_FEWEST: Final = 20


class Estimate(NamedTuple):
    """Estimated score; None with a reason. The interval is for the score that labels will give; None where none can be had."""

    value: float | None
    reason: str | None = None
    low: float | None = None
    high: float | None = None


class Estimator:
    """Estimator of the scores of one model on samples without labels.

    It holds while the probability of a class, given the model's outputs, is that of the calibration samples (covariate shift);
    it cannot see concept drift. The accuracy comes from an isotonic map of the confidence, as published; every other score, and
    all intervals, from recalibrated probabilities of all classes. An interval holds the score of labels drawn from
    probabilities drawn from their posterior, so it knows the calibration's error and the chance in the labels.

    Args:
        outputs: logits of the calibration samples, ``float32[m, k]``; they must not be trained on.
        truth: classes of these, ``int64[m]``; -1 is no label.
        known: samples whose label may be used, ``bool[m]``; default: all that have one.

    Source: NannyML, Confidence-based Performance Estimation, 2022.

    >>> outputs = np.array([[0.0, 2.0], [2.0, 0.0]] * 50, np.float32)
    >>> estimate = Estimator(outputs, np.tile([1, 0], 50)).estimate(["accuracy"], outputs)["accuracy"]
    >>> estimate.value, 0.7 < estimate.low < estimate.high
    (1.0, True)
    """

    def __init__(self, outputs: Outputs, truth: npt.NDArray[np.int64], known: npt.NDArray[np.bool_] | None = None) -> None:
        usable = (truth >= 0) & np.isfinite(outputs).all(axis=1)
        if known is not None:
            usable &= known
        self._outputs, self._truth = outputs[usable], truth[usable].astype(np.int64)

    @cached_property
    def _map(self) -> Recalibration:
        return Recalibration.fit(self._outputs, self._truth)

    @property
    def n(self) -> int:
        """Labelled samples that it is calibrated on."""
        return len(self._truth)

    def estimate(
        self, metrics: Sequence[str], outputs: Outputs, *, min_samples: int = 1, level: float = 0.95, draws: int = DRAWS
    ) -> dict[str, Estimate]:
        """Estimate some metrics on the same samples; each is the same whatever others are asked for.

        Args:
            metrics: names of ``spec.evaluation.ESTIMATED``.
            outputs: logits of the samples, ``float32[n, k]``.
            min_samples: fewer samples have no estimate.
            level: share of cases in which the interval holds the score.
            draws: of labels; 0: no intervals.
        """
        if self.n == 0:
            return dict.fromkeys(metrics, Estimate(None, "no sample to calibrate on has a label"))
        if reason := _why_not(outputs, min_samples):
            return dict.fromkeys(metrics, Estimate(None, reason))
        samples = EvaluationSamples(outputs, np.zeros(len(outputs), np.int64))
        logs, costs = log_shares(outputs), _costs(outputs)
        values = {metric: self._expected(metric, samples, logs, costs) for metric in metrics}
        rng, drawn = rng_for(0, "label_free"), {metric: np.full(draws, np.nan) for metric in metrics}
        for number in range(draws):
            labels = _labels(rng, recalibrated(logs, self._map.draw(rng)))
            relabelled = samples.with_truth(labels)
            for metric, scores in drawn.items():
                scores[number] = _score(metric, relabelled, costs)
        return {metric: _estimate(values[metric], drawn[metric], level) for metric in metrics}

    def _expected(self, metric: str, samples: EvaluationSamples, logs: Float64, costs: Float64) -> float | None:
        if metric in ("accuracy", "f1_micro"):
            return expected_accuracy(self._outputs, self._truth, samples.outputs)
        shares, classes, whole = recalibrated(logs, self._map.parameters), range(samples.n_classes), slice(0, len(samples))
        match metric:
            case "log_loss":
                return float((shares * costs).sum(axis=1).mean())
            case "f1" if samples.n_classes == 2:
                return _defined(expected_f1(shares[:, 1], samples.predicted == 1))
            case "f1" | "f1_macro":
                return mean_over_classes([expected_f1(shares[:, c], samples.predicted == c) for c in classes])
            case "roc_auc" if samples.n_classes == 2:
                return _defined(expected_roc_auc(shares[:, 1], samples.ranks(1, whole)))
            case "roc_auc":
                return mean_over_classes([expected_roc_auc(shares[:, c], samples.ranks(c, whole)) for c in classes])
            case _:
                raise ValueError(f"{metric}: cannot be estimated without labels")


def _why_not(outputs: Outputs, min_samples: int) -> str | None:
    n, nonfinite = len(outputs), int((~np.isfinite(outputs)).any(axis=1).sum())
    if n < max(1, min_samples):
        return f"{n} samples, at least {max(1, min_samples)} are needed"
    return f"the model's outputs are not finite for {nonfinite} of {n} samples" if nonfinite else None


def _costs(outputs: Outputs) -> Float64:
    """``-log p`` of every class by the model itself, ``float64[n, k]``: what the log loss charges for that label."""
    logits = outputs.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(logits).sum(axis=1, keepdims=True)) - logits)


def _labels(rng: np.random.Generator, shares: Float64) -> npt.NDArray[np.int64]:
    """One label per sample, drawn from its probabilities."""
    below = np.cumsum(shares[:, :-1], axis=1)
    return np.asarray((rng.random((len(shares), 1)) >= below).sum(axis=1), dtype=np.int64)


def _score(metric: str, samples: EvaluationSamples, costs: Float64) -> float:
    if metric == "log_loss":
        return float(costs[np.arange(len(samples)), samples.truth].mean())
    with np.errstate(all="ignore"):
        return float(find_metric(metric).values(Slices.of_part(samples, slice(0, len(samples))))[0])


def _defined(expected: Expected) -> float | None:
    return expected.value if expected.defined > 0 else None


def _estimate(value: float | None, drawn: Float64, level: float) -> Estimate:
    if value is None or not np.isfinite(value):
        return Estimate(None, "no labels are likely for which it is defined")
    scores = drawn[np.isfinite(drawn)]
    if len(scores) < max(_FEWEST, len(drawn) // 2):
        return Estimate(value)
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, None, min(float(low), value), max(float(high), value))
