"""Performance policy: fire when the newest model gets worse."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.tasks.metrics import MetricName
from modyn_dagster.triggering.criteria import Criterion, Verdict, compared
from modyn_dagster.triggering.measurement import COVERAGE, Measured, PerformanceNeed
from modyn_dagster.triggering.policies.batched import BatchedPolicy, DecisionPoint, Warmup, value_of
from modyn_dagster.triggering.policies.forecasts import ScoreForecast
from modyn_dagster.triggering.policies.misclassification_tally import MisclassificationTally
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import Decision, ModelTrained, State
from modyn_dagster.triggering.stream.loaded_batch import microseconds

_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class MisclassificationLimit:
    """Fires when the avoidable misclassifications since the last trigger reach ``value``.

    With a forecast the next stretch counts too, at the forecast accuracy and as long as this one.
    """

    value: float
    tally: MisclassificationTally

    def judge(self, n: float, accuracy: float, expected: float, forecast: float | None) -> Verdict:
        """Count a stretch and compare the total."""
        self.tally.add(self.tally.avoidable_among(n, accuracy, expected))
        score, name = self.tally.total, "avoidable misclassifications"
        if forecast is not None:
            score, name = score + self.tally.avoidable_among(n, forecast, expected), f"{name} by the next point"
        fire = score >= self.value
        return Verdict(fire, compared(name, score, ">=" if fire else "<", self.value), score, self.value)


class PerformancePolicy(BatchedPolicy):
    """Judges the newest model on the samples since the previous point that it was not trained on (Modyn, SIGMOD 2025, §5.1).

    The rule judges the measured score (hindsight), or the score forecast for the next point. An undefined score (too few
    samples, no labels yet) never fires and is not remembered.

    Args:
        every: number of samples between two points.
        metric: any metric of evaluations; with ``label_free`` one that can be estimated.
        rule: criterion of scores, or limit of misclassifications.
        forecast: None for hindsight.
        windows: of the pipeline's selection; the last training window is the one to calibrate on.
        label_free: estimate the metric from calibrated probabilities.
        interval: probability of the estimate's interval, whose better end is judged; None: the estimate is judged.
        min_coverage: share of the samples whose labels must be known; with fewer the policy waits, and judges them together with
            those up to a later point. Says nothing of estimates with ``label_free``.
        maturity: age, a duration, from which on samples are judged; those behind a younger one wait with it. Estimates with
            ``label_free`` are calibrated on samples of this age, and judge all at once. None: samples are judged at once.
        warmup: decides at the first points.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> trigger = {"kind": "performance", "every": 2, "metric": "accuracy"}
    >>> policy = build_policy(trigger | {"decision": {"rule": "threshold", "value": 0.8}})
    >>> [decision.reason for decision in simulate(policy, range(6), scores=[0.0, 0.9, 0.7])]
    ['no model yet', 'accuracy 0.9 > 0.8', 'accuracy 0.7 <= 0.8']
    """

    def __init__(  # noqa: PLR0913 - the last ones have defaults and are given by name
        self,
        every: int,
        metric: MetricName,
        rule: Criterion | MisclassificationLimit,
        *,
        forecast: ScoreForecast | None = None,
        windows: TrainingWindows,
        label_free: bool = False,
        interval: float | None = None,
        min_coverage: float = 0,
        maturity: str | None = None,
        warmup: Warmup | None = None,
    ) -> None:
        super().__init__(every, warmup)
        self.metric = metric
        self.rule = rule
        self.forecast = forecast
        self.windows = windows
        self.label_free = label_free
        self.interval = interval
        self.min_coverage = min_coverage
        self.maturity = maturity
        # Key after which samples are not judged yet, while the policy waits for their labels or for their age.
        self._waits_after: int | None = None

    def __repr__(self) -> str:
        return f"PerformancePolicy(every={self.every}, {self.metric!r}, {self.rule!r}, forecast={self.forecast!r})"

    def need(self, point: DecisionPoint) -> PerformanceNeed | None:
        """The metric on new samples, and the last training window where something is calibrated on it; None without samples."""
        calibrates = self.label_free or (isinstance(self.rule, MisclassificationLimit) and self.rule.tally.calibrates)
        calibrate = self.windows.newest(point.stream) if calibrates else None
        window = self._window(point)
        if self.maturity is not None and window.until <= window.after:
            return None
        return PerformanceNeed(point.ordinal, window, self.metric, self.label_free, calibrate, self.interval, self.maturity)

    def _window(self, point: DecisionPoint) -> KeyRange:
        """Samples to judge; empty where all new ones are too young."""
        after = point.unseen_after if self._waits_after is None else max(self._waits_after, point.trigger)
        if self.maturity is None or self.label_free:
            return KeyRange(after, point.key)
        moment = microseconds(point.stream.time(point.key)) - seconds_of(self.maturity) * _MICROSECONDS
        # Running times: whatever is before the first younger sample is old enough.
        return KeyRange(after, max(after, point.stream.later_than(moment, point.key).after))

    def judge(self, point: DecisionPoint, measured: Measured | None) -> Decision:
        """Judge the measured score, or the forecast one."""
        window, young = self._window(point), dict[str, Any]()
        if self.maturity is not None and not self.label_free:
            young = {"n_immature": point.stream.count(window.until, point.key)}
            if window.until <= window.after:
                self._waits_after = window.after
                reason = f"no new sample is {self.maturity} old, {young['n_immature']} are younger"
                return Decision(False, point.key, reason, details={"n_samples": 0.0, **young})
        score, n = value_of(measured, self.metric, point.key), value_of(measured, "n_samples", point.key) or 0.0
        details: dict[str, Any] = {"n_samples": n, **young}
        if self.min_coverage and not self.label_free:
            # Measured where labels arrive later only; elsewhere every sample has one.
            coverage = 1.0 if measured is None else measured.values.get(COVERAGE, 1.0) or 0.0
            details[COVERAGE] = coverage
            if coverage < self.min_coverage:
                self._waits_after = window.after
                reason = f"labels of {coverage:.1%} of the samples are known, below min_coverage {self.min_coverage:.1%}"
                return Decision(False, point.key, reason, details=details)
        self._waits_after = window.until if young else None
        if score is None or not isfinite(score):
            return Decision(False, point.key, f"{self.metric} is undefined here ({n:g} samples judged)", details=details)
        forecast = None if self.forecast is None else self.forecast.update(score)
        if forecast is not None:
            details |= {"measured": score, "forecast": forecast}
        if isinstance(self.rule, Criterion):
            name = self.metric if forecast is None else f"{self.metric} forecast"
            verdict = self.rule.judge(name, score if forecast is None else forecast)
        else:
            expected = self.rule.tally.expected(measured, point.key)
            details |= {"accuracy": score, "expected_accuracy": expected}
            if expected is None:
                return Decision(False, point.key, "the accuracy to expect could not be measured", details=details)
            verdict = self.rule.judge(n, score, expected, forecast)
        return Decision(verdict.fire, point.key, verdict.reason, verdict.score, verdict.threshold, details)

    def triggered(self, key: int) -> None:
        """Reset count and forecast."""
        super().triggered(key)
        self._waits_after = None
        if isinstance(self.rule, MisclassificationLimit):
            self.rule.tally.reset()
        if self.forecast is not None:
            self.forecast.reset()

    def model_trained(self, trained: ModelTrained) -> None:
        """Remember the training window to calibrate on."""
        super().model_trained(trained)
        self.windows.trained(trained.key)

    def own_state(self) -> State:
        """State of rule and forecast, keys of trained triggers, and the samples whose labels are waited for."""
        waits = {} if self._waits_after is None else {"waits_after": self._waits_after}
        return waits | {name: part.state_dict() for name, part in self._stateful_parts().items()}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore all of it."""
        waits_after = state.get("waits_after")
        self._waits_after = None if waits_after is None else int(waits_after)
        for name, part in self._stateful_parts().items():
            part.load_state_dict(state.get(name, {}))

    def _stateful_parts(self) -> dict[str, Criterion | MisclassificationTally | ScoreForecast | TrainingWindows]:
        rule = self.rule.tally if isinstance(self.rule, MisclassificationLimit) else self.rule
        return {"rule": rule, "windows": self.windows} | ({} if self.forecast is None else {"forecast": self.forecast})
