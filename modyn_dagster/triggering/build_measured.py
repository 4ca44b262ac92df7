"""From a trigger block that measures to its policy."""

from modyn_dagster.spec.decision import MisclassificationsRule, PValueRule
from modyn_dagster.spec.measured_trigger import (
    BatchedTrigger,
    CostTriggerSpec,
    DetectorTriggerSpec,
    DriftTriggerSpec,
    PerformanceTriggerSpec,
)
from modyn_dagster.spec.selection import Reach
from modyn_dagster.triggering.avoidable import AvoidableMisclassifications
from modyn_dagster.triggering.batched import BatchedPolicy
from modyn_dagster.triggering.cost import CostPolicy
from modyn_dagster.triggering.criteria import Criterion, build_criterion
from modyn_dagster.triggering.detector_policy import DetectorPolicy
from modyn_dagster.triggering.drift_policy import Compared, DriftPolicy
from modyn_dagster.triggering.forecast import TrainingSeconds
from modyn_dagster.triggering.performance import MisclassificationLimit, PerformancePolicy
from modyn_dagster.triggering.regret import LatencyRegret, MisclassificationRegret, Regret
from modyn_dagster.triggering.score_forecast import ScoreForecast
from modyn_dagster.triggering.training_windows import TrainingWindows
from modyn_dagster.triggering.votes import needed_of
from modyn_dagster.triggering.warmup import Warmup


def measured_policy(spec: BatchedTrigger, warmup: Warmup | None, *, window: Reach, limit: int | None) -> BatchedPolicy:
    """The policy of a drift, performance, detector or cost block; ``window`` and ``limit`` are the selection's."""
    windows = TrainingWindows(window, limit)
    match spec:
        case DriftTriggerSpec():
            return _drift(spec, warmup)
        case PerformanceTriggerSpec():
            return _performance(spec, windows, warmup)
        case DetectorTriggerSpec():
            return DetectorPolicy(spec.every, spec.detector, spec.stream, warmup)
        case CostTriggerSpec():
            seconds = TrainingSeconds(spec.seconds, spec.history)
            return CostPolicy(spec.every, _regret(spec), spec.regret_per_training_second, seconds, windows, warmup)
        case _:
            raise TypeError(f"no policy for {type(spec).__name__}")


def _drift(spec: DriftTriggerSpec, warmup: Warmup | None) -> DriftPolicy:
    p_values = isinstance(spec.decision, PValueRule)
    criteria = {name: build_criterion(spec.decision, spec.direction_of(metric)) for name, metric in spec.metrics.items()}
    compared = Compared(spec.windows, spec.metrics, spec.features, p_values)
    return DriftPolicy(spec.every, compared, criteria, needed_of(spec.aggregate, len(criteria)), warmup)


def _performance(spec: PerformanceTriggerSpec, windows: TrainingWindows, warmup: Warmup | None) -> PerformancePolicy:
    decision = spec.decision
    rule: Criterion | MisclassificationLimit
    if isinstance(decision, MisclassificationsRule):
        tally = AvoidableMisclassifications(decision.expected_accuracy, allow_reduction=decision.allow_reduction)
        rule = MisclassificationLimit(decision.value, tally)
    else:
        rule = build_criterion(decision, spec.direction)
    forecast = None if spec.forecast is None else ScoreForecast(spec.forecast, spec.metric)
    return PerformancePolicy(
        spec.every, spec.metric, rule, forecast=forecast, windows=windows, label_free=spec.label_free, warmup=warmup
    )


def _regret(spec: CostTriggerSpec) -> Regret:
    if spec.signal == "latency":
        return LatencyRegret()
    return MisclassificationRegret(AvoidableMisclassifications(spec.expected_accuracy))
