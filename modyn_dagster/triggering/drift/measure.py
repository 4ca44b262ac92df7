"""Drift of one window against another by every metric of a need."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.spec.triggers.drift import (
    BackendMetric,
    ClassifierMetric,
    DriftMetric,
    DriftMetricSpec,
    EnergyMetric,
    FrechetMetric,
    LSDDMetric,
    MMDMetric,
    UnivariateMetric,
)
from modyn_dagster.triggering.drift.backends.alibi import alibi
from modyn_dagster.triggering.drift.backends.evidently import evidently
from modyn_dagster.triggering.drift.multivariate.classifier import classifier
from modyn_dagster.triggering.drift.multivariate.energy import energy
from modyn_dagster.triggering.drift.multivariate.frechet import frechet
from modyn_dagster.triggering.drift.multivariate.lsdd import lsdd
from modyn_dagster.triggering.drift.multivariate.mmd import mmd
from modyn_dagster.triggering.drift.score import Score
from modyn_dagster.triggering.drift.univariate.column_metrics import univariate
from modyn_dagster.triggering.drift.windows import Windows, as_features
from modyn_dagster.triggering.measurement import DriftNeed, Measured


def resolve_device(device: Literal["cpu", "cuda", "auto"]) -> Literal["cpu", "cuda"]:
    """``auto`` is CUDA where there is one. ``ConfigError`` for ``cuda`` on a machine without."""
    if device == "cpu":
        return "cpu"
    import torch

    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ConfigError("drift trigger", "features.device", device, "this machine has no CUDA device; use cpu or auto")
    return "cuda" if available else "cpu"


_BACKENDS: Final = {"alibi": alibi, "evidently": evidently}
_OWN: Final[Mapping[type[DriftMetric], Callable[..., Score]]] = {
    MMDMetric: mmd,
    EnergyMetric: energy,
    FrechetMetric: frechet,
    LSDDMetric: lsdd,
    ClassifierMetric: classifier,
}


def measure_drift(need: DriftNeed, reference: npt.ArrayLike, current: npt.ArrayLike, *, seed: int) -> Measured:
    """How far the current window is from the reference.

    Equal windows, needs and seeds give equal answers; what is random (samples, permutations, centers, folds, random features)
    is drawn by ``rng_for(seed, "drift", need.ordinal, ...)``.

    Args:
        need: metrics, features and whether p-values are wanted; its key ranges are not looked at.
        reference: ``float[n, d]``, features of the reference window; one dimension is one feature.
        current: ``float[m, d]``, the same features of the current window.
        seed: of the pipeline run.

    Returns:
        Per metric its score, or its p-value where ``need.p_values``; None where a window has fewer than two samples or holds
        NaN or infinite values, or where the metric is not defined on them. Details: ``n_reference`` and ``n_current`` as given,
        ``n_compared`` (both, after sampling), ``n_features`` (after PCA) and ``statistics``: per metric its statistic, its
        p-value where it was computed, what it depended on, and ``why`` where it is undefined.

    Raises:
        WrongShape: the windows differ in width or have more than two dimensions.
        MissingExtra: a metric's library is not installed.
        ConfigError: a device that is not there, or a metric or setting that a library does not know.
    """
    old, new = as_features(reference, "reference"), as_features(current, "current")
    if old.shape[1] != new.shape[1]:
        raise WrongShape(["m", old.shape[1]], new.shape, what="the features of the current window")
    details: dict[str, Any] = {"n_reference": len(old), "n_current": len(new)}
    dtype = old.dtype if old.dtype == new.dtype else "float64"
    device = resolve_device(need.features.device)
    windows = Windows(old.astype(dtype, copy=False), new.astype(dtype, copy=False), device, seed, ("drift", need.ordinal))
    flaw = windows.flaw()
    if flaw is not None:
        return Measured(dict.fromkeys(need.metrics), details | {"why": flaw})
    windows = windows.sampled(need.features.sample_size).reduced(need.features.pca, symmetric=need.p_values)
    scores = {name: score(spec, windows.at(name), p_value=need.p_values) for name, spec in need.metrics.items()}
    details["n_compared"] = [windows.n, windows.m]
    details["n_features"] = windows.width
    details["statistics"] = {name: found.as_json() for name, found in scores.items()}
    return Measured({name: found.p_value if need.p_values else found.value for name, found in scores.items()}, details)


def score(spec: DriftMetricSpec, windows: Windows, *, p_value: bool) -> Score:
    """One metric's answer, undefined where numbers overflow; its p-value only where asked for, or where it is the score."""
    with np.errstate(all="ignore"):
        try:
            found = _dispatch(spec, windows, p_value=p_value)
        except np.linalg.LinAlgError as error:
            return Score.undefined(f"the features are too large or too uneven: {error}")
    if found.value is not None and not np.isfinite(found.value):
        return Score.undefined("the features are too large: the statistic is not finite")
    if p_value and found.value is not None and found.p_value is None:
        return replace(found, details={**found.details, "why": "this metric has no p-value"})
    return found


def _dispatch(spec: DriftMetricSpec, windows: Windows, *, p_value: bool) -> Score:
    if isinstance(spec, BackendMetric):
        return _BACKENDS[spec.backend](spec, windows)
    if isinstance(spec, UnivariateMetric):
        return univariate(spec, windows, p_value=p_value)
    return _OWN[type(spec)](spec, windows, p_value=p_value)
