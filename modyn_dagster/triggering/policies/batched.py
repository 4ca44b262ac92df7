"""Base of the policies that measure at every n-th sample, and warm-up by another policy."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.loop import drive_policy
from modyn_dagster.triggering.measurement import Measured, Measurement, MeasurementSpec, Need
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream


def _unmeasured(point: int, needs: MeasurementSpec) -> Measurement:
    raise ValueError(f"the warm-up policy needs {', '.join(needs)} at key {point}; choose one that measures nothing")


class Warmup:
    """Policy that decides during the first points of another one.

    The warm-up policy is driven as if it were on its own, at all of its own points up to a point of the other policy. Warm-up
    fires there if the warm-up policy fired at any of them. ``max_triggers`` of the warm-up policy counts its own fires.

    Args:
        intervals: number of points of the other policy at which warm-up decides.
        policy: the warm-up policy.
    """

    def __init__(self, intervals: int, policy: TriggeringPolicy) -> None:
        self.intervals = intervals
        self.policy = policy
        self._cursor = ORIGIN

    def __repr__(self) -> str:
        return f"Warmup({self.intervals}, {self.policy!r})"

    def fires(self, point: int, stream: Stream) -> str | None:
        """The reason of its last fire after its last point and up to this one; None where it stays quiet."""
        reason = None
        self._cursor = max(self._cursor, stream.origin)
        for own, decision, _, _ in drive_policy(self.policy, self._cursor, stream, _unmeasured, until=point):
            reason = decision.reason if decision.fire else reason
            self._cursor = own
        return reason

    def state_dict(self) -> State:
        """Last point and state of the warm-up policy."""
        return {"cursor": self._cursor, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        self._cursor = int(state.get("cursor", ORIGIN))
        self.policy.load_state_dict(state.get("policy", {}))


NO_MODEL: Final = "no model yet"


@dataclass(frozen=True, slots=True)
class DecisionPoint:
    """Point at which a batched policy measures and decides.

    Attributes:
        ordinal: number of the point, from 0.
        key: sample key of the point.
        previous: key of the point before; ``ORIGIN`` at the first one.
        trigger: key of the last trigger; ``ORIGIN`` before the first one.
        stream: the stream in which the point was found.
    """

    ordinal: int
    key: int
    previous: int
    trigger: int
    stream: Stream

    @property
    def unseen_after(self) -> int:
        """Key after which samples are new since the previous point and not trained on."""
        return max(self.previous, self.trigger)


class BatchedPolicy(TriggeringPolicy):
    """Base of policies with a point at every ``every``-th sample of the run, counted from its origin.

    Without a model every point fires, with reason ``no model yet``, and nothing is measured: usually the first point, and the
    second one where the first training failed. During warm-up another policy decides; measurements are remembered meanwhile,
    but fire nothing. Every trigger moves windows and resets counters, manual ones too.

    Args:
        every: number of samples between two points.
        warmup: decides at the first points; None for no warm-up.
    """

    def __init__(self, every: int, warmup: Warmup | None = None) -> None:
        self.every = every
        self.warmup = warmup
        self._named: tuple[int, Stream] | None = None
        self._points = 0
        self._previous = ORIGIN
        self._trigger = ORIGIN
        self._has_model = False

    @abstractmethod
    def need(self, point: DecisionPoint) -> Need | None:
        """Measurement needed at a point, given a model; None where there is none."""

    @abstractmethod
    def judge(self, point: DecisionPoint, measured: Measured | None) -> Decision:
        """Decide from a measurement; called at every point once there is a model, in warm-up too."""

    @abstractmethod
    def own_state(self) -> State:
        """State of the subclass as JSON values."""

    @abstractmethod
    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state of ``own_state``; an empty state is a fresh start."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The ``every``-th sample after the previous point; the cursor may lie anywhere between."""
        point = stream.nth_after(self._previous, self.every)
        self._named = None if point is None else (point, stream)
        return point

    def needs(self, point: int) -> MeasurementSpec:
        """Need of the subclass, once there is a model."""
        need = self.need(self._decision_point(point)) if self._has_model else None
        return {} if need is None else {"": need}

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Fire without a model; with one, let warm-up decide, and after it the measurement."""
        here = self._decision_point(point)
        measured_decision = self.judge(here, (measurement or {}).get("")) if self._has_model else None
        warmup_decision = self._warmup_decision(here, measured_decision)
        self._points += 1
        self._previous, self._named = point, None
        return warmup_decision or measured_decision or Decision(True, point, NO_MODEL)

    def triggered(self, key: int) -> None:
        """Set the trigger that windows are counted from."""
        self._trigger = key

    def model_trained(self, trained: ModelTrained) -> None:
        """Start measuring: there is a model now."""
        self._has_model = True

    def state_dict(self) -> State:
        """Number of points, last point and trigger, presence of a model; state of warm-up and of the subclass."""
        return {
            "points": self._points,
            "previous": self._previous,
            "trigger": self._trigger,
            "has_model": self._has_model,
            "warmup": None if self.warmup is None else self.warmup.state_dict(),
            "own": self.own_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all of it."""
        self._named = None
        self._points = int(state.get("points", 0))
        self._previous = int(state.get("previous", ORIGIN))
        self._trigger = int(state.get("trigger", ORIGIN))
        self._has_model = bool(state.get("has_model", False))
        if self.warmup is not None:
            self.warmup.load_state_dict(state.get("warmup") or {})
        self.load_own_state(state.get("own", {}))

    def _decision_point(self, point: int) -> DecisionPoint:
        if self._named is None or self._named[0] != point:
            raise ValueError(f"needs({point}) and decide({point}) must follow the next_point that named it")
        return DecisionPoint(self._points, point, self._previous, self._trigger, self._named[1])

    def _warmup_decision(self, point: DecisionPoint, measured_decision: Decision | None) -> Decision | None:
        """Decision of warm-up; None after warm-up and without a model. The warm-up policy goes on without a model too."""
        if self.warmup is None or point.ordinal >= self.warmup.intervals:
            return None
        reason = self.warmup.fires(point.key, point.stream)
        if measured_decision is None:
            return None
        progress = f"warm-up, point {point.ordinal + 1} of {self.warmup.intervals}"
        return replace(measured_decision, fire=reason is not None, reason=f"{progress}: {reason or measured_decision.reason}")


def value_of(measured: Measured | None, name: str, point: int) -> float | None:
    """The measured value of a name; ``ValueError`` where it was not measured."""
    if measured is None or name not in measured.values:
        names = "nothing" if measured is None else ", ".join(measured.values) or "nothing"
        raise ValueError(f"decide({point}) must be given {name!r}, as needs({point}) asked for; it was given {names}")
    return measured.values[name]
