"""Detections of a stream detector on the errors or scores of the newest model since the last trigger."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.windows.newly_labelled import label_steps
from modyn_dagster.evaluation.metrics.calibration import confidences
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.measure.feature_extractor import WindowValues
from modyn_dagster.pipeline.measure.measurement_context import Detectors, MeasurementContext, window_details
from modyn_dagster.spec.training import is_unlabelled
from modyn_dagster.triggering import DetectorNeed, Measured

if TYPE_CHECKING:
    from modyn_dagster.triggering.stream_detectors import DetectorReader


def answer_detector(context: MeasurementContext, need: DetectorNeed) -> Measured:
    """Count the ``detections`` of a fresh detector after ``since``; samples without a label have no error.

    A detector that has read the window up to ``since`` for an earlier point continues from there.
    """
    window = context.unseen(need.window)
    detector, read, n_samples = _detector(context.detectors, need, window)
    detections, since = 0, min(max(need.since, read.until), window.until)
    for stretch, counts in ((KeyRange(read.until, since), False), (KeyRange(since, window.until), True)):
        for samples in _in_turn(context, need, stretch):
            values = _values(context, need, samples)
            detections += detector.read(values, 0 if counts else len(values))
            n_samples += len(samples.keys)
    context.detectors[_name(need)] = (detector, window, n_samples)
    details = {
        "window": window_details(window, n_samples),
        "fed": detector.n_read,
        "mean": detector.total / detector.n_read if detector.n_read else None,
    }
    return Measured({"detections": float(detections)}, details)


def _detector(detectors: Detectors, need: DetectorNeed, window: KeyRange) -> "tuple[DetectorReader, KeyRange, int]":
    """Return a detector, the part of the window that it has read, and the number of samples in that part."""
    from modyn_dagster.triggering.stream_detectors import DetectorReader

    # Removed while it reads: a detector whose reading is interrupted is not used again.
    earlier = detectors.pop(_name(need), None)
    if earlier is not None and earlier[1].after == window.after and earlier[1].until <= min(need.since, window.until):
        return earlier
    return DetectorReader(need.detector), KeyRange(window.after, window.after), 0


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
    outputs, truth = samples.taps[context.judged_tap], samples.truth
    if len(samples.keys) == 0 or (truth is None and need.stream == "errors"):
        return np.empty(0)
    finite = np.isfinite(outputs).all(axis=1)
    if need.stream == "scores" or truth is None:
        return 1 - confidences(outputs[finite])
    if context.is_class:
        usable = finite & (truth >= 0)
        return np.asarray(outputs[usable].argmax(axis=1) != truth[usable], np.float64)
    if is_unlabelled(context.kind):
        return sample_losses(outputs[finite], truth[finite], context.kind).astype(np.float64)
    usable = finite & np.isfinite(truth)
    return np.asarray(np.abs(outputs[usable, 0] - truth[usable]), np.float64)
