"""Pools and groups by name: the one place that knows the kinds of workers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from modyn_dagster.distributed.on_ray.cluster import connect
from modyn_dagster.distributed.on_ray.group import RayGroup
from modyn_dagster.distributed.on_ray.pool import RayPool
from modyn_dagster.distributed.processes.group import LocalGroup
from modyn_dagster.distributed.processes.pool import ProcessPool
from modyn_dagster.distributed.protocols import Group, Pool
from modyn_dagster.errors import ConfigError

#: Name of the pool of processes of this machine, which a number alone means too.
_PROCESSES: Final = "processes"


def named_pool(workers: str) -> str:
    """Return the full name of a pool: ``processes:4`` for ``4``. ``ConfigError`` for a text that names none.

    >>> named_pool("4"), named_pool("ray:10.0.0.1:6379")
    ('processes:4', 'ray:10.0.0.1:6379')
    """
    kind, _, rest = workers.rpartition(":") if workers.isdecimal() else workers.partition(":")
    if (kind or _PROCESSES) not in _POOLS or not rest:
        raise _unknown(workers)
    if (kind or _PROCESSES) == _PROCESSES and not (rest.isdecimal() and int(rest) > 0):
        raise _unknown(workers)
    return f"{kind or _PROCESSES}:{rest}"


@contextmanager
def open_pool(workers: str | None, *, at_once: bool = True) -> Iterator[Pool | None]:
    """Open the pool that a text names for a block, and end its workers after it; None without a text.

    Without ``at_once`` a cluster is asked at the first call, for work that can do without workers.

    Raises:
        ConfigError: the text names no pool, or, at once, a cluster that does not answer.
    """
    if not workers:
        yield None
        return
    kind, _, rest = named_pool(workers).partition(":")
    if kind == "ray" and at_once:
        connect(rest)
    with _POOLS[kind](rest) as pool:
        yield pool


def _unknown(workers: str) -> ConfigError:
    rule = "must be a number of processes above 0, such as `4` or `processes:4`, or a Ray cluster, `ray:auto` or `ray:host:port`"
    return ConfigError("environment", "MODYN_WORKERS (`--workers`)", workers, rule)


def open_group(ranks: str) -> Group:
    """Open the group that a text names: ``processes`` of this machine, or ``ray:<address>``; ``ConfigError`` for another one."""
    if are_on_a_cluster(ranks):
        return RayGroup(ranks.partition(":")[2])
    if ranks != _PROCESSES:
        raise ConfigError(
            "environment", "MODYN_RANKS", ranks, "must be `processes`, or a Ray cluster, `ray:auto` or `ray:host:port`"
        )
    return LocalGroup()


def are_on_a_cluster(ranks: str) -> bool:
    """Tell whether a text names ranks that a cluster places, and that reserve their room there.

    >>> are_on_a_cluster("ray:auto"), are_on_a_cluster("processes")
    (True, False)
    """
    kind, _, rest = ranks.partition(":")
    return kind == "ray" and bool(rest)


#: Openers by kind; each gets the text after the colon.
_POOLS: Final[Mapping[str, Callable[[str], AbstractContextManager[Pool]]]] = {
    _PROCESSES: lambda number: ProcessPool(int(number)),
    "ray": lambda address: nullcontext(RayPool(address)),
}
