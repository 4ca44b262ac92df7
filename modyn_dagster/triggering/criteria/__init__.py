"""Decision criteria of scores: one for each rule of a ``decision`` block."""

from modyn_dagster.spec.triggers.decision import (
    CustomCriterionRule,
    Direction,
    PValueRule,
    QuantileRule,
    RollingMeanRule,
    ThresholdRule,
)
from modyn_dagster.triggering.criteria.criterion import Criterion, Verdict, compared
from modyn_dagster.triggering.criteria.custom import custom_criterion
from modyn_dagster.triggering.criteria.quantile import CalibratedQuantile, DynamicQuantile
from modyn_dagster.triggering.criteria.rolling_mean import RollingMean
from modyn_dagster.triggering.criteria.threshold import FixedThreshold, PValueThreshold

__all__ = ["Criterion", "ScoreRuleSpec", "Verdict", "build_criterion", "compared"]

ScoreRuleSpec = ThresholdRule | QuantileRule | RollingMeanRule | CustomCriterionRule | PValueRule


def build_criterion(rule: ScoreRuleSpec, default: Direction) -> Criterion:
    """Criterion of a rule; ``default`` is the direction of a rule that names none."""
    if isinstance(rule, PValueRule):
        return PValueThreshold(rule.alpha)
    direction = rule.direction or default
    match rule:
        case ThresholdRule():
            return FixedThreshold(rule.value, direction)
        case QuantileRule():
            quantile = CalibratedQuantile if rule.calibrated else DynamicQuantile
            return quantile(rule.window, rule.quantile, direction)
        case RollingMeanRule():
            return RollingMean(rule.window, rule.deviation, direction, relative=rule.relative)
        case CustomCriterionRule():
            return custom_criterion(rule, direction)
