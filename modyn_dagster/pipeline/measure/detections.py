"""Detections of a stream detector on the errors or scores of the newest model since the last trigger."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.windows.newly_labelled import label_steps
from modyn_dagster.evaluation.metrics.calibration import confidences
from modyn_dagster.evaluation.metrics.losses import pinball_losses
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.measure.feature_extractor import WindowValues
from modyn_dagster.pipeline.measure.measurement_context import MeasurementContext, window_details
from modyn_dagster.spec.triggers.detector import CustomDetectorSpec
from modyn_dagster.training.data import OUTPUTS
from modyn_dagster.triggering import DetectorNeed, Measured
from modyn_dagster.triggering.policy import State
from modyn_dagster.values.digest import bytes_digest

if TYPE_CHECKING:
    from modyn_dagster.triggering.detectors import DetectorReader


def answer_detector(context: MeasurementContext, need: DetectorNeed) -> Measured:
    """Count the ``detections`` of a fresh detector after ``since``; samples without a label have no error.

    A detector that has read the window up to ``since`` for an earlier point continues from there: this one in memory, or one of
    the user's from the state in the details of the measurement at ``since``.
    """
    window = context.unseen(need.window)
    detector, read, n_samples = _detector(context, need, window)
    detections, since = 0, min(max(need.since, read.until), window.until)
    for stretch, counts in ((KeyRange(read.until, since), False), (KeyRange(since, window.until), True)):
        for samples in _in_turn(context, need, stretch):
            values = _values(context, need, samples)
            detections += detector.read(values, 0 if counts else len(values))
            n_samples += len(samples.keys)
    context.detectors[_name(need)] = (detector, window, n_samples)
    details: dict[str, Any] = {
        "window": window_details(window, n_samples),
        "fed": detector.n_read,
        "mean": detector.total / detector.n_read if detector.n_read else None,
    }
    if (state := detector.state_dict()) is not None:
        details["reader"] = {"of": bytes_digest(_name(need).encode()), "state": state}
    return Measured({"detections": float(detections)}, details)


def _detector(context: MeasurementContext, need: DetectorNeed, window: KeyRange) -> "tuple[DetectorReader, KeyRange, int]":
    """Return a detector, the part of the window that it has read, and the number of samples in that part."""
    from modyn_dagster.triggering.detectors import DetectorReader

    # Removed while it reads: a detector whose reading is interrupted is not used again.
    earlier = context.detectors.pop(_name(need), None)
    if earlier is not None and _goes_on(earlier[1], need, window):
        return earlier
    reader = DetectorReader(need.detector)
    recorded = _recorded(context, need, window) if isinstance(need.detector, CustomDetectorSpec) else None
    if recorded is None:
        return reader, KeyRange(window.after, window.after), 0
    state, read, n_samples = recorded
    reader.load_state_dict(state)
    return reader, read, n_samples


def _goes_on(read: KeyRange, need: DetectorNeed, window: KeyRange) -> bool:
    return read.after == window.after and read.until <= min(need.since, window.until)


def _recorded(context: MeasurementContext, need: DetectorNeed, window: KeyRange) -> tuple[State, KeyRange, int] | None:
    """State of the reader at ``since``, the part of the window that it has read, and the samples there; None if not recorded."""
    if need.since <= window.after:
        return None
    for details in context.details_at(need.since).values():
        reader, recorded = details.get("reader", {}), details.get("window", {})
        if reader.get("of") == bytes_digest(_name(need).encode()):
            read = KeyRange(int(recorded["after"]), int(recorded["until"]))
            return (reader["state"], read, int(recorded["samples"])) if _goes_on(read, need, window) else None
    return None


def _name(need: DetectorNeed) -> str:
    return f"{need.stream} {need.detector.model_dump_json()}"


def _in_turn(context: MeasurementContext, need: DetectorNeed, stretch: KeyRange) -> Iterator[WindowValues]:
    """Yield the samples of a stretch of the stream in the order in which a detector reads them.

    Where labels arrive later, an error is read with the first label that was known, as of the batch with which it became known:
    a detector that begins again at the last trigger reads the same as one that has gone on.
    """
    if need.stream == "scores" or context.view.label_position is None:
        yield context.samples(stretch)
        return
    for view, since, until in label_steps(context.view, stretch.after, stretch.until):
        yield replace(context, view=view).newly_labelled(since, until)


def _values(context: MeasurementContext, need: DetectorNeed, samples: WindowValues) -> npt.NDArray[np.float64]:
    """Return the input of the detector, ``float64[m]``; samples without finite outputs, or without a label, give none."""
    outputs, truth = samples.taps[OUTPUTS], samples.truth
    if len(samples.keys) == 0 or (truth is None and need.stream == "errors"):
        return np.empty(0)
    finite = np.isfinite(outputs).all(axis=1)
    if need.stream == "scores" or truth is None:
        return 1 - confidences(outputs[finite])
    if context.is_class:
        usable = finite & (truth >= 0)
        return np.asarray(outputs[usable].argmax(axis=1) != truth[usable], np.float64)
    usable = finite & np.isfinite(truth)
    if context.quantiles:
        return pinball_losses(outputs[usable], truth[usable], context.quantiles)
    return np.asarray(np.abs(outputs[usable, 0] - truth[usable]), np.float64)
