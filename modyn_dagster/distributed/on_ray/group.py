"""Group whose ranks are actors of a Ray cluster: all start together, or none does.

Ray Train does more: it restarts ranks from its own checkpoints, and keeps its own metrics and attempts. This package has these,
so plain actors in a placement group are enough.
"""

import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

from modyn_dagster.distributed.codec import encode
from modyn_dagster.distributed.messages import answer_call, pack_call
from modyn_dagster.distributed.on_ray.cluster import ONE_CORE, bundle_of, connect, options_of, require_room, result_of
from modyn_dagster.distributed.protocols import Rank, Resources
from modyn_dagster.errors import NoRoom

Item = TypeVar("Item")
Result = TypeVar("Result")

_LOOK_SECONDS: Final = 1.0


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


class _RankProcess:
    """Process of one rank, as an actor."""

    def call(self, packed: bytes, place: bytes | None = None) -> bytes:
        """Answer a packed call, in a place among the ranks."""
        return answer_call(packed, place, secrets=False)


def meeting_point(_: None) -> str:
    """Address of a free port of this node: in the process of the first rank."""
    import ray

    host = ray.util.get_node_ip_address()
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"


def _actor(ray: Any, group: Any, place: int, resources: Resources) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place)
    return ray.remote(_RankProcess).options(scheduling_strategy=strategy, max_restarts=0, **options_of(resources)).remote()


def _results(ray: Any, calls: list[Any], work: str) -> list[Any]:
    """Results by rank. The first rank that fails ends the others: they might wait for it in a collective call."""
    waiting = list(calls)
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1, timeout=_LOOK_SECONDS)
        for reference in done:
            result_of(ray, reference, work)
    return [result_of(ray, reference, work) for reference in calls]
