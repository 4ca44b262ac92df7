"""Trigger blocks that measure at a point after every ``every`` samples."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Spec
from modyn_dagster.spec.tasks.metrics import ESTIMATED, MetricName, lower_is_better
from modyn_dagster.spec.triggers.base import AmountTriggerSpec, AtLeast, PolicyName, SecondsModel, TimeTriggerSpec, TriggerBase
from modyn_dagster.spec.triggers.decision import (
    Direction,
    DriftDecisionSpec,
    MisclassificationsRule,
    PerformanceDecisionSpec,
    PValueRule,
    RollingMeanRule,
)
from modyn_dagster.spec.triggers.detector import DetectorSpec
from modyn_dagster.spec.triggers.drift import BackendMetric, DriftMetricSpec, FeaturesSpec, UnivariateMetric, WindowsSpec

#: Drift metrics whose score can be zero or negative: unbiased estimates of distances that are zero without drift.
_SIGNED_DRIFT: Final = frozenset({"mmd", "energy", "lsdd", "learned_kernel"})
#: Tests of evidently whose score is a p-value.
P_VALUE_TESTS: Final = frozenset(
    {
        *("anderson", "cramer_von_mises", "empirical_mmd", "es", "ks", "mannw", "t_test"),
        *("chisquare", "fisher_exact", "g_test", "TVD", "z"),
    }
)
_SIGNED_PERFORMANCE: Final = frozenset({"r2", "quadratic_kappa", "uniformity"})
_RELATIVE: Final = "decision.relative: divides by the mean, and {} can be zero or below; give an absolute deviation"


class WarmupSpec(Spec):
    """Another policy decides during the first ``intervals`` points; what is measured meanwhile still fills dynamic thresholds."""

    intervals: PositiveInt
    policy: Annotated[AmountTriggerSpec | TimeTriggerSpec, Field(discriminator="kind")]


class BatchedTrigger(TriggerBase):
    """A policy with a point at every ``every``-th sample of the run; the first point fires, for there is no model yet."""

    every: PositiveInt = 250
    warmup: WarmupSpec | None = None


class DriftTriggerSpec(BatchedTrigger):
    """Fire when the newest samples differ from those the newest model has seen."""

    kind: Literal["drift"]
    windows: WindowsSpec
    metrics: Annotated[dict[PolicyName, DriftMetricSpec], Field(min_length=1)]
    features: FeaturesSpec = FeaturesSpec()
    decision: DriftDecisionSpec
    aggregate: Literal["majority", "any", "all"] | AtLeast = Field("majority", description="How several metrics agree.")

    @model_validator(mode="after")
    def _enough_metrics(self) -> Self:
        if isinstance(self.aggregate, AtLeast) and self.aggregate.at_least > len(self.metrics):
            raise ValueError(f"aggregate: at least {self.aggregate.at_least} of {len(self.metrics)} metrics can never agree")
        return self

    @model_validator(mode="after")
    def _mean_divides(self) -> Self:
        if isinstance(self.decision, RollingMeanRule) and self.decision.relative:
            for name, metric in self.metrics.items():
                if metric.metric.lower() in _SIGNED_DRIFT:
                    raise ValueError(_RELATIVE.format(f"metrics.{name} ({metric.metric})"))
        return self

    def direction_of(self, metric: DriftMetricSpec) -> Direction:
        """Direction of the metric with drift: up, but down for p-values."""
        own = None if isinstance(self.decision, PValueRule) else self.decision.direction
        return own or ("lower" if _is_p_value(metric) else "higher")


def _is_p_value(metric: DriftMetricSpec) -> bool:
    if isinstance(metric, BackendMetric) and metric.backend == "evidently" and metric.metric in P_VALUE_TESTS:
        return True
    return isinstance(metric, BackendMetric | UnivariateMetric) and metric.reduce == "p_value"


class Forecast(Spec):
    """Decide from the score expected at the next point instead of the one just measured."""

    method: Literal["ridge", "rolling_mean"] = "ridge"
    window: PositiveInt = 15


class PerformanceTriggerSpec(BatchedTrigger):
    """Fire when the newest model gets worse on samples it has not trained on."""

    kind: Literal["performance"]
    metric: MetricName = "accuracy"
    label_free: bool = Field(
        False,
        description="Estimate accuracy, f1, log_loss or roc_auc from calibrated probabilities (CBPE): no labels needed.",
    )
    interval: float | None = Field(
        None,
        gt=0,
        lt=1,
        exclude_if=lambda level: level is None,
        description="With `label_free`: judge the better end of the interval that holds the score with this probability (0.95), "
        "so that only a score that is surely worse fires. Default: judge the estimate.",
    )
    decision: PerformanceDecisionSpec
    forecast: Forecast | None = Field(None, description="Default: hindsight, the measured score.")
    min_coverage: float = Field(
        0,
        ge=0,
        le=1,
        exclude_if=lambda share: share == 0,
        description="Share of the judged samples whose labels must be known; below it they are judged at a later point.",
    )
    maturity: Duration | None = Field(
        None,
        exclude_if=lambda age: age is None,
        description="Where labels arrive later: judge samples, and calibrate on samples, from this age on, labelled or not. "
        "Default: at once, which is biased where the delay of a label depends on it.",
    )

    @model_validator(mode="after")
    def _can_be_measured(self) -> Self:
        if self.label_free and self.metric not in ESTIMATED:
            raise ValueError(f"label_free: accuracy, f1, log_loss and roc_auc can be estimated without labels, not {self.metric}")
        if self.interval is not None and not self.label_free:
            raise ValueError("interval: is that of an estimate, which needs `label_free: true`")
        if self.metric != "accuracy" and isinstance(self.decision, MisclassificationsRule):
            raise ValueError(f"decision: misclassifications are counted from the metric accuracy, not {self.metric}")
        return self

    @model_validator(mode="after")
    def _mean_divides(self) -> Self:
        relative = isinstance(self.decision, RollingMeanRule) and self.decision.relative
        if relative and self.metric in _SIGNED_PERFORMANCE:
            raise ValueError(_RELATIVE.format(f"metric {self.metric}"))
        return self

    @property
    def direction(self) -> Direction:
        """Direction of the metric as the model gets worse."""
        return "higher" if lower_is_better(self.metric) else "lower"


class DetectorTriggerSpec(BatchedTrigger):
    """Fire when a stream detector sounds on the newest model's errors or scores, sample by sample since the last trigger."""

    kind: Literal["detector"]
    stream: Literal["errors", "scores"] = Field("errors", description="0/1 errors (labels needed), or 1 - confidence.")
    detector: DetectorSpec

    @model_validator(mode="after")
    def _reads_its_stream(self) -> Self:
        if self.stream == "scores" and self.detector.name in ("ddm", "eddm"):
            raise ValueError(f"stream: {self.detector.name} counts 0/1 errors, it cannot read scores")
        return self


class CostTriggerSpec(BatchedTrigger):
    """Fire when the regret of waiting reaches what a training costs.

    Regret is data-incorporation latency in sample-seconds (the sum over samples since the last trigger of how long each has
    waited) or avoidable misclassifications since then; the cost is ``regret_per_training_second`` times the seconds that ridge
    regression on (samples, seconds) forecasts for a training now.
    """

    kind: Literal["cost"]
    signal: Literal["latency", "misclassifications"]
    regret_per_training_second: PositiveFloat
    history: PositiveInt = Field(1000, description="Trainings that the forecast is fitted to.")
    expected_accuracy: Annotated[float, Field(ge=0, le=1)] | Literal["calibrate"] = Field(
        1.0, description="For misclassifications: those beyond it are avoidable; at 1.0 every one is."
    )
    seconds: SecondsModel | None = Field(None, description="What a training costs, instead of a forecast from measured seconds.")
