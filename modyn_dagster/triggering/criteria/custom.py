"""Decision criteria of the user's own, by import path."""

from typing import cast

from modyn_dagster.imports import made_by_factory
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
    what = "a Criterion of modyn_dagster.triggering.criteria"
    factory, config = rule.factory, rule.config
    return cast(
        Criterion, made_by_factory(factory, config, Criterion, what=what, source=source, field=field, direction=direction)
    )
