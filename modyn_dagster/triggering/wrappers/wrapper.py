"""Bases of policies around another one, which pass every call on and may refuse a fire."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason to suppress a fire.

    Attributes:
        by: kind of the wrapper.
        why: for people.
        details: numbers of the reason as JSON values.
    """

    by: str
    why: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Wrapper(TriggeringPolicy):
    """Policy around another one, whose fires it may refuse.

    The policy inside has its points, measurements and decisions as if it were on its own. ``triggered`` reaches it only for
    actual triggers, so that a suppressed fire moves no reference and resets no counter. A suppressed fire stays in the record:
    ``fire`` is False, and the reason and ``details["suppressed"]`` name the wrapper that suppressed it.

    Args:
        policy: the policy inside.
    """

    def __init__(self, policy: TriggeringPolicy) -> None:
        self.policy = policy
        self._stream: Stream | None = None

    @abstractmethod
    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Reason against a trigger at ``key``; None where there is none."""

    @abstractmethod
    def own_state(self) -> State:
        """State of the wrapper as JSON values."""

    @abstractmethod
    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state of ``own_state``; an empty state is a fresh start."""

    @property
    def depends_on_models(self) -> bool:
        """As the policy inside."""
        return self.policy.depends_on_models

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """Next point of the policy inside."""
        self._stream = stream
        return self.policy.next_point(cursor, stream)

    def needs(self, point: int) -> MeasurementSpec:
        """Needs of the policy inside."""
        return self.policy.needs(point)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Decision of the policy inside; a refused fire becomes the same decision with ``fire`` False."""
        if self._stream is None:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        decision = self.policy.decide(point, measurement)
        refusal = self.refusal(decision.key, self._stream) if decision.fire else None
        return decision if refusal is None else _suppressed(decision, refusal)

    def triggered(self, key: int) -> None:
        """Pass the trigger on."""
        self.policy.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Pass the model on."""
        self.policy.model_trained(trained)

    def state_dict(self) -> State:
        """State of the wrapper and of the policy inside."""
        return {**self.own_state(), "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        self._stream = None
        self.load_own_state(state)
        self.policy.load_state_dict(state.get("policy", {}))


class SpacingWrapper(Wrapper):
    """Wrapper that refuses fires by their distance to the last trigger.

    Attributes:
        last_trigger: key of the last trigger; ``ORIGIN`` before the first one.
    """

    def __init__(self, policy: TriggeringPolicy) -> None:
        super().__init__(policy)
        self.last_trigger = ORIGIN

    def triggered(self, key: int) -> None:
        """Measure distances from this trigger on."""
        self.last_trigger = key
        super().triggered(key)

    def own_state(self) -> State:
        """Key of the last trigger."""
        return {"last": self.last_trigger}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore the key of the last trigger."""
        last = state.get("last")
        self.last_trigger = ORIGIN if last is None else int(last)


def _suppressed(decision: Decision, refusal: Refusal) -> Decision:
    details = {**decision.details, "suppressed": {"by": refusal.by, "why": refusal.why, **refusal.details}}
    reason = f"suppressed by {refusal.by}: {refusal.why} (would fire: {decision.reason})"
    return replace(decision, fire=False, reason=reason, details=details)
