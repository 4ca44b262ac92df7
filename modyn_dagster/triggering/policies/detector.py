"""Fire when a stream detector sounds."""

from collections.abc import Mapping
from typing import Any, Literal

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.triggers.detector import DetectorSpec
from modyn_dagster.triggering.measurement import DetectorNeed, Measured
from modyn_dagster.triggering.policies.batched import BatchedPolicy, Place, Warmup, value_of
from modyn_dagster.triggering.policy import Decision, State


class DetectorPolicy(BatchedPolicy):
    """Fires when the detector sounded since the last point, once or more often; the score is how often.

    The detector reads the errors or scores of the newest model one by one and begins afresh at every trigger.
    """

    def __init__(
        self, every: int, detector: DetectorSpec, stream: Literal["errors", "scores"], warmup: Warmup | None = None
    ) -> None:
        super().__init__(every, warmup)
        self.detector = detector
        self.stream = stream

    def __repr__(self) -> str:
        return f"DetectorPolicy(every={self.every}, {self.detector!r}, stream={self.stream!r})"

    def need(self, place: Place) -> DetectorNeed:
        """Everything since the last trigger; detections count after the last point."""
        window = KeyRange(place.trigger, place.point)
        return DetectorNeed(place.ordinal, window, place.unseen_after, self.detector, self.stream)

    def judge(self, place: Place, measured: Measured | None) -> Decision:
        """One detection is enough."""
        found = value_of(measured, "detections", place.point)
        name = self.detector.name
        if found is None:
            return Decision(False, place.point, f"{name} had nothing to read here")
        times = f"{found:g} time{'' if found == 1 else 's'}"
        reason = f"{name} sounded {times} on {self.stream}" if found else f"{name} is silent on {self.stream}"
        return Decision(found >= 1, place.point, reason, float(found), 1.0)

    def own_state(self) -> State:
        """Nothing: whoever measures keeps the detector, or feeds it anew."""
        return {}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to take up."""
