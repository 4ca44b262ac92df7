"""Selection by a strategy or a statement of the user's own, and the details that a training set records of it."""

from typing import Any, Final

from modyn_dagster.catalog.results.training_sets import TrainingSetRow
from modyn_dagster.data.windows.window_columns import WindowColumns
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.selection import History, strategy_at
from modyn_dagster.selection.own.choice import Origin, OwnSelection
from modyn_dagster.selection.own.custom import custom_selection
from modyn_dagster.selection.own.sql import sql_selection
from modyn_dagster.selection.own.user_code import code_path
from modyn_dagster.spec.strategies.own import CustomStrategySpec, SQLStrategySpec
from modyn_dagster.values.digest import source_digest

#: Detail of a training set that code of the user's chose: its import path, the digest of its module, and if it is certified.
OWN: Final = "own_strategy"


def own_selection(
    context: TriggerContext, strategy: CustomStrategySpec | SQLStrategySpec, pool: WindowColumns, history: History
) -> tuple[OwnSelection, dict[str, Any]]:
    """Return the selection of a trigger, and the details to record with it. Nothing is written for a choice that is refused."""
    spec, place = context.spec.selection, {"seed": context.run.seed, "trigger": context.trigger.ordinal}
    block = next(field for field, each in reversed(spec.by_field.items()) if each is strategy)
    pool = pool.repeatable()
    source = f"pipeline {context.spec.name}"
    if isinstance(strategy, CustomStrategySpec):
        origin = Origin(source, f"{block}.factory", strategy.factory)
        chosen = custom_selection(spec, strategy, pool, **place, history=history, origin=origin)
    else:
        origin = Origin(source, f"{block}.statement", strategy.statement)
        chosen = sql_selection(spec, strategy, context.view, pool, **place, origin=origin)
    return chosen, {OWN: {"path": origin.path, "code": source_digest([origin.path]), "certified": chosen.certified}}


def is_certified(row: TrainingSetRow) -> bool:
    """Tell if inclusion probabilities are known, at least in principle: only code of the user's may keep them to itself."""
    return bool(row.details.get(OWN, {}).get("certified", True))


def changed_code(context: TriggerContext, row: TrainingSetRow) -> str:
    """Say that the module with the user's strategy is another one than at the selection of a recorded set; else empty."""
    path = code_path(strategy_at(context.spec.selection, context.trigger.ordinal))
    if path is None or row.details.get(OWN, {}).get("code") in (None, source_digest([path])):
        return ""
    return f"; the code of {path} has changed since"
