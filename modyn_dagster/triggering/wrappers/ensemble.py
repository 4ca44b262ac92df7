"""Ensemble of policies that vote, each driven at its own points."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.votes import Ballot, VoteRule


class Member:
    """A policy that is asked at each of its own points, whatever the points of the others.

    Attributes:
        name: in the ensemble; the first part of the paths of what it needs.
        policy: the member itself.
        point: its next point; None while it has not arrived or has not been asked for.
        waiting: whether it was asked and the stream was too short: no need to ask again before the stream grows.
        measures: whether it may need something measured.
    """

    __slots__ = ("_cursor", "_decide", "_next_point", "measures", "name", "point", "policy", "waiting")

    def __init__(self, name: str, policy: TriggeringPolicy) -> None:
        self.name = name
        self.policy = policy
        self.point: int | None = None
        self.waiting = False
        self.measures = type(policy).needs is not TriggeringPolicy.needs
        self._cursor: int | None = None
        self._next_point, self._decide = policy.next_point, policy.decide

    def ask(self, cursor: int, stream: Stream) -> int | None:
        """Its next point after its own last one; ``cursor`` is where it begins."""
        if self._cursor is None:
            self._cursor = cursor
        self.point = point = self._next_point(self._cursor, stream)
        self.waiting = point is None
        return point

    def needs(self, point: int) -> MeasurementSpec:
        """What it needs, below its name."""
        return {f"{self.name}/{path}" if path else self.name: need for path, need in self.policy.needs(point).items()}

    def decide(self, point: int, measurement: Measurement | None) -> Decision:
        """Its decision at its point, from what was measured below its name."""
        self._cursor, self.point = point, None
        return self._decide(point, self._own(measurement) if measurement else None)

    def triggered(self, key: int) -> None:
        """It is told of a trigger; its next point may be another one now."""
        self.point, self.waiting = None, False
        self.policy.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """It is told of a model; its next point may be another one now."""
        self.point, self.waiting = None, False
        self.policy.model_trained(trained)

    def state_dict(self) -> State:
        """Where it stands, and the policy's state."""
        return {"cursor": self._cursor, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up both."""
        self.point, self.waiting, self._cursor = None, False, state.get("cursor")
        self.policy.load_state_dict(state.get("policy", {}))

    def _own(self, measurement: Measurement) -> Measurement:
        below = f"{self.name}/"
        own = {path.removeprefix(below): answer for path, answer in measurement.items() if path.startswith(below)}
        return own | {"": measurement[self.name]} if self.name in measurement else own


class EnsemblePolicy(TriggeringPolicy):
    """Fires when enough members have voted since the last trigger (Modyn, SIGMOD 2025, §5.1).

    Members are asked at each of their own points; those that share a point make one decision of the ensemble. A member that
    fires has voted, and its vote stands until a trigger is made. The ensemble fires at a decision that brings a vote, when
    the votes are enough; its key is the largest one that a member voted for. A suppressed fire leaves the votes standing, and
    the next vote fires again. A vote for what is trained already (a tick just before the last trigger) is void.

    Triggers and trained models reach all members; their counters of samples and ticks go on.
    """

    def __init__(self, policies: Mapping[str, TriggeringPolicy], rule: VoteRule) -> None:
        self.policies = dict(policies)
        self.rule = rule
        self._members = [Member(name, policy) for name, policy in policies.items()]
        self._measuring = [member for member in self._members if member.measures]
        # Policies that do not care are not told, and keep the point they named: this is most of the time that an ensemble of
        # amount policies takes.
        self._hear_triggers = [member for member in self._members if member.policy.hears("triggered")]
        self._hear_models = [member for member in self._members if member.policy.hears("model_trained")]
        self._needed = rule.needed
        self._threshold = None if rule.needed is None else float(rule.needed)
        self._stream: Stream | None = None
        self._last = ORIGIN
        self._ballot = Ballot(list(policies), rule.name)

    def __repr__(self) -> str:
        return f"EnsemblePolicy({self.policies!r}, rule={self.rule!r})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The nearest point of a member."""
        grown = stream is not self._stream
        self._stream = stream
        nearest = None
        for member in self._members:
            point = member.point
            if point is None and (grown or not member.waiting):
                point = member.ask(cursor, stream)
            if point is not None and (nearest is None or point < nearest):
                nearest = point
        return nearest

    def needs(self, point: int) -> MeasurementSpec:
        """What the members at the point need, below their names."""
        if not self._measuring:
            return {}
        return {path: need for member in self._measuring if member.point == point for path, need in member.needs(point).items()}

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """The members at the point decide; if that brings a vote, the votes are counted."""
        ballot = self._ballot
        asked = came = False
        shown: dict[str, dict[str, Any]] | None = None
        for member in self._members:
            if member.point != point:
                continue
            asked = True
            decision = member.decide(point, measurement)
            if decision.fire and decision.key > self._last:
                came = True
                ballot.take(member.name, decision.key, decision.reason)
            if decision.details:
                shown = {**(shown or {}), member.name: _shown(decision)}
        if not asked:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        count, needed, now = len(ballot.voted), self._needed, ballot.show()
        fire = came and (count >= needed if needed is not None else self.rule.asks_user(now.votes))
        details = now.details if shown is None else {**now.details, "members": shown}
        return Decision(fire, ballot.key if fire else point, now.reason, float(count), self._threshold, details)

    def triggered(self, key: int) -> None:
        """All votes are cleared; every member is told."""
        self._last = key
        self._ballot.clear()
        for member in self._hear_triggers:
            member.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Every member is told."""
        for member in self._hear_models:
            member.model_trained(trained)

    def hears(self, message: str) -> bool:
        """Of models it need not be told when no member cares."""
        own = getattr(type(self), message) is not EnsemblePolicy.model_trained
        return own or bool(self._hear_models)

    def state_dict(self) -> State:
        """Key of the last trigger, votes since then in their order, and each member's state."""
        votes = self._ballot.as_json()
        return {"last": self._last, "votes": votes, "members": {member.name: member.state_dict() for member in self._members}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up all of it."""
        self._stream = None
        self._last = int(state.get("last", ORIGIN))
        self._ballot.restore(state.get("votes", ()))
        members = state.get("members", {})
        for member in self._members:
            member.load_state_dict(members.get(member.name, {}))


def _shown(decision: Decision) -> dict[str, Any]:
    return {
        "fire": decision.fire,
        "reason": decision.reason,
        "score": decision.score,
        "threshold": decision.threshold,
        "details": decision.details,
    }
