"""Pools by name: the one place that knows the kinds of workers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from modyn_dagster.distributed.processes import ProcessPool
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.distributed.ray_pool import RayPool
from modyn_dagster.errors import ConfigError

#: Name of the pool of processes of this machine, which a number alone means too.
_PROCESSES: Final = "processes"


def named_pool(workers: str) -> str:
    """Return the full name of a pool: ``processes:4`` for ``4``. ``ConfigError`` for a text that names none.

    >>> named_pool("4"), named_pool("ray:10.0.0.1:6379")
    ('processes:4', 'ray:10.0.0.1:6379')
    """
    kind, _, rest = workers.rpartition(":") if workers.isdecimal() else workers.partition(":")
    if (kind or _PROCESSES) not in _POOLS:
        raise _unknown(workers)
    if (kind or _PROCESSES) == _PROCESSES and not (rest.isdecimal() and int(rest) > 0):
        raise _unknown(workers)
    return f"{kind or _PROCESSES}:{rest}"


@contextmanager
def open_pool(workers: str | None) -> Iterator[Pool | None]:
    """Open the pool that a text names for a block, and end its workers after it; None without a text.

    Raises:
        ConfigError: the text names no pool.
    """
    if not workers:
        yield None
        return
    kind, _, rest = named_pool(workers).partition(":")
    with _POOLS[kind](rest) as pool:
        yield pool


def _unknown(workers: str) -> ConfigError:
    rule = "must be a number of processes above 0, such as `4` or `processes:4`, or a Ray cluster, `ray:auto` or `ray:host:port`"
    return ConfigError("environment", "MODYN_WORKERS (`--workers`)", workers, rule)


#: Openers by kind; each gets the text after the colon.
_POOLS: Final[Mapping[str, Callable[[str], AbstractContextManager[Pool]]]] = {
    _PROCESSES: lambda number: ProcessPool(int(number)),
    # The connection lasts as long as the process.
    "ray": lambda address: nullcontext(RayPool(address or "auto")),
}
