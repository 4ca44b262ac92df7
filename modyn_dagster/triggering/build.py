"""From a trigger block to its policy."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from modyn_dagster.spec.measured_trigger import BatchedTrigger
from modyn_dagster.spec.selection import Reach
from modyn_dagster.spec.trigger import (
    AmountTriggerSpec,
    BudgetTriggerSpec,
    CooldownTriggerSpec,
    CustomTriggerSpec,
    EnsembleTriggerSpec,
    MinimumSamplesTriggerSpec,
    TimeTriggerSpec,
    TriggerBase,
    TriggerSpec,
)
from modyn_dagster.triggering.amount import AmountPolicy
from modyn_dagster.triggering.budget import BudgetPolicy, Caps
from modyn_dagster.triggering.build_measured import measured_policy
from modyn_dagster.triggering.cooldown import CooldownPolicy
from modyn_dagster.triggering.custom import custom_policy
from modyn_dagster.triggering.ensemble import EnsemblePolicy
from modyn_dagster.triggering.forecast import TrainingSeconds
from modyn_dagster.triggering.limited import LimitedPolicy
from modyn_dagster.triggering.minimum_samples import MinimumSamplesPolicy
from modyn_dagster.triggering.policy import TriggeringPolicy
from modyn_dagster.triggering.time import TimePolicy
from modyn_dagster.triggering.training_windows import TrainingWindows
from modyn_dagster.triggering.votes import vote_rule
from modyn_dagster.triggering.warmup import Warmup

_TRIGGER: TypeAdapter[TriggerSpec] = TypeAdapter(TriggerSpec)


def build_policy(
    spec: Mapping[str, Any] | TriggerBase, *, window: Reach = "since_last_trigger", limit: int | None = None
) -> TriggeringPolicy:
    """The policy of a trigger block.

    Args:
        spec: as YAML would give it, or parsed.
        window: that the pipeline's selection reaches back to; budget, cost and calibrated performance policies ask what a
            training would hold.
        limit: the most that a training set of the selection can hold.

    Raises:
        pydantic.ValidationError: a field is impossible; the error names it.
        ImportPathError: user code cannot be imported.

    >>> build_policy({"kind": "amount", "every": 500})
    AmountPolicy(every=500)
    """
    parsed = spec if isinstance(spec, TriggerBase) else _TRIGGER.validate_python(spec)
    policy = _build(parsed, window, limit)
    return policy if parsed.max_triggers is None else LimitedPolicy(policy, parsed.max_triggers)


def _build(spec: TriggerBase, window: Reach, limit: int | None) -> TriggeringPolicy:
    build = partial(build_policy, window=window, limit=limit)
    match spec:
        case AmountTriggerSpec():
            return AmountPolicy(spec.every)
        case TimeTriggerSpec():
            return TimePolicy(spec.every, spec.start)
        case BatchedTrigger():
            warmup = None if spec.warmup is None else Warmup(spec.warmup.intervals, build(spec.warmup.policy))
            return measured_policy(spec, warmup, window=window, limit=limit)
        case EnsembleTriggerSpec():
            members = {name: build(member) for name, member in spec.policies.items()}
            return EnsemblePolicy(members, vote_rule(spec.rule, len(members)))
        case CustomTriggerSpec():
            return custom_policy(spec.factory, spec.config)
        case BudgetTriggerSpec() | CooldownTriggerSpec() | MinimumSamplesTriggerSpec():
            return _wrapped(spec, build(spec.policy), window, limit)
        case _:
            raise TypeError(f"no policy for {type(spec).__name__}")


def _wrapped(
    spec: BudgetTriggerSpec | CooldownTriggerSpec | MinimumSamplesTriggerSpec,
    policy: TriggeringPolicy,
    window: Reach,
    limit: int | None,
) -> TriggeringPolicy:
    match spec:
        case BudgetTriggerSpec():
            caps = Caps(spec.triggers, spec.samples, spec.seconds)
            windows = TrainingWindows(window, limit)
            return BudgetPolicy(policy, spec.per, caps, TrainingSeconds(spec.cost), windows)
        case CooldownTriggerSpec():
            return CooldownPolicy(policy, samples=spec.samples, duration=spec.duration)
        case MinimumSamplesTriggerSpec():
            return MinimumSamplesPolicy(policy, spec.samples)
