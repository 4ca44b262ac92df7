"""Decision criteria of the user's own, by import path."""

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.imports import import_callable
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
    make = import_callable(rule.factory, source=source, field=f"{field}.factory")
    try:
        criterion = make(direction=direction, **rule.config)
    except Exception as error:
        message = f"{rule.factory} refused it: {type(error).__name__}: {error}"
        raise ConfigError(source, f"{field}.config", rule.config, message) from error
    if not isinstance(criterion, Criterion):
        message = f"must return a Criterion of modyn_dagster.triggering.criteria, not {type(criterion).__name__}"
        raise ImportPathError(source, f"{field}.factory", rule.factory, message)
    return criterion
