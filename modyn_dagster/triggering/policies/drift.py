"""Drift policy: fire when the newest samples differ from those that the newest model has seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.triggers.drift import AmountWindows, DriftMetricSpec, FeaturesSpec, WindowsSpec
from modyn_dagster.triggering.criteria import Criterion, Verdict
from modyn_dagster.triggering.measurement import DriftNeed, Measured
from modyn_dagster.triggering.policies.batched import BatchedPolicy, DecisionPoint, Warmup, value_of
from modyn_dagster.triggering.policy import Decision, State
from modyn_dagster.triggering.stream.loaded_batch import SECOND


@dataclass(frozen=True, slots=True)
class Comparison:
    """Measurement between two windows.

    Attributes:
        windows: their lengths.
        metrics: by name.
        features: features of the samples that are compared.
        p_values: measure p-values instead of scores.
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

    Every metric has a criterion of its own, and ``needed`` of the criteria must fire. Score and threshold of the decision are
    those of the metric whose vote, in the order of the block, was the last one needed; ``details["metrics"]`` holds all.

    Args:
        every: number of samples between two points.
        comparison: windows, metrics and features.
        criteria: one for each metric.
        needed: number of criteria that must fire.
        warmup: decides at the first points.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> windows = {"by": "amount", "reference": 4, "current": 2}
    >>> trigger = {"kind": "drift", "every": 2, "windows": windows, "metrics": {"mmd": {"metric": "mmd"}}}
    >>> policy = build_policy(trigger | {"decision": {"rule": "threshold", "value": 0.5}})
    >>> [decision.reason for decision in simulate(policy, range(6), scores=[0.0, 0.2, 0.6])]
    ['no model yet', 'mmd 0.2 < 0.5', 'mmd 0.6 >= 0.5']
    """

    def __init__(
        self, every: int, comparison: Comparison, criteria: Mapping[str, Criterion], needed: int, warmup: Warmup | None = None
    ) -> None:
        super().__init__(every, warmup)
        self.comparison = comparison
        self.criteria = dict(criteria)
        self.needed = needed

    def __repr__(self) -> str:
        return f"DriftPolicy(every={self.every}, {self.comparison!r}, {self.criteria!r}, needed={self.needed})"

    @property
    def depends_on_models(self) -> bool:
        """True for embeddings and outputs. Columns depend on the newest model where a training standardises them."""
        return self.comparison.features.of != "columns"

    def need(self, point: DecisionPoint) -> DriftNeed:
        """All metrics between the two windows."""
        reference, current = self.windows(point)
        comparison = self.comparison
        return DriftNeed(point.ordinal, reference, current, comparison.metrics, comparison.features, comparison.p_values)

    def windows(self, point: DecisionPoint) -> tuple[KeyRange, KeyRange]:
        """Reference and current window at a point."""
        windows, stream = self.comparison.windows, point.stream
        if isinstance(windows, AmountWindows):
            reference = stream.last(windows.reference, point.trigger)
            current = stream.last(windows.current, point.key)
        else:
            reference = _last_samples(windows.reference, point.trigger, point)
            current = _last_samples(windows.current, point.key, point)
        if not windows.overlap:
            current = KeyRange(max(current.after, point.trigger), current.until)
        return reference, current

    def judge(self, point: DecisionPoint, measured: Measured | None) -> Decision:
        """Judge every metric by its criterion, and count the criteria that fire."""
        verdicts = {name: criterion.judge(name, value_of(measured, name, point.key)) for name, criterion in self.criteria.items()}
        reference, current = self.windows(point)
        sizes = [point.stream.count(window.after, window.until) for window in (reference, current)]
        details = {"n_reference": sizes[0], "n_current": sizes[1]}
        if len(verdicts) == 1:
            [verdict] = verdicts.values()
            return Decision(verdict.fire, point.key, verdict.reason, verdict.score, verdict.threshold, details)
        return self._combined_decision(point.key, verdicts, details)

    def own_state(self) -> State:
        """State of the criteria by metric."""
        return {name: criterion.state_dict() for name, criterion in self.criteria.items()}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore the criteria."""
        for name, criterion in self.criteria.items():
            criterion.load_state_dict(state.get(name, {}))

    def _combined_decision(self, point: int, verdicts: Mapping[str, Verdict], details: Mapping[str, Any]) -> Decision:
        firing = [verdict for verdict in verdicts.values() if verdict.fire]
        fire = len(firing) >= self.needed
        reasons = "; ".join(verdict.reason for verdict in (firing if fire else verdicts.values()))
        reason = f"{len(firing)} of {len(verdicts)} metrics see drift, {self.needed} needed: {reasons}"
        tipping = firing[self.needed - 1] if fire else Verdict(False, reason)
        metrics = {name: verdict.as_json() for name, verdict in verdicts.items()}
        return Decision(fire, point, reason, tipping.score, tipping.threshold, {**details, "metrics": metrics})


def _last_samples(duration: str, until: int, point: DecisionPoint) -> KeyRange:
    """Samples at or before ``until`` whose running time lies within ``duration`` before its own."""
    moment = point.stream.moment(until)
    if moment is None:
        return KeyRange(until, until)
    return point.stream.later_than(moment - seconds_of(duration) * SECOND, until)
