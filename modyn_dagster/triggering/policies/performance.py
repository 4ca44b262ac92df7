"""Fire when the newest model gets worse."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from modyn_dagster.keys import KeyRange
from modyn_dagster.spec.evaluation import MetricName
from modyn_dagster.triggering.criteria import Criterion, Verdict, compared
from modyn_dagster.triggering.measurement import Measured, PerformanceNeed
from modyn_dagster.triggering.policies.batched import BatchedPolicy, Place, Warmup, value_of
from modyn_dagster.triggering.policies.forecasts import ScoreForecast
from modyn_dagster.triggering.policies.misclassification_tally import MisclassificationTally
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import Decision, ModelTrained, State


@dataclass(frozen=True, slots=True)
class MisclassificationLimit:
    """Fires when the avoidable misclassifications since the last trigger reach ``value``; with a forecast, those of the next
    stretch, as long as this one, are counted in.
    """

    value: float
    tally: MisclassificationTally

    def judge(self, n: float, accuracy: float, expected: float, forecast: float | None) -> Verdict:
        """Count, and compare."""
        self.tally.add(self.tally.among(n, accuracy, expected))
        score, name = self.tally.total, "avoidable misclassifications"
        if forecast is not None:
            score, name = score + self.tally.among(n, forecast, expected), f"{name} by the next point"
        fire = score >= self.value
        return Verdict(fire, compared(name, score, ">=" if fire else "<", self.value), score, self.value)


class PerformancePolicy(BatchedPolicy):
    """Judges the newest model on the samples since the last point that it was not trained on.

    The measured score is judged (hindsight), or the one that a forecast expects at the next point. An undefined score (too
    few samples, no labels yet) never fires, and counts nowhere.

    Args:
        every: samples between two points.
        metric: any metric of evaluations; with ``label_free`` the accuracy, estimated.
        rule: what judges a score, or counts misclassifications.
        forecast: None for hindsight.
        windows: the selection's, for what is calibrated on the last training window.
        label_free: whether the accuracy is estimated from calibrated confidences.
        warmup: decides at the first points.
    """

    def __init__(
        self,
        every: int,
        metric: MetricName,
        rule: Criterion | MisclassificationLimit,
        *,
        forecast: ScoreForecast | None = None,
        windows: TrainingWindows,
        label_free: bool = False,
        warmup: Warmup | None = None,
    ) -> None:
        super().__init__(every, warmup)
        self.metric = metric
        self.rule = rule
        self.forecast = forecast
        self.windows = windows
        self.label_free = label_free

    def __repr__(self) -> str:
        return f"PerformancePolicy(every={self.every}, {self.metric!r}, {self.rule!r}, forecast={self.forecast!r})"

    def need(self, place: Place) -> PerformanceNeed:
        """The metric on what is new; the last training window where something is calibrated on it."""
        calibrates = self.label_free or (isinstance(self.rule, MisclassificationLimit) and self.rule.tally.calibrates)
        calibrate = self.windows.newest(place.stream) if calibrates else None
        return PerformanceNeed(place.ordinal, KeyRange(place.unseen_after, place.point), self.metric, self.label_free, calibrate)

    def judge(self, place: Place, measured: Measured | None) -> Decision:
        """By the measured score, or by the one to expect next."""
        score, n = value_of(measured, self.metric, place.point), value_of(measured, "n_samples", place.point) or 0.0
        details: dict[str, Any] = {"n_samples": n}
        if score is None or not isfinite(score):
            return Decision(False, place.point, f"{self.metric} is undefined here ({n:g} samples judged)", details=details)
        forecast = None if self.forecast is None else self.forecast.after(score)
        if forecast is not None:
            details |= {"measured": score, "forecast": forecast}
        if isinstance(self.rule, Criterion):
            name = self.metric if forecast is None else f"{self.metric} forecast"
            verdict = self.rule.judge(name, score if forecast is None else forecast)
        else:
            expected = self.rule.tally.expected(measured, place.point)
            details |= {"accuracy": score, "expected_accuracy": expected}
            if expected is None:
                return Decision(False, place.point, "the accuracy to expect could not be measured", details=details)
            verdict = self.rule.judge(n, score, expected, forecast)
        return Decision(verdict.fire, place.point, verdict.reason, verdict.score, verdict.threshold, details)

    def triggered(self, key: int) -> None:
        """Counts and forecasts begin again."""
        super().triggered(key)
        if isinstance(self.rule, MisclassificationLimit):
            self.rule.tally.reset()
        if self.forecast is not None:
            self.forecast.reset()

    def model_trained(self, trained: ModelTrained) -> None:
        """Its training window is the one to calibrate on."""
        super().model_trained(trained)
        self.windows.trained(trained.key)

    def own_state(self) -> State:
        """What rule and forecast remember, and the keys of trained triggers."""
        remembered = self._remembered()
        return {name: part.state_dict() for name, part in remembered.items()}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up all of it."""
        for name, part in self._remembered().items():
            part.load_state_dict(state.get(name, {}))

    def _remembered(self) -> dict[str, Criterion | MisclassificationTally | ScoreForecast | TrainingWindows]:
        rule = self.rule.tally if isinstance(self.rule, MisclassificationLimit) else self.rule
        return {"rule": rule, "windows": self.windows} | ({} if self.forecast is None else {"forecast": self.forecast})
