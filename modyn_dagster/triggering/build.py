"""From a trigger block to its policy."""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from modyn_dagster.spec.trigger import AmountTriggerSpec, TimeTriggerSpec, TriggerBase, TriggerSpec
from modyn_dagster.triggering.amount import AmountPolicy
from modyn_dagster.triggering.limited import LimitedPolicy
from modyn_dagster.triggering.policy import TriggeringPolicy
from modyn_dagster.triggering.time import TimePolicy

_TRIGGER: TypeAdapter[TriggerSpec] = TypeAdapter(TriggerSpec)


def build_policy(spec: Mapping[str, Any] | TriggerBase) -> TriggeringPolicy:
    """The policy of a trigger block, given as YAML would give it or as a parsed spec.

    >>> build_policy({"kind": "amount", "every": 500})
    AmountPolicy(every=500)
    """
    parsed = spec if isinstance(spec, TriggerBase) else _TRIGGER.validate_python(spec)
    policy = _build(parsed)
    return policy if parsed.max_triggers is None else LimitedPolicy(policy, parsed.max_triggers)


def _build(spec: TriggerBase) -> TriggeringPolicy:
    match spec:
        case AmountTriggerSpec():
            return AmountPolicy(spec.every)
        case TimeTriggerSpec():
            return TimePolicy(spec.every, spec.start)
        case _:
            raise TypeError(f"no policy for {type(spec).__name__}")
