"""Check of the code that a selection names, before a run starts."""

from collections.abc import Iterator

from modyn_dagster.data.windows.statements.allowed import StatementOrigin, statement_of
from modyn_dagster.data.windows.statements.window_samples import window_samples
from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import import_callable
from modyn_dagster.selection.own.custom import custom_strategy
from modyn_dagster.spec.selection import SelectionSpec, Strategy, WeightedSpec
from modyn_dagster.spec.strategies.own import CustomStrategySpec, SQLStrategySpec


def selection_code_errors(spec: SelectionSpec, *, source: str) -> Iterator[ConfigError]:
    """Errors of the user's strategies, statements and expressions.

    Factories are called with their config; their results are not. Statements are made of the columns of a window, and looked
    at without a database.

    Args:
        spec: of the selection.
        source: file or pipeline of the block, for example ``pipeline shop``.
    """
    for field, strategy in spec.by_field.items():
        try:
            _try(strategy, source, field)
        except ConfigError as error:
            yield error


def _try(strategy: Strategy, source: str, field: str) -> None:
    match strategy:
        case CustomStrategySpec(factory=factory, config=config):
            custom_strategy(factory, config, source=source, field=field)
        case SQLStrategySpec(statement=path):
            statement_of(StatementOrigin(source, f"{field}.statement", path), window_samples())
        case WeightedSpec(expression=str(path)):
            import_callable(path, source=source, field=f"{field}.expression")
        case _:
            pass


def code_path(strategy: Strategy) -> str | None:
    """Import path of a strategy of the user's own; None for the others."""
    match strategy:
        case CustomStrategySpec(factory=path) | SQLStrategySpec(statement=path):
            return path
        case _:
            return None
