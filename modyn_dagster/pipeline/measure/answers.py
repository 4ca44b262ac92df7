"""Answers to the needs of a policy: drift between windows, performance, detections of a stream detector."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.split import CALIBRATE
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.calibration import confidences, expected_accuracy
from modyn_dagster.evaluation.metrics.registry import score
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.measure.feature_extractor import WindowValues
from modyn_dagster.pipeline.measure.measurement_context import Listeners, MeasurementContext, shown, tap_of
from modyn_dagster.randomness import seed_for
from modyn_dagster.training.data import OUTPUTS
from modyn_dagster.triggering import DetectorNeed, DriftNeed, Measured, PerformanceNeed

if TYPE_CHECKING:
    from modyn_dagster.triggering.stream_detectors import DetectorReader


def measure_drift(question: MeasurementContext, need: DriftNeed) -> Measured:
    """Every metric of a need between its two windows; None for all of them where a window has no sample left."""
    reference, current = question.samples(need.reference), question.samples(need.current)
    windows = {
        "reference_window": shown(need.reference, len(reference.keys)),
        "current_window": shown(need.current, len(current.keys)),
    }
    if len(reference.keys) == 0 or len(current.keys) == 0:
        return Measured(dict.fromkeys(need.metrics), {**windows, "undefined": "a window has no samples"})
    tap = tap_of(need.features)
    arrays = [_features(question, need, values.taps[tap]) for values in (reference, current)]
    # Imported here: torch comes with both, and sensors import what this file stands beside.
    from modyn_dagster.determinism import reproducible
    from modyn_dagster.triggering.drift import measure_drift as measure

    seed = seed_for(question.run.seed, "drift", question.point)
    # Other libraries draw from generators of the process.
    with reproducible(seed, threads=question.run.threads, deterministic=False):
        found = measure(need, *arrays, seed=seed)
    return Measured(found.values, {**found.details, **windows})


def _features(question: MeasurementContext, need: DriftNeed, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if need.features.of != "outputs" or not question.is_class:
        return values
    logits = values.astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), dtype=np.float32)


def measure_performance(question: MeasurementContext, need: PerformanceNeed) -> Measured:
    """The metric on the window and ``n_samples``, how many were judged; ``expected_accuracy`` where it is asked for."""
    window = question.unseen(need.window)
    judged = question.samples(window)
    details: dict[str, Any] = {"window": shown(window, len(judged.keys))}
    calibrating = _calibrating(question, need)
    if calibrating is not None and need.calibrate is not None:
        details["calibrate_window"] = shown(need.calibrate, len(calibrating.keys))
    if need.label_free:
        found = _expected(calibrating, judged)
        values = {need.metric: found, "n_samples": float(len(judged.keys) if found is not None else 0)}
    else:
        values, why = _scored(need, judged)
        details |= {"undefined": why} if why else {}
    if calibrating is not None:
        values["expected_accuracy"] = _accuracy(calibrating)
    return Measured(values, details)


def _scored(need: PerformanceNeed, judged: WindowValues) -> tuple[dict[str, float | None], str | None]:
    if judged.truth is None:
        return {need.metric: None, "n_samples": 0.0}, "no samples"
    # Held against the metrics there are before the run began.
    result = score(need.metric, judged.taps[OUTPUTS], judged.truth)
    return {need.metric: result.value, "n_samples": float(result.n)}, result.undefined


def _calibrating(question: MeasurementContext, need: PerformanceNeed) -> WindowValues | None:
    """The samples of the last training window that no model ever trains on."""
    if need.calibrate is None:
        return None
    dataset = question.view.spec
    if dataset.split.calibrate == 0:
        rule = f"must leave a `calibrate` share for the trigger of {question.run.pipeline}, which measures the accuracy to expect"
        raise ConfigError(f"dataset {dataset.name}", "split", dataset.split.model_dump(), rule)
    return question.samples(need.calibrate, CALIBRATE)


def _expected(calibrating: WindowValues | None, judged: WindowValues) -> float | None:
    if calibrating is None or calibrating.truth is None:
        return None
    return expected_accuracy(calibrating.taps[OUTPUTS], calibrating.truth.astype(np.int64), judged.taps[OUTPUTS])


def _accuracy(calibrating: WindowValues) -> float | None:
    if calibrating.truth is None:
        return None
    return score("accuracy", calibrating.taps[OUTPUTS], calibrating.truth).value


def measure_detector(question: MeasurementContext, need: DetectorNeed) -> Measured:
    """``detections``: at how many samples after ``since`` a fresh detector sounds; samples without a label are no errors.

    One that has read the window up to ``since`` when it was asked last reads on from there.
    """
    window = question.unseen(need.window)
    listener, read, n_samples = _listener(question.listeners, need, window)
    samples = question.samples(KeyRange(read.until, window.until))
    values, usable = _values(question, need, samples)
    after = int(np.searchsorted(samples.keys[usable], np.uint64(need.since + 1)))
    found = listener.read(values, after)
    n_samples += len(samples.keys)
    question.listeners[_name(need)] = (listener, window, n_samples)
    details = {
        "window": shown(window, n_samples),
        "fed": listener.n_read,
        "mean": listener.total / listener.n_read if listener.n_read else None,
    }
    return Measured({"detections": float(found)}, details)


def _listener(listeners: Listeners, need: DetectorNeed, window: KeyRange) -> "tuple[DetectorReader, KeyRange, int]":
    """A detector, the part of the window that it has read, and how many samples that was."""
    from modyn_dagster.triggering.stream_detectors import DetectorReader

    # Taken out: one whose reading is interrupted is not asked again.
    known = listeners.pop(_name(need), None)
    if known is not None and known[1].after == window.after and known[1].until <= min(need.since, window.until):
        return known
    return DetectorReader(need.detector), KeyRange(window.after, window.after), 0


def _name(need: DetectorNeed) -> str:
    return f"{need.stream} {need.detector.model_dump_json()}"


def _values(
    question: MeasurementContext, need: DetectorNeed, samples: WindowValues
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """What the detector is fed, ``float64[m]``, and which of the samples it comes from, ``bool[n]``."""
    outputs, truth = samples.taps[OUTPUTS], samples.truth
    if len(samples.keys) == 0 or (truth is None and need.stream == "errors"):
        return np.empty(0), np.zeros(len(samples.keys), dtype=bool)
    finite = np.isfinite(outputs).all(axis=1)
    if need.stream == "scores" or truth is None:
        return 1 - confidences(outputs[finite]), finite
    if question.is_class:
        usable = finite & (truth >= 0)
        return (outputs[usable].argmax(axis=1) != truth[usable]).astype(np.float64), usable
    usable = finite & np.isfinite(truth)
    return np.abs(outputs[usable, 0] - truth[usable]).astype(np.float64), usable
