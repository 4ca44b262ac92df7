"""Group whose ranks are actors of a Ray cluster: all start together, or none does.

Ray Train does more: it restarts ranks from its own checkpoints, and keeps its own metrics and attempts. This package has these,
so plain actors in a placement group are enough.
"""

import os
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import psutil

from modyn_dagster.distributed.children import thread_settings
from modyn_dagster.distributed.codec import decode, encode
from modyn_dagster.distributed.messages import answer_call, pack_call
from modyn_dagster.distributed.on_ray.cluster import ONE_CORE, bundle_of, connect, options_of, require_room, result_of
from modyn_dagster.distributed.protocols import Rank, Resources
from modyn_dagster.errors import NoRoom, RanksApart

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_SECONDS: Final = 1.0
#: Seconds in which a rank whose failure explains that of another one is waited for.
_GRACE: Final = 3.0
#: Interface of gloo and NCCL. Without them they take the one that the name of the machine leads to, often the loopback interface,
#: which no other machine reaches. NCCL takes a name for the beginning of one, unless ``=`` stands before it.
_INTERFACES: Final = {"GLOO_SOCKET_IFNAME": "{}", "NCCL_SOCKET_IFNAME": "={}"}


class RayGroup:
    """Ranks as actors in a placement group: on one node where it has room, else on several.

    Attributes:
        address: ``host:port`` of the head, or ``auto``.
        patience: seconds to wait until all ranks have room at the same time.
    """

    def __init__(self, address: str = "auto", patience: float = 600.0) -> None:
        self.address, self.patience = address, patience

    def run(
        self,
        function: Callable[[Rank, Item], Result],
        argument: Item,
        ranks: int,
        resources: Resources = ONE_CORE,
    ) -> list[Result]:
        """Call a function in every rank with the same argument; return the results by rank.

        Raises:
            NoRoom: the cluster has no room for all ranks at the same time.
            WorkerLost: the process or the node of a rank died.
        """
        from ray.util.placement_group import placement_group, remove_placement_group

        ray, work = connect(self.address), f"{function.__module__}.{function.__name__} in {ranks} ranks"
        require_room(ray, work, resources, self.patience)
        group = placement_group([bundle_of(resources)] * ranks, strategy="PACK")
        actors: list[Any] = []
        try:
            if not group.wait(self.patience):
                found = f"the cluster has no room for {ranks} ranks at the same time; it has {ray.available_resources()} free"
                raise NoRoom(work, f"{ranks} times {bundle_of(resources)}", found)
            actors = [_actor(ray, group, place, resources) for place in range(ranks)]
            address = result_of(ray, actors[0].call.remote(pack_call(meeting_point, None)), work)
            # One object of the cluster, which a node fetches once for all of its ranks.
            shared = ray.put(pack_call(function, argument, secrets=False))
            places = [encode(Rank(place, ranks, address)) for place in range(ranks)]
            calls = [actor.call.remote(shared, place) for actor, place in zip(actors, places)]
            return _results(ray, calls, work)
        finally:
            for actor in actors:
                ray.kill(actor)
            remove_placement_group(group)


class RankProcess:
    """Process of one rank, as an actor."""

    def call(self, packed: bytes, place: bytes | None = None) -> bytes:
        """Answer a packed call, in a place among the ranks, which other machines can reach."""
        if place is not None:
            use_interface_towards(decode(place).address)
        return answer_call(packed, place, secrets=False)


def meeting_point(_: None) -> str:
    """Address of a free port of this node: in the process of the first rank."""
    import ray

    host = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"


def use_interface_towards(address: str) -> None:
    """Let gloo and NCCL use the interface towards a meeting point, in this process; one that its node names already stays.

    Args:
        address: ``tcp://host:port``.
    """
    place = urlsplit(address)
    interface = interface_towards(str(place.hostname), int(place.port or 0))
    if interface is not None:
        for name, value in _INTERFACES.items():
            os.environ.setdefault(name, value.format(interface))


def interface_towards(host: str, port: int) -> str | None:
    """Name of the interface with the address that this machine has for another one; None where no way leads there.

    >>> interface_towards("127.0.0.1", 6379)
    'lo'
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # A connection of datagrams sends nothing.
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:
        return None
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, addresses in interfaces if any(each.address == own for each in addresses)), None)


def _actor(ray: Any, group: Any, place: int, resources: Resources) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place)
    options = {"max_restarts": 0, "runtime_env": {"env_vars": thread_settings(resources.cpus)}, **options_of(resources)}
    return ray.remote(RankProcess).options(scheduling_strategy=strategy, **options).remote()


def _results(ray: Any, calls: list[Any], work: str) -> list[Any]:
    """Results by rank. The first rank that fails ends the others: they might wait for it in a collective call.

    A rank may report that it does not reach another one before the end of that one is seen here, so such a report waits for
    what explains it.
    """
    waiting, results = list(calls), {}
    report: RanksApart | None = None
    until: float | None = None
    while waiting and (until is None or monotonic() < until):
        timeout = _LOOK_SECONDS if until is None else max(0.0, min(_LOOK_SECONDS, until - monotonic()))
        done, waiting = ray.wait(waiting, num_returns=1, timeout=timeout)
        for reference in done:
            try:
                results[reference] = result_of(ray, reference, work)
            except RanksApart as error:
                report, until = report or error, until or monotonic() + _GRACE
    if report is not None:
        raise report
    return [results[reference] for reference in calls]
