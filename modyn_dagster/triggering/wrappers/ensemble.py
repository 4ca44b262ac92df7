"""Ensemble of policies that vote, each driven at its own points."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.votes import Ballot, VoteRule


class Member:
    """Policy of an ensemble, driven at its own points.

    Attributes:
        name: in the ensemble; first part of the paths of its needs.
        policy: the policy itself.
        point: next point; None while it is unknown or has not arrived.
        waiting: the next point has not arrived; it is looked up again once the stream grows.
        measures: the policy may need measurements.
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
        """Look up the point after the member's last one; ``cursor`` is where the first search begins."""
        if self._cursor is None:
            self._cursor = cursor
        self.point = point = self._next_point(self._cursor, stream)
        self.waiting = point is None
        return point

    def needs(self, point: int) -> MeasurementSpec:
        """Needs at a point, below the member's name."""
        return {f"{self.name}/{path}" if path else self.name: need for path, need in self.policy.needs(point).items()}

    def decide(self, point: int, measurement: Measurement | None) -> Decision:
        """Decision at the member's point, from the measurements below its name."""
        self._cursor, self.point = point, None
        return self._decide(point, self._own(measurement) if measurement else None)

    def triggered(self, key: int) -> None:
        """Pass a trigger on; the next point may change."""
        self.point, self.waiting = None, False
        self.policy.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Pass a model on; the next point may change."""
        self.point, self.waiting = None, False
        self.policy.model_trained(trained)

    def state_dict(self) -> State:
        """Last point and state of the policy."""
        return {"cursor": self._cursor, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        self.point, self.waiting, self._cursor = None, False, state.get("cursor")
        self.policy.load_state_dict(state.get("policy", {}))

    def _own(self, measurement: Measurement) -> Measurement:
        below = f"{self.name}/"
        own = {path.removeprefix(below): answer for path, answer in measurement.items() if path.startswith(below)}
        return own | {"": measurement[self.name]} if self.name in measurement else own


class EnsemblePolicy(TriggeringPolicy):
    """Fires when enough members have voted since the last trigger (Modyn, SIGMOD 2025, §5.1).

    Members decide at their own points; those that share a point make one decision of the ensemble. A member that fires has
    voted, and its vote stands until the next trigger. The ensemble fires at a decision that brings a vote, once the votes are
    enough. Its key is the largest one that a member voted for. A suppressed fire leaves the votes standing, and the next vote
    fires again. A vote for samples that are trained on already (a tick just before the last trigger) is void.

    Triggers and trained models reach all members; their counters of samples and ticks go on.

    Args:
        policies: members by name.
        rule: counts the votes.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> members = {"often": {"kind": "amount", "every": 2}, "seldom": {"kind": "amount", "every": 5}}
    >>> policy = build_policy({"kind": "ensemble", "policies": members, "rule": "all"})
    >>> [decision.index for decision in simulate(policy, range(12)) if decision.fire]
    [4, 9]
    """

    def __init__(self, policies: Mapping[str, TriggeringPolicy], rule: VoteRule) -> None:
        self.policies = dict(policies)
        self.rule = rule
        self._members = [Member(name, policy) for name, policy in policies.items()]
        self._measuring = [member for member in self._members if member.measures]
        # Members that ignore a message are not called and keep the point they named; these calls would take most of the time of
        # an ensemble of amount policies.
        self._trigger_listeners = [member for member in self._members if member.policy.hears("triggered")]
        self._model_listeners = [member for member in self._members if member.policy.hears("model_trained")]
        self._needed = rule.needed
        self._threshold = None if rule.needed is None else float(rule.needed)
        self._stream: Stream | None = None
        self._last = ORIGIN
        self._ballot = Ballot(list(policies), rule.name)

    def __repr__(self) -> str:
        return f"EnsemblePolicy({self.policies!r}, rule={self.rule!r})"

    @property
    def depends_on_models(self) -> bool:
        """As any of the members."""
        return any(policy.depends_on_models for policy in self.policies.values())

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
        """Needs of the members at the point, below their names."""
        if not self._measuring:
            return {}
        return {path: need for member in self._measuring if member.point == point for path, need in member.needs(point).items()}

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Let the members at the point decide, and count the votes if one was added."""
        ballot = self._ballot
        any_member = new_vote = False
        member_details: dict[str, dict[str, Any]] | None = None
        for member in self._members:
            if member.point != point:
                continue
            any_member = True
            decision = member.decide(point, measurement)
            if decision.fire and decision.key > self._last:
                new_vote = True
                ballot.take(member.name, decision.key, decision.reason)
            if decision.details:
                member_details = {**(member_details or {}), member.name: _as_json(decision)}
        if not any_member:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        count, needed, view = len(ballot.voted), self._needed, ballot.view()
        fire = new_vote and (count >= needed if needed is not None else self.rule.accepts(view.votes))
        details = view.details if member_details is None else {**view.details, "members": member_details}
        return Decision(fire, ballot.key if fire else point, view.reason, float(count), self._threshold, details)

    def triggered(self, key: int) -> None:
        """Clear all votes, and pass the trigger on to every member."""
        self._last = key
        self._ballot.clear()
        for member in self._trigger_listeners:
            member.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Pass the model on to every member."""
        for member in self._model_listeners:
            member.model_trained(trained)

    def hears(self, message: str) -> bool:
        """The ensemble reacts to ``message``; to ``model_trained`` only where a member does."""
        own = getattr(type(self), message) is not EnsemblePolicy.model_trained
        return own or bool(self._model_listeners)

    def state_dict(self) -> State:
        """Key of the last trigger, votes since then in their order, and state of each member."""
        votes = self._ballot.as_json()
        return {"last": self._last, "votes": votes, "members": {member.name: member.state_dict() for member in self._members}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all of it."""
        self._stream = None
        self._last = int(state.get("last", ORIGIN))
        self._ballot.restore(state.get("votes", ()))
        members = state.get("members", {})
        for member in self._members:
            member.load_state_dict(members.get(member.name, {}))


def _as_json(decision: Decision) -> dict[str, Any]:
    return {
        "fire": decision.fire,
        "reason": decision.reason,
        "score": decision.score,
        "threshold": decision.threshold,
        "details": decision.details,
    }
