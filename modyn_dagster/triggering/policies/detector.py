"""Detector policy: fire when a stream detector sounds."""

from collections.abc import Mapping
from typing import Any, Literal

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.triggers.detector import DetectorSpec, title_of
from modyn_dagster.triggering.measurement import DetectorNeed, Measured
from modyn_dagster.triggering.policies.batched import BatchedPolicy, DecisionPoint, Warmup, value_of
from modyn_dagster.triggering.policy import Decision, State


class DetectorPolicy(BatchedPolicy):
    """Fires when the detector sounded since the last point; the score is the number of its detections.

    The detector reads the errors or scores of the newest model one by one and begins afresh at every trigger (Gama et al., A
    Survey on Concept Drift Adaptation, ACM Computing Surveys 2014).

    Args:
        every: number of samples between two points.
        detector: specification of the detector, with its source.
        stream: values that the detector reads.
        warmup: decides at the first points.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> policy = build_policy({"kind": "detector", "every": 2, "detector": {"name": "adwin"}})
    >>> [decision.index for decision in simulate(policy, range(8), scores=[0, 0, 1, 0]) if decision.fire]
    [1, 5]
    """

    def __init__(
        self, every: int, detector: DetectorSpec, stream: Literal["errors", "scores"], warmup: Warmup | None = None
    ) -> None:
        super().__init__(every, warmup)
        self.detector = detector
        self.stream = stream

    def __repr__(self) -> str:
        return f"DetectorPolicy(every={self.every}, {self.detector!r}, stream={self.stream!r})"

    def need(self, point: DecisionPoint) -> DetectorNeed:
        """Detections since the last point of a detector that begins at the last trigger."""
        window = KeyRange(point.trigger, point.key)
        return DetectorNeed(point.ordinal, window, point.unseen_after, self.detector, self.stream)

    def judge(self, point: DecisionPoint, measured: Measured | None) -> Decision:
        """Fire at one detection or more."""
        detections = value_of(measured, "detections", point.key)
        name = title_of(self.detector)
        if detections is None:
            return Decision(False, point.key, f"{name} had nothing to read here")
        times = f"{detections:g} time{'' if detections == 1 else 's'}"
        reason = f"{name} sounded {times} on {self.stream}" if detections else f"{name} is silent on {self.stream}"
        return Decision(detections >= 1, point.key, reason, float(detections), 1.0)

    def own_state(self) -> State:
        """No state: the measurement keeps the detector, or feeds it again from the last trigger."""
        return {}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""
