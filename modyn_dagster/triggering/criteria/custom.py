"""Decision criteria of the user's own, by import path."""

from modyn_dagster.errors import ImportPathError
from modyn_dagster.imports import call_factory
from modyn_dagster.spec.triggers.decision import CustomCriterionRule, Direction
from modyn_dagster.triggering.criteria.criterion import Criterion


def custom_criterion(
    rule: CustomCriterionRule, direction: Direction, *, source: str = "trigger", field: str = "decision"
) -> Criterion:
    """Criterion that ``factory(direction=direction, **config)`` returns.

    Args:
        rule: of the decision.
        direction: side on which scores fire.
        source: file or pipeline of the block, for errors.
        field: of the rule there.

    Raises:
        ImportPathError: the path cannot be imported, or its result is no ``Criterion``.
        ConfigError: the factory refused its config.
    """
    criterion = call_factory(rule.factory, rule.config, source=source, field=field, direction=direction)
    if not isinstance(criterion, Criterion):
        message = f"must return a Criterion of modyn_dagster.triggering.criteria, not {type(criterion).__name__}"
        raise ImportPathError(source, f"{field}.factory", rule.factory, message)
    return criterion
