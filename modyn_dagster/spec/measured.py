"""Which trigger blocks want something measured, by model or on data."""

from collections.abc import Iterator

from modyn_dagster.spec.trigger import (
    BudgetTriggerSpec,
    CooldownTriggerSpec,
    CostTriggerSpec,
    CustomTriggerSpec,
    DetectorTriggerSpec,
    DriftTriggerSpec,
    EnsembleTriggerSpec,
    MinimumSamplesTriggerSpec,
    PerformanceTriggerSpec,
    TriggerBase,
)


def blocks_of(trigger: TriggerBase, field: str = "trigger") -> Iterator[tuple[str, TriggerBase]]:
    """A trigger block and all inside it, each with its dotted field: members of ensembles, what wrappers wrap."""
    yield field, trigger
    match trigger:
        case EnsembleTriggerSpec(policies=members):
            for name, member in members.items():
                yield from blocks_of(member, f"{field}.policies.{name}")
        case BudgetTriggerSpec(policy=inner) | CooldownTriggerSpec(policy=inner) | MinimumSamplesTriggerSpec(policy=inner):
            yield from blocks_of(inner, f"{field}.policy")


def measures(trigger: TriggerBase) -> bool:
    """Whether a policy of this block may ask for a measurement; one of the user's own may."""
    return any(_measures(block) for _, block in blocks_of(trigger))


def _measures(block: TriggerBase) -> bool:
    match block:
        case DriftTriggerSpec() | PerformanceTriggerSpec() | DetectorTriggerSpec() | CustomTriggerSpec():
            return True
        case CostTriggerSpec(signal=signal):
            return signal == "misclassifications"
        case _:
            return False
