"""Answers to the needs of a policy: drift between windows, and performance."""

from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.label_free.estimator import Estimator
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.pipeline.measure.feature_extractor import WindowValues
from modyn_dagster.pipeline.measure.measurement_context import MeasurementContext, tap_of, window_details
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.tasks.metrics import lower_is_better
from modyn_dagster.training.data import OUTPUTS
from modyn_dagster.triggering import DriftNeed, Measured, PerformanceNeed
from modyn_dagster.triggering.measurement import COVERAGE


def answer_drift(context: MeasurementContext, need: DriftNeed) -> Measured:
    """Measure every metric of a need between its two windows; None for all where a window has no sample left."""
    reference, current = context.samples(need.reference), context.samples(need.current)
    windows = {
        "reference_window": window_details(need.reference, len(reference.keys)),
        "current_window": window_details(need.current, len(current.keys)),
    }
    if len(reference.keys) == 0 or len(current.keys) == 0:
        return Measured(dict.fromkeys(need.metrics), {**windows, "undefined": "a window has no samples"})
    tap = tap_of(need.features)
    arrays = [_features(context, need, values.taps[tap]) for values in (reference, current)]
    # Imported here: both import torch, and sensors import this module.
    from modyn_dagster.reproducibility.determinism import reproducible
    from modyn_dagster.triggering.drift import measure_drift

    seed = seed_for(context.run.seed, "drift", context.point)
    # Third-party libraries draw from the global generators of the process.
    with reproducible(seed, threads=context.run.threads, deterministic=False):
        drift = measure_drift(need, *arrays, seed=seed)
    return Measured(drift.values, {**drift.details, **windows})


def _features(context: MeasurementContext, need: DriftNeed, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if need.features.of != "outputs" or not context.is_class:
        return values
    logits = values.astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)


def answer_performance(context: MeasurementContext, need: PerformanceNeed) -> Measured:
    """Score the metric on the window, with ``n_samples`` and, on request, ``expected_accuracy``."""
    window = context.unseen(need.window)
    once = need.first_labels and context.view.label_position is not None
    samples = context.newly_labelled(window.after, window.until) if once else context.samples(window)
    details: dict[str, Any] = {"window": window_details(window, len(samples.keys))}
    calibrating = _calibrating(context, need)
    if calibrating is not None and need.calibrate is not None:
        details["calibrate_window"] = window_details(context.calibration_range(need.calibrate), len(calibrating.keys))
    if need.label_free:
        values, estimated = _estimated(need, calibrating, samples)
        details |= estimated
    else:
        values, reason = _scored(need, samples, context.judged_tap)
        details |= {"undefined": reason} if reason else {}
    if context.view.label_position is not None and not once:
        known = 0 if samples.truth is None else np.count_nonzero(is_labelled(samples.truth))
        values[COVERAGE] = known / max(1, len(samples.keys))
    if calibrating is not None:
        values["expected_accuracy"] = _accuracy(calibrating)
    return Measured(values, details)


def _scored(need: PerformanceNeed, samples: WindowValues, tap: str) -> tuple[dict[str, float | None], str | None]:
    if samples.truth is None:
        return {need.metric: None, "n_samples": 0.0}, "no samples"
    # The metric name was validated before the run.
    result = score(need.metric, samples.taps[tap], samples.truth)
    return {need.metric: result.value, "n_samples": float(result.n)}, result.undefined


def _calibrating(context: MeasurementContext, need: PerformanceNeed) -> WindowValues | None:
    """Return the calibration samples of the last training window, which no model trains on."""
    if need.calibrate is None:
        return None
    dataset = context.view.spec
    if dataset.split.calibrate == 0:
        rule = f"must leave a `calibrate` share for the trigger of {context.run.pipeline}, which measures the accuracy to expect"
        raise ConfigError(f"dataset {dataset.name}", "split", dataset.split.model_dump(), rule)
    return context.calibration_samples(need.calibrate, need.maturity)


def _estimated(
    need: PerformanceNeed, calibrating: WindowValues | None, samples: WindowValues
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Estimate the metric without reading a label of the window; with an interval, its better end is the value."""
    if calibrating is None or calibrating.truth is None:
        return {need.metric: None, "n_samples": 0.0}, {}
    estimator = Estimator(calibrating.taps[OUTPUTS], calibrating.truth)
    outputs, level = samples.taps[OUTPUTS], need.interval
    if level is None:
        value, details = estimator.estimate([need.metric], outputs, draws=0)[need.metric].value, dict[str, Any]()
    else:
        estimate = estimator.estimate([need.metric], outputs, level=level)[need.metric]
        value = estimate.low if lower_is_better(need.metric) else estimate.high
        details = {"estimate": estimate.value, "interval": [estimate.low, estimate.high]}
    return {need.metric: value, "n_samples": float(len(samples.keys) if value is not None else 0)}, details


def _accuracy(calibrating: WindowValues) -> float | None:
    if calibrating.truth is None:
        return None
    return score("accuracy", calibrating.taps[OUTPUTS], calibrating.truth).value
