"""How good the newest model is on samples it has not trained on, with labels or without."""

from typing import Any

import numpy as np

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.calibration import expected_accuracy
from modyn_dagster.evaluation.metrics import score
from modyn_dagster.ingestion.split import CALIBRATE
from modyn_dagster.pipeline.question import Question, shown
from modyn_dagster.pipeline.window_values import WindowValues
from modyn_dagster.training.tap_names import OUTPUTS
from modyn_dagster.triggering import Measured, PerformanceNeed


def measure_performance(question: Question, need: PerformanceNeed) -> Measured:
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


def _calibrating(question: Question, need: PerformanceNeed) -> WindowValues | None:
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
