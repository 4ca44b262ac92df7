"""Base of the policies that measure at every n-th sample, and their warm-up by another policy."""

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
    """A policy that decides during the first ``intervals`` points of another one.

    It is driven as if it were on its own, at all of its own points up to a point of the other policy, and fires there if it
    fired at any of them; its ``max_triggers`` counts its own fires.
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
        """Its place and the policy's state."""
        return {"cursor": self._cursor, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up both."""
        self._cursor = int(state.get("cursor", ORIGIN))
        self.policy.load_state_dict(state.get("policy", {}))


NO_MODEL: Final = "no model yet"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batched policy stands when it is asked something.

    Attributes:
        ordinal: number of the point, from 0.
        point: its key.
        previous: the point before; ``ORIGIN`` before the first one.
        trigger: key of the last trigger; ``ORIGIN`` before the first one.
        stream: as it is known at the point.
    """

    ordinal: int
    point: int
    previous: int
    trigger: int
    stream: Stream

    @property
    def unseen_after(self) -> int:
        """Key after which lies what is new at this point and was not trained on."""
        return max(self.previous, self.trigger)


class BatchedPolicy(TriggeringPolicy):
    """A point at every ``every``-th sample of the run, counted from its origin.

    As long as there is no model every point fires, with reason ``no model yet``, and nothing is measured: usually the first
    one, also the second where the first training failed. During warm-up another policy decides; what is measured meanwhile
    is remembered, and does not fire. ``triggered`` moves windows and resets counters, whoever made the trigger.
    """

    def __init__(self, every: int, warmup: Warmup | None = None) -> None:
        self.every = every
        self.warmup = warmup
        self._asked: tuple[int, Stream] | None = None
        self._points = 0
        self._previous = ORIGIN
        self._trigger = ORIGIN
        self._has_model = False

    @abstractmethod
    def need(self, place: Place) -> Need | None:
        """What to measure at a place, given a model; None where nothing is."""

    @abstractmethod
    def judge(self, place: Place, measured: Measured | None) -> Decision:
        """Decide from what was measured; called at every point since there is a model, in warm-up too."""

    @abstractmethod
    def own_state(self) -> State:
        """What the policy itself remembers, as JSON values."""

    @abstractmethod
    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up the state of ``own_state``; an empty state is a fresh start."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The ``every``-th sample after the last point; the cursor may lie anywhere between."""
        point = stream.nth_after(self._previous, self.every)
        self._asked = None if point is None else (point, stream)
        return point

    def needs(self, point: int) -> MeasurementSpec:
        """The policy's need, once there is a model."""
        need = self.need(self._place(point)) if self._has_model else None
        return {} if need is None else {"": need}

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Fires without a model; after that warm-up decides, then what was measured."""
        place = self._place(point)
        judged = self.judge(place, (measurement or {}).get("")) if self._has_model else None
        warm_up = self._warm_up(place, judged)
        self._points += 1
        self._previous, self._asked = point, None
        return warm_up or judged or Decision(True, point, NO_MODEL)

    def triggered(self, key: int) -> None:
        """The trigger from which windows are counted."""
        self._trigger = key

    def model_trained(self, trained: ModelTrained) -> None:
        """From now on there is something to measure."""
        self._has_model = True

    def state_dict(self) -> State:
        """Points counted, last point and trigger, whether there is a model; what warm-up and the policy itself remember."""
        return {
            "points": self._points,
            "previous": self._previous,
            "trigger": self._trigger,
            "has_model": self._has_model,
            "warmup": None if self.warmup is None else self.warmup.state_dict(),
            "own": self.own_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up all of it."""
        self._asked = None
        self._points = int(state.get("points", 0))
        self._previous = int(state.get("previous", ORIGIN))
        self._trigger = int(state.get("trigger", ORIGIN))
        self._has_model = bool(state.get("has_model", False))
        if self.warmup is not None:
            self.warmup.load_state_dict(state.get("warmup") or {})
        self.load_own_state(state.get("own", {}))

    def _place(self, point: int) -> Place:
        if self._asked is None or self._asked[0] != point:
            raise ValueError(f"needs({point}) and decide({point}) must follow the next_point that named it")
        return Place(self._points, point, self._previous, self._trigger, self._asked[1])

    def _warm_up(self, place: Place, judged: Decision | None) -> Decision | None:
        """The decision of warm-up; None once it is over. Its policy goes on where the fire is forced, too."""
        if self.warmup is None or place.ordinal >= self.warmup.intervals:
            return None
        reason = self.warmup.fires(place.point, place.stream)
        if judged is None:
            return None
        shown = f"warm-up, point {place.ordinal + 1} of {self.warmup.intervals}"
        return replace(judged, fire=reason is not None, reason=f"{shown}: {reason or judged.reason}")


def value_of(measured: Measured | None, name: str, point: int) -> float | None:
    """A measured value by its name; ``ValueError`` where nothing of the name was measured."""
    if measured is None or name not in measured.values:
        found = "nothing" if measured is None else ", ".join(measured.values) or "nothing"
        raise ValueError(f"decide({point}) must be given {name!r}, as needs({point}) asked for; it was given {found}")
    return measured.values[name]
