"""Ticks survive a database that is down, a full disk and the like: they say so, and the next one looks again."""

from collections.abc import Callable
from typing import TypeVar

import dagster as dg

from modyn_dagster.errors import SchemaOutdated, ServerFailed, is_transient, one_line

T = TypeVar("T")


def skip_if_unavailable(tick: Callable[[], T]) -> T | dg.SkipReason:
    """The tick's own result, or a skip that says what is down or full; the next tick looks again."""
    try:
        return tick()
    except (SchemaOutdated, ServerFailed) as error:
        return dg.SkipReason(str(error))
    except Exception as error:
        if not is_transient(error):
            raise
        return dg.SkipReason(one_line(error))
