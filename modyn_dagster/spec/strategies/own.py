"""Strategies of a user's own: a function over the arrays of a window, or a statement that Postgres runs."""

from typing import Annotated, Any, Literal

from pydantic import Field

from modyn_dagster.spec.base import Duration, ImportPath
from modyn_dagster.spec.strategies.sized import Sized, Weighing

#: Statements that take longer fail their attempt.
DEFAULT_TIMEOUT = "5m"


class CustomStrategySpec(Sized):
    """A strategy of the user's: ``factory(**config)`` returns a function from the samples of a window to those chosen."""

    kind: Literal["custom"]
    factory: ImportPath
    config: dict[str, Any] = {}
    attributes: list[Annotated[str, Field(min_length=1)]] = Field(
        [], description="Attributes that the strategy reads, as text; they need `backend: postgres`."
    )
    usage: bool = Field(
        False, description="Count for each sample the earlier training sets of the run that hold it; they must be kept for this."
    )


class SQLStrategySpec(Weighing):
    """A statement of the user's: a callable gets the samples of the window and returns an SQLAlchemy ``select`` of keys.

    A column ``chance`` holds inclusion probabilities. Of more keys than the size those with the smallest salted hashes are kept.
    """

    kind: Literal["sql"]
    statement: ImportPath
    timeout: Duration = Field(DEFAULT_TIMEOUT, description="Longest time of the statement; then the attempt fails.")
