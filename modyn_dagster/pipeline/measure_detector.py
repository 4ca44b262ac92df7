"""What a stream detector says to the newest model's errors or confidences, sample by sample since the last trigger."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.calibration import confidences
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.question import Question, shown
from modyn_dagster.pipeline.window_values import WindowValues
from modyn_dagster.training.tap_names import OUTPUTS
from modyn_dagster.triggering import DetectorNeed, Measured

if TYPE_CHECKING:
    from modyn_dagster.triggering.detectors import Listener

#: Detectors at work with one model, by what they were asked: each with the samples it has read since the window's beginning.
Listeners = dict[str, tuple["Listener", KeyRange, int]]


def measure_detector(question: Question, need: DetectorNeed) -> Measured:
    """``detections``: at how many samples after ``since`` a fresh detector sounds; samples without a label are no errors.

    One that has read the window up to ``since`` when it was asked last reads on from there.
    """
    window = question.unseen(need.window)
    listener, read, n_samples = _listener(question.listeners, need, window)
    samples = question.samples(KeyRange(read.until, window.until))
    values, usable = _values(question, need, samples)
    after = int(np.searchsorted(samples.keys[usable], np.uint64(need.since + 1)))
    found = listener.hear(values, after)
    n_samples += len(samples.keys)
    question.listeners[_name(need)] = (listener, window, n_samples)
    details = {
        "window": shown(window, n_samples),
        "fed": listener.heard,
        "mean": listener.total / listener.heard if listener.heard else None,
    }
    return Measured({"detections": float(found)}, details)


def _listener(listeners: Listeners, need: DetectorNeed, window: KeyRange) -> "tuple[Listener, KeyRange, int]":
    """A detector, the part of the window that it has read, and how many samples that was."""
    from modyn_dagster.triggering.detectors import Listener

    # Taken out: one whose reading is interrupted is not asked again.
    known = listeners.pop(_name(need), None)
    if known is not None and known[1].after == window.after and known[1].until <= min(need.since, window.until):
        return known
    return Listener(need.detector), KeyRange(window.after, window.after), 0


def _name(need: DetectorNeed) -> str:
    return f"{need.stream} {need.detector.model_dump_json()}"


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
