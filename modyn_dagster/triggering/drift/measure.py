"""Drift of one window against another by every metric of a need."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import WrongShape
from modyn_dagster.reproducibility.devices import resolve_device
from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.triggers.drift import (
    BackendMetric,
    ClassifierMetric,
    CustomMetric,
    DriftMetricSpec,
    EnergyMetric,
    FrechetMetric,
    LSDDMetric,
    MMDMetric,
    UnivariateMetric,
)
from modyn_dagster.triggering.drift.backends.alibi import alibi
from modyn_dagster.triggering.drift.backends.evidently import evidently
from modyn_dagster.triggering.drift.custom import custom
from modyn_dagster.triggering.drift.multivariate.classifier import classifier
from modyn_dagster.triggering.drift.multivariate.energy import energy
from modyn_dagster.triggering.drift.multivariate.frechet import frechet
from modyn_dagster.triggering.drift.multivariate.lsdd import lsdd
from modyn_dagster.triggering.drift.multivariate.mmd import mmd
from modyn_dagster.triggering.drift.score import Score
from modyn_dagster.triggering.drift.univariate.column_metrics import univariate
from modyn_dagster.triggering.drift.windows import Windows, as_features
from modyn_dagster.triggering.measurement import DriftNeed, Measured

_BACKENDS: Final = {"alibi": alibi, "evidently": evidently}


def _backend_score(spec: BackendMetric, windows: Windows, **_options: bool) -> Score:
    """Score of a library, with the p-value wherever the library has one."""
    return _BACKENDS[spec.backend](spec, windows)


#: Metrics by class of their spec: ``(spec, windows, p_value) -> Score``.
_METRICS: Final[Mapping[type[Spec], Callable[..., Score]]] = {
    MMDMetric: mmd,
    EnergyMetric: energy,
    FrechetMetric: frechet,
    LSDDMetric: lsdd,
    ClassifierMetric: classifier,
    UnivariateMetric: univariate,
    BackendMetric: _backend_score,
    CustomMetric: custom,
}


def measure_drift(need: DriftNeed, reference: npt.ArrayLike, current: npt.ArrayLike, *, seed: int) -> Measured:
    """Distance of the current window from the reference by every metric.

    Equal windows, needs and seeds give equal answers: samples, permutations, centers, folds and random features are drawn by
    ``rng_for(seed, "drift", need.ordinal, ...)``.

    Args:
        need: metrics, features, and scores or p-values; its key ranges are not used.
        reference: ``float[n, d]``, features of the reference window; one dimension is one feature.
        current: ``float[m, d]``, the same features of the current window.
        seed: of the pipeline run.

    Returns:
        Score of every metric, or its p-value where ``need.p_values``; None where a window has fewer than two samples or holds
        NaN or infinite values, or where the metric is undefined. Details: ``n_reference`` and ``n_current`` before sampling,
        ``n_compared`` (both, after sampling), ``n_features`` (after PCA) and ``statistics``: statistic of every metric, p-value
        where computed, parameters, and the reason ``why`` where it is undefined.

    Raises:
        WrongShape: the windows differ in width or have more than two dimensions.
        MissingExtra: a metric's library is not installed.
        ConfigError: the machine has no such device, a library does not know a metric or setting, or a metric of the user's fails.
    """
    old, new = as_features(reference, "reference"), as_features(current, "current")
    if old.shape[1] != new.shape[1]:
        raise WrongShape(["m", old.shape[1]], new.shape, what="the features of the current window")
    details: dict[str, Any] = {"n_reference": len(old), "n_current": len(new)}
    dtype = old.dtype if old.dtype == new.dtype else "float64"
    device = resolve_device(need.features.device, source="drift trigger", field="features.device")
    windows = Windows(old.astype(dtype, copy=False), new.astype(dtype, copy=False), device, seed, ("drift", need.ordinal))
    flaw = windows.flaw()
    if flaw is not None:
        return Measured(dict.fromkeys(need.metrics), details | {"why": flaw})
    windows = windows.sampled(need.features.sample_size).reduced(need.features.pca, symmetric=need.p_values)
    scores = {name: metric_score(spec, windows.at(name), p_value=need.p_values) for name, spec in need.metrics.items()}
    details["n_compared"] = [windows.n, windows.m]
    details["n_features"] = windows.width
    details["statistics"] = {name: score.as_json() for name, score in scores.items()}
    return Measured({name: score.p_value if need.p_values else score.value for name, score in scores.items()}, details)


def metric_score(spec: DriftMetricSpec, windows: Windows, *, p_value: bool) -> Score:
    """Score of one metric, undefined where numbers overflow; with its p-value where ``p_value``, or where it is the score."""
    with np.errstate(all="ignore"):
        try:
            score = _METRICS[type(spec)](spec, windows, p_value=p_value)
        except np.linalg.LinAlgError as error:
            return Score.undefined(f"the features are too large or too uneven: {error}")
        except ArithmeticError as error:
            return Score.undefined(f"the scale of the features or of the bandwidth is out of range: {error}")
    if score.value is not None and not np.isfinite(score.value):
        return Score.undefined("the features are too large: the statistic is not finite")
    if p_value and score.value is not None and score.p_value is None:
        return replace(score, details={**score.details, "why": "this metric has no p-value"})
    return score
