"""When to train: one block per triggering policy, told apart by ``kind``."""

from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, StringConstraints, model_validator

from modyn_dagster.spec.base import Duration, ImportPath, Spec
from modyn_dagster.spec.decision import DriftDecisionSpec, PerformanceDecisionSpec
from modyn_dagster.spec.detector import DetectorSpec
from modyn_dagster.spec.drift import DriftMetricSpec, FeaturesSpec, WindowsSpec

PolicyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$", max_length=100)]


class TriggerBase(Spec):
    """What every trigger block may say."""

    max_triggers: PositiveInt | None = Field(None, description="Fire at most this often in one run.")


class AmountTriggerSpec(TriggerBase):
    """Fire at every ``every``-th sample of the training stream."""

    kind: Literal["amount"]
    every: PositiveInt


class TimeTriggerSpec(TriggerBase):
    """Fire at ticks of sample time: ``start + n * every``, n >= 1."""

    kind: Literal["time"]
    every: Duration
    start: datetime | date | None = Field(None, description="UTC unless it names a zone; default: the first sample's time.")


class WarmupSpec(Spec):
    """Another policy decides during the first ``intervals`` points; what is measured meanwhile still fills dynamic thresholds."""

    intervals: PositiveInt
    policy: Annotated[AmountTriggerSpec | TimeTriggerSpec, Field(discriminator="kind")]


class AtLeast(Spec):
    """So many must agree."""

    at_least: PositiveInt


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


class Forecast(Spec):
    """Decide from the score expected at the next point instead of the one just measured."""

    method: Literal["ridge", "rolling_mean"] = "ridge"
    window: PositiveInt = 15


class PerformanceTriggerSpec(BatchedTrigger):
    """Fire when the newest model gets worse on samples it has not trained on."""

    kind: Literal["performance"]
    metric: str = "accuracy"
    label_free: bool = Field(False, description="Estimate the accuracy from calibrated confidences (CBPE): no labels needed.")
    decision: PerformanceDecisionSpec
    forecast: Forecast | None = Field(None, description="Default: hindsight, the measured score.")


class DetectorTriggerSpec(BatchedTrigger):
    """Fire when a stream detector sounds on the newest model's errors or scores, sample by sample since the last trigger."""

    kind: Literal["detector"]
    stream: Literal["errors", "scores"] = Field("errors", description="0/1 errors (labels needed), or 1 - confidence.")
    detector: DetectorSpec


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
    seconds: "SecondsModel | None" = Field(
        None, description="What a training costs, instead of a forecast from measured seconds."
    )


class SecondsModel(Spec):
    """Training seconds by samples; makes cost policies decide the same live and in replay."""

    fixed: Annotated[float, Field(ge=0)] = 0.0
    per_sample: Annotated[float, Field(ge=0)] = 0.0


class EnsembleTriggerSpec(TriggerBase):
    """Fire when enough members have fired since the ensemble last did."""

    kind: Literal["ensemble"]
    policies: Annotated[dict[PolicyName, "TriggerSpec"], Field(min_length=1)]
    rule: Literal["majority", "any", "all"] | AtLeast | "CustomRule" = "majority"

    @model_validator(mode="after")
    def _enough_members(self) -> Self:
        if isinstance(self.rule, AtLeast) and self.rule.at_least > len(self.policies):
            raise ValueError(f"rule: at least {self.rule.at_least} of {len(self.policies)} policies can never agree")
        return self


class CustomRule(Spec):
    """A callable ``(votes: dict[str, bool], **config) -> bool`` by import path."""

    factory: ImportPath
    config: dict[str, Any] = {}


class BudgetTriggerSpec(TriggerBase):
    """Another policy, kept within a cap per sliding window of sample time."""

    kind: Literal["budget"]
    policy: "TriggerSpec"
    per: Duration
    triggers: PositiveInt | None = None
    samples: PositiveInt | None = None
    seconds: PositiveFloat | None = None
    cost: SecondsModel | None = Field(None, description="What a training costs, instead of a forecast; for `seconds`.")

    @model_validator(mode="after")
    def _caps_something(self) -> Self:
        if self.triggers is None and self.samples is None and self.seconds is None:
            raise ValueError("give at least one of triggers, samples and seconds")
        return self


class CooldownTriggerSpec(TriggerBase):
    """Another policy, quiet for so many samples or so long after each trigger."""

    kind: Literal["cooldown"]
    policy: "TriggerSpec"
    samples: PositiveInt | None = None
    duration: Duration | None = None

    @model_validator(mode="after")
    def _one_measure(self) -> Self:
        if (self.samples is None) == (self.duration is None):
            raise ValueError("give either samples or duration")
        return self


class MinimumSamplesTriggerSpec(TriggerBase):
    """Another policy, quiet until so many samples have arrived since the last trigger."""

    kind: Literal["minimum_samples"]
    policy: "TriggerSpec"
    samples: PositiveInt


class CustomTriggerSpec(TriggerBase):
    """A policy of the user's: ``factory(**config)`` returns a ``TriggeringPolicy``."""

    kind: Literal["custom"]
    factory: ImportPath
    config: dict[str, Any] = {}


TriggerSpec = Annotated[
    AmountTriggerSpec
    | TimeTriggerSpec
    | DriftTriggerSpec
    | PerformanceTriggerSpec
    | DetectorTriggerSpec
    | CostTriggerSpec
    | EnsembleTriggerSpec
    | BudgetTriggerSpec
    | CooldownTriggerSpec
    | MinimumSamplesTriggerSpec
    | CustomTriggerSpec,
    Field(discriminator="kind"),
]

for _block in (EnsembleTriggerSpec, BudgetTriggerSpec, CooldownTriggerSpec, MinimumSamplesTriggerSpec, CostTriggerSpec):
    _block.model_rebuild()
