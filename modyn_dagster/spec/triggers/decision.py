"""Specs of decisions from a score: one block per ``rule``."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from modyn_dagster.spec.base import Fraction, ImportPath, Spec

Direction = Literal["higher", "lower"]


class ScoreRule(Spec):
    """Base of rules on scores."""

    direction: Direction | None = Field(
        None,
        description="Which way a score must go to fire. Default for drift: higher, but lower for p-values; for performance: the "
        "way the metric gets worse, lower for accuracy.",
    )


class ThresholdRule(ScoreRule):
    """Fires at ``score >= value``; with direction lower at ``score <= value``."""

    rule: Literal["threshold"]
    value: float


class QuantileRule(ScoreRule):
    """AutoDrift (Modyn, SIGMOD 2025, §5.1): fires strictly beyond the quantile of the last ``window`` scores before the new one.

    ``calibrated`` ranks the new score among them instead and fires at rank <= quantile * (window + 1): on exchangeable scores the
    false-alarm rate is then at most ``quantile``.
    """

    rule: Literal["quantile"]
    window: PositiveInt = 15
    quantile: Fraction = 0.05
    calibrated: bool = False

    @model_validator(mode="after")
    def _rank_exists(self) -> Self:
        # A product like 1 / 49 * 49 falls just short of the whole number that it means.
        if self.calibrated and self.quantile * (self.window + 1) < 1 - 1e-9:
            least = 1 / (self.window + 1)
            raise ValueError(f"calibrated: quantile {self.quantile} is below 1 / (window + 1) = {least:.4g}: it could never fire")
        return self


class RollingMeanRule(ScoreRule):
    """Fires when a score lies ``deviation`` or more beyond the mean of the last ``window`` ones before it.

    ``relative``: the deviation is a share of the mean's absolute value. Refused for metrics that can be negative.
    """

    rule: Literal["rolling_mean"]
    window: PositiveInt = 15
    deviation: PositiveFloat
    relative: bool = False


class CustomCriterionRule(ScoreRule):
    """Judges by a criterion of the user's: ``factory(direction=..., **config)`` returns a ``Criterion``."""

    rule: Literal["custom"]
    factory: ImportPath
    config: dict[str, Any] = {}


class PValueRule(Spec):
    """Fires at ``p <= alpha``, p by permutation or as the metric defines it: small p-values are drift."""

    rule: Literal["p_value"]
    alpha: Fraction = 0.01


class MisclassificationsRule(Spec):
    """Fires when the avoidable misclassifications since the last trigger reach ``value``.

    Of ``n`` samples judged with accuracy ``a``, ``max(0, n * (expected_accuracy - a))`` were avoidable; ``allow_reduction`` lets
    better stretches make up for worse ones.
    """

    rule: Literal["misclassifications"]
    value: PositiveFloat
    expected_accuracy: Annotated[float, Field(ge=0, le=1)] | Literal["calibrate"]
    allow_reduction: bool = False


DriftDecisionSpec = Annotated[
    ThresholdRule | QuantileRule | RollingMeanRule | CustomCriterionRule | PValueRule, Field(discriminator="rule")
]
PerformanceDecisionSpec = Annotated[
    ThresholdRule | QuantileRule | RollingMeanRule | CustomCriterionRule | MisclassificationsRule, Field(discriminator="rule")
]
