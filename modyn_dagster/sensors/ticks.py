"""Ticks survive a database that is down, a full disk and the like, and do not keep others from their own."""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

import dagster as dg

from modyn_dagster.bounded_call import BoundedCall, StillGoing
from modyn_dagster.errors import SchemaOutdated, ServerFailed, TickHangs, is_transient, one_line

T = TypeVar("T")

#: Environment variables with the seconds that Dagster's daemon waits for a tick, the first that is set counts, and the default.
_LIMITS: Final = ("DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS", "DAGSTER_GRPC_TIMEOUT_SECONDS")
_DEFAULT_LIMIT: Final = "60"
#: Share of that time after which a tick says itself that it hangs.
_SHARE: Final = 0.75

#: Ticks of this process that were left behind, by sensor.
_HANGING: Final[dict[str, BoundedCall[Any]]] = {}


def bounded_tick(sensor: str, tick: Callable[[], T]) -> T | dg.SkipReason:
    """The tick's own result, or a skip that says what is down or full; the next tick looks again.

    A tick may call code of the user: a policy, its criterion. The daemon stops to wait for one that hangs, but its thread, one of
    the few that evaluate all sensors of the code location, would be lost, at every tick another one. Here the tick has a thread
    of its own, and fails after three quarters of the daemon's time; while that thread goes on, later ticks fail at once.

    Raises ``TickHangs``.
    """
    if (hanging := _HANGING.get(sensor)) is not None:
        if not hanging.has_ended:
            raise TickHangs(sensor, hanging.seconds, hanging.place())
        del _HANGING[sensor]
    call = BoundedCall(sensor, lambda: _skip_if_unavailable(tick))
    try:
        return call.result(tick_seconds())
    except StillGoing:
        _HANGING[sensor] = call
        raise TickHangs(sensor, call.seconds, call.place()) from None


def tick_seconds() -> float:
    """Longest tick that is waited for."""
    return _SHARE * int(next(filter(None, map(os.environ.get, _LIMITS)), _DEFAULT_LIMIT))


def _skip_if_unavailable(tick: Callable[[], T]) -> T | dg.SkipReason:
    try:
        return tick()
    except (SchemaOutdated, ServerFailed) as error:
        return dg.SkipReason(str(error))
    except Exception as error:
        if not is_transient(error):
            raise
        return dg.SkipReason(one_line(error))
