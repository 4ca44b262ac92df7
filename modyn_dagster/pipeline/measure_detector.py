"""What a stream detector says to the newest model's errors or confidences, sample by sample since the last trigger."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.calibration import confidences
from modyn_dagster.pipeline.question import Question, shown
from modyn_dagster.pipeline.window_values import WindowValues
from modyn_dagster.training.tap_names import OUTPUTS
from modyn_dagster.triggering import DetectorNeed, Measured


def measure_detector(question: Question, need: DetectorNeed) -> Measured:
    """``detections``: at how many samples after ``since`` a fresh detector sounds; samples without a label are no errors."""
    from modyn_dagster.triggering.detectors import count_detections

    window = question.unseen(need.window)
    samples = question.samples(window)
    values, usable = _values(question, need, samples)
    after = int(np.searchsorted(samples.keys[usable], np.uint64(need.since + 1)))
    found = count_detections(need.detector, values, after)
    details = {
        "window": shown(window, len(samples.keys)),
        "fed": len(values),
        "mean": float(values.mean()) if len(values) else None,
    }
    return Measured({"detections": float(found)}, details)


def _values(
    question: Question, need: DetectorNeed, samples: WindowValues
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
