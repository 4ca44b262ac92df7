"""Whether a trigger block can work at all, found out before any run starts."""

from collections.abc import Iterator

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.trigger import (
    BudgetTriggerSpec,
    CooldownTriggerSpec,
    CustomRule,
    CustomTriggerSpec,
    EnsembleTriggerSpec,
    MinimumSamplesTriggerSpec,
    TriggerBase,
)
from modyn_dagster.triggering.custom import custom_policy
from modyn_dagster.triggering.votes import vote_rule


def user_code_errors(spec: TriggerBase, *, source: str, field: str = "trigger") -> Iterator[ConfigError]:
    """What is wrong with the user's policies and rules in a block, at any depth.

    Factories are imported and called with their config; nothing they return is asked anything.

    Args:
        spec: the block.
        source: where it stands, for example ``pipeline shop``.
        field: the block's own name there.
    """
    match spec:
        case CustomTriggerSpec():
            yield from _refused(spec, source, field)
        case EnsembleTriggerSpec():
            if isinstance(spec.rule, CustomRule):
                yield from _refused(spec, source, field)
            for name, member in spec.policies.items():
                yield from user_code_errors(member, source=source, field=f"{field}.policies.{name}")
        case BudgetTriggerSpec() | CooldownTriggerSpec() | MinimumSamplesTriggerSpec():
            yield from user_code_errors(spec.policy, source=source, field=f"{field}.policy")


def _refused(spec: CustomTriggerSpec | EnsembleTriggerSpec, source: str, field: str) -> Iterator[ConfigError]:
    try:
        if isinstance(spec, CustomTriggerSpec):
            custom_policy(spec.factory, spec.config, source=source)
        else:
            vote_rule(spec.rule, len(spec.policies), source=source)
    except ConfigError as error:
        yield ConfigError(source, f"{field}.{error.field}", error.value, error.rule)
