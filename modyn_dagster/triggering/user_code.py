"""Policies, vote rules, criteria, drift metrics and detectors of users by import path, and their check before a run starts."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import made_by_factory
from modyn_dagster.spec.triggers.base import TriggerBase
from modyn_dagster.spec.triggers.decision import CustomCriterionRule
from modyn_dagster.spec.triggers.detector import CustomDetectorSpec
from modyn_dagster.spec.triggers.drift import CustomMetric
from modyn_dagster.spec.triggers.measured import DetectorTriggerSpec, DriftTriggerSpec, PerformanceTriggerSpec
from modyn_dagster.spec.triggers.trigger import (
    BudgetTriggerSpec,
    CooldownTriggerSpec,
    CustomRule,
    CustomTriggerSpec,
    EnsembleTriggerSpec,
    MinimumSamplesTriggerSpec,
)
from modyn_dagster.triggering.criteria.custom import custom_criterion
from modyn_dagster.triggering.detectors.custom import custom_detector
from modyn_dagster.triggering.drift.custom import custom_distance
from modyn_dagster.triggering.policy import TriggeringPolicy
from modyn_dagster.triggering.wrappers.votes import vote_rule


def custom_policy(factory: str, config: Mapping[str, Any], *, source: str = "trigger") -> TriggeringPolicy:
    """Policy that ``factory(**config)`` returns.

    Args:
        factory: import path ``package.module:function``, or that of a class.
        config: keyword arguments of the trigger block.
        source: file or pipeline of the block, for errors.

    Raises:
        ImportPathError: the path cannot be imported, or its result is no ``TriggeringPolicy``.
        ConfigError: the factory refused its config.
    """
    what = "a TriggeringPolicy of modyn_dagster.triggering"
    return cast(TriggeringPolicy, made_by_factory(factory, config, TriggeringPolicy, what=what, source=source))


def user_code_errors(spec: TriggerBase, *, source: str, field: str = "trigger") -> Iterator[ConfigError]:
    """Errors of the user's policies, rules, criteria, metrics and detectors in a block, at any depth.

    Factories are imported and called with their config. Their results are not called.

    Args:
        spec: the block.
        source: file or pipeline of the block, for example ``pipeline shop``.
        field: name of the block there.
    """
    match spec:
        case CustomTriggerSpec():
            yield from _construction_errors(spec, source, field)
        case DriftTriggerSpec() | PerformanceTriggerSpec():
            if isinstance(rule := spec.decision, CustomCriterionRule):
                yield from _errors_of(partial(custom_criterion, rule, "higher", source=source, field=f"{field}.decision"))
            for name, metric in spec.metrics.items() if isinstance(spec, DriftTriggerSpec) else ():
                if isinstance(metric, CustomMetric):
                    yield from _errors_of(partial(custom_distance, metric, source=source, field=f"{field}.metrics.{name}"))
        case DetectorTriggerSpec(detector=CustomDetectorSpec() as detector):
            yield from _errors_of(partial(custom_detector, detector, source=source, field=f"{field}.detector"))
        case EnsembleTriggerSpec():
            if isinstance(spec.rule, CustomRule):
                yield from _construction_errors(spec, source, field)
            for name, member in spec.policies.items():
                yield from user_code_errors(member, source=source, field=f"{field}.policies.{name}")
        case BudgetTriggerSpec() | CooldownTriggerSpec() | MinimumSamplesTriggerSpec():
            yield from user_code_errors(spec.policy, source=source, field=f"{field}.policy")


def _construction_errors(spec: CustomTriggerSpec | EnsembleTriggerSpec, source: str, field: str) -> Iterator[ConfigError]:
    try:
        if isinstance(spec, CustomTriggerSpec):
            custom_policy(spec.factory, spec.config, source=source)
        else:
            vote_rule(spec.rule, len(spec.policies), source=source)
    except ConfigError as error:
        yield ConfigError(source, f"{field}.{error.field}", error.value, error.rule)


def _errors_of(make: Callable[[], object]) -> Iterator[ConfigError]:
    try:
        make()
    except ConfigError as error:
        yield error
