"""What policies that wrap another one share: everything is passed on, fires may be refused."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a fire is suppressed.

    Attributes:
        by: kind of the wrapper.
        why: for people.
        details: the same as JSON values.
    """

    by: str
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Wrapper(TriggeringPolicy):
    """Another policy whose fires may be refused.

    The other policy has its points, is measured and decides as if it were on its own; ``triggered`` reaches it only for
    triggers that were made, so a suppressed fire moves no reference and resets no counter. A suppressed fire stays in
    the record: ``fire`` is False, the reason and ``details["suppressed"]`` say what suppressed it.
    """

    def __init__(self, policy: TriggeringPolicy) -> None:
        self.policy = policy
        self._stream: Stream | None = None

    @abstractmethod
    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Why there may be no trigger at ``key`` now; None when there may be one."""

    @abstractmethod
    def own_state(self) -> State:
        """What the wrapper itself remembers, as JSON values."""

    @abstractmethod
    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up the state of ``own_state``; an empty state is a fresh start."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The other policy's."""
        self._stream = stream
        return self.policy.next_point(cursor, stream)

    def needs(self, point: int) -> MeasurementSpec:
        """The other policy's."""
        return self.policy.needs(point)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """The other policy's decision; where it fires and may not, the same with ``fire`` False."""
        if self._stream is None:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        decision = self.policy.decide(point, measurement)
        refusal = self.refusal(decision.key, self._stream) if decision.fire else None
        return decision if refusal is None else _suppressed(decision, refusal)

    def triggered(self, key: int) -> None:
        """Passed on."""
        self.policy.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Passed on."""
        self.policy.model_trained(trained)

    def state_dict(self) -> State:
        """The wrapper's own state beside the other policy's."""
        return {**self.own_state(), "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up both."""
        self._stream = None
        self.load_own_state(state)
        self.policy.load_state_dict(state.get("policy", {}))


def _suppressed(decision: Decision, refusal: Refusal) -> Decision:
    details = {**decision.details, "suppressed": {"by": refusal.by, "why": refusal.why, **refusal.details}}
    reason = f"suppressed by {refusal.by}: {refusal.why} (would fire: {decision.reason})"
    return replace(decision, fire=False, reason=reason, details=details)
