"""Ticks survive a database that is down: they say so, and the next one looks again."""

from collections.abc import Callable
from typing import TypeVar

import dagster as dg

from modyn_dagster.errors import DatabaseDown, SchemaOutdated, ServerFailed

T = TypeVar("T")


def skip_if_unavailable(tick: Callable[[], T]) -> T | dg.SkipReason:
    """The tick's own result, or a skip that says what is down and which command starts it."""
    try:
        return tick()
    except (DatabaseDown, SchemaOutdated, ServerFailed) as error:
        return dg.SkipReason(str(error))
