"""What a policy can ask to be measured, and what it gets back. Whoever drives it measures; the policy does no I/O.

Needs and answers are kept by path: ``""`` for a policy on its own, ``name`` for a member of an ensemble, ``name/inner`` for a
member's member. Wrappers (budget, cooldown) pass the paths of what they wrap on unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.triggers.detector import DetectorSpec
from modyn_dagster.spec.triggers.drift import DriftMetricSpec, FeaturesSpec


@dataclass(frozen=True, slots=True)
class DriftNeed:
    """Scores of drift metrics between two windows of the training stream.

    Attributes:
        ordinal: which decision point of its policy this is, from 0; measured or not, every point counts.
        reference: samples the newest model has seen.
        current: samples to compare with them.
        metrics: by name; the answer has a value for each.
        features: what is compared: columns or embeddings, how many samples, whether reduced by PCA.
        p_values: whether the answer holds p-values instead of scores.
    """

    ordinal: int
    reference: KeyRange
    current: KeyRange
    metrics: Mapping[str, DriftMetricSpec]
    features: FeaturesSpec
    p_values: bool = False


@dataclass(frozen=True, slots=True)
class PerformanceNeed:
    """How good the newest model is on samples it has not trained on.

    The answer's values: the metric by its name, ``n_samples`` (how many were judged), and ``expected_accuracy`` when
    ``calibrate`` is given.

    Attributes:
        ordinal: which decision point of its policy this is, from 0.
        window: the samples to judge it on.
        metric: ``accuracy`` or another metric of evaluations.
        label_free: estimate the accuracy from calibrated confidences (CBPE) instead of labels.
        calibrate: the last training window; its ``calibrate`` split tells the accuracy to expect (and calibrates confidences).
    """

    ordinal: int
    window: KeyRange
    metric: str
    label_free: bool = False
    calibrate: KeyRange | None = None


@dataclass(frozen=True, slots=True)
class DetectorNeed:
    """How often a stream detector sounded on the newest model's errors or scores.

    The detector starts afresh after ``window.after`` (the last trigger) and reads up to ``window.until``; the answer's value
    ``detections`` counts the samples after ``since`` at which it sounded. ``stream``: 0/1 errors (absolute errors of a
    regression), or 1 - confidence.
    """

    ordinal: int
    window: KeyRange
    since: int
    detector: DetectorSpec
    stream: Literal["errors", "scores"] = "errors"


Need = DriftNeed | PerformanceNeed | DetectorNeed
MeasurementSpec = Mapping[str, Need]


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer to one need.

    Attributes:
        values: by name, what the decision is taken from; None where it is undefined (too few samples, one class only).
        details: JSON values worth showing, which no decision depends on: sample counts, statistics, seconds.
    """

    values: Mapping[str, float | None]
    details: Mapping[str, Any] = field(default_factory=dict)


Measurement = Mapping[str, Measured]
