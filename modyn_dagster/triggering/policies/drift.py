"""Fire when the newest samples differ from those the newest model has seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.triggers.drift import AmountWindows, DriftMetricSpec, FeaturesSpec, WindowsSpec
from modyn_dagster.triggering.criteria import Criterion, Verdict
from modyn_dagster.triggering.measurement import DriftNeed, Measured
from modyn_dagster.triggering.policies.batched import BatchedPolicy, Place, Warmup, value_of
from modyn_dagster.triggering.policy import Decision, State

_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is measured between two windows.

    Attributes:
        windows: how far they reach.
        metrics: by name.
        features: what of the samples is compared.
        p_values: whether p-values are measured instead of scores.
    """

    windows: WindowsSpec
    metrics: Mapping[str, DriftMetricSpec]
    features: FeaturesSpec
    p_values: bool = False


class DriftPolicy(BatchedPolicy):
    """Compares a current window with the reference window that ends at the last trigger (Modyn, SIGMOD 2025, §5.1).

    With k the last trigger, p the point and T the running time, windows by amount hold the last ``reference`` samples at or
    before k and the last ``current`` ones of ``(k, p]``; windows by time those with T in ``(T(k) - reference, T(k)]`` at or
    before k, and in ``(T(p) - current, T(p)]`` after k. With overlap the current window may reach back before k.

    Every metric is judged by a criterion of its own; it takes ``needed`` of them to fire. A single metric gives score and
    threshold of the decision. Of several it is the one whose vote, in the order of the block, made it enough; all are in
    ``details["metrics"]``.
    """

    def __init__(
        self, every: int, compared: Comparison, criteria: Mapping[str, Criterion], needed: int, warmup: Warmup | None = None
    ) -> None:
        super().__init__(every, warmup)
        self.compared = compared
        self.criteria = dict(criteria)
        self.needed = needed

    def __repr__(self) -> str:
        return f"DriftPolicy(every={self.every}, {self.compared!r}, {self.criteria!r}, needed={self.needed})"

    def need(self, place: Place) -> DriftNeed:
        """All metrics between the two windows."""
        reference, current = self.windows(place)
        compared = self.compared
        return DriftNeed(place.ordinal, reference, current, compared.metrics, compared.features, compared.p_values)

    def windows(self, place: Place) -> tuple[KeyRange, KeyRange]:
        """Reference and current window at a place."""
        windows, stream = self.compared.windows, place.stream
        if isinstance(windows, AmountWindows):
            reference = stream.last(windows.reference, place.trigger)
            current = stream.last(windows.current, place.point)
        else:
            reference = _last_seconds(windows.reference, place.trigger, place)
            current = _last_seconds(windows.current, place.point, place)
        if not windows.overlap:
            current = KeyRange(max(current.after, place.trigger), current.until)
        return reference, current

    def judge(self, place: Place, measured: Measured | None) -> Decision:
        """Every metric by its criterion, then all of them together."""
        verdicts = {
            name: criterion.judge(name, value_of(measured, name, place.point)) for name, criterion in self.criteria.items()
        }
        reference, current = self.windows(place)
        sizes = [place.stream.count(window.after, window.until) for window in (reference, current)]
        details = {"n_reference": sizes[0], "n_current": sizes[1]}
        if len(verdicts) == 1:
            [verdict] = verdicts.values()
            return Decision(verdict.fire, place.point, verdict.reason, verdict.score, verdict.threshold, details)
        return self._together(place.point, verdicts, details)

    def own_state(self) -> State:
        """What the criteria remember, by metric."""
        return {name: criterion.state_dict() for name, criterion in self.criteria.items()}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up what the criteria remember."""
        for name, criterion in self.criteria.items():
            criterion.load_state_dict(state.get(name, {}))

    def _together(self, point: int, verdicts: Mapping[str, Verdict], details: Mapping[str, Any]) -> Decision:
        firing = [verdict for verdict in verdicts.values() if verdict.fire]
        fire = len(firing) >= self.needed
        reasons = "; ".join(verdict.reason for verdict in (firing if fire else verdicts.values()))
        reason = f"{len(firing)} of {len(verdicts)} metrics see drift, {self.needed} needed: {reasons}"
        tipping = firing[self.needed - 1] if fire else Verdict(False, reason)
        metrics = {name: verdict.as_json() for name, verdict in verdicts.items()}
        return Decision(fire, point, reason, tipping.score, tipping.threshold, {**details, "metrics": metrics})


def _last_seconds(duration: str, until: int, place: Place) -> KeyRange:
    """The samples at or before ``until`` of so long before its time."""
    moment = place.stream.moment(until)
    if moment is None:
        return KeyRange(until, until)
    return place.stream.later_than(moment - seconds_of(duration) * _SECOND, until)
